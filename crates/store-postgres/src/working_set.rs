//! The engine's records during one run of the rules: taken from what was fetched, changed in memory, written at the end. Whatever was not fetched is noted, and
//! the run goes on as if it were not there, for nothing but to find out what else is missing.

mod workflows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_codec::{self as codec, Dictionary};
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, Workflow};
use longshore_engine::{JobRecords, KeyEntry, PayloadSource, PruneTarget, Queue, ScopedIdempotencyKey};
use longshore_store::query::{TermFields, has_words};

use crate::catalog::Catalog;
use crate::error::TxError;
use crate::id_cipher::IdSeal;
use crate::read_set::{MissingReads, ReadSet};

pub(crate) use workflows::WorkflowChanges;

/// What a record was before this transaction.
#[derive(Clone, Debug)]
pub(crate) struct OriginalState {
    pub state: StateKind,
    pub held: bool,
    pub indexed: TermFields,
}

#[derive(Debug)]
pub(crate) struct WorkingSet<'a> {
    fetched: &'a ReadSet,
    pub names: Dictionary,
    seal: IdSeal,
    foreign_ids: bool,
    /// Nobody else is at work: queues may be changed.
    alone: bool,
    jobs: HashMap<Seq, Box<Job>>,
    pub before: HashMap<Seq, OriginalState>,
    pub changed: BTreeSet<Seq>,
    pub inserted: BTreeMap<Seq, PayloadSource>,
    pub removed: BTreeMap<Seq, Box<Job>>,
    pub keys: HashMap<ScopedIdempotencyKey, Option<KeyEntry>>,
    external_ids: HashMap<(QueueName, Arc<str>), Option<Seq>>,
    pub links: BTreeSet<(Seq, Seq)>,
    pub removed_edges: BTreeSet<(Seq, Seq)>,
    pub workflows: WorkflowChanges,
    pub queues: BTreeMap<QueueName, Option<Queue>>,
    /// What has outlived its use, in the course of a tick.
    prunes: BTreeSet<(Timestamp, PruneTarget)>,
    /// Ids that were given before the job came to be.
    pub preassigned_ids: HashMap<Seq, JobId>,
    wanted: Mutex<MissingReads>,
}

impl<'a> WorkingSet<'a> {
    pub(crate) fn new(fetched: &'a ReadSet, known: &Catalog, alone: bool) -> Self {
        Self {
            fetched,
            names: if alone { known.names.clone() } else { Dictionary::default() },
            seal: known.seal.clone(),
            foreign_ids: known.has_imported_ids,
            alone,
            jobs: HashMap::new(),
            before: HashMap::new(),
            changed: BTreeSet::new(),
            inserted: BTreeMap::new(),
            removed: BTreeMap::new(),
            keys: HashMap::new(),
            external_ids: HashMap::new(),
            links: BTreeSet::new(),
            removed_edges: BTreeSet::new(),
            workflows: WorkflowChanges::default(),
            queues: BTreeMap::new(),
            prunes: BTreeSet::new(),
            preassigned_ids: HashMap::new(),
            wanted: Mutex::default(),
        }
    }

    fn missing(&self) -> MutexGuard<'_, MissingReads> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked for and was not there.
    pub(crate) fn take_wanted(&self) -> MissingReads {
        std::mem::take(&mut self.missing())
    }

    /// Reads everything that was fetched, in order.
    pub(crate) fn read_all(&mut self, names: &Dictionary) -> Result<(), TxError> {
        for seq in &self.fetched.order {
            let Some(found) = self.fetched.rows.get(seq) else { continue };
            let job = codec::job::decode(*seq, &found.record, names).map_err(|_| TxError::damaged(*seq))?;
            let before = OriginalState { state: job.kind(), held: job.state.held(), indexed: TermFields::of(&job) };
            self.before.insert(*seq, before);
            self.jobs.insert(*seq, Box::new(job));
        }
        Ok(())
    }

    /// What may be pruned, so far as it was fetched.
    pub(crate) fn expect_prunes(&mut self) {
        for (seq, job) in &self.jobs {
            self.prunes.extend(job.prune_at().map(|at| (at, PruneTarget::Job(*seq))));
        }
        for (path, entry) in &self.fetched.keys {
            let at = entry.and_then(|entry| entry.prune_at);
            self.prunes.extend(at.map(|at| (at, PruneTarget::Key(path.clone()))));
        }
    }

    pub(crate) fn job(&self, seq: Seq) -> Option<&Job> {
        self.jobs.get(&seq).map(Box::as_ref)
    }

    /// Nothing but rows of jobs is written: no names, no links, no workflows, no queues.
    pub(crate) fn only_job_rows(&self) -> bool {
        let plain = |seq: &Seq| {
            let Some(job) = self.job(*seq) else { return false };
            match self.before.get(seq) {
                Some(before) => before.indexed.are_those_of(job),
                None => !has_words(job) && job.external_id.is_none(),
            }
        };
        self.removed.is_empty()
            && self.keys.is_empty()
            && self.links.is_empty()
            && self.removed_edges.is_empty()
            && self.queues.is_empty()
            && self.workflows.is_nothing()
            && self.changed.iter().all(plain)
    }

