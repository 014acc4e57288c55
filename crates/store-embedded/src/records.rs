//! Records of the engine: changed in memory during a batch, written once at its end.

mod batch_writer;
mod error;
mod flush;
pub(crate) mod keys;
mod multi_row;
pub(crate) mod payloads;
pub(crate) mod prefetch;
mod seq_map;
pub(crate) mod workflows;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, Workflow};
use longshore_engine::{JobRecords, KeyEntry, PayloadSource, PruneTarget, Queue, ScopedIdempotencyKey, SystemKind};
use longshore_store::StoreError;
use longshore_store::query::{TermFields, has_terms};
use parking_lot::RwLockReadGuard;
use rusqlite::{Connection, OptionalExtension, params};

use crate::cache_budget::CacheBudget;
use crate::finished_index::{FilterKey, NextPrune, PruneQueue, earlier};
use crate::indexes::Indexes;
use crate::live_index::{LiveChange, LiveEntry};
pub(crate) use crate::records::error::RecordsError;
use crate::records::payloads::PayloadCache;
use crate::records::prefetch::Prefetcher;
use crate::records::seq_map::SeqMap;
use crate::records::workflows::WorkflowCache;
use crate::system;
use longshore_codec as codec;
use longshore_codec::Dictionary;

#[derive(Debug)]
pub(crate) struct SqliteRecords {
    connection: Connection,
    indexes: Arc<Indexes>,
    /// Records that this batch has changed, and cached records that equal the table.
    jobs: SeqMap<Box<Job>>,
    /// Changed records and where they were stored before.
    changed: SeqMap<StoredIn>,
    removed: SeqMap<StoredIn>,
    /// The checked-out record: its location and its indexed fields.
    checked_out: Option<(Seq, StoredIn, TermFields)>,
    /// Queues that lost a record in this batch: their counts changed without a transition.
    pub(crate) shrunk_queues: Vec<QueueName>,
    /// This batch deletes a record.
    pub(crate) has_deletes: bool,
    payloads: PayloadCache,
    pub(crate) prefetcher: Prefetcher,
    new_payloads: Vec<(Seq, Payload)>,
    /// Payloads of the claim in progress, in its order.
    pub(crate) claimed_payloads: Vec<(Seq, Payload)>,
    /// Chunk keys that this batch has added, for the rollback.
    new_chunk_keys: Vec<(u64, FilterKey)>,
    prunes: PruneQueue,
    finished_counts: HashMap<(QueueName, StateKind), i64>,
    cached: VecDeque<Seq>,
    /// Live records that stay in memory between batches.
    cached_max: usize,
    workflows: WorkflowCache,
    /// Records that were read from the tables one by one.
    pub(crate) point_reads: u64,
    /// Records that were found in the cache or the prefetch buffer.
    pub(crate) cache_hits: u64,
    /// Records that this batch has written.
    written: Vec<WrittenJob>,
    /// Cached records to evict after the replies: their queue is so long that they would be evicted
    /// before their claim.
    evict_next: Vec<Seq>,
    /// Revision of the system records that this batch writes.
    pub(crate) system_revision: u64,
}

#[derive(Clone, Copy, Debug)]
struct WrittenJob {
    seq: Seq,
    /// The job was submitted in this batch.
    is_new: bool,
}

/// Table that holds a record.
#[derive(Clone, Debug)]
enum StoredIn {
    Nowhere,
    Live(LiveEntry),
    Finished(StateKind),
}

impl StoredIn {
    fn of(job: &Job) -> Self {
        if job.is_live() { Self::Live(LiveEntry::of(job)) } else { Self::Finished(job.kind()) }
    }

    fn live(self) -> Option<LiveEntry> {
        match self {
            Self::Live(entry) => Some(entry),
            Self::Nowhere | Self::Finished(_) => None,
        }
    }
}

