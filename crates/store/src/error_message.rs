//! An error that consists of a message.

use std::fmt;

/// An error that consists of a message.
#[derive(Clone, Debug)]
pub struct ErrorMessage(pub String);

impl ErrorMessage {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ErrorMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ErrorMessage {}
