//! Threads that only look, each with a connection of its own: they never wait behind the writer.

mod lookup;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{Builder, JoinHandle};

use longshore_core::id::{Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_store::{
    JobFilter, JobQuery, JobRef, MemberQuery, Page, QueuePosition, StoreError, WorkflowPage, WorkflowQuery,
};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::error::sql;
use crate::finished_index::{Chunks, FilterPattern, numbers_of};
use crate::id_cipher::IdSeal;
use crate::key_order::KeyOrderCheck;
use crate::live_index::{LiveIndex, LiveMatches};
use crate::records::payloads::read_payload;
use crate::records::{RecordsError, state_number, workflows};
use crate::schema::{Location, Role};
use longshore_codec as codec;
use longshore_codec::Dictionary;
use longshore_codec::type_hash;

type Work = Box<dyn FnOnce(&Reader) + Send>;

#[derive(Debug)]
pub(crate) struct Readers {
    threads: Vec<ReaderThread>,
    turn: AtomicUsize,
}

/// One thread; both are `None` once it has been told to stop.
#[derive(Debug)]
struct ReaderThread {
    sender: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

/// What a reading thread works with.
#[derive(Debug)]
pub(crate) struct Reader {
    connection: Connection,
    names: Arc<RwLock<Dictionary>>,
    live: Arc<RwLock<LiveIndex>>,
    chunks: Arc<RwLock<Chunks>>,
    seal: IdSeal,
    /// A database in memory has no log: whoever begins to look waits for the batch under way, and whoever looks holds up its commit.
    waits_for_batches: bool,
}

/// What the writer shares with those who look.
#[derive(Debug)]
pub(crate) struct ReaderContext<'a> {
    pub names: &'a Arc<RwLock<Dictionary>>,
    pub live: &'a Arc<RwLock<LiveIndex>>,
    pub chunks: &'a Arc<RwLock<Chunks>>,
    pub seal: &'a IdSeal,
}

impl Readers {
    pub(crate) fn start(threads: usize, location: &Location, known: &ReaderContext<'_>) -> Result<Self, StoreError> {
        let start = |_| {
            let connection = location.open(Role::Reader).map_err(sql)?;
            let reader = Reader {
                connection,
                names: Arc::clone(known.names),
                live: Arc::clone(known.live),
                chunks: Arc::clone(known.chunks),
                seal: known.seal.clone(),
                waits_for_batches: matches!(location, Location::Memory(_)),
            };
            let (sender, work) = channel::<Work>();
            let look = move || work.into_iter().for_each(|work| work(&reader));
            let thread =
                Builder::new().name("longshore-read".to_owned()).spawn(look).map_err(StoreError::not_applied)?;
            Ok(ReaderThread { sender: Some(sender), thread: Some(thread) })
        };
        Ok(Self { threads: (0..threads).map(start).collect::<Result<_, StoreError>>()?, turn: AtomicUsize::new(0) })
    }

    /// Runs a look on one of the threads.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |reader| drop(reply.send(read(reader))));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        let sender = self.threads.get(turn).and_then(|looker| looker.sender.as_ref());
        if sender.is_none_or(|sender| sender.send(work).is_err()) {
            return Err(StoreError::Poisoned);
        }
        answer.await.unwrap_or(Err(StoreError::Poisoned))
    }

    /// Waits for what was asked and ends the threads.
    pub(crate) fn stop(&mut self) {
        for looker in &mut self.threads {
            drop(looker.sender.take());
            if let Some(thread) = looker.thread.take() {
                drop(thread.join());
            }
        }
    }
}

/// Records looked at for one page.
const EXAMINED_MAX: usize = 2_000;
/// Chunks of ended jobs looked at for one page.
const CHUNKS_MAX: usize = 64;

impl Reader {
    pub(crate) fn get(&self, jobs: &[JobRef]) -> Result<Vec<Option<Arc<Job>>>, StoreError> {
        // One moment for all of them: a job that ends meanwhile is found in one table or the other.
        let moment = self.connection.unchecked_transaction().map_err(sql)?;
        let found = jobs.iter().map(|job| self.get_one(*job)).collect();
        moment.commit().map_err(sql)?;
        found
    }

