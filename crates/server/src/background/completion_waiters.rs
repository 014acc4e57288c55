//! Jobs whose end somebody waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::id::JobId;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct CompletionWaiters(Mutex<HashMap<JobId, WaitEntry>>);

#[derive(Debug)]
struct WaitEntry {
    notify: Arc<Notify>,
    watchers: usize,
}

impl CompletionWaiters {
    fn watched(&self) -> MutexGuard<'_, HashMap<JobId, WaitEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on no end of this job is missed.
    pub(crate) fn watch(self: &Arc<Self>, id: JobId) -> Watch {
        let mut watched = self.watched();
        let entry = watched.entry(id).or_insert_with(|| WaitEntry { notify: Arc::default(), watchers: 0 });
        entry.watchers += 1;
        Watch { endings: Arc::clone(self), id, notify: Arc::clone(&entry.notify) }
    }

    pub(crate) fn ended(&self, id: JobId) {
        if let Some(watched) = self.watched().get(&id) {
            watched.notify.notify_waiters();
        }
    }

    /// Anything may have happened.
    pub(crate) fn wake_all(&self) {
        self.watched().values().for_each(|watched| watched.notify.notify_waiters());
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    endings: Arc<CompletionWaiters>,
    id: JobId,
    notify: Arc<Notify>,
}

impl Watch {
    /// Rung when the job ends. Make it before looking at the job, then await it.
    pub(crate) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.notify)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.endings.watched();
        if let Some(entry) = watched.get_mut(&self.id) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                watched.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_who_watches_hears_the_end_and_nothing_is_left() {
        let endings = Arc::new(CompletionWaiters::default());
        let id = JobId::from_bytes([1; 16]);
        let (one, two) = (endings.watch(id), endings.watch(id));
        let (bell, other) = (one.notify(), two.notify());
        let (rung, heard) = (bell.notified(), other.notified());
        endings.ended(JobId::from_bytes([2; 16]));
        endings.ended(id);
        rung.await;
        heard.await;
        drop((one, two));
        assert!(endings.watched().is_empty());
    }
}
