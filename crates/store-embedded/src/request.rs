//! What callers ask of the writer, and what it answers.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_store::{ClaimedJob, Grant, StoreError, TakeBack, Ticket};
use tokio::sync::oneshot;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) type ClaimReply = Reply<Result<Grant, Refusal>>;

pub(crate) enum Request {
    Submit(Box<SubmitRequest>, Reply<Result<Vec<Submitted>, BatchRefusal>>),
    /// With a ticket, a claim that finds nothing is parked.
    Claim(ClaimRequest, Option<Ticket>, ClaimReply),
    /// A claim of this batch that was parked: its reply waits with it.
    Parked(Ticket),
    /// The wait of a parked claim is over, or its caller is gone.
    Unpark(Ticket),
    HoldGrants(bool, Reply<()>),
    /// Leases whose answer did not leave the server.
    TakeBack(Vec<Settlement>),
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

/// An answer that waits for the commit.
pub(crate) enum Answered {
    Submit(Result<Vec<Submitted>, BatchRefusal>),
    Claim(Result<Vec<ClaimedJob>, Refusal>),
    Settle(Vec<Result<StateKind, Refusal>>),
    Heartbeat(Vec<Result<LeaseRenewal, Refusal>>),
    Admin(Result<AdminResponse, Refusal>),
    Tick(Ticked),
    Held,
    /// No caller waits for one, or the claim is parked.
    Nothing,
    /// Refused before it was looked at.
    Failed(StoreError),
}

impl Request {
    pub(crate) fn commands(&self) -> usize {
        match self {
            Self::Submit(request, _) => request.batch.len(),
            Self::Claim(request, ..) => request.limit,
            Self::TakeBack(settlements) | Self::Settle(settlements, _) => settlements.len(),
            Self::Heartbeat(heartbeats, _) => heartbeats.len(),
            Self::Parked(_) | Self::Unpark(_) | Self::HoldGrants(..) => 0,
            Self::Admin(..) | Self::Tick(..) => 1,
        }
    }

    /// Sends the answer. A caller that is gone is no error: what was asked is done, and only undelivered leases are taken back.
    pub(crate) fn answer(self, answered: Answered, take_back: &Arc<dyn TakeBack>) {
        match (self, answered) {
            (Self::Submit(_, reply), Answered::Submit(value)) => drop(reply.send(Ok(value))),
            (Self::Claim(_, _, reply), Answered::Claim(value)) => {
                drop(reply.send(Ok(value.map(|jobs| Grant::new(jobs, Arc::clone(take_back))))));
            }
            (Self::Settle(_, reply), Answered::Settle(value)) => drop(reply.send(Ok(value))),
            (Self::Heartbeat(_, reply), Answered::Heartbeat(value)) => drop(reply.send(Ok(value))),
            (Self::Admin(_, reply), Answered::Admin(value)) => drop(reply.send(Ok(value))),
            (Self::Tick(_, reply), Answered::Tick(value)) => drop(reply.send(Ok(value))),
            (Self::HoldGrants(_, reply), Answered::Held) => drop(reply.send(Ok(()))),
            // The caller of such a claim is gone, or it waits with the parked ones.
            (Self::Claim(..) | Self::Parked(_) | Self::Unpark(_) | Self::TakeBack(_), Answered::Nothing) => {}
            (request, Answered::Failed(error)) => request.fail(error),
            (request, _) => request.fail(StoreError::unknown(Failed("an answer to another question".to_owned()))),
        }
    }

    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Self::Submit(_, reply) => drop(reply.send(Err(error))),
            Self::Claim(_, _, reply) => drop(reply.send(Err(error))),
            Self::Settle(_, reply) => drop(reply.send(Err(error))),
            Self::Heartbeat(_, reply) => drop(reply.send(Err(error))),
            Self::Admin(_, reply) => drop(reply.send(Err(error))),
            Self::Tick(_, reply) => drop(reply.send(Err(error))),
            Self::HoldGrants(_, reply) => drop(reply.send(Err(error))),
            Self::TakeBack(leases) => {
                tracing::warn!(%error, leases = leases.len(), "undelivered leases were not taken back; they will expire");
            }
            Self::Parked(_) | Self::Unpark(_) => {}
        }
    }
}

/// The text of a failure, as an error.
#[derive(Debug)]
pub(crate) struct Failed(pub String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}