    fn get_one(&self, job: JobRef) -> Result<Option<Arc<Job>>, StoreError> {
        let (seq, id) = match job {
            JobRef::Seq(seq) => (seq, None),
            JobRef::Id(id) => (self.seal.decrypt(id), Some(id)),
        };
        if i64::try_from(seq.0).is_err() {
            return Ok(None);
        }
        let job = self.read(seq)?;
        Ok(job.filter(|job| id.is_none_or(|id| id == job.id)).map(Arc::new))
    }

    fn read(&self, seq: Seq) -> Result<Option<Job>, StoreError> {
        for table in ["SELECT record FROM live WHERE seq = ?1", "SELECT record FROM ended WHERE seq = ?1"] {
            let mut select = self.connection.prepare_cached(table).map_err(sql)?;
            let mut rows = select.query([seq.0.cast_signed()]).map_err(sql)?;
            if let Some(row) = rows.next().map_err(sql)? {
                let damaged = || StoreError::corrupt(format!("the record of job {seq}"));
                let bytes = row.get_ref(0).map_err(sql)?.as_blob().map_err(|_| damaged())?;
                let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
                return codec::job::decode(seq, bytes, &names).map(Some).map_err(|_| damaged());
            }
        }
        Ok(None)
    }

    pub(crate) fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<Payload>>, StoreError> {
        let damaged = |seq: Seq| {
            let name = self.read(seq).ok().flatten().map_or_else(|| seq.to_string(), |job| job.id.to_string());
            StoreError::corrupt(format!("the payload of job {name}"))
        };
        let read = |seq: &Seq| match read_payload(&self.connection, *seq) {
            Ok(Some(payload)) => Ok(Some(payload)),
            // Every job has one, as long as it is there.
            Ok(None) if self.read(*seq)?.is_some() => Err(damaged(*seq)),
            Ok(None) => Ok(None),
            Err(RecordsError::Damaged(_)) => Err(damaged(*seq)),
            Err(trouble) => Err(trouble.into()),
        };
        jobs.iter().map(read).collect()
    }

    pub(crate) fn list(&self, query: &JobQuery) -> Result<Page, StoreError> {
        // Before the snapshot, which has to begin while the index of live jobs is held.
        let before = self.below_too_new(&query.filter, query.before)?;
        let query = &JobQuery { before, ..query.clone() };
        let moment = self.connection.unchecked_transaction().map_err(sql)?;
        let page = self.page(query);
        moment.commit().map_err(sql)?;
        page
    }

    /// Candidates of both kinds, newest first, until the page is full or enough has been looked at.
    fn page(&self, query: &JobQuery) -> Result<Page, StoreError> {
        let JobQuery { filter, limit, before } = query;
        let examined_max = EXAMINED_MAX.max(*limit);
        let Candidates { numbers, complete_from: all_from, living } = self.candidates(filter, *before, examined_max)?;
        let mut jobs = Vec::new();
        for seq in &numbers {
            let Some(job) = self.read(*seq)? else {
                if living.must_have(*seq) {
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
                    // There may be nothing behind it; the next page says so.
                    return Ok(Page { jobs, next: Some(*seq) });
                }
            }
        }
        Ok(Page { jobs, next: all_from })
    }

    fn candidates(&self, filter: &JobFilter, before: Option<Seq>, limit: usize) -> Result<Candidates, StoreError> {
        if let Some(external_id) = &filter.external_id {
            let mut holders = self.with_external_id(filter.queue.as_ref(), external_id)?;
            holders.retain(|seq| before.is_none_or(|before| *seq < before));
            return Ok(Candidates::all(holders));
        }
        if let Some(word) = filter.tag_term() {
            let listed = self.listed_by(&word, before, limit)?;
            return Ok(Candidates::of(listed, limit));
        }
        if let Some(workflow) = filter.workflow {
            let number = self.seal.seq_of_workflow(workflow);
            let members =
                workflows::members_before(&self.connection, number, before, limit).map_err(as_workflow_error)?;
            check_descending("member", before, members.iter().copied())?;
            return Ok(Candidates::of(members, limit));
        }
        // An ended job that still owes its dependents the news lies with the living, so these are always asked.
        let (found, living) = self.live_candidates(filter, before, limit)?;
        let live = Candidates::live(found, living);
        if !filter.states.admitted().any(StateKind::terminal) {
            return Ok(live);
        }
        Ok(live.with(self.ended_candidates(filter, before, limit)?))
    }

