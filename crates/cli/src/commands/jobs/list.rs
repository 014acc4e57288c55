//! `longshore jobs list`

use clap::Args;
use longshore::{Client, JobListQuery};
use longshore_api::Time;
use longshore_api::enums::{Priority, State};
use longshore_api::job::{Job, Jobs};

use crate::commands::parse;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Most jobs that the server returns in one page.
const PAGE_MAX: u64 = 1_000;

/// List jobs, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore jobs list --queue reports --state running
  longshore jobs list --tag tenant:acme --limit 20
  longshore jobs list --state failed,dead_letter --error-code smtp_550 --created-after 2026-11-18T09:00:00Z
  longshore jobs list --json --all | jq -r '.jobs[].id'")]
pub(crate) struct ListJobs {
    /// Jobs of this queue
    #[arg(short, long)]
    queue: Option<String>,
    /// Jobs in this state; several are separated by commas
    #[arg(short, long = "state", value_name = "STATE", value_delimiter = ',', value_parser = parse::state)]
    states: Vec<State>,
    /// Jobs of this type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Jobs with this tag: KEY, or KEY:VALUE
    #[arg(long)]
    tag: Option<String>,
    /// Jobs of this priority
    #[arg(long, value_parser = parse::priority)]
    priority: Option<Priority>,
    /// Jobs of this workflow
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// The job with this external id; without --queue, one of each queue
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Jobs that were created with this idempotency key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Jobs with this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Jobs whose error has this code
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    /// Jobs that were created at this time or later, such as 2026-11-18T09:00:00Z
    #[arg(long, value_name = "TIME")]
    created_after: Option<Time>,
    /// Jobs that were created before this time
    #[arg(long, value_name = "TIME")]
    created_before: Option<Time>,
    /// List at most N jobs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// List all jobs
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue an earlier list: its "next"
    #[arg(long)]
    cursor: Option<String>,
}

impl ListJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let limit = if self.all { u64::MAX } else { self.limit };
        let filter = JobListQuery {
            queue: self.queue,
            states: self.states,
            job_type: self.job_type,
            tag: self.tag,
            priority: self.priority,
            workflow: self.workflow,
            external_id: self.external_id,
            idempotency_key: self.idempotency_key,
            correlation_id: self.correlation_id,
            error_code: self.error_code,
            created_after: self.created_after,
            created_before: self.created_before,
            limit: None,
            cursor: self.cursor,
        };
        let client = context.client()?;
        let jobs = context.call(jobs_matching(&client, filter, limit))?;
        show(context, &jobs)
    }
}

/// Fetches pages until there are `limit` jobs or no more pages.
pub(crate) async fn jobs_matching(client: &Client, mut filter: JobListQuery, limit: u64) -> Result<Jobs, CliError> {
    let mut found = Vec::new();
    loop {
        let left = limit.saturating_sub(found.len() as u64);
        if left == 0 {
            return Ok(Jobs { jobs: found, next: filter.cursor });
        }
        filter.limit = Some(left.min(PAGE_MAX));
        let Jobs { jobs, next } = client.jobs(&filter).await?;
        found.extend(jobs);
        if next.is_none() {
            return Ok(Jobs { jobs: found, next: None });
        }
        filter.cursor = next;
    }
}

pub(crate) fn show(context: &Context, jobs: &Jobs) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(jobs);
    }
    if jobs.jobs.is_empty() {
        context.output.info("no jobs match");
        return Ok(());
    }
    let mut table = TextTable::new(&["ID", "QUEUE", "TYPE", "STATE", "PRIORITY", "ATTEMPT", "CREATED", "ERROR"]);
    for job in &jobs.jobs {
        table.row(row(job));
    }
    context.output.table(&table)?;
    if let Some(next) = &jobs.next {
        context.output.info(&format!("more jobs match: use --cursor {next}, --limit N or --all"));
    }
    Ok(())
}

fn row(job: &Job) -> Vec<CellValue> {
    let error = job.error.as_ref().map(|error| error.code.clone().unwrap_or_else(|| error.category.to_string()));
    vec![
        job.id.as_str().into(),
        job.queue.as_str().into(),
        job.job_type.as_str().into(),
        CellValue::State(job.state),
        job.effective_priority.as_str().into(),
        CellValue::number(job.attempt),
        job.created_at.into(),
        error.map_or(CellValue::Text(String::new()), CellValue::Alarm),
    ]
}
