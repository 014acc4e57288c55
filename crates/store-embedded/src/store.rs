//! Options of the embedded store, and the store itself.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use longshore_core::ScheduleChange;
use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{LeaseVersion, QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Effect, Heartbeat, Settlement, SubmitRequest, Submitted,
    SystemKind, Ticked,
};
use longshore_store::OsRng;
use longshore_store::clock::monotonic;
use longshore_store::{
    ChangeFeed, Clock, Grant, HitCount, JobQuery, JobRef, Mailbox, MemberQuery, Page, Park, QueuePosition, QueueStats,
    ReportedWorker, SeenWorker, SettledGrant, Store, StoreError, StoreFuture, StoreHealth, StoreMetrics, StoreReader,
    SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten, Ticket, WorkflowPage, WorkflowQuery,
    await_grant, mailbox,
};
use longshore_vfs::{DiskObserver, StoreFiles};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::cache_budget::{CacheBudget, DEFAULT_CACHE_BYTES};
use crate::clock_floor::{self, ClockFloor};
use crate::data_dir::DataDir;
use crate::directives;
use crate::disk_reserve::{DiskReserve, DiskSpace};
use crate::grants::{GrantState, ReturnToWriter};
use crate::indexes::Indexes;
use crate::live_index::LiveIndex;
use crate::meta;
use crate::reader::Readers;
use crate::records::SqliteRecords;
use crate::records::prefetch::Prefetcher;
use crate::recovery::{self, LastStop, OpenCheckpoint};
use crate::request::{ErrorText, ReplySender, WriteRequest};
use crate::schema::{self, ClockMode};
use crate::shared::SharedState;
use crate::sqlite::{Location, Role, map_open_error, set_page_cache};
use crate::sync_policy::SyncPolicy;
use crate::vacuum::IncrementalVacuum;
use crate::wal;
use crate::wal_checkpoint::{CHECKPOINT_MIN_PAGES, CheckpointHandle};
use crate::watermark::WatermarkFile;
use crate::writer::StoreWriter;

/// Where a store keeps its jobs.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// In memory, for tests. The jobs are gone when the store is closed.
    Memory,
    Directory(PathBuf),
}

#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    pub location: StoreLocation,
    pub clock: Arc<dyn Clock>,
    pub clock_mode: ClockMode,
    pub engine: longshore_engine::EngineOptions,
    /// Requests that may wait for the writer. Further callers wait for a free slot.
    pub request_queue_max: usize,
    pub reader_threads: usize,
    /// Size of the disk reserve; 0 disables it.
    pub reserve_bytes: u64,
    /// Syncs every commit. Otherwise commits of claims, plain heartbeats and ticks alone are not
    /// synced before their replies.
    pub sync_claims: bool,
    /// Growth of the WAL file in bytes; 0: with each commit.
    pub wal_chunk_bytes: u64,
    /// WAL pages that start a checkpoint.
    pub checkpoint_pages: i64,
    /// Memory for caches.
    pub cache_bytes: u64,
    /// Sees all writes and syncs, for tests.
    pub disk_observer: Option<Arc<dyn DiskObserver>>,
    /// Runs the prefetch thread. Without it the writer reads the jobs of a claim synchronously.
    pub prefetch_thread: bool,
}

impl EmbeddedOptions {
    pub fn new(location: StoreLocation, clock: Arc<dyn Clock>, clock_mode: ClockMode) -> Self {
        Self {
            location,
            clock,
            clock_mode,
            engine: longshore_engine::EngineOptions::default(),
            request_queue_max: 4_096,
            reader_threads: 2,
            reserve_bytes: 64 << 20,
            sync_claims: false,
            wal_chunk_bytes: 1 << 20,
            checkpoint_pages: CHECKPOINT_MIN_PAGES,
            cache_bytes: DEFAULT_CACHE_BYTES,
            disk_observer: None,
            prefetch_thread: true,
        }
    }
}

#[derive(Debug)]
pub struct EmbeddedStore {
    requests: Option<Mailbox<WriteRequest>>,
    /// Numbers the claims that may park, in order of arrival.
    tickets: AtomicU64,
    readers: Readers,
    shared: Arc<SharedState>,
    clock: Arc<dyn Clock>,
    writer: Option<JoinHandle<()>>,
    reserve_missing_at_start: Option<u64>,
    disk_space: DiskSpace,
    /// Dropped last: it holds the lock of the directory.
    data_dir: DataDir,
}

