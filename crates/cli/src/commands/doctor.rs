//! `longshore doctor`

use std::path::PathBuf;

use clap::Args;
use longshore_store::StoreError;
use longshore_store_embedded::{VerifyReport, examine, in_use};

use super::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;

pub(crate) const CORRUPTION_HINT: &str =
    "keep the directory unchanged, and restore the last backup into a new one; see docs/data-directory.md";

/// Verify every byte of a data directory or of a backup.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: the store is ok. 1: it is corrupt. 2: it could not be read.

Examples:
  longshore doctor /backups/monday
  longshore doctor --json longshore-data               while its server is stopped")]
pub(crate) struct Doctor {
    /// Data directory of a stopped server, or a backup
    #[arg(value_name = "DIR")]
    data: PathBuf,
}

#[derive(serde::Serialize)]
struct DoctorJson<'a> {
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
        let report = examine(&self.data).map_err(|error| {
            let message = format!("cannot verify {shown}: {}", error.cause());
            if let StoreError::Corrupt { .. } = error {
                return CliError::refused(message).hint(CORRUPTION_HINT);
            }
            let failure = CliError::failed(message);
            if let StoreError::Format(_) = error {
                return failure
                    .hint("DIR must be the data directory of a server, or a copy made by `longshore backup`");
            }
            if in_use(&error) {
                return failure.hint(format!(
                    "stop its server first; or verify a copy: `longshore backup {shown} COPY`, `longshore doctor COPY`"
                ));
            }
            failure
        })?;
        let VerifyReport { live_jobs, finished_jobs: ended_jobs, payload_bytes, moved_to, problems } = &report;
        if context.output.json {
            context.output.json(&DoctorJson {
                ok: problems.is_empty(),
                live_jobs: *live_jobs,
                ended_jobs: *ended_jobs,
                payload_bytes: *payload_bytes,
                moved_to: moved_to.as_deref(),
                problems,
            })?;
        } else {
            let verdict = if problems.is_empty() { "ok" } else { "corrupt" };
            context.output.line(&format!("{shown}: {verdict}"))?;
            context.output.line(&format!(
                "  {live_jobs} unfinished jobs, {ended_jobs} ended jobs, {payload_bytes} bytes of payloads"
            ))?;
            if let Some(target) = moved_to {
                context.output.line(&format!("  the jobs were moved to {target}: servers refuse this directory"))?;
            }
            for problem in problems {
                context.output.line(&format!("  {problem}"))?;
            }
        }
        match problems.len() {
            0 => Ok(()),
            count => Err(CliError::refused(format!("found {}", counted(count, "problem"))).hint(CORRUPTION_HINT)),
        }
    }
}
