//! Registration of the VFS, and its methods that open and delete files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

use rusqlite::ffi::{
    SQLITE_CANTOPEN, SQLITE_ERROR, SQLITE_IOERR, SQLITE_OK, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL,
    SQLITE_OPEN_WAL, sqlite3_file, sqlite3_filename, sqlite3_initialize, sqlite3_int64, sqlite3_io_methods,
    sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

use crate::files::StoreFiles;
use crate::forward::{FileState, ShimFile, install, system_file};
use crate::wal::WalBuffer;
use crate::{observed, wal};

/// Name of the VFS for `open_with_flags_and_vfs`.
pub const VFS_NAME: &CStr = c"longshore";

/// The system's VFS. Its address as a number, because pointers are not `Sync`.
static SYSTEM: OnceLock<Result<usize, c_int>> = OnceLock::new();

/// Registers the VFS once. Returns SQLite's error code if that fails.
pub fn register() -> Result<(), c_int> {
    SYSTEM.get_or_init(register_once).map(drop)
}

fn register_once() -> Result<usize, c_int> {
    // SAFETY: SQLite may be initialised any number of times; a null name finds the default VFS,
    // which lives as long as the process.
    let system = unsafe {
        match sqlite3_initialize() {
            SQLITE_OK => sqlite3_vfs_find(std::ptr::null()),
            error => return Err(error),
        }
    };
    if system.is_null() {
        return Err(SQLITE_ERROR);
    }
    // SAFETY: the default VFS is valid and not changed after its registration.
    let description = unsafe { *system };
    let shim_bytes = c_int::try_from(size_of::<ShimFile>()).map_err(|_| SQLITE_ERROR)?;
    let shim = Box::new(sqlite3_vfs {
        iVersion: 2,
        szOsFile: description.szOsFile.saturating_add(shim_bytes),
        pNext: std::ptr::null_mut(),
        zName: VFS_NAME.as_ptr(),
        pAppData: std::ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        ..description
    });
    // SAFETY: SQLite keeps the pointer, and the box is leaked. Its functions are those above.
    match unsafe { sqlite3_vfs_register(Box::leak(shim), 0) } {
        SQLITE_OK => Ok(system as usize),
        error => Err(error),
    }
}

/// Returns the system's VFS, or null before [`register`].
fn system() -> *mut sqlite3_vfs {
    match SYSTEM.get() {
        Some(Ok(address)) => *address as *mut sqlite3_vfs,
        Some(Err(_)) | None => std::ptr::null_mut(),
    }
}

/// Opens a file: a WAL with settings or a watched file as an object of the shim, any other as the
/// system's own.
///
/// # Safety
/// SQLite calls it with a file allocation of `szOsFile` bytes.
unsafe extern "C" fn open(
    _shim: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let found = kind_of(flags).and_then(|kind| {
        // SAFETY: SQLite passes null or a string that lives as long as the file.
        let path = unsafe { path_of(name) }?;
        let files = StoreFiles::find(path)?;
        let methods = match kind {
            FileKind::Wal => &wal::METHODS,
            FileKind::Database => files.observer().map(|_| &observed::METHODS)?,
        };
        Some((methods, FileState { path: path.to_owned(), files, wal: WalBuffer::default() }))
    });
    // SAFETY: the allocation has space for the file of the shim and that of the system. The
    // system's VFS is registered, because the shim is. A failed open leaves no methods behind.
    unsafe {
        let Some(system_open) = (*system()).xOpen else { return SQLITE_CANTOPEN };
        let Some((methods, state)) = found else { return system_open(system(), name, file, flags, out_flags) };
        let inner = system_file(file);
        (*file).pMethods = std::ptr::null();
        (*inner).pMethods = std::ptr::null();
        let opened = system_open(system(), name, inner, flags, out_flags);
        if opened == SQLITE_OK {
            install(file, methods, state);
        } else {
            close_failed(inner);
        }
        opened
    }
}

/// Closes a file whose open failed, if the system asks for it.
///
/// # Safety
/// `file` was passed to the `xOpen` of the system.
unsafe fn close_failed(file: *mut sqlite3_file) {
    // SAFETY: methods that a failed open has set are valid.
    unsafe {
        let methods: *const sqlite3_io_methods = (*file).pMethods;
        if !methods.is_null()
            && let Some(close) = (*methods).xClose
        {
            close(file);
        }
    }
}

#[derive(Clone, Copy)]
enum FileKind {
    Wal,
    /// The database or its journal.
    Database,
}

fn kind_of(flags: c_int) -> Option<FileKind> {
    if flags & SQLITE_OPEN_WAL != 0 {
        Some(FileKind::Wal)
    } else {
        (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL) != 0).then_some(FileKind::Database)
    }
}

