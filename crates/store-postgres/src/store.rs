//! The store: its options, how it opens, and which queue each request goes to.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use longshore_core::ScheduleChange;
use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, WorkerName};
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Effect, Heartbeat, Queue, Settlement, SubmitRequest,
    Submitted, Ticked,
};
use longshore_store::{
    ChangeFeed, Clock, Grant, HitCount, Mailbox, Park, SeenWorker, SettledGrant, Store, StoreError, StoreFuture,
    SystemRefusal, SystemWrite, SystemWritten, TakeBack, Ticket, await_grant, mailbox,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;

use crate::batcher::{self, FallbackQueues, RequestQueue};
use crate::clock::NodeClock;
use crate::connection::{StatementMode, TxBoundary, stmt};
use crate::dispatch::{self, Mail, ReturnToDispatcher};
use crate::error::{ErrorMessage, TxError, error_chain};
use crate::events;
use crate::migrate;
use crate::node::{Node, lock_key};
use crate::notify;
use crate::pool::{self, ConnectSettings};
use crate::request::{
    ClaimResponder, QueuedRequest, RequestSender, Responder, SettleAndClaim, SettledResponder, TxRequest,
};
use crate::retry::{LockWait, TransactionRunner};
use crate::workers;

#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `postgres://user@host/database`
    pub url: String,
    pub schema: String,
    /// Virtual clock. `None`: the database clock.
    pub clock: Option<Arc<dyn Clock>>,
    pub engine: longshore_engine::EngineOptions,
    pub statement_mode: StatementMode,
    /// Connections for reads.
    pub readers: usize,
    /// Workers for submissions, and for settlements. 0: one worker for all requests.
    pub writers: usize,
    /// Length of each request queue. Callers wait while a queue is full.
    pub waiting_max: usize,
    /// Applies missing migrations.
    pub auto_migrate: bool,
    /// How long archived jobs may exceed their retention. With a day or more, whole partitions are
    /// dropped.
    pub retention_slack: Duration,
    /// Allows one node per schema; a second one fails to open.
    pub exclusive: bool,
    /// Longest wait for any response of the database; must exceed the lock timeout.
    pub response_timeout: std::time::Duration,
    /// Runtime for all tasks. `None`: the store starts its own threads.
    pub runtime: Option<Handle>,
    /// Node by stores that go by the same address, on the same runtime; `None`: connections of its
    /// own.
    pub connections: Option<Connections>,
}

/// A connection pool that several stores share.
#[derive(Clone, Debug)]
pub struct Connections(deadpool_postgres::Pool);

impl Connections {
    pub fn new(options: &PostgresOptions, connections: usize) -> Result<Self, StoreError> {
        let settings = pool::settings(&options.url, options.statement_mode == StatementMode::Prepared)?;
        pool::pool(settings, connections).map(Self)
    }
}

impl PostgresOptions {
    /// Parses a URL. Two parameters are not of PostgreSQL: `schema=name`, and `prepared=no` for
    /// poolers that change the session with every transaction.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Self::new(address);
        let mut others = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("schema", name)) => {
                    migrate::check_schema(name)?;
                    options.schema = name.to_owned();
                }
                Some(("prepared", "no")) => options.statement_mode = StatementMode::Unprepared,
                Some(("prepared", "yes")) => options.statement_mode = StatementMode::Prepared,
                Some(("prepared", other)) => {
                    let what = format!("invalid parameter prepared={other} (use yes or no)");
                    return Err(StoreError::not_applied(ErrorMessage(what)));
                }
                Some(_) | None => others.push(parameter),
            }
        }
        if !others.is_empty() {
            options.url = format!("{address}?{}", others.join("&"));
        }
        pool::settings(&options.url, false)?;
        Ok(options)
    }

    /// The URL of the schema for display, without password and connection settings.
    pub fn display_url(&self) -> Result<String, StoreError> {
        let config = pool::settings(&self.url, false)?.config;
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        // The URL has one port for all hosts, or one for each.
        let ports = config.get_ports();
        let hosts = config.get_hosts().iter().enumerate().map(|(at, name)| match ports.get(at).or(ports.first()) {
            Some(port) => format!("{}:{port}", host(name)),
            None => host(name),
        });
        let hosts: Vec<String> = hosts.collect();
        let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
        let database = config.get_dbname().unwrap_or_default();
        Ok(format!("postgres://{user}{}/{database}?schema={}", hosts.join(","), self.schema))
    }

    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "longshore".to_owned(),
            clock: None,
            engine: longshore_engine::EngineOptions::default(),
            statement_mode: StatementMode::Prepared,
            readers: 4,
            writers: 2,
            waiting_max: 4_096,
            auto_migrate: true,
            retention_slack: Duration::from_hours(25),
            exclusive: false,
            response_timeout: std::time::Duration::from_secs(20),
            runtime: None,
            connections: None,
        }
    }
}

