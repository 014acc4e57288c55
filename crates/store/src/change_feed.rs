//! Hints about committed changes, events, and the next deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_core::time::Timestamp;
use longshore_engine::Effect;
use tokio::sync::{broadcast, watch};

/// Receives the effects of commits, events, and the next deadline. A receiver that lags learns
/// that it missed some, but not which.
#[derive(Debug)]
pub struct ChangeFeed {
    changes: broadcast::Receiver<Change>,
    deadline: watch::Receiver<Option<Timestamp>>,
}

/// One item of a feed.
#[derive(Clone, Debug)]
pub enum Change {
    /// The effects of a commit of this server. `is_event_source`: the event stream reports them
    /// from here; otherwise [`Change::Events`] brings them, in the order of all servers.
    Commit { effects: Arc<[Effect]>, is_event_source: bool },
    /// Events of any server of the fleet.
    Events(Arc<[Effect]>),
    /// Unknown changes happened: on another server, or while a connection was down.
    Elsewhere,
    /// Events were lost, or are not collected any more.
    EventsMissed,
    /// All earlier commits were delivered when this mark was set.
    Mark(u64),
    /// The receiver lagged and missed items of any kind.
    Lagged,
}

/// The store's end of all its change feeds.
#[derive(Debug)]
pub struct WakeupsSender {
    changes: broadcast::Sender<Change>,
    deadline: watch::Sender<Option<Timestamp>>,
    last_mark: AtomicU64,
    is_event_source: bool,
}

/// Commits that a receiver may lag behind before it misses effects.
const CHANNEL_CAPACITY: usize = 1_024;

impl Default for WakeupsSender {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANNEL_CAPACITY),
            deadline: watch::Sender::new(None),
            last_mark: AtomicU64::new(0),
            is_event_source: true,
        }
    }
}

impl WakeupsSender {
    /// Creates a sender whose commits are no events: the store calls
    /// [`WakeupsSender::publish_events`].
    pub fn with_separate_events() -> Self {
        Self { is_event_source: false, ..Self::default() }
    }

    pub fn subscribe(&self) -> ChangeFeed {
        ChangeFeed { changes: self.changes.subscribe(), deadline: self.deadline.subscribe() }
    }

    /// Whether the effects of [`WakeupsSender::publish`] are events too.
    pub fn is_event_source(&self) -> bool {
        self.is_event_source
    }

    fn send(&self, change: Change) {
        if self.changes.receiver_count() > 0 {
            drop(self.changes.send(change));
        }
    }

    /// Publishes the effects of a commit and clears the list. Without a receiver they are dropped.
    pub fn publish(&self, effects: &mut Vec<Effect>) {
        if self.changes.receiver_count() > 0 && !effects.is_empty() {
            let effects = std::mem::take(effects).into();
            self.send(Change::Commit { effects, is_event_source: self.is_event_source });
        }
        effects.clear();
    }

    /// Publishes events of any server.
    pub fn publish_events(&self, events: Vec<Effect>) {
        if !events.is_empty() {
            self.send(Change::Events(events.into()));
        }
    }

    /// Publishes that events were lost, or are not collected any more.
    pub fn publish_events_missed(&self) {
        self.send(Change::EventsMissed);
    }

    /// Sends a mark through all feeds. Returns it.
    pub fn mark(&self) -> u64 {
        let mark = self.last_mark.fetch_add(1, Ordering::SeqCst) + 1;
        self.send(Change::Mark(mark));
        mark
    }

    /// Publishes that unknown changes happened: on another node, or while a connection was down.
    pub fn publish_lagged(&self) {
        self.send(Change::Elsewhere);
    }

    pub fn publish_next_deadline(&self, next: Option<Timestamp>) {
        self.deadline.send_if_modified(|current| std::mem::replace(current, next) != next);
    }
}

impl ChangeFeed {
    /// Returns the next item. Never returns once the store is closed.
    pub async fn next(&mut self) -> Change {
        match self.changes.recv().await {
            Ok(change) => change,
            Err(broadcast::error::RecvError::Lagged(_)) => Change::Lagged,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Returns the effects of the next commit. `None`: some were missed, so anything may have
    /// changed. Never returns once the store is closed.
    pub async fn changed(&mut self) -> Option<Arc<[Effect]>> {
        loop {
            match self.next().await {
                Change::Commit { effects, .. } => return Some(effects),
                Change::Elsewhere | Change::Lagged => return None,
                Change::Events(_) | Change::EventsMissed | Change::Mark(_) => {}
            }
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
