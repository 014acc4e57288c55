//! Measurements of a node, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_store::{Histogram, HitCount, StoreMetrics};

use crate::request::TxRequest;

/// Measurements since the store was opened.
#[derive(Debug)]
pub(crate) struct NodeStats {
    /// Batches that the fast path has applied.
    fast_path_hits: AtomicU64,
    /// Batches that needed the slow path.
    fast_path_misses: AtomicU64,
    /// Time from the first statement to the response of the commit, on either path.
    commit_seconds: Histogram,
    /// Commands per committed transaction.
    batch_commands: Histogram,
}

impl Default for NodeStats {
    fn default() -> Self {
        Self {
            fast_path_hits: AtomicU64::new(0),
            fast_path_misses: AtomicU64::new(0),
            commit_seconds: Histogram::seconds(),
            batch_commands: Histogram::sizes(),
        }
    }
}

impl NodeStats {
    pub(crate) fn count_fast_path(&self, hit: bool) {
        let counter = if hit { &self.fast_path_hits } else { &self.fast_path_misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn observe_commit(&self, requests: &[TxRequest], time: Duration) {
        self.commit_seconds.observe_duration(time);
        self.batch_commands.observe_count(requests.iter().map(TxRequest::commands).sum());
    }

    pub(crate) fn fast_path(&self) -> HitCount {
        HitCount {
            hits: self.fast_path_hits.load(Ordering::Relaxed),
            misses: self.fast_path_misses.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn metrics(&self) -> StoreMetrics {
        StoreMetrics {
            commit_seconds: Some(self.commit_seconds.snapshot()),
            batch_commands: Some(self.batch_commands.snapshot()),
            fast_path: Some(self.fast_path()),
            ..StoreMetrics::default()
        }
    }
}
