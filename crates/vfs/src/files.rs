//! Settings and observer of the files of one store, shared by the store and the shim.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// Sees every change of a store's files, for a simulated power cut.
pub trait DiskObserver: Debug + Send + Sync {
    /// Bytes were written. They may be lost until a sync that starts later.
    fn on_write(&self, file: &Path, offset: u64, bytes: &[u8]);
    fn on_truncate(&self, file: &Path, bytes: u64);
    fn on_delete(&self, file: &Path);
    /// A sync starts. Returns a mark for [`DiskObserver::on_sync_end`].
    fn on_sync_start(&self, file: &Path) -> u64;
    /// The changes from before the mark are durable.
    fn on_sync_end(&self, file: &Path, mark: u64);
}

/// Files of one store. The shim finds it by the path of the database.
#[derive(Debug)]
pub struct StoreFiles {
    database: PathBuf,
    observer: Option<Arc<dyn DiskObserver>>,
    /// Growth of the WAL in bytes; 0: as much as is written.
    wal_chunk: u64,
    is_sync_deferred: AtomicBool,
}

static STORES: LazyLock<Mutex<HashMap<PathBuf, Weak<StoreFiles>>>> = LazyLock::new(Mutex::default);

impl StoreFiles {
    /// Attaches settings to a database. They apply to connections that are opened later.
    pub fn attach(database: &Path, wal_chunk: u64, observer: Option<Arc<dyn DiskObserver>>) -> Arc<Self> {
        let files = Arc::new(Self {
            database: database.to_owned(),
            observer,
            wal_chunk,
            is_sync_deferred: AtomicBool::new(false),
        });
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.insert(database.to_owned(), Arc::downgrade(&files));
        files
    }

    /// Returns the settings of the database that a file belongs to.
    pub(crate) fn find(file: &Path) -> Option<Arc<Self>> {
        let stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        let name = file.to_str()?;
        let database = ["-wal", "-journal"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        stores.get(Path::new(database))?.upgrade()
    }

    /// Sets whether the next commits of the writer skip the sync of the WAL.
    ///
    /// Their frames are written in order. The next sync of the file makes all of them durable.
    pub fn defer_sync(&self, is_deferred: bool) {
        self.is_sync_deferred.store(is_deferred, Ordering::Relaxed);
    }

    pub(crate) fn is_sync_deferred(&self) -> bool {
        self.is_sync_deferred.load(Ordering::Relaxed)
    }

    pub(crate) fn wal_chunk(&self) -> u64 {
        self.wal_chunk
    }

    pub(crate) fn observer(&self) -> Option<&dyn DiskObserver> {
        self.observer.as_deref()
    }

    /// Opens the WAL for [`StoreFiles::sync`].
    pub fn open_wal(&self) -> io::Result<File> {
        File::open(self.wal_path())
    }

    pub fn wal_path(&self) -> PathBuf {
        let mut name = OsString::from(&self.database);
        name.push("-wal");
        PathBuf::from(name)
    }

    /// Writes to a file beside the database.
    pub fn write_at(&self, path: &Path, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)?;
        if let Some(observer) = self.observer() {
            observer.on_write(path, offset, bytes);
        }
        Ok(())
    }

    /// Syncs the data of a file: the database, its WAL or a file beside them.
    pub fn sync(&self, path: &Path, file: &File) -> io::Result<()> {
        let mark = self.observer().map(|observer| observer.on_sync_start(path));
        file.sync_data()?;
        if let (Some(observer), Some(mark)) = (self.observer(), mark) {
            observer.on_sync_end(path, mark);
        }
        Ok(())
    }
}

impl Drop for StoreFiles {
    fn drop(&mut self) {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        // A newer store may have attached to the same path.
        if stores.get(&self.database).is_some_and(|files| files.strong_count() == 0) {
            stores.remove(&self.database);
        }
    }
}
