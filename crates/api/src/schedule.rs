//! Schedules and their ticks.

use serde::{Deserialize, Serialize};

use crate::enums::{Misfire, Overlap, TickOutcome};
use crate::job::NewJob;
use crate::serde_util::object;
use crate::time::{Duration, Time};

/// Creates or replaces a schedule: `PUT /v1/schedules/{name}`. Either `cron` or `every` is
/// required.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutSchedule {
    /// Cron expression: five fields, six with seconds first, or `@hourly` to `@yearly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Interval of at least `1s`, counted from the creation, instead of `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// Time zone of `cron`: a name of the IANA database. Absent: `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Queue of the jobs. A tick creates it, as any submission does.
    pub queue: String,
    /// Job of each tick: a submission without ids, keys, dependencies and `run_at`.
    #[serde(deserialize_with = "object")]
    pub job: NewJob,
    /// Which missed ticks fire. Absent: `one`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<Misfire>,
    /// Whether a tick fires while the job of the last one has not ended. Absent: `allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Longest delay of a job after its tick. Absent: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// Whether ticks are dropped. Absent: the present pause stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// A schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Name of the schedule.
    pub name: String,
    /// Cron expression; `null` if the schedule has an interval.
    pub cron: Option<String>,
    /// Interval; `null` if the schedule has a cron expression.
    pub every: Option<Duration>,
    /// Time zone of `cron`.
    pub timezone: String,
    /// Queue of the jobs.
    pub queue: String,
    /// Job of each tick.
    pub job: NewJob,
    /// Which missed ticks fire.
    pub misfire: Misfire,
    /// Whether a tick fires while the job of the last one has not ended.
    pub overlap: Overlap,
    /// Longest delay of a job after its tick.
    pub jitter: Duration,
    /// Whether ticks are dropped.
    pub paused: bool,
    /// Why the schedule is paused.
    pub pause_note: Option<String>,
    /// The next ten due times; those of a paused schedule would be dropped.
    pub next: Vec<Time>,
    /// The last tick, with any outcome.
    pub last: Option<Tick>,
    /// When the schedule was created.
    pub created_at: Time,
    /// When the schedule was last changed.
    pub updated_at: Time,
}

/// A page of schedules, by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// Cursor of the next page; `null` on the last page.
    pub next: Option<String>,
}

/// A due time that was processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Tick {
    /// When the tick was due.
    pub due_at: Time,
    /// When its job was submitted; `null` unless the tick fired.
    pub fired_at: Option<Time>,
    /// What became of it.
    pub outcome: TickOutcome,
    /// Id of its job; `null` unless the tick fired.
    pub job: Option<String>,
    /// Why it did not fire, for people. Of a refused tick: code and text of the refusal.
    pub detail: Option<String>,
}

/// The last 100 ticks of a schedule, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ticks {
    /// The ticks, skipped ones included.
    pub ticks: Vec<Tick>,
}

/// Pauses a schedule: `POST /v1/schedules/{name}/pause`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PauseSchedule {
    /// Why the schedule is paused, for people. Absent: the present note stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The schedule that submitted a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSchedule {
    /// Name of the schedule.
    pub name: String,
    /// When the tick was due; `null` if a client triggered the job.
    pub due_at: Option<Time>,
}
