//! One connection: serves requests one after the other until either side closes it.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use longshore_api::ErrorCode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::cors;
use super::delivery::{UndeliveredGrants, track};
use super::drain_body::BodyDrain;
use super::stream_guard::{StreamFlag, end_request};
use super::timeout_stream::{RequestCounter, TimeoutStream, Timeouts};
use super::tls::handshake;
use crate::access::{Caller, Denied, Peer};
use crate::dialects;
use crate::options::Limits;
use crate::routes::hot::{RequestBody, respond};
use crate::state::AppState;
use crate::wire::body::{BodyBudget, SMALL, collect};
use crate::wire::problem::ApiError;
use crate::wire::request_id::stamp;

const SMALL_BODY: u64 = SMALL as u64;

/// Size of the read buffer: a whole head fits, and bodies arrive in pieces of this size.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// How long a stream may take to end when the server stops.
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves a connection until it ends, the server stops, or `force_close` is cancelled.
pub(crate) async fn serve(app: AppState, router: Router, stream: TcpStream, force_close: CancellationToken) {
    // Responses are small and clients wait for them.
    if stream.set_nodelay(true).is_ok()
        && let Ok(address) = stream.peer_addr()
    {
        let peer = Peer::Address(address.ip());
        let Some(tls) = app.tls.clone() else { return serve_stream(app, router, stream, peer, force_close).await };
        let encrypted = tokio::select! {
            encrypted = handshake(&tls, stream, app.limits.head_timeout) => encrypted,
            () = app.stopping.cancelled() => None,
        };
        if let Some(stream) = encrypted {
            serve_stream(app, router, stream, peer, force_close).await;
        }
    }
}

pub(crate) async fn serve_stream<S>(
    app: AppState,
    router: Router,
    stream: S,
    peer: Peer,
    force_close: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &app.limits;
    let timeouts = Timeouts { head: limits.head_timeout, write: limits.write_timeout, idle: limits.idle_timeout };
    let (requests, stream_flag) = (RequestCounter::default(), StreamFlag::default());
    let undelivered = UndeliveredGrants::default();
    let stream = TimeoutStream::new(stream, requests.clone(), undelivered.clone(), timeouts);
    let service = service_fn(|request: Request<Incoming>| {
        requests.begin();
        stream_flag.clear();
        let (router, requests, app, undelivered) = (router.clone(), requests.clone(), &app, &undelivered);
        let stream_flag = &stream_flag;
        async move {
            let id = app.request_ids.choose(request.headers());
            // Paths and bodies stay out of the log: they may contain secrets.
            let span = tracing::debug_span!("request", request_id = id.to_str().unwrap_or_default());
            let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
            let origin = cors::listed_origin(&app.cors_origins, request.headers());
            let response = if origin.is_some() && cors::is_preflight(&request) {
                cors::preflight()
            } else {
                answer(app, router, request, peer, &id, origin.is_some()).instrument(span).await
            };
            let response = match origin {
                Some(origin) => cors::allow(response, origin),
                None => response,
            };
            let response = if is_chunked { close_after(response) } else { response };
            let response = end_request(response, &requests, stream_flag);
            Ok::<_, Infallible>(stamp(track(response, undelivered), id))
        }
    });
    let mut http = http1::Builder::new();
    http.half_close(false).header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX).pipeline_flush(false);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = app.stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = force_close.cancelled() => return,
                // A stream ends now. A client that does not read would hold the shutdown.
                () = tokio::time::sleep(STREAM_END_TIMEOUT), if stream_flag.is_set() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}

