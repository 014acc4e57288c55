//! The answer to a claim. Its grant counts as delivered once hyper takes the bytes; before that, dropping it gives the leases back.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use longshore_store::Grant;

use crate::wire::answer::JSON;

struct ClaimBody {
    /// The answer, until it is taken.
    bytes: Option<Bytes>,
    grant: Option<Grant>,
}

pub(crate) fn into_response(bytes: Bytes, grant: Grant) -> Response {
    let body = Body::new(ClaimBody { bytes: Some(bytes), grant: Some(grant) });
    ([(header::CONTENT_TYPE, JSON)], body).into_response()
}

impl HttpBody for ClaimBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.bytes.take();
        drop(self.grant.take().map(Grant::deliver));
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
