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
use crate::app::AppState;

/// After an accept that failed, mostly for want of file descriptors: others must end first.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the server stops. `cut` ends connections that do not end by themselves.
pub(crate) async fn accept(app: &AppState, listener: TcpListener, router: Router, cut: &CancellationToken) {
    let caps = ConnectionLimits::new(app.limits.connections_max, app.limits.connections_per_address_max);
    loop {
        let accepted = tokio::select! {
            () = app.stopping.cancelled() => return,
            accepted = next(&listener, &caps) => accepted,
        };
        match accepted {
            Ok((stream, admission)) => {
                let serve = connection::serve(app.clone(), router.clone(), stream, cut.clone());
                let metrics = Arc::clone(&app.metrics);
                metrics.connections.fetch_add(1, Ordering::Relaxed);
                app.tasks.spawn(async move {
                    serve.await;
                    drop(admission);
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
    caps: &ConnectionLimits,
) -> std::io::Result<(tokio::net::TcpStream, super::connection_limits::ConnectionPermit)> {
    loop {
        let Some(room) = caps.room().await else { return Err(std::io::ErrorKind::ConnectionRefused.into()) };
        let (stream, from) = listener.accept().await?;
        match caps.admit(from.ip(), room) {
            Some(admission) => return Ok((stream, admission)),
            // It has enough of them: this one is closed at once.
            None => drop(stream),
        }
    }
}
