//! Records on disk, for the engine: changed in memory during a batch, written once at its end.

mod batch_writer;
mod flush;
pub(crate) mod keys;
mod multi_row;
pub(crate) mod payloads;
pub(crate) mod prefetch;
pub(crate) mod workflows;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, Workflow};
use longshore_engine::{JobRecords, KeyEntry, PayloadSource, PruneTarget, Queue, ScopedIdempotencyKey};
use longshore_store::StoreError;
use longshore_store::query::{IndexedFields, has_words};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::sql;
use crate::finished_index::{Chunks, FilterKey, NextPrune, PruneQueue, earlier};
use crate::id_cipher::IdSeal;
use crate::live_index::{Change, LiveEntry, LiveIndex};
use crate::records::payloads::PayloadCache;
use crate::records::prefetch::Prefetcher;
use crate::records::workflows::WorkflowCache;
use longshore_codec::Dictionary;
use longshore_codec::codec;

/// Why the records cannot go on.
#[derive(Debug)]
pub(crate) enum RecordsError {
    Sql(rusqlite::Error),
    /// A record is not what was written.
    Damaged(Seq),
    DamagedWorkflow(Seq),
    DamagedPayload(JobId),
    /// A policy with a function in it cannot be kept.
    NotStorable,
}

impl std::fmt::Display for RecordsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql(error) => write!(f, "{error}"),
            Self::Damaged(seq) => write!(f, "the record of job {seq} is damaged"),
            Self::DamagedWorkflow(number) => write!(f, "the record of workflow {number} is damaged"),
            Self::DamagedPayload(id) => write!(f, "the payload of job {id} is damaged"),
            Self::NotStorable => f.write_str("a custom backoff cannot be stored"),
        }
    }
}

impl std::error::Error for RecordsError {}

impl From<RecordsError> for StoreError {
    fn from(trouble: RecordsError) -> Self {
        match trouble {
            RecordsError::Sql(error) => sql(error),
            RecordsError::Damaged(seq) => Self::corrupt(format!("the record of job {seq}")),
            RecordsError::DamagedWorkflow(number) => Self::corrupt(format!("the record of workflow {number}")),
            RecordsError::DamagedPayload(id) => Self::corrupt(format!(
                "the payload of job {id}; as long as the job waits, others wait behind it: cancel it"
            )),
            RecordsError::NotStorable => Self::not_applied(trouble),
        }
    }
}

impl From<rusqlite::Error> for RecordsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Live records that stay in memory although nobody changes them now.
const CACHED_JOBS_MAX: usize = 100_000;
/// Keyed by our own numbers, which nobody outside can choose: no need for a hash that withstands an attack.
type SeqMap<T> = HashMap<Seq, T, BuildHasherDefault<SeqHasher>>;

/// Neighbours in the order of submission stay neighbours in memory, as they are claimed together: numbers are scattered by sixty-fours.
#[derive(Debug, Default)]
struct SeqHasher(u64);

impl Hasher for SeqHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;
        const TAG: u64 = 0x7F << 57;
        let sixty_four = (number >> 6).wrapping_mul(SCATTER) >> 25;
        // The map begins to look at the place of the low bits, and tells those it meets there apart by the highest seven.
        self.0 = sixty_four << 6 | number & 63 | number.wrapping_mul(SCATTER) & TAG;
    }
}

