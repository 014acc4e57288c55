//! The records that the engine changes during one run of the rules: rows of the read set, changed
//! in memory. A record that was not read is added to the missing reads; the run continues without
//! it, to find out what else is missing.

mod workflows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longshore_codec::{self as codec, Dictionary};
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, Workflow};
use longshore_engine::{JobRecords, KeyEntry, PayloadSource, PruneTarget, Queue, ScopedIdempotencyKey, SystemKind};
use longshore_store::query::{TermFields, has_terms};
use parking_lot::{Mutex, MutexGuard};

use crate::catalog::Catalog;
use crate::error::TxError;
use crate::id_cipher::PostgresIdCipher;
use crate::read_set::{MissingReads, ReadSet};
use crate::transaction::system::SystemChanges;

pub(crate) use workflows::WorkflowChanges;

/// Fields of a job before this transaction.
#[derive(Clone, Debug)]
pub(crate) struct OriginalState {
    pub state: StateKind,
    pub held: bool,
    pub indexed: TermFields,
}

#[derive(Debug)]
pub(crate) struct WorkingSet<'a> {
    read_set: &'a ReadSet,
    pub names: Dictionary,
    id_cipher: PostgresIdCipher,
    imported_ids: bool,
    /// The transaction holds the exclusive lock, so that queues may be changed.
    exclusive: bool,
    jobs: HashMap<Seq, Box<Job>>,
    pub before: HashMap<Seq, OriginalState>,
    pub changed: BTreeSet<Seq>,
    pub inserted: BTreeMap<Seq, PayloadSource>,
    pub removed: BTreeMap<Seq, Box<Job>>,
    pub keys: HashMap<ScopedIdempotencyKey, Option<KeyEntry>>,
    external_ids: HashMap<(QueueName, Arc<str>), Option<Seq>>,
    pub added_edges: BTreeSet<(Seq, Seq)>,
    pub removed_edges: BTreeSet<(Seq, Seq)>,
    pub workflows: WorkflowChanges,
    pub queues: BTreeMap<QueueName, Option<Queue>>,
    pub system: SystemChanges,
    /// Jobs and keys that a tick may prune.
    prunes: BTreeSet<(Timestamp, PruneTarget)>,
    /// Ids that were assigned before the job was created.
    pub preassigned_ids: HashMap<Seq, JobId>,
    missing: Mutex<MissingReads>,
}

impl<'a> WorkingSet<'a> {
    pub(crate) fn new(read_set: &'a ReadSet, catalog: &Catalog, exclusive: bool) -> Self {
        Self {
            read_set,
            names: if exclusive { catalog.names.clone() } else { Dictionary::default() },
            id_cipher: catalog.id_cipher.clone(),
            imported_ids: catalog.has_imported_ids,
            exclusive,
            jobs: HashMap::new(),
            before: HashMap::new(),
            changed: BTreeSet::new(),
            inserted: BTreeMap::new(),
            removed: BTreeMap::new(),
            keys: HashMap::new(),
            external_ids: HashMap::new(),
            added_edges: BTreeSet::new(),
            removed_edges: BTreeSet::new(),
            workflows: WorkflowChanges::default(),
            queues: BTreeMap::new(),
            system: SystemChanges::default(),
            prunes: BTreeSet::new(),
            preassigned_ids: HashMap::new(),
            missing: Mutex::default(),
        }
    }

    fn missing(&self) -> MutexGuard<'_, MissingReads> {
        self.missing.lock()
    }

    pub(crate) fn take_missing(&self) -> MissingReads {
        std::mem::take(&mut self.missing())
    }

    /// Records that a row was read without its payload.
    pub(crate) fn add_missing_payload(&self, seq: Seq) {
        self.missing().payloads.insert(seq);
    }

    /// Decodes all rows of the read set, in order.
    pub(crate) fn decode_all(&mut self, names: &Dictionary) -> Result<(), TxError> {
        for seq in &self.read_set.order {
            let Some(row) = self.read_set.rows.get(seq) else { continue };
            let job = codec::job::decode(*seq, &row.record, names).map_err(|_| TxError::damaged(*seq))?;
            let before = OriginalState { state: job.kind(), held: job.state.held(), indexed: TermFields::of(&job) };
            self.before.insert(*seq, before);
            self.jobs.insert(*seq, Box::new(job));
        }
        Ok(())
    }

    /// Collects what may be pruned from the read set.
    pub(crate) fn collect_prunes(&mut self) {
        for (seq, job) in &self.jobs {
            self.prunes.extend(job.prune_at().map(|at| (at, PruneTarget::Job(*seq))));
        }
        for (path, entry) in &self.read_set.keys {
            let at = entry.and_then(|entry| entry.prune_at);
            self.prunes.extend(at.map(|at| (at, PruneTarget::Key(path.clone()))));
        }
    }

    pub(crate) fn job(&self, seq: Seq) -> Option<&Job> {
        self.jobs.get(&seq).map(Box::as_ref)
    }

    /// Whether only rows of `jobs` and `payloads` change: no search terms, edges, workflows or
    /// queues.
    pub(crate) fn only_job_rows(&self) -> bool {
        let is_standalone = |seq: &Seq| {
            let Some(job) = self.job(*seq) else { return false };
            match self.before.get(seq) {
                Some(before) => before.indexed.are_those_of(job),
                None => !has_terms(job) && job.external_id.is_none(),
            }
        };
        self.removed.is_empty()
            && self.keys.is_empty()
            && self.added_edges.is_empty()
            && self.removed_edges.is_empty()
            && self.queues.is_empty()
            && self.system.is_empty()
            && self.workflows.is_empty()
            && self.changed.iter().all(is_standalone)
    }

    fn cancel_prune(&mut self, job: &Job) {
        if !self.prunes.is_empty() {
            let seq = job.seq;
            self.prunes.retain(|(_, prune)| *prune != PruneTarget::Job(seq));
        }
    }
}

