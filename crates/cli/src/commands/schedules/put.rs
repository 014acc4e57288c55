//! `longshore schedules put`

use clap::{ArgGroup, Args};
use longshore_api::Duration;
use longshore_api::enums::{Misfire, Overlap, Priority};
use longshore_api::job::NewJob;
use longshore_api::schedule::PutSchedule;
use serde_json::value::RawValue;

use crate::commands::parse;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Create or replace a schedule
#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("times").required(true).args(["cron", "every"])))]
pub(crate) struct PutOptions {
    /// The schedule's name
    name: String,
    /// Cron expression: five fields, six with seconds first, or @hourly to @yearly
    #[arg(long)]
    cron: Option<String>,
    /// Interval, such as 90s, instead of --cron
    #[arg(long)]
    every: Option<Duration>,
    /// Time zone of --cron, such as Europe/Berlin [default: UTC]
    #[arg(long)]
    timezone: Option<String>,
    /// Queue of the jobs
    #[arg(long)]
    queue: String,
    /// Type of the jobs
    #[arg(long = "type")]
    job_type: String,
    /// Payload of the jobs, as JSON
    #[arg(long)]
    payload: Option<String>,
    /// Priority of the jobs: critical, high, normal, low or bulk
    #[arg(long, value_parser = parse::priority)]
    priority: Option<Priority>,
    /// Other fields of the jobs as JSON, such as '{"tags":{"a":"b"},"retry":{"limit":5}}'
    #[arg(long, value_name = "JSON")]
    job: Option<String>,
    /// Which missed ticks fire: skip, one or all [default: one]
    #[arg(long)]
    misfire: Option<Misfire>,
    /// What a tick does while the last job has not ended: allow or skip [default: allow]
    #[arg(long)]
    overlap: Option<Overlap>,
    /// Longest delay of a job after its tick
    #[arg(long)]
    jitter: Option<Duration>,
    /// Create the schedule paused, or pause it (true) or resume it (false)
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    paused: Option<bool>,
}

impl PutOptions {
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let raw = |text: String| RawValue::from_string(text).map_err(|_| CliError::refused("--payload is not JSON"));
        let given = self.job.as_deref().unwrap_or("{}");
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(given).map_err(|_| CliError::refused("--job is not a JSON object"))?;
        fields.insert("type".to_owned(), self.job_type.into());
        let fields = serde_json::Value::from(fields).to_string();
        let mut job: NewJob =
            serde_json::from_str(&fields).map_err(|error| CliError::refused(format!("--job: {error}")))?;
        job.payload = self.payload.map(raw).transpose()?.or(job.payload);
        job.priority = self.priority.or(job.priority);
        let put = PutSchedule {
            cron: self.cron,
            every: self.every,
            timezone: self.timezone,
            queue: self.queue,
            job,
            misfire: self.misfire,
            overlap: self.overlap,
            jitter: self.jitter,
            paused: self.paused,
        };
        let client = context.client()?;
        let schedule = context.call(async { Ok(client.put_schedule(&self.name, &put).await?) })?;
        let next = schedule.next.first().map(|at| format!("; next tick at {at}")).unwrap_or_default();
        super::done(context, &schedule, &format!("schedule \"{}\" is stored{next}", schedule.name))
    }
}
