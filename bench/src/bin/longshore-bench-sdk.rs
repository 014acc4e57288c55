//! Drains no-op jobs with the Rust SDK's worker, and with a raw loop over HTTP, in turn.
//!
//! Usage: `longshore-bench-sdk URL [JOBS] [ROUNDS]`

use std::time::Instant;

use longshore::api::enums::OutcomeKind;
use longshore::api::job::NewJob;
use longshore::api::work::{Claim, ClaimedJob, Settlement};
use longshore::{Client, HandlerError, Job, JobContext, Worker};
use serde::{Deserialize, Serialize};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const QUEUE: &str = "bench-sdk";
/// Jobs of one request of the raw loop, and slots of the worker.
const BATCH: usize = 128;
/// Raw loops at the same time: as many requests as the worker has in flight.
const LOOPS: usize = 2;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop", queue = "bench-sdk")]
struct Noop(());

async fn noop(_: JobContext, _: Noop) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: longshore-bench-sdk URL [JOBS] [ROUNDS]")?;
    let jobs: usize = arguments.next().map_or(Ok(50_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let client = Client::new(&url)?;
    println!("{jobs} no-op jobs, {BATCH} per request or slots, jobs/s");
    for round in 1..=rounds {
        submit(&client, jobs).await?;
        let raw = rate(jobs, drain_raw(&client).await?, || format!("raw loop, round {round}"));
        submit(&client, jobs).await?;
        let start = Instant::now();
        let worker = Worker::new(client.clone()).on(noop).slots(BATCH).prefetch(2.0).max_jobs(jobs as u64);
        let report = worker.run().await?;
        assert_eq!(report.completed, jobs as u64, "{report}");
        let sdk = rate(jobs, start.elapsed(), || format!("SDK worker, round {round}"));
        println!("ratio: {:.2}", sdk / raw);
    }
    Ok(())
}

fn rate(jobs: usize, elapsed: std::time::Duration, what: impl Fn() -> String) -> f64 {
    let rate = jobs as f64 / elapsed.as_secs_f64();
    println!("{:<22} {rate:>9.0}", what());
    rate
}

async fn submit(client: &Client, jobs: usize) -> Result<(), longshore::Error> {
    let job = NewJob { job_type: "noop".to_owned(), ..NewJob::default() };
    for start in (0..jobs).step_by(1_000) {
        client.submit_jobs(QUEUE, &vec![job.clone(); (jobs - start).min(1_000)]).await?;
    }
    Ok(())
}

async fn drain_raw(client: &Client) -> Result<std::time::Duration, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let loops: Vec<_> = (0..LOOPS).map(|_| tokio::spawn(raw_loop(client.clone()))).collect();
    for each in loops {
        each.await??;
    }
    Ok(start.elapsed())
}

/// Claims a batch, settles it, and claims the next.
async fn raw_loop(client: Client) -> Result<(), longshore::Error> {
    let claim = Claim {
        queues: vec![QUEUE.to_owned()],
        types: Some(vec!["noop".to_owned()]),
        limit: Some(BATCH as u64),
        ..Claim::default()
    };
    loop {
        let jobs: Vec<ClaimedJob> = client.claim(&claim).await?.jobs;
        if jobs.is_empty() {
            return Ok(());
        }
        client.settle(jobs.into_iter().map(settlement).collect()).await?;
    }
}

fn settlement(job: ClaimedJob) -> Settlement {
    Settlement {
        id: job.id,
        lease: Some(job.lease.token),
        outcome: OutcomeKind::Complete,
        result: None,
        progress: None,
        error: None,
        delay: None,
    }
}
