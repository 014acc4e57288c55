//! What all tasks of a node share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use deadpool_postgres::Pool;
use longshore_core::id::QueueName;
use longshore_core::rng::Rng;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::Effect;
use longshore_store::{DirectiveCache, OsRng, WakeupsSender};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Semaphore;

use crate::archive::ArchiveState;
use crate::catalog::Catalog;
use crate::clock::NodeClock;
use crate::connection::{Connection, StatementMode};
use crate::dispatch::{Mail, ready_jobs};
use crate::error::TxError;
use crate::events::EventReader;
use crate::node_cache::NodeCache;
use crate::notify::NotifyQueue;
use crate::pool;
use crate::statements::Statements;
use crate::stats::NodeStats;
use crate::store::PostgresOptions;
use crate::workers::RemovalSchedule;

/// Queue id under which the totals of the Ocypod API are counted.
pub(crate) const TOTALS_QUEUE: i32 = -1;

#[derive(Debug)]
pub(crate) struct Node {
    pub pool: Pool,
    pub sql: Statements,
    pub schema: String,
    pub statement_mode: StatementMode,
    /// Advisory lock: shared by all writers, exclusive for changes of queues.
    pub lock_key: i64,
    pub engine: longshore_engine::EngineOptions,
    pub clock: NodeClock,
    pub wakeups: WakeupsSender,
    pub notify_queue: NotifyQueue,
    pub events: EventReader,
    pub dispatcher: longshore_store::NoticeSender<Mail>,
    /// Long-poll claims that are not answered yet. At 0, commits do not inform the dispatcher.
    pub waiting_claims: AtomicUsize,
    /// Claims that are parked, for metrics.
    pub parked_claims: AtomicUsize,
    pub archive: ArchiveState,
    pub cache: NodeCache,
    pub stats: NodeStats,
    /// Random; differs after a restart.
    pub name: String,
    pub directives: DirectiveCache,
    pub worker_removal: RemovalSchedule,
    /// How long archived jobs may exceed their retention, so that whole partitions can be dropped.
    pub retention_slack: Duration,
    /// Longest wait for any response of the database.
    pub response_timeout: std::time::Duration,
    /// Listings and look-ups of jobs: they leave connections to everything else.
    pub read_slots: Semaphore,
    /// Timeline of the last connection.
    timeline: AtomicU64,
    catalog: RwLock<Arc<Catalog>>,
    /// The earliest timer that was written since the last tick began.
    deadline: Mutex<Option<Timestamp>>,
}

impl Node {
    pub(crate) fn new(
        pool: Pool,
        clock: NodeClock,
        options: &PostgresOptions,
        dispatcher: longshore_store::NoticeSender<Mail>,
    ) -> Self {
        let schema = &options.schema;
        Self {
            pool,
            sql: Statements::new(schema),
            schema: schema.clone(),
            statement_mode: options.statement_mode,
            lock_key: lock_key(schema),
            engine: options.engine,
            wakeups: if clock.is_virtual() { WakeupsSender::default() } else { WakeupsSender::with_separate_events() },
            clock,
            notify_queue: NotifyQueue::default(),
            events: EventReader::default(),
            dispatcher,
            waiting_claims: AtomicUsize::new(0),
            parked_claims: AtomicUsize::new(0),
            archive: ArchiveState::default(),
            cache: NodeCache::default(),
            stats: NodeStats::default(),
            name: random_name(),
            directives: DirectiveCache::default(),
            worker_removal: RemovalSchedule::default(),
            retention_slack: options.retention_slack,
            response_timeout: options.response_timeout,
            read_slots: Semaphore::new(options.readers.max(1)),
            timeline: AtomicU64::new(0),
            catalog: RwLock::new(Arc::new(Catalog::empty())),
            deadline: Mutex::default(),
        }
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Reads what has changed since `catalog`, and publishes the result.
    pub(crate) async fn refresh_catalog(
        &self,
        catalog: &Catalog,
        connection: &Connection,
    ) -> Result<Arc<Catalog>, TxError> {
        let refreshed = catalog.refresh(connection, &self.sql).await?;
        Ok(self.publish_catalog(refreshed))
    }

    /// Makes a catalog the current one, unless that is newer.
    pub(crate) fn publish_catalog(&self, catalog: Catalog) -> Arc<Catalog> {
        let catalog = Arc::new(catalog);
        let mut current = self.catalog.write();
        if current.version < catalog.version {
            *current = Arc::clone(&catalog);
        }
        catalog
    }

    pub(crate) fn slack_ms(&self) -> i64 {
        i64::try_from(self.retention_slack.as_millis()).unwrap_or(i64::MAX)
    }

    /// Adjusts the clock estimate. Returns the time of the transaction.
    pub(crate) fn sync_clock(&self, database_ms: i64) -> Timestamp {
        self.clock.sync(Timestamp::from_millis(database_ms))
    }

    /// A connection from the pool, for reads.
    pub(crate) async fn read_connection(&self) -> Result<Connection, TxError> {
        let client = pool::take(&self.pool).await.map_err(TxError::ConnectionLost)?;
        Ok(Connection::new(client, self.statement_mode, self.transaction_settings(), self.response_timeout))
    }

    /// Settings that every transaction repeats, because a pooler may give it another session.
    fn transaction_settings(&self) -> &'static str {
        match self.statement_mode {
            StatementMode::Prepared => "",
            StatementMode::Unprepared => pool::SETTINGS_LOCAL,
        }
    }

