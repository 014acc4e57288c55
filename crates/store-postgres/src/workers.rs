//! Workers of the fleet: directives, and what nodes have seen of workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobType, QueueName, WorkerName};
use longshore_core::time::Timestamp;
use longshore_store::{ReportedWorker, SeenWorker};
use tokio_postgres::Row;

use crate::connection::{Connection, TxBoundary, get, stmt};
use crate::dispatch::Mail;
use crate::error::TxError;
use crate::node::Node;

/// Every node reads the directives this often. It must be below `DIRECTIVE_LAG_MAX`.
const DIRECTIVES_INTERVAL: Duration = Duration::from_secs(1);
/// Rows that are not renewed for this long are deleted.
const KEEP_MS: i64 = 24 * 60 * 60 * 1_000;
/// Time between two deletions of old rows by a node.
const REMOVE_INTERVAL_MS: i64 = 60 * 60 * 1_000;
/// Reported workers that a read returns, those seen last first.
const WORKERS_MAX: i64 = 10_000;

/// When this node deletes old rows next.
#[derive(Debug, Default)]
pub(crate) struct RemovalSchedule(AtomicI64);

impl RemovalSchedule {
    /// Returns whether a deletion is due, and sets the time of the next one.
    fn is_due(&self, now_ms: i64) -> bool {
        let due = self.0.load(Ordering::Relaxed) <= now_ms;
        if due {
            self.0.store(now_ms.saturating_add(REMOVE_INTERVAL_MS), Ordering::Relaxed);
        }
        due
    }
}

/// Reads the directives until the store is closed.
pub(crate) async fn poll_directives(node: Arc<Node>) {
    loop {
        tokio::time::sleep(DIRECTIVES_INTERVAL).await;
        if let Err(error) = load_directives(&node).await {
            tracing::debug!(?error, "directives of workers not read: the last ones stay in force");
        }
    }
}

/// Reads all directives. Parked claims of workers that do not run end.
pub(crate) async fn load_directives(node: &Node) -> Result<(), TxError> {
    let connection = node.read_connection().await?;
    let rows = connection.pipeline(&[stmt!(node.sql.load_directives)], TxBoundary::None).await;
    let rows = keep_or_discard(connection, rows)?;
    let mut directives = HashMap::new();
    for row in rows.iter().flatten() {
        let (name, directive): (String, String) = (get(row, 0)?, get(row, 1)?);
        let damaged = || TxError::Damaged(format!("directive of worker {name}"));
        let worker = WorkerName::new(&name).map_err(|_| damaged())?;
        directives.insert(worker, WorkerDirective::parse(&directive).ok_or_else(damaged)?);
    }
    for worker in node.directives.replace(directives) {
        node.dispatcher.post(Mail::HeldBack(worker));
    }
    Ok(())
}

/// Stores a directive and enforces it on this node.
pub(crate) async fn set_directive(node: &Node, worker: WorkerName, directive: WorkerDirective) -> Result<(), TxError> {
    let connection = node.write_connection().await?;
    let name = worker.as_str().to_owned();
    let call = match directive {
        WorkerDirective::Run => stmt!(node.sql.remove_directive, name),
        WorkerDirective::Quiet | WorkerDirective::Stop => {
            stmt!(node.sql.set_directive, name, directive.as_str().to_owned())
        }
    };
    let stored = connection.pipeline(&[call], TxBoundary::SingleStatement).await;
    keep_or_discard(connection, stored)?;
    node.directives.set(worker.clone(), directive);
    if !node.directives.can_claim(Some(&worker)) {
        node.dispatcher.post(Mail::HeldBack(worker));
    }
    Ok(())
}

/// Stores what this node has seen.
pub(crate) async fn report(node: &Node, seen: Vec<SeenWorker>) -> Result<(), TxError> {
    let now_ms = node.clock.estimate().as_millis();
    let (mut names, mut versions, mut types, mut queues) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut running, mut last_seen) = (Vec::new(), Vec::new());
    for worker in seen {
        names.push(worker.name.as_str().to_owned());
        versions.push(worker.version);
        // Names have no control characters.
        types.push(worker.types.iter().map(JobType::as_str).collect::<Vec<_>>().join("\n"));
        queues.push(worker.queues.iter().map(QueueName::as_str).collect::<Vec<_>>().join("\n"));
        running.push(i64::try_from(worker.running).unwrap_or(i64::MAX));
        last_seen.push(worker.last_seen_at.as_millis());
    }
    let sql = &node.sql;
    let mut calls =
        vec![stmt!(sql.report_workers, node.name.clone(), names, versions, types, queues, running, last_seen, now_ms)];
    if node.worker_removal.is_due(now_ms) {
        calls.push(stmt!(sql.remove_workers, now_ms.saturating_sub(KEEP_MS)));
    }
    let connection = node.write_connection().await?;
    for call in calls {
        let stored = connection.pipeline(&[call], TxBoundary::SingleStatement).await;
        if stored.is_err() {
            return keep_or_discard(connection, stored).map(drop);
        }
    }
    Ok(())
}

/// Returns what other nodes have reported about workers seen since this time.
pub(crate) async fn reported(node: &Node, since: Timestamp) -> Result<Vec<ReportedWorker>, TxError> {
    let connection = node.read_connection().await?;
    let call = stmt!(node.sql.reported_workers, node.name.clone(), since.as_millis(), WORKERS_MAX);
    let rows = connection.pipeline(&[call], TxBoundary::None).await;
    keep_or_discard(connection, rows)?.iter().flatten().map(worker_of).collect()
}

fn worker_of(row: &Row) -> Result<ReportedWorker, TxError> {
    let name: String = get(row, 0)?;
    let damaged = || TxError::Damaged(format!("report about worker {name}"));
    let types = get::<Vec<String>>(row, 2)?.iter().map(|name| JobType::new(name)).collect::<Result<_, _>>();
    let queues = get::<Vec<String>>(row, 3)?.iter().map(|name| QueueName::new(name)).collect::<Result<_, _>>();
    let seen = SeenWorker {
        version: get(row, 1)?,
        types: types.map_err(|_| damaged())?,
        queues: queues.map_err(|_| damaged())?,
        running: u64::try_from(get::<i64>(row, 4)?).unwrap_or(0),
        last_seen_at: Timestamp::from_millis(get(row, 5)?),
        name: WorkerName::new(&name).map_err(|_| damaged())?,
    };
    Ok(ReportedWorker { seen, reported_at: Timestamp::from_millis(get(row, 6)?) })
}

/// Returns the connection to the pool, or closes it after an error.
fn keep_or_discard<T>(connection: Connection, result: Result<T, TxError>) -> Result<T, TxError> {
    if result.is_err() {
        connection.discard();
    }
    result
}
