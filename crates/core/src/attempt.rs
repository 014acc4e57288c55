//! Attempts: one for each start of a job.

use std::sync::Arc;

use crate::failure::Failure;
use crate::id::{AttemptId, LeaseVersion, WorkerName};
use crate::time::{Duration, Timestamp};

pub use longshore_types::AttemptOutcome;

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    /// The attempt before it: links the attempts of a job.
    pub previous_id: Option<AttemptId>,
    /// `starts` at that time; may repeat after a snooze or release.
    pub number: u32,
    pub worker: Option<WorkerName>,
    pub lease_version: LeaseVersion,
    pub started_at: Timestamp,
    /// `None` while the attempt runs.
    pub end: Option<AttemptEnd>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    pub at: Timestamp,
    pub outcome: AttemptOutcome,
    pub error: Option<Arc<Failure>>,
    /// Scheduled wait before the next attempt.
    pub next_delay: Option<Duration>,
}
