//! The requests to the writer, and its responses.

use longshore_engine::Settlement;
use longshore_store::{ErrorMessage, Reply, Request, Response, StoreError, Ticket};

pub(crate) enum WriterRequest {
    /// A call of the store interface. A claim with a ticket is parked if it finds no job.
    Call(Request),
    /// A claim of this batch that was parked. Its reply is stored with the parked claim.
    Parked(Ticket),
    /// The wait of a parked claim has ended, or its caller has stopped waiting.
    Unpark(Ticket),
    HoldGrants(bool, Reply<()>),
    /// Leases whose response did not leave the server.
    TakeBack(Vec<Settlement>),
}

impl std::fmt::Debug for WriterRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriterRequest")
    }
}

/// A response that the writer sends after the commit.
pub(crate) enum WriterResponse {
    Call(Response),
    HoldChanged,
    /// The request has no reply, or the claim was parked.
    None,
    /// The request was rejected before it was applied.
    Failed(StoreError),
}

impl WriterRequest {
    /// Returns the number of commands in the request, which bounds the size of a commit.
    pub(crate) fn commands(&self) -> usize {
        match self {
            Self::Call(request) => request.commands(),
            Self::TakeBack(settlements) => settlements.len(),
            Self::Parked(_) | Self::Unpark(_) | Self::HoldGrants(..) => 0,
        }
    }

    /// Sends the response. A caller that has stopped waiting is ignored: its change stays applied, and its
    /// undelivered leases are taken back.
    pub(crate) fn answer(self, response: WriterResponse) {
        match (self, response) {
            (Self::Call(request), WriterResponse::Call(response)) => request.answer(response),
            (Self::HoldGrants(_, reply), WriterResponse::HoldChanged) => drop(reply.send(Ok(()))),
            // The caller of such a claim has stopped waiting, or the claim is parked.
            (Self::Call(Request::Claim(..)), WriterResponse::None) => {}
            (Self::Parked(_) | Self::Unpark(_) | Self::TakeBack(_), WriterResponse::None) => {}
            (request, WriterResponse::Failed(error)) => request.fail(error),
            (request, _) => request.fail(StoreError::unknown(ErrorMessage::new("the response is of another request"))),
        }
    }

    /// Sends an error.
    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Self::Call(request) => request.fail(error),
            Self::HoldGrants(_, reply) => drop(reply.send(Err(error))),
            Self::TakeBack(leases) => {
                tracing::warn!(%error, leases = leases.len(), "undelivered leases were not taken back; they will expire");
            }
            Self::Parked(_) | Self::Unpark(_) => {}
        }
    }
}
