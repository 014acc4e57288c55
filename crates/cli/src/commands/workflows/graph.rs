//! Who waits for whom, drawn: as a tree in the terminal, for Graphviz, for Mermaid.

use std::collections::{BTreeMap, HashMap};

use longshore_api::enums::State;
use longshore_api::workflow::{Member, WorkflowWithJobs};

use super::get::shortened;
use crate::terminal::table::{Table, Value};

/// What jobs are called, by id.
pub(super) fn names(workflow: &WorkflowWithJobs) -> HashMap<&str, &str> {
    workflow.jobs.iter().map(|job| (job.id.as_str(), job.reference.as_str())).collect()
}

fn sign(state: State) -> char {
    match state {
        State::Pending => '·',
        State::Scheduled => '○',
        State::Delayed => '◷',
        State::Running => '▶',
        State::Retrying => '↻',
        State::Completed => '✔',
        State::Failed | State::DeadLetter => '✘',
        State::Cancelled => '⊘',
    }
}

fn waits_for(job: &Member) -> impl Iterator<Item = &str> {
    job.after.iter().chain(&job.after_any).map(String::as_str)
}

/// Each job once, under the last of those it waits for; the others are named beside it.
pub(super) fn tree(workflow: &WorkflowWithJobs) -> Table {
    let places: HashMap<&str, usize> =
        workflow.jobs.iter().enumerate().map(|(place, job)| (job.id.as_str(), place)).collect();
    let (mut below, mut roots): (BTreeMap<usize, Vec<usize>>, Vec<usize>) = (BTreeMap::new(), Vec::new());
    let mut above = vec![None; workflow.jobs.len()];
    for (place, job) in workflow.jobs.iter().enumerate() {
        let last = waits_for(job).filter_map(|id| places.get(id).copied()).last();
        match last {
            Some(last) => below.entry(last).or_default().push(place),
            None => roots.push(place),
        }
        if let Some(slot) = above.get_mut(place) {
            *slot = last;
        }
    }
    let names = names(workflow);
    let mut table = Table::new(&["JOB", "STATE", "TYPE", "ALSO AFTER"]);
    // A stack, not a recursion: chains may be long.
    let mut stack: Vec<(usize, String, bool)> = roots.iter().rev().map(|root| (*root, String::new(), true)).collect();
    while let Some((place, indent, root)) = stack.pop() {
        let Some(job) = workflow.jobs.get(place) else { continue };
        let under = above.get(place).copied().flatten().and_then(|above| workflow.jobs.get(above));
        let others: Vec<&str> = waits_for(job)
            .filter(|id| under.is_none_or(|under| under.id != *id))
            .map(|id| names.get(id).copied().unwrap_or(id))
            .collect();
        table.row(vec![
            format!("{indent}{} {}", sign(job.state), job.reference).into(),
            Value::State(job.state),
            job.job_type.as_str().into(),
            shortened(&others).into(),
        ]);
        let inner = if root { String::new() } else { continued(&indent) };
        let children = below.get(&place).map_or(&[][..], Vec::as_slice);
        for (number, child) in children.iter().enumerate().rev() {
            let branch = if number + 1 == children.len() { "└─ " } else { "├─ " };
            stack.push((*child, format!("{inner}{branch}"), false));
        }
    }
    table
}

/// The same lines go on below a branch, or do not.
fn continued(indent: &str) -> String {
    match (indent.strip_suffix("├─ "), indent.strip_suffix("└─ ")) {
        (Some(front), _) => format!("{front}│  "),
        (None, Some(front)) => format!("{front}   "),
        (None, None) => indent.to_owned(),
    }
}

/// Numbers for ids: short, and safe in any language.
fn edges(workflow: &WorkflowWithJobs) -> impl Iterator<Item = (usize, usize, bool)> {
    let places: HashMap<&str, usize> =
        workflow.jobs.iter().enumerate().map(|(place, job)| (job.id.as_str(), place)).collect();
    workflow.jobs.iter().enumerate().flat_map(move |(place, job)| {
        let strict = job.after.iter().map(|id| (id, false));
        let any = job.after_any.iter().map(|id| (id, true));
        let found = strict.chain(any).filter_map(|(id, any)| Some((*places.get(id.as_str())?, any)));
        found.map(move |(from, any)| (from, place, any)).collect::<Vec<_>>()
    })
}

