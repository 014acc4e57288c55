//! The directory: one database in it, one lock, and nothing that is anybody else's.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use longshore_store::StoreError;
use rusqlite::Connection;

use crate::moved;
use crate::schema::{DATABASE, Location, Role, SUPPORTED, map_open_error, open_immutable};
use crate::wal;
use crate::watermark;

const LOCK: &str = "lock";
/// What a copy is called until it is whole.
pub(crate) const UNFINISHED: &str = "longshore.db.unfinished";

/// Where a store keeps its files, and the lock that keeps others out.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub database: Location,
    /// Where nothing can be written, there is only a look.
    writable: bool,
    /// Held until the store is closed.
    _lock: Option<File>,
}

impl DataDir {
    pub(crate) fn memory(name: String) -> Self {
        Self { database: Location::Memory(name), writable: true, _lock: None }
    }

    /// The directory of a store that is there.
    pub(crate) fn open_existing(directory: &Path) -> Result<Self, StoreError> {
        let directory = store_dir(directory)?;
        moved::refuse(&directory)?;
        let lock = lock(&directory)?;
        check_database_present(&directory)?;
        Self::locked(&directory, Some(lock))
    }

    /// The same, for looking only: a backup may lie where nothing can be written.
    pub(crate) fn open_read_only(directory: &Path) -> Result<Self, StoreError> {
        let directory = store_dir(directory)?;
        check_database_present(&directory)?;
        match open_private(&directory.join(LOCK)) {
            Ok(file) => Self::locked(&directory, Some(take(file, &directory)?)),
            Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
                let home = Self::locked(&directory, lock_if_there(&directory)?)?;
                Ok(Self { writable: false, ..home })
            }
            Err(error) => Err(StoreError::not_applied(error)),
        }
    }

    /// The directory of a store that another process has the lock of: for looking only.
    pub(crate) fn open_shared(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Location::File(store_dir(directory)?.join(DATABASE)), writable: true, _lock: None })
    }

    /// Makes the directory if need be, and takes its lock.
    pub(crate) fn directory(directory: &Path) -> Result<Self, StoreError> {
        let home = Self::create_empty(directory)?;
        if let Location::File(database) = &home.database {
            check_database_present(database.parent().unwrap_or(directory))?;
            // SQLite gives its other files the rights of this one.
            drop(open_private(database).map_err(StoreError::not_applied)?);
        }
        Ok(home)
    }

    /// The same, without any file of a store.
    pub(crate) fn create_empty(directory: &Path) -> Result<Self, StoreError> {
        let directory = make_directory(directory)?;
        moved::refuse(&directory)?;
        let lock = lock(&directory)?;
        Self::locked(&directory, Some(lock))
    }

    /// A connection that sees everything. Where nothing can be written there may be no log, for SQLite would have to work on it.
    pub(crate) fn look(&self) -> Result<Connection, StoreError> {
        match &self.database {
            Location::File(database) if !self.writable => {
                if log_bytes(database) > 0 {
                    let why = "was not stopped and lies where nothing can be written: copy it elsewhere first";
                    return Err(StoreError::not_applied(BadPath { path: database.clone(), why }));
                }
                open_immutable(database).map_err(map_open_error)
            }
            Location::File(_) | Location::Memory(_) => self.database.open(Role::Writer).map_err(map_open_error),
        }
    }

    fn locked(directory: &Path, lock: Option<File>) -> Result<Self, StoreError> {
        let database = directory.join(DATABASE);
        let (log, journal) = (wal::path_of(&database), wal::journal_of(&database));
        for file in [&database, &log, &journal] {
            if file.is_symlink() {
                return Err(StoreError::not_applied(BadPath { path: file.clone(), why: "is a symbolic link" }));
            }
        }
        let left_over = !database.exists() && (log.exists() || journal.exists());
        if left_over || (bytes_of(&database) == 0 && bytes_of(&log) > 0) {
            // Somebody has lost the database; a new one would look as if there had never been a job, and SQLite would remove the log.
            let found = "a log without its database".to_owned();
            return Err(StoreError::Format { found, supported: SUPPORTED });
        }
        wal::check(&database)?;
        Ok(Self { database: Location::File(database), writable: true, _lock: lock })
    }
}

