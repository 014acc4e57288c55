//! Hints between nodes: a node tells the others which of its queues have new work, and that jobs have ended. Nothing depends on them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_core::id::QueueName;
use longshore_core::state::StateKind;
use longshore_engine::Effect;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Config, NoTls};

use crate::connection::{TxBoundary, stmt};
use crate::node::Shared;

/// Hints of so much time share one notification: each takes a lock of the whole server.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a node looks by itself.
const POLL: Duration = Duration::from_millis(500);
/// After a listener was cut off.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// Longer lists say "any".
const QUEUES_MAX: usize = 64;
/// Longest hint that is sent; PostgreSQL takes 8,000 bytes.
const BYTES_MAX: usize = 7_000;

/// What other nodes have not been told yet.
#[derive(Debug, Default)]
pub(crate) struct NotifyQueue {
    news: Mutex<PendingNotification>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct PendingNotification {
    queues: BTreeSet<QueueName>,
    ended: bool,
}

impl NotifyQueue {
    pub(crate) fn note(&self, effects: &[Effect]) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = news.queues.is_empty() && !news.ended;
        for effect in effects {
            match effect {
                Effect::Moved { queue, step, .. } if step.to == StateKind::Scheduled => news.add(queue),
                Effect::Moved { step, .. } => news.ended |= step.to.terminal(),
                Effect::Claimable(queue) => news.add(queue),
            }
        }
        if quiet && (news.ended || !news.queues.is_empty()) {
            self.bell.notify_one();
        }
    }

    fn take(&self) -> PendingNotification {
        std::mem::take(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PendingNotification {
    fn add(&mut self, queue: &QueueName) {
        if !self.queues.contains(queue) && self.queues.len() <= QUEUES_MAX {
            self.queues.insert(queue.clone());
        }
    }

    /// `node`, whether jobs ended, and queues, by spaces; no queue is any.
    fn payload(self, node: &str) -> String {
        let ended = if self.ended { "+" } else { "-" };
        let queues: Vec<&str> = self.queues.iter().map(QueueName::as_str).collect();
        let words = format!("{node} {ended} {}", queues.join(" "));
        if self.queues.len() > QUEUES_MAX || words.len() > BYTES_MAX { format!("{node} + *") } else { words }
    }
}

/// Sends hints, a few times a second at most.
pub(crate) async fn send(shared: Arc<Shared>, node: String) {
    let mut link = None;
    loop {
        shared.notices.bell.notified().await;
        tokio::time::sleep(PAUSE).await;
        let words = shared.notices.take().payload(&node);
        if link.is_none() {
            link = shared.link().await.ok();
        }
        let Some(open) = &link else { continue };
        let sent = open.pipeline(&[stmt!(shared.sql.notify, channel(&shared.schema), words)], TxBoundary::None).await;
        if sent.is_err()
            && let Some(broken) = link.take()
        {
            broken.discard();
        }
    }
}

fn channel(schema: &str) -> String {
    format!("longshore_{schema}")
}

/// Hears the hints of other nodes.
pub(crate) async fn listen(shared: Arc<Shared>, config: Config, node: String) {
    loop {
        if let Err(error) = listen_once(&shared, &config, &node).await {
            tracing::debug!(error = %crate::error::error_chain(&error), "the listener for hints was cut off");
        }
        // Whatever was said meanwhile was missed.
        shared.believed.invalidate_all();
        shared.stir_all();
        shared.wakeups.publish_lagged();
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_once(shared: &Shared, config: &Config, node: &str) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let text = format!("LISTEN {}", channel(&shared.schema));
    let asked = client.batch_execute(&text);
    let mut asked = std::pin::pin!(asked);
    let mut listening = false;
    loop {
        tokio::select! {
            answered = &mut asked, if !listening => {
                answered?;
                listening = true;
            }
            message = std::future::poll_fn(|context| connection.poll_message(context)) => match message {
                Some(Ok(AsyncMessage::Notification(note))) => on_notification(shared, node, note.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
        }
    }
}

fn on_notification(shared: &Shared, node: &str, words: &str) {
    let mut words = words.split(' ');
    if words.next() == Some(node) {
        return;
    }
    let ended = words.next() == Some("+");
    let (mut effects, known): (Vec<Effect>, _) = (Vec::new(), shared.known());
    for word in words {
        match QueueName::new(word) {
            Ok(queue) => {
                known.queue_id(&queue).into_iter().for_each(|line| shared.believed.invalidate_queue(line));
                shared.stir_queue(&queue);
                effects.push(Effect::Claimable(queue));
            }
            Err(_) => {
                shared.believed.invalidate_all();
                shared.stir_all();
                return shared.wakeups.publish_lagged();
            }
        }
    }
    shared.wakeups.publish(&mut effects);
    if ended {
        // Somebody may be waiting for just that.
        shared.wakeups.publish_lagged();
    }
}

/// Looks by itself: hints may be lost, and behind some poolers none ever comes.
pub(crate) async fn poll(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(POLL).await;
        shared.stir_all();
        shared.wakeups.publish_lagged();
    }
}