impl SqliteRecords {
    pub(crate) fn new(
        connection: Connection,
        indexes: Arc<Indexes>,
        prefetcher: Prefetcher,
        budget: CacheBudget,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            prunes: PruneQueue::load(&connection)?,
            connection,
            indexes,
            new_chunk_keys: Vec::new(),
            jobs: SeqMap::default(),
            changed: SeqMap::default(),
            removed: SeqMap::default(),
            checked_out: None,
            shrunk_queues: Vec::new(),
            has_deletes: false,
            payloads: PayloadCache::new(budget.payload_bytes_max()),
            prefetcher,
            new_payloads: Vec::new(),
            claimed_payloads: Vec::new(),
            finished_counts: HashMap::new(),
            cached: VecDeque::new(),
            cached_max: budget.jobs_max(),
            workflows: WorkflowCache::default(),
            point_reads: 0,
            cache_hits: 0,
            written: Vec::new(),
            evict_next: Vec::new(),
            system_revision: 0,
        })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn live_jobs(&self) -> u64 {
        self.indexes.live().jobs()
    }

    fn dictionary(&self) -> RwLockReadGuard<'_, Dictionary> {
        self.indexes.dictionary()
    }

    fn intern(&self, queue: &QueueName, job_type: &longshore_core::id::JobType) {
        if !self.dictionary().is_interned(queue, job_type) {
            self.indexes.dictionary_mut().intern(queue, job_type);
        }
    }

    /// Loads a record that is not in the cache.
    fn fetch(&mut self, seq: Seq) -> Result<Option<Box<Job>>, RecordsError> {
        let indexes = Arc::clone(&self.indexes);
        let dictionary = indexes.dictionary();
        // A corrupt record is read again below, which reports the error.
        if let Some(job) =
            self.prefetcher.take(seq, &|seq, record| codec::job::decode_unchecked(seq, record, &dictionary))
        {
            self.cache_hits += 1;
            return Ok(Some(job));
        }
        drop(dictionary);
        self.point_reads += 1;
        Ok(self.read(seq)?.map(Box::new))
    }

    fn read(&self, seq: Seq) -> Result<Option<Job>, RecordsError> {
        let number = seq.0.cast_signed();
        for table in ["SELECT record FROM live_jobs WHERE seq = ?1", "SELECT record FROM finished_jobs WHERE seq = ?1"]
        {
            let mut select = self.connection.prepare_cached(table)?;
            let mut rows = select.query([number])?;
            if let Some(row) = rows.next()? {
                let bytes = row.get_ref(0)?.as_blob().map_err(|_| RecordsError::CorruptJob(seq))?;
                return codec::job::decode(seq, bytes, &self.dictionary())
                    .map(Some)
                    .map_err(|_| RecordsError::CorruptJob(seq));
            }
        }
        Ok(None)
    }

    /// Publishes the indexes and updates the cache after a commit.
    pub(crate) fn committed(&mut self) {
        self.has_deletes = false;
        self.indexes.live_mut().committed();
        self.new_chunk_keys.clear();
        self.workflows.committed();
        if self.dictionary().has_unsaved() {
            self.indexes.dictionary_mut().committed();
        }
        self.update_cache();
    }

    /// Decides which of the written records stay in the cache.
    fn update_cache(&mut self) {
        let live = self.indexes.live();
        let mut queue_length = None::<(QueueName, bool)>;
        for WrittenJob { seq, is_new } in std::mem::take(&mut self.written) {
            let Some(job) = self.jobs.get(&seq).filter(|job| job.is_live()) else {
                self.jobs.remove(&seq);
                self.payloads.payloads.remove(&seq);
                continue;
            };
            // Consecutive jobs mostly share a queue.
            if is_new && queue_length.as_ref().is_none_or(|(queue, _)| *queue != job.queue) {
                queue_length = Some((job.queue.clone(), live.jobs_of(&job.queue) > self.cached_max as u64));
            }
            if is_new && queue_length.as_ref().is_some_and(|(_, is_long)| *is_long) {
                self.evict_next.push(seq);
            } else {
                self.cached.push_back(seq);
            }
        }
    }

    /// Evicts the oldest records. The writer calls it after the replies.
    pub(crate) fn evict(&mut self) {
        for seq in self.evict_next.drain(..) {
            self.jobs.remove(&seq);
            self.payloads.payloads.remove(&seq);
        }
        while let Some(oldest) = self.cached.front()
            && (self.jobs.len() > self.cached_max || !self.jobs.contains_key(oldest))
        {
            self.jobs.remove(oldest);
            self.cached.pop_front();
        }
        // Evicted and repeated entries accumulate behind a long-lived record.
        if self.cached.len() > 4 * self.cached_max {
            self.cached = self.jobs.keys().copied().collect();
        }
    }

    /// Drops all changes of a failed batch. The tables are unchanged.
    pub(crate) fn rolled_back(&mut self) {
        self.jobs.clear();
        self.cached.clear();
        self.workflows = WorkflowCache::default();
        self.changed.clear();
        self.removed.clear();
        self.checked_out = None;
        self.shrunk_queues.clear();
        self.has_deletes = false;
        self.payloads.clear();
        self.prefetcher.rolled_back();
        self.new_payloads.clear();
        self.finished_counts.clear();
        self.written.clear();
        self.evict_next.clear();
        self.indexes.live_mut().rolled_back();
        let mut chunks = self.indexes.chunks_mut();
        for (chunk, key) in std::mem::take(&mut self.new_chunk_keys) {
            chunks.remove(chunk, &key);
        }
        drop(chunks);
        // The failed batch may have dropped due entries from the prune queue: reload it.
        if let Ok(prunes) = PruneQueue::load(&self.connection) {
            self.prunes = prunes;
        }
        self.indexes.dictionary_mut().rolled_back();
    }

    /// Updates the search terms of a job. The table is named after tags, its first use.
    fn reindex(&self, seq: Seq, before: &BTreeSet<String>, after: &BTreeSet<String>) -> Result<(), RecordsError> {
        for term in before.difference(after) {
            let mut delete = self.connection.prepare_cached("DELETE FROM tag WHERE term = ?1 AND seq = ?2")?;
            delete.execute(params![term, seq.0.cast_signed()])?;
        }
        for term in after.difference(before) {
            let mut insert = self.connection.prepare_cached("INSERT OR IGNORE INTO tag(term, seq) VALUES (?1, ?2)")?;
            insert.execute(params![term, seq.0.cast_signed()])?;
        }
        Ok(())
    }
}

