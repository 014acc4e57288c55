//! `longshore restore`

use std::path::PathBuf;

use clap::Args;
use longshore_store::{Clock as _, StoreError, SystemClock};
use longshore_store_embedded::{in_use, restore};

use super::doctor::CORRUPTION_HINT;
use super::migrate_store::when_moved;
use super::serve::virtual_time;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Create a data directory from a backup.
#[derive(Debug, Args)]
#[command(after_help = "\
Leases of the backup are void. A job that was running when the backup was made is reclaimed when
its lease expires.

Examples:
  longshore restore /backups/monday /var/lib/longshore
  longshore serve --data /var/lib/longshore")]
pub(crate) struct Restore {
    /// Backup
    #[arg(value_name = "DIR")]
    backup: PathBuf,
    /// Data directory to create, new or without a store
    #[arg(value_name = "TO")]
    to: PathBuf,
}

#[derive(serde::Serialize)]
struct RestoreJson {
    backup: PathBuf,
    data: PathBuf,
}

impl Restore {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (backup, to) = (self.backup.display(), self.to.display());
        restore(&self.backup, &self.to, SystemClock::new().now()).map_err(|error| {
            let failure = CliError::failed(format!("cannot restore {backup} to {to}: {}", error.cause()));
            if in_use(&error) {
                return failure.hint("stop its server, or choose another directory");
            }
            if let Some(hint) = when_moved(&error) {
                return failure.hint(hint);
            }
            if let StoreError::AlreadyExists { .. } = error {
                return failure.hint("choose a new directory, or move the old one away: a store is never overwritten");
            }
            if let StoreError::Format(_) = error {
                return failure.hint("DIR must be a copy made by `longshore backup`");
            }
            if let StoreError::Corrupt { .. } = error {
                return failure.hint(CORRUPTION_HINT);
            }
            failure
        })?;
        virtual_time::copy(&self.backup, &self.to)?;
        if context.output.json {
            return context.output.json(&RestoreJson { backup: self.backup, data: self.to });
        }
        context.output.line(&format!("restored to {to}: start it with `longshore serve --data {to}`"))
    }
}
