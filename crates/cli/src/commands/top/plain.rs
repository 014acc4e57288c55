//! One snapshot as tables or JSON.

use longshore_api::system::Worker;
use ratatui::crossterm::terminal;

use super::columns::{Fit, NAME_HEADER, PAUSED, QueueLine, shorten};
use super::rates::RecentRates;
use super::snapshot::Snapshot;
use crate::commands::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable, join_names};

/// Blanks between two columns of a [`TextTable`].
const GAP: usize = 2;

pub(super) fn show(context: &Context, snapshot: &Snapshot) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(snapshot);
    }
    let rates = RecentRates::of_server(snapshot);
    context.output.line(&format!("{} at {}", snapshot.summary(), context.server))?;
    context.output.line(&format!("rates per second over {}", rates.window()))?;
    context.output.line("")?;
    let width =
        if context.output.terminal { terminal::size().ok().map(|(columns, _)| usize::from(columns)) } else { None };
    let lines: Vec<QueueLine> = snapshot.lines(&rates);
    context.output.table(&queues(&lines, width))?;
    context.output.line("")?;
    if snapshot.workers.is_empty() {
        return context.output.line("no worker has claimed from this server");
    }
    context.output.table(&workers(&snapshot.workers, snapshot))
}

fn queues(lines: &[QueueLine], width: Option<usize>) -> TextTable {
    let fit = width.map_or_else(|| Fit::everything(lines), |width| Fit::choose(lines, width, GAP));
    let mut header = vec![NAME_HEADER];
    header.extend(fit.paused.then_some(""));
    header.extend(fit.columns.iter().map(|(column, _)| column.header()));
    let mut table = TextTable::new(&header);
    for line in lines {
        let mut row = vec![shorten(&line.name, fit.name).into()];
        if fit.paused {
            row.push(if line.paused { CellValue::Alarm(PAUSED.to_owned()) } else { "".into() });
        }
        row.extend(fit.columns.iter().map(|(column, _)| CellValue::number(line.cell(*column))));
        table.row(row);
    }
    table
}

fn workers(workers: &[Worker], snapshot: &Snapshot) -> TextTable {
    let mut table = TextTable::new(&["WORKER", "RUNNING", "WAITING", "SEEN", "QUEUES"]);
    for worker in workers {
        table.row(vec![
            worker.name.as_str().into(),
            CellValue::number(worker.running),
            CellValue::number(worker.waiting),
            format!("{} ago", age_between(worker.last_seen_at, snapshot.stats.now)).into(),
            join_names(&worker.queues).into(),
        ]);
    }
    table
}
