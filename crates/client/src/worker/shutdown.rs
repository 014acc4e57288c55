//! Stops a worker from elsewhere, as signals do.

use std::fmt;
use std::sync::{Arc, Weak};

use super::core::WorkerCore;

/// Stop requests from before the worker runs, and the worker after that.
#[derive(Default)]
pub(super) struct StopRequests {
    early: u8,
    core: Option<Weak<WorkerCore>>,
}

impl StopRequests {
    pub(super) fn attach(&mut self, core: &Arc<WorkerCore>) {
        self.core = Some(Arc::downgrade(core));
        for _ in 0..self.early {
            core.on_stop();
        }
    }
}

/// Stops a worker, as signals do.
#[derive(Clone)]
pub struct WorkerShutdown(pub(super) Arc<parking_lot::Mutex<StopRequests>>);

impl fmt::Debug for WorkerShutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerShutdown")
    }
}

impl WorkerShutdown {
    /// The first call drains the worker: no more claims, and handlers have the grace time. The
    /// second call fires all tokens and releases the jobs.
    pub fn stop(&self) {
        let mut requests = self.0.lock();
        match &requests.core {
            Some(core) => {
                let core = core.upgrade();
                drop(requests);
                if let Some(core) = core {
                    core.on_stop();
                }
            }
            None => requests.early = requests.early.saturating_add(1),
        }
    }
}
