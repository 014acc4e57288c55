//! The store itself: opening it, and the way of every request to its lane.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::QueueName;
use longshore_core::refusal::Refusal;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Queue, Settlement, SubmitRequest, Submitted,
    Ticked,
};
use longshore_store::OsRng;
use longshore_store::{
    ChangeFeed, Clock, Grant, Mailbox, Park, Store, StoreError, StoreFuture, TakeBack, Ticket, await_grant, mailbox,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;

use crate::batcher::{self, BatchWorker, FallbackQueues, RequestQueue};
use crate::clock::NodeClock;
use crate::connection::{StatementMode, TxBoundary, stmt};
use crate::dispatch::{self, Mail, ReturnToDispatcher};
use crate::error::{TxError, error_chain};
use crate::migrate;
use crate::node::{Shared, lock_key};
use crate::notify;
use crate::pool;
use longshore_store::ErrorMessage;
use longshore_store::{ClaimReply, Reply, Request};

#[derive(Clone, Debug)]
pub struct Options {
    /// `postgres://user@host/database`
    pub url: String,
    pub schema: String,
    /// Instead of the database's clock: virtual time.
    pub clock: Option<Arc<dyn Clock>>,
    pub engine: longshore_engine::EngineOptions,
    pub prepared: StatementMode,
    /// Connections for looking.
    pub readers: usize,
    /// Transactions that a node has under way at once, for each of submitting and settling; 0: one at a time, whatever it does.
    pub writers: usize,
    /// Requests that may wait for a lane before the next one has to.
    pub waiting_max: usize,
    /// Brings the schema up to date on the way.
    pub auto_migrate: bool,
    /// How long archived jobs may outstay their retention: then most go a day at a time, and cost nothing.
    pub retention_slack: Duration,
    /// Refuses a schema that another node has open in the same way.
    pub exclusive: bool,
    /// How long any answer of the database is waited for; longer than a lock is.
    pub patience: std::time::Duration,
    /// Where the work is done; `None`: on threads of its own.
    pub runtime: Option<Handle>,
    /// Shared by stores that go by the same address, on the same runtime; `None`: connections of its own.
    pub connections: Option<Connections>,
}

/// Connections that outlive a store.
#[derive(Clone, Debug)]
pub struct Connections(deadpool_postgres::Pool);

impl Connections {
    pub fn new(options: &Options, number: usize) -> Result<Self, StoreError> {
        let config = pool::config(&options.url, options.prepared == StatementMode::Yes)?;
        pool::pool(config, number).map(Self)
    }
}

impl Options {
    /// An address with settings of ours among its parameters: `schema=name`, and `prepared=no` for poolers that hand out another connection with
    /// every transaction.
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
                Some(("prepared", "no")) => options.prepared = StatementMode::No,
                Some(("prepared", "yes")) => options.prepared = StatementMode::Yes,
                Some(("prepared", other)) => {
                    let what = format!("prepared={other}: must be yes or no");
                    return Err(StoreError::not_applied(ErrorMessage(what)));
                }
                Some(_) | None => others.push(parameter),
            }
        }
        if !others.is_empty() {
            options.url = format!("{address}?{}", others.join("&"));
        }
        pool::config(&options.url, false)?;
        Ok(options)
    }

    /// Where the schema is, for people: without a password, and without settings of the connection.
    pub fn place(&self) -> Result<String, StoreError> {
        let config = pool::config(&self.url, false)?;
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        // One port for all hosts, or one for each.
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
            prepared: StatementMode::Yes,
            readers: 4,
            writers: 2,
            waiting_max: 4_096,
            auto_migrate: true,
            retention_slack: Duration::from_hours(25),
            exclusive: false,
            patience: std::time::Duration::from_secs(20),
            runtime: None,
            connections: None,
        }
    }
}

#[derive(Debug)]
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Handle,
    submits: mpsc::Sender<Request>,
    claims: mpsc::Sender<Request>,
    settles: mpsc::Sender<Request>,
    heartbeats: mpsc::Sender<Request>,
    admins: mpsc::Sender<Request>,
    ticks: mpsc::Sender<Request>,
    /// Claims that may wait.
    dispatcher: Mailbox<Mail>,
    take_back: Arc<dyn TakeBack>,
    tickets: AtomicU64,
    background_tasks: Vec<JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// The connection that holds the place of the only node.
    _exclusive_lock: Option<tokio_postgres::Client>,
}

/// Requests that may wait for other transactions at once.
const LOCK_WAIT_WORKERS: usize = 4;
/// Threads of a store that brings its own.
const THREADS: usize = 2;

