//! Data directory: database, lock file, checks before SQLite opens the database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use longshore_store::{FormatError, StoreError};
use rusqlite::Connection;

use crate::moved_marker;
use crate::sqlite::{DATABASE, Location, Role, map_open_error, open_immutable};
use crate::wal;
use crate::watermark;

const LOCK: &str = "longshore.lock";
/// Name of a copy until it is complete.
pub(crate) const PARTIAL: &str = "longshore.db.partial";

/// An open data directory and its lock.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub database: Location,
    /// False on a read-only file system: only read access.
    is_writable: bool,
    /// Held until the store is closed.
    _lock: Option<File>,
}

impl DataDir {
    pub(crate) fn memory(name: String) -> Self {
        Self { database: Location::Memory(name), is_writable: true, _lock: None }
    }

    /// Opens and locks the directory of an existing store.
    pub(crate) fn open_existing(directory: &Path) -> Result<Self, StoreError> {
        let directory = store_dir(directory)?;
        moved_marker::refuse(&directory)?;
        let lock = lock(&directory)?;
        check_database_present(&directory)?;
        Self::locked(&directory, Some(lock))
    }

    /// Opens the directory for reading. A backup may be on a read-only file system.
    pub(crate) fn open_read_only(directory: &Path) -> Result<Self, StoreError> {
        let directory = store_dir(directory)?;
        check_database_present(&directory)?;
        match open_private(&directory.join(LOCK)) {
            Ok(file) => Self::locked(&directory, Some(try_lock(file, &directory)?)),
            Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
                let data_dir = Self::locked(&directory, lock_if_exists(&directory)?)?;
                Ok(Self { is_writable: false, ..data_dir })
            }
            Err(error) => Err(StoreError::not_applied(error)),
        }
    }

    /// Opens a directory that another process has locked, for reading.
    pub(crate) fn open_shared(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Location::File(store_dir(directory)?.join(DATABASE)), is_writable: true, _lock: None })
    }

    /// Opens and locks a directory for a store, which may be new.
    pub(crate) fn create(directory: &Path) -> Result<Self, StoreError> {
        let data_dir = Self::create_empty(directory)?;
        if let Location::File(database) = &data_dir.database {
            check_database_present(database.parent().unwrap_or(directory))?;
            // SQLite copies the permissions of the database to its other files.
            drop(open_private(database).map_err(StoreError::not_applied)?);
        }
        Ok(data_dir)
    }

    /// Opens and locks a directory without creating the database.
    pub(crate) fn create_empty(directory: &Path) -> Result<Self, StoreError> {
        let directory = create_directory(directory)?;
        moved_marker::refuse(&directory)?;
        let lock = lock(&directory)?;
        Self::locked(&directory, Some(lock))
    }

    /// Opens a connection for reading the whole store.
    ///
    /// SQLite cannot recover a WAL on a read-only file system, so a WAL is an error there.
    pub(crate) fn open_for_read(&self) -> Result<Connection, StoreError> {
        match &self.database {
            Location::File(database) if !self.is_writable => {
                if wal_bytes(database) > 0 {
                    let reason = "has a WAL on a read-only file system (copy the directory first)";
                    return Err(StoreError::not_applied(BadPath { path: database.clone(), reason }));
                }
                open_immutable(database).map_err(map_open_error)
            }
            Location::File(_) | Location::Memory(_) => self.database.open(Role::Writer).map_err(map_open_error),
        }
    }

    fn locked(directory: &Path, lock: Option<File>) -> Result<Self, StoreError> {
        let database = directory.join(DATABASE);
        let (wal, journal) = (wal::wal_path(&database), wal::journal_path(&database));
        for file in [&database, &wal, &journal] {
            if file.is_symlink() {
                return Err(StoreError::not_applied(BadPath { path: file.clone(), reason: "is a symbolic link" }));
            }
        }
        let is_orphaned = !database.exists() && (wal.exists() || journal.exists());
        if is_orphaned || (file_bytes(&database) == 0 && file_bytes(&wal) > 0) {
            // The database is lost. A new one would look like an empty store, and SQLite would
            // delete the WAL.
            return Err(StoreError::Format(FormatError::WalWithoutDatabase));
        }
        wal::verify(&database)?;
        Ok(Self { database: Location::File(database), is_writable: true, _lock: lock })
    }
}

/// Refuses a directory whose database is missing or empty, if a store or a partial copy was there.
fn check_database_present(directory: &Path) -> Result<(), StoreError> {
    let database = directory.join(DATABASE);
    if file_bytes(&database) > 0 {
        return Ok(());
    }
    if watermark::exists(&database) {
        let file = watermark::FILE;
        let what = format!("{} is missing or empty, but {file} belongs to a store", database.display());
        return Err(StoreError::corrupt(what));
    }
    if directory.join(PARTIAL).exists() {
        let reason = "is an incomplete backup or restore; run it again";
        return Err(StoreError::not_applied(BadPath { path: directory.join(PARTIAL), reason }));
    }
    Ok(())
}

fn wal_bytes(database: &Path) -> u64 {
    [wal::wal_path(database), wal::journal_path(database)].iter().map(|file| file_bytes(file)).sum()
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Opens a file for writing, or creates it with access for its owner only. Follows no link.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Returns the directory with all links resolved, or `None` if it does not exist. SQLite follows
/// no links.
fn canonical(directory: &Path) -> Result<Option<PathBuf>, StoreError> {
    let not_a_directory =
        || StoreError::not_applied(BadPath { path: directory.to_owned(), reason: "is not a directory" });
    match fs::canonicalize(directory) {
        Ok(path) if path.is_dir() => Ok(Some(path)),
        Ok(_) => Err(not_a_directory()),
        Err(_) if directory.is_symlink() => Err(not_a_directory()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(not_a_directory()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
            Err(StoreError::not_applied(error))
        }
    }
}

/// Returns the canonical path of an existing store.
pub(crate) fn store_dir(directory: &Path) -> Result<PathBuf, StoreError> {
    let path = canonical(directory)?.filter(|path| path.join(DATABASE).is_file());
    path.ok_or(StoreError::Format(FormatError::NoStore))
}

/// Creates a directory with access for its owner only, unless it exists. Returns its canonical
/// path.
pub(crate) fn create_directory(directory: &Path) -> Result<PathBuf, StoreError> {
    if let Some(path) = canonical(directory)? {
        return Ok(path);
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut create = || {
        builder.recursive(true).create(directory)?;
        let path = fs::canonicalize(directory)?;
        // Makes the entry in the parent durable.
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
        Ok(path)
    };
    create().map_err(|error: io::Error| {
        StoreError::not_applied(io::Error::new(error.kind(), format!("{}: {error}", directory.display())))
    })
}

/// A path that a store cannot use.
#[derive(Debug)]
struct BadPath {
    path: PathBuf,
    reason: &'static str,
}

impl std::fmt::Display for BadPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for BadPath {}

fn lock(directory: &Path) -> Result<File, StoreError> {
    try_lock(open_private(&directory.join(LOCK)).map_err(StoreError::not_applied)?, directory)
}

/// Locks a directory that is only read. Creates no lock file.
pub(crate) fn lock_if_exists(directory: &Path) -> Result<Option<File>, StoreError> {
    match File::open(directory.join(LOCK)) {
        Ok(file) => try_lock(file, directory).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::not_applied(error)),
    }
}

fn try_lock(file: File, directory: &Path) -> Result<File, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { directory: directory.to_owned() }),
        Err(TryLockError::Error(error)) => Err(StoreError::not_applied(error)),
    }
}
