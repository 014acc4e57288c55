//! Whether the server answers. All calls of a worker report here: claims, heartbeats and settlements.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_client::Error;

use crate::terminal::output::Output;

/// Prints one line when the server stops answering and one when it is back, not one for each retry.
#[derive(Debug)]
pub(super) struct Connectivity {
    screen: Output,
    is_lost: AtomicBool,
}

impl Connectivity {
    pub(super) fn new(screen: Output) -> Self {
        Self { screen, is_lost: AtomicBool::new(false) }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    pub(super) fn observe<T>(&self, answer: &Result<T, Error>) {
        match answer {
            Ok(_) => self.restored(),
            Err(error) if is_outage(error) => self.lost(error),
            Err(Error::Refused(_)) => self.restored(),
            Err(
                Error::Connect { .. }
                | Error::ResponseLost { .. }
                | Error::UnexpectedResponse { .. }
                | Error::InvalidRequest(_),
            ) => {}
        }
    }

    pub(super) fn lost(&self, why: impl Display) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            self.screen.warn(&format!("the server is away: {why}; trying again until it answers"));
        }
    }

    fn restored(&self) {
        if self.is_lost.swap(false, Ordering::Relaxed) {
            self.screen.warn("the server answers again");
        }
    }
}

/// No answer, or one that says that the server, or a proxy in front of it, cannot serve now.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Connect { .. } | Error::ResponseLost { .. } => true,
        Error::Refused(problem) => problem.status >= 500,
        Error::UnexpectedResponse { status, .. } => *status >= 500,
        Error::InvalidRequest(_) => false,
    }
}
