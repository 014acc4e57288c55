//! Requests of callers, and their answers.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_store::{
    ClaimedJob, Grant, SettledGrant, StoreError, SystemRefusal, SystemWrite, SystemWritten, TakeBack,
};
use tokio::sync::{mpsc, oneshot};

use crate::error::ErrorMessage;

/// A request in a queue of the node.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub request: TxRequest,
    /// The fast path has not applied it, and is not tried again.
    pub tried_fast_path: bool,
}

pub(crate) type RequestSender = mpsc::Sender<QueuedRequest>;

impl QueuedRequest {
    pub(crate) fn new(request: TxRequest) -> Self {
        Self { request, tried_fast_path: false }
    }

    pub(crate) fn after_fast_path(request: TxRequest) -> Self {
        Self { request, tried_fast_path: true }
    }
}

pub(crate) type Responder<T> = oneshot::Sender<Result<T, StoreError>>;

/// Responder channel of a claim. Leases that do not reach the caller are returned.
#[derive(Debug)]
pub(crate) struct ClaimResponder {
    reply: Responder<Result<Grant, Refusal>>,
    take_back: Arc<dyn TakeBack>,
}

impl ClaimResponder {
    pub(crate) fn new(reply: Responder<Result<Grant, Refusal>>, take_back: Arc<dyn TakeBack>) -> Self {
        Self { reply, take_back }
    }

    /// Whether the caller is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.reply.is_closed()
    }

    pub(crate) fn send(self, answer: Result<Result<Grant, Refusal>, StoreError>) {
        drop(self.reply.send(answer));
    }
}

/// Settlements with a claim. The claim is dropped if the caller is gone, or if a corrupt job
/// prevents it; the settlements stand.
pub(crate) struct SettleAndClaim {
    pub settlements: Vec<Settlement>,
    pub claim: Option<ClaimRequest>,
}

/// Responder channel of settlements with a claim. Leases that do not reach the caller are returned.
#[derive(Debug)]
pub(crate) struct SettledResponder {
    pub reply: Responder<Result<SettledGrant, Refusal>>,
    pub take_back: Arc<dyn TakeBack>,
}

/// Verdicts on settlements, and the jobs of the claim that carried them.
pub(crate) type SettledResponse = (Vec<Result<StateKind, Refusal>>, Vec<ClaimedJob>);

pub(crate) enum TxRequest {
    Submit(Box<SubmitRequest>, Responder<Result<Vec<Submitted>, BatchRefusal>>),
    Claim(ClaimRequest, ClaimResponder),
    Settle(Vec<Settlement>, Responder<Vec<Result<StateKind, Refusal>>>),
    SettleAndClaim(SettleAndClaim, SettledResponder),
    Heartbeat(Vec<Heartbeat>, Responder<Vec<Result<LeaseRenewal, Refusal>>>),
    Admin(Box<AdminCommand>, Responder<Result<AdminResponse, Refusal>>),
    Tick(NonZeroUsize, Responder<Ticked>),
    System(Box<SystemWrite>, Responder<Result<SystemWritten, SystemRefusal>>),
}

impl std::fmt::Debug for TxRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TxRequest")
    }
}

/// The answer to a request, sent after the commit.
#[derive(Debug)]
pub(crate) enum TxResponse {
    Submit(Result<Vec<Submitted>, BatchRefusal>),
    Claim(Result<Vec<ClaimedJob>, Refusal>),
    Settle(Vec<Result<StateKind, Refusal>>),
    SettleAndClaim(Result<SettledResponse, Refusal>),
    Heartbeat(Vec<Result<LeaseRenewal, Refusal>>),
    Admin(Result<AdminResponse, Refusal>),
    Tick(Ticked),
    System(Result<SystemWritten, SystemRefusal>),
}

impl TxResponse {
    /// Returns the jobs of a claim that was not refused.
    pub(crate) fn claimed(&self) -> Option<&[ClaimedJob]> {
        match self {
            Self::Claim(Ok(jobs)) | Self::SettleAndClaim(Ok((_, jobs))) => Some(jobs),
            Self::Claim(Err(_)) | Self::SettleAndClaim(Err(_)) => None,
            Self::Submit(_) | Self::Settle(_) | Self::Heartbeat(_) => None,
            Self::Admin(_) | Self::Tick(_) | Self::System(_) => None,
        }
    }
}

impl TxRequest {
    pub(crate) fn is_claim(&self) -> bool {
        match self {
            Self::Claim(..) | Self::SettleAndClaim(..) => true,
            Self::Submit(..) | Self::Settle(..) | Self::Heartbeat(..) => false,
            Self::Admin(..) | Self::Tick(..) | Self::System(..) => false,
        }
    }

