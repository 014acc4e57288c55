//! SnapshotReader threads with their own connections. They never wait for the writer.

mod lookup;

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use longshore_core::id::{Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_store::{
    JobFilter, JobQuery, JobRef, MemberQuery, Page, QueuePosition, StoreError, SystemQuery, SystemRecord, WorkflowPage,
    WorkflowQuery,
};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::cache_budget::CacheBudget;
use crate::error::sql;
use crate::finished_index::{FilterPattern, numbers_of};
use crate::indexes::Indexes;
use crate::key_order::KeyOrderCheck;
use crate::live_index::LiveMatches;
use crate::records::payloads::read_payload;
use crate::records::{RecordsError, state_number, type_hash, workflows};
use crate::sqlite::{Location, Role, set_page_cache};
use crate::system;
use longshore_codec as codec;

type ReadTask = Box<dyn FnOnce(&SnapshotReader) + Send>;

#[derive(Debug)]
pub(crate) struct Readers {
    threads: Vec<ReaderThread>,
    next_thread: AtomicUsize,
}

/// One thread. Both fields are `None` after the stop.
#[derive(Debug)]
struct ReaderThread {
    sender: Option<Sender<ReadTask>>,
    thread: Option<JoinHandle<()>>,
}

/// State of a reader thread.
#[derive(Debug)]
pub(crate) struct SnapshotReader {
    connection: Connection,
    indexes: Arc<Indexes>,
    /// An in-memory database has no WAL: a reader waits for the current batch, and blocks its
    /// commit.
    waits_for_batches: bool,
}

impl Readers {
    pub(crate) fn start(
        threads: usize,
        location: &Location,
        indexes: &Arc<Indexes>,
        budget: CacheBudget,
    ) -> Result<Self, StoreError> {
        let start = |_| {
            let connection = location.open(Role::Reader).map_err(sql)?;
            set_page_cache(&connection, budget.reader_kib()).map_err(sql)?;
            let reader = SnapshotReader {
                connection,
                indexes: Arc::clone(indexes),
                waits_for_batches: matches!(location, Location::Memory(_)),
            };
            let (sender, work) = channel::<ReadTask>();
            let serve = move || work.into_iter().for_each(|work| work(&reader));
            let thread =
                Builder::new().name("longshore-reader".to_owned()).spawn(serve).map_err(StoreError::not_applied)?;
            Ok(ReaderThread { sender: Some(sender), thread: Some(thread) })
        };
        Ok(Self {
            threads: (0..threads).map(start).collect::<Result<_, StoreError>>()?,
            next_thread: AtomicUsize::new(0),
        })
    }

    /// Runs a read on one of the threads.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&SnapshotReader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let work: ReadTask = Box::new(move |reader| drop(reply.send(read(reader))));
        let next = self.next_thread.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        let sender = self.threads.get(next).and_then(|reader| reader.sender.as_ref());
        if sender.is_none_or(|sender| sender.send(work).is_err()) {
            return Err(StoreError::Poisoned);
        }
        answer.await.unwrap_or(Err(StoreError::Poisoned))
    }

    /// Finishes queued reads and stops the threads.
    pub(crate) fn stop(&mut self) {
        for reader in &mut self.threads {
            drop(reader.sender.take());
            if let Some(thread) = reader.thread.take() {
                drop(thread.join());
            }
        }
    }
}

/// Records that are read for one page.
const EXAMINED_MAX: usize = 2_000;
/// Chunks of finished jobs that are searched for one page.
const CHUNKS_MAX: usize = 64;

impl SnapshotReader {
    pub(crate) fn get(&self, jobs: &[JobRef]) -> Result<Vec<Option<Arc<Job>>>, StoreError> {
        // One snapshot for all of them: a job that finishes meanwhile is in one of the tables.
        let snapshot = self.connection.unchecked_transaction().map_err(sql)?;
        let found = jobs.iter().map(|job| self.get_one(*job)).collect();
        snapshot.commit().map_err(sql)?;
        found
    }

    /// Returns a range of system records from one snapshot.
    pub(crate) fn system_records(&self, query: &SystemQuery) -> Result<Vec<SystemRecord>, StoreError> {
        system::read(&self.connection, query)
    }

    fn get_one(&self, job: JobRef) -> Result<Option<Arc<Job>>, StoreError> {
        let (seq, id) = match job {
            JobRef::Seq(seq) => (seq, None),
            JobRef::Id(id) => (self.indexes.id_cipher.decrypt(id), Some(id)),
        };
        if i64::try_from(seq.0).is_err() {
            return Ok(None);
        }
        let job = self.read(seq)?;
        Ok(job.filter(|job| id.is_none_or(|id| id == job.id)).map(Arc::new))
    }

