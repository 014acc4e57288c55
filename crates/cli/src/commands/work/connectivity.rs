//! Tracks whether the server responds, by the results of all requests of a worker.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore::Error;

use crate::terminal::output::Output;

/// Prints one line when the server stops responding and one when it responds again.
#[derive(Debug)]
pub(super) struct Connectivity {
    output: Output,
    is_lost: AtomicBool,
}

impl Connectivity {
    pub(super) fn new(output: Output) -> Self {
        Self { output, is_lost: AtomicBool::new(false) }
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
            self.output.warn(&format!("the server does not respond: {why}; retrying"));
        }
    }

    fn restored(&self) {
        if self.is_lost.swap(false, Ordering::Relaxed) {
            self.output.warn("the server responds again");
        }
    }
}

/// Whether there was no response, or a status of 500 or above from the server or a proxy.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Connect { .. } | Error::ResponseLost { .. } => true,
        Error::Refused(problem) => problem.status >= 500,
        Error::UnexpectedResponse { status, .. } => *status >= 500,
        Error::InvalidRequest(_) => false,
    }
}
