//! The parsed form of a scenario.

use super::matching::Matcher;
use crate::target::{Command, Millis};

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Script {
    pub title: String,
    pub proves: Vec<String>,
    pub settles: Vec<String>,
    pub rulings: Vec<String>,
    pub stories: Vec<ScenarioCase>,
}

/// One row of the table, or the whole file if it has none.
#[derive(Clone, Debug)]
pub struct ScenarioCase {
    pub row: Option<String>,
    pub steps: Vec<Step>,
    /// Job names in order of first use. Until they run, commands carry the index as a handle.
    pub(super) names: Vec<String>,
    pub(super) queues: Vec<String>,
    /// Names of workflows, like those of jobs.
    pub(super) workflows: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub line: usize,
    pub text: String,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Note,
    /// `binds`: the names of the jobs that the command creates.
    Do {
        command: Box<Command>,
        binds: Vec<usize>,
        /// The name of the workflow that the command creates.
        workflow: Option<usize>,
        expected: Expected,
        unchanged: bool,
    },
    Advance(Millis),
    AdvanceTo(Millis),
    Expect {
        job: usize,
        fields: Vec<(usize, Matcher)>,
    },
    Gone(usize),
    /// Names the current job of a workflow's member.
    Member {
        workflow: usize,
        member: String,
        name: usize,
    },
    ExpectWorkflow {
        workflow: usize,
        fields: Vec<(String, String)>,
    },
    WorkflowGone(usize),
    Counts {
        queue: String,
        fields: Vec<(String, String)>,
    },
    QueueGone(String),
    Attempts {
        job: usize,
        column: usize,
        pick: Pick,
        values: Vec<Matcher>,
    },
    History {
        job: usize,
        pick: Pick,
        values: Vec<Entry>,
    },
    Length {
        job: usize,
        history: bool,
        length: usize,
    },
    View {
        job: usize,
        view: String,
        fields: Vec<(String, Matcher)>,
    },
    ViewFields {
        job: usize,
        view: String,
        fields: Vec<String>,
    },
}

/// The entries of a list that a statement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    All,
    First(usize),
    Last(usize),
}

/// `running:claim@+30s`; cause and time are optional.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) state: String,
    pub(super) cause: Option<String>,
    pub(super) at: Option<Matcher>,
}

#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// No arrow: any result but a refusal and, for a submission, a duplicate.
    Accepted,
    Refused(String),
    Done,
    State(String),
    Workflow(String),
    Members(Vec<Member>),
    /// Like `Members`, for a workflow that existed before.
    Known(usize, Vec<Member>),
    Claimed(Vec<Expectation>),
    /// A word for each settlement, if given, and the claimed jobs, if given.
    SettledAndClaimed(Vec<Option<String>>, Option<Vec<Expectation>>),
    CancelRequested,
    Extended(Vec<(String, Matcher)>),
}

#[derive(Clone, Debug)]
pub(super) enum Member {
    Accepted,
    State(String),
    DuplicateOf(usize, Option<String>),
    DuplicateGone,
}

/// A claimed job: its name, its lease version, and optional fields.
#[derive(Clone, Debug)]
pub(super) struct Expectation {
    pub(super) job: usize,
    pub(super) version: u64,
    pub(super) extra: Vec<(String, Matcher)>,
}
