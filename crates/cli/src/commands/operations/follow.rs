//! Waits until an operation no longer runs.

use std::time::Duration;

use longshore_api::enums::{OperationState, UndoState};
use longshore_api::operation::BulkOperation;

use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Follows an operation with a progress bar on standard error. Returns it once it waits, is stopped
/// or done, and its undo is over.
pub(super) fn until_rest(context: &Context, id: &str) -> Result<BulkOperation, CliError> {
    let client = context.client()?;
    let bar = progress::bar(Some(0), context.output.json);
    let followed = context.call(async {
        loop {
            let operation = client.operation(id).await?;
            bar.set_length(operation.matched);
            bar.set_position(operation.matched.saturating_sub(operation.remaining));
            bar.set_message(message(&operation));
            if !is_running(&operation) {
                return Ok(operation);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
    bar.finish_and_clear();
    followed
}

fn is_running(operation: &BulkOperation) -> bool {
    operation.state == OperationState::Running || operation.undo.is_some_and(|undo| undo.state == UndoState::Running)
}

fn message(operation: &BulkOperation) -> String {
    if let Some(undo) = operation.undo {
        return format!("{} taken back, {} kept", counted(undo.undone, "job"), undo.kept);
    }
    if !operation.counted {
        return format!("{} counted", counted(operation.matched, "job"));
    }
    let canary = operation.canary.as_ref().filter(|canary| canary.continued_at.is_none());
    let canary = canary.map(|canary| format!(", {} of {} canary jobs ended", canary.ended, canary.jobs.len()));
    let canary = canary.unwrap_or_default();
    format!("{} of {} jobs changed, {} refused{canary}", operation.changed, operation.matched, operation.refused)
}
