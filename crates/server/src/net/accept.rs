//! The accept loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::connection_limits::ConnectionLimits;
use super::io_threads::IoThreads;
use crate::state::AppState;

/// Pause after a failed accept, mostly for lack of file descriptors: connections must end first.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the server stops. `force_close` ends connections that outlive the drain timeout.
pub(crate) async fn accept(
    app: &AppState,
    io_threads: &IoThreads,
    listener: TcpListener,
    router: Router,
    force_close: &CancellationToken,
) {
    let limits = ConnectionLimits::new(app.limits.connections_max, app.limits.connections_per_address_max);
    loop {
        let accepted = tokio::select! {
            () = app.stopping.cancelled() => return,
            accepted = next(&listener, &limits) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                let (app, router, force_close) = (app.clone(), router.clone(), force_close.clone());
                let metrics = Arc::clone(&app.metrics);
                metrics.connections.fetch_add(1, Ordering::Relaxed);
                io_threads.spawn_connection(&app.tasks.clone(), stream, move |stream| async move {
                    connection::serve(app, router, stream, force_close).await;
                    drop(permit);
                    metrics.connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn next(
    listener: &TcpListener,
    limits: &ConnectionLimits,
) -> std::io::Result<(tokio::net::TcpStream, super::connection_limits::ConnectionPermit)> {
    loop {
        let Some(slot) = limits.slot().await else { return Err(std::io::ErrorKind::ConnectionRefused.into()) };
        let (stream, from) = listener.accept().await?;
        match limits.admit(from.ip(), slot) {
            Some(permit) => return Ok((stream, permit)),
            // The address has too many connections: this one is closed.
            None => drop(stream),
        }
    }
}
