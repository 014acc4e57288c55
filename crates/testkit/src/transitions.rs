//! The transition table: every command on a job in every state in every profile, and the expected
//! outcome.
//!
//! `tables/transitions.txt` holds the outcomes, written from the specifications. `setup.rs` reaches
//! each state and runs each command. A triple always runs on a fresh [`TestTarget`] by ordinary
//! commands, so one table checks the model, the engine, every store and the server.

mod setup;

use crate::target::{Answer, Handle, JobSnapshot, TestTarget};
use setup::{RESULT, TransitionSetup};
use std::collections::{BTreeMap, BTreeSet};

pub const PROFILES: [&str; 6] = ["standard", "gopherqueue", "taskharbor", "ocypod", "weave", "document"];

/// The nine states, with variants that behave differently.
pub const STATES: [&str; 13] = [
    "pending-held",
    "pending-waiting",
    "scheduled",
    "delayed",
    "running",
    "running-last",
    "running-cancelling",
    "running-expired",
    "retrying",
    "completed",
    "failed",
    "dead_letter",
    "cancelled",
];

pub const COMMANDS: [&str; 35] = [
    "claim",
    "complete",
    "complete-bogus",
    "complete-tokenless",
    "fail-temporary",
    "fail-permanent",
    "fail-final",
    "fail-timeout",
    "fail-system",
    "fail-unclassified",
    "snooze",
    "release",
    "heartbeat",
    "children",
    "submit-held",
    "submit-held-full",
    "cancel",
    "cancel-force",
    "requeue",
    "dead-letter",
    "run-now",
    "edit-priority",
    "edit-type",
    "edit-tags",
    "edit-limit",
    "delete",
    "due",
    "lease-expiry",
    "deadline",
    "lifetime",
    "retention",
    "dependency-completed",
    "dependency-failed",
    "dependency-dead-lettered",
    "dependency-cancelled",
];

const REFUSALS: [&str; 4] = ["illegal_transition", "stale_lease", "validation", "queue_full"];

/// The words of a cell, without the `-` of an impossible pair.
pub const CELLS: [&str; 17] = [
    "pending",
    "scheduled",
    "delayed",
    "running",
    "retrying",
    "completed",
    "failed",
    "dead_letter",
    "cancelled",
    "=",
    "asked",
    "clone",
    "gone",
    "illegal_transition",
    "stale_lease",
    "validation",
    "queue_full",
];

/// Makes a fresh target with an empty store.
pub type Factory = fn() -> Box<dyn TestTarget>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triple {
    pub state: &'static str,
    pub command: &'static str,
    pub profile: &'static str,
}

/// Transitions in a job's history; the first one starts from `none`.
pub type Moves = BTreeSet<(String, String)>;

/// Returns all triples, impossible ones included.
pub fn triples() -> impl Iterator<Item = Triple> {
    let pairs = STATES.iter().flat_map(|state| COMMANDS.iter().map(move |command| (state, command)));
    pairs.flat_map(|(state, command)| PROFILES.iter().map(move |profile| Triple { state, command, profile }))
}

/// Whether a profile with its default settings can bring a job into the state.
#[must_use]
pub fn arises(triple: Triple) -> bool {
    match triple.state {
        // Without delayed start and snooze.
        "delayed" if triple.profile == "document" => return false,
        // Other profiles cancel a running job at once.
        "running-cancelling" if !matches!(triple.profile, "standard" | "gopherqueue" | "taskharbor") => return false,
        // Other profiles process an expired lease at its expiry.
        "running-expired" if triple.profile != "weave" => return false,
        _ => {}
    }
    // A dependency that counts keeps its dependent pending.
    !triple.command.starts_with("dependency-") || triple.state.starts_with("pending")
}

/// The expected outcome of every triple.
#[derive(Clone, Debug)]
pub struct Table {
    cells: BTreeMap<(String, String, String), String>,
}

