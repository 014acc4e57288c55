//! `longshore doctor`

use std::path::PathBuf;

use clap::Args;
use longshore_store::StoreError;
use longshore_store_embedded::{VerifyReport, examine, in_use};

use crate::context::Context;
use crate::terminal::error::CliError;

pub(crate) const WHEN_DAMAGED: &str =
    "keep the directory as it is, and restore the last backup into a new one; docs/data-directory.md has more";

/// Check every byte of a data directory or of a backup.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: the store is whole. 1: something is wrong with it. 2: it could not be looked at.")]
pub(crate) struct Doctor {
    /// The data directory, of a server that does not run
    #[arg(value_name = "DIR")]
    data: PathBuf,
}

#[derive(serde::Serialize)]
struct Found<'a> {
    ok: bool,
    live_jobs: u64,
    ended_jobs: u64,
    payload_bytes: u64,
    moved_to: Option<&'a str>,
    problems: &'a [String],
}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let shown = self.data.display();
        let diagnosis = examine(&self.data).map_err(|error| {
            let told = format!("cannot examine {shown}: {}", error.cause());
            if let StoreError::Corrupt { .. } = error {
                return CliError::refused(told).hint(WHEN_DAMAGED);
            }
            let failure = CliError::failed(told);
            if let StoreError::Format(_) = error {
                return failure.hint("DIR is the data directory of a server, or a copy made by `longshore backup`");
            }
            if in_use(&error) {
                return failure.hint(format!(
                    "stop its server first; or look at a copy: `longshore backup {shown} COPY`, `longshore doctor COPY`"
                ));
            }
            failure
        })?;
        let VerifyReport { live_jobs, finished_jobs: ended_jobs, payload_bytes, moved_to, problems } = &diagnosis;
        if context.screen.json {
            context.screen.json(&Found {
                ok: problems.is_empty(),
                live_jobs: *live_jobs,
                ended_jobs: *ended_jobs,
                payload_bytes: *payload_bytes,
                moved_to: moved_to.as_deref(),
                problems,
            })?;
        } else {
            let word = if problems.is_empty() { "is whole" } else { "is damaged" };
            context.screen.line(&format!("{shown} {word}"))?;
            context.screen.line(&format!(
                "  jobs that have not ended: {live_jobs}; that have: {ended_jobs}; bytes of payload: {payload_bytes}"
            ))?;
            if let Some(target) = moved_to {
                context.screen.line(&format!("  its jobs were moved to {target}: servers refuse this directory"))?;
            }
            for problem in problems {
                context.screen.line(&format!("  {problem}"))?;
            }
        }
        let found = match problems.len() {
            0 => return Ok(()),
            1 => "one problem was found".to_owned(),
            count => format!("{count} problems were found"),
        };
        Err(CliError::refused(found).hint(WHEN_DAMAGED))
    }
}