/// Returns the position in `StateKind::ALL`, as records encode it.
pub(crate) fn state_number(state: StateKind) -> i64 {
    state as i64
}

/// Returns a hash of the job type for the index. Records distinguish types with equal
/// hashes.
pub(crate) fn type_hash(job_type: &str) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in job_type.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.cast_signed()
}

impl JobRecords for SqliteRecords {
    type Error = RecordsError;

    fn new_id(&mut self, seq: Seq, rng: &mut dyn Rng) -> JobId {
        self.indexes.id_cipher.encrypt(seq, rng)
    }

    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, RecordsError> {
        let seq = self.indexes.id_cipher.decrypt(id);
        if let Some(job) = self.jobs.get(&seq) {
            return Ok((job.id == id).then_some(seq));
        }
        // SQLite integers are signed, and sequence numbers never exceed their range.
        if i64::try_from(seq.0).is_err() {
            return Ok(None);
        }
        let Some(job) = self.checkout(seq)? else { return Ok(None) };
        let is_match = job.id == id;
        self.return_unchanged(job);
        Ok(is_match.then_some(seq))
    }

    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, RecordsError> {
        if self.removed.contains_key(&seq) {
            return Ok(None);
        }
        // A prefetched record is never in the cache as well.
        let cached = if self.prefetcher.is_next(seq) { None } else { self.jobs.remove(&seq) };
        let job = match cached {
            Some(job) => {
                self.cache_hits += 1;
                Some(job)
            }
            None => self.fetch(seq)?,
        };
        self.checked_out = match (&job, self.changed.get(&seq)) {
            (Some(job), Some(origin)) => Some((seq, origin.clone(), TermFields::of(job))),
            (Some(job), None) => Some((seq, StoredIn::of(job), TermFields::of(job))),
            (None, _) => None,
        };
        Ok(job)
    }

    fn put(&mut self, job: Box<Job>) -> Result<(), RecordsError> {
        let seq = job.seq;
        let origin = match self.checked_out.take() {
            Some((checked_out, origin, before)) if checked_out == seq => {
                if !before.are_those_of(&job) {
                    self.reindex(seq, &before.terms(), &TermFields::of(&job).terms())?;
                }
                origin
            }
            _ => StoredIn::of(&job),
        };
        // Only an edit can change the type of an existing job.
        let same_type = matches!(&origin, StoredIn::Live(entry) if entry.has_type(&job.job_type));
        if !same_type {
            self.intern(&job.queue, &job.job_type);
        }
        self.changed.insert(seq, origin);
        self.jobs.insert(seq, job);
        Ok(())
    }

    fn return_unchanged(&mut self, job: Box<Job>) {
        self.checked_out = None;
        // A finished record stays in memory only if this batch has changed it.
        if job.is_live() || self.changed.contains_key(&job.seq) {
            if !self.changed.contains_key(&job.seq) {
                self.cached.push_back(job.seq);
            }
            self.jobs.insert(job.seq, job);
        }
    }

    fn payload_bytes(&mut self, seq: Seq) -> Result<usize, RecordsError> {
        let payload = match self.payload(seq) {
            Ok(Some(payload)) => payload,
            // The caller reads it again, and reports it with the id of its job.
            Ok(None) | Err(RecordsError::CorruptJob(_)) => return Ok(0),
            Err(error) => return Err(error),
        };
        let bytes = payload.bytes().len();
        self.claimed_payloads.push((seq, payload));
        Ok(bytes)
    }

