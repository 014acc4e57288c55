//! `longshore restore`

use std::path::PathBuf;

use clap::Args;
use longshore_store::{Clock as _, StoreError, SystemClock};
use longshore_store_embedded::{in_use, restore};

use super::doctor::WHEN_DAMAGED;
use super::migrate_store::when_moved;
use super::serve::virtual_time;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Make a data directory from a backup.
#[derive(Debug, Args)]
#[command(after_help = "\
Leases of before are void: what ran when the backup was made is claimed anew when its lease
would have ended.

Examples:
  longshore restore /backups/monday /var/lib/longshore
  longshore serve --data /var/lib/longshore")]
pub(crate) struct Restore {
    /// The backup
    #[arg(value_name = "DIR")]
    backup: PathBuf,
    /// The data directory to make, new or without a store
    #[arg(value_name = "TO")]
    to: PathBuf,
}

#[derive(serde::Serialize)]
struct Done {
    backup: PathBuf,
    data: PathBuf,
}

impl Restore {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (backup, to) = (self.backup.display(), self.to.display());
        restore(&self.backup, &self.to, SystemClock::new().now()).map_err(|error| {
            let failure = CliError::failed(format!("cannot restore {backup} to {to}: {}", error.cause()));
            if in_use(&error) {
                return failure.hint("stop the server that runs on it, or name another directory");
            }
            if let Some(hint) = when_moved(&error) {
                return failure.hint(hint);
            }
            if let StoreError::AlreadyExists { .. } = error {
                return failure.hint("a store is never overwritten: name a new directory, or move the old one away");
            }
            if let StoreError::Format(_) = error {
                return failure.hint("DIR is a copy made by `longshore backup`");
            }
            if let StoreError::Corrupt { .. } = error {
                return failure.hint(WHEN_DAMAGED);
            }
            failure
        })?;
        virtual_time::copy(&self.backup, &self.to)?;
        if context.screen.json {
            return context.screen.json(&Done { backup: self.backup, data: self.to });
        }
        context.screen.line(&format!("{to} is a store now: `longshore serve --data {to}`"))
    }
}
