//! `longshore work`: a worker that runs a program for each job.
//!
//! - `worker.rs`: claims, slots, draining
//! - `attempt.rs`: one job from its claim to its end: the program, heartbeats, deadlines, what to report
//! - `connectivity.rs`: one line when the server stops answering, one when it is back
//! - `paused.rs`: whether a paused queue keeps jobs from `--until-empty`
//! - `pulse.rs`: heartbeats, and what they tell
//! - `program.rs`: the program itself: its input, output, environment and end
//! - `report.rs`: telling the server, as often as it takes

mod attempt;
mod connectivity;
mod heartbeat;
mod paused;
mod program;
mod settle;
mod worker;

use clap::Args;
use longshore_api::Duration;

use crate::context::Context;
use crate::terminal::error::CliError;

/// Work on jobs: run a program for each one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The program gets the payload on standard input and the job's facts in its environment. Its exit
code decides: 0 completes the job (standard output is the result, if it is JSON), 100 is a
permanent failure, any other a temporary one that is retried as the queue says. The last of
standard error is the job's error message.

Examples:
  longshore work --exec ./send-mail.sh
  longshore work -q reports -q default --concurrency 4 --exec 'python3 report.py'
  longshore work --until-empty --exec 'jq .to'

In the program's environment:
  LONGSHORE_JOB_ID  _SEQ  _QUEUE  _TYPE  _PRIORITY  _ATTEMPT  _ATTEMPT_ID  _PREVIOUS_ATTEMPT_ID
  LONGSHORE_JOB_TAGS (JSON)  _CHECKPOINT (JSON)  _CORRELATION_ID  _IDEMPOTENCY_KEY  _WORKFLOW
  LONGSHORE_JOB_CREATED_AT  _DEADLINE_AT  _PAYLOAD_KIND (json, binary or none)
  LONGSHORE_LEASE_TOKEN, LONGSHORE_SERVER for calls of its own, as a heartbeat with progress

Heartbeats are sent while the program runs. It is ended (SIGTERM, after --grace SIGKILL) when
somebody cancels the job or its time is up, and killed when the lease is lost. SIGTERM to the
worker drains: no new jobs, those that run are finished; a second SIGTERM, or the end of
--drain-timeout, ends them and gives the jobs back.

A server that is away is asked again until it answers; one line says that it is away, one that it
is back. With --until-empty the worker ends when no jobs are in line: exit code 0, or 1 where a
paused queue holds jobs in line.")]
pub(crate) struct Work {
    /// The program, run by sh -c
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// Queues to serve, in this order; may be repeated
    #[arg(short, long = "queue", value_name = "QUEUE", default_value = "default")]
    queues: Vec<String>,
    /// Only jobs of these types; may be repeated
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Programs at the same time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    concurrency: u16,
    /// This worker's name; host and process id unless given
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Lease of claimed jobs, instead of their own
    #[arg(long, value_name = "DURATION")]
    lease: Option<Duration>,
    /// The longest that a program may take, where the job does not allow less
    #[arg(long, value_name = "DURATION")]
    execution_timeout: Option<Duration>,
    /// How long one claim waits for jobs
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    wait: Duration,
    /// Between SIGTERM and SIGKILL to a program
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    grace: Duration,
    /// For programs to finish, once the worker is told to stop
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    drain_timeout: Duration,
    /// Stop after this many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_jobs: Option<u64>,
    /// Stop when no jobs are in line; exit code 1 if a paused queue holds some
    #[arg(long)]
    until_empty: bool,
    /// The exit code that means: do not try again
    #[arg(long, value_name = "CODE", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..))]
    permanent_exit_code: u8,
}

impl Work {
    pub(crate) fn run(mut self, context: &Context) -> Result<(), CliError> {
        let name = self.worker.take().unwrap_or_else(own_name);
        let client = context.client()?;
        context.call(worker::Worker::new(self, name, client, context.screen).run())
    }
}

fn own_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
