//! Space set aside for a full disk: new work is refused then, while what is under way can be finished.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_core::time::Timestamp;
use longshore_store::StoreHealth;
use longshore_store::clock::monotonic;
use rustix::io::Errno;

use crate::data_dir::open_private;

const RESERVE: &str = "reserve";
/// Between two looks whether a full disk has room again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Beyond the reserve, a full disk must have this part of it free before new work is taken again.
const SLACK_PART: u64 = 8;

/// The disk is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSpace {
    /// What has to be free before new work is taken again.
    wanted_bytes: u64,
}

impl std::fmt::Display for NoSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no space is left on the disk")?;
        match self.wanted_bytes {
            0 => Ok(()),
            bytes => write!(f, ": new jobs are taken again once {bytes} bytes are free, to be set aside as a reserve"),
        }
    }
}

impl std::error::Error for NoSpace {}

/// What others than the writer see of the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// `None`: a store in memory.
    directory: Option<PathBuf>,
    /// 0: nothing is set aside.
    reserve_bytes: u64,
    /// The disk was full, and the reserve could not be set aside again.
    in_use: Arc<AtomicBool>,
}

impl Room {
    pub(crate) fn in_memory() -> Self {
        Self::default()
    }

    pub(crate) fn of(directory: &Path, reserve_bytes: u64) -> Self {
        Self { directory: Some(directory.to_owned()), reserve_bytes, in_use: Arc::default() }
    }

    /// What has to be free before new work is taken again.
    fn wanted_bytes(&self) -> u64 {
        self.reserve_bytes.saturating_add(self.reserve_bytes / SLACK_PART)
    }

    fn in_use(&self) -> bool {
        self.in_use.load(Ordering::SeqCst)
    }

    fn set_in_use(&self, in_use: bool) {
        self.in_use.store(in_use, Ordering::SeqCst);
    }

    /// Asks the operating system for the free bytes.
    pub(crate) fn health(&self, poisoned: bool) -> StoreHealth {
        let refusing = if poisoned {
            Some("a write or a sync of the store has failed: look at the disk and start the server again".to_owned())
        } else {
            self.in_use().then(|| NoSpace { wanted_bytes: self.wanted_bytes() }.to_string())
        };
        let reserve = self.directory.is_some() && self.reserve_bytes > 0;
        let statistics = self.directory.as_ref().and_then(|directory| rustix::fs::statvfs(directory).ok());
        StoreHealth {
            refusing,
            reserve_bytes: reserve.then(|| if self.in_use() { 0 } else { self.reserve_bytes }),
            free_bytes: statistics.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Reserve {
    /// `None`: nothing is set aside.
    path: Option<PathBuf>,
    room: Room,
    /// When the disk was last full, or last asked for room.
    asked_at: Option<Duration>,
}

impl Reserve {
    /// A store that cannot set space aside still opens: it may have to finish work on a full disk.
    pub(crate) fn allocate(room: Room) -> Self {
        let path = room.directory.as_ref().filter(|_| room.reserve_bytes > 0).map(|directory| directory.join(RESERVE));
        room.set_in_use(path.is_some());
        let mut reserve = Self { path, room, asked_at: None };
        reserve.restore();
        reserve
    }

    /// What has to be found before new work is taken again; nothing while all is well.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        self.room.in_use().then_some(self.room.wanted_bytes())
    }

    pub(crate) fn no_space(&self) -> NoSpace {
        NoSpace { wanted_bytes: self.room.wanted_bytes() }
    }

    /// Whether there is room for new work. Nothing else may be due for hours, so whoever brings some lets a full disk be asked again.
    pub(crate) fn has_space(&mut self) -> bool {
        self.restore();
        !self.room.in_use()
    }

    /// Gives the space to whoever needs it now. Says whether there was any.
    pub(crate) fn release(&mut self) -> bool {
        let released = !self.room.in_use() && self.path.as_ref().is_some_and(|path| fs::remove_file(path).is_ok());
        if released {
            self.room.set_in_use(true);
            self.asked_at = Some(monotonic());
            let bytes = self.room.wanted_bytes();
            tracing::error!(
                "the disk is full: new jobs are refused, all else goes on from the reserve; free {bytes} bytes for new jobs to be taken again"
            );
        }
        released
    }

    /// Sets the space aside again, once there is enough. However often this is called, the disk is asked now and then only.
    pub(crate) fn restore(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.room.in_use()) else { return };
        let now = monotonic();
        if self.asked_at.is_some_and(|asked_at| now.saturating_sub(asked_at) < LOOK_EVERY) {
            return;
        }
        let first = self.asked_at.replace(now).is_none();
        if first {
            // A store that is opened has not failed to write yet: the reserve itself is enough.
            match allocate(path, self.room.reserve_bytes) {
                Ok(()) => self.room.set_in_use(false),
                Err(_) => drop(fs::remove_file(path)),
            }
            return;
        }
        // The freed reserve alone is no room: the next job would find the disk full again.
        let allocated = allocate(path, self.room.wanted_bytes());
        match allocated.and_then(|()| shrink(path, self.room.reserve_bytes)) {
            Ok(()) => {
                self.room.set_in_use(false);
                tracing::info!("the disk has room again: new jobs are taken");
            }
            Err(_) => drop(fs::remove_file(path)),
        }
    }

    /// When the disk should be asked again, although no new work may come.
    pub(crate) fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let rest = self.asked_at.map(|asked_at| LOOK_EVERY.saturating_sub(monotonic().saturating_sub(asked_at)));
        let millis = u64::try_from(rest.unwrap_or_default().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        self.room.in_use().then(|| now + longshore_core::time::Duration::from_millis(millis))
    }
}

/// Gives back what is allocated beyond this length.
fn shrink(path: &Path, bytes: u64) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.set_len(bytes)
}

fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = open_private(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // Some file systems find space only for what is written.
        Err(Errno::OPNOTSUPP) => io::copy(&mut io::repeat(0).take(bytes), &mut file).map(drop),
        allocated => Ok(allocated?),
    }
}
