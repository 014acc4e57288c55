//! The clock of a node: an estimate of the database clock, or a virtual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use longshore_core::time::Timestamp;
use longshore_store::{Clock, SystemClock};

#[derive(Debug)]
pub(crate) enum NodeClock {
    /// The system clock of the node, corrected with every response of the database.
    Database {
        system: SystemClock,
        offset_ms: AtomicI64,
        /// The latest time that was returned.
        latest_ms: AtomicI64,
    },
    Virtual(Arc<dyn Clock>),
}

impl NodeClock {
    pub(crate) fn database() -> Self {
        let (offset_ms, latest_ms) = (AtomicI64::new(0), AtomicI64::new(i64::MIN));
        Self::Database { system: SystemClock::new(), offset_ms, latest_ms }
    }

    /// Corrects the estimate. Returns the time of a transaction at this database time.
    pub(crate) fn sync(&self, database: Timestamp) -> Timestamp {
        match self {
            Self::Database { system, offset_ms, .. } => {
                offset_ms.store(database.as_millis() - system.now().as_millis(), Ordering::Relaxed);
                database
            }
            Self::Virtual(clock) => clock.now(),
        }
    }

    /// Estimates the database clock. Follows it when it is set back.
    pub(crate) fn estimate(&self) -> Timestamp {
        match self {
            Self::Database { system, offset_ms, .. } => {
                Timestamp::from_millis(system.now().as_millis() + offset_ms.load(Ordering::Relaxed))
            }
            Self::Virtual(clock) => clock.now(),
        }
    }

    /// Estimates the database clock, and never decreases.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Database { latest_ms, .. } => {
                let now = self.estimate().as_millis();
                Timestamp::from_millis(now.max(latest_ms.fetch_max(now, Ordering::Relaxed)))
            }
            Self::Virtual(clock) => clock.now(),
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        match self {
            Self::Database { .. } => false,
            Self::Virtual(_) => true,
        }
    }
}