    pub(crate) fn workflow(&self, id: WorkflowId) -> Result<Option<Arc<Workflow>>, StoreError> {
        let found = workflows::read(&self.connection, self.seal.seq_of_workflow(id)).map_err(as_workflow_error)?;
        Ok(found.filter(|workflow| workflow.id == id).map(Arc::new))
    }

    pub(crate) fn workflows(&self, query: &WorkflowQuery) -> Result<WorkflowPage, StoreError> {
        let workflows = workflows::page(&self.connection, query).map_err(as_workflow_error)?;
        check_descending("workflow", query.before, workflows.iter().map(|workflow| workflow.number))?;
        let next = workflows.last().filter(|_| workflows.len() >= query.limit).map(|workflow| workflow.number);
        Ok(WorkflowPage { workflows: workflows.into_iter().map(Arc::new).collect(), next })
    }

    pub(crate) fn members(&self, query: &MemberQuery) -> Result<Page, StoreError> {
        let moment = self.connection.unchecked_transaction().map_err(sql)?;
        let page = self.members_page(query);
        moment.commit().map_err(sql)?;
        page
    }

    /// Numbers of records that are gone are passed over, some for each page.
    fn members_page(&self, query: &MemberQuery) -> Result<Page, StoreError> {
        let MemberQuery { workflow, limit, after } = *query;
        let (number, examined_max) = (self.seal.seq_of_workflow(workflow), EXAMINED_MAX.max(limit));
        let candidates =
            workflows::members(&self.connection, number, after, examined_max).map_err(as_workflow_error)?;
        let mut order = KeyOrderCheck::behind("member", Some(after));
        candidates.iter().try_for_each(|seq| order.next(*seq))?;
        let ours = |job: &Job| job.workflow() == Some(workflow) && job.requeued_as.is_none();
        let mut jobs = Vec::new();
        for seq in &candidates {
            jobs.extend(self.read(*seq)?.filter(ours).map(Arc::new));
            if jobs.len() >= limit {
                return Ok(Page { jobs, next: Some(*seq) });
            }
        }
        let next = candidates.last().copied().filter(|_| candidates.len() >= examined_max);
        Ok(Page { jobs, next })
    }

    pub(crate) fn ahead(&self, place: &QueuePosition) -> u64 {
        self.live.read().unwrap_or_else(PoisonError::into_inner).ahead(place)
    }

