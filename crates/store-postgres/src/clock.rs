//! What time it is for a node: the database's time, or the one it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use longshore_core::time::Timestamp;
use longshore_store::{Clock, SystemClock};

#[derive(Debug)]
pub(crate) enum NodeClock {
    /// The node's own clock only fills the time between two answers of the database.
    Database {
        own: SystemClock,
        offset_ms: AtomicI64,
        told: AtomicI64,
    },
    Given(Arc<dyn Clock>),
}

impl NodeClock {
    pub(crate) fn database() -> Self {
        Self::Database { own: SystemClock::new(), offset_ms: AtomicI64::new(0), told: AtomicI64::new(i64::MIN) }
    }

    /// The time of a transaction in which the database said this.
    pub(crate) fn sync(&self, database: Timestamp) -> Timestamp {
        match self {
            Self::Database { own, offset_ms: ahead, .. } => {
                ahead.store(database.as_millis() - own.now().as_millis(), Ordering::Relaxed);
                database
            }
            Self::Given(clock) => clock.now(),
        }
    }

    /// What a transaction that begins now will be told, more or less; goes back where the database's clock does.
    pub(crate) fn estimate(&self) -> Timestamp {
        match self {
            Self::Database { own, offset_ms: ahead, .. } => {
                Timestamp::from_millis(own.now().as_millis() + ahead.load(Ordering::Relaxed))
            }
            Self::Given(clock) => clock.now(),
        }
    }

    /// Never goes back.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Database { told, .. } => {
                let now = self.estimate().as_millis();
                Timestamp::from_millis(now.max(told.fetch_max(now, Ordering::Relaxed)))
            }
            Self::Given(clock) => clock.now(),
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        match self {
            Self::Database { .. } => false,
            Self::Given(_) => true,
        }
    }
}
