//! `longshore schedules list`, `get`, `ticks`

use longshore_api::schedule::{Schedule, Schedules};

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Schedules of one request.
const PAGE: usize = 1_000;

pub(super) fn list(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    let all = context.call(async {
        let mut all: Vec<Schedule> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let Schedules { schedules, next } = client.schedules(PAGE, cursor.as_deref()).await?;
            all.extend(schedules);
            cursor = next;
            if cursor.is_none() {
                return Ok(Schedules { schedules: all, next: None });
            }
        }
    })?;
    if context.output.json {
        return context.output.json(&all);
    }
    let mut table = TextTable::new(&["SCHEDULE", "WHEN", "TIMEZONE", "QUEUE", "", "NEXT", "LAST"]);
    for schedule in &all.schedules {
        let paused = if schedule.paused { CellValue::Alarm("paused".to_owned()) } else { "".into() };
        table.row(vec![
            schedule.name.as_str().into(),
            when(schedule).as_str().into(),
            schedule.timezone.as_str().into(),
            schedule.queue.as_str().into(),
            paused,
            CellValue::maybe(schedule.next.first().copied().filter(|_| !schedule.paused)),
            schedule.last.as_ref().map_or("", |tick| tick.outcome.as_str()).into(),
        ]);
    }
    context.output.table(&table)
}

fn when(schedule: &Schedule) -> String {
    match (&schedule.cron, schedule.every) {
        (Some(cron), _) => cron.clone(),
        (None, every) => format!("every {}", every.unwrap_or_default()),
    }
}

pub(super) fn get(context: &Context, name: &str) -> Result<(), CliError> {
    let client = context.client()?;
    let schedule = context.call(async { Ok(client.get_schedule(name).await?) })?;
    if context.output.json {
        return context.output.json(&schedule);
    }
    let output = &context.output;
    output.line(&format!(
        "{}: {} ({}), queue {}",
        schedule.name,
        when(&schedule),
        schedule.timezone,
        schedule.queue
    ))?;
    let (misfire, overlap, jitter) = (schedule.misfire, schedule.overlap, schedule.jitter);
    output.line(&format!("misfire {misfire}, overlap {overlap}, jitter {jitter}, type {}", schedule.job.job_type))?;
    if schedule.paused {
        output.line(&format!("paused: {}", schedule.pause_note.as_deref().unwrap_or("no note")))?;
    }
    if let Some(last) = &schedule.last {
        output.line(&format!("last tick {} {}", last.due_at, last.outcome))?;
    }
    schedule.next.iter().try_for_each(|at| output.line(&format!("next {at}")))
}

pub(super) fn ticks(context: &Context, name: &str) -> Result<(), CliError> {
    let client = context.client()?;
    let ticks = context.call(async { Ok(client.ticks(name).await?) })?;
    if context.output.json {
        return context.output.json(&ticks);
    }
    let mut table = TextTable::new(&["DUE", "FIRED", "OUTCOME", "JOB", "DETAIL"]);
    for tick in &ticks.ticks {
        table.row(vec![
            CellValue::maybe(Some(tick.due_at)),
            CellValue::maybe(tick.fired_at),
            tick.outcome.as_str().into(),
            tick.job.as_deref().unwrap_or("").into(),
            tick.detail.as_deref().unwrap_or("").into(),
        ]);
    }
    context.output.table(&table)
}
