//! Requests to the writer and their replies.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::WorkerName;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_store::{
    ClaimedJob, Grant, SettledGrant, StoreError, SystemRefusal, SystemWrite, SystemWritten, TakeBack, Ticket,
};
use tokio::sync::oneshot;

pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) type ClaimReplySender = ReplySender<Result<Grant, Refusal>>;

pub(crate) enum WriteRequest {
    Submit(Box<SubmitRequest>, ReplySender<Result<Vec<Submitted>, BatchRefusal>>),
    /// A claim with a ticket parks if it finds no job.
    Claim(ClaimRequest, Option<Ticket>, ClaimReplySender),
    /// Placeholder of a claim that this batch has parked.
    Parked(Ticket),
    /// The wait of a parked claim has timed out, or its caller is gone.
    Unpark(Ticket),
    HoldGrants(bool, ReplySender<()>),
    /// Releases leases that were not delivered to a worker.
    TakeBack(Vec<Settlement>),
    Settle(Vec<Settlement>, ReplySender<Vec<Result<StateKind, Refusal>>>),
    /// Settlements with a claim. The claim is dropped if a corrupt job prevents it, so that the
    /// settlements stand.
    SettleAndClaim(Vec<Settlement>, Option<ClaimRequest>, ReplySender<Result<SettledGrant, Refusal>>),
    Heartbeat(Vec<Heartbeat>, ReplySender<Vec<Result<LeaseRenewal, Refusal>>>),
    Direct(WorkerName, WorkerDirective, ReplySender<()>),
    Admin(Box<AdminCommand>, ReplySender<Result<AdminResponse, Refusal>>),
    Tick(NonZeroUsize, ReplySender<Ticked>),
    System(Box<SystemWrite>, ReplySender<Result<SystemWritten, SystemRefusal>>),
}

impl std::fmt::Debug for WriteRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteRequest")
    }
}

/// Verdicts on settlements, and the jobs of the claim that carried them.
pub(crate) type SettledJobs = (Vec<Result<StateKind, Refusal>>, Vec<ClaimedJob>);

/// A reply that waits for the commit.
pub(crate) enum PendingReply {
    Submit(Result<Vec<Submitted>, BatchRefusal>),
    Claim(Result<Vec<ClaimedJob>, Refusal>),
    Settle(Vec<Result<StateKind, Refusal>>),
    SettleAndClaim(Result<SettledJobs, Refusal>),
    Heartbeat(Vec<Result<LeaseRenewal, Refusal>>),
    Admin(Result<AdminResponse, Refusal>),
    Tick(Ticked),
    System(Result<SystemWritten, SystemRefusal>),
    Held,
    Directed,
    /// The request has no caller, or its claim is parked.
    Nothing,
    /// The writer rejected the request before applying it.
    Failed(StoreError),
}

impl WriteRequest {
    pub(crate) fn commands(&self) -> usize {
        match self {
            Self::Submit(request, _) => request.batch.len(),
            Self::Claim(request, ..) => request.limit,
            Self::TakeBack(settlements) | Self::Settle(settlements, _) => settlements.len(),
            Self::SettleAndClaim(settlements, claim, _) => {
                settlements.len() + claim.as_ref().map_or(0, |claim| claim.limit)
            }
            Self::Heartbeat(heartbeats, _) => heartbeats.len(),
            Self::System(write, _) => write.changes.len() + write.submit.as_ref().map_or(0, |jobs| jobs.batch.len()),
            Self::Parked(_) | Self::Unpark(_) | Self::HoldGrants(..) => 0,
            Self::Direct(..) | Self::Admin(..) | Self::Tick(..) => 1,
        }
    }

    /// Drops the claim that settlements carry. Returns whether there was one.
    pub(crate) fn drop_claim(&mut self) -> bool {
        match self {
            Self::SettleAndClaim(_, claim, _) => claim.take().is_some(),
            Self::Submit(..)
            | Self::Claim(..)
            | Self::Parked(_)
            | Self::Unpark(_)
            | Self::HoldGrants(..)
            | Self::TakeBack(_)
            | Self::Settle(..)
            | Self::Heartbeat(..)
            | Self::Direct(..)
            | Self::Admin(..)
            | Self::System(..)
            | Self::Tick(..) => false,
        }
    }

