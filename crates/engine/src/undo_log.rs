//! The undo log: rolls the engine back if the commit of the records fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::time::Timestamp;

use crate::engine::Engine;
use crate::index::{IndexEntry, Timer};
use crate::outbox::Subscriptions;
use crate::propagation_queue::{Propagation, PropagationKey};
use crate::queue::Queue;

/// Changes since [`Engine::begin`], newest last. Empty without an open transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UndoLog {
    open: Option<Savepoint>,
    undo: Vec<Undo>,
}

/// The small parts of the engine, copied at [`Engine::begin`].
#[derive(Clone, Debug, PartialEq)]
struct Savepoint {
    deleting_queues: BTreeSet<QueueName>,
    active_operations: BTreeSet<WorkflowId>,
    next_seq: u64,
    subscriptions: Arc<Subscriptions>,
}

#[derive(Clone, Debug, PartialEq)]
enum Undo {
    Reindexed { before: Option<IndexEntry>, after: Option<IndexEntry> },
    TimerDropped(Timer),
    MarkedReclaimable(IndexEntry),
    PropagationSet { key: PropagationKey, before: Option<Propagation> },
    QueueSet { name: QueueName, before: Option<Arc<Queue>> },
}

impl Engine {
    /// Starts to record changes, until [`Engine::commit`] or [`Engine::rollback`].
    pub fn begin(&mut self) {
        self.undo_log.undo.clear();
        self.undo_log.open = Some(Savepoint {
            deleting_queues: self.deleting_queues.clone(),
            active_operations: self.active_operations.clone(),
            next_seq: self.next_seq,
            subscriptions: Arc::clone(&self.subscriptions),
        });
    }

    /// Keeps the changes.
    pub fn commit(&mut self) {
        self.undo_log.open = None;
        self.undo_log.undo.clear();
    }

    /// Restores the state of [`Engine::begin`]. The caller rolls back the records.
    pub fn rollback(&mut self) {
        let Some(savepoint) = self.undo_log.open.take() else { return };
        for undo in std::mem::take(&mut self.undo_log.undo).into_iter().rev() {
            match undo {
                Undo::Reindexed { before, after } => self.index.replace(after.as_ref(), before.as_ref()),
                Undo::TimerDropped(timer) => self.index.restore_timer(timer),
                Undo::MarkedReclaimable(entry) => self.index.unmark_reclaimable(&entry),
                Undo::PropagationSet { key, before } => drop(self.propagation.set(key, before)),
                Undo::QueueSet { name, before: Some(queue) } => {
                    drop(Arc::make_mut(&mut self.queues).insert(name, queue));
                }
                Undo::QueueSet { name, before: None } => drop(Arc::make_mut(&mut self.queues).remove(&name)),
            }
        }
        self.deleting_queues = savepoint.deleting_queues;
        self.active_operations = savepoint.active_operations;
        self.next_seq = savepoint.next_seq;
        self.subscriptions = savepoint.subscriptions;
    }

    fn record_undo(&mut self, undo: Undo) {
        if self.undo_log.open.is_some() {
            self.undo_log.undo.push(undo);
        }
    }

    pub(crate) fn reindex(&mut self, before: Option<IndexEntry>, after: Option<IndexEntry>) {
        self.index.replace(before.as_ref(), after.as_ref());
        self.record_undo(Undo::Reindexed { before, after });
    }

    pub(crate) fn drop_timer(&mut self, timer: Timer) {
        if self.index.drop_timer(timer) {
            self.record_undo(Undo::TimerDropped(timer));
        }
    }

    pub(crate) fn mark_reclaimable(&mut self, entry: IndexEntry) {
        self.index.mark_reclaimable(&entry);
        self.record_undo(Undo::MarkedReclaimable(entry));
    }

    pub(crate) fn set_propagation(&mut self, key: PropagationKey, propagation: Option<Propagation>) {
        let before = self.propagation.set(key, propagation);
        self.record_undo(Undo::PropagationSet { key, before });
    }

    /// Schedules the propagation of a job to its dependents. It replaces an unfinished one of the
    /// same job.
    pub(crate) fn enqueue_propagation(&mut self, dependency: Seq, now: Timestamp) {
        if let Some(key) = self.propagation.key_of(dependency) {
            self.set_propagation(key, None);
        }
        let key = self.propagation.next_key(now);
        self.set_propagation(key, Some(Propagation { dependency, cursor: Seq(0) }));
    }

    pub(crate) fn set_queue(&mut self, name: QueueName, queue: Option<Arc<Queue>>) {
        let before = match queue {
            Some(queue) => Arc::make_mut(&mut self.queues).insert(name.clone(), queue),
            None => Arc::make_mut(&mut self.queues).remove(&name),
        };
        self.record_undo(Undo::QueueSet { name, before });
    }
}
