//! Taking back what the records could not keep: if a commit fails, the engine returns to where it was.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::time::Timestamp;

use crate::engine::Engine;
use crate::index::{Entry, Timer};
use crate::propagation_queue::{Propagation, PropagationKey};
use crate::queue::Queue;

/// What was done since [`Engine::begin`], newest last. Empty outside of a transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UndoLog {
    open: Option<Savepoint>,
    undo: Vec<Undo>,
}

/// The small parts, kept whole.
#[derive(Clone, Debug, PartialEq)]
struct Savepoint {
    leaving: BTreeSet<QueueName>,
    errands: BTreeSet<WorkflowId>,
    next_number: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum Undo {
    Reindexed { before: Option<Entry>, after: Option<Entry> },
    TimerDropped(Timer),
    Offered(Entry),
    Owed { place: PropagationKey, before: Option<Propagation> },
    QueueSet { name: QueueName, before: Option<Arc<Queue>> },
}

impl Engine {
    /// From here on every change can be taken back, until [`Engine::commit`] or [`Engine::rollback`].
    pub fn begin(&mut self) {
        let (leaving, errands) = (self.deleting_queues.clone(), self.active_operations.clone());
        let before = Savepoint { leaving, errands, next_number: self.next_number };
        self.journal.undo.clear();
        self.journal.open = Some(before);
    }

    pub fn commit(&mut self) {
        self.journal.open = None;
        self.journal.undo.clear();
    }

    /// The engine as it was at [`Engine::begin`]. The caller sees to it that the records are, too.
    pub fn rollback(&mut self) {
        let Some(Savepoint { leaving, errands, next_number }) = self.journal.open.take() else { return };
        for undo in std::mem::take(&mut self.journal.undo).into_iter().rev() {
            match undo {
                Undo::Reindexed { before, after } => self.index.replace(after.as_ref(), before.as_ref()),
                Undo::TimerDropped(timer) => self.index.restore_timer(timer),
                Undo::Offered(entry) => self.index.unmark_reclaimable(&entry),
                Undo::Owed { place, before } => drop(self.owed.set(place, before)),
                Undo::QueueSet { name, before: Some(queue) } => {
                    drop(Arc::make_mut(&mut self.queues).insert(name, queue));
                }
                Undo::QueueSet { name, before: None } => drop(Arc::make_mut(&mut self.queues).remove(&name)),
            }
        }
        (self.deleting_queues, self.active_operations, self.next_number) = (leaving, errands, next_number);
    }

    fn record_undo(&mut self, undo: Undo) {
        if self.journal.open.is_some() {
            self.journal.undo.push(undo);
        }
    }

    pub(crate) fn reindex(&mut self, before: Option<Entry>, after: Option<Entry>) {
        self.index.replace(before.as_ref(), after.as_ref());
        self.record_undo(Undo::Reindexed { before, after });
    }

    pub(crate) fn drop_timer(&mut self, timer: Timer) {
        if self.index.drop_timer(timer) {
            self.record_undo(Undo::TimerDropped(timer));
        }
    }

    pub(crate) fn offer(&mut self, entry: Entry) {
        self.index.mark_reclaimable(&entry);
        self.record_undo(Undo::Offered(entry));
    }

    pub(crate) fn set_propagation(&mut self, place: PropagationKey, news: Option<Propagation>) {
        let before = self.owed.set(place, news);
        self.record_undo(Undo::Owed { place, before });
    }

    /// A job has news for all who depend on it; what it owed before is out of date.
    pub(crate) fn enqueue_propagation(&mut self, of: Seq, now: Timestamp) {
        if let Some(place) = self.owed.key_of(of) {
            self.set_propagation(place, None);
        }
        let place = self.owed.next_key(now);
        self.set_propagation(place, Some(Propagation { of, cursor: Seq(0) }));
    }

    pub(crate) fn set_queue(&mut self, name: QueueName, queue: Option<Arc<Queue>>) {
        let before = match queue {
            Some(queue) => Arc::make_mut(&mut self.queues).insert(name.clone(), queue),
            None => Arc::make_mut(&mut self.queues).remove(&name),
        };
        self.record_undo(Undo::QueueSet { name, before });
    }
}