    fn read(&self, seq: Seq) -> Result<Option<Job>, StoreError> {
        for table in ["SELECT record FROM live_jobs WHERE seq = ?1", "SELECT record FROM finished_jobs WHERE seq = ?1"]
        {
            let mut select = self.connection.prepare_cached(table).map_err(sql)?;
            let mut rows = select.query([seq.0.cast_signed()]).map_err(sql)?;
            if let Some(row) = rows.next().map_err(sql)? {
                let corrupt = || StoreError::corrupt(format!("the record of job {seq}"));
                let bytes = row.get_ref(0).map_err(sql)?.as_blob().map_err(|_| corrupt())?;
                let dictionary = self.indexes.dictionary();
                return codec::job::decode(seq, bytes, &dictionary).map(Some).map_err(|_| corrupt());
            }
        }
        Ok(None)
    }

    pub(crate) fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<Payload>>, StoreError> {
        let corrupt = |seq: Seq| {
            let name = self.read(seq).ok().flatten().map_or_else(|| seq.to_string(), |job| job.id.to_string());
            StoreError::corrupt(format!("the payload of job {name}"))
        };
        let read = |seq: &Seq| match read_payload(&self.connection, *seq) {
            Ok(Some(payload)) => Ok(Some(payload)),
            // Every existing job has a payload.
            Ok(None) if self.read(*seq)?.is_some() => Err(corrupt(*seq)),
            Ok(None) => Ok(None),
            Err(RecordsError::CorruptJob(_)) => Err(corrupt(*seq)),
            Err(error) => Err(error.into()),
        };
        jobs.iter().map(read).collect()
    }

    pub(crate) fn list(&self, query: &JobQuery) -> Result<Page, StoreError> {
        // Runs before the snapshot, which must start while the index of live jobs is locked.
        let before = self.below_too_new(&query.filter, query.before)?;
        let query = &JobQuery { before, ..query.clone() };
        let snapshot = self.connection.unchecked_transaction().map_err(sql)?;
        let page = self.page(query);
        snapshot.commit().map_err(sql)?;
        page
    }

    /// Returns a page of live and finished candidates, newest first, within the limits of one page.
    fn page(&self, query: &JobQuery) -> Result<Page, StoreError> {
        let JobQuery { filter, limit, before } = query;
        let examined_max = EXAMINED_MAX.max(*limit);
        let Candidates { numbers, complete_from, live } = self.candidates(filter, *before, examined_max)?;
        let mut jobs = Vec::new();
        for seq in &numbers {
            let Some(job) = self.read(*seq)? else {
                if live.must_have(*seq) {
                    return Err(StoreError::corrupt(format!("the record of job {seq} is missing")));
                }
                continue;
            };
            if filter.excludes_older_than(&job) {
                return Ok(Page { jobs, next: None });
            }
            if filter.matches(&job) {
                jobs.push(Arc::new(job));
                if jobs.len() >= *limit {
                    // This may have been the last match: then the next page is empty.
                    return Ok(Page { jobs, next: Some(*seq) });
                }
            }
        }
        Ok(Page { jobs, next: complete_from })
    }

    fn candidates(&self, filter: &JobFilter, before: Option<Seq>, limit: usize) -> Result<Candidates, StoreError> {
        if let Some(external_id) = &filter.external_id {
            let mut holders = self.with_external_id(filter.queue.as_ref(), external_id)?;
            holders.retain(|seq| before.is_none_or(|before| *seq < before));
            return Ok(Candidates::complete(holders));
        }
        if let Some(term) = filter.tag_term() {
            let listed = self.with_term(&term, before, limit)?;
            return Ok(Candidates::of(listed, limit));
        }
        if let Some(workflow) = filter.workflow {
            let number = self.indexes.id_cipher.seq_of_workflow(workflow);
            let members =
                workflows::members_before(&self.connection, number, before, limit).map_err(as_workflow_error)?;
            check_descending("member", before, members.iter().copied())?;
            return Ok(Candidates::of(members, limit));
        }
        // A finished job stays in `live_jobs` until its completion is propagated, so the live index
        // is always searched.
        let (matches, live) = self.live_candidates(filter, before, limit)?;
        let live = Candidates::live(matches, live);
        if !filter.states.admitted().any(StateKind::terminal) {
            return Ok(live);
        }
        Ok(live.merge(self.finished_candidates(filter, before, limit)?))
    }

