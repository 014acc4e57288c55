//! `longshore events`

use clap::Args;
use longshore::{Client, EventQuery, EventStream, ReceivedEvent};
use longshore_api::enums::State;
use longshore_api::events::{ClosedEvent, JobEvent, ServerEvent};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::terminal::error::CliError;

/// Print changes of jobs, queues and schedules as they happen.
#[derive(Debug, Args)]
#[command(after_help = "\
With --json, each line is an event: its name, its cursor in \"id\", and its data. The command resumes
after a lost connection. A gap means that events are missing: list again what you follow.

Examples:
  longshore events
  longshore events --queue mail --state failed --state dead_letter
  longshore events --json | jq -r 'select(.event == \"job\") | .data.id'")]
pub(crate) struct WatchEvents {
    /// Only events of this queue and its jobs
    #[arg(long, short)]
    queue: Option<String>,
    /// Only events of jobs of this type
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    job_type: Option<String>,
    /// Only events of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only events of jobs of this workflow
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// Only transitions to this state; may be repeated
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',')]
    states: Vec<State>,
    /// Resume after the event with this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

impl WatchEvents {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let Self { queue, job_type, job, workflow, states, after } = self;
        let query = EventQuery { queue, job_type, job, workflow, states, after };
        context.call(async {
            let mut events = EventWatch::open(&client, &query).await?;
            loop {
                show(context, &events.next(context).await?)?;
            }
        })
    }
}

/// An event stream that reports lost connections.
pub(super) struct EventWatch {
    events: EventStream,
    reconnects: u64,
}

impl EventWatch {
    pub(super) async fn open(client: &Client, query: &EventQuery) -> Result<Self, CliError> {
        Ok(Self { events: client.events(query).await?, reconnects: 0 })
    }

    /// Returns the next event. Says on standard error that the stream was resumed.
    pub(super) async fn next(&mut self, context: &Context) -> Result<ReceivedEvent, CliError> {
        let event = self.events.next().await?;
        if self.events.reconnects() > self.reconnects {
            self.reconnects = self.events.reconnects();
            context.output.warn("the connection was lost; resumed");
        }
        match &event.event {
            ServerEvent::Gap => context.output.warn("events are missing here"),
            ServerEvent::Closed(closed) => {
                context.output.warn(&format!("the server closed the stream: {}", closed.reason));
            }
            ServerEvent::Job(_) | ServerEvent::Queue(_) | ServerEvent::Schedule(_) => {}
        }
        Ok(event)
    }
}

fn show(context: &Context, received: &ReceivedEvent) -> Result<(), CliError> {
    let (name, data) = match &received.event {
        ServerEvent::Job(job) => ("job", data(job)?),
        ServerEvent::Queue(queue) => ("queue", data(queue)?),
        ServerEvent::Schedule(schedule) => ("schedule", data(schedule)?),
        ServerEvent::Gap => ("gap", json!({})),
        ServerEvent::Closed(ClosedEvent { reason }) => ("closed", json!({ "reason": reason })),
    };
    if context.output.json {
        return context.output.json_line(&json!({ "event": name, "id": received.cursor, "data": data }));
    }
    match &received.event {
        ServerEvent::Job(job) => context.output.line(&job_line(job)),
        ServerEvent::Queue(queue) => {
            context.output.line(&format!("{}  queue {} {}", queue.at, queue.name, queue.change))
        }
        ServerEvent::Schedule(schedule) => {
            context.output.line(&format!("{}  schedule {} {}", schedule.at, schedule.name, schedule.change))
        }
        ServerEvent::Gap | ServerEvent::Closed(_) => Ok(()),
    }
}

fn data(value: &impl Serialize) -> Result<Value, CliError> {
    serde_json::to_value(value).map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))
}

fn job_line(job: &JobEvent) -> String {
    let JobEvent { id, queue, job_type, from, to, at, cause, .. } = job;
    let from = from.map_or("new", State::as_str);
    format!("{at}  job {id} {queue} {job_type}  {from} -> {to} ({cause})")
}
