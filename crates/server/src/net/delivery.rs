//! Delivery of grants: a worker holds its leases only once the socket accepted the whole response.
//!
//! A grant travels with its response and releases its leases wherever it is dropped:
//! 1. [`response`] attaches the grant to the response of the route.
//! 2. [`track`] moves it into the body that hyper encodes.
//! 3. The body hands it to the [`UndeliveredGrants`] of the connection with its last bytes.
//! 4. The stream confirms it after a successful flush: hyper flushes once every byte is written.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use longshore_store::Grant;
use parking_lot::Mutex;

use crate::wire::response::json_bytes;

/// Grants of one connection whose responses are encoded, but not yet accepted by the socket.
///
/// Dropping the connection drops them, which releases their leases.
#[derive(Clone, Debug, Default)]
pub(super) struct UndeliveredGrants(Arc<GrantList>);

#[derive(Debug, Default)]
struct GrantList {
    /// Most flushes find no grant, and take no lock.
    has_grants: AtomicBool,
    grants: Mutex<Vec<Grant>>,
}

impl UndeliveredGrants {
    fn add(&self, grant: Grant) {
        self.0.grants.lock().push(grant);
        self.0.has_grants.store(true, Ordering::Release);
    }

    /// Marks all grants as delivered. The caller has written every byte that hyper encoded.
    pub(super) fn confirm(&self) {
        if self.0.has_grants.swap(false, Ordering::AcqRel) {
            let grants = std::mem::take(&mut *self.0.grants.lock());
            grants.into_iter().for_each(|grant| drop(grant.deliver()));
        }
    }
}

/// A grant on its way from the route to the connection. Extensions of a response must be `Clone`.
#[derive(Clone, Debug)]
struct AttachedGrant(Arc<Mutex<Option<Grant>>>);

/// Returns the response to a claim, with its grant attached.
pub(crate) fn response(json: Vec<u8>, grant: Grant) -> Response {
    let mut response = json_bytes(StatusCode::OK, json);
    if !grant.jobs().is_empty() {
        response.extensions_mut().insert(AttachedGrant(Arc::new(Mutex::new(Some(grant)))));
    }
    response
}

/// Moves the grant of a response into its body. Returns other responses unchanged.
pub(super) fn track(mut response: Response, undelivered: &UndeliveredGrants) -> Response {
    let Some(AttachedGrant(grant)) = response.extensions_mut().remove() else { return response };
    let grant = grant.lock().take();
    response.map(|body| Body::new(GrantBody { body, grant, undelivered: undelivered.clone() }))
}

struct GrantBody {
    body: Body,
    grant: Option<Grant>,
    undelivered: UndeliveredGrants,
}

impl HttpBody for GrantBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        // hyper encodes the last frame before it flushes again.
        if matches!(frame, Poll::Ready(Some(Ok(_))))
            && self.body.is_end_stream()
            && let Some(grant) = self.grant.take()
        {
            self.undelivered.add(grant);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
