//! `longshore queues watch`

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use longshore::{Client, EventQuery};
use longshore_api::enums::State;
use longshore_api::queue::{Queue, Queues};
use tokio::time::{Instant, timeout_at};

use super::list;
use crate::commands::events::EventWatch;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Show queues and their counts whenever they change.
#[derive(Debug, Args)]
#[command(after_help = "\
A terminal shows one table that is updated. Other output gets a line for each queue that changed;
with --json, the queue as the API shows it.

Examples:
  longshore queues watch
  longshore queues watch mail
  longshore queues watch --json | jq '.counts.scheduled'")]
pub(crate) struct WatchQueues {
    /// The queue's name; default: all queues
    queue: Option<String>,
}

/// Changes within this time are shown together.
const LINGER: Duration = Duration::from_millis(200);
/// Erases the terminal and moves to its first line.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

impl WatchQueues {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(self.follow(context, &client))
    }

    async fn follow(&self, context: &Context, client: &Client) -> Result<(), CliError> {
        if let Some(name) = &self.queue {
            client.queue(name).await?;
        }
        let query = EventQuery { queue: self.queue.clone(), ..EventQuery::default() };
        let mut events = EventWatch::open(client, &query).await?;
        let mut shown: BTreeMap<String, Queue> = BTreeMap::new();
        loop {
            let all = client.queues().await?.queues;
            let selected = all.into_iter().filter(|queue| self.queue.as_ref().is_none_or(|name| *name == queue.name));
            show(context, selected.collect(), &mut shown)?;
            events.next(context).await?;
            let until = Instant::now() + LINGER;
            while let Ok(event) = timeout_at(until, events.next(context)).await {
                event?;
            }
        }
    }
}

fn show(context: &Context, queues: Vec<Queue>, shown: &mut BTreeMap<String, Queue>) -> Result<(), CliError> {
    if context.output.terminal && !context.output.json {
        context.output.bytes(CLEAR)?;
        return list::show(context, &Queues { queues });
    }
    let present: BTreeMap<String, Queue> = queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect();
    for (name, queue) in &present {
        if shown.get(name) == Some(queue) {
            continue;
        }
        if context.output.json {
            context.output.json_line(queue)?;
        } else {
            context.output.line(&line(queue))?;
        }
    }
    for name in shown.keys().filter(|name| !present.contains_key(*name)) {
        context.output.info(&format!("the queue \"{name}\" was deleted"));
    }
    *shown = present;
    Ok(())
}

fn line(queue: &Queue) -> String {
    let count = |state: &State| queue.counts.get(state).copied().unwrap_or(0);
    let counts: Vec<String> = State::ALL.iter().map(|state| format!("{state}={}", count(state))).collect();
    let paused = if queue.paused { " paused" } else { "" };
    format!("{}{paused} {}", queue.name, counts.join(" "))
}
