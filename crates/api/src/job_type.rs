//! Figures of job types: `GET /v1/types` and `GET /v1/types/{type}`.

use serde::{Deserialize, Serialize};

use crate::job::ErrorView;
use crate::system::{Quantiles, Worker};
use crate::{Duration, Time};

/// Types with an event in the window: `GET /v1/types`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobTypes {
    /// The types, those with the most ended attempts first.
    pub types: Vec<JobTypeStats>,
    /// How far back the figures reach.
    pub window: Duration,
    /// When this server began to count; earlier events are missing.
    pub since: Time,
}

/// Figures of one type over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobTypeStats {
    /// The type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Queues with an event of this type in the window.
    pub queues: Vec<String>,
    /// Jobs submitted in the window.
    pub submitted: u64,
    /// Jobs completed in the window.
    pub completed: u64,
    /// Attempts that failed in the window.
    pub failed: u64,
    /// Seconds from scheduled to running, of attempts that started in the window; `null` if none
    /// did.
    pub wait: Option<Quantiles>,
    /// Seconds from the start to the end of attempts that completed or failed in the window;
    /// `null` if none did.
    pub run: Option<Quantiles>,
}

/// One type in detail: `GET /v1/types/{type}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobTypeDetail {
    /// Figures over the window.
    pub stats: JobTypeStats,
    /// Points, oldest first.
    pub series: Vec<JobTypePoint>,
    /// Error codes of the newest jobs with a failure, the most frequent first.
    pub errors: Vec<JobTypeError>,
    /// Jobs that `errors` counts: the newest retrying, failed and dead-lettered ones, at most 200.
    pub errors_of: u64,
    /// Workers that take this type from one of its queues.
    pub workers: Vec<Worker>,
    /// New versions of workers of its queues within the window, oldest first.
    pub deploys: Vec<Deploy>,
    /// How far back the figures reach.
    pub window: Duration,
    /// Length of the interval of a point.
    pub step: Duration,
    /// When this server began to count; earlier events are missing.
    pub since: Time,
    /// Time of the server.
    pub now: Time,
}

/// One interval of the series of a type. It begins at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobTypePoint {
    /// Start of the interval.
    pub at: Time,
    /// Jobs submitted in the interval.
    pub submitted: u64,
    /// Jobs completed in the interval.
    pub completed: u64,
    /// Attempts that failed in the interval.
    pub failed: u64,
    /// Seconds from scheduled to running, of attempts that started in the interval.
    pub wait: Option<Quantiles>,
    /// Seconds from the start to the end of attempts that completed or failed in the interval.
    pub run: Option<Quantiles>,
}

/// An error code among the newest failures of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobTypeError {
    /// The newest error with this code.
    pub error: ErrorView,
    /// Jobs with this code.
    pub count: u64,
    /// Id of the job with the newest one.
    pub example: String,
}

/// A version of a worker that claims from a queue for the first time, while another version is
/// known there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Deploy {
    /// Time of its first claim.
    pub at: Time,
    /// The queue.
    pub queue: String,
    /// The new version.
    pub version: String,
    /// The worker that claimed.
    pub worker: String,
}
