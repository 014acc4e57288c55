//! `longshore queues list`

use longshore_api::enums::State;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{Table, Value};

pub(super) fn run(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    let queues = context.call(async { Ok(client.queues().await?) })?;
    if context.screen.json {
        return context.screen.json(&queues);
    }
    let mut header = vec!["QUEUE", "PROFILE", ""];
    header.extend(State::ALL.iter().map(|state| state_header(*state)));
    header.push("OLDEST IN LINE");
    let mut table = Table::new(&header);
    for queue in &queues.queues {
        let paused = if queue.paused { Value::Alarm("paused".to_owned()) } else { "".into() };
        let mut row = vec![queue.name.as_str().into(), queue.profile.into(), paused];
        row.extend(State::ALL.iter().map(|state| Value::number(queue.counts.get(state).copied().unwrap_or(0))));
        row.push(Value::maybe(queue.oldest_scheduled_at));
        table.row(row);
    }
    context.screen.table(&table)
}

fn state_header(state: State) -> &'static str {
    match state {
        State::Pending => "PENDING",
        State::Scheduled => "SCHEDULED",
        State::Delayed => "DELAYED",
        State::Running => "RUNNING",
        State::Retrying => "RETRYING",
        State::Completed => "COMPLETED",
        State::Failed => "FAILED",
        State::DeadLetter => "DEAD",
        State::Cancelled => "CANCELLED",
    }
}
