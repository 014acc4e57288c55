//! Requests about schedules.

use std::time::Duration;

use longshore_api::enums::{Misfire, Overlap};
use longshore_api::job::Submitted;
use longshore_api::schedule::{PauseSchedule, PutSchedule, Schedule, Schedules, Ticks};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;
use crate::submit::JobRequest;
use crate::worker::wire_duration;

/// When a schedule is due: a cron expression, or an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleTime {
    /// Five fields, six with seconds first, or `@hourly` to `@yearly`.
    Cron(String),
    /// At least a second, counted from the creation of the schedule.
    Every(Duration),
}

impl From<&str> for ScheduleTime {
    fn from(cron: &str) -> Self {
        Self::Cron(cron.to_owned())
    }
}

impl From<String> for ScheduleTime {
    fn from(cron: String) -> Self {
        Self::Cron(cron)
    }
}

impl From<Duration> for ScheduleTime {
    fn from(interval: Duration) -> Self {
        Self::Every(interval)
    }
}

/// A schedule to create or replace: its name, when it is due, and the job of each tick.
///
/// ```
/// use longshore::{Job, JobRequest, ScheduleRequest};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(type = "report.send")]
/// # struct SendReport;
/// let nightly = ScheduleRequest::new("nightly", "0 3 * * *",
/// JobRequest::new(&SendReport)).timezone("Europe/Berlin");
/// ```
#[derive(Clone, Debug)]
#[must_use = "create it with `Client::schedule` or `Worker::schedule`"]
pub struct ScheduleRequest {
    pub(crate) name: String,
    time: ScheduleTime,
    job: JobRequest,
    timezone: Option<String>,
    misfire: Option<Misfire>,
    overlap: Option<Overlap>,
    jitter: Option<Duration>,
}

impl ScheduleRequest {
    /// The job may have all options but a key, dependencies and `run_at`.
    pub fn new(name: impl Into<String>, time: impl Into<ScheduleTime>, job: JobRequest) -> Self {
        let (name, time) = (name.into(), time.into());
        Self { name, time, job, timezone: None, misfire: None, overlap: None, jitter: None }
    }

    /// Time zone of the cron expression, a name of the IANA database. Default: UTC.
    pub fn timezone(mut self, timezone: impl Into<String>) -> Self {
        self.timezone = Some(timezone.into());
        self
    }

    /// Which ticks fire that were missed. Default: one.
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = Some(misfire);
        self
    }

    /// Whether a tick fires while the job of the last one has not ended. Default: it does.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = Some(overlap);
        self
    }

    /// Longest random delay of a job after its tick. Default: none.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// The schedule on the wire.
    pub(crate) fn into_put(self, client: &Client) -> Result<PutSchedule, Error> {
        let (queue, job) = client.prepare_scheduled(self.job).into_parts()?;
        let (cron, every) = match self.time {
            ScheduleTime::Cron(cron) => (Some(cron), None),
            ScheduleTime::Every(interval) => (None, Some(wire_duration(interval))),
        };
        let jitter = self.jitter.map(wire_duration);
        let Self { timezone, misfire, overlap, .. } = self;
        Ok(PutSchedule { cron, every, timezone, queue, job, misfire, overlap, jitter, paused: None })
    }
}

impl Client {
    /// Creates or replaces a schedule. An equal definition changes nothing, so that each start of a
    /// program can repeat it. A pause stays. Retries what its errors allow.
    pub async fn schedule(&self, schedule: ScheduleRequest) -> Result<Schedule, Error> {
        let name = schedule.name.clone();
        let put = schedule.into_put(self)?;
        self.retry_request(true, || self.put_schedule(&name, &put)).await
    }

    /// Returns a page of schedules, by name. `cursor` is `next` of the previous page.
    pub async fn schedules(&self, limit: usize, cursor: Option<&str>) -> Result<Schedules, Error> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", segment(cursor))).unwrap_or_default();
        self.get(&format!("/v1/schedules?limit={limit}{cursor}")).await
    }

    /// Returns a schedule.
    pub async fn get_schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.get(&format!("/v1/schedules/{}", segment(name))).await
    }

    /// Creates or replaces a schedule. An equal definition changes nothing.
    /// [`Client::schedule`] does it with a typed job and retries.
    pub async fn put_schedule(&self, name: &str, put: &PutSchedule) -> Result<Schedule, Error> {
        self.put(&format!("/v1/schedules/{}", segment(name)), put).await
    }

    /// Drops the ticks of a schedule until it is resumed.
    pub async fn pause_schedule(&self, name: &str, note: Option<&str>) -> Result<Schedule, Error> {
        let pause = PauseSchedule { note: note.map(str::to_owned) };
        self.post(&format!("/v1/schedules/{}/pause", segment(name)), &pause).await
    }

    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.post_empty(&format!("/v1/schedules/{}/resume", segment(name))).await
    }

    /// Submits the job of a schedule now, also while it is paused.
    pub async fn trigger_schedule(&self, name: &str) -> Result<Submitted, Error> {
        self.post_empty(&format!("/v1/schedules/{}/trigger", segment(name))).await
    }

    /// Returns the last 100 ticks, newest first.
    pub async fn ticks(&self, name: &str) -> Result<Ticks, Error> {
        self.get(&format!("/v1/schedules/{}/ticks", segment(name))).await
    }

    /// Deletes a schedule. Its jobs stay.
    pub async fn delete_schedule(&self, name: &str) -> Result<(), Error> {
        self.delete(&format!("/v1/schedules/{}", segment(name))).await
    }
}
