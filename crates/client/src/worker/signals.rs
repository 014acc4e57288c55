//! Signals of the process: the first drains, the second releases all jobs, the third exits.

use std::io;
use std::sync::{Arc, Weak};

use tokio::signal::unix::{SignalKind, signal};

use super::core::WorkerCore;

/// Listens on the runtime that is entered: the lease keeper's, which no handler can block.
pub(super) fn listen(core: &Arc<WorkerCore>) -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let core = Arc::downgrade(core);
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                on_signal(&core, kind.as_raw_value());
            }
        });
    }
    Ok(())
}

fn on_signal(core: &Weak<WorkerCore>, number: i32) {
    let count = core.upgrade().map_or(u8::MAX, |core| core.on_stop());
    if count >= 3 {
        std::process::exit(128 + number);
    }
}
