//! The requests that callers send to the component that changes jobs, and its responses.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::error_message::ErrorMessage;
use crate::grant::{Grant, TakeBack};
use crate::parked::Ticket;
use crate::store::ClaimedJob;

/// Sends the response to one caller.
pub type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Sends the response to a claim. Leases that do not reach the caller are returned to the store.
#[derive(Debug)]
pub struct ClaimReply {
    reply: Reply<Result<Grant, Refusal>>,
    take_back: Arc<dyn TakeBack>,
    ticket: Option<Ticket>,
}

impl ClaimReply {
    pub fn new(reply: Reply<Result<Grant, Refusal>>, take_back: Arc<dyn TakeBack>) -> Self {
        Self { reply, take_back, ticket: None }
    }

    /// Lets the claim be parked under this ticket.
    #[must_use]
    pub fn parking(self, ticket: Option<Ticket>) -> Self {
        Self { ticket, ..self }
    }

    /// Returns the ticket of a claim that may be parked.
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Whether the caller has stopped waiting.
    pub fn is_closed(&self) -> bool {
        self.reply.is_closed()
    }

    /// Sends claimed jobs, or the refusal of the claim.
    pub fn send(self, response: Result<Vec<ClaimedJob>, Refusal>) {
        let take_back = self.take_back;
        drop(self.reply.send(Ok(response.map(|jobs| Grant::new(jobs, take_back)))));
    }

    /// Passes on a response that was made elsewhere, with its grant.
    pub fn forward(self, response: Result<Result<Grant, Refusal>, StoreError>) {
        drop(self.reply.send(response));
    }

    pub fn fail(self, error: StoreError) {
        drop(self.reply.send(Err(error)));
    }
}

/// A request with the channel for its response.
pub enum Request {
    Submit(Box<SubmitRequest>, Reply<Result<Vec<Submitted>, BatchRefusal>>),
    Claim(ClaimRequest, ClaimReply),
    Settle(Vec<Settlement>, Reply<Vec<Result<StateKind, Refusal>>>),
    Heartbeat(Vec<Heartbeat>, Reply<Vec<Result<LeaseRenewal, Refusal>>>),
    Admin(Box<AdminCommand>, Reply<Result<AdminResponse, Refusal>>),
    Tick(NonZeroUsize, Reply<Ticked>),
}

/// Payloads and tokens stay out of logs.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request")
    }
}

/// The response to a request. The store sends it when the change is durable.
#[derive(Debug)]
pub enum Response {
    Submit(Result<Vec<Submitted>, BatchRefusal>),
    Claim(Result<Vec<ClaimedJob>, Refusal>),
    Settle(Vec<Result<StateKind, Refusal>>),
    Heartbeat(Vec<Result<LeaseRenewal, Refusal>>),
    Admin(Result<AdminResponse, Refusal>),
    Tick(Ticked),
}

impl Request {
    pub fn is_claim(&self) -> bool {
        match self {
            Self::Claim(..) => true,
            Self::Submit(..) | Self::Settle(..) | Self::Heartbeat(..) | Self::Admin(..) | Self::Tick(..) => false,
        }
    }

    /// Whether this is a claim whose caller has stopped waiting. Such a claim leases nothing.
    pub fn is_abandoned(&self) -> bool {
        match self {
            Self::Claim(_, reply) => reply.is_closed(),
            Self::Submit(..) | Self::Settle(..) | Self::Heartbeat(..) | Self::Admin(..) | Self::Tick(..) => false,
        }
    }

    /// Returns the number of commands in the request, which bounds the size of a commit.
    pub fn commands(&self) -> usize {
        match self {
            Self::Submit(request, _) => request.batch.len(),
            Self::Claim(request, _) => request.limit,
            Self::Settle(settlements, _) => settlements.len(),
            Self::Heartbeat(heartbeats, _) => heartbeats.len(),
            Self::Admin(..) | Self::Tick(..) => 1,
        }
    }

    /// Sends the response. A caller that has stopped waiting is ignored: its change stays applied.
    pub fn answer(self, response: Response) {
        match (self, response) {
            (Self::Submit(_, reply), Response::Submit(value)) => drop(reply.send(Ok(value))),
            (Self::Claim(_, reply), Response::Claim(value)) => reply.send(value),
            (Self::Settle(_, reply), Response::Settle(value)) => drop(reply.send(Ok(value))),
            (Self::Heartbeat(_, reply), Response::Heartbeat(value)) => drop(reply.send(Ok(value))),
            (Self::Admin(_, reply), Response::Admin(value)) => drop(reply.send(Ok(value))),
            (Self::Tick(_, reply), Response::Tick(value)) => drop(reply.send(Ok(value))),
            (request, _) => request.fail(StoreError::unknown(ErrorMessage::new("the response is of another request"))),
        }
    }

    /// Sends an error.
    pub fn fail(self, error: StoreError) {
        match self {
            Self::Submit(_, reply) => drop(reply.send(Err(error))),
            Self::Claim(_, reply) => reply.fail(error),
            Self::Settle(_, reply) => drop(reply.send(Err(error))),
            Self::Heartbeat(_, reply) => drop(reply.send(Err(error))),
            Self::Admin(_, reply) => drop(reply.send(Err(error))),
            Self::Tick(_, reply) => drop(reply.send(Err(error))),
        }
    }
}
