//! A directory whose jobs were moved elsewhere. A file in it says where to; while it is there, only `doctor` reads the directory.
//!
//! The file is written after the target has committed. Its first line is the target, without a password; the rest is for people.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use longshore_store::StoreError;

use crate::data_dir::open_private;

const FILE: &str = "moved";
/// What the file is called until it is whole.
const UNFINISHED: &str = "moved.unfinished";

/// The jobs of the directory are elsewhere.
#[derive(Debug)]
struct Moved {
    directory: PathBuf,
    target: String,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { directory, target } = self;
        write!(f, "the jobs of {} were moved to {target}", directory.display())
    }
}

impl std::error::Error for Moved {}

/// The file to delete for a directory to be served again, if that is why it was refused.
pub fn moved_file(error: &StoreError) -> Option<PathBuf> {
    let StoreError::NotApplied(cause) = error else { return None };
    cause.downcast_ref::<Moved>().map(|moved| moved.directory.join(FILE))
}

/// Where the jobs of a directory were moved to. `None`: they were not.
pub(crate) fn target_of(directory: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(directory.join(FILE)) {
        Ok(text) => Ok(Some(text.lines().next().unwrap_or("an unknown place").to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let told = io::Error::new(error.kind(), format!("{}: {error}", directory.join(FILE).display()));
            Err(StoreError::not_applied(told))
        }
    }
}

/// Refuses a directory whose jobs are elsewhere.
pub(crate) fn refuse(directory: &Path) -> Result<(), StoreError> {
    match target_of(directory)? {
        Some(target) => Err(StoreError::not_applied(Moved { directory: directory.to_owned(), target })),
        None => Ok(()),
    }
}

/// Durable when it returns: the whole file, or none.
pub(crate) fn mark(directory: &Path, target: &str) -> io::Result<()> {
    let unfinished = directory.join(UNFINISHED);
    let mut file = open_private(&unfinished)?;
    file.set_len(0)?;
    writeln!(file, "{target}")?;
    writeln!(file, "The jobs of this directory were moved there by `longshore migrate-store`.")?;
    writeln!(file, "Delete this file to serve the directory again; jobs that run in both places run twice.")?;
    file.sync_all()?;
    fs::rename(&unfinished, directory.join(FILE))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_directory_is_refused_until_the_file_is_deleted() {
        let home = tempfile::tempdir().unwrap();
        refuse(home.path()).unwrap();
        // What a crash has left of an earlier attempt.
        fs::write(home.path().join(UNFINISHED), "x".repeat(1_000)).unwrap();
        refuse(home.path()).unwrap();
        mark(home.path(), "postgres://db.example/jobs?schema=mail").unwrap();
        let refused = refuse(home.path()).unwrap_err();
        assert!(refused.to_string().contains("moved to postgres://db.example/jobs?schema=mail"), "{refused}");
        mark(home.path(), "postgres://db.example/other").unwrap();
        assert_eq!(target_of(home.path()).unwrap().as_deref(), Some("postgres://db.example/other"));
        fs::remove_file(moved_file(&refused).unwrap()).unwrap();
        refuse(home.path()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
