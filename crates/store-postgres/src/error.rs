//! Errors of transactions, and what errors of PostgreSQL mean.

use std::sync::Arc;

use longshore_core::id::Seq;
pub(crate) use longshore_store::ErrorMessage;
use longshore_store::StoreError;
use tokio_postgres::error::SqlState;

/// Why a transaction failed.
#[derive(Debug)]
pub(crate) enum TxError {
    /// Conflict with another transaction; a retry may succeed.
    Conflict(tokio_postgres::Error),
    /// The connection failed; nothing was committed.
    ConnectionLost(ErrorMessage),
    /// The connection failed after the commit was sent.
    Unknown(ErrorMessage),
    /// PostgreSQL refused; nothing was committed.
    Refused(tokio_postgres::Error),
    /// Queues or names change, which needs the exclusive lock.
    NeedsExclusive,
    /// Too much for one transaction.
    TooLarge,
    Damaged(String),
    /// A policy has a custom backoff function, which cannot be stored.
    NotStorable,
}

/// Maps a statement that PostgreSQL refused: nothing was committed.
pub(crate) fn not_applied(error: &tokio_postgres::Error) -> StoreError {
    let message = ErrorMessage(error_chain(error));
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::PermissionDenied(Arc::new(message)),
        Some(_) | None => StoreError::not_applied(message),
    }
}

/// The error with its causes.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl From<tokio_postgres::Error> for TxError {
    /// An error before the commit was sent.
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(code) if is_retryable(code) => Self::Conflict(error),
            Some(code) if !is_connection_error(code) => Self::Refused(error),
            Some(_) | None => Self::ConnectionLost(ErrorMessage(error_chain(&error))),
        }
    }
}

impl TxError {
    /// The same error, if the commit was already sent.
    pub(crate) fn with_commit(self) -> Self {
        // The server may have committed before the connection failed.
        if let Self::ConnectionLost(failed) = self { Self::Unknown(failed) } else { self }
    }

    /// The same error, for a connection that must not be used again.
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

    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Conflict(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    pub(crate) fn damaged(seq: Seq) -> Self {
        Self::Damaged(format!("record of job {seq}"))
    }

    /// Whether the connection can be used again after a rollback.
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
            Self::NeedsExclusive => {
                StoreError::not_applied(ErrorMessage("queues are being changed; try again".to_owned()))
            }
            Self::TooLarge => {
                StoreError::not_applied(ErrorMessage("request is too large for one transaction".to_owned()))
            }
            Self::Damaged(what) => StoreError::corrupt(what),
            Self::NotStorable => StoreError::not_applied(ErrorMessage("a custom backoff cannot be stored".to_owned())),
        }
    }
}

/// Serialization failures, deadlocks, lock timeouts, and duplicate keys: the retry reads the
/// conflicting row.
fn is_retryable(code: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::UNIQUE_VIOLATION,
    ]
    .contains(code)
}

/// Shutdown, demotion to a standby, an idle transaction that was ended, and connection failures.
fn is_connection_error(code: &SqlState) -> bool {
    let session_errors = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IN_FAILED_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    session_errors.contains(code) || ["08", "57P", "53", "XX"].iter().any(|class| code.code().starts_with(class))
}
