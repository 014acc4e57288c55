//! Requests that wait for the end of a job.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_core::id::JobId;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct CompletionWaiters(Mutex<HashMap<JobId, WaitEntry>>);

#[derive(Debug)]
struct WaitEntry {
    notify: Arc<Notify>,
    watchers: usize,
}

impl CompletionWaiters {
    fn entries(&self) -> MutexGuard<'_, HashMap<JobId, WaitEntry>> {
        self.0.lock()
    }

    /// Registers a waiter. Later ends of the job notify it.
    pub(crate) fn watch(self: &Arc<Self>, id: JobId) -> Watch {
        let mut entries = self.entries();
        let entry = entries.entry(id).or_insert_with(|| WaitEntry { notify: Arc::default(), watchers: 0 });
        entry.watchers += 1;
        Watch { waiters: Arc::clone(self), id, notify: Arc::clone(&entry.notify) }
    }

    pub(crate) fn notify(&self, id: JobId) {
        if let Some(entry) = self.entries().get(&id) {
            entry.notify.notify_waiters();
        }
    }

    /// Notifies all waiters: the change feed was interrupted, so that ends may be missing.
    pub(crate) fn wake_all(&self) {
        self.entries().values().for_each(|entry| entry.notify.notify_waiters());
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    waiters: Arc<CompletionWaiters>,
    id: JobId,
    notify: Arc<Notify>,
}

impl Watch {
    /// Returns the notification of the job's end. Enable it before reading the job.
    pub(crate) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.notify)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut entries = self.waiters.entries();
        if let Some(entry) = entries.get_mut(&self.id) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                entries.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_waiters_are_notified_and_then_removed() {
        let waiters = Arc::new(CompletionWaiters::default());
        let id = JobId::from_bytes([1; 16]);
        let (one, two) = (waiters.watch(id), waiters.watch(id));
        let (first, second) = (one.notify(), two.notify());
        let (first, second) = (first.notified(), second.notified());
        waiters.notify(JobId::from_bytes([2; 16]));
        waiters.notify(id);
        first.await;
        second.await;
        drop((one, two));
        assert!(waiters.entries().is_empty());
    }
}