/// Numbers the in-memory databases: writer and readers open them by name.
static MEMORY_STORES: AtomicU64 = AtomicU64::new(0);

/// What recovery hands to the writer.
struct Recovered {
    connection: Connection,
    engine: longshore_engine::Engine,
    indexes: Arc<Indexes>,
    shared: Arc<SharedState>,
    clock_floor: Option<ClockFloor>,
    checkpoint: OpenCheckpoint,
}

impl EmbeddedStore {
    pub fn open(options: EmbeddedOptions) -> Result<Self, StoreError> {
        let data_dir = match &options.location {
            StoreLocation::Memory => {
                DataDir::memory(format!("longshore-{}", MEMORY_STORES.fetch_add(1, Ordering::Relaxed)))
            }
            StoreLocation::Directory(directory) => DataDir::create(directory)?,
        };
        let database = &data_dir.database;
        let path = match database {
            Location::Memory(name) => Path::new(name),
            Location::File(path) => path,
        };
        let files = StoreFiles::attach(path, options.wal_chunk_bytes, options.disk_observer.clone());
        let Recovered { connection, engine, indexes, shared, clock_floor, checkpoint } =
            recover(&options, database, &files)?;
        let disk_space = match &options.location {
            StoreLocation::Memory => DiskSpace::in_memory(),
            StoreLocation::Directory(directory) => DiskSpace::of(directory, options.reserve_bytes),
        };
        let reserve = DiskReserve::allocate(disk_space.clone());
        let reserve_missing_at_start = reserve.missing_bytes();
        let (commit_seq, totals) = (meta::commit_seq(&connection)?, meta::totals(&connection)?);
        let checkpoints = match database {
            Location::Memory(_) => CheckpointHandle::none(),
            Location::File(path) => CheckpointHandle::start(path, commit_seq, &options, &files, &shared)?,
        };
        let budget = CacheBudget::new(options.cache_bytes, options.reader_threads);
        let readers = Readers::start(options.reader_threads.max(1), database, &indexes, budget)?;
        let prefetcher = match database {
            Location::File(_) if options.prefetch_thread => Prefetcher::start(database, &shared)?,
            Location::File(_) | Location::Memory(_) => Prefetcher::default(),
        };
        shared.set_totals(totals);
        let (sender, requests) = mailbox(options.request_queue_max);
        let mut writer = StoreWriter {
            engine,
            records: SqliteRecords::new(connection, indexes, prefetcher, budget)?,
            clock: Arc::clone(&options.clock),
            clock_mode: options.clock_mode,
            shared: Arc::clone(&shared),
            checkpoints,
            reserve,
            location: database.clone(),
            vacuum: IncrementalVacuum::new(matches!(database, Location::File(_)), options.clock_mode),
            rng: OsRng::default(),
            effects: Vec::new(),
            dirty_queues: BTreeSet::new(),
            commit_seq,
            totals,
            grants: GrantState::new(Arc::new(ReturnToWriter(sender.notices()))),
            syncs: SyncPolicy::new(files, options.sync_claims),
            unsaved_epoch: Some(checkpoint.epoch).filter(|_| checkpoint.is_epoch_unsaved),
        };
        writer.extend_leases(clock_floor)?;
        writer.persist_queues()?;
        let work = move || writer.run(requests);
        let thread = Builder::new().name("longshore-writer".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        let (requests, writer) = (Some(sender), Some(thread));
        let (tickets, clock) = (AtomicU64::new(0), options.clock);
        Ok(Self { requests, tickets, readers, shared, clock, writer, reserve_missing_at_start, disk_space, data_dir })
    }

    /// Returns whether an earlier write failed. Only a restart helps.
    pub fn poisoned(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Returns the bytes that were missing for the disk reserve when the store was opened.
    /// The store rejects new jobs until that much is free.
    pub fn reserve_missing_at_start(&self) -> Option<u64> {
        self.reserve_missing_at_start
    }

    /// Waits until a write fails (true) or the store is closed without a failure (false).
    /// A server exits when it returns true.
    pub fn wait_poisoned(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut poisoned = self.shared.poisoned.subscribe();
        async move { poisoned.wait_for(|poisoned| *poisoned).await.is_ok() }
    }

    /// Writes a snapshot of the store into a new directory. The writer continues meanwhile.
    pub async fn backup(&self, directory: PathBuf) -> Result<(), StoreError> {
        let location = self.data_dir.database.clone();
        self.readers.run(move |_| crate::backup::backup(&location, &directory)).await
    }

    /// Returns the number of commits since the store was opened.
    pub fn commits(&self) -> u64 {
        self.shared.commits()
    }

    async fn call<T>(&self, request: impl FnOnce(ReplySender<T>) -> WriteRequest) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply)).await?;
        // A writer that dies without an answer may have committed.
        answer.await.unwrap_or_else(|_| Err(StoreError::unknown(writer_died())))
    }

    /// Queues a request for the writer. On `Err` the writer has not received it.
    async fn send(&self, request: WriteRequest) -> Result<&Mailbox<WriteRequest>, StoreError> {
        let requests = self.requests.as_ref().filter(|_| !self.poisoned()).ok_or(StoreError::Poisoned)?;
        requests.send(request).await.map_err(|_| StoreError::Poisoned)?;
        Ok(requests)
    }
}

