//! `longshore jobs get`

use clap::Args;
use longshore_api::job::Job;
use longshore_api::tags::TagMap;
use serde_json::value::RawValue;

use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Show one job.
#[derive(Debug, Args)]
pub(crate) struct GetJob {
    /// The job's id
    id: String,
    /// Include the payload
    #[arg(long)]
    payload: bool,
}

impl GetJob {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let job = context.call(async {
            Ok(if self.payload { client.job_with_payload(&self.id).await? } else { client.job(&self.id).await? })
        })?;
        show(context, &job)
    }
}

pub(super) fn show(context: &Context, job: &Job) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(job);
    }
    let mut table = TextTable::key_values();
    table.key_value("id", &job.id);
    table.key_value("number", job.seq);
    table.key_value("queue", &job.queue);
    table.key_value("type", &job.job_type);
    table.row(vec!["state".into(), CellValue::State(job.state)]);
    if job.cancel_requested {
        table.key_value("cancel", CellValue::Alarm("requested; the next heartbeat tells the worker".to_owned()));
    }
    table.key_value("priority", job.priority.as_str());
    if job.priority != job.effective_priority {
        table.key_value("effective priority", job.effective_priority.as_str());
    }
    let counters = &job.counters;
    table.key_value(
        "counters",
        format!(
            "{}, {}, {} retries scheduled, {}, {}",
            counted(counters.starts, "start"),
            counted(counters.failures, "failure"),
            counters.retries_scheduled,
            counted(counters.requeues, "requeue"),
            counted(counters.reclaims, "reclaim"),
        ),
    );
    if !job.tags.is_empty() {
        table.key_value("tags", tags(&job.tags));
    }
    table.maybe("correlation id", job.correlation_id.as_ref());
    table.maybe("callback", job.callback_url.as_ref());
    table.maybe("idempotency key", job.idempotency_key.as_ref());
    table.maybe("external id", job.external_id.as_ref());
    times(job, &mut table);
    relations(job, &mut table);
    outcome(job, &mut table);
    context.output.table(&table)
}

fn tags(tags: &TagMap) -> String {
    let word = |(key, value): (&String, &Option<String>)| match value {
        Some(value) => format!("{key}={value}"),
        None => key.clone(),
    };
    tags.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn times(job: &Job, table: &mut TextTable) {
    table.key_value("created", job.created_at);
    table.maybe("runs at", job.run_at);
    table.maybe("scheduled", job.scheduled_at);
    table.maybe("started", job.started_at);
    table.maybe("last heartbeat", job.last_heartbeat_at);
    table.maybe("attempt ended", job.attempt_ended_at);
    table.maybe("ended", job.completed_at);
    if let Some(lease) = &job.lease {
        let worker = lease.worker.as_deref().unwrap_or("an unnamed worker");
        let until = lease.expires_at.map_or("without expiry".to_owned(), |at| format!("until {at}"));
        table.key_value("lease", format!("version {}, held by {worker} {until}", lease.version));
    }
}

fn relations(job: &Job, table: &mut TextTable) {
    if !job.after.is_empty() {
        table.key_value("after", job.after.join(" "));
    }
    if !job.after_any.is_empty() {
        table.key_value("after any", job.after_any.join(" "));
    }
    if job.waiting_on > 0 {
        table.key_value("waits for", counted(job.waiting_on, "job"));
    }
    table.maybe("workflow", job.workflow.as_ref());
    table.maybe("parent", job.parent.as_ref());
    table.maybe("requeued from", job.requeued_from.as_ref());
    table.maybe("requeued as", job.requeued_as.as_ref());
}

fn outcome(job: &Job, table: &mut TextTable) {
    let json = |value: &Option<Box<RawValue>>| value.as_deref().map(|value| value.get().to_owned());
    table.maybe("progress", json(&job.progress));
    table.maybe("checkpoint", json(&job.checkpoint));
    table.maybe("result", json(&job.result));
    if let Some(error) = &job.error {
        let code = error.code.as_deref().map_or(String::new(), |code| format!(" ({code})"));
        table.key_value("error", CellValue::Alarm(format!("{}{code}: {}", error.category, error.message)));
        table.maybe("cause", error.cause.as_ref());
    }
    table.maybe("payload", json(&job.payload));
    table.maybe("payload, base64", job.payload_base64.as_ref());
}
