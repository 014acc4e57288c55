//! The interface of every implementation under test, in neutral types.
//!
//! The engine, the reference model, each store and the HTTP server are a [`TestTarget`]: they take
//! the same [`Command`]s, return the same [`Answer`]s and show the same [`JobSnapshot`]s. No type
//! comes from `longshore-core`, so the model shares no line with the engine.
//!
//! Jobs are named by *handle*: 0, 1, 2, … in order of creation, clones included, and so are
//! workflows. Lease tokens are named by (job, lease version). Timestamps are milliseconds since the
//! Unix epoch; durations are milliseconds. Settings are dotted paths of api.md with the value as
//! text (`retry.limit` = `3`, `lease` = `5s`, `retry.backoff.delays` = `10s,1m`, `max_reclaims` =
//! `null`).

use std::collections::BTreeMap;

pub type Handle = usize;
pub type Millis = i64;
/// Settings by dotted path. The paths imply a deep merge.
pub type Settings = BTreeMap<String, String>;

/// An implementation that commands drive in virtual time.
pub trait TestTarget {
    fn name(&self) -> &'static str;
    fn now(&mut self) -> Millis;
    /// Applies one command at the current time, then everything that is due at that time.
    fn apply(&mut self, command: &Command) -> Answer;
    /// Advances the clock, and stops at every deadline on the way.
    fn advance(&mut self, by: Millis);
    fn job(&mut self, job: Handle) -> Option<JobSnapshot>;
    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot>;
    fn workflow(&mut self, workflow: Handle) -> Option<WorkflowSnapshot>;
    /// Returns a view of one of the five specifications: field names and texts (`null` if absent).
    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>>;
    /// Returns the actions of operators that the target offers for a job; `None` if it offers none.
    fn actions(&mut self, _job: Handle) -> Option<Vec<&'static str>> {
        None
    }
    /// Returns why the last command was refused, in the words of the target. It is never compared.
    fn reason(&self) -> Option<String> {
        None
    }
}

#[expect(clippy::large_enum_variant, reason = "commands are made one at a time; boxes would only be in the way")]
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// `settings: None` keeps earlier overrides, `Some` replaces them all.
    PutQueue {
        queue: String,
        profile: Option<String>,
        settings: Option<Settings>,
    },
    Pause {
        queue: String,
    },
    Resume {
        queue: String,
    },
    DeleteQueue {
        queue: String,
        force: bool,
    },
    /// All or nothing.
    Submit {
        queue: String,
        jobs: Vec<NewJob>,
    },
    Claim {
        queues: Vec<String>,
        worker: String,
        limit: usize,
        types: Vec<String>,
        lease: Option<Millis>,
        execution_timeout: Option<Millis>,
    },
    Settle {
        job: Handle,
        token: Token,
        outcome: Outcome,
    },
    /// A claim that carries settlements; `claim` is a [`Command::Claim`].
    SettleAndClaim {
        settle: Vec<(Handle, Token, Outcome)>,
        claim: Box<Command>,
    },
    /// An operator directs a worker: run, quiet, stop.
    Direct {
        worker: String,
        directive: String,
    },
    Heartbeat {
        job: Handle,
        token: Token,
        progress: Option<String>,
        checkpoint: Option<String>,
    },
    /// `POST /jobs/{id}/submit`: releases a held job.
    SubmitHeld {
        job: Handle,
    },
    Cancel {
        job: Handle,
        reason: Option<String>,
        force: bool,
    },
    Requeue {
        job: Handle,
        reset: bool,
        run_at: Option<Millis>,
    },
    DeadLetter {
        job: Handle,
        reason: Option<String>,
    },
    RunNow {
        job: Handle,
    },
    Edit {
        job: Handle,
        edit: Edit,
    },
    Delete {
        job: Handle,
    },
    /// In the words of the Ocypod dialect: queued, running, failed, completed, cancelled,
    /// timed_out.
    ChangeStatus {
        job: Handle,
        status: Option<String>,
        output: Option<String>,
    },
    /// Fan-out by a running job; `finally` runs after all of `jobs` have completed.
    Children {
        job: Handle,
        token: Token,
        jobs: Vec<NewJob>,
        finally: Option<NewJob>,
    },
    StartWorkflow {
        queue: String,
        jobs: Vec<NewJob>,
        open: bool,
    },
    GrowWorkflow {
        workflow: Handle,
        queue: String,
        jobs: Vec<NewJob>,
    },
    CloseWorkflow {
        workflow: Handle,
    },
    CancelWorkflow {
        workflow: Handle,
        reason: Option<String>,
        force: bool,
    },
    RetryWorkflow {
        workflow: Handle,
    },
}

