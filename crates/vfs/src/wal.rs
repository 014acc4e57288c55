//! The file object of a WAL: one write per commit, growth in chunks, syncs that may be deferred.

use std::ffi::{c_int, c_void};
use std::path::Path;

use rusqlite::ffi::{SQLITE_FULL, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use crate::files::StoreFiles;
use crate::forward::{self, FileState, SystemFile, parts};

/// Buffered bytes that are written without a sync.
const BUFFER_MAX: usize = 1 << 20;

/// Consecutive writes that the system has not received yet.
///
/// SQLite ends every commit with a sync, which writes the buffer, and only then publishes the
/// frames to other connections. So no other connection misses bytes that are buffered here.
#[derive(Debug, Default)]
pub(crate) struct WalBuffer {
    bytes: Vec<u8>,
    /// Offset of the first buffered byte.
    start: sqlite3_int64,
    /// Size of the file, with its unused end. `None` until the first write.
    allocated: Option<sqlite3_int64>,
    /// The header has changed, and no commit behind it is synced. Neither sync is deferred: frames
    /// of the previous pass must not follow a header that is lost, and a WAL in use is never empty.
    has_new_header: bool,
    /// SQLite has written frames since its last call of sync. Only the writer's connection does, so
    /// no other connection defers a sync: a checkpoint syncs the WAL before it copies pages.
    has_new_frames: bool,
}

pub(crate) static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(forward::lock),
    xUnlock: Some(forward::unlock),
    xCheckReservedLock: Some(forward::check_reserved_lock),
    xFileControl: Some(forward::file_control),
    xSectorSize: Some(forward::sector_size),
    xDeviceCharacteristics: Some(forward::device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

impl FileState {
    /// Extends the file beyond the end of the buffer, then writes the buffer.
    ///
    /// A commit that is refused must not be in the WAL. So the write of its frames is the last one
    /// that can fail.
    fn flush(&mut self, system: SystemFile) -> c_int {
        let Self { wal, files, path } = self;
        if wal.bytes.is_empty() {
            return SQLITE_OK;
        }
        let mut written = wal.extend(system, files, path);
        if written == SQLITE_OK {
            written = system.write(&wal.bytes, wal.start);
        }
        if written == SQLITE_OK
            && let Some(observer) = files.observer()
        {
            observer.on_write(path, wal.start.cast_unsigned(), &wal.bytes);
        }
        wal.bytes.clear();
        written
    }
}

impl WalBuffer {
    /// Appends a write of SQLite. Returns false if it does not continue the buffer.
    fn append(&mut self, bytes: &[u8], offset: sqlite3_int64) -> bool {
        if self.bytes.is_empty() {
            self.start = offset;
        } else if offset != self.end() || self.bytes.len() >= BUFFER_MAX {
            return false;
        }
        self.bytes.extend_from_slice(bytes);
        self.has_new_header |= offset == 0;
        self.has_new_frames |= offset != 0;
        true
    }

    fn end(&self) -> sqlite3_int64 {
        self.start.saturating_add(sqlite3_int64::try_from(self.bytes.len()).unwrap_or(sqlite3_int64::MAX))
    }

    /// Writes zeroes up to the end of the next chunk. Later commits then change no file size.
    ///
    /// Without space the file grows with each commit.
    fn extend(&mut self, system: SystemFile, files: &StoreFiles, path: &Path) -> c_int {
        let end = self.end();
        let allocated = self.allocated.unwrap_or_else(|| system.size().unwrap_or(end)).max(end);
        let chunk = sqlite3_int64::try_from(files.wal_chunk()).unwrap_or(0);
        let target = if chunk > 0 { end.div_euclid(chunk).saturating_add(1).saturating_mul(chunk) } else { end };
        self.allocated = Some(allocated);
        if allocated > end || allocated >= target {
            return SQLITE_OK;
        }
        let zeroes = vec![0; usize::try_from(target - end).unwrap_or(0)];
        match system.write(&zeroes, end) {
            SQLITE_OK => {
                self.allocated = Some(target);
                if let Some(observer) = files.observer() {
                    observer.on_write(path, end.cast_unsigned(), &zeroes);
                }
                SQLITE_OK
            }
            SQLITE_FULL => SQLITE_OK,
            error => error,
        }
    }
}

/// # Safety
/// SQLite calls it once, with an open file of this kind.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made.
    let flushed = unsafe {
        let (state, system) = parts(file);
        state.flush(system)
    };
    // SAFETY: as above, and the parts are not used any more.
    let closed = unsafe { forward::close(file) };
    if flushed == SQLITE_OK { closed } else { flushed }
}

/// # Safety
/// SQLite calls it with an open file of this kind and a buffer of `bytes` bytes.
unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, bytes: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made, and the buffer.
    unsafe {
        let (state, system) = parts(file);
        match state.flush(system) {
            SQLITE_OK => system.read(to, bytes, offset),
            error => error,
        }
    }
}

/// # Safety
/// SQLite calls it with an open file of this kind and `bytes` bytes.
unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, bytes: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made, and as many bytes as it says.
    let (state, system, bytes) = unsafe {
        let (state, system) = parts(file);
        (state, system, std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(bytes).unwrap_or(0)))
    };
    if state.wal.append(bytes, offset) {
        return SQLITE_OK;
    }
    let flushed = state.flush(system);
    if flushed == SQLITE_OK {
        state.wal.append(bytes, offset);
    }
    flushed
}

/// # Safety
/// SQLite calls it with an open file of this kind.
unsafe extern "C" fn truncate(file: *mut sqlite3_file, bytes: sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made.
    let (state, system) = unsafe { parts(file) };
    let flushed = state.flush(system);
    if flushed != SQLITE_OK {
        return flushed;
    }
    state.wal.allocated = None;
    state.truncate(system, bytes)
}

/// # Safety
/// SQLite calls it with an open file of this kind.
unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made.
    let (state, system) = unsafe { parts(file) };
    let flushed = state.flush(system);
    let has_frames = std::mem::take(&mut state.wal.has_new_frames);
    let may_defer = has_frames && !state.wal.has_new_header;
    if flushed != SQLITE_OK || (may_defer && state.files.is_sync_deferred()) {
        return flushed;
    }
    let result = state.sync(system, flags);
    if result == SQLITE_OK {
        state.wal.has_new_header &= !has_frames;
    }
    result
}

/// # Safety
/// SQLite calls it with an open file of this kind.
unsafe extern "C" fn file_size(file: *mut sqlite3_file, bytes: *mut sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made, and a place for the result.
    unsafe {
        let (state, system) = parts(file);
        match state.flush(system) {
            SQLITE_OK => forward::file_size(file, bytes),
            error => error,
        }
    }
}
