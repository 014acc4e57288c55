//! The figures of a server at one moment.

use longshore::{Client, Error};
use longshore_api::queue::Queue;
use longshore_api::system::{Info, Stats, Worker};
use serde::Serialize;

use super::columns::QueueLine;
use super::rates::RecentRates;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) info: Info,
    pub(super) stats: Stats,
    pub(super) queues: Vec<Queue>,
    pub(super) workers: Vec<Worker>,
}

impl Snapshot {
    /// Sends all requests at the same time.
    pub(super) async fn fetch(client: &Client) -> Result<Self, Error> {
        let (info, stats, queues, workers) =
            tokio::try_join!(client.info(), client.stats(), client.queues(), client.workers())?;
        Ok(Self { info, stats, queues: queues.queues, workers: workers.workers })
    }

    /// All queues as text.
    pub(super) fn lines(&self, rates: &RecentRates) -> Vec<QueueLine> {
        self.queues.iter().map(|queue| QueueLine::new(queue, &rates.of(&queue.name), self.stats.now)).collect()
    }

    pub(super) fn summary(&self) -> String {
        let info = &self.info;
        let time = if info.virtual_clock { ", virtual time" } else { "" };
        format!("{} {}, store {}, up {}{time}", info.name, info.version, info.store.kind, info.uptime)
    }
}
