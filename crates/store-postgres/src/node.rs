//! What all parts of a node share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use deadpool_postgres::Pool;
use longshore_core::id::QueueName;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::Effect;
use longshore_store::WakeupsSender;

use crate::catalog::Catalog;
use crate::clock::NodeClock;
use crate::connection::{Connection, StatementMode};
use crate::dispatch::{Mail, ready_lines};
use crate::error::TxError;
use crate::node_cache::NodeCache;
use crate::notify::NotifyQueue;
use crate::pool;
use crate::statements::Statements;
use crate::store::Options;
use crate::tick::ArchiveState;

/// The totals of the Ocypod dialect are counted like a queue.
pub(crate) const TOTALS_QUEUE: i32 = -1;

#[derive(Debug)]
pub(crate) struct Shared {
    pub pool: Pool,
    pub sql: Statements,
    pub schema: String,
    pub prepared: StatementMode,
    /// Where transactions meet that change queues.
    pub lock_key: i64,
    pub engine: longshore_engine::EngineOptions,
    pub clock: NodeClock,
    pub wakeups: WakeupsSender,
    pub notices: NotifyQueue,
    /// The dispatcher of waiting claims.
    pub dispatcher: longshore_store::NoticeSender<Mail>,
    /// Claims that may wait and are not answered: while there are none, commits need not tell the dispatcher anything.
    pub waiting_claims: AtomicUsize,
    /// Claims that are parked, for people.
    pub parked_claims: AtomicUsize,
    pub days: ArchiveState,
    pub believed: NodeCache,
    /// Transactions in one trip, and others.
    pub fast_path_stats: [AtomicU64; 2],
    /// How long archived jobs may outstay their retention, so that days go whole.
    pub retention_slack: Duration,
    /// How long any answer of the database is waited for.
    pub patience: std::time::Duration,
    known: RwLock<Arc<Catalog>>,
    /// The earliest timer that was written since the last tick began.
    deadline: Mutex<Option<Timestamp>>,
}

impl Shared {
    pub(crate) fn new(
        pool: Pool,
        clock: NodeClock,
        options: &Options,
        dispatcher: longshore_store::NoticeSender<Mail>,
    ) -> Self {
        let schema = &options.schema;
        Self {
            pool,
            sql: Statements::new(schema),
            schema: schema.clone(),
            prepared: options.prepared,
            lock_key: lock_key(schema),
            engine: options.engine,
            clock,
            wakeups: WakeupsSender::default(),
            notices: NotifyQueue::default(),
            dispatcher,
            waiting_claims: AtomicUsize::new(0),
            parked_claims: AtomicUsize::new(0),
            days: ArchiveState::default(),
            believed: NodeCache::default(),
            fast_path_stats: Default::default(),
            retention_slack: options.retention_slack,
            patience: options.patience,
            known: RwLock::new(Arc::new(Catalog::empty())),
            deadline: Mutex::default(),
        }
    }

    pub(crate) fn known(&self) -> Arc<Catalog> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads again what somebody has changed.
    pub(crate) async fn refresh_catalog(&self, known: &Catalog, link: &Connection) -> Result<Arc<Catalog>, TxError> {
        let learned = known.refresh(link, &self.sql).await?;
        Ok(self.publish_known(learned))
    }

    pub(crate) fn publish_known(&self, learned: Catalog) -> Arc<Catalog> {
        let learned = Arc::new(learned);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.version < learned.version {
            *known = Arc::clone(&learned);
        }
        learned
    }

    pub(crate) fn count_trips(&self, quick: bool) {
        let [quickly, otherwise] = &self.fast_path_stats;
        if quick { quickly } else { otherwise }.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn slack_ms(&self) -> i64 {
        i64::try_from(self.retention_slack.as_millis()).unwrap_or(i64::MAX)
    }

    /// The time of a transaction, by the clock that the store goes by.
    pub(crate) fn time_of(&self, database_ms: i64) -> Timestamp {
        self.clock.sync(Timestamp::from_millis(database_ms))
    }

    /// A connection from the pool, for looking.
    pub(crate) async fn read_connection(&self) -> Result<Connection, TxError> {
        let client = pool::take(&self.pool).await.map_err(TxError::ConnectionLost)?;
        Ok(Connection::new(client, self.prepared, self.begin(), self.patience))
    }

    /// What a transaction is told that its session was not.
    fn begin(&self) -> &'static str {
        match self.prepared {
            StatementMode::Yes => "",
            StatementMode::No => pool::SETTINGS_LOCAL,
        }
    }

    /// A connection from the pool, with what has to be known of its server.
    pub(crate) async fn link(&self) -> Result<Connection, TxError> {
        let mut link = self.read_connection().await?;
        match link.read_timeline().await {
            Ok(()) => Ok(link),
            Err(trouble) => {
                link.discard();
                Err(trouble.lost())
            }
        }
    }

    /// Tells whoever listens what a transaction has done, once it is there to be seen.
    pub(crate) fn announce(&self, mut effects: Vec<Effect>, deadline: Option<Timestamp>) {
        self.notices.note(&effects);
        self.tell_dispatcher(&effects);
        self.wakeups.publish(&mut effects);
        if deadline.is_some() {
            let mut known = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
            *known = known.into_iter().chain(deadline).min();
            self.wakeups.publish_next_deadline(*known);
        }
    }

    /// Tells the dispatcher which lines have new jobs. A claim that begins to wait after this look begins its transaction after the commit.
    fn tell_dispatcher(&self, effects: &[Effect]) {
        if self.waiting_claims.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (ready, stirred) = ready_lines(effects);
        if !ready.is_empty() {
            self.dispatcher.post(Mail::Ready(ready));
        }
        stirred.into_iter().for_each(|queue| self.dispatcher.post(Mail::Stirred(queue)));
    }

    /// Jobs may have come to this queue on another node.
    pub(crate) fn stir_queue(&self, queue: &QueueName) {
        if self.waiting_claims.load(Ordering::SeqCst) > 0 {
            self.dispatcher.post(Mail::Stirred(queue.clone()));
        }
    }

    /// Jobs may have come anywhere.
    pub(crate) fn stir_all(&self) {
        if self.waiting_claims.load(Ordering::SeqCst) > 0 {
            self.dispatcher.post(Mail::AllStirred);
        }
    }

    /// From here on only timers that are written from now on count: the tick that begins sees the others.
    pub(crate) fn begin_tick(&self) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn end_tick(&self, next: Option<Timestamp>) {
        let mut known = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *known = known.into_iter().chain(next).min();
        self.wakeups.publish_next_deadline(*known);
    }
}

/// Every schema has a lock of its own, with room beside it for its queues.
pub(crate) fn lock_key(schema: &str) -> i64 {
    longshore_codec::type_hash(schema) & !0xffff_ffff
}