#[derive(Debug)]
pub(crate) struct SqliteRecords {
    connection: Connection,
    names: Arc<RwLock<Dictionary>>,
    live: Arc<RwLock<LiveIndex>>,
    seal: IdSeal,
    /// Records in memory: those that this batch has changed, and some that lie in the table as they are here.
    jobs: SeqMap<Box<Job>>,
    /// Of the records in memory, those that differ from the table, and where they lay before.
    changed: SeqMap<StoredIn>,
    removed: SeqMap<StoredIn>,
    /// The record that is taken out just now: where it lies, and what it is indexed by.
    checked_out: Option<(Seq, StoredIn, IndexedFields)>,
    /// Queues that have lost a record in this batch: their counts changed although no job moved.
    pub(crate) shrunk_queues: Vec<QueueName>,
    /// This batch removes a record.
    pub(crate) has_deletes: bool,
    payloads: PayloadCache,
    pub(crate) ahead: Prefetcher,
    new_payloads: Vec<(Seq, Payload)>,
    chunks: Arc<RwLock<Chunks>>,
    /// What this batch has added to the sums, to be taken back with it.
    new_chunk_keys: Vec<(u64, FilterKey)>,
    prunes: PruneQueue,
    ended_counts: HashMap<(QueueName, StateKind), i64>,
    cached: VecDeque<Seq>,
    workflows: WorkflowCache,
    /// Records that were looked up one by one.
    pub(crate) point_reads: u64,
    /// Written in this batch.
    touched: Vec<WrittenJob>,
    /// In memory, and to go when there is time: they stand so far back that they would have gone before their turn.
    evict_next: Vec<Seq>,
}

#[derive(Clone, Copy, Debug)]
struct WrittenJob {
    seq: Seq,
    /// Submitted in this batch.
    fresh: bool,
}

/// Where a record lies on disk.
#[derive(Clone, Debug)]
enum StoredIn {
    Nowhere,
    Live(LiveEntry),
    Ended(StateKind),
}

impl StoredIn {
    fn of(job: &Job) -> Self {
        if job.is_live() { Self::Live(LiveEntry::of(job)) } else { Self::Ended(job.kind()) }
    }

    fn live(self) -> Option<LiveEntry> {
        match self {
            Self::Live(entry) => Some(entry),
            Self::Nowhere | Self::Ended(_) => None,
        }
    }
}

