//! `longshore queues delete`

use clap::Args;
use longshore_api::ErrorCode;

use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Delete a queue. With unfinished jobs it needs --force, which cancels them.
#[derive(Debug, Args)]
pub(crate) struct RemoveQueue {
    /// The queue's name
    name: String,
    /// Cancel jobs that have not ended
    #[arg(long)]
    force: bool,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(serde::Serialize)]
struct Deleted<'a> {
    queue: &'a str,
    /// Number of jobs that have not ended.
    unfinished: u64,
    deleted: bool,
}

impl RemoveQueue {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let name = &self.name;
        let unfinished = context.call(async {
            let queue = client.queue(name).await?;
            if !self.dry_run {
                client.delete_queue(name, self.force).await?;
            }
            let unfinished = queue.counts.iter().filter(|(state, _)| !state.terminal()).map(|(_, count)| count);
            Ok(unfinished.sum::<u64>())
        });
        let unfinished = unfinished.map_err(|failure| {
            let has_jobs = failure.problem.as_ref().is_some_and(|p| p.code == ErrorCode::IllegalTransition.code());
            if has_jobs && !self.force && name != "default" {
                return failure.hint("--force cancels its jobs first");
            }
            failure
        })?;
        if context.output.json {
            return context.output.json(&Deleted { queue: name, unfinished, deleted: !self.dry_run });
        }
        if self.dry_run {
            let force = if unfinished > 0 && !self.force { ", which needs --force" } else { "" };
            let have = if unfinished == 1 { "has" } else { "have" };
            let jobs = format!("with {} that {have} not ended{force}", counted(unfinished, "job"));
            return context.output.line(&format!("queue \"{name}\" would be deleted {jobs}; nothing was changed"));
        }
        context.output.line(&format!("queue \"{name}\" deleted"))
    }
}
