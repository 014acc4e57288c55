//! What callers wait for, and what they are told.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_store::{ClaimedJob, Grant, StoreError, TakeBack};
use tokio::sync::oneshot;

use crate::error::ErrorMessage;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// The caller's end of a claim. Jobs that do not reach it are given back.
#[derive(Debug)]
pub(crate) struct ClaimReply {
    reply: Reply<Result<Grant, Refusal>>,
    take_back: Arc<dyn TakeBack>,
}

impl ClaimReply {
    pub(crate) fn new(reply: Reply<Result<Grant, Refusal>>, take_back: Arc<dyn TakeBack>) -> Self {
        Self { reply, take_back }
    }

    /// The caller is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.reply.is_closed()
    }

    pub(crate) fn send(self, answer: Result<Result<Grant, Refusal>, StoreError>) {
        drop(self.reply.send(answer));
    }
}

pub(crate) enum Request {
    Submit(Box<SubmitRequest>, Reply<Result<Vec<Submitted>, BatchRefusal>>),
    Claim(ClaimRequest, ClaimReply),
    Settle(Vec<Settlement>, Reply<Vec<Result<StateKind, Refusal>>>),
    Heartbeat(Vec<Heartbeat>, Reply<Vec<Result<LeaseRenewal, Refusal>>>),
    Admin(Box<AdminCommand>, Reply<Result<AdminResponse, Refusal>>),
    Tick(NonZeroUsize, Reply<Ticked>),
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

/// The answer to a request, told once it is durable.
#[derive(Debug)]
pub(crate) enum Answered {
    Submit(Result<Vec<Submitted>, BatchRefusal>),
    Claim(Result<Vec<ClaimedJob>, Refusal>),
    Settle(Vec<Result<StateKind, Refusal>>),
    Heartbeat(Vec<Result<LeaseRenewal, Refusal>>),
    Admin(Result<AdminResponse, Refusal>),
    Tick(Ticked),
}

impl Request {
    pub(crate) fn is_claim(&self) -> bool {
        match self {
            Self::Claim(..) => true,
            Self::Submit(..) | Self::Settle(..) | Self::Heartbeat(..) | Self::Admin(..) | Self::Tick(..) => false,
        }
    }

    /// A claim whose caller is gone: there is nothing to lease for it.
    pub(crate) fn abandoned(&self) -> bool {
        match self {
            Self::Claim(_, reply) => reply.is_closed(),
            Self::Submit(..) | Self::Settle(..) | Self::Heartbeat(..) | Self::Admin(..) | Self::Tick(..) => false,
        }
    }

    pub(crate) fn commands(&self) -> usize {
        match self {
            Self::Submit(request, _) => request.batch.len(),
            Self::Claim(request, _) => request.limit,
            Self::Settle(settlements, _) => settlements.len(),
            Self::Heartbeat(heartbeats, _) => heartbeats.len(),
            Self::Admin(..) | Self::Tick(..) => 1,
        }
    }

    /// Nobody waiting any more is no error: the work is done all the same.
    pub(crate) fn answer(self, answered: Answered) {
        match (self, answered) {
            (Self::Submit(_, reply), Answered::Submit(value)) => drop(reply.send(Ok(value))),
            (Self::Claim(_, reply), Answered::Claim(value)) => {
                let take_back = Arc::clone(&reply.take_back);
                reply.send(Ok(value.map(|jobs| Grant::new(jobs, take_back))));
            }
            (Self::Settle(_, reply), Answered::Settle(value)) => drop(reply.send(Ok(value))),
            (Self::Heartbeat(_, reply), Answered::Heartbeat(value)) => drop(reply.send(Ok(value))),
            (Self::Admin(_, reply), Answered::Admin(value)) => drop(reply.send(Ok(value))),
            (Self::Tick(_, reply), Answered::Tick(value)) => drop(reply.send(Ok(value))),
            (request, _) => request.fail(StoreError::unknown(ErrorMessage("an answer to another question".to_owned()))),
        }
    }

    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Self::Submit(_, reply) => drop(reply.send(Err(error))),
            Self::Claim(_, reply) => reply.send(Err(error)),
            Self::Settle(_, reply) => drop(reply.send(Err(error))),
            Self::Heartbeat(_, reply) => drop(reply.send(Err(error))),
            Self::Admin(_, reply) => drop(reply.send(Err(error))),
            Self::Tick(_, reply) => drop(reply.send(Err(error))),
        }
    }
}
