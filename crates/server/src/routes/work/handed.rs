//! Claimed jobs on their way to a worker. Should the worker be gone before anything was written to it, they go back into line.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use longshore_core::engine::Settlement;
use longshore_core::id::{JobId, LeaseToken};
use longshore_core::settle::Outcome;
use longshore_store::ClaimedJob;

use crate::app::AppState;
use crate::wire::answer::JSON;

/// Jobs under leases that nobody has been told of yet. Dropped, it gives them back.
#[derive(Debug)]
pub(crate) struct Untold {
    app: AppState,
    leases: Vec<(JobId, LeaseToken)>,
}

impl Untold {
    pub(crate) fn new(app: AppState, jobs: &[ClaimedJob]) -> Self {
        let leases = jobs.iter().map(|job| (job.claimed.id, job.claimed.token)).collect();
        Self { app, leases }
    }

    fn told(&mut self) {
        self.leases.clear();
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let give_back = |(id, token)| Settlement { id, token: Some(token), outcome: Outcome::Release };
        let settlements: Vec<_> = std::mem::take(&mut self.leases).into_iter().map(give_back).collect();
        let app = self.app.clone();
        tracing::debug!(jobs = settlements.len(), "a worker left before it had its jobs");
        self.app.tasks.spawn(async move {
            // Where a release is not allowed, or fails, the leases run out instead.
            if let Err(error) = app.store.settle(settlements).await {
                app.note(&error);
                tracing::warn!(%error, "jobs could not be given back; their leases will expire");
            }
        });
    }
}

/// An answer that counts as given once hyper takes it.
struct Handed {
    bytes: Option<Bytes>,
    jobs: Untold,
}

pub(crate) fn hand_over(bytes: Bytes, jobs: Untold) -> Response {
    let body = Body::new(Handed { bytes: Some(bytes), jobs });
    ([(header::CONTENT_TYPE, JSON)], body).into_response()
}

impl HttpBody for Handed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.bytes.take();
        self.jobs.told();
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
