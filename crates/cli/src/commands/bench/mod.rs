//! `longshore bench`: load for a server, and what it made of it.
//!
//! - `mix.rs`: which operations, and how many tasks for each
//! - `pace.rs`: when the next call is due
//! - `load.rs`: the calls themselves
//! - `report.rs`: latencies, and how they are shown

mod load;
mod mix;
mod rate_limiter;
mod report;

use clap::Args;
use longshore_api::Duration;

use self::mix::Mix;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Put load on a server and measure it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Submits jobs to a queue of its own, works them off, and says how long each operation took. With
--rate calls are made at fixed times whether or not the server keeps up, and waiting for a late
call counts: nothing is left out of the figures.

Examples:
  longshore bench
  longshore bench --duration 1m --rate 1000 --concurrency 32
  longshore bench --jobs 100000 --batch 100 --mix submit=1
  longshore bench --mix submit=4,work=4,get=1,list=1

The mix gives shares of the tasks: submit (hand in jobs), work (claim and complete them), get
(look at one), list (a page of ten). With --rate, get and list are made as often as their share
says, relative to submit.")]
pub(crate) struct Bench {
    /// Shares of operations
    #[arg(long, value_name = "MIX", default_value = "submit=1,work=1")]
    mix: Mix,
    /// Jobs submitted in a second; as many as possible unless given
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<f64>,
    /// Jobs in one call: submitted, claimed, and completed together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    batch: u64,
    /// Tasks that call at the same time, all operations together
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    concurrency: u64,
    /// How long
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: Duration,
    /// Instead of a duration: this many jobs
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    jobs: Option<u64>,
    /// Bytes of a job's payload
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    payload_bytes: u64,
    /// The queue; one of its own, deleted at the end, unless given
    #[arg(short, long)]
    queue: Option<String>,
    /// Keep the queue of its own
    #[arg(long)]
    keep: bool,
    /// For jobs that are left to be worked off at the end
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
            return Err(CliError::refused("without submit there are no jobs to work on or to look at")
                .hint("give submit a share in --mix; work alone needs a --queue that has jobs"));
        }
        if self.mix.submit == 0 && self.jobs.is_some() {
            return Err(
                CliError::refused("--jobs counts submitted jobs, and nothing is submitted").hint("use --duration")
            );
        }
        let client = context.client()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let measured = runtime.block_on(load::run(context, self, client))?;
        measured.show(context)
    }
}
