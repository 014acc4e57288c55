//! Requests about schedules.

use longshore_api::job::Submitted;
use longshore_api::schedule::{PauseSchedule, PutSchedule, Schedule, Schedules, Ticks};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

impl Client {
    /// Returns a page of schedules, by name. `cursor` is `next` of the previous page.
    pub async fn schedules(&self, limit: usize, cursor: Option<&str>) -> Result<Schedules, Error> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", segment(cursor))).unwrap_or_default();
        self.get(&format!("/v1/schedules?limit={limit}{cursor}")).await
    }

    pub async fn schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.get(&format!("/v1/schedules/{}", segment(name))).await
    }

    /// Creates or replaces a schedule. An equal definition changes nothing.
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
