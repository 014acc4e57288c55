//! One look, as tables or JSON.

use super::snapshot::{STATES, Snapshot, rate};
use crate::context::Context;
use crate::terminal::failure::Failure;
use crate::terminal::table::{Table, Value};

pub(super) fn show(context: &Context, snapshot: &Snapshot) -> Result<(), Failure> {
    if context.screen.json {
        return context.screen.json(snapshot);
    }
    context.screen.line(&format!("{} at {}", snapshot.summary(), context.server))?;
    context.screen.line("")?;
    let mut header = vec!["QUEUE", ""];
    header.extend(STATES.iter().map(|(_, name)| *name));
    header.extend(["SUBMIT/S", "CLAIM/S", "COMPLETE/S", "FAIL/S"]);
    let mut table = Table::new(&header);
    for queue in &snapshot.queues {
        let paused = if queue.paused { Value::Alarm("paused".to_owned()) } else { "".into() };
        let mut row = vec![queue.name.as_str().into(), paused];
        row.extend(STATES.iter().map(|(state, _)| Value::number(queue.counts.get(state).copied().unwrap_or(0))));
        let rates = snapshot.stats_of(queue).rates;
        let rates = [rates.submitted, rates.claimed, rates.completed, rates.failed];
        row.extend(rates.into_iter().map(|per_second| Value::Number(rate(per_second))));
        table.row(row);
    }
    context.screen.table(&table)?;
    context.screen.line("")?;
    if snapshot.workers.is_empty() {
        return context.screen.line("no worker has asked for jobs");
    }
    let mut table = Table::new(&["WORKER", "RUNNING", "WAITING", "LAST SEEN", "QUEUES"]);
    for worker in &snapshot.workers {
        table.row(vec![
            worker.name.as_str().into(),
            Value::number(worker.running),
            Value::number(worker.waiting),
            worker.last_seen_at.into(),
            worker.queues.join(", ").into(),
        ]);
    }
    context.screen.table(&table)
}
