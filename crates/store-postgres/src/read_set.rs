//! The part of the database that a transaction has read and locked so far, and what it still has to read.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::state::StateKind;
use longshore_core::workflow::Workflow;
use longshore_engine::{KeyEntry, ScopedIdempotencyKey, StateCounts};

use crate::row::JobRow;

/// Everything here stays true until the end of the transaction.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// In the order in which they came.
    pub order: Vec<Seq>,
    pub rows: HashMap<Seq, JobRow>,
    /// Looked for, and not there.
    pub absent: HashSet<Seq>,
    pub keys: HashMap<ScopedIdempotencyKey, Option<KeyEntry>>,
    pub external_ids: HashMap<(QueueName, Arc<str>), Option<Seq>>,
    pub dependents: HashMap<Seq, ListPrefix>,
    pub jobs_by_state: HashMap<(QueueName, StateKind), ListPrefix>,
    pub foreign_ids: HashMap<JobId, Option<Seq>>,
    /// Per state, and the held ones.
    pub counts: HashMap<QueueName, (StateCounts, u64)>,
    pub workflows: HashMap<Seq, Option<FoundWorkflow>>,
    /// Members of workflows.
    pub workflow_members: HashMap<Seq, ListPrefix>,
    pub member_names: HashMap<(Seq, Arc<str>), Option<Seq>>,
    /// Workflows to whose members something is being done, for a tick.
    pub errands: Vec<WorkflowId>,
    /// Jobs whose ends not everybody has heard of.
    pub pending_propagation: Vec<Seq>,
}

/// A workflow as it was read. It is not locked: what is written must find this revision, and counts only add up.
#[derive(Clone, Debug)]
pub(crate) struct FoundWorkflow {
    pub workflow: Workflow,
    pub revision: i64,
}

/// The beginning of a list.
#[derive(Clone, Debug)]
pub(crate) struct ListPrefix {
    pub found: Vec<Seq>,
    pub after: Seq,
    /// There may be more.
    pub truncated: bool,
}

/// What a run of the rules asked for that was not there: it counts for nothing, and is repeated once this was fetched.
#[derive(Debug, Default)]
pub(crate) struct MissingReads {
    pub rows: BTreeSet<Seq>,
    pub keys: HashSet<ScopedIdempotencyKey>,
    pub external_ids: HashSet<(QueueName, Arc<str>)>,
    pub dependents: HashMap<Seq, (Seq, usize)>,
    pub jobs_by_state: HashMap<(QueueName, StateKind), usize>,
    pub foreign_ids: HashSet<JobId>,
    pub counts: BTreeSet<QueueName>,
    pub workflows: BTreeSet<Seq>,
    pub workflow_members: HashMap<Seq, (Seq, usize)>,
    pub member_names: HashSet<(Seq, Arc<str>)>,
    /// Queues change: nobody else may be at work.
    pub alone: bool,
    /// A block of the sequence.
    pub numbers: bool,
}

impl MissingReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.keys.is_empty()
            && self.external_ids.is_empty()
            && self.dependents.is_empty()
            && self.jobs_by_state.is_empty()
            && self.foreign_ids.is_empty()
            && self.counts.is_empty()
            && self.workflows.is_empty()
            && self.workflow_members.is_empty()
            && self.member_names.is_empty()
            && !self.alone
            && !self.numbers
    }
}

impl ReadSet {
    pub(crate) fn add(&mut self, seq: Seq, found: JobRow) {
        self.absent.remove(&seq);
        if self.rows.insert(seq, found).is_none() {
            self.order.push(seq);
        }
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        self.rows.values().filter_map(|found| Some(found.payload.as_ref()?.bytes().len())).sum()
    }

    pub(crate) fn knows(&self, seq: Seq) -> bool {
        self.rows.contains_key(&seq) || self.absent.contains(&seq)
    }
}
