//! `longshore dead-letters groups`

use clap::Args;

use crate::commands::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

#[derive(Debug, Args)]
pub(crate) struct GroupDeadLetters {
    /// Jobs of this queue
    #[arg(short, long)]
    queue: Option<String>,
}

impl GroupDeadLetters {
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let queue = self.queue.as_deref();
        if context.output.json {
            let found = context.call(async { Ok(client.dead_letter_groups(queue).await?) })?;
            return context.output.json(&found);
        }
        // Ages use the server's clock, which may be virtual.
        let (found, info) =
            context.call(async { Ok(tokio::try_join!(client.dead_letter_groups(queue), client.info())?) })?;
        if found.approximate {
            context.output.info("the counts may be too low: there are too many dead letters, or the server reads them");
        }
        if found.groups.is_empty() {
            context.output.info("there are no dead letters");
            return Ok(());
        }
        let mut table = TextTable::new(&["GROUP", "COUNT", "HOUR", "LAST", "CODE", "TYPES", "MESSAGE"]);
        for group in &found.groups {
            table.row(vec![
                group.id.as_str().into(),
                CellValue::number(group.count),
                CellValue::number(group.last_hour),
                format!("{} ago", age_between(group.last_at, info.now)).into(),
                group.code.as_deref().unwrap_or_default().into(),
                group.types.join(",").into(),
                group.shape.as_str().into(),
            ]);
        }
        context.output.table(&table)
    }
}
