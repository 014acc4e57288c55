//! Counters of a node, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::request::TxRequest;

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Batches that the fast path has applied.
    pub fast_path_hits: u64,
    /// Batches that needed the slow path.
    pub fast_path_misses: u64,
    /// Committed transactions, of either path.
    pub commits: u64,
    /// Commands of these transactions. Divided by `commits`: the mean batch size.
    pub commands: u64,
    /// Time from the first statement to the response of the commit, summed up.
    pub commit_time: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct StatCounters {
    fast_path_hits: AtomicU64,
    fast_path_misses: AtomicU64,
    commits: AtomicU64,
    commands: AtomicU64,
    commit_micros: AtomicU64,
}

impl StatCounters {
    pub(crate) fn count_fast_path(&self, hit: bool) {
        let counter = if hit { &self.fast_path_hits } else { &self.fast_path_misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_commit(&self, requests: &[TxRequest], time: Duration) {
        let commands: usize = requests.iter().map(TxRequest::commands).sum();
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.commands.fetch_add(u64::try_from(commands).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.commit_micros.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> NodeStats {
        NodeStats {
            fast_path_hits: self.fast_path_hits.load(Ordering::Relaxed),
            fast_path_misses: self.fast_path_misses.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            commit_time: Duration::from_micros(self.commit_micros.load(Ordering::Relaxed)),
        }
    }
}
