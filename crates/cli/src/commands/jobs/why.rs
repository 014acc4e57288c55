//! `longshore jobs why`

use clap::Args;
use longshore_api::job::ErrorView;
use longshore_api::system::{Reason, Why as Answer};

use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Say why a job is not running: what it waits for, or the error that ended it and how to run it again.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The job's id
    id: String,
}

impl Why {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let why = context.call(async { Ok(client.why(&self.id).await?) })?;
        if context.screen.json {
            return context.screen.json(&why);
        }
        context.screen.line(&format!("{} is {}{}", self.id, why.state, summary(&why)))?;
        for reason in &why.reasons {
            context.screen.line(&format!("  {}", told(reason)))?;
        }
        for line in [why.error.as_ref().map(last_error), way_back(&self.id, &why)].into_iter().flatten() {
            context.screen.line(&format!("  {line}"))?;
        }
        Ok(())
    }
}

fn summary(why: &Answer) -> String {
    match (why.runnable, why.ahead) {
        (true, Some(0)) => ": the next claim may have it".to_owned(),
        (true, Some(ahead)) => format!(": a claim may have it, after {}", counted(ahead, "other")),
        (true, None) => ": a claim may have it".to_owned(),
        (false, _) if why.state.terminal() => ": it will not run any more".to_owned(),
        (false, _) => String::new(),
    }
}

fn last_error(error: &ErrorView) -> String {
    let code = error.code.as_deref().map_or(String::new(), |code| format!(" ({code})"));
    format!("last error: {}{code}: {}", error.category, error.message)
}

/// How an ended job runs again.
fn way_back(id: &str, why: &Answer) -> Option<String> {
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

fn told(reason: &Reason) -> String {
    match reason {
        Reason::QueuePaused { queue } => {
            format!("queue \"{queue}\" is paused: `longshore queues resume {queue}` lets it go on")
        }
        Reason::Held => "it is held until it is submitted by hand".to_owned(),
        Reason::WaitingOn { count, after, after_any } => {
            let all = list("all of", after);
            let any = list("one of", after_any);
            format!("it waits for {}{all}{any}", counted(*count, "other job"))
        }
        Reason::DelayedUntil { at } => format!("it was submitted for later: {at}"),
        Reason::BackoffUntil { at, failures } => {
            format!("it failed {} and is tried again at {at}", counted(*failures, "time"))
        }
        Reason::Lifetime { at } => format!("its lifetime ends at {at}, before it could run"),
        Reason::Behind { ahead: 1 } => "1 job stands before it".to_owned(),
        Reason::Behind { ahead } => format!("{ahead} jobs stand before it"),
        Reason::NoWorker { queue, last_seen_at: Some(at) } => {
            format!("no worker asks queue \"{queue}\" for jobs; the last one did at {at}")
        }
        Reason::NoWorker { queue, last_seen_at: None } => {
            format!(
                "no worker has asked queue \"{queue}\" for jobs: `longshore work --queue {queue} --exec CMD` is one"
            )
        }
        Reason::Concurrency { limit } => format!("the limit is reached: {}", counted(*limit, "running job")),
        Reason::Rate { limit } => format!("the rate is limited to {limit}"),
        Reason::Running { worker, started_at, expires_at } => {
            let worker = worker.as_deref().unwrap_or("a worker");
            let since = started_at.map_or(String::new(), |at| format!(" since {at}"));
            let until = expires_at.map_or(String::new(), |at| format!(", on a lease until {at}"));
            format!("{worker} works on it{since}{until}")
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
