//! `longshore jobs watch`

use clap::Args;
use longshore::{Client, EventQuery};
use longshore_api::enums::State;
use longshore_api::events::ServerEvent;
use longshore_api::job::Transition;

use crate::commands::events::EventWatch;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Print the transitions of a job, past and live, until it has ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: the job completed. 1: it ended in another state.

Example:
  longshore jobs watch 0b6f…")]
pub(crate) struct WatchJob {
    /// The job's id
    id: String,
}

impl WatchJob {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let state = context.call(self.follow(context, &client))?;
        if state == State::Completed { Ok(()) } else { Err(CliError::refused(format!("the job ended as {state}"))) }
    }

    /// Returns the state in which the job ended.
    async fn follow(&self, context: &Context, client: &Client) -> Result<State, CliError> {
        // A malformed id gets the same error as an unknown one.
        client.job(&self.id).await?;
        let query = EventQuery { job: Some(self.id.clone()), ..EventQuery::default() };
        let mut events = EventWatch::open(client, &query).await?;
        let mut shown = Vec::new();
        // The stream is open: what the history lacks arrives as an event.
        let mut end = self.show_history(context, client, &mut shown).await?;
        while end.is_none() {
            let received = events.next(context).await?;
            end = match received.event {
                ServerEvent::Job(job) => {
                    let step = Transition { from: job.from, to: job.to, at: job.at, cause: job.cause };
                    show_new(context, step, &mut shown)?
                }
                ServerEvent::Gap | ServerEvent::Closed(_) => self.show_history(context, client, &mut shown).await?,
                ServerEvent::Queue(_) | ServerEvent::Schedule(_) => None,
            };
        }
        Ok(end.unwrap_or(State::Completed))
    }

    async fn show_history(
        &self,
        context: &Context,
        client: &Client,
        shown: &mut Vec<Transition>,
    ) -> Result<Option<State>, CliError> {
        let mut end = None;
        for step in client.history(&self.id).await?.history {
            end = show_new(context, step, shown)?;
        }
        Ok(end)
    }
}

/// Prints a transition once. Returns the state if the job has ended.
fn show_new(context: &Context, step: Transition, shown: &mut Vec<Transition>) -> Result<Option<State>, CliError> {
    let end = Some(step.to).filter(|state| state.terminal());
    if shown.contains(&step) {
        return Ok(end);
    }
    if context.output.json {
        context.output.json_line(&step)?;
    } else {
        let from = step.from.map_or("new", State::as_str);
        context.output.line(&format!("{}  {from} -> {} ({})", step.at, step.to, step.cause))?;
    }
    shown.push(step);
    Ok(end)
}
