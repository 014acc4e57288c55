//! Draws the dependencies of a workflow: as a tree, for Graphviz, for Mermaid.

use std::collections::{BTreeMap, HashMap};

use longshore_api::enums::State;
use longshore_api::workflow::{Member, WorkflowWithJobs};

use super::get::shortened;
use crate::terminal::table::{CellValue, TextTable};

/// Names of members by id.
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

fn dependencies(job: &Member) -> impl Iterator<Item = &str> {
    job.after.iter().chain(&job.after_any).map(String::as_str)
}

fn indexes_by_id(workflow: &WorkflowWithJobs) -> HashMap<&str, usize> {
    workflow.jobs.iter().enumerate().map(|(index, job)| (job.id.as_str(), index)).collect()
}

/// Draws each job once, below the last of its dependencies, and names the others beside it.
pub(super) fn tree(workflow: &WorkflowWithJobs) -> TextTable {
    let indexes = indexes_by_id(workflow);
    let (mut children_of, mut roots): (BTreeMap<usize, Vec<usize>>, Vec<usize>) = (BTreeMap::new(), Vec::new());
    let mut parents = vec![None; workflow.jobs.len()];
    for (index, job) in workflow.jobs.iter().enumerate() {
        let last = dependencies(job).filter_map(|id| indexes.get(id).copied()).last();
        match last {
            Some(last) => children_of.entry(last).or_default().push(index),
            None => roots.push(index),
        }
        if let Some(slot) = parents.get_mut(index) {
            *slot = last;
        }
    }
    let names = names(workflow);
    let mut table = TextTable::new(&["JOB", "STATE", "TYPE", "ALSO AFTER"]);
    // A stack instead of recursion: chains may be long.
    let mut stack: Vec<(usize, String, bool)> = roots.iter().rev().map(|root| (*root, String::new(), true)).collect();
    while let Some((index, indent, root)) = stack.pop() {
        let Some(job) = workflow.jobs.get(index) else { continue };
        let parent = parents.get(index).copied().flatten().and_then(|parent| workflow.jobs.get(parent));
        let others: Vec<&str> = dependencies(job)
            .filter(|id| parent.is_none_or(|parent| parent.id != *id))
            .map(|id| names.get(id).copied().unwrap_or(id))
            .collect();
        table.row(vec![
            format!("{indent}{} {}", sign(job.state), job.reference).into(),
            CellValue::State(job.state),
            job.job_type.as_str().into(),
            shortened(&others).into(),
        ]);
        let inner = if root { String::new() } else { continue_lines(&indent) };
        let children = children_of.get(&index).map_or(&[][..], Vec::as_slice);
        for (number, child) in children.iter().enumerate().rev() {
            let branch = if number + 1 == children.len() { "└─ " } else { "├─ " };
            stack.push((*child, format!("{inner}{branch}"), false));
        }
    }
    table
}

/// Indent of the rows below a branch: its line continues unless it was the last child.
fn continue_lines(indent: &str) -> String {
    match (indent.strip_suffix("├─ "), indent.strip_suffix("└─ ")) {
        (Some(front), _) => format!("{front}│  "),
        (None, Some(front)) => format!("{front}   "),
        (None, None) => indent.to_owned(),
    }
}

/// Edges as (dependency, dependent, is `after_any`). Indexes instead of ids need no quoting.
fn edges(workflow: &WorkflowWithJobs) -> impl Iterator<Item = (usize, usize, bool)> {
    let indexes = indexes_by_id(workflow);
    workflow.jobs.iter().enumerate().flat_map(move |(index, job)| {
        let strict = job.after.iter().map(|id| (id, false));
        let any = job.after_any.iter().map(|id| (id, true));
        let found = strict.chain(any).filter_map(|(id, any)| Some((*indexes.get(id.as_str())?, any)));
        found.map(move |(from, any)| (from, index, any)).collect::<Vec<_>>()
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

/// Escapes text for a quoted string of Graphviz.
fn quoted(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] })
        .collect()
}

pub(super) fn dot(workflow: &WorkflowWithJobs) -> String {
    let mut lines = vec!["digraph workflow {".to_owned(), "  node [shape=box, style=\"rounded,filled\"];".to_owned()];
    for (index, job) in workflow.jobs.iter().enumerate() {
        let (name, kind) = (quoted(&job.reference), quoted(&job.job_type));
        let (state, colour) = (job.state, colour(job.state));
        lines.push(format!("  j{index} [label=\"{name}\\n{kind}\\n{state}\", fillcolor={colour}];"));
    }
    for (from, to, any) in edges(workflow) {
        lines.push(format!("  j{from} -> j{to}{};", if any { " [style=dashed]" } else { "" }));
    }
    lines.push("}".to_owned());
    lines.join("\n")
}

pub(super) fn mermaid(workflow: &WorkflowWithJobs) -> String {
    // Mermaid has no escape character: a quote always ends the label.
    let label = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>().replace('"', "#quot;");
    let mut lines = vec!["flowchart TD".to_owned()];
    for (index, job) in workflow.jobs.iter().enumerate() {
        let text = format!("{}<br/>{}<br/>{}", label(&job.reference), label(&job.job_type), job.state);
        lines.push(format!("  j{index}[\"{text}\"]:::{}", job.state));
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

    fn workflow() -> WorkflowWithJobs {
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
        let output = Output { json: false, terminal: false, colour: false };
        let drawn = tree(&workflow()).render(&output);
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
    fn exports_escape_quotes() {
        let dot = dot(&workflow());
        assert!(dot.contains(r#"j0 [label="a\nt\"1\ncompleted", fillcolor=palegreen];"#), "{dot}");
        assert!(dot.contains("j1 -> j3;") && dot.contains("j0 -> j4 [style=dashed];"), "{dot}");
        let mermaid = mermaid(&workflow());
        assert!(mermaid.contains(r#"j2["c<br/>t#quot;1<br/>failed"]:::failed"#), "{mermaid}");
        assert!(mermaid.contains("j2 --> j3") && mermaid.contains("j0 -.-> j4"), "{mermaid}");
    }
}
