//! `longshore jobs history`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Show the transitions of a job, oldest first.
#[derive(Debug, Args)]
pub(crate) struct ShowHistory {
    /// The job's id
    id: String,
}

impl ShowHistory {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let history = context.call(async { Ok(client.history(&self.id).await?) })?;
        if context.output.json {
            return context.output.json(&history);
        }
        let mut table = TextTable::new(&["AT", "FROM", "TO", "CAUSE"]);
        for transition in &history.history {
            table.row(vec![
                transition.at.into(),
                transition.from.map_or(CellValue::Text(String::new()), CellValue::State),
                CellValue::State(transition.to),
                transition.cause.into(),
            ]);
        }
        context.output.table(&table)
    }
}
