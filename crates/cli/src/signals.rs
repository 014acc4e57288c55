//! SIGTERM and SIGINT: the first asks to stop in order, the second at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How often the process was told to stop.
#[derive(Clone, Debug)]
pub(crate) struct Signals(watch::Receiver<u8>);

impl Signals {
    /// Must be called inside of a runtime.
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

    /// Until it was told `times` times.
    pub(crate) async fn received(&self, times: u8) {
        if self.0.clone().wait_for(|signals| *signals >= times).await.is_err() {
            // The runtime ends: nobody will tell us any more.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn times(&self) -> u8 {
        *self.0.borrow()
    }
}
