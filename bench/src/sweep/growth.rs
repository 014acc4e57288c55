//! Sweeps in process: cost per job against waiting and finished jobs.

use std::path::Path;
use std::time::{Duration, Instant};

use longshore_store::{ClaimedJob, Store};
use longshore_store_embedded::EmbeddedStore;

use super::SweepContext;
use crate::host::process_resident_mib;
use crate::samples::SampleFile;
use crate::{batch, block_on, claim, completions, open};

const BACKLOGS: [usize; 7] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
const ARCHIVED: [usize; 6] = [0, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
/// Waiting jobs of the reference store.
const REFERENCE: usize = 10_000;
/// Jobs per request.
const SIZE: usize = 512;
/// Requests per measurement: about as many jobs as the reference holds.
const REQUESTS: usize = 40;

/// Time per job, in microseconds.
#[derive(Clone, Copy)]
struct JobCost {
    submit: f64,
    claim: f64,
    complete: f64,
}

impl JobCost {
    fn parts(self) -> [(&'static str, f64); 3] {
        [("submit", self.submit), ("claim", self.claim), ("complete", self.complete)]
    }
}

/// Submits, claims and completes as many jobs, so that the store keeps its length.
fn measure_cost(store: &EmbeddedStore) -> JobCost {
    let (mut submitting, mut claiming, mut completing) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut done = 0;
    for _ in 0..REQUESTS {
        let request = batch(SIZE);
        let start = Instant::now();
        block_on(store.submit(request)).expect("stored").expect("accepted");
        submitting += start.elapsed();
        let start = Instant::now();
        let claimed = block_on(store.claim(claim(SIZE))).expect("stored").expect("accepted");
        claiming += start.elapsed();
        done += claimed.len();
        let completions = completions(claimed);
        let start = Instant::now();
        block_on(store.settle(completions)).expect("stored");
        completing += start.elapsed();
    }
    let per_job = |time: Duration| time.as_secs_f64() * 1e6 / done as f64;
    JobCost { submit: per_job(submitting), claim: per_job(claiming), complete: per_job(completing) }
}

fn push_cost(samples: &mut SampleFile, position: usize, round: usize, cost: JobCost, reference: JobCost) {
    for ((series, value), (_, base)) in cost.parts().into_iter().zip(reference.parts()) {
        samples.push("us_per_job", series, position as f64, round, value);
        samples.push("relative_cost", series, position as f64, round, value / base);
    }
}

/// Fills one store step by step, and measures it and a short one in turn at each step.
pub fn sweep_backlog(context: &SweepContext, samples: &mut SampleFile) {
    let directory = context.directory("backlog");
    let (long, short) = (open(&directory.path().join("long")), open(&directory.path().join("short")));
    submit_jobs(&short, REFERENCE);
    let mut filled = 0;
    for backlog in BACKLOGS.into_iter().filter(|backlog| *backlog <= context.largest) {
        submit_jobs(&long, backlog - filled);
        filled = backlog;
        for round in 1..=context.rounds {
            let (cost, reference) = (measure_cost(&long), measure_cost(&short));
            push_cost(samples, backlog, round, cost, reference);
        }
        samples.push("resident_mib", "memory", backlog as f64, 1, process_resident_mib(std::process::id()));
        push_disk(samples, &directory.path().join("long"), backlog);
        context.save(samples);
    }
}

/// Finishes jobs step by step, and measures the store and a new one in turn at each step.
pub fn sweep_archived(context: &SweepContext, samples: &mut SampleFile) {
    let directory = context.directory("archived");
    let store = open(&directory.path().join("store"));
    submit_jobs(&store, REFERENCE);
    let mut finished = 0;
    for archived in ARCHIVED.into_iter().filter(|archived| *archived <= context.largest) {
        finish_jobs(&store, archived.saturating_sub(finished));
        finished = finished.max(archived);
        for round in 1..=context.rounds {
            let path = directory.path().join(format!("reference-{archived}-{round}"));
            let fresh = open(&path);
            submit_jobs(&fresh, REFERENCE);
            let (cost, reference) = (measure_cost(&store), measure_cost(&fresh));
            finished += REQUESTS * SIZE;
            push_cost(samples, archived, round, cost, reference);
        }
        samples.push("resident_mib", "memory", archived as f64, 1, process_resident_mib(std::process::id()));
        push_disk(samples, &directory.path().join("store"), archived);
        context.save(samples);
    }
}

fn push_disk(samples: &mut SampleFile, directory: &Path, position: usize) {
    let sizes = std::fs::read_dir(directory).expect("the store's directory");
    let bytes: u64 = sizes.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum();
    samples.push("disk_mib", "disk", position as f64, 1, bytes as f64 / 1_048_576.0);
}

/// Submits jobs, two requests at a time.
fn submit_jobs(store: &EmbeddedStore, jobs: usize) {
    for first in (0..jobs).step_by(2 * SIZE) {
        let left = (jobs - first).min(2 * SIZE);
        let (one, other) = (batch(left.div_ceil(2)), batch((left / 2).max(1)));
        let (one, other) = block_on(async { tokio::join!(store.submit(one), store.submit(other)) });
        one.expect("stored").expect("accepted");
        other.expect("stored").expect("accepted");
    }
}

/// Clients that finish jobs: while one reads its responses, the next commit runs.
const CLIENTS: usize = 2;

fn finish_jobs(store: &EmbeddedStore, jobs: usize) {
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| finish_share(store, jobs / CLIENTS));
        }
    });
}

/// Submits, claims and completes jobs; the three requests mostly share a commit.
fn finish_share(store: &EmbeddedStore, jobs: usize) {
    let (mut done, mut held) = (0, Vec::<ClaimedJob>::new());
    while done + held.len() < jobs {
        let settlements = completions(std::mem::take(&mut held));
        done += settlements.len();
        let (submitted, claimed, settled) = block_on(async {
            tokio::join!(store.submit(batch(SIZE)), store.claim(claim(SIZE)), store.settle(settlements))
        });
        submitted.expect("stored").expect("accepted");
        held = claimed.expect("stored").expect("accepted");
        settled.expect("stored");
    }
    block_on(store.settle(completions(held))).expect("stored");
}
