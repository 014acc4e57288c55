//! `longshore audit`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

/// List the calls of operators and administrators, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Entries are kept for 90 days. Refused calls are listed too; calls that only read are not.

Examples:
  longshore audit
  longshore audit --limit 1000 --json | jq '.entries[] | select(.outcome != \"ok\")'")]
pub(crate) struct Audit {
    /// Number of entries, at most 1000
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
    /// Continue after an earlier page: its `next`
    #[arg(long)]
    cursor: Option<String>,
}

impl Audit {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let page = context.call(async { Ok(client.audit(self.limit, self.cursor.as_deref()).await?) })?;
        if context.output.json {
            return context.output.json(&page);
        }
        let mut table = TextTable::new(&["AT", "TOKEN", "NAME", "ACTION", "TARGET", "OUTCOME", "ADDRESS"]);
        for entry in &page.entries {
            table.row(vec![
                entry.at.to_string().into(),
                entry.token.as_deref().unwrap_or_default().into(),
                entry.name.as_deref().unwrap_or_default().into(),
                entry.action.as_str().into(),
                entry.target.as_str().into(),
                entry.outcome.as_str().into(),
                entry.address.as_deref().unwrap_or_default().into(),
            ]);
        }
        context.output.table(&table)?;
        if let Some(next) = &page.next {
            context.output.info(&format!("there are more: --cursor {next}"));
        }
        Ok(())
    }
}
