//! Marker of a directory whose jobs `longshore migrate-store` has moved to another store.
//!
//! While the file `moved` exists, only `longshore doctor` reads the directory. The file is written
//! after the target has committed. Its first line is the target without a password; the rest is an
//! explanation for the operator.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use longshore_store::StoreError;

use crate::data_dir::open_private;

const FILE: &str = "moved";
/// Name of the file until it is complete.
const PARTIAL: &str = "moved.partial";

/// Returns the marker file of a directory that was refused because its jobs were moved.
pub fn moved_file(error: &StoreError) -> Option<PathBuf> {
    let StoreError::Moved { marker, .. } = error else { return None };
    Some(marker.clone())
}

/// Returns the store that the jobs of a directory were moved to.
pub(crate) fn target_of(directory: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(directory.join(FILE)) {
        Ok(text) => Ok(Some(text.lines().next().unwrap_or("an unknown store").to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("{}: {error}", directory.join(FILE).display()));
            Err(StoreError::not_applied(error))
        }
    }
}

/// Refuses a directory whose jobs were moved.
pub(crate) fn refuse(directory: &Path) -> Result<(), StoreError> {
    match target_of(directory)? {
        Some(target) => Err(StoreError::Moved { marker: directory.join(FILE), target }),
        None => Ok(()),
    }
}

/// Writes the marker atomically; it is durable on return.
pub(crate) fn write(directory: &Path, target: &str) -> io::Result<()> {
    let partial = directory.join(PARTIAL);
    let mut file = open_private(&partial)?;
    file.set_len(0)?;
    writeln!(file, "{target}")?;
    writeln!(file, "The jobs of this directory were moved there by `longshore migrate-store`.")?;
    writeln!(file, "Delete this file to serve the directory again. Jobs that both stores run are run twice.")?;
    file.sync_all()?;
    fs::rename(&partial, directory.join(FILE))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_refused_until_the_marker_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        refuse(directory.path()).unwrap();
        // A crash left a partial file of an earlier attempt.
        fs::write(directory.path().join(PARTIAL), "x".repeat(1_000)).unwrap();
        refuse(directory.path()).unwrap();
        write(directory.path(), "postgres://db.example/jobs?schema=mail").unwrap();
        let refused = refuse(directory.path()).unwrap_err();
        assert!(refused.to_string().contains("moved to postgres://db.example/jobs?schema=mail"), "{refused}");
        write(directory.path(), "postgres://db.example/other").unwrap();
        assert_eq!(target_of(directory.path()).unwrap().as_deref(), Some("postgres://db.example/other"));
        fs::remove_file(moved_file(&refused).unwrap()).unwrap();
        refuse(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
