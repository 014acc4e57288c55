//! `longshore jobs attempts`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Show the attempts of a job, oldest first.
#[derive(Debug, Args)]
pub(crate) struct ShowAttempts {
    /// The job's id
    id: String,
}

impl ShowAttempts {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let attempts = context.call(async { Ok(client.attempts(&self.id).await?) })?;
        if context.output.json {
            return context.output.json(&attempts);
        }
        if attempts.attempts.is_empty() {
            context.output.info("no worker has started it yet");
            return Ok(());
        }
        let mut table = TextTable::new(&["NUMBER", "WORKER", "STARTED", "ENDED", "OUTCOME", "NEXT IN", "ERROR"]);
        for attempt in &attempts.attempts {
            let error = attempt.error.as_ref().map(|error| {
                let code = error.code.as_deref().map_or(String::new(), |code| format!(" ({code})"));
                format!("{}{code}: {}", error.category, error.message)
            });
            table.row(vec![
                CellValue::number(attempt.number),
                CellValue::maybe(attempt.worker.as_ref()),
                attempt.started_at.into(),
                CellValue::maybe(attempt.ended_at),
                CellValue::maybe(attempt.outcome),
                CellValue::maybe(attempt.next_delay),
                error.map_or(CellValue::Text(String::new()), CellValue::Alarm),
            ]);
        }
        context.output.table(&table)
    }
}
