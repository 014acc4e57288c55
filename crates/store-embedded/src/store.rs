//! Opening a store, and the store itself.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{Builder, JoinHandle};

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{LeaseVersion, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Engine, Heartbeat, JobRecords, Queue, Settlement,
    SubmitRequest, Submitted, Ticked,
};
use longshore_store::{
    ChangeFeed, Clock, Grant, JobQuery, JobRef, Mailbox, MemberQuery, Page, Park, QueuePosition, QueueStats, Store,
    StoreError, StoreFuture, StoreHealth, StoreReader, Ticket, WorkflowPage, WorkflowQuery, await_grant, mailbox,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::data_dir::DataDir;
use crate::error::{damaged, sql};
use crate::finished_index::Chunks;
use crate::granting::{Granting, ReturnToWriter};
use crate::id_cipher::id_seal;
use crate::key_order::KeyOrderCheck;
use crate::live_index::LiveIndex;
use crate::reader::{ReaderContext, Readers};
use crate::records::prefetch::Prefetcher;
use crate::records::{RecordsError, SqliteRecords, workflows};
use crate::request::{Failed, Reply, Request};
use crate::reserve::{Reserve, Room};
use crate::schema::{self, ClockMode, Location, Role, map_open_error};
use crate::seen;
use crate::vacuum::IncrementalVacuum;
use crate::wal;
use crate::wal_checkpoint::Checkpoints;
use crate::watermark::WatermarkFile;
use crate::writer::{Shared, Writer};
use longshore_codec::Dictionary;
use longshore_codec::OsRng;
use longshore_codec::codec;
use longshore_codec::codec::job::RecordHeader;

/// Where the jobs are kept.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// The same code without a disk; gone when the store is closed. For tests.
    Memory,
    Directory(PathBuf),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub place: StoreLocation,
    pub clock: Arc<dyn Clock>,
    pub time: ClockMode,
    pub engine: longshore_engine::EngineOptions,
    /// Requests that may wait for the writer before the next one has to.
    pub request_queue_max: usize,
    pub reader_threads: usize,
    /// Set aside for a full disk; 0 is nothing.
    pub reserve_bytes: u64,
}

impl Options {
    pub fn new(place: StoreLocation, clock: Arc<dyn Clock>, time: ClockMode) -> Self {
        let engine = longshore_engine::EngineOptions::default();
        Self { place, clock, time, engine, request_queue_max: 4_096, reader_threads: 2, reserve_bytes: 64 << 20 }
    }
}

#[derive(Debug)]
pub struct EmbeddedStore {
    requests: Option<Mailbox<Request>>,
    /// Numbers claims that may park, in the order in which they come.
    tickets: AtomicU64,
    readers: Readers,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    writer: Option<JoinHandle<()>>,
    reserve_missing_at_start: Option<u64>,
    room: Room,
    /// Kept until everything else has ended.
    home: DataDir,
}

/// Databases in memory have names, so that writer and readers find the same one.
static MEMORIES: AtomicU64 = AtomicU64::new(0);

