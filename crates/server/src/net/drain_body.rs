//! What is left of a body that nobody wanted. Many clients send all of it before they look at the answer; closed too early, they would see
//! a broken connection instead of the refusal.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, timeout_at};

/// As much is read and thrown away, and for as long.
const BYTES_MAX: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, Default)]
pub(super) struct BodyDrain(Arc<Mutex<Option<Incoming>>>);

impl BodyDrain {
    /// The body for whoever may want it; what is left comes back.
    pub(super) fn lend(&self, body: Incoming) -> BorrowedBody {
        BorrowedBody { body: Some(body), owner: self.clone() }
    }

    /// Reads the rest, within bounds.
    pub(super) async fn discard(&self) {
        let rest = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut rest) = rest.filter(|rest| !rest.is_end_stream()) else { return };
        let (deadline, mut bytes) = (Instant::now() + PATIENCE, 0);
        while bytes < BYTES_MAX
            && let Ok(Some(Ok(frame))) = timeout_at(deadline, rest.frame()).await
        {
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    }
}

pub(super) struct BorrowedBody {
    body: Option<Incoming>,
    owner: BodyDrain,
}

impl Drop for BorrowedBody {
    fn drop(&mut self) {
        *self.owner.0.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

impl Body for BorrowedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}
