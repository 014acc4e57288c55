//! Preallocated reserve for a full disk: the store rejects submissions, and work in progress can
//! finish.

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

const RESERVE: &str = "disk-reserve";
/// Interval between two checks of a full disk.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Free space required beyond the reserve before the store accepts submissions again, as a
/// fraction of the reserve.
const SLACK_DIVISOR: u64 = 8;

/// The disk is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSpace {
    /// Free space required before the store accepts submissions.
    required_bytes: u64,
}

impl std::fmt::Display for NoSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no space left on the disk")?;
        match self.required_bytes {
            0 => Ok(()),
            bytes => write!(f, ": new jobs are rejected until {bytes} bytes are free for the disk reserve"),
        }
    }
}

impl std::error::Error for NoSpace {}

/// State of the disk, shared with the store handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskSpace {
    /// `None` for a store in memory.
    directory: Option<PathBuf>,
    /// 0: no reserve.
    reserve_bytes: u64,
    /// The disk was full, and the reserve is released.
    is_released: Arc<AtomicBool>,
}

impl DiskSpace {
    pub(crate) fn in_memory() -> Self {
        Self::default()
    }

    pub(crate) fn of(directory: &Path, reserve_bytes: u64) -> Self {
        Self { directory: Some(directory.to_owned()), reserve_bytes, is_released: Arc::default() }
    }

    /// Returns the free space that is required before the store accepts submissions.
    fn required_bytes(&self) -> u64 {
        self.reserve_bytes.saturating_add(self.reserve_bytes / SLACK_DIVISOR)
    }

    fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }

    fn set_released(&self, is_released: bool) {
        self.is_released.store(is_released, Ordering::SeqCst);
    }

    /// Returns the health of the store, with the free space as the file system reports it.
    pub(crate) fn health(&self, poisoned: bool) -> StoreHealth {
        let refusing = if poisoned {
            Some("a write or sync of the store failed (check the disk and restart the server)".to_owned())
        } else {
            self.is_released().then(|| NoSpace { required_bytes: self.required_bytes() }.to_string())
        };
        let has_reserve = self.directory.is_some() && self.reserve_bytes > 0;
        let statistics = self.directory.as_ref().and_then(|directory| rustix::fs::statvfs(directory).ok());
        StoreHealth {
            refusing,
            reserve_bytes: has_reserve.then(|| if self.is_released() { 0 } else { self.reserve_bytes }),
            free_bytes: statistics.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct DiskReserve {
    /// `None`: no reserve.
    path: Option<PathBuf>,
    space: DiskSpace,
    /// Monotonic time of the last check.
    checked_at: Option<Duration>,
}

impl DiskReserve {
    /// Allocates the reserve. Without space the store still opens, to finish its work.
    pub(crate) fn allocate(space: DiskSpace) -> Self {
        let path =
            space.directory.as_ref().filter(|_| space.reserve_bytes > 0).map(|directory| directory.join(RESERVE));
        space.set_released(path.is_some());
        let mut reserve = Self { path, space, checked_at: None };
        reserve.restore();
        reserve
    }

    /// Returns the required free space while the reserve is released.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        self.space.is_released().then_some(self.space.required_bytes())
    }

    pub(crate) fn no_space(&self) -> NoSpace {
        NoSpace { required_bytes: self.space.required_bytes() }
    }

    /// Returns whether the store accepts submissions. Each submission triggers a check of a full
    /// disk, because the next tick may be hours away.
    pub(crate) fn has_space(&mut self) -> bool {
        self.restore();
        !self.space.is_released()
    }

    /// Deletes the reserve. Returns whether there was one.
    pub(crate) fn release(&mut self) -> bool {
        let released =
            !self.space.is_released() && self.path.as_ref().is_some_and(|path| fs::remove_file(path).is_ok());
        if released {
            self.space.set_released(true);
            self.checked_at = Some(monotonic());
            let bytes = self.space.required_bytes();
            tracing::error!(
                "disk full: new jobs are rejected, other requests continue from the reserve (free {bytes} bytes)"
            );
        }
        released
    }

    /// Allocates the reserve again once there is space. Checks the disk at most once per
    /// [`RECHECK_INTERVAL`].
    pub(crate) fn restore(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.space.is_released()) else { return };
        let now = monotonic();
        if self.checked_at.is_some_and(|checked_at| now.saturating_sub(checked_at) < RECHECK_INTERVAL) {
            return;
        }
        let is_open = self.checked_at.replace(now).is_none();
        if is_open {
            // No write has failed yet: the reserve without slack is enough.
            match allocate(path, self.space.reserve_bytes) {
                Ok(()) => self.space.set_released(false),
                Err(_) => drop(fs::remove_file(path)),
            }
            return;
        }
        // The slack prevents that the next job fills the disk again.
        let allocated = allocate(path, self.space.required_bytes());
        match allocated.and_then(|()| shrink(path, self.space.reserve_bytes)) {
            Ok(()) => {
                self.space.set_released(false);
                tracing::info!("disk has space again: new jobs are accepted");
            }
            Err(_) => drop(fs::remove_file(path)),
        }
    }

    /// Returns the time of the next check, for a store without submissions.
    pub(crate) fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let rest =
            self.checked_at.map(|checked_at| RECHECK_INTERVAL.saturating_sub(monotonic().saturating_sub(checked_at)));
        let millis = u64::try_from(rest.unwrap_or_default().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        self.space.is_released().then(|| now + longshore_core::time::Duration::from_millis(millis))
    }
}

/// Truncates the file, which frees the slack.
fn shrink(path: &Path, bytes: u64) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.set_len(bytes)
}

fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = open_private(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // This file system allocates only written blocks.
        Err(Errno::OPNOTSUPP) => io::copy(&mut io::repeat(0).take(bytes), &mut file).map(drop),
        allocated => Ok(allocated?),
    }
}
