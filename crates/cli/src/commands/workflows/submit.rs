//! `longshore workflows submit`

use std::path::PathBuf;

use clap::Args;

use crate::commands::parse::{self, counted};
use crate::commands::submit::read_text;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Submit a workflow: all of its jobs, or none.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is the body of POST /v1/workflows: \"jobs\" that name each other by \"ref\", a \"chain\", a
\"group\", or a \"chord\". Chains, groups and chords can be nested. Prints the id of the workflow.

Examples:
  longshore workflows submit nightly.json
  echo '{\"queue\":\"q\",\"chain\":[{\"type\":\"load\"},{\"type\":\"report\"}]}' | longshore workflows submit -")]
pub(crate) struct SubmitWorkflow {
    /// File with JSON, - for standard input
    file: PathBuf,
}

impl SubmitWorkflow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let body = parse::json(&read_text(&self.file)?, "the workflow")?;
        let client = context.client()?;
        let created = context.call(async { Ok(client.submit_workflow(&body).await?) })?;
        if context.output.json {
            return context.output.json(&created);
        }
        context.output.info(&format!("{} submitted", counted(created.jobs.len(), "job")));
        context.output.line(&created.id)
    }
}
