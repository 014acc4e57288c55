//! Observation: why a job does not run, statistics, workers, the server, its clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::admin::Requeue;
use crate::enums::{Profile, State, WorkerDirective};
use crate::job::ErrorView;
use crate::job_type::Deploy;
use crate::time::{Duration, Time};

/// Why a job does not run: `GET /v1/jobs/{id}/why`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Why {
    /// State of the job.
    pub state: State,
    /// Whether the next claim can get the job.
    pub runnable: bool,
    /// One sentence: the state of the job, and what keeps it from running.
    #[serde(default)]
    pub summary: String,
    /// Everything that keeps the job from running.
    pub reasons: Vec<ExplainedReason>,
    /// Ready jobs before it in the queue; `null` if it is not ready.
    pub ahead: Option<u64>,
    /// Last failure, as in the job.
    #[serde(default)]
    pub error: Option<ErrorView>,
    /// Request that lets an ended job run again; `null` if there is none.
    #[serde(default)]
    pub action: Option<RequeueAction>,
    /// Clone that runs instead of this job.
    #[serde(default)]
    pub requeued_as: Option<String>,
}

/// A requeue, as a request of this API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RequeueAction {
    /// Text of a button.
    pub label: String,
    /// HTTP method.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Body of the request.
    pub body: Requeue,
    /// Id of the job to requeue: this job, or the dependency that ended it.
    pub job: String,
}

/// One reason, with its facts and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExplainedReason {
    /// The reason.
    #[serde(flatten)]
    pub reason: Reason,
    /// The reason in one sentence.
    #[serde(default)]
    pub text: String,
}

/// A reason by its code, with its facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Reason {
    /// The queue is paused.
    QueuePaused {
        /// Name of the queue.
        queue: String,
    },
    /// The job is held until a client submits it.
    Held,
    /// The job waits for other jobs.
    WaitingOn {
        /// Number of these jobs.
        count: usize,
        /// Jobs that must complete.
        after: Vec<String>,
        /// Jobs of which one must end.
        after_any: Vec<String>,
    },
    /// The job is delayed.
    DelayedUntil {
        /// When the job becomes ready.
        at: Time,
    },
    /// The job waits for a retry.
    BackoffUntil {
        /// When the job becomes ready.
        at: Time,
        /// Failed attempts so far.
        failures: u32,
    },
    /// The lifetime ends before the job becomes ready, or has ended.
    Lifetime {
        /// End of the lifetime.
        at: Time,
    },
    /// Other jobs are claimed first.
    Behind {
        /// Number of these jobs.
        ahead: u64,
    },
    /// No worker has claimed jobs of this type from this queue lately.
    NoWorker {
        /// Name of the queue.
        queue: String,
        /// Last claim from the queue; `null` if this server has seen none.
        last_seen_at: Option<Time>,
        /// Types that no worker of the queue claims now.
        types: Vec<String>,
    },
    /// A limit of concurrent jobs is reached.
    Concurrency {
        /// The limit.
        limit: u64,
    },
    /// A rate limit is reached.
    Rate {
        /// The limit.
        limit: u64,
    },
    /// The job is running.
    Running {
        /// Name of the worker.
        worker: Option<String>,
        /// When the attempt started.
        started_at: Option<Time>,
        /// When the lease expires.
        expires_at: Option<Time>,
    },
}

/// Statistics of all queues: `GET /v1/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stats {
    /// Time of the server.
    pub now: Time,
    /// Sums over all queues.
    pub totals: QueueStats,
    /// Statistics of each queue, by name.
    pub queues: BTreeMap<String, QueueStats>,
    /// About the series. Absent if the request asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesInfo>,
}

/// What the series of a response cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SeriesInfo {
    /// How far back the points reach.
    pub window: Duration,
    /// Length of the interval of a point.
    pub step: Duration,
    /// When this server began to count; earlier points are missing.
    pub since: Time,
    /// Queues whose series are not in this response: `queue=` shows them, if the server keeps them.
    pub queues_left_off: u64,
    /// New versions of workers within the window, oldest first. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deploys: Vec<Deploy>,
}

