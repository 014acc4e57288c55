//! `longshore operations`
//!
//! - `start.rs`: starts an operation; `follow.rs`: waits for one, with a progress bar
//! - `show.rs`: tables

mod follow;
mod show;
mod start;

use clap::{Args, Subcommand};
use longshore_api::operation::BulkOperation;

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum OperationsCommand {
    List(ListOperations),
    /// Show one operation, with its canary jobs
    Get(OperationArg),
    Start(start::StartOperation),
    /// Treat the rest of an operation after its canary
    Continue(WaitableArg),
    /// Stop an operation after its present slice
    Stop(OperationArg),
    /// Take back what a cancel or requeue has changed in the last 5 minutes
    Undo(WaitableArg),
}

/// List operations, newest first.
#[derive(Debug, Args)]
pub(crate) struct ListOperations {
    /// Number of operations, at most 1000
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
    /// Continue after an earlier page: its `next`
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OperationArg {
    /// The operation's id
    id: String,
}

#[derive(Debug, Args)]
pub(crate) struct WaitableArg {
    /// The operation's id
    id: String,
    /// Wait until the operation no longer runs
    #[arg(long)]
    wait: bool,
}

impl OperationsCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        match self {
            Self::List(ListOperations { limit, cursor }) => {
                let page = context.call(async { Ok(client.operations(limit, cursor.as_deref()).await?) })?;
                show::list(context, &page)
            }
            Self::Get(OperationArg { id }) => {
                show::one(context, &context.call(async { Ok(client.operation(&id).await?) })?)
            }
            Self::Start(start) => start.run(context),
            Self::Continue(WaitableArg { id, wait }) => {
                let operation = context.call(async { Ok(client.continue_operation(&id).await?) })?;
                finish(context, operation, wait)
            }
            Self::Stop(OperationArg { id }) => {
                show::one(context, &context.call(async { Ok(client.stop_operation(&id).await?) })?)
            }
            Self::Undo(WaitableArg { id, wait }) => {
                let operation = context.call(async { Ok(client.undo_operation(&id).await?) })?;
                finish(context, operation, wait)
            }
        }
    }
}

fn finish(context: &Context, operation: BulkOperation, wait: bool) -> Result<(), CliError> {
    let operation = if wait { follow::until_rest(context, &operation.id)? } else { operation };
    show::one(context, &operation)
}