/// Opens the database, checks and checkpoints its WAL, and rebuilds engine and indexes.
fn recover(options: &EmbeddedOptions, database: &Location, files: &Arc<StoreFiles>) -> Result<Recovered, StoreError> {
    let start = monotonic();
    let connection = database.open(Role::Writer).map_err(map_open_error)?;
    let budget = CacheBudget::new(options.cache_bytes, options.reader_threads);
    set_page_cache(&connection, budget.writer_kib()).map_err(map_open_error)?;
    let is_new = schema::prepare(&connection, options.clock_mode)?;
    recovery::check_wal_complete(database, &connection)?;
    let stop = LastStop::find(&connection, is_new)?;
    let clock_floor = clock_floor::apply(database, &connection, options.clock_mode, options.clock.as_ref(), stop)?;
    let watermark = WatermarkFile::open(database, meta::id_key(&connection)?, Arc::clone(files))?;
    let shared = Arc::new(SharedState { watermark: Mutex::new(watermark), ..SharedState::default() });
    let now = options.clock.now();
    let checkpoint = recovery::checkpoint_on_open(database, &connection, &shared.watermark, stop, now, clock_floor)?;
    let dictionary = crate::dictionary::load(&connection)?;
    let lease_floor = LeaseVersion::floor(checkpoint.epoch);
    let engine_options = longshore_engine::EngineOptions { lease_floor, ..options.engine };
    let mut live = LiveIndex::default();
    let engine = recovery::recover(&connection, engine_options, &dictionary, &mut live)?;
    let (live_jobs, elapsed) = (live.jobs(), monotonic() - start);
    if let Location::File(path) = database {
        let wal_frames = checkpoint.wal_frames;
        tracing::info!(path = %path.display(), live_jobs, wal_frames, ?stop, ?elapsed, "store recovered");
    }
    shared.directives.replace(directives::load(&connection)?);
    let indexes = Arc::new(Indexes::load(&connection, dictionary, live)?);
    Ok(Recovered { connection, engine, indexes, shared, clock_floor, checkpoint })
}

fn writer_died() -> ErrorText {
    ErrorText("the writer thread died".to_owned())
}

impl Drop for EmbeddedStore {
    /// Waits until the writer has answered all requests, then closes the files.
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
        self.readers.stop();
    }
}