    fn insert(&mut self, mut job: Box<Job>, payload: PayloadSource) -> Result<(), RecordsError> {
        let seq = job.seq;
        self.intern(&job.queue, &job.job_type);
        if self.dictionary().policy_number(&job.policy).is_none()
            && let Some(canonical) = self.dictionary().canonical(&job.policy)
        {
            job.policy = canonical;
        }
        let payload = match payload {
            PayloadSource::New(payload) => Some(payload),
            PayloadSource::CopyOf(original) => self.payload(original)?,
        };
        if let Some(payload) = payload {
            self.payloads.insert(seq, payload.clone());
            self.new_payloads.push((seq, payload));
        }
        if let Some(external_id) = &job.external_id {
            let mut insert = self
                .connection
                .prepare_cached("INSERT INTO external_id(queue, external_id, seq) VALUES (?1, ?2, ?3)")?;
            insert.execute(params![job.queue.as_str(), external_id.as_ref(), seq.0.cast_signed()])?;
        }
        if let Some(membership) = &job.membership {
            self.workflows.admit(self.indexes.id_cipher.seq_of_workflow(membership.workflow), seq);
        }
        if has_terms(&job) {
            self.reindex(seq, &BTreeSet::new(), &TermFields::of(&job).terms())?;
        }
        self.changed.insert(seq, StoredIn::Nowhere);
        self.jobs.insert(seq, job);
        Ok(())
    }

    fn remove(&mut self, job: Box<Job>) -> Result<(), RecordsError> {
        let seq = job.seq;
        let number = seq.0.cast_signed();
        let origin = match self.checked_out.take() {
            Some((checked_out, origin, _)) if checked_out == seq => origin,
            _ => StoredIn::of(&job),
        };
        self.shrunk_queues.push(job.queue.clone());
        self.has_deletes = true;
        if let Some(external_id) = &job.external_id {
            let mut delete =
                self.connection.prepare_cached("DELETE FROM external_id WHERE queue = ?1 AND external_id = ?2")?;
            delete.execute(params![job.queue.as_str(), external_id.as_ref()])?;
        }
        if let Some(membership) = &job.membership {
            let workflow = self.indexes.id_cipher.seq_of_workflow(membership.workflow);
            workflows::unname(&self.connection, workflow, &membership.reference, seq)?;
        }
        self.reindex(seq, &TermFields::of(&job).terms(), &BTreeSet::new())?;
        for dependency in job.dependencies.all() {
            let dependency = self.indexes.id_cipher.decrypt(dependency).0.cast_signed();
            let mut delete = self
                .connection
                .prepare_cached("DELETE FROM dependency_edge WHERE dependency = ?1 AND dependent = ?2")?;
            delete.execute(params![dependency, number])?;
        }
        self.connection.prepare_cached("DELETE FROM dependency_edge WHERE dependency = ?1")?.execute([number])?;
        self.payloads.payloads.remove(&seq);
        self.new_payloads.retain(|(new, _)| *new != seq);
        self.changed.remove(&seq);
        match &origin {
            StoredIn::Nowhere => return Ok(()),
            StoredIn::Finished(state) => *self.finished_counts.entry((job.queue.clone(), *state)).or_default() -= 1,
            StoredIn::Live(entry) => {
                self.indexes.live_mut().replace([LiveChange { before: Some(entry.clone()), after: None }]);
            }
        }
        self.removed.insert(seq, origin);
        Ok(())
    }