    pub(crate) fn workflow(&self, id: WorkflowId) -> Result<Option<Arc<Workflow>>, StoreError> {
        let found =
            workflows::read(&self.connection, self.indexes.id_cipher.seq_of_workflow(id)).map_err(as_workflow_error)?;
        Ok(found.filter(|workflow| workflow.id == id).map(Arc::new))
    }

    pub(crate) fn workflows(&self, query: &WorkflowQuery) -> Result<WorkflowPage, StoreError> {
        let workflows = workflows::page(&self.connection, query).map_err(as_workflow_error)?;
        check_descending("workflow", query.before, workflows.iter().map(|workflow| workflow.number))?;
        let next = workflows.last().filter(|_| workflows.len() >= query.limit).map(|workflow| workflow.number);
        Ok(WorkflowPage { workflows: workflows.into_iter().map(Arc::new).collect(), next })
    }

    pub(crate) fn members(&self, query: &MemberQuery) -> Result<Page, StoreError> {
        let snapshot = self.connection.unchecked_transaction().map_err(sql)?;
        let page = self.members_page(query);
        snapshot.commit().map_err(sql)?;
        page
    }

    /// Returns a page of members. Skips deleted members, within the limits of one page.
    fn members_page(&self, query: &MemberQuery) -> Result<Page, StoreError> {
        let MemberQuery { workflow, limit, after } = *query;
        let (number, examined_max) = (self.indexes.id_cipher.seq_of_workflow(workflow), EXAMINED_MAX.max(limit));
        let candidates =
            workflows::members(&self.connection, number, after, examined_max).map_err(as_workflow_error)?;
        let mut order = KeyOrderCheck::after("member", Some(after));
        candidates.iter().try_for_each(|seq| order.next(*seq))?;
        let is_member = |job: &Job| job.workflow() == Some(workflow) && job.requeued_as.is_none();
        let mut jobs = Vec::new();
        for seq in &candidates {
            jobs.extend(self.read(*seq)?.filter(is_member).map(Arc::new));
            if jobs.len() >= limit {
                return Ok(Page { jobs, next: Some(*seq) });
            }
        }
        let next = candidates.last().copied().filter(|_| candidates.len() >= examined_max);
        Ok(Page { jobs, next })
    }

    pub(crate) fn count_ahead(&self, position: &QueuePosition) -> u64 {
        self.indexes.live().count_ahead(position)
    }

