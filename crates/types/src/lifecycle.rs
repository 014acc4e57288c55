//! Words of a job's lifecycle: states, causes, outcomes, failure categories.

use crate::string_enum::wire_enum;

wire_enum!(
    /// Action of an operator on a job.
    JobAction {
        /// Submit a held job.
        Submit = "submit",
        /// Cancel the job, or ask its worker to stop.
        Cancel = "cancel",
        /// Cancel a running job without waiting for its worker.
        ForceCancel = "force_cancel",
        /// Make a delayed or retrying job ready now.
        RunNow = "run_now",
        /// Run an ended job again.
        Requeue = "requeue",
        /// End the job as a dead letter.
        DeadLetter = "dead_letter",
        /// Delete the record of an ended job.
        Delete = "delete",
        /// Change fields of the job.
        Edit = "edit",
    }
);

wire_enum!(
    /// What an operator asks of a worker.
    WorkerDirective {
        /// Claim and run jobs.
        Run = "run",
        /// Finish the running jobs and claim no more.
        Quiet = "quiet",
        /// Finish or release the running jobs, then exit.
        Stop = "stop",
    }
);

wire_enum!(
    /// State of a job, without the data of the state.
    StateKind as "State" {
        /// Stored; waits for its submission or for dependencies.
        Pending = "pending",
        /// Ready: the next claim may take it.
        Scheduled = "scheduled",
        /// Ready at a later time.
        Delayed = "delayed",
        /// Held by a worker under a lease.
        Running = "running",
        /// Failed; ready again after the backoff.
        Retrying = "retrying",
        /// Ended with success.
        Completed = "completed",
        /// Ended without success.
        Failed = "failed",
        /// Ended without success; kept until an operator requeues or deletes it.
        DeadLetter = "dead_letter",
        /// Ended by a cancel.
        Cancelled = "cancelled",
    }
);

impl StateKind {
    /// Number of states.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns whether the job has neither started its next attempt nor ended.
    pub fn is_waiting(self) -> bool {
        !self.terminal() && self != Self::Running
    }

    /// Whether the job has ended. Only a requeue leads out of a terminal state.
    pub fn terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::DeadLetter | Self::Cancelled => true,
            Self::Pending | Self::Scheduled | Self::Delayed | Self::Running | Self::Retrying => false,
        }
    }
}

wire_enum!(
    /// State of a workflow, derived from the states of its members.
    WorkflowState {
        /// A member has not ended, or the workflow is open.
        Running = "running",
        /// All members completed.
        Completed = "completed",
        /// All members ended, at least one as `failed` or `dead_letter`.
        Failed = "failed",
        /// All members ended, at least one as `cancelled` and none failed.
        Cancelled = "cancelled",
    }
);

impl WorkflowState {
    /// Whether all members have ended.
    pub fn terminal(self) -> bool {
        match self {
            Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

wire_enum!(
    /// Cause of a transition between states.
    Cause {
        /// The job was created.
        Create = "create",
        /// The job was submitted.
        Submit = "submit",
        /// Its dependencies were met.
        Dependencies = "dependencies",
        /// Its delay or backoff ended.
        Due = "due",
        /// A worker claimed it.
        Claim = "claim",
        /// Its worker completed it.
        Complete = "complete",
        /// Its worker reported a failure.
        Fail = "fail",
        /// The execution timeout ended the run.
        Timeout = "timeout",
        /// The lease expired.
        LeaseExpired = "lease_expired",
        /// Its worker snoozed it.
        Snooze = "snooze",
        /// Its worker released it.
        Release = "release",
        /// An operator skipped the wait.
        RunNow = "run_now",
        /// A client cancelled it.
        Cancel = "cancel",
        /// An operator dead-lettered it.
        DeadLetter = "dead_letter",
        /// Its lifetime ended.
        Lifetime = "lifetime",
        /// An operator lowered the retry limit below the failures so far.
        Exhausted = "exhausted",
        /// A dependency ended without success.
        DependencyFailed = "dependency_failed",
        /// The queue was full.
        ResourceExhausted = "resource_exhausted",
        /// Its queue was deleted.
        QueueDeleted = "queue_deleted",
        /// A client requeued it.
        Requeue = "requeue",
        /// The dependency that had ended it was requeued.
        Revive = "revive",
    }
);

wire_enum!(
    /// How a worker ends its lease.
    OutcomeKind {
        /// The work is done.
        Complete = "complete",
        /// The work failed.
        Fail = "fail",
        /// The job is ready again after a delay; the start is not counted.
        Snooze = "snooze",
        /// The job is ready again at once; the start is not counted.
        Release = "release",
    }
);

wire_enum!(
    /// How an attempt ended.
    AttemptOutcome {
        /// The worker completed the job.
        Completed = "completed",
        /// The worker reported a failure.
        Failed = "failed",
        /// The execution timeout ended the run.
        TimedOut = "timed_out",
        /// The lease expired.
        LeaseExpired = "lease_expired",
        /// The worker snoozed the job.
        Snoozed = "snoozed",
        /// The worker released the job.
        Released = "released",
        /// The job was cancelled while it ran.
        Cancelled = "cancelled",
    }
);

wire_enum!(
    /// Category of a failure. Every failure belongs to exactly one.
    Category {
        /// Another try may succeed.
        Temporary = "temporary",
        /// Another try would fail again; `retry.on_permanent` decides.
        Permanent = "permanent",
        /// The run took too long; `retry.on_timeout` decides.
        Timeout = "timeout",
        /// The job was cancelled. Only the server reports it.
        Cancelled = "cancelled",
        /// The environment failed, not the work; `retry.on_system` decides.
        System = "system",
    }
);

wire_enum!(
    /// Category of a failure that a worker reports. Only the server reports `cancelled`.
    ReportedCategory {
        /// Another try may succeed.
        Temporary = "temporary",
        /// Another try would fail again; `retry.on_permanent` decides.
        Permanent = "permanent",
        /// The run took too long; `retry.on_timeout` decides.
        Timeout = "timeout",
        /// The environment failed, not the work; `retry.on_system` decides.
        System = "system",
    }
);

impl ReportedCategory {
    pub fn category(self) -> Category {
        match self {
            Self::Temporary => Category::Temporary,
            Self::Permanent => Category::Permanent,
            Self::Timeout => Category::Timeout,
            Self::System => Category::System,
        }
    }
}

wire_enum!(
    /// Action of a bulk operation on jobs.
    BulkAction {
        /// Requeue every matching job.
        Requeue = "requeue",
        /// Cancel every matching job.
        Cancel = "cancel",
        /// Delete every matching job.
        Delete = "delete",
    }
);

wire_enum!(
    /// Action of a durable operation on all jobs that match a filter.
    OperationAction {
        /// Requeue every matching job.
        Requeue = "requeue",
        /// Cancel every matching job.
        Cancel = "cancel",
        /// Delete every matching job.
        Delete = "delete",
        /// Make every matching job ready now.
        RunNow = "run_now",
    }
);

wire_enum!(
    /// State of a durable operation.
    OperationState {
        /// It counts or treats jobs, or its canary jobs have not ended.
        Running = "running",
        /// All canary jobs have ended; `continue` treats the rest.
        Waiting = "waiting",
        /// A client has stopped it.
        Stopped = "stopped",
        /// All jobs are treated.
        Done = "done",
    }
);

wire_enum!(
    /// State of an undo.
    UndoState {
        /// Jobs are being taken back.
        Running = "running",
        /// All jobs are taken back, or kept because they have changed since.
        Done = "done",
    }
);
