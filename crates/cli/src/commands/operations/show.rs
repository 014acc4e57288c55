//! Tables of operations.

use longshore_api::enums::{OperationState, UndoState};
use longshore_api::operation::{BulkOperation, OperationCanary, OperationFilter, Operations};

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

pub(super) fn list(context: &Context, page: &Operations) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(page);
    }
    if page.operations.is_empty() {
        context.output.info("there are no operations; `longshore operations start` creates one");
        return Ok(());
    }
    let mut table =
        TextTable::new(&["OPERATION", "ACTION", "STATE", "MATCHED", "CHANGED", "REFUSED", "LEFT", "CREATED", "FILTER"]);
    for operation in &page.operations {
        table.row(vec![
            operation.id.as_str().into(),
            action(operation).into(),
            state(operation),
            CellValue::number(operation.matched),
            CellValue::number(operation.changed),
            CellValue::number(operation.refused),
            CellValue::number(operation.remaining),
            operation.created_at.to_string().into(),
            filter(&operation.filter).into(),
        ]);
    }
    context.output.table(&table)?;
    if let Some(next) = &page.next {
        context.output.info(&format!("there are more: --cursor {next}"));
    }
    Ok(())
}

pub(super) fn one(context: &Context, operation: &BulkOperation) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(operation);
    }
    let mut table = TextTable::key_values();
    table.key_value("operation", &operation.id);
    table.key_value("action", action(operation));
    table.key_value("filter", filter(&operation.filter));
    table.key_value("state", state(operation));
    table.maybe("rate", operation.rate.map(|rate| format!("{rate}/s")));
    let more = if operation.counted { "" } else { ", still counting" };
    table.key_value("matched", format!("{}{more}", operation.matched));
    table.key_value("changed", operation.changed.to_string());
    let refusals: Vec<String> = operation.refusals.iter().map(|(code, jobs)| format!("{code} {jobs}")).collect();
    let codes = if refusals.is_empty() { String::new() } else { format!(" ({})", refusals.join(", ")) };
    table.key_value("refused", format!("{}{codes}", operation.refused));
    table.key_value("remaining", operation.remaining.to_string());
    table.maybe("canary", operation.canary.as_ref().map(canary));
    table.key_value("created", operation.created_at);
    table.maybe("ended", operation.ended_at);
    table.maybe("next slice", operation.next_at);
    table.maybe("undo until", operation.undo_until);
    table.maybe("undo", operation.undo.map(|undo| format!("{} taken back, {} kept", undo.undone, undo.kept)));
    context.output.table(&table)?;
    hint(context, operation);
    Ok(())
}

/// Says which command comes next.
fn hint(context: &Context, operation: &BulkOperation) {
    let id = &operation.id;
    if operation.state == OperationState::Waiting {
        context.output.info(&format!("`longshore operations continue {id}` treats the rest, `stop` keeps it"));
    }
    if operation.undo.is_some_and(|undo| undo.state == UndoState::Running) {
        context.output.info(&format!("`longshore operations get {id}` shows how the undo goes on"));
    }
}

fn action(operation: &BulkOperation) -> String {
    let dry_run = if operation.dry_run { " (dry run)" } else { "" };
    format!("{}{dry_run}", operation.action)
}

fn state(operation: &BulkOperation) -> CellValue {
    match operation.state {
        OperationState::Waiting => CellValue::Alarm("waiting".to_owned()),
        OperationState::Running | OperationState::Stopped | OperationState::Done => operation.state.as_str().into(),
    }
}

fn filter(filter: &OperationFilter) -> String {
    let OperationFilter { queue, state, job_type, tag, error_code, group } = filter;
    let state = state.as_ref().map(ToString::to_string);
    let parts = [
        ("queue", queue.as_ref()),
        ("state", state.as_ref()),
        ("type", job_type.as_ref()),
        ("tag", tag.as_ref()),
        ("error_code", error_code.as_ref()),
        ("group", group.as_ref()),
    ];
    let given = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    given.collect::<Vec<_>>().join(" ")
}

fn canary(canary: &OperationCanary) -> String {
    let outcomes = canary.outcomes;
    let named = [
        ("completed", outcomes.completed),
        ("failed", outcomes.failed),
        ("dead_letter", outcomes.dead_letter),
        ("cancelled", outcomes.cancelled),
        ("gone", outcomes.gone),
    ];
    let ended = named.into_iter().filter(|(_, jobs)| *jobs > 0).map(|(name, jobs)| format!("{jobs} {name}"));
    let ended: Vec<String> = ended.collect();
    format!("{} of {} jobs ended: {}", canary.ended, canary.jobs.len(), ended.join(", "))
}