#[derive(Debug)]
pub struct PostgresStore {
    pub(crate) node: Arc<Node>,
    pub(crate) handle: Handle,
    queues: QueueSenders,
    /// Long-poll claims.
    dispatcher: Mailbox<Mail>,
    take_back: Arc<dyn TakeBack>,
    tickets: AtomicU64,
    background_tasks: Vec<JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// Connection that holds the lock of [`PostgresOptions::exclusive`].
    _exclusive_lock: Option<tokio_postgres::Client>,
}

/// Where requests are sent, by their kind.
#[derive(Debug)]
struct QueueSenders {
    submits: RequestSender,
    claims: RequestSender,
    settles: RequestSender,
    heartbeats: RequestSender,
    admins: RequestSender,
    ticks: RequestSender,
}

/// Requests that wait for locks at the same time.
const LOCK_WAIT_WORKERS: usize = 4;
const BOOTSTRAP_LOCK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// Threads of a store with its own runtime.
const THREADS: usize = 2;

impl PostgresStore {
    /// Opens the store. Blocks the calling thread.
    pub fn open(options: PostgresOptions) -> Result<Self, StoreError> {
        let (runtime, handle) = match &options.runtime {
            Some(handle) => (None, handle.clone()),
            None => {
                let runtime = Builder::new_multi_thread()
                    .worker_threads(THREADS)
                    .thread_name("longshore-postgres")
                    .enable_all()
                    .build()
                    .map_err(StoreError::not_applied)?;
                let handle = runtime.handle().clone();
                (Some(runtime), handle)
            }
        };
        let (answer, opened) = std::sync::mpsc::sync_channel(1);
        let on = handle.clone();
        handle.spawn(async move {
            drop(answer.send(Self::start(options, on).await));
        });
        let gone = || StoreError::not_applied(ErrorMessage("the runtime has shut down".to_owned()));
        let mut store = opened.recv().map_err(|_| gone())??;
        store.runtime = runtime;
        Ok(store)
    }

    /// Opens the store on a runtime.
    pub async fn start(options: PostgresOptions, handle: Handle) -> Result<Self, StoreError> {
        migrate::check_schema(&options.schema)?;
        let settings = pool::settings(&options.url, options.statement_mode == StatementMode::Prepared)?;
        let pool = match &options.connections {
            Some(connections) => connections.0.clone(),
            None => pool::pool(settings.clone(), connections_max(&options))?,
        };
        let virtual_now = options.clock.as_ref().map(|clock| clock.now());
        let client = pool::take(&pool).await.map_err(StoreError::not_applied)?;
        migrate::prepare(&client, &options.schema, options.auto_migrate, virtual_now).await?;
        drop(client);
        let exclusive_lock = if options.exclusive { Some(acquire_exclusive_lock(&options).await?) } else { None };
        let clock = options.clock.clone().map_or_else(NodeClock::database, NodeClock::Virtual);
        let (dispatcher, mail) = mailbox(options.waiting_max);
        let take_back: Arc<dyn TakeBack> = Arc::new(ReturnToDispatcher(dispatcher.notices()));
        let node = Arc::new(Node::new(pool, clock, &options, dispatcher.notices()));
        bootstrap(&node).await?;
        let queues = start_workers(&node, &handle, &options);
        let senders = dispatch::DispatchQueues { claims: queues.claims.clone(), settles: queues.settles.clone() };
        handle.spawn(dispatch::run(Arc::clone(&node), senders, Arc::clone(&take_back), mail));
        let background_tasks = start_background_tasks(&node, &handle, settings);
        Ok(Self {
            node,
            handle,
            queues,
            dispatcher,
            take_back,
            tickets: AtomicU64::new(0),
            background_tasks,
            runtime: None,
            _exclusive_lock: exclusive_lock,
        })
    }

    /// Returns how many batches the fast path has applied, and how many needed the slow path.
    pub fn fast_path(&self) -> HitCount {
        self.node.stats.fast_path()
    }