impl SqliteRecords {
    pub(crate) fn new(
        connection: Connection,
        names: Arc<RwLock<Dictionary>>,
        live: Arc<RwLock<LiveIndex>>,
        chunks: Arc<RwLock<Chunks>>,
        seal: IdSeal,
        ahead: Prefetcher,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            prunes: PruneQueue::load(&connection)?,
            connection,
            names,
            live,
            chunks,
            new_chunk_keys: Vec::new(),
            seal,
            jobs: SeqMap::default(),
            changed: SeqMap::default(),
            removed: SeqMap::default(),
            checked_out: None,
            shrunk_queues: Vec::new(),
            has_deletes: false,
            payloads: PayloadCache::default(),
            ahead,
            new_payloads: Vec::new(),
            ended_counts: HashMap::new(),
            cached: VecDeque::new(),
            workflows: WorkflowCache::default(),
            point_reads: 0,
            touched: Vec::new(),
            evict_next: Vec::new(),
        })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn live_jobs(&self) -> u64 {
        self.live.read().unwrap_or_else(PoisonError::into_inner).jobs()
    }

    fn names(&self) -> RwLockReadGuard<'_, Dictionary> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn intern(&self, queue: &QueueName, job_type: &longshore_core::id::JobType) {
        if !self.names().is_interned(queue, job_type) {
            self.names.write().unwrap_or_else(PoisonError::into_inner).intern(queue, job_type);
        }
    }

    /// A record that is not among those in memory.
    fn fetch(&mut self, seq: Seq) -> Result<Option<Box<Job>>, RecordsError> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        // What is damaged is read again below, and reported.
        if let Some(job) = self.ahead.take(seq, &|seq, record| codec::job::decode_unchecked(seq, record, &names)) {
            return Ok(Some(job));
        }
        drop(names);
        self.point_reads += 1;
        Ok(self.read(seq)?.map(Box::new))
    }

    fn read(&self, seq: Seq) -> Result<Option<Job>, RecordsError> {
        let number = seq.0.cast_signed();
        for table in ["SELECT record FROM live WHERE seq = ?1", "SELECT record FROM ended WHERE seq = ?1"] {
            let mut select = self.connection.prepare_cached(table)?;
            let mut rows = select.query([number])?;
            if let Some(row) = rows.next()? {
                let bytes = row.get_ref(0)?.as_blob().map_err(|_| RecordsError::Damaged(seq))?;
                return codec::job::decode(seq, bytes, &self.names()).map(Some).map_err(|_| RecordsError::Damaged(seq));
            }
        }
        Ok(None)
    }

    /// The batch is on disk.
    pub(crate) fn committed(&mut self) {
        self.has_deletes = false;
        self.live.write().unwrap_or_else(PoisonError::into_inner).committed();
        self.new_chunk_keys.clear();
        self.workflows.committed();
        if self.names().has_unsaved() {
            self.names.write().unwrap_or_else(PoisonError::into_inner).committed();
        }
        self.update_cache();
    }

    /// What stays in memory of what was written.
    fn update_cache(&mut self) {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let mut line = None::<(QueueName, bool)>;
        for WrittenJob { seq, fresh } in std::mem::take(&mut self.touched) {
            let Some(job) = self.jobs.get(&seq).filter(|job| job.is_live()) else {
                self.jobs.remove(&seq);
                self.payloads.payloads.remove(&seq);
                continue;
            };
            // Mostly the same queue as before.
            if fresh && line.as_ref().is_none_or(|(queue, _)| *queue != job.queue) {
                line = Some((job.queue.clone(), live.jobs_of(&job.queue) > CACHED_JOBS_MAX as u64));
            }
            if fresh && line.as_ref().is_some_and(|(_, long)| *long) {
                self.evict_next.push(seq);
            } else {
                self.cached.push_back(seq);
            }
        }
    }

    /// Lets go of what has been longest in memory; after the answers, for which nobody need wait.
    pub(crate) fn evict(&mut self) {
        for seq in self.evict_next.drain(..) {
            self.jobs.remove(&seq);
            self.payloads.payloads.remove(&seq);
        }
        while let Some(oldest) = self.cached.front()
            && (self.jobs.len() > CACHED_JOBS_MAX || !self.jobs.contains_key(oldest))
        {
            self.jobs.remove(oldest);
            self.cached.pop_front();
        }
        // Behind one that stays long those may stand that have gone, and a job that was touched often stands there often.
        if self.cached.len() > 4 * CACHED_JOBS_MAX {
            self.cached = self.jobs.keys().copied().collect();
        }
    }

    /// The batch never was: what is in memory goes, the tables are as they were.
    pub(crate) fn rolled_back(&mut self) {
        self.jobs.clear();
        self.cached.clear();
        self.workflows = WorkflowCache::default();
        self.changed.clear();
        self.removed.clear();
        self.checked_out = None;
        self.shrunk_queues.clear();
        self.has_deletes = false;
        self.payloads = PayloadCache::default();
        self.ahead.rolled_back();
        self.new_payloads.clear();
        self.ended_counts.clear();
        self.touched.clear();
        self.evict_next.clear();
        self.live.write().unwrap_or_else(PoisonError::into_inner).rolled_back();
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        for (chunk, features) in std::mem::take(&mut self.new_chunk_keys) {
            chunks.remove(chunk, &features);
        }
        drop(chunks);
        // What the queue of prunes has dropped in this batch may be due after all: begin again from the notes.
        if let Ok(prunes) = PruneQueue::load(&self.connection) {
            self.prunes = prunes;
        }
        self.names.write().unwrap_or_else(PoisonError::into_inner).rolled_back();
    }

    /// Brings the word index in step with what a job is indexed by now. The table is called after tags, its first use.
    fn reindex(&self, seq: Seq, before: &BTreeSet<String>, after: &BTreeSet<String>) -> Result<(), RecordsError> {
        for word in before.difference(after) {
            let mut delete = self.connection.prepare_cached("DELETE FROM tag WHERE word = ?1 AND seq = ?2")?;
            delete.execute(params![word, seq.0.cast_signed()])?;
        }
        for word in after.difference(before) {
            let mut insert = self.connection.prepare_cached("INSERT OR IGNORE INTO tag(word, seq) VALUES (?1, ?2)")?;
            insert.execute(params![word, seq.0.cast_signed()])?;
        }
        Ok(())
    }
}

