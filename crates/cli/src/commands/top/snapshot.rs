//! What is asked of the server, all at about the same time.

use longshore_api::queue::Queue;
use longshore_api::watch::{Info, QueueStats, Stats, Worker};
use longshore_api::words::State;
use longshore_client::{Client, Error};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) info: Info,
    pub(super) stats: Stats,
    pub(super) queues: Vec<Queue>,
    pub(super) workers: Vec<Worker>,
}

impl Snapshot {
    pub(super) async fn take(client: &Client) -> Result<Self, Error> {
        let (info, stats, queues, workers) =
            tokio::try_join!(client.info(), client.stats(), client.queues(), client.workers())?;
        Ok(Self { info, stats, queues: queues.queues, workers: workers.workers })
    }

    /// Nothing is known of a queue that was created a moment ago.
    pub(super) fn stats_of(&self, queue: &Queue) -> QueueStats {
        self.stats.queues.get(&queue.name).cloned().unwrap_or_default()
    }

    pub(super) fn summary(&self) -> String {
        let info = &self.info;
        let time = if info.virtual_clock { ", virtual time" } else { "" };
        format!("{} {}, store {}, up {}{time}", info.name, info.version, info.store.kind, info.uptime)
    }
}

/// A column for each state.
pub(super) const STATES: [(State, &str); 9] = [
    (State::Pending, "PENDING"),
    (State::Scheduled, "SCHEDULED"),
    (State::Delayed, "DELAYED"),
    (State::Running, "RUNNING"),
    (State::Retrying, "RETRYING"),
    (State::Completed, "COMPLETED"),
    (State::Failed, "FAILED"),
    (State::DeadLetter, "DEAD"),
    (State::Cancelled, "CANCELLED"),
];

pub(super) fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { format!("{per_second:.0}") } else { format!("{per_second:.1}") }
}
