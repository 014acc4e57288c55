//! The text files of a tree.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file; `path` is relative to the root, with `/`.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }

    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn line(&self, number: usize) -> &str {
        number.checked_sub(1).and_then(|index| self.text.lines().nth(index)).unwrap_or_default()
    }
}

/// Reads all files that git does not ignore, or all files if the root is no git worktree. Skips
/// binary files.
pub(crate) fn read(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut paths = if root.join(".git").exists() { tracked(root)? } else { walk(root)? };
    paths.sort();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        // Deleted files stay in the index until the next commit.
        let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

fn tracked(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let list = String::from_utf8_lossy(&output.stdout);
    Ok(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        let full = root.join(&directory);
        let entries = std::fs::read_dir(&full).map_err(|error| format!("cannot read {}: {error}", full.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("cannot read {}: {error}", full.display()))?;
            let path = directory.join(entry.file_name());
            let name = entry.file_name();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && ![".git", "target", "node_modules"].iter().any(|skipped| name == *skipped) {
                pending.push(path);
            } else if !is_directory && let Some(path) = path.to_str() {
                found.push(path.to_owned());
            }
        }
    }
    Ok(found)
}
