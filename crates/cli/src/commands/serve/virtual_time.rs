//! Where virtual time stands. In a directory it goes on where it was: time never falls back behind the jobs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_server::SaveVirtualTime;
use longshore_store::VirtualClock;

const NAME: &str = "virtual-clock";

/// A clock that begins at `wall`, or where it stood in this directory.
pub(crate) fn start(
    directory: Option<&Path>,
    wall: Timestamp,
) -> io::Result<(Arc<VirtualClock>, Option<SaveVirtualTime>)> {
    let Some(directory) = directory else { return Ok((Arc::new(VirtualClock::new(wall)), None)) };
    let file = directory.join(NAME);
    let start = match fs::read_to_string(&file) {
        Ok(text) => {
            let millis =
                text.trim().parse().map_err(|_| io::Error::other(format!("{} holds no time", file.display())))?;
            Timestamp::from_millis(millis)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => wall,
        Err(error) => return Err(error),
    };
    let kept = SaveVirtualTime(Arc::new(move |now| keep(&file, now)));
    Ok((Arc::new(VirtualClock::new(start)), Some(kept)))
}

/// A copy of a store goes on where its time stood, too. In real time there is nothing to copy.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let time = match fs::read(from.join(NAME)) {
        Ok(time) => time,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut written = private(&to.join(NAME))?;
    written.write_all(&time)?;
    written.sync_all()
}

/// An empty file for its owner alone, as all files of a data directory are.
fn private(file: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// The whole file or none: a crash leaves the one before.
fn keep(file: &Path, now: Timestamp) -> io::Result<()> {
    let fresh = PathBuf::from(format!("{}.new", file.display()));
    let mut written = private(&fresh)?;
    writeln!(written, "{}", now.as_millis())?;
    written.sync_all()?;
    fs::rename(&fresh, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_store::Clock;

    #[test]
    fn time_goes_on_where_it_stood() {
        let directory = tempfile::tempdir().unwrap();
        let wall = Timestamp::from_millis(5);
        let (clock, kept) = start(Some(directory.path()), wall).unwrap();
        assert_eq!(clock.now(), wall);
        (kept.unwrap().0)(Timestamp::from_millis(77)).unwrap();
        let (clock, _) = start(Some(directory.path()), Timestamp::from_millis(6)).unwrap();
        assert_eq!(clock.now().as_millis(), 77);
        fs::write(directory.path().join(NAME), "nonsense").unwrap();
        assert!(start(Some(directory.path()), wall).is_err());
    }
}