impl EmbeddedStore {
    pub fn open(options: Options) -> Result<Self, StoreError> {
        let home = match &options.place {
            StoreLocation::Memory => DataDir::memory(format!("longshore-{}", MEMORIES.fetch_add(1, Ordering::Relaxed))),
            StoreLocation::Directory(directory) => DataDir::directory(directory)?,
        };
        let connection = home.database.open(Role::Writer).map_err(map_open_error)?;
        schema::prepare(&connection, options.time)?;
        wal::check_wal_complete(&home.database, &connection)?;
        let seen = seen::go_on(&home.database, &connection, options.time, options.clock.as_ref())?;
        let noted = WatermarkFile::open(&home.database, schema::id_key(&connection)?)?;
        let shared = Arc::new(Shared { noted: Mutex::new(noted), ..Shared::default() });
        wal::checkpoint_on_open(&home.database, &connection, &shared.noted)?;
        let room = match &options.place {
            StoreLocation::Memory => Room::in_memory(),
            StoreLocation::Directory(directory) => Room::of(directory, options.reserve_bytes),
        };
        let reserve = Reserve::allocate(room.clone());
        let reserve_missing_at_start = reserve.missing_bytes();
        let names = crate::dictionary::load(&connection)?;
        let seal = id_seal(schema::id_key(&connection)?);
        let mut live = LiveIndex::default();
        let epoch: i64 = schema::meta(&connection, "epoch")?;
        let lease_floor = LeaseVersion::floor(epoch.max(1).unsigned_abs());
        let engine_options = longshore_engine::EngineOptions { lease_floor, ..options.engine };
        let engine = recover(&connection, engine_options, &names, &mut live)?;
        let chunks = Arc::new(RwLock::new(Chunks::load(&connection)?));
        let (names, live) = (Arc::new(RwLock::new(names)), Arc::new(RwLock::new(live)));
        let checkpoints = match &home.database {
            Location::Memory(_) => Checkpoints::none(),
            Location::File(database) => {
                Checkpoints::start(database, schema::mark(&connection)?, options.time, &shared)?
            }
        };
        let readers = Readers::start(
            options.reader_threads.max(1),
            &home.database,
            &ReaderContext { names: &names, live: &live, chunks: &chunks, seal: &seal },
        )?;
        let ahead = match &home.database {
            Location::Memory(_) => Prefetcher::default(),
            Location::File(_) => Prefetcher::start(&home.database, &shared)?,
        };
        let (mark, totals) = (schema::mark(&connection)?, schema::totals(&connection)?);
        *shared.totals.write().unwrap_or_else(PoisonError::into_inner) = totals;
        let (sender, requests) = mailbox(options.request_queue_max);
        let mut writer = Writer {
            engine,
            records: SqliteRecords::new(connection, names, live, chunks, seal, ahead)?,
            clock: Arc::clone(&options.clock),
            time: options.time,
            shared: Arc::clone(&shared),
            checkpoints,
            reserve,
            location: home.database.clone(),
            give_back: IncrementalVacuum::new(matches!(home.database, Location::File(_)), options.time),
            rng: OsRng::default(),
            effects: Vec::new(),
            dirty_queues: BTreeSet::new(),
            commit_seq: mark,
            totals,
            granting: Granting::new(Arc::new(ReturnToWriter(sender.notices()))),
        };
        writer.keep_leases(seen)?;
        writer.persist_queues()?;
        let work = move || writer.run(requests);
        let thread = Builder::new().name("longshore-write".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        let (requests, writer) = (Some(sender), Some(thread));
        let tickets = AtomicU64::new(0);
        let clock = options.clock;
        Ok(Self { requests, tickets, readers, shared, clock, writer, reserve_missing_at_start, room, home })
    }

    /// Whether an earlier write failed: only a restart helps.
    pub fn poisoned(&self) -> bool {
        self.shared.poisoned()
    }

    /// How much could not be set aside for a full disk when the store was opened. New jobs are refused until that much is free.
    pub fn reserve_missing_at_start(&self) -> Option<u64> {
        self.reserve_missing_at_start
    }

    /// Waits until a write has failed (true) or the store was closed in good health (false). A process that serves a store ends when it fails, with an
    /// exit code that says so.
    pub fn wait_poisoned(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut poisoned = self.shared.poisoned.subscribe();
        async move { poisoned.wait_for(|poisoned| *poisoned).await.is_ok() }
    }

    /// Writes the store, as it is at this moment, into a new directory; work goes on meanwhile.
    pub async fn backup(&self, directory: PathBuf) -> Result<(), StoreError> {
        let location = self.home.database.clone();
        self.readers.run(move |_| crate::backup::backup(&location, &directory)).await
    }

    /// Commits since the store was opened.
    pub fn commits(&self) -> u64 {
        self.shared.commits()
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply)).await?;
        // A writer that dies without a word may have written.
        answer.await.unwrap_or_else(|_| Err(StoreError::unknown(writer_died())))
    }

    /// Hands a request to the writer. On `Err` it was not begun: a writer that is dying takes nothing in any more.
    async fn send(&self, request: Request) -> Result<&Mailbox<Request>, StoreError> {
        let requests = self.requests.as_ref().filter(|_| !self.poisoned()).ok_or(StoreError::Poisoned)?;
        requests.send(request).await.map_err(|_| StoreError::Poisoned)?;
        Ok(requests)
    }
}

fn writer_died() -> Failed {
    Failed("the writer died".to_owned())
}

impl Drop for EmbeddedStore {
    /// Everything that was asked is done and answered before the files are let go.
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
        self.readers.stop();
    }
}

