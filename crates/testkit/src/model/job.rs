//! One job of the model: a plain record.

use std::collections::BTreeMap;

use super::rules::{Profile, Rules};
use crate::target::{AttemptSnapshot, ErrorSnapshot, Handle, HistorySnapshot, JobSnapshot, Millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Scheduled,
    Delayed,
    Running,
    Completed,
    Failed,
    Retrying,
    DeadLetter,
    Cancelled,
}

impl State {
    pub(crate) const ALL: [State; 9] = [
        State::Pending,
        State::Scheduled,
        State::Delayed,
        State::Running,
        State::Completed,
        State::Failed,
        State::Retrying,
        State::DeadLetter,
        State::Cancelled,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Scheduled => "scheduled",
            State::Delayed => "delayed",
            State::Running => "running",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Retrying => "retrying",
            State::DeadLetter => "dead_letter",
            State::Cancelled => "cancelled",
        }
    }

    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::DeadLetter | State::Cancelled)
    }
}

/// The lease of a running job.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub worker: String,
    /// The length by which heartbeats extend; 0 = off.
    pub length: Millis,
    pub expires_at: Option<Millis>,
    pub deadline_at: Option<Millis>,
    /// Expired under lazy reclaim: the job has no holder, and the next claim leases it.
    pub lapsed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub number: u32,
    pub lease_version: u64,
    pub worker: String,
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    pub outcome: Option<&'static str>,
    pub category: Option<&'static str>,
    pub next_delay: Option<Millis>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub from: Option<State>,
    pub to: State,
    pub at: Millis,
    pub cause: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Error {
    pub category: &'static str,
    pub code: Option<String>,
    pub message: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub starts: u32,
    pub failures: u32,
    pub retries_scheduled: u32,
    pub requeues: u32,
    pub reclaims: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelJob {
    /// Pruned or deleted: only the handle remains.
    pub removed: bool,
    pub queue: String,
    /// The profile of the queue at creation. It decides where no setting does.
    pub profile: Profile,
    pub rules: Rules,
    pub job_type: String,
    pub state: State,
    pub held: bool,
    pub priority: u8,
    /// The most urgent effective priority among the dependencies at submission.
    pub inherited_priority: Option<u8>,
    pub sequence: u64,
    pub position: u64,
    pub counters: Counters,
    pub lease_version: u64,
    pub lease: Option<Lease>,
    pub cancel_requested: bool,
    pub cancel_message: String,
    pub created_at: Millis,
    pub updated_at: Millis,
    /// The start of the total lifetime.
    pub lifetime_from: Millis,
    pub run_at: Option<Millis>,
    /// The first and last allowed instant while a jittered `run_at` is unknown.
    pub run_at_window: Option<(Millis, Millis)>,
    pub scheduled_at: Option<Millis>,
    pub started_at: Option<Millis>,
    pub first_started_at: Option<Millis>,
    pub last_heartbeat_at: Option<Millis>,
    pub attempt_ended_at: Option<Millis>,
    pub completed_at: Option<Millis>,
    pub progress: Option<String>,
    pub checkpoint: Option<String>,
    pub result: Option<String>,
    pub error: Option<Error>,
    pub after: Vec<Handle>,
    pub after_any: Vec<Handle>,
    /// A dependency in `after_any` has ended, now or earlier.
    pub any_met: bool,
    pub depth: u32,
    /// The dependency that ended this job.
    pub ended_by: Option<Handle>,
    pub parent: Option<Handle>,
    pub requeued_from: Option<Handle>,
    pub requeued_as: Option<Handle>,
    /// The workflow of the job. An original keeps it after its clone has replaced it.
    pub workflow: Option<Handle>,
    pub tags: BTreeMap<String, Option<String>>,
    pub correlation_id: Option<String>,
    pub callback_url: Option<String>,
    pub traceparent: Option<String>,
    pub idempotency_key: Option<String>,
    pub external_id: Option<String>,
    /// Lease version and outcome of the last settlement, to recognise a repetition.
    pub settled: Option<(u64, &'static str)>,
    pub attempts: Vec<Attempt>,
    pub history: Vec<Move>,
}

/// The bound of the stored past: the first transition and the last 99, the last 100 attempts.
const HISTORY_MAX: usize = 100;

impl ModelJob {
    pub(crate) fn effective_priority(&self) -> u8 {
        self.inherited_priority.map_or(self.priority, |inherited| inherited.min(self.priority))
    }

    pub(crate) fn is_clone(&self) -> bool {
        self.requeued_from.is_some()
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.removed && !self.state.is_terminal()
    }

    pub(crate) fn lease_expired(&self, now: Millis) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.expires_at.is_some_and(|end| end <= now))
    }

    /// Whether a lease is valid at this time, which is strictly before its end.
    pub(crate) fn is_held_by_worker(&self, now: Millis) -> bool {
        self.state == State::Running && !self.lease_expired(now)
    }

    pub(crate) fn is_lapsed(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.lapsed)
    }

    pub(crate) fn move_to(&mut self, to: State, at: Millis, cause: &'static str) {
        self.record(Some(self.state), to, at, cause);
    }

    pub(crate) fn record(&mut self, from: Option<State>, to: State, at: Millis, cause: &'static str) {
        self.history.push(Move { from, to, at, cause });
        if self.history.len() > HISTORY_MAX {
            self.history.remove(1);
        }
        self.state = to;
        self.updated_at = at;
        self.run_at_window = None;
    }

    pub(crate) fn open_attempt(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
        if self.attempts.len() > HISTORY_MAX {
            self.attempts.remove(0);
        }
    }

    /// Ends the current run, if there is one: its attempt and its lease.
    pub(crate) fn close_attempt(&mut self, at: Millis, outcome: &'static str, category: Option<&'static str>) {
        if self.lease.take().is_none() {
            return;
        }
        self.attempt_ended_at = Some(at);
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.ended_at = Some(at);
            attempt.outcome = Some(outcome);
            attempt.category = category;
        }
    }

    /// Returns the start time to show. An ended job keeps it only for a revival.
    pub(crate) fn shown_run_at(&self) -> Option<Millis> {
        self.run_at.filter(|_| !self.state.is_terminal())
    }

    pub(crate) fn snapshot(&self, waiting_on: usize) -> JobSnapshot {
        let lease = self.lease.as_ref();
        JobSnapshot {
            queue: self.queue.clone(),
            job_type: self.job_type.clone(),
            state: self.state.as_str().to_owned(),
            priority: self.priority,
            effective_priority: self.effective_priority(),
            starts: self.counters.starts,
            failures: self.counters.failures,
            retries_scheduled: self.counters.retries_scheduled,
            requeues: self.counters.requeues,
            reclaims: self.counters.reclaims,
            lease_version: self.lease_version,
            lease_expires_at: lease.and_then(|lease| lease.expires_at),
            deadline_at: lease.and_then(|lease| lease.deadline_at),
            worker: lease.map(|lease| lease.worker.clone()),
            // A cancel request belongs to one run.
            cancel_requested: self.cancel_requested && self.state == State::Running,
            created_at: self.created_at,
            updated_at: self.updated_at,
            run_at: self.shown_run_at(),
            scheduled_at: self.scheduled_at,
            started_at: self.started_at,
            first_started_at: self.first_started_at,
            last_heartbeat_at: self.last_heartbeat_at,
            attempt_ended_at: self.attempt_ended_at,
            completed_at: self.completed_at,
            progress: self.progress.clone(),
            checkpoint: self.checkpoint.clone(),
            result: self.result.clone(),
            error: self.error.as_ref().map(|error| ErrorSnapshot {
                category: error.category.to_owned(),
                code: error.code.clone(),
                message: error.message.clone(),
            }),
            waiting_on,
            parent: self.parent,
            requeued_from: self.requeued_from,
            requeued_as: self.requeued_as,
            tags: self.tags.clone(),
            correlation_id: self.correlation_id.clone(),
            callback_url: self.callback_url.clone(),
            traceparent: self.traceparent.clone(),
            idempotency_key: self.idempotency_key.clone(),
            external_id: self.external_id.clone(),
            retry_limit: self.rules.limit,
            attempts: self.attempts.iter().map(Attempt::snapshot).collect(),
            history: self.history.iter().map(Move::snapshot).collect(),
        }
    }
}

impl Attempt {
    fn snapshot(&self) -> AttemptSnapshot {
        AttemptSnapshot {
            number: self.number,
            lease_version: self.lease_version,
            worker: self.worker.clone(),
            started_at: self.started_at,
            ended_at: self.ended_at,
            outcome: self.outcome.map(str::to_owned),
            category: self.category.map(str::to_owned),
            next_delay: self.next_delay,
        }
    }
}

impl Move {
    fn snapshot(&self) -> HistorySnapshot {
        HistorySnapshot {
            from: self.from.map(|state| state.as_str().to_owned()),
            to: self.to.as_str().to_owned(),
            at: self.at,
            cause: self.cause.to_owned(),
        }
    }
}