    /// Begins to look: from here on the tables stand still.
    ///
    /// The index and the tables must show one moment, or a job that goes from one table to the other meanwhile is in neither. While the index is
    /// held no batch can begin to change it, nor be done with it: the tables then show what they did before the batch under way, or after it.
    /// Nobody waits for a sync here; and in memory no batch can commit once the tables stand still.
    fn live_candidates(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<(LiveMatches, LiveCandidates), StoreError> {
        let stand_still = || {
            let mut select = self.connection.prepare_cached("SELECT 1 FROM meta LIMIT 1").map_err(sql)?;
            select.query_row([], |_| Ok(())).map_err(sql)
        };
        if self.waits_for_batches {
            stand_still()?;
        }
        let index = self.live.read().unwrap_or_else(PoisonError::into_inner);
        if !self.waits_for_batches {
            stand_still()?;
        }
        let found = index.find(filter, before, limit);
        let living = LiveCandidates { certain: found.jobs.clone(), under_way: index.uncommitted(filter, before) };
        Ok((found, living))
    }

    fn ended_candidates(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Candidates, StoreError> {
        let mut wanted = FilterPattern {
            queue: None,
            states: (!filter.states.is_empty()).then(|| state_bits(filter)),
            job_type: filter.job_type.as_ref().map(|job_type| type_hash(job_type.as_str())),
        };
        if let Some(queue) = &filter.queue {
            let number = self.names.read().unwrap_or_else(PoisonError::into_inner).queue_number(queue);
            let Some(number) = number else { return Ok(Candidates::of(Vec::new(), limit)) };
            wanted.queue = Some(i64::from(number));
        }
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner).with(&wanted, before, CHUNKS_MAX);
        let mut numbers = Vec::new();
        let mut order = KeyOrderCheck::behind("ended", before.map(Reverse));
        for chunk in &chunks {
            let (from, to) = numbers_of(*chunk);
            let before = before.map_or(to, |before| i64::try_from(before.0).unwrap_or(i64::MAX).min(to));
            let room = i64::try_from(limit - numbers.len()).unwrap_or(i64::MAX);
            let mut select = self
                .connection
                .prepare_cached(
                    "SELECT seq FROM ended WHERE seq >= ?1 AND seq < ?2 AND (?3 IS NULL OR queue = ?3) \
                     AND (?4 IS NULL OR ?4 >> state & 1 = 1) AND (?5 IS NULL OR type = ?5) ORDER BY seq DESC LIMIT ?6",
                )
                .map_err(sql)?;
            let given = params![from, before, wanted.queue, wanted.states, wanted.job_type, room];
            let rows = select.query_map(given, |row| row.get::<_, i64>(0)).map_err(sql)?;
            for number in rows {
                let seq = Seq(number.map_err(sql)?.cast_unsigned());
                order.next(Reverse(seq))?;
                numbers.push(seq);
            }
            if numbers.len() >= limit {
                return Ok(Candidates::of(numbers, limit));
            }
        }
        // The last chunk that was looked at, if there may be more.
        let all_from = chunks.last().filter(|_| chunks.len() >= CHUNKS_MAX);
        let all_from = all_from.map(|chunk| Seq(numbers_of(*chunk).0.cast_unsigned()));
        Ok(Candidates { numbers, complete_from: all_from, living: LiveCandidates::default() })
    }
}

/// The numbers of the states that a filter admits, as bits.
fn state_bits(filter: &JobFilter) -> i64 {
    filter.states.admitted().fold(0, |bits, state| bits | 1 << state_number(state))
}

/// A page that leads back to where it began would never let a listing end.
fn check_descending(
    table: &'static str,
    before: Option<Seq>,
    mut numbers: impl Iterator<Item = Seq>,
) -> Result<(), StoreError> {
    let mut order = KeyOrderCheck::behind(table, before.map(Reverse));
    numbers.try_for_each(|number| order.next(Reverse(number)))
}

/// Members' numbers are looked up like those of jobs: whatever is met, it is the workflow's.
fn as_workflow_error(trouble: RecordsError) -> StoreError {
    match trouble {
        RecordsError::Damaged(number) => RecordsError::DamagedWorkflow(number).into(),
        RecordsError::Sql(_)
        | RecordsError::DamagedWorkflow(_)
        | RecordsError::DamagedPayload(_)
        | RecordsError::NotStorable => trouble.into(),
    }
}

/// Jobs that may match, newest first.
struct Candidates {
    numbers: Vec<Seq>,
    /// Below this number nobody has looked yet.
    complete_from: Option<Seq>,
    living: LiveCandidates,
}

/// What the index of live jobs has found, newest first.
#[derive(Default)]
struct LiveCandidates {
    certain: Vec<Seq>,
    /// Of these the tables may show what was before, or what is.
    under_way: Vec<Seq>,
}

impl LiveCandidates {
    /// Whether the tables must have a record of this one.
    fn must_have(&self, seq: Seq) -> bool {
        let among = |newest_first: &[Seq]| newest_first.binary_search_by(|other| seq.cmp(other)).is_ok();
        among(&self.certain) && !among(&self.under_way)
    }
}

impl Candidates {
    /// There are no others.
    fn all(numbers: Vec<Seq>) -> Self {
        Self { numbers, complete_from: None, living: LiveCandidates::default() }.in_order()
    }

    fn of(numbers: Vec<Seq>, limit: usize) -> Self {
        let complete_from = if numbers.len() >= limit { numbers.last().copied() } else { None };
        Self { numbers, complete_from, living: LiveCandidates::default() }
    }

    fn live(found: LiveMatches, living: LiveCandidates) -> Self {
        let mut numbers = found.jobs;
        numbers.extend(&living.under_way);
        Self { numbers, complete_from: found.stopped_at, living }.in_order()
    }

    /// Together they are complete down to where the first of them stopped.
    fn with(mut self, ended: Self) -> Self {
        self.numbers.extend(ended.numbers);
        Self { complete_from: self.complete_from.max(ended.complete_from), ..self }.in_order()
    }

    fn in_order(mut self) -> Self {
        self.numbers.sort_unstable_by(|a, b| b.cmp(a));
        self.numbers.dedup();
        self.numbers.retain(|seq| self.complete_from.is_none_or(|all_from| *seq >= all_from));
        self
    }
}