impl Writer {
    /// Queues that the engine brings along are kept like all others, and shown to readers.
    fn persist_queues(&mut self) -> Result<(), StoreError> {
        let queues: Vec<Arc<Queue>> = self.engine.queues().cloned().collect();
        let keep = |writer: &mut Self| {
            writer.records.connection().execute_batch("BEGIN IMMEDIATE")?;
            for queue in &queues {
                writer.records.put_queue(queue)?;
            }
            writer.records.flush()?;
            writer.records.connection().execute_batch("COMMIT")?;
            Ok::<(), RecordsError>(())
        };
        keep(self)?;
        self.records.committed();
        for queue in queues {
            if let Some(report) = self.report(&queue.name) {
                let mut shown = self.shared.queues.write().unwrap_or_else(PoisonError::into_inner);
                shown.insert(queue.name.clone(), report);
            }
        }
        Ok(())
    }
}

pub(crate) fn read_queues(connection: &Connection) -> Result<Vec<Queue>, StoreError> {
    let mut queues = Vec::new();
    let mut select = connection.prepare("SELECT name, record FROM queue ORDER BY name").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("queue"));
    while let Some(row) = rows.next().map_err(sql)? {
        let name: String = row.get(0).map_err(sql)?;
        order.next(name.clone())?;
        let record: Vec<u8> = row.get(1).map_err(sql)?;
        let name = QueueName::new(&name).map_err(|_| damaged("the name of a queue"))?;
        queues.push(codec::policy::decode_queue(name, &record).map_err(|_| damaged("the record of a queue"))?);
    }
    Ok(queues)
}

/// Reads what is alive, and how much has ended.
fn recover(
    connection: &Connection,
    options: longshore_engine::EngineOptions,
    names: &Dictionary,
    live: &mut LiveIndex,
) -> Result<Engine, StoreError> {
    let queues = read_queues(connection)?;
    let mut ended = Vec::new();
    let counts = "SELECT queue, state, jobs FROM ended_count WHERE jobs > 0 ORDER BY queue, state";
    let mut select = connection.prepare(counts).map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("ended_count"));
    while let Some(row) = rows.next().map_err(sql)? {
        let (queue, state, jobs): (String, u8, i64) =
            (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?, row.get(2).map_err(sql)?);
        order.next((queue.clone(), state))?;
        let queue = QueueName::new(&queue).map_err(|_| damaged("the name of a queue"))?;
        let state = StateKind::ALL.get(usize::from(state)).ok_or_else(|| damaged("the counts of ended jobs"))?;
        ended.push((queue, *state, jobs.max(0).unsigned_abs()));
    }
    // Numbers of jobs that are still there need not be noted anywhere else.
    let noted: i64 = schema::meta(connection, "next_number")?;
    let last_ended: Option<i64> =
        connection.query_row("SELECT max(seq) FROM ended", [], |row| row.get(0)).map_err(sql)?;
    let last_workflow: Option<i64> =
        connection.query_row("SELECT max(number) FROM workflow", [], |row| row.get(0)).map_err(sql)?;
    let last = last_ended.max(last_workflow).unwrap_or(0);
    let next_number = noted.max(last.saturating_add(1));
    let mut engine = Engine::rebuild(options, queues, [], ended, next_number.cast_unsigned());
    workflows::with_active_operation(connection)?.into_iter().for_each(|workflow| engine.resume_operation(workflow));
    // One thread reads and checks the records while another puts them in order.
    let (sender, helpings) = sync_channel(64);
    // Emptied helpings go back: new memory for each would cost more than what is put into it.
    let (giver, emptied) = channel();
    std::thread::scope(|scope| {
        let file = || index_records(helpings, &giver, names, &mut engine, live);
        let name = "longshore-recover".to_owned();
        let filing = Builder::new().name(name).spawn_scoped(scope, file).map_err(StoreError::not_applied)?;
        let read = read_records(connection, &sender, &emptied);
        drop(sender);
        let filed = filing.join().unwrap_or_else(|_| Err(damaged("a record, so that reading it failed")));
        read.and(filed)
    })?;
    schema::check_live_jobs(connection, live.jobs())?;
    Ok(engine)
}

/// Some records, one behind the other.
#[derive(Debug, Default)]
struct RecordBlock {
    bytes: Vec<u8>,
    /// Whose they are, and where each ends.
    ends: Vec<(Seq, usize)>,
}

