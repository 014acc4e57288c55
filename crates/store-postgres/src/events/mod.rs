//! Events of all nodes, for the listeners of this one.
//!
//! While a node has listeners, every commit of every node appends its events to the table `events`
//! (`watched` in the settings, part of the catalog). A node with listeners reads them all, its own
//! included: one source has one order, in which the transitions of a job never change places.
//!
//! A read returns the rows that the snapshot of the last read did not see. So each row is read
//! exactly once, whatever the order of commits.

pub(crate) mod codec;

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::Effect;
use longshore_store::{EVENTS_WATCH, ErrorMessage};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::connection::{Connection, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::node::Node;

/// Notifications may be lost: events are also read this often.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Least time between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(5);
/// Time between two renewals of the watch.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Without a renewal, commits append no more events after this time, in milliseconds.
const WATCH_MS: i64 = 90_000;
/// Rows are deleted after this time, in milliseconds.
const KEEP_MS: i64 = 60_000;
/// Time between two attempts to reset a watch that was not renewed.
const UNWATCH_INTERVAL: Duration = Duration::from_secs(15);
/// Pause after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Attempts to get the exclusive lock; each waits up to 50 ms for it.
const LOCK_ATTEMPTS: u32 = 60;

/// What other tasks ask of the reader.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    wake: Notify,
    requests: Mutex<ReaderRequests>,
}

#[derive(Debug, Default)]
struct ReaderRequests {
    watches: Vec<oneshot::Sender<Result<u64, TxError>>>,
    /// A read was requested while the reader is active.
    read: bool,
    is_active: bool,
}

impl EventReader {
    /// Requests a read, if this node has listeners.
    pub(crate) fn read_soon(&self) {
        let mut requests = self.requests.lock();
        if requests.is_active && !std::mem::replace(&mut requests.read, true) {
            self.wake.notify_one();
        }
    }
}

/// Watches events for [`EVENTS_WATCH`]. Returns a mark that follows the events of earlier commits.
pub(crate) async fn watch(node: &Node) -> Result<u64, TxError> {
    if node.wakeups.is_event_source() {
        return Ok(node.wakeups.mark());
    }
    let (reply, answer) = oneshot::channel();
    node.events.requests.lock().watches.push(reply);
    node.events.wake.notify_one();
    let closed = || TxError::ConnectionLost(ErrorMessage("store is closed".to_owned()));
    answer.await.unwrap_or_else(|_| Err(closed()))
}

/// Publishes an event that no transaction of a job has.
pub(crate) async fn announce(node: &Node, event: Effect) -> Result<(), TxError> {
    if node.wakeups.is_event_source() {
        node.wakeups.publish(&mut vec![event]);
        return Ok(());
    }
    let Some(body) = codec::encode(&[event]) else { return Ok(()) };
    let connection = node.write_connection().await?;
    let stored = connection.pipeline(&[stmt!(node.sql.announce_event, body)], TxBoundary::SingleStatement).await;
    if let Err(error) = stored {
        connection.discard();
        return Err(error);
    }
    if node.catalog().is_watched {
        node.notify_queue.add_events();
        node.events.read_soon();
    }
    Ok(())
}

/// An active reader.
struct Session {
    connection: Connection,
    /// The snapshot of the last read.
    snapshot: String,
    renewed_at: Instant,
    read_at: Instant,
}

