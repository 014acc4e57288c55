//! Responses without an end: the connection is busy until the client leaves.
//!
//! A connection has an idle timeout that begins with the head of a response. The timeout must not
//! end a stream, and a stream whose client does not read must not hold a shutdown.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;

use super::timeout_stream::RequestCounter;

/// Mark of a response without an end.
#[derive(Clone, Copy, Debug)]
struct Endless;

/// Marks a response as a stream without an end.
pub(crate) fn endless(mut response: Response) -> Response {
    response.extensions_mut().insert(Endless);
    response
}

/// Whether the last response of a connection is a stream. The end of a stream does not change this:
/// the client may not have read the last bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamFlag(Arc<AtomicBool>);

impl StreamFlag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// A request has begun: its response decides again.
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Ends the request of a response: a stream ends with its body, any other response now.
pub(super) fn end_request(mut response: Response, requests: &RequestCounter, stream: &StreamFlag) -> Response {
    if response.extensions_mut().remove::<Endless>().is_none() {
        requests.end();
        return response;
    }
    stream.0.store(true, Ordering::Release);
    let requests = requests.clone();
    response.map(|body| Body::new(StreamBody { body, requests }))
}

struct StreamBody {
    body: Body,
    requests: RequestCounter,
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.requests.end();
    }
}
