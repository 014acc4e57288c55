//! `longshore jobs attempts`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{Table, Value};

/// Show every attempt at a job, oldest first.
#[derive(Debug, Args)]
pub(crate) struct Attempts {
    /// The job's id
    id: String,
}

impl Attempts {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let attempts = context.call(async { Ok(client.attempts(&self.id).await?) })?;
        if context.screen.json {
            return context.screen.json(&attempts);
        }
        if attempts.attempts.is_empty() {
            context.screen.info("nobody has started it yet");
            return Ok(());
        }
        let mut table = Table::new(&["NUMBER", "WORKER", "STARTED", "ENDED", "OUTCOME", "NEXT IN", "ERROR"]);
        for attempt in &attempts.attempts {
            let error = attempt.error.as_ref().map(|error| {
                let code = error.code.as_deref().map_or(String::new(), |code| format!(" ({code})"));
                format!("{}{code}: {}", error.category, error.message)
            });
            table.row(vec![
                Value::number(attempt.number),
                Value::maybe(attempt.worker.as_ref()),
                attempt.started_at.into(),
                Value::maybe(attempt.ended_at),
                Value::maybe(attempt.outcome),
                Value::maybe(attempt.next_delay),
                error.map_or(Value::Text(String::new()), Value::Alarm),
            ]);
        }
        context.screen.table(&table)
    }
}
