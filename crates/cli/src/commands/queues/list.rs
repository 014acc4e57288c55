//! `longshore queues list`

use longshore_api::enums::State;
use longshore_api::queue::Queues;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

pub(super) fn run(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    let queues = context.call(async { Ok(client.queues().await?) })?;
    show(context, &queues)
}

pub(super) fn show(context: &Context, queues: &Queues) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(queues);
    }
    let mut header = vec!["QUEUE", "PROFILE", ""];
    header.extend(State::ALL.iter().map(|state| state_header(*state)));
    header.push("OLDEST READY");
    let mut table = TextTable::new(&header);
    for queue in &queues.queues {
        let paused = if queue.paused { CellValue::Alarm("paused".to_owned()) } else { "".into() };
        let mut row = vec![queue.name.as_str().into(), queue.profile.into(), paused];
        row.extend(State::ALL.iter().map(|state| CellValue::number(queue.counts.get(state).copied().unwrap_or(0))));
        row.push(CellValue::maybe(queue.oldest_scheduled_at));
        table.row(row);
    }
    context.output.table(&table)
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
