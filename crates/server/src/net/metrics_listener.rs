//! Serves `/metrics` without a token, on an address of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::routes::system;
use crate::state::AppState;

/// Connections at the same time: a few scrapers.
const CONNECTIONS_MAX: usize = 64;
/// A connection is closed after this time; a scraper opens another one.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the server stops.
pub(crate) async fn serve(app: AppState, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = app.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let served = app.clone();
        app.tasks.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| respond(&served, request));
            let mut http = http1::Builder::new();
            let connection = http
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // Errors of a scraper's connection affect no other.
                ended = timeout(CONNECTION_TIMEOUT, connection) => drop(ended),
                () = served.stopping.cancelled() => {}
            }
            drop(slot);
        });
    }
}

async fn respond(app: &AppState, request: Request<Incoming>) -> Result<Response, Infallible> {
    let is_metrics = request.method() == Method::GET && request.uri().path() == "/metrics";
    if !is_metrics {
        return Ok(StatusCode::NOT_FOUND.into_response());
    }
    Ok(system::exposition_of(app).await.into_response())
}
