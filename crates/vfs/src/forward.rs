//! The file object that SQLite sees, and the calls that it forwards to the system's file.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ffi::{SQLITE_IOERR, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use crate::files::StoreFiles;
use crate::wal::WalBuffer;

/// Bytes of one write. SQLite's VFS for Unix takes the length modulo 128 KiB.
const WRITE_MAX: usize = 96 << 10;

/// File object of the shim. The system's file object follows it in the same allocation.
#[repr(C)]
pub(crate) struct ShimFile {
    /// SQLite reads the methods from here, so it has to be the first field.
    base: sqlite3_file,
    /// Owned by this object: `open` creates it and `close` drops it.
    state: *mut FileState,
}

/// What the shim knows about an open file.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    pub(crate) files: Arc<StoreFiles>,
    pub(crate) wal: WalBuffer,
}

impl FileState {
    /// Truncates the system's file, and reports it to the observer.
    pub(crate) fn truncate(&self, system: SystemFile, bytes: sqlite3_int64) -> c_int {
        let result = system.truncate(bytes);
        if result == SQLITE_OK
            && let Some(observer) = self.files.observer()
        {
            observer.on_truncate(&self.path, bytes.cast_unsigned());
        }
        result
    }

    /// Syncs the system's file, and reports it to the observer.
    pub(crate) fn sync(&self, system: SystemFile, flags: c_int) -> c_int {
        let mark = self.files.observer().map(|observer| observer.on_sync_start(&self.path));
        let result = system.sync(flags);
        if result == SQLITE_OK
            && let (Some(observer), Some(mark)) = (self.files.observer(), mark)
        {
            observer.on_sync_end(&self.path, mark);
        }
        result
    }
}

/// The system's file object, with its methods.
#[derive(Clone, Copy)]
pub(crate) struct SystemFile {
    file: *mut sqlite3_file,
}

/// Returns the system's file object, which follows the shim's.
///
/// # Safety
/// `file` is an allocation of SQLite of at least `szOsFile` bytes of the shim.
pub(crate) unsafe fn system_file(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: `szOsFile` of the shim is the size of `ShimFile` plus that of the system's file.
    unsafe { file.cast::<ShimFile>().add(1).cast() }
}

/// Makes `file` an object of the shim.
///
/// # Safety
/// As for [`system_file`]. The system's file is open.
pub(crate) unsafe fn install(file: *mut sqlite3_file, methods: &'static sqlite3_io_methods, state: FileState) {
    let shim = ShimFile { base: sqlite3_file { pMethods: methods }, state: Box::into_raw(Box::new(state)) };
    // SAFETY: the allocation is large enough, and SQLite aligns it to 8 bytes, like `ShimFile`.
    unsafe { file.cast::<ShimFile>().write(shim) }
}

/// Returns state and system's file of an object of the shim.
///
/// # Safety
/// `file` was passed to [`install`] and is not closed. SQLite uses a file object in one thread at a
/// time, so the state is not aliased.
pub(crate) unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut FileState, SystemFile) {
    // SAFETY: `install` has written the object; the caller guarantees that no other call uses it.
    unsafe {
        let shim = file.cast::<ShimFile>();
        (&mut *(*shim).state, SystemFile { file: system_file(file) })
    }
}

/// Closes the system's file and drops the state.
///
/// # Safety
/// As for [`parts`]. SQLite calls it once.
pub(crate) unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once; afterwards it does not use the object.
    unsafe {
        let (state, system) = parts(file);
        drop(Box::from_raw(std::ptr::from_mut(state)));
        system.close()
    }
}

/// Calls a method of the system's file. A missing method is an I/O error.
macro_rules! call {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: the system's file is open, so its methods are valid. The arguments come from
        // SQLite or point to live buffers of the shim.
        unsafe {
            match (*(*$file.file).pMethods).$method {
                Some(method) => method($file.file $(, $argument)*),
                None => SQLITE_IOERR,
            }
        }
    }};
}

impl SystemFile {
    fn close(self) -> c_int {
        call!(self, xClose)
    }

    /// # Safety
    /// `to` has space for `bytes` bytes.
    pub(crate) unsafe fn read(self, to: *mut c_void, bytes: c_int, offset: sqlite3_int64) -> c_int {
        call!(self, xRead, to, bytes, offset)
    }

    /// Writes bytes in as few calls as the system's VFS allows.
    pub(crate) fn write(self, bytes: &[u8], mut offset: sqlite3_int64) -> c_int {
        for part in bytes.chunks(WRITE_MAX) {
            let Ok(length) = c_int::try_from(part.len()) else { return SQLITE_IOERR };
            let written = call!(self, xWrite, part.as_ptr().cast(), length, offset);
            if written != SQLITE_OK {
                return written;
            }
            offset += sqlite3_int64::from(length);
        }
        SQLITE_OK
    }

    pub(crate) fn truncate(self, bytes: sqlite3_int64) -> c_int {
        call!(self, xTruncate, bytes)
    }

    pub(crate) fn sync(self, flags: c_int) -> c_int {
        call!(self, xSync, flags)
    }

    /// Returns the size of the file, or the error.
    pub(crate) fn size(self) -> Result<sqlite3_int64, c_int> {
        let mut bytes = 0;
        match call!(self, xFileSize, &raw mut bytes) {
            SQLITE_OK => Ok(bytes),
            error => Err(error),
        }
    }
}

/// Defines functions that forward a call of SQLite without a change.
macro_rules! forward {
    ($($name:ident: $method:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        /// SQLite calls it with an open file of the shim.
        pub(crate) unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $type)*) -> c_int {
            // SAFETY: SQLite passes a file that `install` has made.
            let system = SystemFile { file: unsafe { system_file(file) } };
            call!(system, $method $(, $argument)*)
        }
    )*};
}

forward! {
    lock: xLock(level: c_int);
    unlock: xUnlock(level: c_int);
    check_reserved_lock: xCheckReservedLock(result: *mut c_int);
    file_control: xFileControl(operation: c_int, argument: *mut c_void);
    sector_size: xSectorSize();
    device_characteristics: xDeviceCharacteristics();
    file_size: xFileSize(bytes: *mut sqlite3_int64);
    shm_map: xShmMap(region: c_int, bytes: c_int, extend: c_int, address: *mut *mut c_void);
    shm_lock: xShmLock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap: xShmUnmap(delete: c_int);
}

/// # Safety
/// SQLite calls it with an open file of the shim.
pub(crate) unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite passes a file that `install` has made; its system's file is open.
    unsafe {
        let system = system_file(file);
        if let Some(barrier) = (*(*system).pMethods).xShmBarrier {
            barrier(system);
        }
    }
}