    /// Whether this is a claim whose caller is gone. Settlements are not abandoned.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Claim(_, reply) => reply.is_closed(),
            Self::Submit(..) | Self::Settle(..) | Self::SettleAndClaim(..) => false,
            Self::Heartbeat(..) | Self::Admin(..) | Self::Tick(..) | Self::System(..) => false,
        }
    }

    /// Drops the claim that settlements carry. Returns whether there was one.
    pub(crate) fn drop_claim(&mut self) -> bool {
        match self {
            Self::SettleAndClaim(request, _) => request.claim.take().is_some(),
            Self::Claim(..) | Self::Submit(..) | Self::Settle(..) => false,
            Self::Heartbeat(..) | Self::Admin(..) | Self::Tick(..) | Self::System(..) => false,
        }
    }

    /// Drops the claim that settlements carry if its caller is gone.
    pub(crate) fn drop_abandoned_claim(&mut self) {
        if let Self::SettleAndClaim(_, responder) = self
            && responder.reply.is_closed()
        {
            self.drop_claim();
        }
    }

    /// Returns the claim of the request.
    pub(crate) fn claim(&self) -> Option<&ClaimRequest> {
        match self {
            Self::Claim(claim, _) => Some(claim),
            Self::SettleAndClaim(request, _) => request.claim.as_ref(),
            Self::Submit(..) | Self::Settle(..) | Self::Heartbeat(..) => None,
            Self::Admin(..) | Self::Tick(..) | Self::System(..) => None,
        }
    }

    /// Returns the settlements of the request.
    pub(crate) fn settlements(&self) -> &[Settlement] {
        match self {
            Self::Settle(settlements, _) => settlements,
            Self::SettleAndClaim(request, _) => &request.settlements,
            Self::Submit(..) | Self::Claim(..) | Self::Heartbeat(..) => &[],
            Self::Admin(..) | Self::Tick(..) | Self::System(..) => &[],
        }
    }

    /// The number of jobs that the request is about.
    pub(crate) fn commands(&self) -> usize {
        match self {
            Self::Submit(request, _) => request.batch.len(),
            Self::Claim(request, _) => request.limit,
            Self::Settle(settlements, _) => settlements.len(),
            Self::SettleAndClaim(request, _) => {
                request.settlements.len() + request.claim.as_ref().map_or(0, |claim| claim.limit)
            }
            Self::Heartbeat(heartbeats, _) => heartbeats.len(),
            Self::System(write, _) => write.changes.len() + write.submit.as_ref().map_or(0, |jobs| jobs.batch.len()),
            Self::Admin(..) | Self::Tick(..) => 1,
        }
    }

    /// Sends the answer. A caller that is gone is not an error: the request is committed.
    pub(crate) fn answer(self, answered: TxResponse) {
        match (self, answered) {
            (Self::Submit(_, reply), TxResponse::Submit(value)) => drop(reply.send(Ok(value))),
            (Self::Claim(_, reply), TxResponse::Claim(value)) => {
                let take_back = Arc::clone(&reply.take_back);
                reply.send(Ok(value.map(|jobs| Grant::new(jobs, take_back))));
            }
            (Self::Settle(_, reply), TxResponse::Settle(value)) => drop(reply.send(Ok(value))),
            (Self::SettleAndClaim(_, responder), TxResponse::SettleAndClaim(value)) => {
                let SettledResponder { reply, take_back } = responder;
                let settled = |(verdicts, jobs)| SettledGrant { verdicts, grant: Grant::new(jobs, take_back) };
                drop(reply.send(Ok(value.map(settled))));
            }
            (Self::Heartbeat(_, reply), TxResponse::Heartbeat(value)) => drop(reply.send(Ok(value))),
            (Self::Admin(_, reply), TxResponse::Admin(value)) => drop(reply.send(Ok(value))),
            (Self::Tick(_, reply), TxResponse::Tick(value)) => drop(reply.send(Ok(value))),
            (Self::System(_, reply), TxResponse::System(value)) => drop(reply.send(Ok(value))),
            (request, _) => request.fail(StoreError::unknown(ErrorMessage(
                "internal error: answer does not match its request".to_owned(),
            ))),
        }
    }

    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Self::Submit(_, reply) => drop(reply.send(Err(error))),
            Self::Claim(_, reply) => reply.send(Err(error)),
            Self::Settle(_, reply) => drop(reply.send(Err(error))),
            Self::SettleAndClaim(_, responder) => drop(responder.reply.send(Err(error))),
            Self::Heartbeat(_, reply) => drop(reply.send(Err(error))),
            Self::Admin(_, reply) => drop(reply.send(Err(error))),
            Self::Tick(_, reply) => drop(reply.send(Err(error))),
            Self::System(_, reply) => drop(reply.send(Err(error))),
        }
    }
}