/// Where it is noted that there was a store, a database that is gone or empty is not a new one; and a copy that was never finished is none at all.
fn check_database_present(directory: &Path) -> Result<(), StoreError> {
    let database = directory.join(DATABASE);
    if bytes_of(&database) > 0 {
        return Ok(());
    }
    if watermark::exists(&database) {
        let mark = watermark::FILE;
        let what = format!("{} is missing or empty, and {mark} says that there was a store", database.display());
        return Err(StoreError::corrupt(what));
    }
    if directory.join(UNFINISHED).exists() {
        let why = "is what a backup or a restore has left that did not come to its end: do it again";
        return Err(StoreError::not_applied(BadPath { path: directory.join(UNFINISHED), why }));
    }
    Ok(())
}

fn log_bytes(database: &Path) -> u64 {
    [wal::path_of(database), wal::journal_of(database)].iter().map(|log| bytes_of(log)).sum()
}

fn bytes_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// Opens a file for writing, made for its owner alone if it is not there. A link in its place is not followed.
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

/// The directory itself, whichever links lead to it: SQLite follows none. `None`: there is nothing.
fn canonical(directory: &Path) -> Result<Option<PathBuf>, StoreError> {
    let unfit = || StoreError::not_applied(BadPath { path: directory.to_owned(), why: "is not a directory" });
    match fs::canonicalize(directory) {
        Ok(real) if real.is_dir() => Ok(Some(real)),
        Ok(_) => Err(unfit()),
        Err(_) if directory.is_symlink() => Err(unfit()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(unfit()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let told = io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
            Err(StoreError::not_applied(told))
        }
    }
}

/// Where the store of a directory really is.
pub(crate) fn store_dir(directory: &Path) -> Result<PathBuf, StoreError> {
    let real = canonical(directory)?.filter(|real| real.join(DATABASE).is_file());
    real.ok_or_else(|| {
        let found = "no store".to_owned();
        StoreError::Format { found, supported: SUPPORTED }
    })
}

/// Makes a directory for its owner alone, unless it is there; says where it really is.
pub(crate) fn make_directory(directory: &Path) -> Result<PathBuf, StoreError> {
    if let Some(real) = canonical(directory)? {
        return Ok(real);
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut make = || {
        builder.recursive(true).create(directory)?;
        let real = fs::canonicalize(directory)?;
        // The entry in the parent must outlive a power cut, too.
        real.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
        Ok(real)
    };
    make().map_err(|error: io::Error| {
        StoreError::not_applied(io::Error::new(error.kind(), format!("{}: {error}", directory.display())))
    })
}

/// Something else lies where a store should be.
#[derive(Debug)]
struct BadPath {
    path: PathBuf,
    why: &'static str,
}

impl std::fmt::Display for BadPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path.display(), self.why)
    }
}

impl std::error::Error for BadPath {}

fn lock(directory: &Path) -> Result<File, StoreError> {
    take(open_private(&directory.join(LOCK)).map_err(StoreError::not_applied)?, directory)
}

/// The lock of a directory that is only read: none is made.
pub(crate) fn lock_if_there(directory: &Path) -> Result<Option<File>, StoreError> {
    match File::open(directory.join(LOCK)) {
        Ok(file) => take(file, directory).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::not_applied(error)),
    }
}

fn take(file: File, directory: &Path) -> Result<File, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::not_applied(Locked(directory.to_owned()))),
        Err(TryLockError::Error(error)) => Err(StoreError::not_applied(error)),
    }
}

/// Another process works in the directory.
#[derive(Debug)]
pub(crate) struct Locked(PathBuf);

impl std::fmt::Display for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is in use by another process", self.0.display())
    }
}

impl std::error::Error for Locked {}