async fn answer(
    app: &AppState,
    router: Router,
    request: Request<Incoming>,
    peer: Peer,
    id: &HeaderValue,
    is_listed_origin: bool,
) -> Response {
    if let Err(refused) = check_framing(request.headers()) {
        return close_after(refused.into_response());
    }
    let checked = check_head(&app.limits, &request);
    if let Err(refused) = checked.and_then(|()| if is_listed_origin { Ok(()) } else { check_origin(&request) }) {
        return refused.into_response();
    }
    let (parts, body) = request.into_parts();
    let admitted = app.access.admit(&parts.method, parts.uri.path(), &parts.headers, peer, || app.now());
    if admitted.is_err() {
        app.metrics.denied.fetch_add(1, Ordering::Relaxed);
    }
    let admitted = admitted.and_then(|origin| {
        app.metrics.admission.check_request(&parts.method, parts.uri.path())?;
        origin.count_request(&parts.method, parts.uri.path()).inspect_err(|_| {
            app.metrics.rate_limited.fetch_add(1, Ordering::Relaxed);
        })?;
        Ok(origin)
    });
    // A client with `Expect: 100-continue` has not sent its body yet: there is nothing to drain.
    let expects_continue = parts.headers.contains_key(header::EXPECT);
    let drain = BodyDrain::default();
    // A small body is read even if the request fails: unread bytes would end the connection. Bodies
    // of unknown callers stay out of memory.
    let is_known = admitted.as_ref().is_ok_and(|origin| !matches!(origin.caller, Caller::Anonymous));
    let body = match body.size_hint().exact() {
        Some(length) if length == 0 || (is_known && length <= SMALL_BODY) => match collect_small(app, body).await {
            Ok(bytes) => RequestBody::Whole(bytes),
            Err(refused) => return refused.into_response(),
        },
        Some(_) | None => RequestBody::Stream(Body::new(drain.lend(body))),
    };
    let origin = match admitted {
        Ok(origin) => origin,
        Err(denied) => {
            drop(body);
            let response = refuse(app, parts.uri.path(), denied).await;
            if !expects_continue {
                drain.discard().await;
            }
            return response;
        }
    };
    let call = respond(app, router, parts, body, origin);
    // A panic in one request must not end the process.
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(response) => {
            if !expects_continue {
                drain.discard().await;
            }
            response
        }
        Err(_) => {
            tracing::error!(request_id = id.to_str().unwrap_or_default(), "request handler panicked");
            app.metrics.panics.fetch_add(1, Ordering::Relaxed);
            ApiError::new(ErrorCode::Internal, "internal error: the request handler panicked").into_response()
        }
    }
}

/// Answers a request that is not admitted, after its delay.
async fn refuse(app: &AppState, path: &str, denied: Denied) -> Response {
    let Denied { error, delay } = denied;
    if !delay.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = app.stopping.cancelled() => {}
        }
    }
    tracing::debug!(status = error.problem().status, "request not admitted");
    if dialects::ocypod::is_ocypod_path(path) {
        return dialects::ocypod::error_response(error);
    }
    error.into_response()
}

async fn collect_small(app: &AppState, body: Incoming) -> Result<Bytes, ApiError> {
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if length == 0 {
        return Ok(Bytes::new());
    }
    collect(Body::new(body), length, length, &mut BodyBudget::new(app)).await
}

/// Rejects requests of other sites that change something.
///
/// A page of another site can make a browser send simple requests without a CORS preflight. The
/// browser names that site in `Sec-Fetch-Site` and `Origin`.
fn check_origin(request: &Request<Incoming>) -> Result<(), ApiError> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let claims = dialects::is_claiming_get(request.uri().path());
    if !claims && matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let cross_site = text("sec-fetch-site").is_some_and(|site| matches!(site, "cross-site" | "same-site"));
    let host = text("host").unwrap_or_default();
    let is_foreign = |origin: &str| origin.split_once("://").map_or(origin, |(_, rest)| rest) != host;
    if cross_site || text("origin").is_some_and(is_foreign) {
        return Err(ApiError::new(ErrorCode::Forbidden, "cross-site requests may only read"));
    }
    Ok(())
}

/// Closes the connection after the response.
///
/// hyper drops `Content-Length` if there is `Transfer-Encoding`, so that a request with both looks
/// like one that is only chunked. A proxy that took the other length sends the rest of the body as
/// the next request: there is none on a closed connection.
fn close_after(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Refuses framing that another program may understand in another way, and coded bodies, which
/// could become much larger.
fn check_framing(headers: &HeaderMap) -> Result<(), ApiError> {
    let is = |value: &HeaderValue, word: &str| value.as_bytes().eq_ignore_ascii_case(word.as_bytes());
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(ApiError::bad_request("a request must have one Host header"));
    }
    let mut transfer = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(first) = transfer.next()
        && (transfer.next().is_some() || !is(first, "chunked"))
    {
        return Err(ApiError::bad_request("\"Transfer-Encoding\" must be chunked, once, or absent"));
    }
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| !is(coding, "identity")) {
        let detail = "a body must not be compressed: \"Content-Encoding\" must be identity or absent";
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, detail));
    }
    Ok(())
}