impl Table {
    /// Reads the table and reports all faults: unknown words, missing or duplicate pairs, cells
    /// that contradict whether a pair is possible.
    pub fn read(text: &str) -> Result<Table, Vec<String>> {
        let mut cells = BTreeMap::new();
        let mut faults = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut rows = lines.map(|(index, line)| (index + 1, line.split('|').map(str::trim).collect::<Vec<_>>()));
        let heading: Vec<&str> = ["state", "command"].into_iter().chain(PROFILES).collect();
        if rows.next().is_none_or(|(_, fields)| fields != heading) {
            faults.push(format!("the first row must be: {}", heading.join(" | ")));
        }
        for (line, fields) in rows {
            let [state, command, answers @ ..] = fields.as_slice() else { continue };
            if !STATES.contains(state) || !COMMANDS.contains(command) || answers.len() != PROFILES.len() {
                faults.push(format!("line {line}: unknown state, unknown command or wrong number of cells"));
                continue;
            }
            for (profile, answer) in PROFILES.iter().zip(answers) {
                let key = ((*state).to_owned(), (*command).to_owned(), (*profile).to_owned());
                if *answer != "-" && !CELLS.contains(answer) {
                    faults.push(format!("line {line}: '{answer}' is no possible cell"));
                }
                if cells.insert(key, (*answer).to_owned()).is_some() {
                    faults.push(format!("line {line}: {state} x {command} is listed twice"));
                }
            }
        }
        let table = Table { cells };
        for triple in triples() {
            match table.cell(triple) {
                None => faults.push(format!("{} x {} is missing", triple.state, triple.command)),
                Some(cell) if (cell == "-") == arises(triple) => {
                    faults.push(format!("{} x {} x {}: '{cell}'", triple.state, triple.command, triple.profile));
                }
                Some(_) => {}
            }
        }
        if faults.is_empty() { Ok(table) } else { Err(faults) }
    }

    /// Whether a cancel in this state only asks the worker.
    fn is_asked(&self, state: &'static str, profile: &'static str) -> bool {
        self.cell(Triple { state, command: "cancel", profile }) == Some("asked")
    }

    #[must_use]
    pub fn cell(&self, triple: Triple) -> Option<&str> {
        let key = (triple.state.to_owned(), triple.command.to_owned(), triple.profile.to_owned());
        self.cells.get(&key).map(String::as_str)
    }
}

/// Runs one triple and compares it with the cell. Returns the transitions in the job's history.
pub fn check(factory: impl Fn() -> Box<dyn TestTarget>, triple: Triple, cell: &str) -> Result<Moves, String> {
    let mut stage = TransitionSetup::reach(factory, triple).map_err(|why| format!("set-up: {why}"))?;
    stage.prepare().map_err(|why| format!("set-up: {why}"))?;
    let before = stage.snapshot().ok_or("set-up: the job is gone")?;
    let id = stage.id();
    let answer = stage.act()?;
    let after = stage.snapshot();
    let verdict = judge(&mut stage, cell, &before, after.as_ref(), answer.as_ref());
    let verdict = verdict.and_then(|()| ensure(after.is_none() || stage.id() == id, || "its id changed".to_owned()));
    verdict.map_err(|why| {
        let state = after.as_ref().map_or("gone", |job| job.state.as_str());
        format!("{why}; answered {answer:?}, state {state}")
    })?;
    let shown = after.as_ref().unwrap_or(&before);
    let moves =
        shown.history.iter().map(|step| (step.from.clone().unwrap_or_else(|| "none".to_owned()), step.to.clone()));
    Ok(moves.collect())
}

/// The commands of the table that each action of an operator stands for.
const ACTIONS: [(&str, &[&str]); 8] = [
    ("submit", &["submit-held"]),
    ("cancel", &["cancel"]),
    ("force_cancel", &["cancel-force"]),
    ("run_now", &["run-now"]),
    ("requeue", &["requeue"]),
    ("dead_letter", &["dead-letter"]),
    ("delete", &["delete"]),
    ("edit", &["edit-priority", "edit-type", "edit-tags", "edit-limit"]),
];

/// Compares the actions that a target offers in a state with the cells of their commands: offered
/// is what the table does not refuse. Returns the differences.
pub fn check_actions(factory: Factory, state: &'static str, profile: &'static str, table: &Table) -> Vec<String> {
    let triple = |command| Triple { state, command, profile };
    if !arises(triple("cancel")) {
        return Vec::new();
    }
    let mut stage = match TransitionSetup::reach(factory, triple("cancel")) {
        Ok(stage) => stage,
        Err(why) => return vec![format!("{state} in {profile}: {why}")],
    };
    let job = stage.job;
    let offered = stage.subject.actions(job).unwrap_or_default();
    let mut differences = Vec::new();
    for (action, commands) in ACTIONS {
        let succeeds = |command: &&'static str| {
            table.cell(triple(command)).is_some_and(|cell| cell != "-" && !REFUSALS.contains(&cell))
        };
        // Only a run that waits for its worker needs force.
        let is_needed = action != "force_cancel" || table.is_asked(state, profile);
        if offered.contains(&action) != (commands.iter().any(succeeds) && is_needed) {
            differences.push(format!("{state} in {profile}: {action} differs from the table, offered: {offered:?}"));
        }
    }
    differences
}