impl Store for EmbeddedStore {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let requests = self.requests.as_ref().filter(|_| !self.poisoned()).ok_or(StoreError::Poisoned)?;
            // Leases of running jobs must not expire behind a backlog of submissions.
            let sent = requests.send_deferrable(WriteRequest::Submit(Box::new(request), reply)).await;
            sent.map_err(|_| StoreError::Poisoned)?;
            answer.await.unwrap_or_else(|_| Err(StoreError::unknown(writer_died())))
        })
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        let ticket = match &park {
            Park::No => None,
            Park::Until(_) => Some(Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))),
        };
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let requests = self.send(WriteRequest::Claim(request, ticket, reply)).await?.notices();
            let unpark = || ticket.into_iter().for_each(|ticket| requests.post(WriteRequest::Unpark(ticket)));
            // A writer that dies without an answer may have committed the claim.
            await_grant(answer, park, unpark).await.unwrap_or_else(|| Err(StoreError::unknown(writer_died())))
        })
    }

    fn parked_claims(&self) -> usize {
        self.shared.parked_claims.load(Ordering::Relaxed)
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        Box::pin(self.call(move |reply| WriteRequest::HoldGrants(hold, reply)))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        Box::pin(self.call(|reply| WriteRequest::Settle(settlements, reply)))
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        Box::pin(self.call(|reply| WriteRequest::SettleAndClaim(settlements, Some(request), reply)))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        Box::pin(self.call(|reply| WriteRequest::Heartbeat(heartbeats, reply)))
    }

    fn set_directive(&self, worker: WorkerName, directive: WorkerDirective) -> StoreFuture<'_, ()> {
        Box::pin(self.call(move |reply| WriteRequest::Direct(worker, directive, reply)))
    }

    /// One server has all workers in memory.
    fn report_workers(&self, _: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        Box::pin(self.call(|reply| WriteRequest::Admin(Box::new(command), reply)))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        Box::pin(self.call(move |reply| WriteRequest::Tick(budget, reply)))
    }

    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        Box::pin(self.call(|reply| WriteRequest::System(Box::new(write), reply)))
    }

    fn watch_events(&self) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(self.shared.wakeups.mark())))
    }

    fn announce_schedule(
        &self,
        name: Arc<str>,
        queue: QueueName,
        change: ScheduleChange,
        at: Timestamp,
    ) -> StoreFuture<'_, ()> {
        self.shared.wakeups.publish(&mut vec![Effect::Schedule { name, queue, change, at }]);
        Box::pin(std::future::ready(Ok(())))
    }

    fn wakeups(&self) -> ChangeFeed {
        self.shared.wakeups.subscribe()
    }
}

impl StoreReader for EmbeddedStore {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn directive(&self, worker: Option<&WorkerName>) -> WorkerDirective {
        self.shared.directives.get(worker)
    }

    fn reported_workers(&self, _: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn system_records(&self, query: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>> {
        Box::pin(self.readers.run(move |reader| reader.system_records(&query)))
    }

    fn system_version(&self, kind: SystemKind) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(self.shared.system_version(kind))))
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        let (disk_space, poisoned) = (self.disk_space.clone(), self.poisoned());
        Box::pin(self.readers.run(move |_| Ok(disk_space.health(poisoned))))
    }

    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        let (shared, database) = (Arc::clone(&self.shared), self.data_dir.database.clone());
        Box::pin(self.readers.run(move |_| Ok(metrics(&shared, &database))))
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

    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64> {
        Box::pin(self.readers.run(move |reader| Ok(reader.count_ahead(&position))))
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        let totals = *self.shared.totals.read();
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
        let queues = self.shared.queues.read();
        let found = queues.get(&name).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        let queues = self.shared.queues.read();
        let all = queues.values().cloned().collect();
        Box::pin(async move { Ok(all) })
    }
}

fn metrics(shared: &SharedState, database: &Location) -> StoreMetrics {
    let measured = &shared.metrics;
    let watermark = shared.watermark.lock();
    let watermark_age = watermark.age(measured.commit_seq.load(Ordering::Relaxed));
    let wal_bytes = match database {
        Location::Memory(_) => None,
        Location::File(path) => Some(std::fs::metadata(wal::wal_path(path)).map_or(0, |wal| wal.len())),
    };
    StoreMetrics {
        commit_seconds: Some(measured.commit_seconds.snapshot()),
        batch_commands: Some(measured.batch_commands.snapshot()),
        wal_bytes,
        watermark_age_seconds: watermark_age.map(|age| age.as_secs_f64()),
        cache: Some(HitCount {
            hits: measured.cache_hits.load(Ordering::Relaxed),
            misses: measured.cache_misses.load(Ordering::Relaxed),
        }),
        fast_path: None,
        is_poisoned: shared.is_poisoned(),
    }
}
