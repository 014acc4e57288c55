//! Hints about committed changes and the next deadline.

use std::sync::Arc;

use longshore_core::time::Timestamp;
use longshore_engine::Effect;
use tokio::sync::{broadcast, watch};

/// Receives the effects of commits, and the next deadline. A receiver that lags learns that it
/// missed effects, but not which.
#[derive(Debug)]
pub struct ChangeFeed {
    effects: broadcast::Receiver<Arc<[Effect]>>,
    deadline: watch::Receiver<Option<Timestamp>>,
}

/// The store's end of all its change feeds.
#[derive(Debug)]
pub struct WakeupsSender {
    effects: broadcast::Sender<Arc<[Effect]>>,
    deadline: watch::Sender<Option<Timestamp>>,
}

/// Commits that a receiver may lag behind before it misses effects.
const CHANNEL_CAPACITY: usize = 1_024;

impl Default for WakeupsSender {
    fn default() -> Self {
        Self { effects: broadcast::Sender::new(CHANNEL_CAPACITY), deadline: watch::Sender::new(None) }
    }
}

impl WakeupsSender {
    pub fn subscribe(&self) -> ChangeFeed {
        ChangeFeed { effects: self.effects.subscribe(), deadline: self.deadline.subscribe() }
    }

    /// Publishes the effects of a commit and clears the list. Without a receiver they are dropped.
    pub fn publish(&self, effects: &mut Vec<Effect>) {
        if self.effects.receiver_count() > 0 && !effects.is_empty() {
            drop(self.effects.send(std::mem::take(effects).into()));
        }
        effects.clear();
    }

    /// Publishes that unknown changes happened: on another node, or while a connection was down.
    pub fn publish_lagged(&self) {
        if self.effects.receiver_count() > 0 {
            drop(self.effects.send(Arc::new([])));
        }
    }

    pub fn publish_next_deadline(&self, next: Option<Timestamp>) {
        self.deadline.send_if_modified(|current| std::mem::replace(current, next) != next);
    }
}

impl ChangeFeed {
    /// Returns the effects of the next commit. `None`: some were missed, so anything may have
    /// changed. Never returns once the store is closed.
    pub async fn changed(&mut self) -> Option<Arc<[Effect]>> {
        match self.effects.recv().await {
            Ok(effects) => Some(effects).filter(|effects| !effects.is_empty()),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Returns when the next tick is due, if the store has announced it.
    pub fn deadline(&self) -> Option<Timestamp> {
        *self.deadline.borrow()
    }

    /// Waits for another deadline. Never returns once the store is closed.
    pub async fn deadline_moved(&mut self) -> Option<Timestamp> {
        if self.deadline.changed().await.is_err() {
            return std::future::pending().await;
        }
        *self.deadline.borrow_and_update()
    }
}
