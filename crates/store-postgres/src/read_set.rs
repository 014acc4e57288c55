//! What a transaction has read and locked so far, and what it still has to read.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::state::StateKind;
use longshore_core::workflow::Workflow;
use longshore_engine::{KeyEntry, ScopedIdempotencyKey, StateCounts};

use crate::row::JobRow;

/// Rows that a transaction has read. They cannot change before its end, except workflows.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// Keys of `rows`, in the order in which they were read.
    pub order: Vec<Seq>,
    pub rows: HashMap<Seq, JobRow>,
    /// Jobs that do not exist.
    pub absent: HashSet<Seq>,
    pub keys: HashMap<ScopedIdempotencyKey, Option<KeyEntry>>,
    pub external_ids: HashMap<(QueueName, Arc<str>), Option<Seq>>,
    pub dependents: HashMap<Seq, ListPrefix>,
    pub jobs_by_state: HashMap<(QueueName, StateKind), ListPrefix>,
    pub imported_ids: HashMap<JobId, Option<Seq>>,
    /// Jobs per state, and held jobs.
    pub counts: HashMap<QueueName, (StateCounts, u64)>,
    pub workflows: HashMap<Seq, Option<StoredWorkflow>>,
    pub workflow_members: HashMap<Seq, ListPrefix>,
    pub member_refs: HashMap<(Seq, Arc<str>), Option<Seq>>,
    /// Workflows with a bulk operation that a tick resumes.
    pub operations: Vec<WorkflowId>,
    /// Jobs whose completion has not been propagated to all dependents.
    pub pending_propagation: Vec<Seq>,
}

/// A workflow as it was read. It is not locked: a write expects this revision, and adds deltas to
/// the counts.
#[derive(Clone, Debug)]
pub(crate) struct StoredWorkflow {
    pub workflow: Workflow,
    pub revision: i64,
}

/// The beginning of a sorted list of jobs.
#[derive(Clone, Debug)]
pub(crate) struct ListPrefix {
    pub seqs: Vec<Seq>,
    pub after: Seq,
    /// The list may be longer.
    pub truncated: bool,
}

/// What the rules looked for and the transaction had not read. The result of such a run is
/// discarded; the rules run again once this was read.
#[derive(Debug, Default)]
pub(crate) struct MissingReads {
    pub rows: BTreeSet<Seq>,
    /// Payloads of rows that were read without them.
    pub payloads: BTreeSet<Seq>,
    pub keys: HashSet<ScopedIdempotencyKey>,
    pub external_ids: HashSet<(QueueName, Arc<str>)>,
    pub dependents: HashMap<Seq, (Seq, usize)>,
    pub jobs_by_state: HashMap<(QueueName, StateKind), usize>,
    pub imported_ids: HashSet<JobId>,
    pub counts: BTreeSet<QueueName>,
    pub workflows: BTreeSet<Seq>,
    pub workflow_members: HashMap<Seq, (Seq, usize)>,
    pub member_refs: HashSet<(Seq, Arc<str>)>,
    /// Queues change, which needs the exclusive lock.
    pub exclusive_lock: bool,
    /// A block of sequence numbers.
    pub seqs: bool,
}

impl MissingReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.payloads.is_empty()
            && self.keys.is_empty()
            && self.external_ids.is_empty()
            && self.dependents.is_empty()
            && self.jobs_by_state.is_empty()
            && self.imported_ids.is_empty()
            && self.counts.is_empty()
            && self.workflows.is_empty()
            && self.workflow_members.is_empty()
            && self.member_refs.is_empty()
            && !self.exclusive_lock
            && !self.seqs
    }
}

impl ReadSet {
    pub(crate) fn add(&mut self, seq: Seq, row: JobRow) {
        self.absent.remove(&seq);
        if self.rows.insert(seq, row).is_none() {
            self.order.push(seq);
        }
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        self.rows.values().filter_map(|row| Some(row.payload.as_ref()?.bytes().len())).sum()
    }

    pub(crate) fn has_read(&self, seq: Seq) -> bool {
        self.rows.contains_key(&seq) || self.absent.contains(&seq)
    }
}
