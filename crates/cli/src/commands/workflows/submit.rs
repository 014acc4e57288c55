//! `longshore workflows submit`

use std::path::PathBuf;

use clap::Args;

use crate::commands::parse::{self, counted};
use crate::commands::submit::read_text;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Hand in jobs as one workflow: all of them, or none.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is what POST /v1/workflows takes: \"jobs\" that name each other by \"ref\", a \"chain\", a \"group\", or a
\"chord\"; chains, groups and chords nest. Prints the id of the workflow.

Examples:
  longshore workflows submit nightly.json
  echo '{\"queue\":\"q\",\"chain\":[{\"type\":\"load\"},{\"type\":\"report\"}]}' | longshore workflows submit -")]
pub(crate) struct Submit {
    /// A file with JSON; - is standard input
    file: PathBuf,
}

impl Submit {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let body = parse::json(&read_text(&self.file)?, "the workflow")?;
        let client = context.client()?;
        let made = context.call(async { Ok(client.submit_workflow(&body).await?) })?;
        if context.screen.json {
            return context.screen.json(&made);
        }
        context.screen.info(&counted(made.jobs.len(), "job"));
        context.screen.line(&made.id)
    }
}
