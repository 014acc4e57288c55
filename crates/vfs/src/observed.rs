//! The file object of a database or journal that an observer watches.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use crate::forward::{self, parts};

/// Version 2: without memory-mapped reads, which an observer would not see.
pub(crate) static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(forward::close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(forward::file_size),
    xLock: Some(forward::lock),
    xUnlock: Some(forward::unlock),
    xCheckReservedLock: Some(forward::check_reserved_lock),
    xFileControl: Some(forward::file_control),
    xSectorSize: Some(forward::sector_size),
    xDeviceCharacteristics: Some(forward::device_characteristics),
    xShmMap: Some(forward::shm_map),
    xShmLock: Some(forward::shm_lock),
    xShmBarrier: Some(forward::shm_barrier),
    xShmUnmap: Some(forward::shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// SQLite calls it with an open file of this kind and a buffer of `bytes` bytes.
unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, bytes: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made, and the buffer.
    unsafe { parts(file).1.read(to, bytes, offset) }
}

/// # Safety
/// SQLite calls it with an open file of this kind and `bytes` bytes.
unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, bytes: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made, and as many bytes as it says.
    let (state, system, bytes) = unsafe {
        let (state, system) = parts(file);
        (state, system, std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(bytes).unwrap_or(0)))
    };
    let written = system.write(bytes, offset);
    if written == SQLITE_OK
        && let Some(observer) = state.files.observer()
    {
        observer.on_write(&state.path, offset.cast_unsigned(), bytes);
    }
    written
}

/// # Safety
/// SQLite calls it with an open file of this kind.
unsafe extern "C" fn truncate(file: *mut sqlite3_file, bytes: sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made.
    let (state, system) = unsafe { parts(file) };
    state.truncate(system, bytes)
}

/// # Safety
/// SQLite calls it with an open file of this kind.
unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite passes a file that `install` has made.
    let (state, system) = unsafe { parts(file) };
    state.sync(system, flags)
}
