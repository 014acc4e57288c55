//! `longshore queues`

mod delete;
mod get;
mod list;
mod pause;
mod set;
mod watch;

use clap::Subcommand;

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum QueuesCommand {
    /// List queues, with their number of jobs by state
    List,
    Get(get::GetQueue),
    Watch(watch::WatchQueues),
    Set(set::SetQueue),
    /// Stop claims from a queue; submissions continue
    Pause(pause::QueueArg),
    /// Resume claims from a queue
    Resume(pause::QueueArg),
    Delete(delete::RemoveQueue),
}

impl QueuesCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => list::run(context),
            Self::Get(get) => get.run(context),
            Self::Watch(watch) => watch.run(context),
            Self::Set(set) => set.run(context),
            Self::Pause(name) => name.pause(context),
            Self::Resume(name) => name.resume(context),
            Self::Delete(delete) => delete.run(context),
        }
    }
}
