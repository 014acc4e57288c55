//! Connections to the SQLite database: location, roles, pragmas.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_store::{FormatError, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use crate::error::sql;

/// File name of the database in the data directory.
pub(crate) const DATABASE: &str = "longshore.db";

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const STATEMENT_CACHE: usize = 128;

/// Location of a database.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// Name of a shared in-memory database. SQLite drops it with its last connection.
    Memory(String),
    File(PathBuf),
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
    Checkpointer,
}

impl Location {
    pub(crate) fn open(&self, role: Role) -> rusqlite::Result<Connection> {
        let common = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = match self {
            Self::Memory(name) => {
                let flags = common | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
                Connection::open_with_flags(format!("file:/{name}?vfs=memdb"), flags)?
            }
            Self::File(path) => {
                let access = match role {
                    Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
                    Role::Checkpointer => OpenFlags::SQLITE_OPEN_READ_WRITE,
                    Role::Reader => OpenFlags::SQLITE_OPEN_READ_ONLY,
                };
                // The lock covers the named directory only, so a link to another file is an error.
                let flags = common | access | OpenFlags::SQLITE_OPEN_NOFOLLOW;
                longshore_vfs::register()
                    .map_err(|code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))?;
                Connection::open_with_flags_and_vfs(path, flags, longshore_vfs::VFS_NAME)?
            }
        };
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        // The store runs its checkpoints itself. SQLite must not run one on close, after a disk
        // error.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        match role {
            Role::Reader => connection.pragma_update(None, "query_only", true)?,
            Role::Writer | Role::Checkpointer => connection.pragma_update(None, "wal_autocheckpoint", 0)?,
        }
        Ok(connection)
    }
}

/// Limits the page cache of a connection. SQLite reads a negative number as KiB.
pub(crate) fn set_page_cache(connection: &Connection, kib: i64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cache_size", -kib)
}

/// Opens a database without its WAL. SQLite creates no file beside it.
///
/// The caller ensures that no process writes to the database.
pub(crate) fn open_immutable(database: &Path) -> rusqlite::Result<Connection> {
    let path = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
    let path = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(database.to_owned()))?;
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Maps an error of the first access: the file may belong to another program.
pub(crate) fn map_open_error(error: rusqlite::Error) -> StoreError {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return StoreError::Format(FormatError::NotADatabase { file: DATABASE.to_owned() });
    }
    sql(error)
}
