//! News that jobs owe those who depend on them, first come first served.

use std::collections::BTreeMap;

use foldhash::HashMap;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;

/// News that a job owes its dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Propagation {
    pub of: Seq,
    /// Dependents up to this one have heard it. Not kept across a restart: hearing twice changes nothing.
    pub cursor: Seq,
}

/// A place in line: by time, then by arrival.
pub(crate) type PropagationKey = (Timestamp, u64);

/// At most one piece of news of each job.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropagationQueue {
    line: BTreeMap<PropagationKey, Propagation>,
    places: HashMap<Seq, PropagationKey>,
    arrivals: u64,
}

impl PartialEq for PropagationQueue {
    /// The order counts, not the numbers that made it.
    fn eq(&self, other: &Self) -> bool {
        self.line.values().eq(other.line.values())
    }
}

impl PropagationQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(PropagationKey, Propagation)> {
        self.line.first_key_value().map(|(place, news)| (*place, *news))
    }

    pub(crate) fn key_of(&self, of: Seq) -> Option<PropagationKey> {
        self.places.get(&of).copied()
    }

    pub(crate) fn told_by(&self, of: Seq) -> Option<Seq> {
        self.line.get(self.places.get(&of)?).map(|news| news.cursor)
    }

    /// A place behind all that came before it.
    pub(crate) fn next_key(&mut self, since: Timestamp) -> PropagationKey {
        self.arrivals += 1;
        (since, self.arrivals)
    }

    /// Puts news into a place, or empties it; answers what was there.
    pub(crate) fn set(&mut self, place: PropagationKey, news: Option<Propagation>) -> Option<Propagation> {
        let before = match news {
            Some(news) => {
                self.places.insert(news.of, place);
                self.line.insert(place, news)
            }
            None => self.line.remove(&place),
        };
        if let Some(gone) = before.filter(|gone| news.is_none_or(|news| news.of != gone.of)) {
            self.places.remove(&gone.of);
        }
        before
    }
}
