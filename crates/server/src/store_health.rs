//! Remembers errors of the store: whether it has failed, and which corruption was reported.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Distinct corrupt records that are logged: a worker that retries meets the same one each time.
const REPORTED_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct StoreFailures {
    /// Set when the store is poisoned: only a restart helps.
    has_failed: AtomicBool,
    /// Notified once, when the store is poisoned.
    failed: Notify,
    reported: Mutex<BTreeSet<String>>,
}

impl StoreFailures {
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// Returns once the store is poisoned.
    pub(crate) async fn failed(&self) {
        self.failed.notified().await;
    }

    /// Logs an error that an operator must act on, once each.
    pub(crate) fn record(&self, error: &StoreError) {
        if matches!(error, StoreError::Poisoned) && !self.has_failed.swap(true, Ordering::SeqCst) {
            tracing::error!(%error, "store failed permanently; stopping the server");
            self.failed.notify_one();
        }
        if let StoreError::Corrupt { what } = error
            && self.is_first_report(what)
        {
            tracing::error!(%error, "corrupt record rejected; run `longshore doctor` on a copy");
        }
    }

    fn is_first_report(&self, what: &str) -> bool {
        let mut reported = self.reported.lock();
        reported.len() < REPORTED_MAX && reported.insert(what.to_owned())
    }
}
