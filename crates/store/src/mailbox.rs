//! The bounded channel from callers to the component that serves their requests.

use std::sync::Arc;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sends requests. A caller waits while the mailbox is full; notices never wait. Requests and
/// notices arrive in the order in which they were sent.
#[derive(Debug)]
pub struct Mailbox<R> {
    sender: UnboundedSender<Envelope<R>>,
    slots: Arc<Semaphore>,
}

/// Sends notices only. It does not keep the channel open.
#[derive(Debug)]
pub struct NoticeSender<R>(WeakUnboundedSender<Envelope<R>>);

/// Receives until the last [`Mailbox`] is dropped.
#[derive(Debug)]
pub struct MailboxReceiver<R>(UnboundedReceiver<Envelope<R>>);

#[derive(Debug)]
struct Envelope<R> {
    request: R,
    _slot: Option<OwnedSemaphorePermit>,
}

/// Creates a mailbox with this many slots for requests that are not served yet.
pub fn mailbox<R>(slots: usize) -> (Mailbox<R>, MailboxReceiver<R>) {
    let (sender, receiver) = unbounded_channel();
    let slots = Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)));
    (Mailbox { sender, slots }, MailboxReceiver(receiver))
}

impl<R> Clone for Mailbox<R> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), slots: Arc::clone(&self.slots) }
    }
}

impl<R> Mailbox<R> {
    /// Waits for a slot and sends the request. Returns it if the receiver is gone.
    pub async fn send(&self, request: R) -> Result<(), R> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        self.sender.send(Envelope { request, _slot: slot }).map_err(|unsent| unsent.0.request)
    }

    pub fn notices(&self) -> NoticeSender<R> {
        NoticeSender(self.sender.downgrade())
    }
}

impl<R> Clone for NoticeSender<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> NoticeSender<R> {
    /// Sends a notice without waiting. The notice is dropped if the receiver is gone.
    pub fn post(&self, notice: R) {
        if let Some(sender) = self.0.upgrade() {
            drop(sender.send(Envelope { request: notice, _slot: None }));
        }
    }
}

impl<R> MailboxReceiver<R> {
    pub fn blocking_recv(&mut self) -> Option<R> {
        self.0.blocking_recv().map(|envelope| envelope.request)
    }

    pub async fn recv(&mut self) -> Option<R> {
        self.0.recv().await.map(|envelope| envelope.request)
    }

    /// Returns the next request if one has arrived.
    pub fn try_recv(&mut self) -> Result<R, TryRecvError> {
        self.0.try_recv().map(|envelope| envelope.request)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
