//! The bounded channel from callers to the component that serves their requests.
//!
//! Under overload the order of arrival would let heartbeats and settlements wait behind a backlog
//! of submissions until leases expire. Submissions are therefore sent as deferrable requests.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Urgent requests that may pass a deferrable one before it is served.
const PASSES_MAX: usize = 64;

/// Sends requests. A caller waits while the mailbox is full; notices never wait. Urgent requests
/// and notices arrive in the order in which they were sent, and so do deferrable requests. Urgent
/// ones pass those that wait, up to 64 in a row.
#[derive(Debug)]
pub struct Mailbox<R> {
    sender: UnboundedSender<Envelope<R>>,
    slots: Arc<Semaphore>,
    /// Slots of their own, so that a backlog does not keep urgent requests out.
    deferrable_slots: Arc<Semaphore>,
}

/// Sends notices only. It does not keep the channel open.
#[derive(Debug)]
pub struct NoticeSender<R>(WeakUnboundedSender<Envelope<R>>);

/// Receives until the last [`Mailbox`] is dropped.
#[derive(Debug)]
pub struct MailboxReceiver<R> {
    arriving: UnboundedReceiver<Envelope<R>>,
    /// Deferrable requests that have arrived, in their order.
    deferred: VecDeque<Envelope<R>>,
    /// Urgent requests since the last deferrable one, while some were deferred.
    passes: usize,
}

#[derive(Debug)]
struct Envelope<R> {
    request: R,
    is_deferrable: bool,
    _slot: Option<OwnedSemaphorePermit>,
}

/// Creates a mailbox with this many slots for requests that are not served yet, and as many for
/// deferrable ones.
pub fn mailbox<R>(slots: usize) -> (Mailbox<R>, MailboxReceiver<R>) {
    let (sender, arriving) = unbounded_channel();
    let new_slots = || Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)));
    let mailbox = Mailbox { sender, slots: new_slots(), deferrable_slots: new_slots() };
    (mailbox, MailboxReceiver { arriving, deferred: VecDeque::new(), passes: 0 })
}

impl<R> Clone for Mailbox<R> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            slots: Arc::clone(&self.slots),
            deferrable_slots: Arc::clone(&self.deferrable_slots),
        }
    }
}

impl<R> Mailbox<R> {
    /// Waits for a slot and sends an urgent request. Returns it if the receiver is gone.
    pub async fn send(&self, request: R) -> Result<(), R> {
        self.send_as(request, false, &self.slots).await
    }

    /// Like [`Self::send`], for a request that waits while there are urgent ones.
    pub async fn send_deferrable(&self, request: R) -> Result<(), R> {
        self.send_as(request, true, &self.deferrable_slots).await
    }

    async fn send_as(&self, request: R, is_deferrable: bool, slots: &Arc<Semaphore>) -> Result<(), R> {
        let slot = Arc::clone(slots).acquire_owned().await.ok();
        self.sender.send(Envelope { request, is_deferrable, _slot: slot }).map_err(|unsent| unsent.0.request)
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
            drop(sender.send(Envelope { request: notice, is_deferrable: false, _slot: None }));
        }
    }
}

impl<R> MailboxReceiver<R> {
    pub fn blocking_recv(&mut self) -> Option<R> {
        match self.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Empty) => self.arriving.blocking_recv().map(|envelope| envelope.request),
            Err(TryRecvError::Disconnected) => None,
        }
    }

    pub async fn recv(&mut self) -> Option<R> {
        match self.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Empty) => self.arriving.recv().await.map(|envelope| envelope.request),
            Err(TryRecvError::Disconnected) => None,
        }
    }

    /// Returns the next request if one has arrived: an urgent one if possible.
    pub fn try_recv(&mut self) -> Result<R, TryRecvError> {
        while self.passes < PASSES_MAX || self.deferred.is_empty() {
            match self.arriving.try_recv() {
                Ok(envelope) if envelope.is_deferrable => self.deferred.push_back(envelope),
                Ok(envelope) => {
                    self.passes = if self.deferred.is_empty() { 0 } else { self.passes + 1 };
                    return Ok(envelope.request);
                }
                Err(error) if self.deferred.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        self.passes = 0;
        self.deferred.pop_front().map(|envelope| envelope.request).ok_or(TryRecvError::Empty)
    }

    pub fn is_empty(&self) -> bool {
        self.arriving.is_empty() && self.deferred.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(receiver: &mut MailboxReceiver<u32>) -> Vec<u32> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[tokio::test]
    async fn urgent_requests_and_notices_pass_deferrable_ones() {
        let (mailbox, mut receiver) = mailbox(8);
        for request in [10, 11, 12] {
            mailbox.send_deferrable(request).await.unwrap();
        }
        mailbox.send(1).await.unwrap();
        mailbox.notices().post(2);
        mailbox.send(3).await.unwrap();
        assert!(!receiver.is_empty());
        assert_eq!(rest(&mut receiver), [1, 2, 3, 10, 11, 12], "each kind in its order");
        assert!(receiver.is_empty());
        mailbox.send_deferrable(13).await.unwrap();
        drop(mailbox);
        assert_eq!(receiver.recv().await, Some(13), "a closed mailbox is emptied first");
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn a_stream_of_urgent_requests_does_not_starve_the_others() {
        let (mailbox, mut receiver) = mailbox(1_000);
        mailbox.send_deferrable(1_000).await.unwrap();
        mailbox.send_deferrable(1_001).await.unwrap();
        for request in 0..300 {
            mailbox.send(request).await.unwrap();
        }
        let order = rest(&mut receiver);
        let place = |request: u32| order.iter().position(|found| *found == request).unwrap();
        assert_eq!((place(1_000), place(1_001)), (PASSES_MAX, 2 * PASSES_MAX + 1));
        assert_eq!(order.len(), 302);
    }

    #[tokio::test]
    async fn a_full_backlog_keeps_no_urgent_request_out() {
        let (mailbox, mut receiver) = mailbox(1);
        mailbox.send_deferrable(10).await.unwrap();
        let mut waits = Box::pin(mailbox.send_deferrable(11));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending(), "the only slot is taken");
        mailbox.send(1).await.unwrap();
        assert_eq!(receiver.recv().await, Some(1));
        assert_eq!(receiver.recv().await, Some(10));
        waits.await.unwrap();
        assert_eq!(receiver.recv().await, Some(11));
    }
}
