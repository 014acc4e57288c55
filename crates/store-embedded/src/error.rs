//! What SQLite says, in the words of a store.

use longshore_store::StoreError;
use rusqlite::{ErrorCode, ffi};

/// A failure outside of a commit: nothing was written.
pub(crate) fn sql(error: rusqlite::Error) -> StoreError {
    match kind(&error) {
        Kind::Damage => StoreError::corrupt(error.to_string()),
        Kind::Full | Kind::Broken => StoreError::not_applied(error),
    }
}

pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::corrupt(what)
}

/// A failure on a file of ours that SQLite knows nothing of.
pub(crate) fn of_file(error: &std::io::Error) -> rusqlite::Error {
    let full = error.kind() == std::io::ErrorKind::StorageFull;
    let code = if full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR };
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(error.to_string()))
}

/// What an error means for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No space is left: the transaction is rolled back and life goes on.
    Full,
    /// What is on disk is not what was written.
    Damage,
    /// A write or a sync failed: nothing can be trusted any more until a restart.
    Broken,
}

pub(crate) fn kind(error: &rusqlite::Error) -> Kind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Kind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Kind::Damage,
        _ => Kind::Broken,
    }
}
