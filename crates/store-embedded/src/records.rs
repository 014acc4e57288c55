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

use longshore_core::engine::{JobRecords, KeyEntry, PayloadSource, PruneTarget, Queue, ScopedIdempotencyKey};
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, Workflow};
use longshore_store::StoreError;
use longshore_store::query::{IndexedFields, has_words};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::sql;
use crate::finished_index::{Chunks, Features, First, Prunes, earlier};
use crate::id_cipher::IdSeal;
use crate::live_index::{Change, LiveEntry, LiveIndex};
use crate::records::payloads::PayloadCache;
use crate::records::prefetch::Ahead;
use crate::records::workflows::Workflows;
use longshore_codec::Names;
use longshore_codec::codec;

/// Why the records cannot go on.
#[derive(Debug)]
pub(crate) enum Trouble {
    Sql(rusqlite::Error),
    /// A record is not what was written.
    Damaged(Seq),
    DamagedWorkflow(Seq),
    DamagedPayload(JobId),
    /// A policy with a function in it cannot be kept.
    NotStorable,
}

impl std::fmt::Display for Trouble {
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

impl std::error::Error for Trouble {}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Sql(error) => sql(error),
            Trouble::Damaged(seq) => Self::corrupt(format!("the record of job {seq}")),
            Trouble::DamagedWorkflow(number) => Self::corrupt(format!("the record of workflow {number}")),
            Trouble::DamagedPayload(id) => Self::corrupt(format!(
                "the payload of job {id}; as long as the job waits, others wait behind it: cancel it"
            )),
            Trouble::NotStorable => Self::not_applied(trouble),
        }
    }
}

impl From<rusqlite::Error> for Trouble {
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
pub(crate) struct DiskRecords {
    connection: Connection,
    names: Arc<RwLock<Names>>,
    live: Arc<RwLock<LiveIndex>>,
    seal: IdSeal,
    /// Records in memory: those that this batch has changed, and some that lie in the table as they are here.
    jobs: SeqMap<Box<Job>>,
    /// Of the records in memory, those that differ from the table, and where they lay before.
    changed: SeqMap<Origin>,
    removed: SeqMap<Origin>,
    /// The record that is taken out just now: where it lies, and what it is indexed by.
    taken: Option<(Seq, Origin, IndexedFields)>,
    /// Queues that have lost a record in this batch: their counts changed although no job moved.
    pub(crate) bereft: Vec<QueueName>,
    /// This batch removes a record.
    pub(crate) erased: bool,
    payloads: PayloadCache,
    pub(crate) ahead: Ahead,
    new_payloads: Vec<(Seq, Payload)>,
    chunks: Arc<RwLock<Chunks>>,
    /// What this batch has added to the sums, to be taken back with it.
    summed: Vec<(u64, Features)>,
    prunes: Prunes,
    ended_counts: HashMap<(QueueName, StateKind), i64>,
    cached: VecDeque<Seq>,
    workflows: Workflows,
    /// Records that were looked up one by one.
    pub(crate) reads: u64,
    /// Written in this batch.
    touched: Vec<Touched>,
    /// In memory, and to go when there is time: they stand so far back that they would have gone before their turn.
    far_back: Vec<Seq>,
}

#[derive(Clone, Copy, Debug)]
struct Touched {
    seq: Seq,
    /// Submitted in this batch.
    fresh: bool,
}

/// Where a record lies on disk.
#[derive(Clone, Debug)]
enum Origin {
    Nowhere,
    Live(LiveEntry),
    Ended(StateKind),
}

impl Origin {
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

impl DiskRecords {
    pub(crate) fn new(
        connection: Connection,
        names: Arc<RwLock<Names>>,
        live: Arc<RwLock<LiveIndex>>,
        chunks: Arc<RwLock<Chunks>>,
        seal: IdSeal,
        ahead: Ahead,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            prunes: Prunes::load(&connection)?,
            connection,
            names,
            live,
            chunks,
            summed: Vec::new(),
            seal,
            jobs: SeqMap::default(),
            changed: SeqMap::default(),
            removed: SeqMap::default(),
            taken: None,
            bereft: Vec::new(),
            erased: false,
            payloads: PayloadCache::default(),
            ahead,
            new_payloads: Vec::new(),
            ended_counts: HashMap::new(),
            cached: VecDeque::new(),
            workflows: Workflows::default(),
            reads: 0,
            touched: Vec::new(),
            far_back: Vec::new(),
        })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn live_jobs(&self) -> u64 {
        self.live.read().unwrap_or_else(PoisonError::into_inner).jobs()
    }

