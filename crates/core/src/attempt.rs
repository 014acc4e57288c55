//! One start of a job each, and how it ended.

use std::fmt;
use std::sync::Arc;

use crate::failure::Failure;
use crate::id::{AttemptId, LeaseVersion, WorkerName};
use crate::policy::string_enum;
use crate::time::{Duration, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    /// Ties the runs of a job together.
    pub previous_id: Option<AttemptId>,
    /// `starts` at the time; may repeat after a snooze or release.
    pub number: u32,
    pub worker: Option<WorkerName>,
    pub lease_version: LeaseVersion,
    pub started_at: Timestamp,
    pub end: Option<AttemptEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    pub at: Timestamp,
    pub outcome: AttemptOutcome,
    pub error: Option<Arc<Failure>>,
    /// The wait that was planned before the next attempt.
    pub next_delay: Option<Duration>,
}

string_enum!(
    /// How a run ended.
    AttemptOutcome {
        Completed = "completed",
        Failed = "failed",
        TimedOut = "timed_out",
        LeaseExpired = "lease_expired",
        Snoozed = "snoozed",
        Released = "released",
        Cancelled = "cancelled",
    }
);
