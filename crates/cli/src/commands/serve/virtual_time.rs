//! Keeps the virtual time of a data directory over restarts: it is never earlier than its jobs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_server::SaveVirtualTime;
use longshore_store::VirtualClock;

const NAME: &str = "virtual-clock";

/// Returns a clock that starts at the saved time of the directory, else at `wall`, and the function
/// that saves its time.
pub(crate) fn start(
    directory: Option<&Path>,
    wall: Timestamp,
) -> io::Result<(Arc<VirtualClock>, Option<SaveVirtualTime>)> {
    let Some(directory) = directory else { return Ok((Arc::new(VirtualClock::new(wall)), None)) };
    let file = directory.join(NAME);
    let start = match fs::read_to_string(&file) {
        Ok(text) => {
            let millis =
                text.trim().parse().map_err(|_| io::Error::other(format!("{}: not a time", file.display())))?;
            Timestamp::from_millis(millis)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => wall,
        Err(error) => return Err(error),
    };
    let save_time = SaveVirtualTime(Arc::new(move |now| save(&file, now)));
    Ok((Arc::new(VirtualClock::new(start)), Some(save_time)))
}

/// Copies the saved time to a copy of the store. Does nothing for a store in real time.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let time = match fs::read(from.join(NAME)) {
        Ok(time) => time,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut copy = create_private(&to.join(NAME))?;
    copy.write_all(&time)?;
    copy.sync_all()
}

/// Creates an empty file with mode 0600, as all files of a data directory have.
fn create_private(file: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Replaces the file atomically: after a crash it has the old or the new time.
fn save(file: &Path, now: Timestamp) -> io::Result<()> {
    let temporary = PathBuf::from(format!("{}.new", file.display()));
    let mut writer = create_private(&temporary)?;
    writeln!(writer, "{}", now.as_millis())?;
    writer.sync_all()?;
    fs::rename(&temporary, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_store::Clock;

    #[test]
    fn saved_time_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let wall = Timestamp::from_millis(5);
        let (clock, save_time) = start(Some(directory.path()), wall).unwrap();
        assert_eq!(clock.now(), wall);
        (save_time.unwrap().0)(Timestamp::from_millis(77)).unwrap();
        let (clock, _) = start(Some(directory.path()), Timestamp::from_millis(6)).unwrap();
        assert_eq!(clock.now().as_millis(), 77);
        fs::write(directory.path().join(NAME), "nonsense").unwrap();
        assert!(start(Some(directory.path()), wall).is_err());
    }
}
