//! Notifications between nodes: which queues have new jobs, and whether jobs have finished. They
//! are hints; nothing depends on their delivery.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::id::QueueName;
use longshore_core::state::StateKind;
use longshore_engine::Effect;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use crate::connection::{TxBoundary, stmt};
use crate::node::Node;
use crate::pool::ConnectSettings;

/// Least time between two notifications of a node: each takes a lock of the whole server.
const SEND_INTERVAL: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay before a lost listener reconnects.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// With more queues the notification names all.
const QUEUES_MAX: usize = 64;
/// Longest payload; the limit of PostgreSQL is 8,000 bytes.
const BYTES_MAX: usize = 7_000;

/// What has to be sent to other nodes.
#[derive(Debug, Default)]
pub(crate) struct NotifyQueue {
    pending: Mutex<PendingNotification>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct PendingNotification {
    queues: BTreeSet<QueueName>,
    /// Jobs have finished.
    finished: bool,
    /// Events were appended.
    has_events: bool,
}

impl NotifyQueue {
    fn pending(&self) -> MutexGuard<'_, PendingNotification> {
        self.pending.lock()
    }

    pub(crate) fn add(&self, effects: &[Effect]) {
        let mut pending = self.pending();
        let was_empty = pending.is_empty();
        for effect in effects {
            match effect {
                Effect::Moved { queue, step, .. } if step.to == StateKind::Scheduled => pending.add(queue),
                Effect::Moved { step, .. } => pending.finished |= step.to.terminal(),
                Effect::Claimable(queue) => pending.add(queue),
                Effect::Queue { .. } | Effect::Schedule { .. } => {}
            }
        }
        if was_empty && !pending.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Tells the other nodes that events were appended.
    pub(crate) fn add_events(&self) {
        let mut pending = self.pending();
        let was_empty = pending.is_empty();
        pending.has_events = true;
        if was_empty {
            self.wake.notify_one();
        }
    }

    fn take(&self) -> PendingNotification {
        std::mem::take(&mut self.pending())
    }
}

impl PendingNotification {
    fn is_empty(&self) -> bool {
        self.queues.is_empty() && !self.finished && !self.has_events
    }

    fn add(&mut self, queue: &QueueName) {
        if !self.queues.contains(queue) && self.queues.len() <= QUEUES_MAX {
            self.queues.insert(queue.clone());
        }
    }

    /// Separated by spaces: the node, `+` if jobs have finished, and the queues; `*`: all queues.
    /// `=`: events only.
    fn into_payload(self, node_name: &str) -> String {
        if self.queues.is_empty() && !self.finished {
            return format!("{node_name} =");
        }
        let finished = if self.finished { "+" } else { "-" };
        let queues: Vec<&str> = self.queues.iter().map(QueueName::as_str).collect();
        let payload = format!("{node_name} {finished} {}", queues.join(" "));
        if self.queues.len() > QUEUES_MAX || payload.len() > BYTES_MAX { format!("{node_name} + *") } else { payload }
    }
}

/// Sends notifications, at most one per [`SEND_INTERVAL`].
pub(crate) async fn send(node: Arc<Node>, node_name: String) {
    let mut connection = None;
    loop {
        node.notify_queue.wake.notified().await;
        tokio::time::sleep(SEND_INTERVAL).await;
        let payload = node.notify_queue.take().into_payload(&node_name);
        if connection.is_none() {
            connection = node.write_connection().await.ok();
        }
        let Some(open) = &connection else { continue };
        let call = stmt!(node.sql.notify, channel(&node.schema), payload);
        if open.pipeline(&[call], TxBoundary::None).await.is_err()
            && let Some(broken) = connection.take()
        {
            broken.discard();
        }
    }
}

fn channel(schema: &str) -> String {
    format!("longshore_{schema}")
}

/// Receives the notifications of other nodes.
pub(crate) async fn listen(node: Arc<Node>, settings: ConnectSettings, node_name: String) {
    loop {
        if let Err(error) = listen_once(&node, &settings, &node_name).await {
            tracing::info!(error = %crate::error::error_chain(&error), "lost the LISTEN connection; reconnecting");
        }
        // Notifications may have been missed.
        node.cache.invalidate_all();
        node.on_all_changed();
        node.wakeups.publish_lagged();
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

async fn listen_once(node: &Node, settings: &ConnectSettings, node_name: &str) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = settings.connect().await?;
    let text = format!("LISTEN {}", channel(&node.schema));
    let mut listen = std::pin::pin!(client.batch_execute(&text));
    let mut is_listening = false;
    loop {
        tokio::select! {
            response = &mut listen, if !is_listening => {
                response?;
                is_listening = true;
            }
            message = std::future::poll_fn(|context| connection.poll_message(context)) => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    on_notification(node, node_name, notification.payload());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
        }
    }
}

fn on_notification(node: &Node, node_name: &str, payload: &str) {
    let mut fields = payload.split(' ');
    if fields.next() == Some(node_name) {
        return;
    }
    node.events.read_soon();
    let kind = fields.next();
    if kind == Some("=") {
        return;
    }
    let finished = kind == Some("+");
    let (mut effects, catalog): (Vec<Effect>, _) = (Vec::new(), node.catalog());
    for field in fields {
        let Ok(queue) = QueueName::new(field) else {
            node.cache.invalidate_all();
            node.on_all_changed();
            return node.wakeups.publish_lagged();
        };
        // The notification has no position: the next claim scans the queue in full.
        catalog.queue_id(&queue).into_iter().for_each(|queue_id| node.cache.invalidate_queue(queue_id));
        node.on_queue_changed(&queue);
        effects.push(Effect::Claimable(queue));
    }
    node.wakeups.publish(&mut effects);
    if finished {
        // Callers that wait for the end of a job check it again.
        node.wakeups.publish_lagged();
    }
}

/// Polls, because notifications may be lost, and some poolers deliver none.
pub(crate) async fn poll(node: Arc<Node>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        node.on_all_changed();
        node.wakeups.publish_lagged();
    }
}
