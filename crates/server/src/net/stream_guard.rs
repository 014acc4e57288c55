//! Responses without an end: the connection is busy until the client leaves.
//!
//! A connection has an idle timeout that begins with the head of a response. The timeout must not
//! end a stream, and a stream whose client does not read must not hold a shutdown.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Counts the streams of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenStreams(Arc<AtomicUsize>);

impl OpenStreams {
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// Ends the request of a response: a stream ends with its body, any other response now.
pub(super) fn end_request(mut response: Response, requests: &RequestCounter, streams: &OpenStreams) -> Response {
    if response.extensions_mut().remove::<Endless>().is_none() {
        requests.end();
        return response;
    }
    streams.0.fetch_add(1, Ordering::AcqRel);
    let (requests, streams) = (requests.clone(), streams.clone());
    response.map(|body| Body::new(StreamBody { body, requests, streams }))
}

struct StreamBody {
    body: Body,
    requests: RequestCounter,
    streams: OpenStreams,
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
        self.streams.0.fetch_sub(1, Ordering::AcqRel);
    }
}
