//! Mapping of SQLite and I/O errors to store errors.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use longshore_store::StoreError;
use rusqlite::{ErrorCode, ffi};

use crate::data_dir::open_private;
use crate::sqlite::Location;

/// Maps an error outside of a commit: nothing was written.
pub(crate) fn sql(error: rusqlite::Error) -> StoreError {
    match kind(&error) {
        DiskErrorKind::Corrupt => StoreError::corrupt(error.to_string()),
        DiskErrorKind::Full | DiskErrorKind::Io => StoreError::not_applied(error),
    }
}

pub(crate) fn corrupt(what: &str) -> StoreError {
    StoreError::corrupt(what)
}

/// Wraps an I/O error of a file beside the database, so one function classifies both.
pub(crate) fn io_as_sqlite(error: &io::Error) -> rusqlite::Error {
    let code = if is_no_space(error) { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR };
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(error.to_string()))
}

/// Returns whether the disk is full or a quota is used up.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Consequence of an error for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskErrorKind {
    /// No space: the writer rolls back and continues.
    Full,
    /// Stored data fails its checks.
    Corrupt,
    /// A write or a sync failed. The state of the files is unknown until recovery verifies them.
    Io,
}

pub(crate) fn kind(error: &rusqlite::Error) -> DiskErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => DiskErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => DiskErrorKind::Corrupt,
        _ => DiskErrorKind::Io,
    }
}

/// Classifies an error, including a used-up quota.
///
/// SQLite reports a quota as a failed write and hides the error number. A test write in the same
/// directory finds out. A failed write, unlike a failed sync, leaves the transaction to roll back.
pub(crate) fn classify(location: &Location, error: &rusqlite::Error) -> DiskErrorKind {
    let write_failed = error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_WRITE);
    match location {
        Location::File(database) if write_failed && is_over_quota(database) => DiskErrorKind::Full,
        Location::File(_) | Location::Memory(_) => kind(error),
    }
}

fn is_over_quota(database: &Path) -> bool {
    let probe = database.with_file_name("quota-probe");
    let written = open_private(&probe).and_then(|file| file.write_all_at(&[0; 16 << 10], 0));
    drop(fs::remove_file(&probe));
    written.is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded)
}
