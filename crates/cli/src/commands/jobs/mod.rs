//! `longshore jobs`

mod attempts;
mod cancel;
mod dead_letter;
mod delete;
mod edit;
mod get;
mod history;
mod list;
mod payload;
mod requeue;
mod run_now;
mod submit;
mod wait;
mod watch;
mod why;

pub(crate) use list::{jobs_matching, show as show_list};

use clap::Subcommand;

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    List(list::ListJobs),
    Get(get::GetJob),
    Why(why::ExplainJob),
    Wait(wait::WaitForJob),
    Watch(watch::WatchJob),
    History(history::ShowHistory),
    Attempts(attempts::ShowAttempts),
    Payload(payload::ShowPayload),
    Cancel(cancel::CancelJobs),
    Requeue(requeue::RequeueJobs),
    Delete(delete::DeleteJobs),
    Submit(submit::SubmitHeldJobs),
    RunNow(run_now::RunJobsNow),
    DeadLetter(dead_letter::DeadLetterJobs),
    Edit(Box<edit::EditJob>),
}

impl JobsCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(context),
            Self::Get(get) => get.run(context),
            Self::Why(why) => why.run(context),
            Self::Wait(wait) => wait.run(context),
            Self::Watch(watch) => watch.run(context),
            Self::History(history) => history.run(context),
            Self::Attempts(attempts) => attempts.run(context),
            Self::Payload(payload) => payload.run(context),
            Self::Cancel(cancel) => cancel.run(context),
            Self::Requeue(requeue) => requeue.run(context),
            Self::Delete(delete) => delete.run(context),
            Self::Submit(submit) => submit.run(context),
            Self::RunNow(run_now) => run_now.run(context),
            Self::DeadLetter(dead_letter) => dead_letter.run(context),
            Self::Edit(edit) => edit.run(context),
        }
    }
}
