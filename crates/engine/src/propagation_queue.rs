//! Ends and revivals of jobs that their dependents have not all received yet, oldest first.

use std::collections::BTreeMap;

use foldhash::HashMap;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;

/// The progress of one job's propagation to its dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Propagation {
    pub dependency: Seq,
    /// The last dependent that has received it. Not persistent: receiving it twice changes nothing.
    pub cursor: Seq,
}

/// A position in the queue: by time, then by arrival.
pub(crate) type PropagationKey = (Timestamp, u64);

/// At most one propagation per job.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropagationQueue {
    by_key: BTreeMap<PropagationKey, Propagation>,
    keys: HashMap<Seq, PropagationKey>,
    arrivals: u64,
}

impl PartialEq for PropagationQueue {
    /// Compares the order, not the keys: a rebuilt queue counts arrivals from zero.
    fn eq(&self, other: &Self) -> bool {
        self.by_key.values().eq(other.by_key.values())
    }
}

impl PropagationQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(PropagationKey, Propagation)> {
        self.by_key.first_key_value().map(|(key, propagation)| (*key, *propagation))
    }

    pub(crate) fn key_of(&self, dependency: Seq) -> Option<PropagationKey> {
        self.keys.get(&dependency).copied()
    }

    pub(crate) fn cursor_of(&self, dependency: Seq) -> Option<Seq> {
        self.by_key.get(self.keys.get(&dependency)?).map(|propagation| propagation.cursor)
    }

    /// Returns a key after all earlier keys of the same instant.
    pub(crate) fn next_key(&mut self, since: Timestamp) -> PropagationKey {
        self.arrivals += 1;
        (since, self.arrivals)
    }

    /// Sets or removes the propagation of a key. Returns the previous one.
    pub(crate) fn set(&mut self, key: PropagationKey, propagation: Option<Propagation>) -> Option<Propagation> {
        let before = match propagation {
            Some(propagation) => {
                self.keys.insert(propagation.dependency, key);
                self.by_key.insert(key, propagation)
            }
            None => self.by_key.remove(&key),
        };
        let is_replaced = |old: &Propagation| propagation.is_none_or(|new| new.dependency != old.dependency);
        if let Some(old) = before.filter(is_replaced) {
            self.keys.remove(&old.dependency);
        }
        before
    }
}
