//! `longshore jobs history`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{Table, Value};

/// Show every move of a job from state to state, oldest first.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The job's id
    id: String,
}

impl History {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let history = context.call(async { Ok(client.history(&self.id).await?) })?;
        if context.screen.json {
            return context.screen.json(&history);
        }
        let mut table = Table::new(&["AT", "FROM", "TO", "CAUSE"]);
        for step in &history.history {
            table.row(vec![
                step.at.into(),
                step.from.map_or(Value::Text(String::new()), Value::State),
                Value::State(step.to),
                step.cause.into(),
            ]);
        }
        context.screen.table(&table)
    }
}
