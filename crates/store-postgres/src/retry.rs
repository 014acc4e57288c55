//! Executes transactions: which failures are retried, and when a connection is replaced.

use std::sync::Arc;
use std::time::Duration;

use longshore_store::clock::monotonic;
use tracing::Instrument;

use crate::connection::{Connection, TxBoundary, stmt};
use crate::error::{ErrorMessage, TxError};
use crate::node::Node;
use crate::request::TxRequest;
use crate::transaction::{Committed, Transaction, fast_path};

/// Retries after a conflict with another transaction.
const ATTEMPTS_MAX: u32 = 12;
/// Retries after a lock timeout.
const LOCK_TIMEOUT_ATTEMPTS_MAX: u32 = 2;
/// Retries of a transaction that needs the exclusive lock; each waits 50 ms for it.
const EXCLUSIVE_ATTEMPTS_MAX: u32 = 80;
/// Lock timeouts between two searches for frozen nodes that hold the lock.
const FROZEN_CHECK_ATTEMPTS: u32 = 8;
/// A session that holds the lock and waits for its node this long is ended, in milliseconds.
const FROZEN_AFTER_MS: f64 = 2_000.0;
/// Connections that are replaced for one transaction.
const RECONNECTS_MAX: u32 = 4;

/// How a transaction waits for locks of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockWait {
    pub timeout: Duration,
    /// Whether the transaction is retried after a lock timeout.
    pub retries: bool,
}

/// A connection, and the transactions that run on it one after another.
pub(crate) struct TransactionRunner {
    pub node: Arc<Node>,
    connection: Option<Connection>,
}

impl TransactionRunner {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, connection: None }
    }

    /// Executes requests in one optimistic round trip. Returns `None` if nothing was applied.
    pub(crate) async fn execute_fast(&mut self, requests: &[TxRequest]) -> Result<Option<Committed>, TxError> {
        let span = tracing::debug_span!("transaction", path = "fast", requests = requests.len());
        let (node, started) = (Arc::clone(&self.node), monotonic());
        let executed = fast_path::execute(&node, self.connection().await?, requests).instrument(span).await;
        let error = match executed {
            Ok(committed) => {
                node.stats.count_fast_path(committed.is_some());
                if committed.is_some() {
                    node.stats.observe_commit(requests, monotonic().saturating_sub(started));
                }
                return Ok(committed);
            }
            Err(error) => error,
        };
        node.stats.count_fast_path(false);
        self.reset_connection(&error).await;
        match error {
            // Nothing was applied. The slow path retries, and finds out which request is the cause.
            TxError::Conflict(_)
            | TxError::ConnectionLost(_)
            | TxError::Refused(_)
            | TxError::NeedsExclusive
            | TxError::TooLarge
            | TxError::Damaged(_)
            | TxError::NotStorable => Ok(None),
            TxError::Unknown(_) => Err(error),
        }
    }

    /// Executes requests in one regular transaction. Retries only what was certainly not committed.
    pub(crate) async fn execute(&mut self, requests: &[TxRequest], lock_wait: LockWait) -> Result<Committed, TxError> {
        let node = Arc::clone(&self.node);
        let (mut exclusive, mut reconnects, mut attempt) = (false, 0, 0);
        loop {
            let span =
                tracing::debug_span!("transaction", path = "slow", requests = requests.len(), exclusive, attempt);
            let started = monotonic();
            let transaction = Transaction::new(&node, self.connection().await?, exclusive, lock_wait.timeout);
            let error = match transaction.execute(requests).instrument(span).await {
                Ok(committed) => {
                    node.stats.observe_commit(requests, monotonic().saturating_sub(started));
                    return Ok(committed);
                }
                Err(error) => error,
            };
            self.reset_connection(&error).await;
            let lock_timeout = error.is_lock_timeout();
            if lock_timeout && !lock_wait.retries {
                return Err(error);
            }
            match &error {
                TxError::NeedsExclusive if !exclusive => exclusive = true,
                TxError::Conflict(_) if attempt < attempts_max(requests, lock_timeout, exclusive) => {
                    attempt += 1;
                    if lock_timeout && exclusive && attempt.is_multiple_of(FROZEN_CHECK_ATTEMPTS) {
                        self.end_frozen_sessions().await;
                    }
                    back_off(attempt).await;
                }
                TxError::ConnectionLost(message) if reconnects < RECONNECTS_MAX => {
                    reconnects += 1;
                    tracing::info!(error = %message, reconnects, "connection to PostgreSQL lost; reconnecting");
                }
                TxError::NeedsExclusive
                | TxError::Conflict(_)
                | TxError::ConnectionLost(_)
                | TxError::Unknown(_)
                | TxError::Refused(_)
                | TxError::TooLarge
                | TxError::Damaged(_)
                | TxError::NotStorable => return Err(error),
            }
        }
    }

    /// Ends sessions of frozen nodes that hold the lock of the schema.
    ///
    /// PostgreSQL ends a session that is idle in a transaction. It never ends one that waits for
    /// the rest of a `COPY`. Nothing of such a transaction is committed, so its node repeats it.
    async fn end_frozen_sessions(&mut self) {
        let node = Arc::clone(&self.node);
        let Ok(connection) = self.connection().await else { return };
        let call = stmt!(node.sql.end_frozen_sessions, node.lock_key, FROZEN_AFTER_MS);
        match connection.pipeline(&[call], TxBoundary::None).await {
            Ok(rows) => {
                let ended = rows.iter().flatten().count();
                if ended > 0 {
                    tracing::warn!(ended, "ended database sessions of frozen nodes that block a change of queues");
                }
            }
            Err(error) => self.reset_connection(&error).await,
        }
    }

    pub(crate) async fn connection(&mut self) -> Result<&Connection, TxError> {
        if self.connection.as_ref().is_none_or(Connection::is_closed)
            && let Some(closed) = self.connection.replace(self.node.write_connection().await?)
        {
            closed.discard();
        }
        let none = || TxError::ConnectionLost(ErrorMessage("no connection to PostgreSQL".to_owned()));
        self.connection.as_ref().ok_or_else(none)
    }

    /// Rolls back a failed transaction, or discards the connection.
    pub(crate) async fn reset_connection(&mut self, error: &TxError) {
        let usable = match &self.connection {
            Some(connection) if error.connection_usable() => connection.roll_back().await,
            Some(_) | None => false,
        };
        if !usable && let Some(connection) = self.connection.take() {
            connection.discard();
        }
    }
}

/// A tick does not wait for the exclusive lock as long as a change of queues does.
fn attempts_max(requests: &[TxRequest], lock_timeout: bool, exclusive: bool) -> u32 {
    let ticks = requests.iter().any(|request| matches!(request, TxRequest::Tick(..)));
    match (lock_timeout, exclusive) {
        (true, true) if !ticks => EXCLUSIVE_ATTEMPTS_MAX,
        (true, false) => LOCK_TIMEOUT_ATTEMPTS_MAX,
        (true, true) | (false, _) => ATTEMPTS_MAX,
    }
}

/// Exponential backoff with full jitter, at most 128 ms.
async fn back_off(attempt: u32) {
    let mut rng = longshore_store::OsRng::default();
    let rng: &mut dyn longshore_core::rng::Rng = &mut rng;
    let longest = 2_u64.saturating_pow(attempt.min(7));
    tokio::time::sleep(Duration::from_millis(rng.uniform_inclusive(longest))).await;
}