/// One interval of a series. It begins at `at`; the last one contains the time of the response.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SeriesPoint {
    /// Start of the interval.
    pub at: Time,
    /// Jobs submitted in the interval.
    pub submitted: u64,
    /// Jobs completed in the interval.
    pub completed: u64,
    /// Attempts that failed in the interval.
    pub failed: u64,
    /// Pending, scheduled, delayed and retrying jobs at its end.
    pub depth: u64,
    /// Scheduled jobs at its end.
    pub ready: u64,
    /// Running jobs at its end: slots in use.
    pub slots: u64,
    /// Dead letters at its end.
    pub dead_letters: u64,
    /// Seconds from scheduled to running, of attempts that started in the interval; `null` if none
    /// did.
    pub wait: Option<Quantiles>,
    /// Seconds from the start to the end of attempts that completed or failed in the interval;
    /// `null` if none did.
    pub run: Option<Quantiles>,
}

/// Quantiles in seconds, within 7 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Quantiles {
    /// Half of the values are at most this.
    pub p50: f64,
    /// 95 % of the values are at most this.
    pub p95: f64,
    /// 99 % of the values are at most this.
    pub p99: f64,
}

/// Statistics of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueueStats {
    /// Jobs in each state, now.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<State, u64>,
    /// Throughput per second, over the last minute.
    pub rates: Rates,
    /// Throughput since the start of this server.
    pub since_start: ThroughputTotals,
    /// Points, oldest first. Absent if the request asks for no series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Vec<SeriesPoint>>,
}

/// Jobs per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rates {
    /// Submitted jobs per second.
    pub submitted: f64,
    /// Claimed jobs per second.
    pub claimed: f64,
    /// Completed jobs per second.
    pub completed: f64,
    /// Failed attempts per second.
    pub failed: f64,
}

/// Numbers of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ThroughputTotals {
    /// Submitted jobs.
    pub submitted: u64,
    /// Claimed jobs.
    pub claimed: u64,
    /// Completed jobs.
    pub completed: u64,
    /// Failed attempts.
    pub failed: u64,
}

/// Workers that were seen within 24 hours: `GET /v1/workers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workers {
    /// The workers.
    pub workers: Vec<Worker>,
}

/// A worker, as the servers have seen it. A claim or a heartbeat counts as seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Worker {
    /// Name of the worker.
    pub name: String,
    /// What the server tells the worker to do; every claim and heartbeat returns it.
    pub directive: WorkerDirective,
    /// Version that its last claim named; `null` if none.
    pub version: Option<String>,
    /// Types of its last claim; empty means all types.
    pub types: Vec<String>,
    /// Queues of its last claim.
    pub queues: Vec<String>,
    /// Jobs that it runs, as far as the servers have seen.
    pub running: u64,
    /// Its claims that wait for a job at this server now.
    pub waiting: u64,
    /// Time of its last claim or heartbeat.
    pub last_seen_at: Time,
}

/// The server: `GET /v1/info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Info {
    /// Name of the program.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Version of the API.
    pub api: String,
    /// The store.
    pub store: StoreInfo,
    /// Time of the server.
    pub now: Time,
    /// Whether time is virtual and is advanced by requests.
    pub virtual_clock: bool,
    /// Profile of queues that are created without one.
    pub default_profile: Profile,
    /// Whether a submission creates a missing queue.
    pub auto_queues: bool,
    /// Time since the start of this server.
    pub uptime: Duration,
}

/// The store of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoreInfo {
    /// Kind of the store: `embedded` or `postgres`.
    pub kind: String,
    /// What a response guarantees about durability.
    pub durability: String,
    /// Whether new jobs are accepted.
    #[serde(default = "default_writable")]
    pub writable: bool,
    /// Why new jobs are refused; `null` while they are accepted.
    #[serde(default)]
    pub refusing: Option<String>,
    /// Bytes of the reserve for a full disk, 0 while it is in use; `null` for a store without one.
    #[serde(default)]
    pub reserve_bytes: Option<u64>,
    /// Free bytes on the disk of the store; `null` if the store cannot see its disk.
    #[serde(default)]
    pub free_bytes: Option<u64>,
}

/// Value for a response of an older server, which has no such field.
fn default_writable() -> bool {
    true
}

/// Health of the server: `GET /livez`, `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok` or `ready`; an unhealthy server responds with an error instead.
    pub status: String,
}

/// Time of the server: `GET /v1/clock`, and the response to an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Clock {
    /// Time of the server.
    pub now: Time,
}

/// Advances virtual time: `POST /v1/clock/advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// How far the clock moves forward.
    pub by: Duration,
}