    /// Searches the live index and starts the snapshot.
    ///
    /// Index and snapshot must show the same commit; otherwise a job that moves between the tables
    /// is in neither. The writer changes and publishes the index under its lock. A snapshot that
    /// starts under the read lock therefore shows the state before or after the current batch.
    /// `uncommitted` covers both.
    ///
    /// The lock is not held during a sync. In memory the snapshot comes first, because it blocks
    /// the commit.
    fn live_candidates(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<(LiveMatches, LiveCandidates), StoreError> {
        let start_snapshot = || {
            let mut select = self.connection.prepare_cached("SELECT 1 FROM meta LIMIT 1").map_err(sql)?;
            select.query_row([], |_| Ok(())).map_err(sql)
        };
        if self.waits_for_batches {
            start_snapshot()?;
        }
        let index = self.indexes.live();
        if !self.waits_for_batches {
            start_snapshot()?;
        }
        let matches = index.find(filter, before, limit);
        let live = LiveCandidates { indexed: matches.jobs.clone(), uncommitted: index.uncommitted(filter, before) };
        Ok((matches, live))
    }

    fn finished_candidates(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Candidates, StoreError> {
        let mut pattern = FilterPattern {
            queue: None,
            states: (!filter.states.is_empty()).then(|| state_bits(filter)),
            job_type: filter.job_type.as_ref().map(|job_type| type_hash(job_type.as_str())),
        };
        if let Some(queue) = &filter.queue {
            let number = self.indexes.dictionary().queue_number(queue);
            let Some(number) = number else { return Ok(Candidates::of(Vec::new(), limit)) };
            pattern.queue = Some(i64::from(number));
        }
        let chunks = self.indexes.chunks().matching(&pattern, before, CHUNKS_MAX);
        let mut numbers = Vec::new();
        let mut order = KeyOrderCheck::after("finished_jobs", before.map(Reverse));
        for chunk in &chunks {
            let (from, to) = numbers_of(*chunk);
            let before = before.map_or(to, |before| i64::try_from(before.0).unwrap_or(i64::MAX).min(to));
            let limit_left = i64::try_from(limit - numbers.len()).unwrap_or(i64::MAX);
            let mut select = self
                .connection
                .prepare_cached(
                    "SELECT seq FROM finished_jobs WHERE seq >= ?1 AND seq < ?2 AND (?3 IS NULL OR queue = ?3) \
                     AND (?4 IS NULL OR ?4 >> state & 1 = 1) AND (?5 IS NULL OR type = ?5) ORDER BY seq DESC LIMIT ?6",
                )
                .map_err(sql)?;
            let params = params![from, before, pattern.queue, pattern.states, pattern.job_type, limit_left];
            let rows = select.query_map(params, |row| row.get::<_, i64>(0)).map_err(sql)?;
            for number in rows {
                let seq = Seq(number.map_err(sql)?.cast_unsigned());
                order.next(Reverse(seq))?;
                numbers.push(seq);
            }
            if numbers.len() >= limit {
                return Ok(Candidates::of(numbers, limit));
            }
        }
        // Last searched chunk, if there may be more.
        let last_chunk = chunks.last().filter(|_| chunks.len() >= CHUNKS_MAX);
        let complete_from = last_chunk.map(|chunk| Seq(numbers_of(*chunk).0.cast_unsigned()));
        Ok(Candidates { numbers, complete_from, live: LiveCandidates::default() })
    }
}

/// Returns the states that a filter admits, as bits.
fn state_bits(filter: &JobFilter) -> i64 {
    filter.states.admitted().fold(0, |bits, state| bits | 1 << state_number(state))
}

/// Checks that a page descends. A page that leads back to its start would repeat forever.
fn check_descending(
    table: &'static str,
    before: Option<Seq>,
    mut numbers: impl Iterator<Item = Seq>,
) -> Result<(), StoreError> {
    let mut order = KeyOrderCheck::after(table, before.map(Reverse));
    numbers.try_for_each(|number| order.next(Reverse(number)))
}

/// Maps errors of member numbers, which are read like jobs, to their workflow.
fn as_workflow_error(error: RecordsError) -> StoreError {
    match error {
        RecordsError::CorruptJob(number) => RecordsError::CorruptWorkflow(number).into(),
        RecordsError::Sql(_)
        | RecordsError::CorruptWorkflow(_)
        | RecordsError::CorruptPayload(_)
        | RecordsError::CorruptEndpoint
        | RecordsError::NotStorable => error.into(),
    }
}

/// Jobs that may match, newest first.
struct Candidates {
    numbers: Vec<Seq>,
    /// The search has not covered numbers below this one.
    complete_from: Option<Seq>,
    live: LiveCandidates,
}

/// Results of the live index, newest first.
#[derive(Default)]
struct LiveCandidates {
    indexed: Vec<Seq>,
    /// The tables may show these before or after the current batch.
    uncommitted: Vec<Seq>,
}

impl LiveCandidates {
    /// Returns whether the tables must have a record of this job.
    fn must_have(&self, seq: Seq) -> bool {
        let contains = |newest_first: &[Seq]| newest_first.binary_search_by(|other| seq.cmp(other)).is_ok();
        contains(&self.indexed) && !contains(&self.uncommitted)
    }
}

impl Candidates {
    /// Creates a complete list.
    fn complete(numbers: Vec<Seq>) -> Self {
        Self { numbers, complete_from: None, live: LiveCandidates::default() }.sorted()
    }

    fn of(numbers: Vec<Seq>, limit: usize) -> Self {
        let complete_from = if numbers.len() >= limit { numbers.last().copied() } else { None };
        Self { numbers, complete_from, live: LiveCandidates::default() }
    }

    fn live(matches: LiveMatches, live: LiveCandidates) -> Self {
        let mut numbers = matches.jobs;
        numbers.extend(&live.uncommitted);
        Self { numbers, complete_from: matches.stopped_at, live }.sorted()
    }

    /// Merges two lists. The result is complete down to the higher end of the two.
    fn merge(mut self, finished: Self) -> Self {
        self.numbers.extend(finished.numbers);
        Self { complete_from: self.complete_from.max(finished.complete_from), ..self }.sorted()
    }

    fn sorted(mut self) -> Self {
        self.numbers.sort_unstable_by(|a, b| b.cmp(a));
        self.numbers.dedup();
        self.numbers.retain(|seq| self.complete_from.is_none_or(|from| *seq >= from));
        self
    }
}