    fn external_id(&mut self, queue: &QueueName, external_id: &str) -> Result<Option<Seq>, RecordsError> {
        let mut select =
            self.connection.prepare_cached("SELECT seq FROM external_id WHERE queue = ?1 AND external_id = ?2")?;
        let found = select.query_row(params![queue.as_str(), external_id], |row| row.get::<_, i64>(0)).optional()?;
        Ok(found.map(|number| Seq(number.cast_unsigned())))
    }

    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), RecordsError> {
        let mut insert = self
            .connection
            .prepare_cached("INSERT OR IGNORE INTO dependency_edge(dependency, dependent) VALUES (?1, ?2)")?;
        insert.execute(params![dependency.0.cast_signed(), dependent.0.cast_signed()])?;
        Ok(())
    }

    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), RecordsError> {
        let mut delete =
            self.connection.prepare_cached("DELETE FROM dependency_edge WHERE dependency = ?1 AND dependent = ?2")?;
        delete.execute(params![dependency.0.cast_signed(), dependent.0.cast_signed()])?;
        Ok(())
    }

    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, RecordsError> {
        let mut select = self.connection.prepare_cached(
            "SELECT dependent FROM dependency_edge WHERE dependency = ?1 AND dependent > ?2 ORDER BY dependent LIMIT ?3",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = select
            .query_map(params![dependency.0.cast_signed(), after.0.cast_signed(), limit], |row| row.get::<_, i64>(0))?;
        Ok(rows.map(|number| number.map(|number| Seq(number.cast_unsigned()))).collect::<Result<_, _>>()?)
    }

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, RecordsError> {
        keys::get(&self.connection, key)
    }

    fn put_key(&mut self, key: ScopedIdempotencyKey, entry: KeyEntry) -> Result<(), RecordsError> {
        keys::put(&self.connection, &key, &entry)
    }

    fn remove_key(&mut self, key: &ScopedIdempotencyKey) -> Result<(), RecordsError> {
        keys::remove(&self.connection, key)
    }

    fn next_prune(&mut self, now: Timestamp) -> Result<Option<(Timestamp, PruneTarget)>, RecordsError> {
        // Finished jobs of this batch must be in the prune queue.
        if !self.changed.is_empty() {
            self.flush()?;
        }
        let key = keys::next_prune(&self.connection)?;
        loop {
            match self.prunes.first() {
                None => return Ok(key),
                Some(NextPrune::Chunk(at, chunk)) if at <= now => self.prunes.expand_chunk(&self.connection, chunk)?,
                // Not due yet: the caller needs the time only.
                Some(NextPrune::Chunk(at, _)) => return Ok(earlier(Some((at, PruneTarget::Job(Seq(0)))), key)),
                Some(NextPrune::Job(at, seq)) => {
                    let job = self.checkout(seq)?;
                    let is_current = job.as_ref().is_some_and(|job| job.prune_at() == Some(at));
                    if let Some(job) = job {
                        self.return_unchanged(job);
                    }
                    if is_current {
                        return Ok(earlier(Some((at, PruneTarget::Job(seq))), key));
                    }
                    self.prunes.drop_first();
                }
            }
        }
    }

    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, RecordsError> {
        self.flush()?;
        Ok(self.indexes.live().in_queue(queue, state, limit))
    }

    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, RecordsError> {
        let number = self.indexes.id_cipher.seq_of_workflow(id);
        let found = self.workflows.get(&self.connection, number)?;
        Ok(found.filter(|workflow| workflow.id == id).cloned())
    }

    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), RecordsError> {
        self.workflows.put(&self.connection, workflow)
    }

    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), RecordsError> {
        self.workflows.tally(&self.connection, self.indexes.id_cipher.seq_of_workflow(id), change)
    }

    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), RecordsError> {
        self.has_deletes = true;
        self.workflows.remove(&self.connection, self.indexes.id_cipher.seq_of_workflow(id))
    }

    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, RecordsError> {
        self.workflows.flush(&self.connection)?;
        workflows::members(&self.connection, self.indexes.id_cipher.seq_of_workflow(id), after, limit)
    }

    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), RecordsError> {
        Ok(workflows::name(&self.connection, self.indexes.id_cipher.seq_of_workflow(id), reference, member)?)
    }

    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, RecordsError> {
        Ok(workflows::named(&self.connection, self.indexes.id_cipher.seq_of_workflow(id), reference)?)
    }

    fn put_queue(&mut self, queue: &Queue) -> Result<(), RecordsError> {
        {
            let mut dictionary = self.indexes.dictionary_mut();
            dictionary.learn_queue(&queue.name);
            dictionary.learn_policy(&queue.policy);
        }
        let record = codec::policy::encode_queue(queue).map_err(|_| RecordsError::NotStorable)?;
        let mut insert =
            self.connection.prepare_cached("INSERT OR REPLACE INTO queue(name, record) VALUES (?1, ?2)")?;
        insert.execute(params![queue.name.as_str(), record])?;
        Ok(())
    }

    fn remove_queue(&mut self, name: &QueueName) -> Result<(), RecordsError> {
        self.connection.prepare_cached("DELETE FROM queue WHERE name = ?1")?.execute([name.as_str()])?;
        Ok(())
    }

    fn encode_snapshot(&self, job: &Job) -> Vec<u8> {
        // Only a job whose policy contains a function has no encoding. No store holds such a job.
        longshore_codec::snapshot::encode(job).unwrap_or_default()
    }

    fn put_system(&mut self, kind: SystemKind, key: Vec<u8>, value: Vec<u8>) -> Result<(), RecordsError> {
        Ok(system::put(&self.connection, kind, &key, self.system_revision, value)?)
    }
}
