//! `longshore backup`

use std::path::{Path, PathBuf};

use clap::Args;
use longshore_api::Time;
use longshore_store::{Clock, StoreError, SystemClock};
use longshore_store_embedded::{SourceState, backup_directory, moved_file};

use super::serve::virtual_time;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Copy a data directory, also while its server is running.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy is consistent and has every change that was acknowledged before the command started. The
server continues to work.

Examples:
  longshore backup longshore-data
  longshore backup /var/lib/longshore /backups/monday
  longshore doctor /backups/monday                     check the copy
  longshore restore /backups/monday /var/lib/longshore-new")]
pub(crate) struct Backup {
    /// Data directory
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// Directory for the copy, new or without a store [default: DIR-backup-TIME]
    #[arg(value_name = "TO")]
    to: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct BackupJson<'a> {
    data: &'a Path,
    backup: &'a Path,
    bytes: u64,
    server_was_running: bool,
}

impl Backup {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let to = self.to.unwrap_or_else(|| default_target(&self.data));
        let source = backup_directory(&self.data, &to).map_err(|error| cannot_copy(&error, &self.data))?;
        // After the store: the virtual time of a copy must not be earlier than its jobs.
        virtual_time::copy(&self.data, &to)?;
        let bytes = directory_bytes(&to);
        let running = source == SourceState::InUse;
        if context.output.json {
            let done = BackupJson { data: &self.data, backup: &to, bytes, server_was_running: running };
            return context.output.json(&done);
        }
        let server = if running { " while its server is running" } else { "" };
        context.output.info(&format!("copied {}{server}: {bytes} bytes", self.data.display()));
        context.output.line(&to.display().to_string())
    }
}

/// Directory beside the data directory, with the time in its name.
fn default_target(data: &Path) -> PathBuf {
    let now = Time(SystemClock::new().now().as_millis()).to_string();
    // 2026-11-15T18:08:27.123Z becomes 20261115T180827Z.
    let stamp: String = now.chars().take(19).filter(|character| !matches!(character, '-' | ':')).collect();
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(format!("-backup-{stamp}Z"));
    data.with_file_name(name)
}

fn directory_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn cannot_copy(error: &StoreError, data: &Path) -> CliError {
    let failure = CliError::failed(format!("cannot copy {}: {}", data.display(), error.cause()));
    if moved_file(error).is_some() {
        return failure.hint("back up the database that has the jobs now; the directory no longer changes and can be copied with any tool");
    }
    if let StoreError::Format(_) = error {
        return failure.hint("DIR must be the data directory of a server, as in `longshore serve --data DIR`");
    }
    if let StoreError::AlreadyExists { .. } = error {
        return failure.hint("choose a directory without a store: a backup never overwrites one");
    }
    failure
}
