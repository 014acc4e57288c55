//! Sweeps of throughput: batch size, payload size, number of queues.

use std::net::SocketAddr;
use std::time::Duration;

use super::SweepContext;
use super::clients::{CONNECTIONS, Tally, drain_for, fill, jobs_path, run_connections, submit_for};
use super::http::{payload_of, submission};
use super::server::{BenchServer, StoreChoice};
use crate::samples::SampleFile;

const BATCHES: [usize; 7] = [1, 3, 10, 30, 100, 300, 1_000];
const PAYLOADS: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const QUEUES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Bytes of the usual payload.
const PAYLOAD: usize = 256;
const PHASE: Duration = Duration::from_millis(800);

/// Submits and drains with growing batches. Both stores take turns in each round.
pub fn sweep_batches(context: &SweepContext, samples: &mut SampleFile) {
    for round in 1..=context.rounds {
        measure_batches(context, StoreChoice::Embedded, "embedded store", round, samples);
        if let Some(url) = &context.postgres {
            measure_batches(context, StoreChoice::Postgres(url), "PostgreSQL store", round, samples);
        }
    }
}

fn measure_batches(
    context: &SweepContext,
    store: StoreChoice<'_>,
    series: &str,
    round: usize,
    samples: &mut SampleFile,
) {
    let server = context.start(store);
    let (address, payload) = (server.address, payload_of(PAYLOAD));
    // PostgreSQL keeps the jobs of earlier rounds: each round and batch size has queues of its own.
    for batch in BATCHES {
        let (submitted, drained) = (format!("submit{round}-{batch}"), format!("drain{round}-{batch}"));
        let tally = submit_for(address, &submitted, &payload, batch, PHASE);
        samples.push("submit_jobs_per_s", series, batch as f64, round, tally.per_second());
        fill(address, &drained, &payload, drain_jobs(batch));
        let tally = drain_for(address, &[drained], batch, PHASE);
        samples.push("drain_jobs_per_s", series, batch as f64, round, tally.per_second());
    }
}

/// Enough jobs for a phase at the highest rate of a batch size.
fn drain_jobs(batch: usize) -> usize {
    match batch {
        0..10 => 30_000,
        10..100 => 80_000,
        _ => 120_000,
    }
}

pub fn sweep_payloads(context: &SweepContext, samples: &mut SampleFile) {
    for round in 1..=context.rounds {
        for size in PAYLOADS {
            // A store of its own for each size: the disk space of the one before is free again.
            let server = context.start(StoreChoice::Embedded);
            let queue = "payload".to_owned();
            let submitted = submit_for(server.address, &queue, &payload_of(size), 1, PHASE);
            push_payload(samples, "submit", size, round, submitted);
            let drained = drain_for(server.address, &[queue], 1, PHASE);
            push_payload(samples, "claim and complete", size, round, drained);
        }
    }
}

fn push_payload(samples: &mut SampleFile, series: &str, size: usize, round: usize, tally: Tally) {
    let mib = tally.per_second() * size as f64 / 1_048_576.0;
    samples.push("jobs_per_s", series, size as f64, round, tally.per_second());
    samples.push("mib_per_s", series, size as f64, round, mib);
}

/// Jobs over all queues of a sweep.
const QUEUED: usize = 40_000;

pub fn sweep_queues(context: &SweepContext, samples: &mut SampleFile) {
    for round in 1..=context.rounds {
        for count in QUEUES {
            let server = context.start(StoreChoice::Embedded);
            let names: Vec<String> = (0..count).map(|index| format!("queue-{index}")).collect();
            fill_queues(server.address, &names, QUEUED / count);
            samples.push("resident_mib", "submit", count as f64, round, server.resident_mib());
            let submit = || rotate_submissions(server.address, &names);
            push_rate(samples, &server, "submit", (count, round), submit);
            let drain = || drain_for(server.address, &names, 1, PHASE);
            push_rate(samples, &server, "claim and complete", (count, round), drain);
        }
    }
}

fn push_rate(
    samples: &mut SampleFile,
    server: &BenchServer,
    series: &str,
    (count, round): (usize, usize),
    phase: impl FnOnce() -> Tally,
) {
    let before = server.cpu_seconds();
    let tally = phase();
    let cpu = (server.cpu_seconds() - before) * 1e6 / tally.jobs.max(1) as f64;
    samples.push("jobs_per_s", series, count as f64, round, tally.per_second());
    samples.push("cpu_us", series, count as f64, round, cpu);
}

/// Submits `each` jobs to every queue, at most 500 per request.
fn fill_queues(server: SocketAddr, names: &[String], each: usize) {
    let size = each.min(500);
    let body = submission(&payload_of(PAYLOAD), size);
    run_connections(server, |index, connection, start| {
        for name in names.iter().skip(index).step_by(CONNECTIONS) {
            for _ in 0..each / size {
                connection.post(&jobs_path(name), &body);
            }
        }
        (0, start.elapsed())
    });
}

fn rotate_submissions(server: SocketAddr, names: &[String]) -> Tally {
    let body = submission(&payload_of(PAYLOAD), 1);
    let paths: Vec<String> = names.iter().map(|name| jobs_path(name)).collect();
    run_connections(server, |index, connection, start| {
        let mut jobs = 0;
        while start.elapsed() < PHASE {
            connection.post(&paths[(index + jobs * CONNECTIONS) % paths.len()], &body);
            jobs += 1;
        }
        (jobs, start.elapsed())
    })
}