impl JobRecords for WorkingSet<'_> {
    type Error = TxError;

    fn new_id(&mut self, seq: Seq, rng: &mut dyn Rng) -> JobId {
        match self.preassigned_ids.get(&seq) {
            Some(id) => *id,
            None => self.id_cipher.encrypt(seq, rng),
        }
    }

    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, TxError> {
        let seq = self.id_cipher.decrypt(id);
        let possible = i64::try_from(seq.0).is_ok();
        if possible && let Some(job) = self.jobs.get(&seq).filter(|job| job.id == id) {
            return Ok(Some(job.seq));
        }
        if possible && !self.read_set.has_read(seq) && !self.inserted.contains_key(&seq) {
            self.missing().rows.insert(seq);
            return Ok(None);
        }
        if !self.imported_ids {
            return Ok(None);
        }
        match self.read_set.imported_ids.get(&id) {
            Some(found) => Ok(*found),
            None => {
                self.missing().imported_ids.insert(id);
                Ok(None)
            }
        }
    }

    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, TxError> {
        if let Some(job) = self.jobs.remove(&seq) {
            return Ok(Some(job));
        }
        if !self.removed.contains_key(&seq) && !self.read_set.has_read(seq) {
            self.missing().rows.insert(seq);
        }
        Ok(None)
    }

    fn put(&mut self, job: Box<Job>) -> Result<(), TxError> {
        self.cancel_prune(&job);
        self.changed.insert(job.seq);
        self.jobs.insert(job.seq, job);
        Ok(())
    }

    fn return_unchanged(&mut self, job: Box<Job>) {
        self.jobs.insert(job.seq, job);
    }

    fn payload_bytes(&mut self, seq: Seq) -> Result<usize, TxError> {
        let Some(row) = self.read_set.rows.get(&seq) else { return Ok(0) };
        let known = row.payload.as_ref().map(|payload| payload.bytes().len()).or(row.payload_bytes);
        if known.is_none() {
            self.add_missing_payload(seq);
        }
        Ok(known.unwrap_or(0))
    }

    fn insert(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), TxError> {
        if let Some(external_id) = &job.external_id {
            self.external_ids.insert((job.queue.clone(), Arc::clone(external_id)), Some(job.seq));
        }
        self.add_member(&job);
        self.inserted.insert(job.seq, payload);
        self.put(job)
    }

    fn remove(&mut self, job: Box<Job>) -> Result<(), TxError> {
        self.cancel_prune(&job);
        if let Some(external_id) = &job.external_id {
            self.external_ids.insert((job.queue.clone(), Arc::clone(external_id)), None);
        }
        self.remove_member(&job);
        self.changed.remove(&job.seq);
        self.inserted.remove(&job.seq);
        self.removed.insert(job.seq, job);
        Ok(())
    }

    fn external_id(&mut self, queue: &QueueName, external_id: &str) -> Result<Option<Seq>, TxError> {
        let name = (queue.clone(), Arc::from(external_id));
        if let Some(own) = self.external_ids.get(&name) {
            return Ok(*own);
        }
        match self.read_set.external_ids.get(&name) {
            Some(found) => Ok(*found),
            None => {
                self.missing().external_ids.insert(name);
                Ok(None)
            }
        }
    }

    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), TxError> {
        self.removed_edges.remove(&(dependency, dependent));
        self.added_edges.insert((dependency, dependent));
        Ok(())
    }

    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), TxError> {
        self.added_edges.remove(&(dependency, dependent));
        self.removed_edges.insert((dependency, dependent));
        Ok(())
    }

    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, TxError> {
        let mut found: BTreeSet<Seq> = self
            .added_edges
            .range((dependency, Seq(after.0.saturating_add(1)))..=(dependency, Seq(u64::MAX)))
            .map(|(_, dependent)| *dependent)
            .collect();
        if self.inserted.contains_key(&dependency) {
            return Ok(found.into_iter().take(limit).collect());
        }
        let slice = self.read_set.dependents.get(&dependency).filter(|slice| slice.after <= after);
        let stored: Vec<Seq> =
            slice.map(|slice| slice.seqs.iter().copied().filter(|seq| *seq > after).collect()).unwrap_or_default();
        if slice.is_none_or(|slice| slice.truncated && stored.len() < limit) {
            // The list is read again from its beginning, with a higher limit.
            let (after, before) = slice.map_or((after, 0), |slice| (slice.after, slice.seqs.len()));
            self.missing().dependents.insert(dependency, (after, before + limit));
            return Ok(Vec::new());
        }
        let remains = |seq: &Seq| !self.removed.contains_key(seq) && !self.removed_edges.contains(&(dependency, *seq));
        found.extend(stored.into_iter().filter(remains));
        Ok(found.into_iter().take(limit).collect())
    }

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, TxError> {
        if let Some(own) = self.keys.get(key) {
            return Ok(*own);
        }
        match self.read_set.keys.get(key) {
            Some(found) => Ok(*found),
            None => {
                self.missing().keys.insert(key.clone());
                Ok(None)
            }
        }
    }

    fn put_key(&mut self, key: ScopedIdempotencyKey, entry: KeyEntry) -> Result<(), TxError> {
        if !self.prunes.is_empty() {
            self.prunes.retain(|(_, prune)| *prune != PruneTarget::Key(key.clone()));
        }
        self.keys.insert(key, Some(entry));
        Ok(())
    }

    fn remove_key(&mut self, key: &ScopedIdempotencyKey) -> Result<(), TxError> {
        self.prunes.retain(|(_, prune)| *prune != PruneTarget::Key(key.clone()));
        self.keys.insert(key.clone(), None);
        Ok(())
    }

    fn next_prune(&mut self, _now: Timestamp) -> Result<Option<(Timestamp, PruneTarget)>, TxError> {
        Ok(self.prunes.first().cloned())
    }

    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, TxError> {
        let slice = self.read_set.jobs_by_state.get(&(queue.clone(), state));
        let matches = |seq: &Seq| self.jobs.get(seq).is_some_and(|job| job.kind() == state && job.queue == *queue);
        let unread = |seq: &Seq| !self.read_set.has_read(*seq);
        let mut found: BTreeSet<Seq> = self.changed.iter().copied().filter(matches).collect();
        let stored: Vec<Seq> = slice
            .map(|slice| slice.seqs.iter().copied().filter(|seq| matches(seq) || unread(seq)).collect())
            .unwrap_or_default();
        if slice.is_none_or(|slice| slice.truncated && stored.len() < limit) {
            self.missing().jobs_by_state.insert((queue.clone(), state), limit);
            return Ok(Vec::new());
        }
        found.extend(stored);
        Ok(found.into_iter().take(limit).collect())
    }

    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, TxError> {
        Ok(self.find_workflow(id))
    }

    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), TxError> {
        self.workflows.put.insert(workflow.number, workflow.clone());
        Ok(())
    }

    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), TxError> {
        if let Some(number) = self.number_of(id) {
            self.workflows.count_deltas.entry(number).or_default().join(change);
        }
        Ok(())
    }

    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), TxError> {
        if let Some(number) = self.number_of(id) {
            // Its changes are written all the same: the statement deletes only closed workflows.
            self.workflows.removed.insert(number);
        }
        Ok(())
    }

    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, TxError> {
        Ok(self.members_after(id, after, limit))
    }

    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), TxError> {
        if let Some(number) = self.number_of(id) {
            self.workflows.refs.insert((number, Arc::from(reference)), Some(member));
        }
        Ok(())
    }

    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, TxError> {
        Ok(self.find_member(id, reference))
    }

    fn encode_snapshot(&self, job: &Job) -> Vec<u8> {
        // Only a job whose policy contains a function has no encoding. No store holds such a job.
        longshore_codec::snapshot::encode(job).unwrap_or_default()
    }

    fn put_system(&mut self, kind: SystemKind, key: Vec<u8>, value: Vec<u8>) -> Result<(), TxError> {
        self.system.put(kind, key, value);
        Ok(())
    }

    fn put_queue(&mut self, queue: &Queue) -> Result<(), TxError> {
        if !self.exclusive {
            self.missing().exclusive_lock = true;
            return Ok(());
        }
        self.names.learn_queue(&queue.name);
        self.names.learn_policy(&queue.policy);
        self.queues.insert(queue.name.clone(), Some(queue.clone()));
        Ok(())
    }

    fn remove_queue(&mut self, name: &QueueName) -> Result<(), TxError> {
        if !self.exclusive {
            self.missing().exclusive_lock = true;
            return Ok(());
        }
        self.queues.insert(name.clone(), None);
        Ok(())
    }
}
