//! Space set aside for a full disk: new work is refused then, while what is under way can be finished.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

const RESERVE: &str = "reserve";

/// The disk is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSpace;

impl std::fmt::Display for NoSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no space is left on the disk")
    }
}

impl std::error::Error for NoSpace {}

#[derive(Debug)]
pub(crate) struct Reserve {
    /// `None`: nothing is set aside.
    path: Option<PathBuf>,
    bytes: u64,
    in_use: bool,
}

impl Reserve {
    pub(crate) fn none() -> Self {
        Self { path: None, bytes: 0, in_use: false }
    }

    /// A store that cannot set space aside still opens: it may have to finish work on a full disk.
    pub(crate) fn set_aside(directory: &Path, bytes: u64) -> Self {
        if bytes == 0 {
            return Self::none();
        }
        let mut reserve = Self { path: Some(directory.join(RESERVE)), bytes, in_use: true };
        reserve.restore();
        reserve
    }

    pub(crate) fn in_use(&self) -> bool {
        self.in_use
    }

    /// Gives the space to whoever needs it now. Says whether there was any.
    pub(crate) fn release(&mut self) -> bool {
        let released = !self.in_use && self.path.as_ref().is_some_and(|path| fs::remove_file(path).is_ok());
        self.in_use = self.in_use || released;
        released
    }

    /// Sets the space aside again, once there is enough.
    pub(crate) fn restore(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.in_use) else { return };
        match allocate(path, self.bytes) {
            Ok(()) => self.in_use = false,
            Err(_) => drop(fs::remove_file(path)),
        }
    }
}

fn allocate(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file: File = options.open(path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}