    /// Stores the virtual time. Blocks the calling thread.
    pub fn save_virtual_time(&self, now: Timestamp) -> Result<(), StoreError> {
        let node = Arc::clone(&self.node);
        let (result, saved) = std::sync::mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let save = async {
                let connection = node.write_connection().await?;
                connection.pipeline(&[stmt!(node.sql.save_virtual_time, now.as_millis())], TxBoundary::None).await
            };
            drop(result.send(save.await.map(drop).map_err(TxError::into_store_error)));
        });
        saved.recv().unwrap_or_else(|_| Err(batcher::closed()))
    }

    /// Runs a task on the runtime of the store.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, TxError>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let task = self.handle.spawn(task);
        Box::pin(async move {
            let result = task.await.map_err(|_| batcher::closed())?;
            result.map_err(TxError::into_store_error)
        })
    }

    async fn request<T>(
        &self,
        queue: &RequestSender,
        request: impl FnOnce(Responder<T>) -> TxRequest,
    ) -> Result<T, StoreError> {
        let (reply, response) = oneshot::channel();
        queue.send(QueuedRequest::new(request(reply))).await.map_err(|_| batcher::closed())?;
        // A worker that was dropped may have committed the request.
        response.await.unwrap_or_else(|_| Err(StoreError::unknown(ErrorMessage("store was closed".to_owned()))))
    }
}

/// Workers, lock waiters, readers, and one each for the fast path, claims, commands, timers,
/// notifications and events.
fn connections_max(options: &PostgresOptions) -> usize {
    2 * options.writers + 6 + LOCK_WAIT_WORKERS + options.readers.max(1)
}

/// Starts the workers, and returns the queues that they serve.
fn start_workers(node: &Arc<Node>, handle: &Handle, options: &PostgresOptions) -> QueueSenders {
    let new_queue = || {
        let (sender, receiver) = mpsc::channel(options.waiting_max.max(1));
        (sender, Arc::new(RequestQueue::new(receiver)))
    };
    let start = |workers: usize, lock_waiters: Option<&RequestSender>| {
        let (sender, queue) = new_queue();
        for _ in 0..workers {
            handle.spawn(batcher::run(Arc::clone(node), Arc::clone(&queue), lock_waiters.cloned()));
        }
        sender
    };
    if options.writers == 0 {
        let all = start(1, None);
        return QueueSenders {
            submits: all.clone(),
            claims: all.clone(),
            settles: all.clone(),
            heartbeats: all.clone(),
            admins: all.clone(),
            ticks: all,
        };
    }
    let (lock_waiters, queue) = new_queue();
    for _ in 0..LOCK_WAIT_WORKERS {
        handle.spawn(batcher::run_lock_waiter(Arc::clone(node), Arc::clone(&queue)));
    }
    let lock_waiters = Some(&lock_waiters);
    let fallback = FallbackQueues { claims: start(1, lock_waiters), settles: start(options.writers, lock_waiters) };
    let (hot_path, queue) = new_queue();
    handle.spawn(batcher::run_hot_path(Arc::clone(node), queue, fallback));
    QueueSenders {
        submits: start(options.writers, lock_waiters),
        claims: hot_path.clone(),
        settles: hot_path.clone(),
        heartbeats: hot_path,
        admins: start(1, lock_waiters),
        ticks: start(1, None),
    }
}

/// Starts the tasks that exchange notifications. In virtual time there is only one node.
fn start_background_tasks(node: &Arc<Node>, handle: &Handle, settings: ConnectSettings) -> Vec<JoinHandle<()>> {
    if node.clock.is_virtual() {
        return Vec::new();
    }
    let name = node.name.clone();
    let mut tasks =
        vec![handle.spawn(notify::send(Arc::clone(node), name.clone())), handle.spawn(notify::poll(Arc::clone(node)))];
    tasks.push(handle.spawn(workers::poll_directives(Arc::clone(node))));
    tasks.push(handle.spawn(events::run(Arc::clone(node))));
    // A pooler delivers no notifications, and its session would keep the LISTEN.
    if node.statement_mode == StatementMode::Prepared {
        tasks.push(handle.spawn(notify::listen(Arc::clone(node), settings, name)));
    }
    tasks
}

/// Counts a long-poll claim until it is answered.
struct WaitingClaim<'a>(&'a AtomicUsize);

impl<'a> WaitingClaim<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitingClaim<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The lock is held as long as the connection is open.
async fn acquire_exclusive_lock(options: &PostgresOptions) -> Result<tokio_postgres::Client, StoreError> {
    let client = migrate::connect(&options.url).await?;
    let text = format!("SELECT pg_try_advisory_lock({})", lock_key(&options.schema) - 3);
    let rows = client
        .query_typed(&text, &[])
        .await
        .map_err(|error| StoreError::not_applied(ErrorMessage(error_chain(&error))))?;
    if rows.first().is_some_and(|row| row.get(0)) {
        return Ok(client);
    }
    let what = format!("schema {} is in use by another server (virtual time allows only one)", options.schema);
    Err(StoreError::not_applied(ErrorMessage(what)))
}