    /// A connection from the pool, for writes: the timeline of its server is known.
    pub(crate) async fn write_connection(&self) -> Result<Connection, TxError> {
        let mut connection = self.read_connection().await?;
        match connection.read_timeline().await {
            Ok(()) => {
                let timeline = connection.lease_floor;
                let before = self.timeline.fetch_max(timeline, Ordering::Relaxed);
                if timeline > before && self.catalog().version > 0 {
                    tracing::info!(timeline, before, "PostgreSQL failed over to a new primary");
                }
                Ok(connection)
            }
            Err(error) => {
                connection.discard();
                Err(error.lost())
            }
        }
    }

    fn deadline(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.deadline.lock()
    }

    /// Publishes the effects of a committed transaction.
    pub(crate) fn publish_effects(&self, mut effects: Vec<Effect>, deadline: Option<Timestamp>) {
        self.notify_queue.add(&effects);
        if self.catalog().is_watched && effects.iter().any(Effect::is_event) {
            self.notify_queue.add_events();
            self.events.read_soon();
        }
        self.inform_dispatcher(&effects);
        self.wakeups.publish(&mut effects);
        if deadline.is_some() {
            let mut earliest = self.deadline();
            *earliest = earliest.into_iter().chain(deadline).min();
            self.wakeups.publish_next_deadline(*earliest);
        }
    }

    /// Sends the dispatcher the new jobs. A claim that is counted after the check begins its
    /// transaction after the commit, and sees them.
    fn inform_dispatcher(&self, effects: &[Effect]) {
        if self.waiting_claims.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (ready, changed_queues) = ready_jobs(effects);
        if !ready.is_empty() {
            self.dispatcher.post(Mail::Ready(ready));
        }
        changed_queues.into_iter().for_each(|queue| self.dispatcher.post(Mail::QueueChanged(queue)));
    }

    /// Another node may have added jobs to this queue.
    pub(crate) fn on_queue_changed(&self, queue: &QueueName) {
        if self.waiting_claims.load(Ordering::SeqCst) > 0 {
            self.dispatcher.post(Mail::QueueChanged(queue.clone()));
        }
    }

    /// Another node may have added jobs to any queue.
    pub(crate) fn on_all_changed(&self) {
        if self.waiting_claims.load(Ordering::SeqCst) > 0 {
            self.dispatcher.post(Mail::AllChanged);
        }
    }

    /// Forgets the deadline: the tick that begins reads all timers written so far.
    pub(crate) fn begin_tick(&self) {
        *self.deadline() = None;
    }

    pub(crate) fn end_tick(&self, next: Option<Timestamp>) {
        let mut earliest = self.deadline();
        *earliest = earliest.into_iter().chain(next).min();
        self.wakeups.publish_next_deadline(*earliest);
    }
}

/// The node recognises its own notifications and reports by this name.
fn random_name() -> String {
    let mut rng = OsRng::default();
    let rng: &mut dyn Rng = &mut rng;
    format!("{:016x}", rng.next_u64())
}

/// The advisory lock of a schema. The low 32 bits are free for locks of its queues.
pub(crate) fn lock_key(schema: &str) -> i64 {
    crate::row::type_hash(schema) & !0xffff_ffff
}
