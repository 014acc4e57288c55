//! What a scenario is made of once it has been read.

use super::matching::Matcher;
use crate::target::{Command, Millis};

/// A whole file, ready to be played.
#[derive(Clone, Debug)]
pub struct Script {
    pub title: String,
    pub proves: Vec<String>,
    pub settles: Vec<String>,
    pub rulings: Vec<String>,
    pub stories: Vec<ScenarioCase>,
}

/// One row of the table, or the whole file where there is none.
#[derive(Clone, Debug)]
pub struct ScenarioCase {
    pub row: Option<String>,
    pub steps: Vec<Step>,
    /// Job names in the order of their first mention; commands carry the index as a handle until they are run.
    pub(super) names: Vec<String>,
    pub(super) queues: Vec<String>,
    /// Names of workflows, as those of jobs.
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
    /// `binds`: the names that the jobs created by the command get.
    Do {
        command: Box<Command>,
        binds: Vec<usize>,
        /// The name that a workflow started by the command gets.
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
    /// Gives a name to the job that a workflow's member is now.
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

/// Which entries of a list a statement looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    All,
    First(usize),
    Last(usize),
}

/// `running:claim@+30s`; cause and time may be left out.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) state: String,
    pub(super) cause: Option<String>,
    pub(super) at: Option<Matcher>,
}

#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// No arrow: anything but a refusal (and, for a submission, a duplicate).
    Accepted,
    Refused(String),
    Done,
    State(String),
    Workflow(String),
    Members(Vec<Member>),
    /// As `Members`, of a workflow that was there before.
    Known(usize, Vec<Member>),
    Claimed(Vec<Expectation>),
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

/// One claimed job: its name, its lease version, and perhaps more.
#[derive(Clone, Debug)]
pub(super) struct Expectation {
    pub(super) job: usize,
    pub(super) version: u64,
    pub(super) extra: Vec<(String, Matcher)>,
}