/// Reads all live records, in order, and makes sure that each is what was written.
fn read_records(
    connection: &Connection,
    sender: &SyncSender<RecordBlock>,
    emptied: &Receiver<RecordBlock>,
) -> Result<(), StoreError> {
    const HELPING: usize = 256;
    let mut select = connection.prepare("SELECT seq, record FROM live ORDER BY seq").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("live"));
    let mut helping = RecordBlock::default();
    while let Some(row) = rows.next().map_err(sql)? {
        let seq = Seq(row.get::<_, i64>(0).map_err(sql)?.cast_unsigned());
        order.next(seq)?;
        let sealed = row.get_ref(1).map_err(sql)?.as_blob().ok();
        let record = sealed.and_then(|sealed| codec::verify_checksum(seq.0, sealed).ok());
        helping.bytes.extend_from_slice(record.ok_or_else(|| damaged(&format!("the record of job {seq}")))?);
        helping.ends.push((seq, helping.bytes.len()));
        if helping.ends.len() == HELPING {
            let full = std::mem::replace(&mut helping, emptied.try_recv().unwrap_or_default());
            if sender.send(full).is_err() {
                // The other end has found damage, and says so.
                return Ok(());
            }
        }
    }
    drop(sender.send(helping));
    Ok(())
}

/// Puts the jobs in order, by the heads of their records.
fn index_records(
    helpings: Receiver<RecordBlock>,
    emptied: &Sender<RecordBlock>,
    names: &Dictionary,
    engine: &mut Engine,
    live: &mut LiveIndex,
) -> Result<(), StoreError> {
    let mut heads = Vec::new();
    for mut helping in helpings {
        let mut start = 0;
        for (seq, end) in helping.ends.drain(..) {
            let record = helping.bytes.get(start..end).unwrap_or_default();
            let head = codec::job::decode_head(seq, record, names);
            heads.push(head.map_err(|_| damaged(&format!("the record of job {seq}")))?);
            start = end;
        }
        engine.bulk_load(&heads.iter().map(RecordHeader::outline).collect::<Vec<_>>());
        live.admit(&heads);
        heads.clear();
        helping.bytes.clear();
        drop(emptied.send(helping));
    }
    Ok(())
}

impl Store for EmbeddedStore {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(self.ask(|reply| Request::Submit(Box::new(request), reply)))
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        let ticket = match &park {
            Park::No => None,
            Park::Until(_) => Some(Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))),
        };
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let requests = self.send(Request::Claim(request, ticket, reply)).await?.notices();
            let unpark = || ticket.into_iter().for_each(|ticket| requests.post(Request::Unpark(ticket)));
            // A claim that the writer took to its grave may have been written.
            await_grant(answer, park, unpark).await.unwrap_or_else(|| Err(StoreError::unknown(writer_died())))
        })
    }

    fn parked_claims(&self) -> usize {
        self.shared.parked_claims.load(Ordering::Relaxed)
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        Box::pin(self.ask(move |reply| Request::HoldGrants(hold, reply)))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        Box::pin(self.ask(|reply| Request::Settle(settlements, reply)))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        Box::pin(self.ask(|reply| Request::Heartbeat(heartbeats, reply)))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        Box::pin(self.ask(|reply| Request::Admin(Box::new(command), reply)))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        Box::pin(self.ask(move |reply| Request::Tick(budget, reply)))
    }

    fn wakeups(&self) -> ChangeFeed {
        self.shared.wakeups.subscribe()
    }
}

impl StoreReader for EmbeddedStore {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        let (room, poisoned) = (self.room.clone(), self.poisoned());
        Box::pin(self.readers.run(move |_| Ok(room.health(poisoned))))
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        Box::pin(self.readers.run(move |reader| reader.get(&jobs)))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        Box::pin(self.readers.run(move |reader| reader.payloads(&jobs)))
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        Box::pin(self.readers.run(move |reader| reader.list(&query)))
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        Box::pin(self.readers.run(move |reader| Ok(reader.ahead(&place))))
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        let totals = *self.shared.totals.read().unwrap_or_else(PoisonError::into_inner);
        Box::pin(async move { Ok(totals) })
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        Box::pin(self.readers.run(move |reader| reader.workflow(id)))
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        Box::pin(self.readers.run(move |reader| reader.workflows(&query)))
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        Box::pin(self.readers.run(move |reader| reader.members(&query)))
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        let queues = self.shared.queues.read().unwrap_or_else(PoisonError::into_inner);
        let found = queues.get(&name).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        let queues = self.shared.queues.read().unwrap_or_else(PoisonError::into_inner);
        let all = queues.values().cloned().collect();
        Box::pin(async move { Ok(all) })
    }
}