/// Reads events while this node has listeners, until the store is closed.
pub(crate) async fn run(node: Arc<Node>) {
    let mut until = Instant::now();
    loop {
        // After a failure there are still listeners.
        let waiting = if until > Instant::now() { Vec::new() } else { wait_for_watch(&node).await };
        until = follow(&node, waiting, until).await;
        set_active(&node, false);
        // From here on events are missing: a listener that comes later learns it from its cursor.
        node.wakeups.publish_events_missed();
        if until > Instant::now() {
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

type Waiting = Vec<oneshot::Sender<Result<u64, TxError>>>;

/// Waits until a listener comes. Meanwhile, resets the watch of nodes that are gone.
async fn wait_for_watch(node: &Node) -> Waiting {
    loop {
        let waiting = std::mem::take(&mut node.events.requests.lock().watches);
        if !waiting.is_empty() {
            return waiting;
        }
        tokio::select! {
            () = node.events.wake.notified() => {}
            () = tokio::time::sleep(UNWATCH_INTERVAL) => {
                if node.catalog().is_watched {
                    unwatch(node).await;
                }
            }
        }
    }
}

async fn unwatch(node: &Node) {
    let Ok(connection) = node.write_connection().await else { return };
    if connection.pipeline(&[stmt!(node.sql.unwatch_events)], TxBoundary::SingleStatement).await.is_err() {
        connection.discard();
    }
}

fn set_active(node: &Node, is_active: bool) {
    let mut requests = node.events.requests.lock();
    (requests.is_active, requests.read) = (is_active, false);
}

/// Publishes events until no listener has come for [`EVENTS_WATCH`], or until a failure. Returns
/// when the watch ends.
async fn follow(node: &Node, mut waiting: Waiting, mut until: Instant) -> Instant {
    if !waiting.is_empty() {
        until = Instant::now() + EVENTS_WATCH;
    }
    let mut session = match begin(node).await {
        Ok(session) => session,
        Err(error) => {
            tracing::info!(?error, "events of other nodes cannot be read; will retry");
            fail(waiting, &error);
            return until;
        }
    };
    set_active(node, true);
    loop {
        if !waiting.is_empty() {
            until = Instant::now() + EVENTS_WATCH;
        }
        if until <= Instant::now() {
            return until;
        }
        node.events.requests.lock().read = false;
        if let Err(error) = session.advance(node).await {
            tracing::info!(?error, "lost events of other nodes; reconnecting");
            session.connection.discard();
            fail(waiting, &error);
            return until;
        }
        if !waiting.is_empty() {
            let mark = node.wakeups.mark();
            waiting.into_iter().for_each(|reply| drop(reply.send(Ok(mark))));
        }
        tokio::select! {
            () = node.events.wake.notified() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        waiting = std::mem::take(&mut node.events.requests.lock().watches);
        if waiting.is_empty() {
            // Commits of a busy node share a read.
            tokio::time::sleep_until(session.read_at + READ_INTERVAL).await;
        }
    }
}

fn fail(waiting: Waiting, error: &TxError) {
    let message = format!("events cannot be read: {error:?}");
    for reply in waiting {
        drop(reply.send(Err(TxError::ConnectionLost(ErrorMessage(message.clone())))));
    }
}

/// Makes all nodes append their events, then takes the first snapshot.
async fn begin(node: &Node) -> Result<Session, TxError> {
    let mut attempt = 0;
    loop {
        let connection = node.write_connection().await?;
        let error = match switch_on(node, &connection).await {
            Ok(snapshot) => {
                let now = Instant::now();
                return Ok(Session { connection, snapshot, renewed_at: now, read_at: now });
            }
            Err(error) => error,
        };
        connection.discard();
        attempt += 1;
        if attempt >= LOCK_ATTEMPTS || !matches!(error, TxError::Conflict(_)) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(u64::from(attempt.min(20)))).await;
    }
}

async fn switch_on(node: &Node, connection: &Connection) -> Result<String, TxError> {
    let sql = &node.sql;
    let renewed = connection.pipeline(&[stmt!(sql.renew_watch, WATCH_MS)], TxBoundary::SingleStatement).await?;
    if renewed.iter().flatten().next().is_none() {
        // No transaction is in flight under the exclusive lock: all later ones see the watch.
        let begin = stmt!(sql.begin, true, node.lock_key, false, None::<i64>);
        connection.pipeline(&[begin], TxBoundary::Begin).await?;
        connection.pipeline(&[stmt!(sql.watch_events, WATCH_MS)], TxBoundary::Commit).await?;
    }
    let rows = connection.pipeline(&[stmt!(sql.events_snapshot)], TxBoundary::SingleStatement).await?;
    let row = rows.iter().flatten().next().ok_or_else(|| TxError::Damaged("snapshot".to_owned()))?;
    get(row, 0)
}

impl Session {
    /// Reads new events and publishes them. Renews the watch from time to time.
    async fn advance(&mut self, node: &Node) -> Result<(), TxError> {
        let sql = &node.sql;
        self.read_at = Instant::now();
        let call = stmt!(sql.read_events, self.snapshot.clone());
        let rows = self.connection.pipeline(&[call], TxBoundary::SingleStatement).await?;
        let mut events = Vec::new();
        for row in rows.iter().flatten() {
            self.snapshot = get(row, 0)?;
            let Some(body) = get::<Option<Vec<u8>>>(row, 1)? else { continue };
            events.append(&mut codec::decode(&body).ok_or_else(|| TxError::Damaged("events".to_owned()))?);
        }
        node.wakeups.publish_events(events);
        if self.renewed_at.elapsed() >= RENEW_INTERVAL {
            self.renewed_at = Instant::now();
            let calls = [stmt!(sql.renew_watch, WATCH_MS), stmt!(sql.remove_events, KEEP_MS)];
            let rows = self.connection.pipeline(&calls, TxBoundary::None).await?;
            if rows.first().is_none_or(Vec::is_empty) {
                // Another node has reset the watch: commits since then have appended nothing.
                return Err(TxError::ConnectionLost(ErrorMessage("the watch has expired".to_owned())));
            }
        }
        Ok(())
    }
}
