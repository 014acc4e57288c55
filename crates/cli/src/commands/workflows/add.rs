//! `longshore workflows add`

use std::path::PathBuf;

use clap::Args;

use crate::commands::parse;
use crate::commands::submit::read_text;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

/// Add jobs to an open workflow.
#[derive(Debug, Args)]
#[command(after_help = "\
The file has the form of a workflow, or is an array of jobs. \"#ref\" may name earlier members.

Example:
  longshore workflows add 0b6f… more.json")]
pub(crate) struct AddJobs {
    /// The workflow's id
    id: String,
    /// File with JSON, - for standard input
    file: PathBuf,
}

impl AddJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let body = parse::json(&read_text(&self.file)?, "the list of jobs")?;
        let client = context.client()?;
        let created = context.call(async { Ok(client.add_workflow_jobs(&self.id, &body).await?) })?;
        if context.output.json {
            return context.output.json(&created);
        }
        let mut table = TextTable::new(&["REF", "ID"]);
        for (reference, id) in &created.jobs {
            table.row(vec![reference.into(), id.into()]);
        }
        context.output.table(&table)
    }
}