fn colour(state: State) -> &'static str {
    match state {
        State::Completed => "palegreen",
        State::Running => "lightcyan",
        State::Retrying | State::Cancelled => "khaki",
        State::Failed | State::DeadLetter => "lightpink",
        State::Pending | State::Scheduled | State::Delayed => "white",
    }
}

/// Between quotes.
fn quoted(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] })
        .collect()
}

pub(super) fn dot(workflow: &WorkflowWithJobs) -> String {
    let mut lines = vec!["digraph workflow {".to_owned(), "  node [shape=box, style=\"rounded,filled\"];".to_owned()];
    for (place, job) in workflow.jobs.iter().enumerate() {
        let (name, kind) = (quoted(&job.reference), quoted(&job.job_type));
        let (state, colour) = (job.state, colour(job.state));
        lines.push(format!("  j{place} [label=\"{name}\\n{kind}\\n{state}\", fillcolor={colour}];"));
    }
    for (from, to, any) in edges(workflow) {
        lines.push(format!("  j{from} -> j{to}{};", if any { " [style=dashed]" } else { "" }));
    }
    lines.push("}".to_owned());
    lines.join("\n")
}

pub(super) fn mermaid(workflow: &WorkflowWithJobs) -> String {
    // Quotes end a label there, whatever stands before them.
    let label = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>().replace('"', "#quot;");
    let mut lines = vec!["flowchart TD".to_owned()];
    for (place, job) in workflow.jobs.iter().enumerate() {
        let text = format!("{}<br/>{}<br/>{}", label(&job.reference), label(&job.job_type), job.state);
        lines.push(format!("  j{place}[\"{text}\"]:::{}", job.state));
    }
    for (from, to, any) in edges(workflow) {
        lines.push(format!("  j{from} {} j{to}", if any { "-.->" } else { "-->" }));
    }
    for state in State::ALL {
        if workflow.jobs.iter().any(|job| job.state == *state) {
            lines.push(format!("  classDef {state} fill:{}", colour(*state)));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::output::Output;

    fn flow() -> WorkflowWithJobs {
        let job = |name: &str, state: State, after: &[&str], any: &[&str]| Member {
            reference: name.to_owned(),
            id: format!("id-{name}"),
            state,
            queue: "q".to_owned(),
            job_type: "t\"1".to_owned(),
            after: after.iter().map(|name| format!("id-{name}")).collect(),
            after_any: any.iter().map(|name| format!("id-{name}")).collect(),
        };
        let workflow = serde_json::from_str(
            r#"{"id":"w","name":null,"state":"running","open":false,"created_at":"2026-01-01T00:00:00.000Z","counts":{},"ended":1,"total":5}"#,
        );
        WorkflowWithJobs {
            workflow: workflow.unwrap(),
            jobs: vec![
                job("a", State::Completed, &[], &[]),
                job("b", State::Running, &["a"], &[]),
                job("c", State::Failed, &["a"], &[]),
                job("d", State::Pending, &["b", "c"], &[]),
                job("e", State::Scheduled, &[], &["a", "elsewhere"]),
            ],
            next: None,
        }
    }

    #[test]
    fn a_tree_shows_each_job_once() {
        let screen = Output { json: false, terminal: false, colour: false };
        let drawn = tree(&flow()).drawn(&screen);
        let lines: Vec<&str> = drawn.lines().map(|line| line.split("  t\"1").next().unwrap().trim_end()).collect();
        assert_eq!(
            lines,
            [
                "JOB        STATE      TYPE  ALSO AFTER",
                "✔ a        completed",
                "├─ ▶ b     running",
                "├─ ✘ c     failed",
                "│  └─ · d  pending",
                "└─ ○ e     scheduled",
            ],
            "\n{drawn}"
        );
        assert!(drawn.contains("pending    t\"1   b"), "{drawn}");
    }

    #[test]
    fn exports_name_and_quote() {
        let dot = dot(&flow());
        assert!(dot.contains(r#"j0 [label="a\nt\"1\ncompleted", fillcolor=palegreen];"#), "{dot}");
        assert!(dot.contains("j1 -> j3;") && dot.contains("j0 -> j4 [style=dashed];"), "{dot}");
        let mermaid = mermaid(&flow());
        assert!(mermaid.contains(r#"j2["c<br/>t#quot;1<br/>failed"]:::failed"#), "{mermaid}");
        assert!(mermaid.contains("j2 --> j3") && mermaid.contains("j0 -.-> j4"), "{mermaid}");
    }
}
