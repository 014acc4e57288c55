//! Reads the rest of a body that no route has read.
//!
//! Many clients send the whole body before they read the response. If the server closed the
//! connection earlier, they would see a reset instead of the error.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

/// Bytes that are read and discarded at most.
const BYTES_MAX: usize = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, Default)]
pub(super) struct BodyDrain(Arc<Mutex<Option<Incoming>>>);

impl BodyDrain {
    /// Lends the body to a route; dropping it returns the unread rest.
    pub(super) fn lend(&self, body: Incoming) -> BorrowedBody {
        BorrowedBody { body: Some(body), owner: self.clone() }
    }

    /// Reads and discards the rest, up to the limits.
    pub(super) async fn discard(&self) {
        let rest = self.0.lock().take();
        let Some(mut rest) = rest.filter(|rest| !rest.is_end_stream()) else { return };
        let (deadline, mut bytes) = (Instant::now() + DRAIN_TIMEOUT, 0);
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
        *self.owner.0.lock() = self.body.take();
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
