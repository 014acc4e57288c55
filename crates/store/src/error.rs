//! Errors of a store. A refusal by the rules (`longshore_core::refusal`) is not one of them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The underlying error. Shared, because one failed batch answers many requests.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was written. The caller may repeat the call.
    NotApplied(Cause),
    /// The change may have been written. Repeat only what is idempotent: the same idempotency key,
    /// the same lease token.
    Unknown(Cause),
    /// An earlier write or sync failed, or the writer died. Every call fails until a restart.
    /// Requests that were in flight when it happened get [`StoreError::Unknown`].
    Poisoned,
    /// Stored data fails its checks.
    Corrupt { what: String },
    /// The data has a format that this program does not open.
    Format(FormatError),
    /// Another process has the data directory open.
    InUse { directory: PathBuf },
    /// `longshore migrate-store` moved the jobs of this directory to another store.
    /// Without the file `marker` the directory can be opened again.
    Moved { marker: PathBuf, target: String },
    /// The target of a copy exists.
    AlreadyExists { path: PathBuf },
    /// The target of an import holds jobs or queues; `what` names both.
    NotEmpty { what: String },
    /// The database denies a permission to the role of the store.
    PermissionDenied(Cause),
}

/// Why data cannot be opened, although its checks may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The directory holds no store.
    NoStore,
    /// The first start was interrupted before it created the tables.
    EmptyDatabase,
    /// The database file is missing or empty, and its WAL is there.
    WalWithoutDatabase,
    /// The file is not a database, or its header is corrupt.
    NotADatabase { file: String },
    /// A database of another program.
    ForeignDatabase,
    /// Another version of the tables: `found` and `supported` are phrases for messages.
    Version { found: String, supported: String },
    /// The store runs in virtual time, and real time was requested.
    VirtualTime,
    /// The store runs in real time, and virtual time was requested.
    RealTime,
    /// A backup, which has to be restored before it is served.
    Backup,
}

impl StoreError {
    pub fn not_applied(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::NotApplied(Arc::new(cause))
    }

    pub fn unknown(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unknown(Arc::new(cause))
    }

    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// Returns the message without the statement about the write, for callers that only read.
    pub fn cause(&self) -> String {
        match self {
            Self::NotApplied(cause) | Self::Unknown(cause) => cause.to_string(),
            Self::Poisoned
            | Self::Corrupt { .. }
            | Self::Format(_)
            | Self::InUse { .. }
            | Self::Moved { .. }
            | Self::AlreadyExists { .. }
            | Self::NotEmpty { .. }
            | Self::PermissionDenied(_) => self.to_string(),
        }
    }

    /// Returns whether a write that failed with this error may have been applied.
    pub fn may_have_applied(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl From<FormatError> for StoreError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplied(cause) => write!(f, "nothing was written: {cause}"),
            Self::Unknown(cause) => write!(f, "the change may have been written: {cause}"),
            Self::Poisoned => f.write_str("nothing was written: an earlier write failed (restart the store)"),
            Self::Corrupt { what } => write!(f, "stored data is corrupt: {what}"),
            Self::Format(error) => error.fmt(f),
            Self::InUse { directory } => write!(f, "{} is in use by another process", directory.display()),
            Self::Moved { marker, target } => {
                let directory = marker.parent().unwrap_or(marker);
                write!(f, "the jobs of {} were moved to {target}", directory.display())
            }
            Self::AlreadyExists { path } => write!(f, "{} already exists", path.display()),
            Self::NotEmpty { what } => f.write_str(what),
            Self::PermissionDenied(cause) => write!(f, "permission denied: {cause}"),
        }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore => f.write_str("no store found"),
            Self::EmptyDatabase => f.write_str("empty database (first start was interrupted)"),
            Self::WalWithoutDatabase => f.write_str("found a WAL without its database"),
            Self::NotADatabase { file } => write!(f, "{file} is not a Longshore database, or its header is corrupt"),
            Self::ForeignDatabase => f.write_str("found a database of another program"),
            Self::Version { found, supported } => write!(f, "found {found}; this program supports {supported}"),
            Self::VirtualTime => f.write_str("found a store in virtual time; real time was requested"),
            Self::RealTime => f.write_str("found a store in real time; virtual time was requested"),
            Self::Backup => f.write_str("found a backup; `longshore restore` makes a store from it"),
        }
    }
}

impl std::error::Error for FormatError {}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotApplied(cause) | Self::Unknown(cause) | Self::PermissionDenied(cause) => Some(&**cause),
            Self::Format(error) => Some(error),
            Self::Poisoned
            | Self::Corrupt { .. }
            | Self::InUse { .. }
            | Self::Moved { .. }
            | Self::AlreadyExists { .. }
            | Self::NotEmpty { .. } => None,
        }
    }
}
