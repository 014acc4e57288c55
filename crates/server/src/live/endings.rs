//! Jobs whose end somebody waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::id::JobId;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Endings(Mutex<HashMap<JobId, Watched>>);

#[derive(Debug)]
struct Watched {
    bell: Arc<Notify>,
    watchers: usize,
}

impl Endings {
    fn watched(&self) -> MutexGuard<'_, HashMap<JobId, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on no end of this job is missed.
    pub(crate) fn watch(self: &Arc<Self>, id: JobId) -> Watch {
        let mut watched = self.watched();
        let entry = watched.entry(id).or_insert_with(|| Watched { bell: Arc::default(), watchers: 0 });
        entry.watchers += 1;
        Watch { endings: Arc::clone(self), id, bell: Arc::clone(&entry.bell) }
    }

    pub(crate) fn ended(&self, id: JobId) {
        if let Some(watched) = self.watched().get(&id) {
            watched.bell.notify_waiters();
        }
    }

    /// Anything may have happened.
    pub(crate) fn any_may_have_ended(&self) {
        self.watched().values().for_each(|watched| watched.bell.notify_waiters());
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.watched().len()
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    endings: Arc<Endings>,
    id: JobId,
    bell: Arc<Notify>,
}

impl Watch {
    /// Rung when the job ends. Make it before looking at the job, then await it.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
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