    /// Returns whether the reply promises a synced commit.
    ///
    /// A returned lease has no reply. It is synced nevertheless, because its token must not become
    /// valid again.
    pub(crate) fn promises_sync(&self) -> bool {
        match self {
            Self::Submit(..)
            | Self::TakeBack(_)
            | Self::Settle(..)
            | Self::SettleAndClaim(..)
            | Self::Direct(..)
            | Self::System(..)
            | Self::Admin(..) => true,
            Self::Heartbeat(heartbeats, _) => heartbeats.iter().any(|heartbeat| heartbeat.notes.checkpoint.is_some()),
            Self::Claim(..) | Self::Parked(_) | Self::Unpark(_) | Self::HoldGrants(..) | Self::Tick(..) => false,
        }
    }

    /// Sends the reply. If the caller is gone, only undelivered leases are released.
    pub(crate) fn answer(self, pending: PendingReply, take_back: &Arc<dyn TakeBack>) {
        match (self, pending) {
            (Self::Submit(_, reply), PendingReply::Submit(value)) => drop(reply.send(Ok(value))),
            (Self::Claim(_, _, reply), PendingReply::Claim(value)) => {
                drop(reply.send(Ok(value.map(|jobs| Grant::new(jobs, Arc::clone(take_back))))));
            }
            (Self::Settle(_, reply), PendingReply::Settle(value)) => drop(reply.send(Ok(value))),
            (Self::SettleAndClaim(_, _, reply), PendingReply::SettleAndClaim(value)) => {
                let settled = |(verdicts, jobs)| {
                    let grant = Grant::new(jobs, Arc::clone(take_back));
                    SettledGrant { verdicts, grant }
                };
                drop(reply.send(Ok(value.map(settled))));
            }
            (Self::Heartbeat(_, reply), PendingReply::Heartbeat(value)) => drop(reply.send(Ok(value))),
            (Self::Direct(_, _, reply), PendingReply::Directed) => drop(reply.send(Ok(()))),
            (Self::Admin(_, reply), PendingReply::Admin(value)) => drop(reply.send(Ok(value))),
            (Self::Tick(_, reply), PendingReply::Tick(value)) => drop(reply.send(Ok(value))),
            (Self::System(_, reply), PendingReply::System(value)) => drop(reply.send(Ok(value))),
            (Self::HoldGrants(_, reply), PendingReply::Held) => drop(reply.send(Ok(()))),
            // The caller is gone, or the claim is parked.
            (Self::Claim(..) | Self::Parked(_) | Self::Unpark(_) | Self::TakeBack(_), PendingReply::Nothing) => {}
            (request, PendingReply::Failed(error)) => request.fail(error),
            (request, _) => request.fail(StoreError::unknown(ErrorText(
                "internal error: the reply does not match the request".to_owned(),
            ))),
        }
    }

    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Self::Submit(_, reply) => drop(reply.send(Err(error))),
            Self::Claim(_, _, reply) => drop(reply.send(Err(error))),
            Self::Settle(_, reply) => drop(reply.send(Err(error))),
            Self::SettleAndClaim(_, _, reply) => drop(reply.send(Err(error))),
            Self::Heartbeat(_, reply) => drop(reply.send(Err(error))),
            Self::Direct(_, _, reply) => drop(reply.send(Err(error))),
            Self::Admin(_, reply) => drop(reply.send(Err(error))),
            Self::Tick(_, reply) => drop(reply.send(Err(error))),
            Self::System(_, reply) => drop(reply.send(Err(error))),
            Self::HoldGrants(_, reply) => drop(reply.send(Err(error))),
            Self::TakeBack(leases) => {
                tracing::warn!(%error, leases = leases.len(), "undelivered leases were not released: they will expire");
            }
            Self::Parked(_) | Self::Unpark(_) => {}
        }
    }
}

/// An error with a text only.
#[derive(Debug)]
pub(crate) struct ErrorText(pub String);

impl std::fmt::Display for ErrorText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ErrorText {}