impl PostgresStore {
    /// Opens the store, from a thread that may wait.
    pub fn open(options: Options) -> Result<Self, StoreError> {
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
        let gone = || StoreError::not_applied(ErrorMessage("the runtime has ended".to_owned()));
        let mut store = opened.recv().map_err(|_| gone())??;
        store.runtime = runtime;
        Ok(store)
    }

    /// Opens the store on the runtime that asks.
    pub async fn start(options: Options, handle: Handle) -> Result<Self, StoreError> {
        migrate::check_schema(&options.schema)?;
        let lanes = options.writers;
        let config = pool::config(&options.url, options.prepared == StatementMode::Yes)?;
        let pool = match &options.connections {
            Some(connections) => connections.0.clone(),
            // Every lane holds one, and every one that waits; so does whoever sends hints.
            None => pool::pool(config.clone(), 2 * lanes + 5 + LOCK_WAIT_WORKERS + options.readers.max(1))?,
        };
        let virtual_now = options.clock.as_ref().map(|clock| clock.now());
        let client = pool::take(&pool).await.map_err(StoreError::not_applied)?;
        migrate::prepare(&client, &options.schema, options.auto_migrate, virtual_now).await?;
        drop(client);
        let place = if options.exclusive { Some(acquire_exclusive_lock(&options).await?) } else { None };
        let clock = options.clock.clone().map_or_else(NodeClock::database, NodeClock::Given);
        let (dispatcher, mail) = mailbox(options.waiting_max);
        let take_back: Arc<dyn TakeBack> = Arc::new(ReturnToDispatcher(dispatcher.notices()));
        let shared = Arc::new(Shared::new(pool, clock, &options, dispatcher.notices()));
        bootstrap(&shared).await?;
        let line = || {
            let (sender, waiting) = mpsc::channel(options.waiting_max.max(1));
            (sender, Arc::new(RequestQueue::new(waiting)))
        };
        let lane = |number: usize, patient: Option<&mpsc::Sender<Request>>| {
            let (sender, waiting) = line();
            for _ in 0..number {
                handle.spawn(batcher::run(Arc::clone(&shared), Arc::clone(&waiting), patient.cloned()));
            }
            sender
        };
        let (submits, claims, settles, heartbeats, admins, ticks) = if lanes == 0 {
            let one = lane(1, None);
            (one.clone(), one.clone(), one.clone(), one.clone(), one.clone(), one)
        } else {
            let (patient, waiting) = line();
            for _ in 0..LOCK_WAIT_WORKERS {
                handle.spawn(batcher::run_lock_waiter(Arc::clone(&shared), Arc::clone(&waiting)));
            }
            let patient = Some(&patient);
            let slow = FallbackQueues { claims: lane(1, patient), settles: lane(lanes, patient) };
            let (work, waiting) = line();
            handle.spawn(batcher::run_hot_path(Arc::clone(&shared), waiting, slow));
            (lane(lanes, patient), work.clone(), work.clone(), work, lane(1, patient), lane(1, None))
        };
        let lanes = dispatch::Lanes { claims: claims.clone(), settles: settles.clone() };
        handle.spawn(dispatch::run(Arc::clone(&shared), lanes, Arc::clone(&take_back), mail));
        let companions = start_companions(&shared, &handle, config);
        Ok(Self {
            shared,
            handle,
            submits,
            claims,
            settles,
            heartbeats,
            admins,
            ticks,
            dispatcher,
            take_back,
            tickets: AtomicU64::new(0),
            background_tasks: companions,
            runtime: None,
            _exclusive_lock: place,
        })
    }

    /// How many transactions took one trip, and how often that was not possible.
    pub fn trips(&self) -> (u64, u64) {
        let [quick, long] = &self.shared.fast_path_stats;
        (quick.load(Ordering::Relaxed), long.load(Ordering::Relaxed))
    }

    /// Notes where virtual time stands, from a thread that may wait.
    pub fn save_virtual_time(&self, now: Timestamp) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let (answer, kept) = std::sync::mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let note = async {
                let link = shared.link().await?;
                link.pipeline(&[stmt!(shared.sql.keep_time, now.as_millis())], TxBoundary::None).await
            };
            drop(answer.send(note.await.map(drop).map_err(TxError::into_store_error)));
        });
        kept.recv().unwrap_or_else(|_| Err(batcher::closed()))
    }

    async fn ask<T>(
        &self,
        lane: &mpsc::Sender<Request>,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        lane.send(request(reply)).await.map_err(|_| batcher::closed())?;
        // A lane that dies without a word may have written.
        answer.await.unwrap_or_else(|_| Err(StoreError::unknown(ErrorMessage("the store was closed".to_owned()))))
    }
}

