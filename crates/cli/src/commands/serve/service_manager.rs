//! Reports start, stop and liveness to the service manager that started the server.
//!
//! The protocol is sd_notify: datagrams to the socket in `NOTIFY_SOCKET`. Without that variable
//! every function does nothing.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use longshore_store::{Store, StoreError};
use sd_notify::NotifyState;

/// Checks of the store per watchdog interval: one that takes two thirds of it is still in time.
const CHECKS_PER_INTERVAL: u32 = 3;
/// Shortest pause between two checks.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Reports that the store is open and the address is bound.
pub(super) fn report_ready(address: std::net::SocketAddr) {
    let status = format!("serving on {address}");
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Reports that the server drains.
pub(super) fn report_stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("draining requests in flight")]);
}

/// Pings the watchdog after each answer of the store's writer. Never returns.
///
/// A writer that hangs, has died or is poisoned gets no ping, and the service manager restarts the
/// server. A database that cannot be reached is an answer: a restart would not help.
pub(super) async fn keep_watchdog_alive(store: Weak<dyn Store>) -> Infallible {
    let Some(interval) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let pause = (interval / CHECKS_PER_INTERVAL).max(PAUSE_MIN);
    while let Some(store) = Weak::upgrade(&store) {
        if is_writer_alive(store).await {
            send(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(pause).await;
    }
    std::future::pending().await
}

/// Sends an empty batch of heartbeats through the store's writer, which changes nothing.
async fn is_writer_alive(store: Arc<dyn Store>) -> bool {
    match store.heartbeat(Vec::new()).await {
        Ok(_) => true,
        Err(StoreError::Poisoned) => false,
        Err(error) => {
            tracing::debug!(%error, "store answered the watchdog with an error");
            true
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