/// A submission. Dependencies are handles of existing jobs, or refs inside the same batch or
/// workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    pub job_type: String,
    /// Length in bytes of an opaque payload that the target makes.
    pub payload_bytes: usize,
    /// 0 critical … 4 bulk; absent is normal (2). Numbers out of range are allowed.
    pub priority: Option<i64>,
    pub run_at: Option<Millis>,
    pub delay: Option<Millis>,
    pub idempotency_key: Option<String>,
    pub external_id: Option<String>,
    pub tags: BTreeMap<String, Option<String>>,
    pub correlation_id: Option<String>,
    pub callback_url: Option<String>,
    pub traceparent: Option<String>,
    pub after: Vec<Dependency>,
    pub after_any: Vec<Dependency>,
    pub reference: Option<String>,
    pub hold: Option<bool>,
    /// Only retry.*, execution_timeout, lease, lifetime, retention.*, max_reclaims may be
    /// overridden by a job.
    pub settings: Settings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    Job(Handle),
    Ref(String),
    /// An id that no job has.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// The token of the claim with this lease version.
    Version(u64),
    /// A well-formed token that was never issued.
    Bogus,
    /// No token.
    Missing,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Complete { result: Option<String>, progress: Option<String> },
    Fail { category: String, code: Option<String>, message: String, retry_after: Option<Millis>, unrecoverable: bool },
    Snooze { delay: Millis },
    Release,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    pub priority: Option<i64>,
    pub job_type: Option<String>,
    pub tags: Option<BTreeMap<String, Option<String>>>,
    pub correlation_id: Option<String>,
    pub callback_url: Option<String>,
    pub retry_limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A queue was created, changed, paused, resumed or deleted; a job was deleted.
    Done,
    Submitted(Vec<Submitted>),
    Claimed(Vec<Claimed>),
    /// A state or an error code for each settlement, and the claimed jobs.
    SettledAndClaimed {
        verdicts: Vec<String>,
        claimed: Vec<Claimed>,
    },
    /// The state of a job after a settlement or an operator's command. `job` is the clone if a
    /// requeue made one.
    State {
        job: Handle,
        state: String,
    },
    /// A cooperative cancel of a running job was recorded.
    CancelRequested,
    Extended {
        expires_at: Option<Millis>,
        cancel_requested: bool,
    },
    FannedOut {
        jobs: Vec<Handle>,
        finally: Option<Handle>,
    },
    /// The workflow was created, extended, or existed already.
    Workflow {
        workflow: Handle,
        jobs: Vec<Submitted>,
    },
    /// The state of the workflow after it was closed, cancelled or retried; `running` while members
    /// are still live.
    WorkflowState {
        workflow: Handle,
        state: String,
    },
    /// An error code of api.md; nothing changed. For a batch, the code of its first invalid item.
    Refused {
        code: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// `None` if the key has outlived its job.
    pub job: Option<Handle>,
    pub state: Option<String>,
    pub duplicate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub job: Handle,
    pub version: u64,
    pub attempt: u32,
    pub expires_at: Option<Millis>,
    pub deadline_at: Option<Millis>,
    /// The length by which a heartbeat extends the lease; `None` if leases are off.
    pub lease_duration: Option<Millis>,
    /// A failure now would end the job.
    pub last_attempt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorSnapshot {
    pub category: String,
    pub code: Option<String>,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptSnapshot {
    pub number: u32,
    pub lease_version: u64,
    pub worker: String,
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    /// completed, failed, timed_out, lease_expired, snoozed, released, cancelled; `None` while
    /// open.
    pub outcome: Option<String>,
    /// Category of the error recorded with this attempt.
    pub category: Option<String>,
    pub next_delay: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySnapshot {
    pub from: Option<String>,
    pub to: String,
    pub at: Millis,
    pub cause: String,
}

/// The whole visible state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSnapshot {
    pub queue: String,
    pub job_type: String,
    pub state: String,
    pub priority: u8,
    pub effective_priority: u8,
    pub starts: u32,
    pub failures: u32,
    pub retries_scheduled: u32,
    pub requeues: u32,
    pub reclaims: u32,
    pub lease_version: u64,
    /// Of the current lease; `None` if the job is not running, or its lease has no end.
    pub lease_expires_at: Option<Millis>,
    pub deadline_at: Option<Millis>,
    pub worker: Option<String>,
    pub cancel_requested: bool,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub run_at: Option<Millis>,
    pub scheduled_at: Option<Millis>,
    pub started_at: Option<Millis>,
    pub first_started_at: Option<Millis>,
    pub last_heartbeat_at: Option<Millis>,
    pub attempt_ended_at: Option<Millis>,
    pub completed_at: Option<Millis>,
    pub progress: Option<String>,
    pub checkpoint: Option<String>,
    pub result: Option<String>,
    pub error: Option<ErrorSnapshot>,
    pub waiting_on: usize,
    pub parent: Option<Handle>,
    pub requeued_from: Option<Handle>,
    pub requeued_as: Option<Handle>,
    pub tags: BTreeMap<String, Option<String>>,
    pub correlation_id: Option<String>,
    pub callback_url: Option<String>,
    pub traceparent: Option<String>,
    pub idempotency_key: Option<String>,
    pub external_id: Option<String>,
    pub retry_limit: u32,
    pub attempts: Vec<AttemptSnapshot>,
    pub history: Vec<HistorySnapshot>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSnapshot {
    pub profile: String,
    pub paused: bool,
    /// State name to number of jobs, zeroes included.
    pub counts: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowSnapshot {
    pub state: String,
    /// Whether members may still be added.
    pub open: bool,
    /// State name to number of jobs, zeroes included. Deleted members count in their last state.
    pub counts: BTreeMap<String, u64>,
    /// Name and job of each stored member, oldest first.
    pub members: Vec<(String, Handle)>,
}