/// # Safety
/// `name` is null or a C string that outlives the result.
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a C string.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// # Safety
/// SQLite calls it with a C string.
unsafe extern "C" fn delete(_shim: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: the system's VFS is registered, because the shim is; SQLite passes a string.
    let (deleted, path) = unsafe {
        let Some(delete) = (*system()).xDelete else { return SQLITE_IOERR };
        (delete(system(), name, sync_directory), path_of(name))
    };
    if deleted == SQLITE_OK
        && let Some((path, files)) = path.and_then(|path| Some((path, StoreFiles::find(path)?)))
        && let Some(observer) = files.observer()
    {
        observer.on_delete(path);
    }
    deleted
}

/// Defines methods that forward to the system's VFS.
macro_rules! forward {
    ($($name:ident: $method:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        /// SQLite calls it with the arguments of this method.
        unsafe extern "C" fn $name(_shim: *mut sqlite3_vfs $(, $argument: $type)*) -> c_int {
            // SAFETY: the system's VFS is registered, because the shim is. It gets its own pointer
            // and the arguments of SQLite.
            unsafe {
                match (*system()).$method {
                    Some(method) => method(system() $(, $argument)*),
                    None => SQLITE_ERROR,
                }
            }
        }
    )*};
}

forward! {
    access: xAccess(name: *const c_char, flags: c_int, result: *mut c_int);
    full_pathname: xFullPathname(name: *const c_char, bytes: c_int, result: *mut c_char);
    randomness: xRandomness(bytes: c_int, result: *mut c_char);
    sleep: xSleep(microseconds: c_int);
    current_time: xCurrentTime(result: *mut f64);
    last_error: xGetLastError(bytes: c_int, result: *mut c_char);
    current_time_int64: xCurrentTimeInt64(result: *mut sqlite3_int64);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use rusqlite::{Connection, OpenFlags};

    use super::*;
    use crate::DiskObserver;

    /// Calls on the WAL, in order.
    #[derive(Debug, Default)]
    struct Calls(Mutex<Vec<String>>);

    impl Calls {
        fn record(&self, file: &Path, what: &str) {
            if file.to_str().is_some_and(|name| name.ends_with("-wal")) {
                self.0.lock().unwrap().push(what.to_owned());
            }
        }

        fn drain(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl DiskObserver for Calls {
        fn on_write(&self, file: &Path, offset: u64, bytes: &[u8]) {
            self.record(file, &format!("write {} at {offset}", bytes.len()));
        }
        fn on_truncate(&self, file: &Path, bytes: u64) {
            self.record(file, &format!("truncate {bytes}"));
        }
        fn on_delete(&self, file: &Path) {
            self.record(file, "delete");
        }
        fn on_sync_start(&self, _file: &Path) -> u64 {
            0
        }
        fn on_sync_end(&self, file: &Path, _mark: u64) {
            self.record(file, "sync");
        }
    }

    fn open_in(directory: &Path) -> Connection {
        register().unwrap();
        let connection =
            Connection::open_with_flags_and_vfs(directory.join("a.db"), OpenFlags::default(), VFS_NAME).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        connection
    }

    #[test]
    fn a_commit_is_one_write_and_a_deferred_sync_is_none() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().canonicalize().unwrap();
        let calls = Arc::new(Calls::default());
        let files = StoreFiles::attach(&directory.join("a.db"), 0, Some(calls.clone()));
        files.defer_sync(true);
        let connection = open_in(&directory);
        connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
        let (header, frame) = (32, 24 + 4_096);
        let second = header + 2 * frame;
        // The header and the first commit are synced although syncs are deferred.
        let expected = [
            "write 32 at 0".to_owned(),
            "sync".to_owned(),
            format!("write {} at 32", 2 * frame),
            "sync".to_owned(),
            format!("write {frame} at {second}"),
        ];
        assert_eq!(calls.drain(), expected);
        files.defer_sync(false);
        connection.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        assert_eq!(calls.drain(), [format!("write {frame} at {}", second + frame), "sync".to_owned()]);
        // A checkpoint syncs the WAL before it copies pages, also of a deferred commit.
        files.defer_sync(true);
        connection.execute_batch("INSERT INTO t VALUES (3); PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        assert_eq!(calls.drain(), [format!("write {frame} at {}", second + 2 * frame), "sync".to_owned()]);
        let other = open_in(&directory);
        let sum: i64 = other.query_row("SELECT sum(x) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(sum, 6);
    }

    #[test]
    fn a_wal_grows_in_chunks_and_reads_back() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().canonicalize().unwrap();
        let files = StoreFiles::attach(&directory.join("a.db"), 1 << 16, None);
        let connection = open_in(&directory);
        connection.execute_batch("CREATE TABLE t(x BLOB)").unwrap();
        let length = || std::fs::metadata(files.wal_path()).unwrap().len();
        assert_eq!(length(), 1 << 16);
        // Larger than the page cache: SQLite reads pages back from the WAL before the commit.
        connection.pragma_update(None, "cache_size", 2).unwrap();
        let rows = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO t SELECT zeroblob(3000) FROM n; UPDATE t SET x = zeroblob(2000)";
        connection.execute_batch(&format!("BEGIN; {rows}; COMMIT")).unwrap();
        assert_eq!(length() % (1 << 16), 0);
        drop(connection);
        let check: String = open_in(&directory).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}
