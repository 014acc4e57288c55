//! Looking on: why a job does not run, stats, workers, the server itself, its clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::admin::Requeue;
use crate::enums::{Profile, State};
use crate::job::ErrorView;
use crate::time::{Duration, Time};

/// `GET /v1/jobs/{id}/why`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Why {
    pub state: State,
    /// The next claim may have it.
    pub runnable: bool,
    pub reasons: Vec<Reason>,
    /// Jobs before it in line; `null` when it does not stand in line.
    pub ahead: Option<u64>,
    /// What went wrong last, as in the job.
    #[serde(default)]
    pub error: Option<ErrorView>,
    /// The call that lets an ended job run again; `null` where there is none.
    #[serde(default)]
    pub action: Option<RequeueAction>,
    /// The clone that runs instead of this job.
    #[serde(default)]
    pub requeued_as: Option<String>,
}

/// A requeue, as a call of this API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RequeueAction {
    pub label: String,
    pub method: String,
    pub path: String,
    pub body: Requeue,
    /// The job to requeue: this one, or the dependency through which it ended.
    pub job: String,
}

/// One reason, with its facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Reason {
    QueuePaused {
        queue: String,
    },
    /// Waits for its submission.
    Held,
    /// Waits for other jobs: `after` for all of these, `after_any` for one of these.
    WaitingOn {
        count: usize,
        after: Vec<String>,
        after_any: Vec<String>,
    },
    DelayedUntil {
        at: Time,
    },
    BackoffUntil {
        at: Time,
        failures: u32,
    },
    /// Its lifetime ends before it could run, or has ended.
    Lifetime {
        at: Time,
    },
    /// Others come first.
    Behind {
        ahead: u64,
    },
    /// Nobody has asked this queue for work lately.
    NoWorker {
        queue: String,
        last_seen_at: Option<Time>,
    },
    Concurrency {
        limit: u64,
    },
    Rate {
        limit: u64,
    },
    Running {
        worker: Option<String>,
        started_at: Option<Time>,
        expires_at: Option<Time>,
    },
}

/// `GET /v1/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stats {
    pub now: Time,
    pub totals: QueueStats,
    pub queues: BTreeMap<String, QueueStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueueStats {
    /// Jobs in each state, now.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<State, u64>,
    /// Per second, over the last minute.
    pub rates: Rates,
    /// Since this server was started.
    pub since_start: ThroughputTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rates {
    pub submitted: f64,
    pub claimed: f64,
    pub completed: f64,
    pub failed: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ThroughputTotals {
    pub submitted: u64,
    pub claimed: u64,
    pub completed: u64,
    pub failed: u64,
}

/// `GET /v1/workers`: who asked this server for work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workers {
    pub workers: Vec<Worker>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Worker {
    pub name: String,
    /// The queues it last asked for.
    pub queues: Vec<String>,
    pub last_seen_at: Time,
    /// Jobs that it holds, as far as this server has seen.
    pub running: u64,
    /// Claims of its own that wait for work at this moment.
    pub waiting: u64,
}

/// `GET /v1/info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Info {
    pub name: String,
    pub version: String,
    pub api: String,
    pub store: StoreInfo,
    pub now: Time,
    pub virtual_clock: bool,
    pub default_profile: Profile,
    pub auto_queues: bool,
    pub uptime: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoreInfo {
    pub kind: String,
    /// What an answer means.
    pub durability: String,
    /// Whether new jobs are taken.
    #[serde(default = "writable")]
    pub writable: bool,
    /// Why new jobs are refused; `null` while they are taken.
    #[serde(default)]
    pub refusing: Option<String>,
    /// Bytes that are set aside for a full disk, 0 while they are in use; `null` where the store has no such reserve.
    #[serde(default)]
    pub reserve_bytes: Option<u64>,
    /// Bytes that are free on the store's disk; `null` where the store does not see it.
    #[serde(default)]
    pub free_bytes: Option<u64>,
}

/// What a server means that does not say it.
fn writable() -> bool {
    true
}

/// `GET /livez`, `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Health {
    pub status: String,
}

/// `GET /v1/clock`, and the answer to an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Clock {
    pub now: Time,
}

/// `POST /v1/clock/advance`, in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Advance {
    pub by: Duration,
}
