//! What an error of PostgreSQL means.

use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_store::StoreError;
use tokio_postgres::error::SqlState;

/// Why a turn did not come to its end.
#[derive(Debug)]
pub(crate) enum TxError {
    /// Somebody else was in the way: the same again may succeed.
    Conflict(tokio_postgres::Error),
    /// The connection is of no use any more; nothing was committed.
    ConnectionLost(ErrorMessage),
    /// The connection is gone, and the commit was on its way.
    Unknown(ErrorMessage),
    /// PostgreSQL refused; nothing was committed.
    Refused(tokio_postgres::Error),
    /// Queues or names have to be changed: nobody else may be at work.
    NeedsExclusive,
    /// Too much for one transaction.
    TooLarge,
    Damaged(String),
    /// A policy with a function in it cannot be kept.
    NotStorable,
}

/// What went wrong, for whoever asks.
#[derive(Clone, Debug)]
pub(crate) struct ErrorMessage(pub String);

impl std::fmt::Display for ErrorMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ErrorMessage {}

/// With its causes: the driver's own words say little.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

/// Maps a statement that PostgreSQL refused: nothing was committed.
pub(crate) fn not_applied(error: &tokio_postgres::Error) -> StoreError {
    let message = ErrorMessage(error_chain(error));
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::PermissionDenied(Arc::new(message)),
        Some(_) | None => StoreError::not_applied(message),
    }
}

impl From<tokio_postgres::Error> for TxError {
    /// Before the commit was sent.
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(code) if is_retryable(code) => Self::Conflict(error),
            Some(code) if !is_connection_error(code) => Self::Refused(error),
            Some(_) | None => Self::ConnectionLost(ErrorMessage(error_chain(&error))),
        }
    }
}

impl TxError {
    /// The commit had been sent with what failed.
    pub(crate) fn with_commit(self) -> Self {
        // The server may still have worked on it when the connection went.
        if let Self::ConnectionLost(failed) = self { Self::Unknown(failed) } else { self }
    }

    /// Whatever it was, this connection is not to be used.
    pub(crate) fn lost(self) -> Self {
        match self {
            Self::Conflict(error) | Self::Refused(error) => Self::ConnectionLost(ErrorMessage(error_chain(&error))),
            other @ (Self::ConnectionLost(_)
            | Self::Unknown(_)
            | Self::NeedsExclusive
            | Self::TooLarge
            | Self::Damaged(_)
            | Self::NotStorable) => other,
        }
    }

    /// Somebody holds what is needed, and has not let go of it in time.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Conflict(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    pub(crate) fn damaged(seq: Seq) -> Self {
        Self::Damaged(format!("the record of job {seq}"))
    }

    /// Whether the connection may be used again, after a rollback.
    pub(crate) fn connection_usable(&self) -> bool {
        match self {
            Self::ConnectionLost(_) | Self::Unknown(_) => false,
            Self::Conflict(_)
            | Self::Refused(_)
            | Self::NeedsExclusive
            | Self::TooLarge
            | Self::Damaged(_)
            | Self::NotStorable => true,
        }
    }

    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Unknown(failed) => StoreError::Unknown(Arc::new(failed)),
            Self::ConnectionLost(failed) => StoreError::NotApplied(Arc::new(failed)),
            Self::Conflict(error) | Self::Refused(error) => not_applied(&error),
            Self::NeedsExclusive => StoreError::not_applied(ErrorMessage("the queues are being changed".to_owned())),
            Self::TooLarge => StoreError::not_applied(ErrorMessage("too much for one transaction".to_owned())),
            Self::Damaged(what) => StoreError::corrupt(what),
            Self::NotStorable => StoreError::not_applied(ErrorMessage("a custom backoff cannot be stored".to_owned())),
        }
    }
}

/// Serialization failures, deadlocks, locks that were not to be had in time, and duplicates that a look at the row will explain.
fn is_retryable(code: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::UNIQUE_VIOLATION,
    ]
    .contains(code)
}

/// A server that goes down, one that has become a standby, a session that was idle in its transaction, and everything about connections.
fn is_connection_error(code: &SqlState) -> bool {
    let of_session = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IN_FAILED_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    of_session.contains(code) || ["08", "57P", "53", "XX"].iter().any(|class| code.code().starts_with(class))
}
