//! `longshore workflows add`

use std::path::PathBuf;

use clap::Args;

use crate::commands::parse;
use crate::commands::submit::read_text;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::Table;

/// Add jobs to an open workflow.
#[derive(Debug, Args)]
#[command(after_help = "\
The file has the form of a workflow, or is an array of jobs. \"#ref\" may name jobs of earlier calls.

Example:
  longshore workflows add 0b6f… more.json")]
pub(crate) struct Add {
    /// The workflow's id
    id: String,
    /// A file with JSON; - is standard input
    file: PathBuf,
}

impl Add {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let body = parse::json(&read_text(&self.file)?, "the list of jobs")?;
        let client = context.client()?;
        let made = context.call(async { Ok(client.add_workflow_jobs(&self.id, &body).await?) })?;
        if context.screen.json {
            return context.screen.json(&made);
        }
        let mut table = Table::new(&["REF", "ID"]);
        for (reference, id) in &made.jobs {
            table.row(vec![reference.into(), id.into()]);
        }
        context.screen.table(&table)
    }
}