/// Checks the limits of path and headers.
fn check_head(limits: &Limits, request: &Request<Incoming>) -> Result<(), ApiError> {
    let path_bytes = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if path_bytes > limits.path_bytes_max {
        return Err(ApiError::bad_request(format!("the path must have at most {} bytes", limits.path_bytes_max)));
    }
    let headers = request.headers();
    if headers.len() > limits.headers_max {
        return Err(ApiError::bad_request(format!("a request must have at most {} headers", limits.headers_max)));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > limits.headers_bytes_max {
        return Err(ApiError::bad_request(format!("the headers must have at most {} bytes", limits.headers_bytes_max)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use longshore_core::id::{JobId, JobType, QueueName};
    use longshore_core::state::StateKind;
    use longshore_core::submit::{NewJob, Payload};
    use longshore_engine::{Submission, SubmitRequest};
    use longshore_store::{JobRef, SystemClock};
    use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
    use tokio::io::ReadBuf;

    use super::*;
    use crate::options::{ServerOptions, StoreInfo};
    use crate::routes;

    /// A client that sends one request, accepts `accepted` bytes and then resets the connection.
    struct ResettingClient {
        request: &'static [u8],
        accepted: usize,
    }

    impl AsyncRead for ResettingClient {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.request.is_empty() {
                return Poll::Pending;
            }
            buffer.put_slice(std::mem::take(&mut self.request));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for ResettingClient {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.accepted == 0 {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let written = self.accepted.min(bytes.len());
            self.accepted -= written;
            Poll::Ready(Ok(written))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    const CLAIM: &[u8] = b"POST /v1/claims HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
        content-type: application/json\r\ncontent-length: 16\r\n\r\n{\"queues\":[\"q\"]}";

    async fn app_with_one_job() -> (AppState, JobId) {
        let clock = Arc::new(SystemClock::new());
        let store = EmbeddedStore::open(StoreOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
        let about = StoreInfo { kind: "test".to_owned(), durability: "none".to_owned() };
        let app = AppState::new(ServerOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Arc::new(store), about));
        let job = NewJob::new(JobType::new("t").unwrap(), Payload::Json(Bytes::from_static(b"null")));
        let request = SubmitRequest::new(vec![Submission { queue: QueueName::new("q").unwrap(), job }]);
        let submitted = app.submit(request).await.unwrap().unwrap();
        (app, submitted[0].id)
    }

    async fn state_after_claim(accepted: usize) -> StateKind {
        let (app, id) = app_with_one_job().await;
        let client = ResettingClient { request: CLAIM, accepted };
        serve_stream(app.clone(), routes::router(app.clone()), client, Peer::InProcess, CancellationToken::new()).await;
        // The release is a command of its own; the submission behind it is answered later.
        let job = NewJob::new(JobType::new("t").unwrap(), Payload::Json(Bytes::from_static(b"null")));
        let next = SubmitRequest::new(vec![Submission { queue: QueueName::new("other").unwrap(), job }]);
        app.submit(next).await.unwrap().unwrap();
        app.store.get(vec![JobRef::Id(id)]).await.unwrap()[0].as_ref().unwrap().kind()
    }

    #[tokio::test]
    async fn a_claim_releases_its_lease_if_the_write_of_its_response_fails() {
        assert_eq!(state_after_claim(0).await, StateKind::Scheduled);
    }

    #[tokio::test]
    async fn a_claim_releases_its_lease_if_only_a_part_of_its_response_is_written() {
        assert_eq!(state_after_claim(200).await, StateKind::Scheduled);
    }

    #[tokio::test]
    async fn a_claim_keeps_its_lease_once_its_response_is_written() {
        assert_eq!(state_after_claim(usize::MAX).await, StateKind::Running);
    }
}
