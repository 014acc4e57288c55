//! State that the writer shares with readers, the checkpoint thread and the store handle.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use longshore_core::id::QueueName;
use longshore_core::ocypod::totals::Totals;
use longshore_engine::SystemKind;
use longshore_store::{DirectiveCache, Histogram, QueueStats, WakeupsSender};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::watermark::WatermarkFile;

#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub queues: RwLock<BTreeMap<QueueName, QueueStats>>,
    pub totals: RwLock<Totals>,
    /// Never returns to false.
    pub poisoned: watch::Sender<bool>,
    pub commits: AtomicU64,
    pub parked_claims: AtomicUsize,
    pub wakeups: WakeupsSender,
    pub watermark: Mutex<WatermarkFile>,
    /// The prefetch thread holds it while it reads, the writer during its checkpoint. SQLite can
    /// restart the WAL only while no connection reads from it.
    pub prefetch_lock: Mutex<()>,
    pub metrics: WriterMetrics,
    pub directives: DirectiveCache,
    /// Announced writes of system records, by the number of their kind.
    pub system_versions: [AtomicU64; SystemKind::ALL.len() + 1],
}

/// What the writer measures.
#[derive(Debug)]
pub(crate) struct WriterMetrics {
    /// From the start of a batch until its commit is durable.
    pub commit_seconds: Histogram,
    pub batch_commands: Histogram,
    pub commit_seq: AtomicI64,
    pub cache_hits: AtomicU64,
    pub cache_misses: AtomicU64,
}

impl Default for WriterMetrics {
    fn default() -> Self {
        Self {
            commit_seconds: Histogram::seconds(),
            batch_commands: Histogram::sizes(),
            commit_seq: AtomicI64::new(0),
            cache_hits: AtomicU64::new(0),
            cache_misses: AtomicU64::new(0),
        }
    }
}

impl SharedState {
    pub(crate) fn poison(&self, cause: &dyn Display) {
        if !self.poisoned.send_replace(true) {
            tracing::error!(%cause, "write or sync failed: the store accepts no requests until it is reopened");
        }
    }

    /// Returns the number of commits since the store was opened.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        *self.poisoned.borrow()
    }

    /// Returns a number that changes with every announced write of the kind.
    pub(crate) fn system_version(&self, kind: SystemKind) -> u64 {
        self.system_versions.get(usize::from(kind.number())).map_or(0, |version| version.load(Ordering::Acquire))
    }

    pub(crate) fn announce(&self, kinds: impl Iterator<Item = SystemKind>) {
        for kind in kinds {
            if let Some(version) = self.system_versions.get(usize::from(kind.number())) {
                version.fetch_add(1, Ordering::Release);
            }
        }
    }

    pub(crate) fn set_totals(&self, totals: Totals) {
        *self.totals.write() = totals;
    }

    /// Publishes the statistics of a queue, or removes a queue that is gone.
    pub(crate) fn set_queue(&self, name: QueueName, stats: Option<QueueStats>) {
        let mut queues = self.queues.write();
        match stats {
            Some(stats) => drop(queues.insert(name, stats)),
            None => drop(queues.remove(&name)),
        }
    }
}

/// Poisons the store when the thread that owns it panics: no request may wait for a dead writer.
pub(crate) struct PoisonOnPanic(pub Arc<SharedState>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&"the writer thread panicked");
        }
    }
}
