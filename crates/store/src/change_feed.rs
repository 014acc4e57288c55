//! Hints that something may have changed.

use std::sync::Arc;

use longshore_core::time::Timestamp;
use longshore_engine::Effect;
use tokio::sync::{broadcast, watch};

/// Effects of committed changes, and the next deadline. Whoever falls behind is told that it missed something.
#[derive(Debug)]
pub struct ChangeFeed {
    effects: broadcast::Receiver<Arc<[Effect]>>,
    deadline: watch::Receiver<Option<Timestamp>>,
}

/// The store's end.
#[derive(Debug)]
pub struct WakeupsSender {
    effects: broadcast::Sender<Arc<[Effect]>>,
    deadline: watch::Sender<Option<Timestamp>>,
}

/// Commits that a listener may be behind before it misses some.
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

    /// Nobody listening is no reason to stop.
    pub fn publish(&self, effects: &mut Vec<Effect>) {
        if self.effects.receiver_count() > 0 && !effects.is_empty() {
            drop(self.effects.send(std::mem::take(effects).into()));
        }
        effects.clear();
    }

    /// Something may have changed that nobody can name: elsewhere, or unheard.
    pub fn publish_lagged(&self) {
        if self.effects.receiver_count() > 0 {
            drop(self.effects.send(Arc::new([])));
        }
    }

    pub fn publish_next_deadline(&self, next: Option<Timestamp>) {
        self.deadline.send_if_modified(|known| std::mem::replace(known, next) != next);
    }
}

impl ChangeFeed {
    /// The effects of the next commit. `None`: some were missed, so anything may have changed. Pends for ever once the store is gone.
    pub async fn changed(&mut self) -> Option<Arc<[Effect]>> {
        match self.effects.recv().await {
            Ok(effects) => Some(effects).filter(|effects| !effects.is_empty()),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }

    /// When the next tick is due, as far as is known.
    pub fn deadline(&self) -> Option<Timestamp> {
        *self.deadline.borrow()
    }

    /// Waits until the deadline is another one. Pends for ever once the store is gone.
    pub async fn deadline_moved(&mut self) -> Option<Timestamp> {
        if self.deadline.changed().await.is_err() {
            return std::future::pending().await;
        }
        *self.deadline.borrow_and_update()
    }
}
