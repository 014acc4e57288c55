//! `longshore jobs why`

use clap::Args;
use longshore_api::job::ErrorView;
use longshore_api::system::{Reason, Why};

use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Explain why a job is not running.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints what the job waits for. For a job that has ended, prints the error and how to requeue it.")]
pub(crate) struct ExplainJob {
    /// The job's id
    id: String,
}

impl ExplainJob {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let why = context.call(async { Ok(client.why(&self.id).await?) })?;
        if context.output.json {
            return context.output.json(&why);
        }
        context.output.line(&format!("{} is {}{}", self.id, why.state, summary(&why)))?;
        for reason in &why.reasons {
            context.output.line(&format!("  {}", describe(reason)))?;
        }
        for line in [why.error.as_ref().map(last_error), requeue_advice(&self.id, &why)].into_iter().flatten() {
            context.output.line(&format!("  {line}"))?;
        }
        Ok(())
    }
}

fn summary(why: &Why) -> String {
    match (why.runnable, why.ahead) {
        (true, Some(0)) => ": ready, the next claim can get it".to_owned(),
        (true, Some(ahead)) => format!(": ready, after {}", counted(ahead, "other job")),
        (true, None) => ": ready".to_owned(),
        (false, _) if why.state.terminal() => ": it will not run again".to_owned(),
        (false, _) => String::new(),
    }
}

fn last_error(error: &ErrorView) -> String {
    let code = error.code.as_deref().map_or(String::new(), |code| format!(" ({code})"));
    format!("last error: {}{code}: {}", error.category, error.message)
}

/// Says how an ended job runs again.
fn requeue_advice(id: &str, why: &Why) -> Option<String> {
    match (&why.requeued_as, &why.action) {
        (Some(clone), _) => Some(format!("it was requeued as {clone}: `longshore jobs why {clone}`")),
        (None, Some(action)) if action.job == id => Some(format!("`longshore jobs requeue {id}` runs it again")),
        (None, Some(action)) => {
            let dependency = &action.job;
            Some(format!("it ended because job {dependency} did: `longshore jobs requeue {dependency}` comes first"))
        }
        (None, None) => None,
    }
}

fn describe(reason: &Reason) -> String {
    match reason {
        Reason::QueuePaused { queue } => {
            format!("queue \"{queue}\" is paused: `longshore queues resume {queue}` resumes it")
        }
        Reason::Held => "it is held: `longshore jobs submit ID` submits it".to_owned(),
        Reason::WaitingOn { count, after, after_any } => {
            let all = list("all of", after);
            let any = list("one of", after_any);
            format!("it waits for {}{all}{any}", counted(*count, "other job"))
        }
        Reason::DelayedUntil { at } => format!("it is delayed until {at}"),
        Reason::BackoffUntil { at, failures } => {
            format!("it failed {} and is retried at {at}", counted(*failures, "time"))
        }
        Reason::Lifetime { at } => format!("its lifetime ends at {at}, before it can run"),
        Reason::Behind { ahead } => format!("{} ahead of it", counted(*ahead, "job")),
        Reason::NoWorker { queue, last_seen_at: Some(at), types } => {
            let types = types.join(", ");
            format!("no worker claims type \"{types}\" from queue \"{queue}\"; the last claim was at {at}")
        }
        Reason::NoWorker { queue, last_seen_at: None, types: _ } => {
            format!(
                "no worker has claimed from queue \"{queue}\": `longshore work --queue {queue} --exec CMD` starts one"
            )
        }
        Reason::Concurrency { limit } => format!("the limit of {} is reached", counted(*limit, "running job")),
        Reason::Rate { limit } => format!("the rate is limited to {limit}"),
        Reason::Running { worker, started_at, expires_at } => {
            let worker = worker.as_deref().unwrap_or("a worker");
            let since = started_at.map_or(String::new(), |at| format!(" since {at}"));
            let until = expires_at.map_or(String::new(), |at| format!(", with a lease until {at}"));
            format!("{worker} has been running it{since}{until}")
        }
    }
}

fn list(word: &str, ids: &[String]) -> String {
    const SHOWN: usize = 5;
    if ids.is_empty() {
        return String::new();
    }
    let more = if ids.len() > SHOWN { " …" } else { "" };
    let shown = ids.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
    format!(", {word} {shown}{more}")
}
