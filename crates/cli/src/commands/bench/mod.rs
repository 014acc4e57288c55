//! `longshore bench`: generates load and measures the server.
//!
//! - `mix.rs`: shares of the operations, and the number of tasks of each
//! - `rate_limiter.rs`: when the next request is due
//! - `load.rs`: the tasks that generate the load
//! - `report.rs`: measurements and their output

mod load;
mod mix;
mod rate_limiter;
mod report;

use clap::Args;
use longshore_api::Duration;

use self::mix::Mix;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Generate load on a server and measure latencies.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Submits jobs to a temporary queue, runs them, and prints the latency of each operation. With --rate
the requests have fixed times, and the latency counts from the time at which a request was due: a
slow server cannot hide its delays (no coordinated omission).

Examples:
  longshore bench
  longshore bench --duration 1m --rate 1000 --concurrency 32
  longshore bench --jobs 100000 --batch 100 --mix submit=1
  longshore bench --mix submit=4,work=4,get=1,list=1

The mix divides the tasks: submit (submit jobs), work (claim and complete jobs), get (read one
job), list (read a page of ten). With --rate, the shares of get and list are relative to submit.")]
pub(crate) struct Bench {
    /// Shares of the operations
    #[arg(long, value_name = "MIX", default_value = "submit=1,work=1")]
    mix: Mix,
    /// Jobs to submit per second [default: unlimited]
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<f64>,
    /// Jobs per request, for submit, claim and complete
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    batch: u64,
    /// Concurrent tasks of all operations
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    concurrency: u64,
    /// Duration of the run
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: Duration,
    /// Number of jobs to submit, instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    jobs: Option<u64>,
    /// Bytes of a payload
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    payload_bytes: u64,
    /// Queue to use [default: a new one, deleted at the end]
    #[arg(short, long)]
    queue: Option<String>,
    /// Do not delete the new queue
    #[arg(long)]
    keep: bool,
    /// Time to complete the remaining jobs at the end
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    drain_timeout: Duration,
}

fn positive(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("expected a number above 0".to_owned()) }
}

impl Bench {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        if self.mix.submit == 0 && (self.mix.get > 0 || self.mix.work > 0 && self.queue.is_none()) {
            return Err(CliError::refused("the mix has no submit: there are no jobs for work and get")
                .hint("add submit to --mix; work alone needs a --queue that has jobs"));
        }
        if self.mix.submit == 0 && self.jobs.is_some() {
            return Err(
                CliError::refused("--jobs needs submit in the mix: it counts submitted jobs").hint("use --duration")
            );
        }
        let client = context.client()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let result = runtime.block_on(load::run(context, self, client))?;
        result.show(context)
    }
}
