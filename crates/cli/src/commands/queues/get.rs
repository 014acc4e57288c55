//! `longshore queues get`

use clap::Args;
use longshore_api::enums::State;
use longshore_api::queue::Queue;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Show one queue: its effective settings, and its number of jobs by state.
#[derive(Debug, Args)]
pub(crate) struct GetQueue {
    /// The queue's name
    name: String,
}

impl GetQueue {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let queue = context.call(async { Ok(client.queue(&self.name).await?) })?;
        show(context, &queue)
    }
}

pub(super) fn show(context: &Context, queue: &Queue) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(queue);
    }
    let mut table = TextTable::key_values();
    table.key_value("queue", &queue.name);
    table.key_value("profile", queue.profile);
    if queue.paused {
        table.key_value("paused", CellValue::Alarm("claims return nothing".to_owned()));
    }
    let counts = State::ALL.iter().filter_map(|state| {
        let count = queue.counts.get(state).copied().filter(|count| *count > 0)?;
        Some(format!("{count} {state}"))
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    table.key_value("jobs", if counts.is_empty() { "none" } else { &counts });
    table.maybe("oldest ready", queue.oldest_scheduled_at);
    let settings = serde_json::to_value(&queue.settings);
    flatten("", &settings.map_err(|error| CliError::failed(error.to_string()))?, &mut table);
    context.output.table(&table)
}

/// Adds one row per setting, with the name that `--set` accepts.
fn flatten(path: &str, value: &serde_json::Value, table: &mut TextTable) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, member, table);
            }
        }
        serde_json::Value::String(text) => table.key_value(path, text),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::Array(_) => table.key_value(path, value),
    }
}