/// Places in `StateKind::ALL`, as in the records.
pub(crate) fn state_number(state: StateKind) -> i64 {
    state as i64
}

/// Which types share a place in the index; the record tells them apart.
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
        self.seal.encrypt(seq, rng)
    }

    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, RecordsError> {
        let seq = self.seal.decrypt(id);
        if let Some(job) = self.jobs.get(&seq) {
            return Ok((job.id == id).then_some(seq));
        }
        // SQLite's numbers are signed; ours never get that far.
        if i64::try_from(seq.0).is_err() {
            return Ok(None);
        }
        let Some(job) = self.checkout(seq)? else { return Ok(None) };
        let its_own = job.id == id;
        self.return_unchanged(job);
        Ok(its_own.then_some(seq))
    }

    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, RecordsError> {
        if self.removed.contains_key(&seq) {
            return Ok(None);
        }
        // What was read ahead is not in the cache as well: no need to look there.
        let cached = if self.ahead.is_next(seq) { None } else { self.jobs.remove(&seq) };
        let job = match cached {
            Some(job) => Some(job),
            None => self.fetch(seq)?,
        };
        self.checked_out = match (&job, self.changed.get(&seq)) {
            (Some(job), Some(origin)) => Some((seq, origin.clone(), IndexedFields::of(job))),
            (Some(job), None) => Some((seq, StoredIn::of(job), IndexedFields::of(job))),
            (None, _) => None,
        };
        Ok(job)
    }

    fn put(&mut self, job: Box<Job>) -> Result<(), RecordsError> {
        let seq = job.seq;
        let origin = match self.checked_out.take() {
            Some((taken, origin, before)) if taken == seq => {
                if !before.are_those_of(&job) {
                    self.reindex(seq, &before.words(), &IndexedFields::of(&job).words())?;
                }
                origin
            }
            _ => StoredIn::of(&job),
        };
        // Only an edit brings a new name into a record that is there already.
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
        // An ended record is not worth keeping, unless this batch has changed it.
        if job.is_live() || self.changed.contains_key(&job.seq) {
            if !self.changed.contains_key(&job.seq) {
                self.cached.push_back(job.seq);
            }
            self.jobs.insert(job.seq, job);
        }
    }

    fn insert(&mut self, mut job: Box<Job>, payload: PayloadSource) -> Result<(), RecordsError> {
        let seq = job.seq;
        self.intern(&job.queue, &job.job_type);
        if self.names().policy_number(&job.policy).is_none()
            && let Some(canonical) = self.names().canonical(&job.policy)
        {
            job.policy = canonical;
        }
        let payload = match payload {
            PayloadSource::Given(payload) => Some(payload),
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
            self.workflows.admit(self.seal.seq_of_workflow(membership.workflow), seq);
        }
        if has_words(&job) {
            self.reindex(seq, &BTreeSet::new(), &IndexedFields::of(&job).words())?;
        }
        self.changed.insert(seq, StoredIn::Nowhere);
        self.jobs.insert(seq, job);
        Ok(())
    }

    fn remove(&mut self, job: Box<Job>) -> Result<(), RecordsError> {
        let seq = job.seq;
        let number = seq.0.cast_signed();
        let origin = match self.checked_out.take() {
            Some((taken, origin, _)) if taken == seq => origin,
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
            let workflow = self.seal.seq_of_workflow(membership.workflow);
            workflows::unname(&self.connection, workflow, &membership.reference, seq)?;
        }
        self.reindex(seq, &IndexedFields::of(&job).words(), &BTreeSet::new())?;
        for dependency in job.dependencies.all() {
            let elder = self.seal.decrypt(dependency).0.cast_signed();
            let mut delete =
                self.connection.prepare_cached("DELETE FROM edge WHERE dependency = ?1 AND dependent = ?2")?;
            delete.execute(params![elder, number])?;
        }
        self.connection.prepare_cached("DELETE FROM edge WHERE dependency = ?1")?.execute([number])?;
        self.payloads.payloads.remove(&seq);
        self.new_payloads.retain(|(new, _)| *new != seq);
        self.changed.remove(&seq);
        match &origin {
            StoredIn::Nowhere => return Ok(()),
            StoredIn::Ended(state) => *self.ended_counts.entry((job.queue.clone(), *state)).or_default() -= 1,
            StoredIn::Live(entry) => {
                self.live
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .replace([Change { before: Some(entry.clone()), after: None }]);
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
        let mut insert =
            self.connection.prepare_cached("INSERT OR IGNORE INTO edge(dependency, dependent) VALUES (?1, ?2)")?;
        insert.execute(params![dependency.0.cast_signed(), dependent.0.cast_signed()])?;
        Ok(())
    }

    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), RecordsError> {
        let mut delete = self.connection.prepare_cached("DELETE FROM edge WHERE dependency = ?1 AND dependent = ?2")?;
        delete.execute(params![dependency.0.cast_signed(), dependent.0.cast_signed()])?;
        Ok(())
    }

    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, RecordsError> {
        let mut select = self.connection.prepare_cached(
            "SELECT dependent FROM edge WHERE dependency = ?1 AND dependent > ?2 ORDER BY dependent LIMIT ?3",
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
        // What has ended in this batch must be among the notes; what was removed is passed over.
        if !self.changed.is_empty() {
            self.flush()?;
        }
        let key = keys::next_purge(&self.connection)?;
        loop {
            match self.prunes.first() {
                None => return Ok(key),
                Some(NextPrune::Chunk(at, chunk)) if at <= now => self.prunes.expand_chunk(&self.connection, chunk)?,
                // Not due: the instant is all that anybody wants to know.
                Some(NextPrune::Chunk(at, _)) => return Ok(earlier(Some((at, PruneTarget::Job(Seq(0)))), key)),
                Some(NextPrune::Job(at, seq)) => {
                    let job = self.checkout(seq)?;
                    let holds = job.as_ref().is_some_and(|job| job.prune_at() == Some(at));
                    if let Some(job) = job {
                        self.return_unchanged(job);
                    }
                    if holds {
                        return Ok(earlier(Some((at, PruneTarget::Job(seq))), key));
                    }
                    self.prunes.drop_first();
                }
            }
        }
    }

    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, RecordsError> {
        self.flush()?;
        Ok(self.live.read().unwrap_or_else(PoisonError::into_inner).in_queue(queue, state, limit))
    }

    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, RecordsError> {
        let number = self.seal.seq_of_workflow(id);
        let found = self.workflows.get(&self.connection, number)?;
        Ok(found.filter(|workflow| workflow.id == id).cloned())
    }

    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), RecordsError> {
        self.workflows.put(&self.connection, workflow)
    }

    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), RecordsError> {
        self.workflows.tally(&self.connection, self.seal.seq_of_workflow(id), change)
    }

    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), RecordsError> {
        self.has_deletes = true;
        self.workflows.remove(&self.connection, self.seal.seq_of_workflow(id))
    }

    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, RecordsError> {
        self.workflows.flush(&self.connection)?;
        workflows::members(&self.connection, self.seal.seq_of_workflow(id), after, limit)
    }

    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), RecordsError> {
        Ok(workflows::name(&self.connection, self.seal.seq_of_workflow(id), reference, member)?)
    }

    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, RecordsError> {
        Ok(workflows::named(&self.connection, self.seal.seq_of_workflow(id), reference)?)
    }

    fn put_queue(&mut self, queue: &Queue) -> Result<(), RecordsError> {
        {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            names.learn_queue(&queue.name);
            names.learn_policy(&queue.policy);
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
}