    fn unprune(&mut self, job: &Job) {
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
            None => self.seal.encrypt(seq, rng),
        }
    }

    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, TxError> {
        let seq = self.seal.decrypt(id);
        let possible = i64::try_from(seq.0).is_ok();
        if possible && let Some(job) = self.jobs.get(&seq).filter(|job| job.id == id) {
            return Ok(Some(job.seq));
        }
        if possible && !self.fetched.knows(seq) && !self.inserted.contains_key(&seq) {
            self.missing().rows.insert(seq);
            return Ok(None);
        }
        if !self.foreign_ids {
            return Ok(None);
        }
        match self.fetched.foreign_ids.get(&id) {
            Some(found) => Ok(*found),
            None => {
                self.missing().foreign_ids.insert(id);
                Ok(None)
            }
        }
    }

    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, TxError> {
        if let Some(job) = self.jobs.remove(&seq) {
            return Ok(Some(job));
        }
        if !self.removed.contains_key(&seq) && !self.fetched.knows(seq) {
            self.missing().rows.insert(seq);
        }
        Ok(None)
    }

    fn put(&mut self, job: Box<Job>) -> Result<(), TxError> {
        self.unprune(&job);
        self.changed.insert(job.seq);
        self.jobs.insert(job.seq, job);
        Ok(())
    }

    fn return_unchanged(&mut self, job: Box<Job>) {
        self.jobs.insert(job.seq, job);
    }

    fn insert(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), TxError> {
        if let Some(external_id) = &job.external_id {
            self.external_ids.insert((job.queue.clone(), Arc::clone(external_id)), Some(job.seq));
        }
        self.admit(&job);
        self.inserted.insert(job.seq, payload);
        self.put(job)
    }

    fn remove(&mut self, job: Box<Job>) -> Result<(), TxError> {
        self.unprune(&job);
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
        match self.fetched.external_ids.get(&name) {
            Some(found) => Ok(*found),
            None => {
                self.missing().external_ids.insert(name);
                Ok(None)
            }
        }
    }

    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), TxError> {
        self.removed_edges.remove(&(dependency, dependent));
        self.links.insert((dependency, dependent));
        Ok(())
    }

    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), TxError> {
        self.links.remove(&(dependency, dependent));
        self.removed_edges.insert((dependency, dependent));
        Ok(())
    }

    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, TxError> {
        let mut found: BTreeSet<Seq> = self
            .links
            .range((dependency, Seq(after.0.saturating_add(1)))..=(dependency, Seq(u64::MAX)))
            .map(|(_, dependent)| *dependent)
            .collect();
        if self.inserted.contains_key(&dependency) {
            return Ok(found.into_iter().take(limit).collect());
        }
        let slice = self.fetched.dependents.get(&dependency).filter(|slice| slice.after <= after);
        let stored: Vec<Seq> =
            slice.map(|slice| slice.found.iter().copied().filter(|seq| *seq > after).collect()).unwrap_or_default();
        if slice.is_none_or(|slice| slice.truncated && stored.len() < limit) {
            // What was fetched before is wanted again, together with the rest.
            let (after, before) = slice.map_or((after, 0), |slice| (slice.after, slice.found.len()));
            self.missing().dependents.insert(dependency, (after, before + limit));
            return Ok(Vec::new());
        }
        let waits = |seq: &Seq| !self.removed.contains_key(seq) && !self.removed_edges.contains(&(dependency, *seq));
        found.extend(stored.into_iter().filter(waits));
        Ok(found.into_iter().take(limit).collect())
    }

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, TxError> {
        if let Some(own) = self.keys.get(key) {
            return Ok(*own);
        }
        match self.fetched.keys.get(key) {
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
        let slice = self.fetched.jobs_by_state.get(&(queue.clone(), state));
        let there = |seq: &Seq| self.jobs.get(seq).is_some_and(|job| job.kind() == state && job.queue == *queue);
        let unread = |seq: &Seq| !self.fetched.knows(*seq);
        let mut found: BTreeSet<Seq> = self.changed.iter().copied().filter(there).collect();
        let stored: Vec<Seq> = slice
            .map(|slice| slice.found.iter().copied().filter(|seq| there(seq) || unread(seq)).collect())
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
            self.workflows.tallies.entry(number).or_default().join(change);
        }
        Ok(())
    }

    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), TxError> {
        if let Some(number) = self.number_of(id) {
            // What was put before it goes is written all the same: only one that is closed is forgotten.
            self.workflows.removed.insert(number);
        }
        Ok(())
    }

    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, TxError> {
        Ok(self.roster(id, after, limit))
    }

    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), TxError> {
        if let Some(number) = self.number_of(id) {
            self.workflows.names.insert((number, Arc::from(reference)), Some(member));
        }
        Ok(())
    }

    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, TxError> {
        Ok(self.find_member(id, reference))
    }

    fn put_queue(&mut self, queue: &Queue) -> Result<(), TxError> {
        if !self.alone {
            self.missing().alone = true;
            return Ok(());
        }
        self.names.learn_queue(&queue.name);
        self.names.learn_policy(&queue.policy);
        self.queues.insert(queue.name.clone(), Some(queue.clone()));
        Ok(())
    }

    fn remove_queue(&mut self, name: &QueueName) -> Result<(), TxError> {
        if !self.alone {
            self.missing().alone = true;
            return Ok(());
        }
        self.queues.insert(name.clone(), None);
        Ok(())
    }
}