/// Returns a view of a job in a state, or after the triple's command if `acted`.
pub fn shown(
    factory: impl Fn() -> Box<dyn TestTarget>,
    triple: Triple,
    acted: bool,
) -> Result<BTreeMap<String, String>, String> {
    let mut stage = TransitionSetup::reach(factory, triple)?;
    if acted {
        stage.act()?;
    }
    stage.subject.view(stage.job, triple.profile).ok_or_else(|| "no view".to_owned())
}

fn judge(
    stage: &mut TransitionSetup,
    cell: &str,
    before: &JobSnapshot,
    after: Option<&JobSnapshot>,
    answer: Option<&Answer>,
) -> Result<(), String> {
    if REFUSALS.contains(&cell) {
        let refused = matches!(answer, Some(Answer::Refused { code }) if code == cell);
        ensure(refused, || "not refused so".to_owned())?;
        return same(before, after);
    }
    if let Some(Answer::Refused { .. }) = answer {
        return Err("refused".to_owned());
    }
    if cell == "gone" {
        return ensure(after.is_none(), || "still there".to_owned());
    }
    let after = after.ok_or("it is gone")?;
    contiguous(before, after)?;
    let claimed = u64::from(stage.triple.command == "claim" && cell != "=");
    ensure(after.lease_version == before.lease_version + claimed, || "wrong lease version".to_owned())?;
    match cell {
        "clone" => judge_clone(stage, before, after, answer),
        "asked" => {
            ensure(answer == Some(&Answer::CancelRequested), || "another answer".to_owned())?;
            ensure(after.cancel_requested && after.state == before.state, || "not noted".to_owned())
        }
        "=" => {
            // Only these may change a field without a transition (a held job sees its dependencies
            // end).
            let command = stage.triple.command;
            let touches =
                ["heartbeat", "children", "edit-", "dependency-"].iter().any(|word| command.starts_with(word));
            if !touches {
                same(before, Some(after))?;
            }
            ensure(after.state == before.state, || "it moved".to_owned())?;
            judge_answer(stage.job, after, false, answer)
        }
        state => {
            ensure(after.state == state, || "another state".to_owned())?;
            ensure(after.history.len() > before.history.len(), || "no move in its history".to_owned())?;
            let kept = state != "completed" || after.result.as_deref() == Some(RESULT);
            ensure(kept, || "the result is lost".to_owned())?;
            judge_answer(stage.job, after, true, answer)
        }
    }
}

/// Checks that the answer agrees with the job.
fn judge_answer(job: Handle, after: &JobSnapshot, moved: bool, answer: Option<&Answer>) -> Result<(), String> {
    match answer {
        Some(Answer::Claimed(claimed)) => {
            let handed_out = claimed.iter().any(|claimed| claimed.job == job && claimed.version == after.lease_version);
            ensure(handed_out == moved, || "handed out wrongly".to_owned())
        }
        Some(Answer::State { job: answered, state: named }) => {
            ensure(*answered == job && *named == after.state, || "the answer has another state".to_owned())
        }
        Some(Answer::CancelRequested) => Err("only asked".to_owned()),
        _ => Ok(()),
    }
}

fn judge_clone(
    stage: &mut TransitionSetup,
    before: &JobSnapshot,
    after: &JobSnapshot,
    answer: Option<&Answer>,
) -> Result<(), String> {
    let Some(Answer::State { job: clone, state }) = answer else { return Err("no state answered".to_owned()) };
    ensure(*clone != stage.job && state == "scheduled", || "no clone".to_owned())?;
    let mut marked = before.clone();
    marked.requeued_as = Some(*clone);
    same(&marked, Some(after))?;
    let made = stage.subject.job(*clone).ok_or("the clone does not exist")?;
    ensure(made.requeued_from == Some(stage.job) && made.state == "scheduled", || {
        "the clone is not what it should be".to_owned()
    })
}

/// Checks that history only grows, is contiguous, and ends in the current state.
fn contiguous(before: &JobSnapshot, after: &JobSnapshot) -> Result<(), String> {
    ensure(after.history.starts_with(&before.history), || "history was rewritten".to_owned())?;
    let linked = after.history.windows(2).all(|pair| pair[1].from.as_ref() == Some(&pair[0].to));
    ensure(linked, || "history has a gap".to_owned())?;
    let last = after.history.last().map(|step| step.to.as_str());
    ensure(last == Some(after.state.as_str()), || "history ends elsewhere".to_owned())
}

fn same(before: &JobSnapshot, after: Option<&JobSnapshot>) -> Result<(), String> {
    let after = after.ok_or("it is gone")?;
    if before == after {
        return Ok(());
    }
    let (old, new) = (format!("{before:#?}"), format!("{after:#?}"));
    let changed = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    Err(format!("changed: {changed:?}"))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
