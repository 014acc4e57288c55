//! One connection: requests are served on it one after the other, until either side has had enough.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use longshore_api::ErrorCode;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::drain_body::BodyDrain;
use super::timeout_stream::{RequestCounter, TimeoutStream, Timeouts};
use crate::app::AppState;
use crate::dialects;
use crate::options::Limits;
use crate::wire::body::{BodyBudget, SMALL, collect};
use crate::wire::problem::ApiError;
use crate::wire::request_id::stamp;

const SMALL_BODY: u64 = SMALL as u64;

/// Bytes that are read ahead: a whole head fits, and bodies come in pieces of this size.
const BUFFER_BYTES_MAX: usize = 64 << 10;

pub(crate) async fn serve(app: AppState, router: Router, stream: TcpStream, cut: CancellationToken) {
    // An answer is small and somebody waits for it.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let limits = &app.limits;
    let patience = Timeouts { head: limits.head_timeout, write: limits.write_timeout, idle: limits.idle_timeout };
    let requests = RequestCounter::default();
    let io = TokioIo::new(TimeoutStream::new(stream, requests.clone(), patience));
    let service = service_fn(|request: Request<Incoming>| {
        requests.begin();
        let (router, requests, app) = (router.clone(), requests.clone(), &app);
        async move {
            let id = app.request_ids.choose(request.headers());
            let response = answer(app, router, request, &id).await;
            requests.end();
            Ok::<_, Infallible>(stamp(response, id))
        }
    });
    let mut http = http1::Builder::new();
    http.half_close(false).header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX).pipeline_flush(false);
    let connection = http.serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = app.stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        // Clients come and go; what they did wrong on the way is of interest only to whoever looks for it.
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(app: &AppState, router: Router, request: Request<Incoming>, id: &HeaderValue) -> Response {
    if let Err(refused) = check_head(&app.limits, &request).and_then(|()| check_origin(&request)) {
        return refused.into_response();
    }
    let (parts, body) = request.into_parts();
    // Who waits for a word before sending its body needs no patience with the rest of it.
    let waits = parts.headers.contains_key(header::EXPECT);
    let unread = BodyDrain::default();
    // A small body is read whatever becomes of the request: with bytes left unread the connection could not be used again.
    let body = match body.size_hint().exact() {
        Some(length) if length <= SMALL_BODY => match collect_small(app, body).await {
            Ok(bytes) => Body::from(bytes),
            Err(refused) => return refused.into_response(),
        },
        Some(_) | None => Body::new(unread.lend(body)),
    };
    let call = router.oneshot(Request::from_parts(parts, body));
    // A defect in one request must not take the others of this process along.
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(Ok(response)) => {
            if !waits {
                unread.discard().await;
            }
            response
        }
        Ok(Err(never)) => match never {},
        Err(_) => {
            tracing::error!(request_id = id.to_str().unwrap_or_default(), "a request ended in a panic");
            app.metrics.panics.fetch_add(1, Ordering::Relaxed);
            ApiError::new(ErrorCode::Internal, "the server failed at this request").into_response()
        }
    }
}

async fn collect_small(app: &AppState, body: Incoming) -> Result<Bytes, ApiError> {
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if length == 0 {
        return Ok(Bytes::new());
    }
    collect(Body::new(body), length, length, &mut BodyBudget::new(app)).await
}

/// A page of another site can make a browser send a request without a body, or with one of a harmless type, and the browser says whose page it
/// was: such a request may look, and change nothing.
fn check_origin(request: &Request<Incoming>) -> Result<(), ApiError> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let takes = dialects::is_claiming_get(request.uri().path());
    if !takes && matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let site = text("sec-fetch-site").is_some_and(|site| matches!(site, "cross-site" | "same-site"));
    let host = text("host").unwrap_or_default();
    let of_another = |origin: &str| origin.split_once("://").map_or(origin, |(_, rest)| rest) != host;
    if site || text("origin").is_some_and(of_another) {
        return Err(ApiError::new(ErrorCode::Forbidden, "a page of another site may not change anything here"));
    }
    Ok(())
}

/// Bounds of a request's head.
fn check_head(limits: &Limits, request: &Request<Incoming>) -> Result<(), ApiError> {
    let path_bytes = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if path_bytes > limits.path_bytes_max {
        return Err(ApiError::bad_request(format!("the path may have at most {} bytes", limits.path_bytes_max)));
    }
    let headers = request.headers();
    if headers.len() > limits.headers_max {
        return Err(ApiError::bad_request(format!("there may be at most {} headers", limits.headers_max)));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > limits.headers_bytes_max {
        return Err(ApiError::bad_request(format!("the headers may have at most {} bytes", limits.headers_bytes_max)));
    }
    Ok(())
}