/// Starts the tasks that exchange hints with other nodes. A virtual clock belongs to one node: it needs none.
fn start_companions(shared: &Arc<Shared>, handle: &Handle, config: tokio_postgres::Config) -> Vec<JoinHandle<()>> {
    if shared.clock.is_virtual() {
        return Vec::new();
    }
    let node = node_name();
    let mut companions = vec![
        handle.spawn(notify::send(Arc::clone(shared), node.clone())),
        handle.spawn(notify::poll(Arc::clone(shared))),
    ];
    // A pooler would deliver no notification, and its session would keep the LISTEN.
    if shared.prepared == StatementMode::Yes {
        companions.push(handle.spawn(notify::listen(Arc::clone(shared), config, node)));
    }
    companions
}

/// Counts a claim while it may wait.
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

/// Holds a lock for as long as its connection lives.
async fn acquire_exclusive_lock(options: &Options) -> Result<tokio_postgres::Client, StoreError> {
    let client = migrate::connect(&options.url).await?;
    let text = format!("SELECT pg_try_advisory_lock({})", lock_key(&options.schema) - 3);
    let rows = client
        .query_typed(&text, &[])
        .await
        .map_err(|error| StoreError::not_applied(ErrorMessage(error_chain(&error))))?;
    if rows.first().is_some_and(|row| row.get(0)) {
        return Ok(client);
    }
    let what = format!("another server has the schema {} open, and only one may in virtual time", options.schema);
    Err(StoreError::not_applied(ErrorMessage(what)))
}

/// Nobody is told this name; it only tells a node's own hints from others'.
fn node_name() -> String {
    let mut rng = OsRng::default();
    let rng: &mut dyn Rng = &mut rng;
    format!("{:016x}", rng.next_u64())
}

/// Learns what is there, and sees to it that the queue `default` is.
async fn bootstrap(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let mut lane = BatchWorker::new(Arc::clone(shared), None);
    let name = QueueName::new(Queue::DEFAULT).map_err(|_| StoreError::corrupt("the name of a queue"))?;
    let (reply, _answer) = oneshot::channel();
    let known = async {
        let link = lane.link().await?;
        // One moment for all of it: another node may be making the same queue.
        link.pipeline(&[], TxBoundary::BeginReadOnly).await?;
        let known = shared.refresh_catalog(&shared.known(), link).await?;
        link.pipeline(&[], TxBoundary::Commit).await?;
        Ok(known)
    };
    let known = known.await.map_err(TxError::into_store_error)?;
    if known.queues.contains_key(&name) {
        return Ok(());
    }
    let command = AdminCommand::PutQueue { queue: name, profile: None, overrides: None };
    let done = lane.run_transaction(&[Request::Admin(Box::new(command), reply)]).await;
    done.map(drop).map_err(TxError::into_store_error)
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
        Box::pin(self.ask(&self.submits, |reply| Request::Submit(Box::new(request), reply)))
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        let Park::Until(_) = park else {
            return Box::pin(self.ask(&self.claims, |reply| {
                Request::Claim(request, ClaimReply::new(reply, Arc::clone(&self.take_back)))
            }));
        };
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move {
            let _waiting = WaitingClaim::new(&self.shared.waiting_claims);
            let (reply, answer) = oneshot::channel();
            let reply = ClaimReply::new(reply, Arc::clone(&self.take_back));
            self.dispatcher.send(Mail::Claim(ticket, request, reply)).await.map_err(|_| batcher::closed())?;
            let dispatcher = self.dispatcher.notices();
            let answer = await_grant(answer, park, || dispatcher.post(Mail::Unpark(ticket))).await;
            answer.unwrap_or_else(|| Err(batcher::closed()))
        })
    }

    fn parked_claims(&self) -> usize {
        self.shared.parked_claims.load(Ordering::Relaxed)
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.dispatcher.send(Mail::Hold(hold, reply)).await.map_err(|_| batcher::closed())?;
            answer.await.unwrap_or_else(|_| Err(batcher::closed()))
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        Box::pin(self.ask(&self.settles, |reply| Request::Settle(settlements, reply)))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        Box::pin(self.ask(&self.heartbeats, |reply| Request::Heartbeat(heartbeats, reply)))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        Box::pin(self.ask(&self.admins, |reply| Request::Admin(Box::new(command), reply)))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        Box::pin(self.ask(&self.ticks, move |reply| Request::Tick(budget, reply)))
    }

    fn wakeups(&self) -> ChangeFeed {
        self.shared.wakeups.subscribe()
    }
}
