//! What SQLite says, in the words of a store.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use longshore_store::StoreError;
use rusqlite::{ErrorCode, ffi};

use crate::data_dir::open_private;
use crate::schema::Location;

/// A failure outside of a commit: nothing was written.
pub(crate) fn sql(error: rusqlite::Error) -> StoreError {
    match kind(&error) {
        DiskErrorKind::Damage => StoreError::corrupt(error.to_string()),
        DiskErrorKind::Full | DiskErrorKind::Broken => StoreError::not_applied(error),
    }
}

pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::corrupt(what)
}

/// A failure on a file of ours that SQLite knows nothing of.
pub(crate) fn io_as_sqlite(error: &io::Error) -> rusqlite::Error {
    let code = if is_no_space(error) { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR };
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(error.to_string()))
}

/// Of the disk, or of what one may have of it.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What an error means for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskErrorKind {
    /// No space is left: the transaction is rolled back and life goes on.
    Full,
    /// What is on disk is not what was written.
    Damage,
    /// A write or a sync failed: nothing can be trusted any more until a restart.
    Broken,
}

pub(crate) fn kind(error: &rusqlite::Error) -> DiskErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => DiskErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => DiskErrorKind::Damage,
        _ => DiskErrorKind::Broken,
    }
}

/// The same, where a quota may be used up. SQLite knows a full disk only and calls this a write that failed, and what the operating system has said to it is
/// out of our reach; so it is asked again, in the same directory. Whatever the reason was, nothing is trusted that was not: a write that failed is not a sync that
/// failed, and the transaction is rolled back.
pub(crate) fn classify(location: &Location, error: &rusqlite::Error) -> DiskErrorKind {
    let write_failed = error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_WRITE);
    match location {
        Location::File(database) if write_failed && over_quota(database) => DiskErrorKind::Full,
        Location::File(_) | Location::Memory(_) => kind(error),
    }
}

fn over_quota(database: &Path) -> bool {
    let probe = database.with_file_name("probe");
    let written = open_private(&probe).and_then(|file| file.write_all_at(&[0; 16 << 10], 0));
    drop(fs::remove_file(&probe));
    written.is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded)
}
