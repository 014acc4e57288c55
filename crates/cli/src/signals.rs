//! SIGTERM and SIGINT: the first signal drains, the second stops at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Number of stop signals that the process has received.
#[derive(Clone, Debug)]
pub(crate) struct Signals(watch::Receiver<u8>);

impl Signals {
    /// Installs the handlers. Panics outside of a tokio runtime.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (sender, receiver) = watch::channel(0_u8);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                sender.send_modify(|signals| *signals = signals.saturating_add(1));
            }
        });
        Ok(Self(receiver))
    }

    /// Waits for signal number `times`.
    pub(crate) async fn received(&self, times: u8) {
        if self.0.clone().wait_for(|signals| *signals >= times).await.is_err() {
            // The sender is gone because the runtime shuts down: no signal follows.
            std::future::pending::<()>().await;
        }
    }
}