    fn names(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, queue: &QueueName, job_type: &longshore_core::id::JobType) {
        if !self.names().knows(queue, job_type) {
            self.names.write().unwrap_or_else(PoisonError::into_inner).learn(queue, job_type);
        }
    }

    /// A record that is not among those in memory.
    fn fetch(&mut self, seq: Seq) -> Result<Option<Box<Job>>, Trouble> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        // What is damaged is read again below, and reported.
        if let Some(job) = self.ahead.take(seq, &|seq, record| codec::job::decode_unsealed(seq, record, &names)) {
            return Ok(Some(job));
        }
        drop(names);
        self.reads += 1;
        Ok(self.read(seq)?.map(Box::new))
    }

    fn read(&self, seq: Seq) -> Result<Option<Job>, Trouble> {
        let number = seq.0.cast_signed();
        for table in ["SELECT record FROM live WHERE seq = ?1", "SELECT record FROM ended WHERE seq = ?1"] {
            let mut select = self.connection.prepare_cached(table)?;
            let mut rows = select.query([number])?;
            if let Some(row) = rows.next()? {
                let bytes = row.get_ref(0)?.as_blob().map_err(|_| Trouble::Damaged(seq))?;
                return codec::job::decode(seq, bytes, &self.names()).map(Some).map_err(|_| Trouble::Damaged(seq));
            }
        }
        Ok(None)
    }

    /// The batch is on disk.
    pub(crate) fn committed(&mut self) {
        self.erased = false;
        self.live.write().unwrap_or_else(PoisonError::into_inner).committed();
        self.summed.clear();
        self.workflows.committed();
        if self.names().anything_fresh() {
            self.names.write().unwrap_or_else(PoisonError::into_inner).committed();
        }
        self.sort_out();
    }

