//! `longshore jobs`

mod attempts;
mod cancel;
mod delete;
mod get;
mod history;
mod list;
mod payload;
mod requeue;
mod wait;
mod why;

pub(crate) use list::{jobs_matching, show as show_list};

use clap::Subcommand;

use crate::context::Context;
use crate::terminal::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// List jobs, newest first
    List(list::List),
    /// Show one job
    Get(get::Get),
    /// Say why a job is not running
    Why(why::Why),
    /// Wait until a job has ended
    Wait(wait::Wait),
    /// Show every move of a job from state to state
    History(history::History),
    /// Show every attempt at a job
    Attempts(attempts::Attempts),
    /// Print a job's payload, as it was handed in
    Payload(payload::Payload),
    /// End jobs that have not ended
    Cancel(cancel::Cancel),
    /// Bring back jobs that failed, were cancelled or are dead letters
    Requeue(requeue::Requeue),
    /// Delete jobs that have ended
    Delete(delete::Delete),
}

impl Jobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(context),
            Self::Get(get) => get.run(context),
            Self::Why(why) => why.run(context),
            Self::Wait(wait) => wait.run(context),
            Self::History(history) => history.run(context),
            Self::Attempts(attempts) => attempts.run(context),
            Self::Payload(payload) => payload.run(context),
            Self::Cancel(cancel) => cancel.run(context),
            Self::Requeue(requeue) => requeue.run(context),
            Self::Delete(delete) => delete.run(context),
        }
    }
}
