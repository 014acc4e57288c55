//! `longshore jobs why`

use clap::Args;
use longshore_api::job::ErrorView;
use longshore_api::system::{Reason, Why};

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
        context.output.line(&format!("{} is {}: {}", self.id, why.state, why.summary))?;
        for reason in &why.reasons {
            context.output.line(&format!("  {}", reason.text))?;
            if let Some(advice) = advice(&self.id, &reason.reason) {
                context.output.line(&format!("    {advice}"))?;
            }
        }
        for line in [why.error.as_ref().map(last_error), requeue_advice(&self.id, &why)].into_iter().flatten() {
            context.output.line(&format!("  {line}"))?;
        }
        Ok(())
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

/// Returns the command that removes a reason. What the reason says comes from the server.
fn advice(id: &str, reason: &Reason) -> Option<String> {
    match reason {
        Reason::QueuePaused { queue } => Some(format!("`longshore queues resume {queue}` resumes it")),
        Reason::Held => Some(format!("`longshore jobs submit {id}` submits it")),
        Reason::NoWorker { queue, .. } => Some(format!("`longshore work --queue {queue} --exec CMD` starts a worker")),
        Reason::WaitingOn { .. }
        | Reason::DelayedUntil { .. }
        | Reason::BackoffUntil { .. }
        | Reason::Lifetime { .. }
        | Reason::Behind { .. }
        | Reason::Concurrency { .. }
        | Reason::Rate { .. }
        | Reason::Running { .. } => None,
    }
}
