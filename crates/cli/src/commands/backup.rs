//! `longshore backup`

use std::path::{Path, PathBuf};

use clap::Args;
use longshore_api::Time;
use longshore_store::{Clock, StoreError, SystemClock};
use longshore_store_embedded::{SourceState, backup_directory, moved_file};

use super::serve::virtual_time;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Copy a data directory, also while its server runs.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy is whole: everything that was answered before it began. Work goes on meanwhile.

Examples:
  longshore backup longshore-data
  longshore backup /var/lib/longshore /backups/monday
  longshore doctor /backups/monday                     check the copy
  longshore restore /backups/monday /var/lib/longshore-new")]
pub(crate) struct Backup {
    /// The data directory
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// A directory for the copy, new or without a store; DIR-backup-TIME unless given
    #[arg(value_name = "TO")]
    to: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct Done<'a> {
    data: &'a Path,
    backup: &'a Path,
    bytes: u64,
    server_was_running: bool,
}

impl Backup {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let to = self.to.unwrap_or_else(|| beside(&self.data));
        let copied = backup_directory(&self.data, &to).map_err(|error| told(&error, &self.data))?;
        // After the store: time may have come further than the copy's jobs, never less far.
        virtual_time::copy(&self.data, &to)?;
        let bytes = directory_bytes(&to);
        let running = copied == SourceState::InUse;
        if context.screen.json {
            let done = Done { data: &self.data, backup: &to, bytes, server_was_running: running };
            return context.screen.json(&done);
        }
        let beside = if running { ", while its server runs" } else { "" };
        context.screen.info(&format!("{} copied{beside}: {bytes} bytes", self.data.display()));
        context.screen.line(&to.display().to_string())
    }
}

fn beside(data: &Path) -> PathBuf {
    let now = Time(SystemClock::new().now().as_millis()).to_string();
    // 2026-11-15T18:08:27.123Z as 20261115T180827Z
    let stamp: String = now.chars().take(19).filter(|character| !matches!(character, '-' | ':')).collect();
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(format!("-backup-{stamp}Z"));
    data.with_file_name(name)
}

fn directory_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|about| about.len()).sum()
}

fn told(error: &StoreError, data: &Path) -> CliError {
    let failure = CliError::failed(format!("cannot copy {}: {}", data.display(), error.cause()));
    if moved_file(error).is_some() {
        return failure.hint("nothing changes in it any more: copy the directory with any tool to keep it, and back up the database that its jobs were moved to");
    }
    if let StoreError::Format(_) = error {
        return failure.hint("DIR is the data directory of a server, as given to `longshore serve --data DIR`");
    }
    if let StoreError::AlreadyExists { .. } = error {
        return failure.hint("a backup goes into a directory of its own: name another one");
    }
    failure
}
