//! The way of requests to the component that serves them.

use std::sync::Arc;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sends requests. Callers wait while it is full; notices never wait. Both arrive in the order in which they were sent.
#[derive(Debug)]
pub struct Mailbox<R> {
    sender: UnboundedSender<Letter<R>>,
    room: Arc<Semaphore>,
}

/// Sends notices only, and does not keep the receiver open.
#[derive(Debug)]
pub struct Notices<R>(WeakUnboundedSender<Letter<R>>);

/// Receives until every [`Mailbox`] is gone.
#[derive(Debug)]
pub struct Letters<R>(UnboundedReceiver<Letter<R>>);

#[derive(Debug)]
struct Letter<R> {
    request: R,
    _room: Option<OwnedSemaphorePermit>,
}

/// Makes a mailbox with room for this many unserved requests.
pub fn mailbox<R>(room: usize) -> (Mailbox<R>, Letters<R>) {
    let (sender, receiver) = unbounded_channel();
    let room = Arc::new(Semaphore::new(room.clamp(1, Semaphore::MAX_PERMITS)));
    (Mailbox { sender, room }, Letters(receiver))
}

impl<R> Clone for Mailbox<R> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), room: Arc::clone(&self.room) }
    }
}

impl<R> Mailbox<R> {
    /// Waits for room. Returns the request if the receiver is gone.
    pub async fn send(&self, request: R) -> Result<(), R> {
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        self.sender.send(Letter { request, _room: room }).map_err(|unsent| unsent.0.request)
    }

    pub fn notices(&self) -> Notices<R> {
        Notices(self.sender.downgrade())
    }
}

impl<R> Clone for Notices<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Notices<R> {
    /// Sends at once. A notice to a receiver that is gone is dropped: there is nothing left to tell.
    pub fn post(&self, notice: R) {
        if let Some(sender) = self.0.upgrade() {
            drop(sender.send(Letter { request: notice, _room: None }));
        }
    }
}

impl<R> Letters<R> {
    pub fn blocking_recv(&mut self) -> Option<R> {
        self.0.blocking_recv().map(|letter| letter.request)
    }

    pub async fn recv(&mut self) -> Option<R> {
        self.0.recv().await.map(|letter| letter.request)
    }

    /// The next request, if one is there.
    pub fn try_recv(&mut self) -> Result<R, TryRecvError> {
        self.0.try_recv().map(|letter| letter.request)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