/// Loads the catalog, and creates the queue `default` if it is missing.
async fn bootstrap(node: &Arc<Node>) -> Result<(), StoreError> {
    let mut runner = TransactionRunner::new(Arc::clone(node));
    let name = QueueName::new(Queue::DEFAULT).map_err(|_| StoreError::corrupt("name of a queue"))?;
    let (reply, _answer) = oneshot::channel();
    let catalog = async {
        let connection = runner.connection().await?;
        // One snapshot: another node may be creating the same queue.
        connection.pipeline(&[], TxBoundary::BeginReadOnly).await?;
        let catalog = node.refresh_catalog(&node.catalog(), connection).await?;
        connection.pipeline(&[], TxBoundary::Commit).await?;
        Ok(catalog)
    };
    let catalog = catalog.await.map_err(TxError::into_store_error)?;
    workers::load_directives(node).await.map_err(TxError::into_store_error)?;
    if catalog.queues.contains_key(&name) {
        return Ok(());
    }
    let command = AdminCommand::PutQueue { queue: name, profile: None, overrides: None };
    let lock_wait = LockWait { timeout: BOOTSTRAP_LOCK_TIMEOUT, retries: true };
    let created = runner.execute(&[TxRequest::Admin(Box::new(command), reply)], lock_wait).await;
    created.map(drop).map_err(TxError::into_store_error)
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.background_tasks.iter().for_each(JoinHandle::abort);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Store for PostgresStore {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(self.request(&self.queues.submits, |reply| TxRequest::Submit(Box::new(request), reply)))
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        let Park::Until(_) = park else {
            return Box::pin(self.request(&self.queues.claims, |reply| {
                TxRequest::Claim(request, ClaimResponder::new(reply, Arc::clone(&self.take_back)))
            }));
        };
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move {
            let _waiting = WaitingClaim::new(&self.node.waiting_claims);
            let (reply, answer) = oneshot::channel();
            let reply = ClaimResponder::new(reply, Arc::clone(&self.take_back));
            self.dispatcher.send(Mail::Claim(ticket, request, reply)).await.map_err(|_| batcher::closed())?;
            let dispatcher = self.dispatcher.notices();
            let answer = await_grant(answer, park, || dispatcher.post(Mail::Unpark(ticket))).await;
            answer.unwrap_or_else(|| Err(batcher::closed()))
        })
    }

    fn parked_claims(&self) -> usize {
        self.node.parked_claims.load(Ordering::Relaxed)
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.dispatcher.send(Mail::Hold(hold, reply)).await.map_err(|_| batcher::closed())?;
            answer.await.unwrap_or_else(|_| Err(batcher::closed()))
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        Box::pin(self.request(&self.queues.settles, |reply| TxRequest::Settle(settlements, reply)))
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        let take_back = Arc::clone(&self.take_back);
        let request = SettleAndClaim { settlements, claim: Some(request) };
        Box::pin(self.request(&self.queues.claims, |reply| {
            TxRequest::SettleAndClaim(request, SettledResponder { reply, take_back })
        }))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        Box::pin(self.request(&self.queues.heartbeats, |reply| TxRequest::Heartbeat(heartbeats, reply)))
    }

    fn set_directive(&self, worker: WorkerName, directive: WorkerDirective) -> StoreFuture<'_, ()> {
        let node = Arc::clone(&self.node);
        self.run(async move { workers::set_directive(&node, worker, directive).await })
    }

    fn report_workers(&self, seen: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
        let node = Arc::clone(&self.node);
        self.run(async move { workers::report(&node, seen).await })
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        Box::pin(self.request(&self.queues.admins, |reply| TxRequest::Admin(Box::new(command), reply)))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        Box::pin(self.request(&self.queues.ticks, move |reply| TxRequest::Tick(budget, reply)))
    }

    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        Box::pin(self.request(&self.queues.admins, |reply| TxRequest::System(Box::new(write), reply)))
    }

    fn watch_events(&self) -> StoreFuture<'_, u64> {
        let node = Arc::clone(&self.node);
        self.run(async move { events::watch(&node).await })
    }

    fn announce_schedule(
        &self,
        name: Arc<str>,
        queue: QueueName,
        change: ScheduleChange,
        at: Timestamp,
    ) -> StoreFuture<'_, ()> {
        let node = Arc::clone(&self.node);
        self.run(async move { events::announce(&node, Effect::Schedule { name, queue, change, at }).await })
    }

    fn wakeups(&self) -> ChangeFeed {
        self.node.wakeups.subscribe()
    }
}
