//! `longshore attention`

use clap::Args;
use longshore_api::attention::AttentionItem;
use longshore_api::enums::Severity;

use super::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

/// List what needs attention, most severe first. Exit code 1 if there is an error among it.
#[derive(Debug, Args)]
#[command(after_help = "\
SEVERITY: error, warning or info. SINCE: how long it has been so. FACTS: the numbers behind it.
HELP: the request that helps, if there is one. The list is made of counters: it costs the server
little.

Exit code 0: nothing with severity error. 1: at least one error; the list is printed all the same.

Examples:
  longshore attention
  longshore attention --json | jq -r '.items[].code'")]
pub(crate) struct ListAttention;

impl ListAttention {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        // Ages use the server's clock, which may be virtual.
        let (attention, info) = context.call(async { Ok(tokio::try_join!(client.attention(), client.info())?) })?;
        if context.output.json {
            context.output.json(&attention)?;
        } else if attention.items.is_empty() {
            context.output.info("nothing needs attention");
        } else {
            let mut table = TextTable::new(&["SEVERITY", "CODE", "QUEUE", "TYPE", "SINCE", "FACTS", "HELP"]);
            for item in &attention.items {
                let since = item.since.map(|since| age_between(since, info.now)).unwrap_or_default();
                table.row(vec![
                    item.severity.as_str().into(),
                    item.code.as_str().into(),
                    item.queue.as_deref().unwrap_or_default().into(),
                    item.job_type.as_deref().unwrap_or_default().into(),
                    since.into(),
                    facts(item).into(),
                    item.action.as_ref().map(|action| action.label.clone()).unwrap_or_default().into(),
                ]);
            }
            context.output.table(&table)?;
        }
        let errors = attention.items.iter().filter(|item| item.severity == Severity::Error).count();
        match errors {
            0 => Ok(()),
            1 => Err(CliError::refused("1 item has severity error")),
            _ => Err(CliError::refused(format!("{errors} items have severity error"))),
        }
    }
}

/// Returns the facts that are known, as `name=value`.
fn facts(item: &AttentionItem) -> String {
    let known = item.facts.iter().filter(|(_, value)| !value.is_null());
    let text = known.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    });
    text.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_names_and_values() {
        let json = r#"{"code":"no_worker","severity":"error","since":null,"queue":"q","type":null,
            "facts":{"ready":3,"last_seen_at":null,"oldest_scheduled_at":"2026-11-18T00:00:00.000Z"},"action":null}"#;
        let item: AttentionItem = serde_json::from_str(json).unwrap();
        assert_eq!(facts(&item), "oldest_scheduled_at=2026-11-18T00:00:00.000Z ready=3");
    }
}
