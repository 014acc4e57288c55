//! Space set aside for a full disk: new work is refused then, while what is under way can be finished.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_store::clock::monotonic;
use rustix::io::Errno;

use crate::home::private;

const RESERVE: &str = "reserve";
/// Between two looks whether a full disk has room again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

#[derive(Debug)]
pub(crate) struct Reserve {
    /// `None`: nothing is set aside.
    path: Option<PathBuf>,
    bytes: u64,
    in_use: bool,
    /// When the disk was last full, or last asked for room.
    asked_at: Option<Duration>,
}

impl Reserve {
    pub(crate) fn none() -> Self {
        Self { path: None, bytes: 0, in_use: false, asked_at: None }
    }

    /// A store that cannot set space aside still opens: it may have to finish work on a full disk.
    pub(crate) fn set_aside(directory: &Path, bytes: u64) -> Self {
        if bytes == 0 {
            return Self::none();
        }
        let mut reserve = Self { path: Some(directory.join(RESERVE)), bytes, in_use: true, asked_at: None };
        reserve.restore();
        reserve
    }

    /// What has to be found before new work is taken again; nothing while all is well.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        self.in_use.then_some(self.bytes)
    }

    pub(crate) fn no_space(&self) -> NoSpace {
        NoSpace { wanted_bytes: self.bytes }
    }

    /// Whether there is room for new work. Nothing else may be due for hours, so whoever brings some lets a full disk be asked again.
    pub(crate) fn has_room(&mut self) -> bool {
        self.restore();
        !self.in_use
    }

    /// Gives the space to whoever needs it now. Says whether there was any.
    pub(crate) fn release(&mut self) -> bool {
        let released = !self.in_use && self.path.as_ref().is_some_and(|path| fs::remove_file(path).is_ok());
        if released {
            (self.in_use, self.asked_at) = (true, Some(monotonic()));
        }
        released
    }

    /// Sets the space aside again, once there is enough. However often this is called, the disk is asked now and then only.
    pub(crate) fn restore(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.in_use) else { return };
        let now = monotonic();
        if self.asked_at.is_some_and(|asked_at| now.saturating_sub(asked_at) < LOOK_EVERY) {
            return;
        }
        self.asked_at = Some(now);
        match allocate(path, self.bytes) {
            Ok(()) => self.in_use = false,
            Err(_) => drop(fs::remove_file(path)),
        }
    }
}

fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = private(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        // Some file systems find space only for what is written.
        Err(Errno::OPNOTSUPP) => io::copy(&mut io::repeat(0).take(bytes), &mut file).map(drop),
        allocated => Ok(allocated?),
    }
}
