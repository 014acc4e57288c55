//! The moves of a job from state to state: the first and the most recent are kept.

use std::fmt;

use crate::limits::HISTORY_MAX;
use crate::policy::string_enum;
use crate::state::StateKind;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// `None` is the creation.
    pub from: Option<StateKind>,
    pub to: StateKind,
    pub at: Timestamp,
    pub cause: Cause,
}

string_enum!(
    /// Why a job moved.
    Cause {
        Create = "create",
        Submit = "submit",
        Dependencies = "dependencies",
        Due = "due",
        Claim = "claim",
        Complete = "complete",
        Fail = "fail",
        Timeout = "timeout",
        LeaseExpired = "lease_expired",
        Snooze = "snooze",
        Release = "release",
        RunNow = "run_now",
        Cancel = "cancel",
        DeadLetter = "dead_letter",
        Lifetime = "lifetime",
        Exhausted = "exhausted",
        DependencyFailed = "dependency_failed",
        ResourceExhausted = "resource_exhausted",
        QueueDeleted = "queue_deleted",
        Requeue = "requeue",
        Revive = "revive",
    }
);

/// Bounded: the first move and the last `HISTORY_MAX - 1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Transition>);

impl History {
    pub fn from_transitions(moves: Vec<Transition>) -> Self {
        let mut history = Self(Vec::with_capacity(moves.len().min(HISTORY_MAX)));
        moves.into_iter().for_each(|step| history.push(step));
        history
    }

    pub fn push(&mut self, step: Transition) {
        if self.0.len() >= HISTORY_MAX {
            self.0.remove(1);
        }
        self.0.push(step);
    }

    /// Oldest first.
    pub fn moves(&self) -> &[Transition] {
        &self.0
    }
}