    /// What stays in memory of what was written.
    fn sort_out(&mut self) {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let mut line = None::<(QueueName, bool)>;
        for Touched { seq, fresh } in std::mem::take(&mut self.touched) {
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
                self.far_back.push(seq);
            } else {
                self.cached.push_back(seq);
            }
        }
    }

    /// Lets go of what has been longest in memory; after the answers, for which nobody need wait.
    pub(crate) fn make_room(&mut self) {
        for seq in self.far_back.drain(..) {
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
        self.workflows = Workflows::default();
        self.changed.clear();
        self.removed.clear();
        self.taken = None;
        self.bereft.clear();
        self.erased = false;
        self.payloads = PayloadCache::default();
        self.ahead.rolled_back();
        self.new_payloads.clear();
        self.ended_counts.clear();
        self.touched.clear();
        self.far_back.clear();
        self.live.write().unwrap_or_else(PoisonError::into_inner).rolled_back();
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        for (chunk, features) in std::mem::take(&mut self.summed) {
            chunks.remove(chunk, &features);
        }
        drop(chunks);
        // What the queue of prunes has dropped in this batch may be due after all: begin again from the notes.
        if let Ok(prunes) = Prunes::load(&self.connection) {
            self.prunes = prunes;
        }
        self.names.write().unwrap_or_else(PoisonError::into_inner).rolled_back();
    }

    /// Brings the word index in step with what a job is indexed by now. The table is called after tags, its first use.
    fn reindex(&self, seq: Seq, before: &BTreeSet<String>, after: &BTreeSet<String>) -> Result<(), Trouble> {
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

impl JobRecords for DiskRecords {
    type Error = Trouble;

    fn new_id(&mut self, seq: Seq, rng: &mut dyn Rng) -> JobId {
        self.seal.seal(seq, rng)
    }

    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, Trouble> {
        let seq = self.seal.unseal(id);
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

    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, Trouble> {
        if self.removed.contains_key(&seq) {
            return Ok(None);
        }
        // What was read ahead is not in the cache as well: no need to look there.
        let cached = if self.ahead.is_next(seq) { None } else { self.jobs.remove(&seq) };
        let job = match cached {
            Some(job) => Some(job),
            None => self.fetch(seq)?,
        };
        self.taken = match (&job, self.changed.get(&seq)) {
            (Some(job), Some(origin)) => Some((seq, origin.clone(), IndexedFields::of(job))),
            (Some(job), None) => Some((seq, Origin::of(job), IndexedFields::of(job))),
            (None, _) => None,
        };
        Ok(job)
    }

    fn put(&mut self, job: Box<Job>) -> Result<(), Trouble> {
        let seq = job.seq;
        let origin = match self.taken.take() {
            Some((taken, origin, before)) if taken == seq => {
                if !before.are_those_of(&job) {
                    self.reindex(seq, &before.words(), &IndexedFields::of(&job).words())?;
                }
                origin
            }
            _ => Origin::of(&job),
        };
        // Only an edit brings a new name into a record that is there already.
        let same_type = matches!(&origin, Origin::Live(entry) if entry.has_type(&job.job_type));
        if !same_type {
            self.learn(&job.queue, &job.job_type);
        }
        self.changed.insert(seq, origin);
        self.jobs.insert(seq, job);
        Ok(())
    }

    fn return_unchanged(&mut self, job: Box<Job>) {
        self.taken = None;
        // An ended record is not worth keeping, unless this batch has changed it.
        if job.is_live() || self.changed.contains_key(&job.seq) {
            if !self.changed.contains_key(&job.seq) {
                self.cached.push_back(job.seq);
            }
            self.jobs.insert(job.seq, job);
        }
    }

    fn insert(&mut self, mut job: Box<Job>, payload: PayloadSource) -> Result<(), Trouble> {
        let seq = job.seq;
        self.learn(&job.queue, &job.job_type);
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
            self.workflows.admit(self.seal.number_of(membership.workflow), seq);
        }
        if has_words(&job) {
            self.reindex(seq, &BTreeSet::new(), &IndexedFields::of(&job).words())?;
        }
        self.changed.insert(seq, Origin::Nowhere);
        self.jobs.insert(seq, job);
        Ok(())
    }

    fn remove(&mut self, job: Box<Job>) -> Result<(), Trouble> {
        let seq = job.seq;
        let number = seq.0.cast_signed();
        let origin = match self.taken.take() {
            Some((taken, origin, _)) if taken == seq => origin,
            _ => Origin::of(&job),
        };
        self.bereft.push(job.queue.clone());
        self.erased = true;
        if let Some(external_id) = &job.external_id {
            let mut delete =
                self.connection.prepare_cached("DELETE FROM external_id WHERE queue = ?1 AND external_id = ?2")?;
            delete.execute(params![job.queue.as_str(), external_id.as_ref()])?;
        }
        if let Some(membership) = &job.membership {
            let workflow = self.seal.number_of(membership.workflow);
            workflows::unname(&self.connection, workflow, &membership.reference, seq)?;
        }
        self.reindex(seq, &IndexedFields::of(&job).words(), &BTreeSet::new())?;
        for dependency in job.dependencies.all() {
            let elder = self.seal.unseal(dependency).0.cast_signed();
            let mut delete =
                self.connection.prepare_cached("DELETE FROM edge WHERE dependency = ?1 AND dependent = ?2")?;
            delete.execute(params![elder, number])?;
        }
        self.connection.prepare_cached("DELETE FROM edge WHERE dependency = ?1")?.execute([number])?;
        self.payloads.payloads.remove(&seq);
        self.new_payloads.retain(|(new, _)| *new != seq);
        self.changed.remove(&seq);
        match &origin {
            Origin::Nowhere => return Ok(()),
            Origin::Ended(state) => *self.ended_counts.entry((job.queue.clone(), *state)).or_default() -= 1,
            Origin::Live(entry) => {
                self.live
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .replace([Change { before: Some(entry.clone()), after: None }]);
            }
        }
        self.removed.insert(seq, origin);
        Ok(())
    }

    fn external_id(&mut self, queue: &QueueName, external_id: &str) -> Result<Option<Seq>, Trouble> {
        let mut select =
            self.connection.prepare_cached("SELECT seq FROM external_id WHERE queue = ?1 AND external_id = ?2")?;
        let found = select.query_row(params![queue.as_str(), external_id], |row| row.get::<_, i64>(0)).optional()?;
        Ok(found.map(|number| Seq(number.cast_unsigned())))
    }

    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Trouble> {
        let mut insert =
            self.connection.prepare_cached("INSERT OR IGNORE INTO edge(dependency, dependent) VALUES (?1, ?2)")?;
        insert.execute(params![dependency.0.cast_signed(), dependent.0.cast_signed()])?;
        Ok(())
    }

    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Trouble> {
        let mut delete = self.connection.prepare_cached("DELETE FROM edge WHERE dependency = ?1 AND dependent = ?2")?;
        delete.execute(params![dependency.0.cast_signed(), dependent.0.cast_signed()])?;
        Ok(())
    }

    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, Trouble> {
        let mut select = self.connection.prepare_cached(
            "SELECT dependent FROM edge WHERE dependency = ?1 AND dependent > ?2 ORDER BY dependent LIMIT ?3",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = select
            .query_map(params![dependency.0.cast_signed(), after.0.cast_signed(), limit], |row| row.get::<_, i64>(0))?;
        Ok(rows.map(|number| number.map(|number| Seq(number.cast_unsigned()))).collect::<Result<_, _>>()?)
    }

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, Trouble> {
        keys::get(&self.connection, key)
    }

    fn put_key(&mut self, key: ScopedIdempotencyKey, entry: KeyEntry) -> Result<(), Trouble> {
        keys::put(&self.connection, &key, &entry)
    }

    fn remove_key(&mut self, key: &ScopedIdempotencyKey) -> Result<(), Trouble> {
        keys::remove(&self.connection, key)
    }

    fn next_prune(&mut self, now: Timestamp) -> Result<Option<(Timestamp, PruneTarget)>, Trouble> {
        // What has ended in this batch must be among the notes; what was removed is passed over.
        if !self.changed.is_empty() {
            self.flush()?;
        }
        let key = keys::next_purge(&self.connection)?;
        loop {
            match self.prunes.first() {
                None => return Ok(key),
                Some(First::Chunk(at, chunk)) if at <= now => self.prunes.take_apart(&self.connection, chunk)?,
                // Not due: the instant is all that anybody wants to know.
                Some(First::Chunk(at, _)) => return Ok(earlier(Some((at, PruneTarget::Job(Seq(0)))), key)),
                Some(First::Job(at, seq)) => {
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

    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, Trouble> {
        self.flush()?;
        Ok(self.live.read().unwrap_or_else(PoisonError::into_inner).in_queue(queue, state, limit))
    }

    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, Trouble> {
        let number = self.seal.number_of(id);
        let found = self.workflows.get(&self.connection, number)?;
        Ok(found.filter(|workflow| workflow.id == id).cloned())
    }

    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), Trouble> {
        self.workflows.put(&self.connection, workflow)
    }

    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), Trouble> {
        self.workflows.tally(&self.connection, self.seal.number_of(id), change)
    }

    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), Trouble> {
        self.erased = true;
        self.workflows.remove(&self.connection, self.seal.number_of(id))
    }

    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, Trouble> {
        self.workflows.flush(&self.connection)?;
        workflows::members(&self.connection, self.seal.number_of(id), after, limit)
    }

    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), Trouble> {
        Ok(workflows::name(&self.connection, self.seal.number_of(id), reference, member)?)
    }

    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, Trouble> {
        Ok(workflows::named(&self.connection, self.seal.number_of(id), reference)?)
    }

    fn put_queue(&mut self, queue: &Queue) -> Result<(), Trouble> {
        {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            names.learn_queue(&queue.name);
            names.learn_policy(&queue.policy);
        }
        let record = codec::policy::encode_queue(queue).map_err(|_| Trouble::NotStorable)?;
        let mut insert =
            self.connection.prepare_cached("INSERT OR REPLACE INTO queue(name, record) VALUES (?1, ?2)")?;
        insert.execute(params![queue.name.as_str(), record])?;
        Ok(())
    }

    fn remove_queue(&mut self, name: &QueueName) -> Result<(), Trouble> {
        self.connection.prepare_cached("DELETE FROM queue WHERE name = ?1")?.execute([name.as_str()])?;
        Ok(())
    }
}
