//! `longshore work`: a worker that runs a program for each job.
//!
//! Claims, heartbeats, settlements and shutdown are those of the SDK's worker.
//!
//! - `worker.rs`: the worker, and what is printed of its events
//! - `attempt.rs`: the handler: runs a program, and stops it when its token fires
//! - `program.rs`: the program: input, output, environment, exit
//! - `paused.rs`: finds paused queues with jobs, for `--until-empty`

mod attempt;
mod paused;
mod program;
mod worker;

use clap::Args;
use longshore_api::Duration;

use crate::context::Context;
use crate::terminal::error::CliError;

/// Run a program for each job.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The program gets the payload on standard input and the fields of the job in its environment. Exit
code 0 completes the job; standard output is the result if it is JSON. Exit code 100 is a permanent
failure. Any other exit code is a temporary failure, which is retried by the job's policy. The end
of standard error is the error message.

Examples:
  longshore work --exec ./send-mail.sh
  longshore work -q reports -q default --concurrency 4 --exec 'python3 report.py'
  longshore work --until-empty --exec 'jq .to'

Environment of the program:
  LONGSHORE_JOB_ID  _SEQ  _QUEUE  _TYPE  _PRIORITY  _ATTEMPT  _ATTEMPT_ID  _PREVIOUS_ATTEMPT_ID
  LONGSHORE_JOB_TAGS (JSON)  _CHECKPOINT (JSON)  _CORRELATION_ID  _IDEMPOTENCY_KEY  _WORKFLOW
  LONGSHORE_JOB_CREATED_AT  _DEADLINE_AT  _PAYLOAD_KIND (json, binary or none)
  LONGSHORE_LEASE_TOKEN, LONGSHORE_SERVER for requests of the program, such as progress

The worker sends heartbeats while the program runs. It stops the program (SIGTERM, and SIGKILL after
--grace) when the job is cancelled or its execution timeout ends. It kills the program when the
lease is lost. SIGTERM to the worker drains: no new claims, and running programs finish. A second
SIGTERM, or the end of --drain-timeout, stops the programs and releases their jobs.

If the server does not respond, the worker retries, and prints one line about the outage and one
when it is over. With --until-empty the worker ends when no job is ready: exit code 0, or 1 if a
paused queue still has jobs.")]
pub(crate) struct WorkOptions {
    /// Program, run by sh -c
    // An empty program would complete all jobs without any work.
    #[arg(long, value_name = "CMD", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    exec: String,
    /// Queue to claim from; may be repeated, in order of preference
    #[arg(short, long = "queue", value_name = "QUEUE", default_value = "default")]
    queues: Vec<String>,
    /// Claim only jobs of this type; may be repeated
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Programs that run at the same time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    concurrency: u16,
    /// Name of the worker [default: HOST-PID]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Lease of claimed jobs, instead of the job's own
    #[arg(long, value_name = "DURATION")]
    lease: Option<Duration>,
    /// Longest duration of a program; a job may have a shorter one
    #[arg(long, value_name = "DURATION")]
    execution_timeout: Option<Duration>,
    /// Time that one claim waits for jobs
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    wait: Duration,
    /// Time between SIGTERM and SIGKILL to a program
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    grace: Duration,
    /// Time for programs to finish on shutdown
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    drain_timeout: Duration,
    /// Stop after this many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_jobs: Option<u64>,
    /// Stop when no job is ready; exit code 1 if a paused queue still has jobs
    #[arg(long)]
    until_empty: bool,
    /// Exit code that means a permanent failure
    #[arg(long, value_name = "CODE", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..))]
    permanent_exit_code: u8,
}

impl WorkOptions {
    pub(crate) fn run(mut self, context: &Context) -> Result<(), CliError> {
        let name = self.worker.take().unwrap_or_else(default_name);
        let client = context.client()?;
        context.call(worker::run(self, name, client, context.output))
    }
}

fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
