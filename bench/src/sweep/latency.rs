//! Sweeps of latency: offered load, parked claims.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::SweepContext;
use super::clients::jobs_path;
use super::http::{BenchConnection, claim_body, parse_claim, payload_of, settlements_of, submission};
use super::server::StoreChoice;
use crate::samples::SampleFile;

const RATES: [usize; 9] = [100, 300, 1_000, 2_000, 4_000, 6_000, 8_000, 12_000, 16_000];
/// Producers, and as many workers.
const THREADS: usize = 16;
const PHASE: Duration = Duration::from_millis(1_500);
/// Longest wait for the jobs that are left after a phase.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// A round ends when less than this part of the offered jobs was accepted in time.
const SATURATION: f64 = 0.9;

/// Percentile of times in microseconds; sorts them.
fn percentile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(((times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

fn push_percentiles(
    samples: &mut SampleFile,
    metric: &str,
    (position, round): (usize, usize),
    mut times: Vec<f64>,
    parts: &[(f64, &str)],
) {
    for (part, series) in parts {
        samples.push(metric, series, position as f64, round, percentile(&mut times, *part));
    }
}

const PERCENTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

pub fn sweep_load(context: &SweepContext, samples: &mut SampleFile) {
    for round in 1..=context.rounds {
        let server = context.start(StoreChoice::Embedded);
        for rate in RATES {
            let load = offer_load(server.address, &format!("load{rate}"), rate);
            let is_saturated = load.accepted < rate as f64 * SATURATION;
            push_percentiles(samples, "submit_us", (rate, round), load.submits, &PERCENTILES);
            push_percentiles(samples, "handler_us", (rate, round), load.handlers, &PERCENTILES);
            samples.push("accepted_per_s", "submit", rate as f64, round, load.accepted);
            if is_saturated {
                break;
            }
        }
    }
}

/// Times in microseconds, and jobs per second that were accepted.
struct LoadTimes {
    submits: Vec<f64>,
    handlers: Vec<f64>,
    accepted: f64,
}

/// Offers jobs at a fixed rate. Times of a late job count from the instant at which it was due, so
/// that a slow response does not hide the wait of the next job.
fn offer_load(server: SocketAddr, queue: &str, rate: usize) -> LoadTimes {
    let start = Instant::now() + Duration::from_millis(200);
    let jobs = (rate as f64 * PHASE.as_secs_f64()) as usize;
    let (is_stopped, handled) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (submits, handlers, last) = std::thread::scope(|scope| {
        let work = || work(server, queue, start, &is_stopped, &handled);
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let produce = |index| move || produce(server, queue, start, (index..jobs).step_by(THREADS), rate);
        let producers: Vec<_> = (0..THREADS).map(|index| scope.spawn(produce(index))).collect();
        let times: Vec<Vec<f64>> =
            producers.into_iter().map(|thread| thread.join().expect("a producer that succeeds")).collect();
        let last = start.elapsed().as_secs_f64();
        // Jobs that wait longest count too.
        let deadline = Instant::now() + DRAIN_TIME;
        while handled.load(Ordering::Relaxed) < jobs && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_stopped.store(true, Ordering::Relaxed);
        let handlers: Vec<Vec<f64>> =
            workers.into_iter().map(|thread| thread.join().expect("a worker that succeeds")).collect();
        (times.concat(), handlers.concat(), last)
    });
    LoadTimes { submits, handlers, accepted: jobs as f64 / last.max(PHASE.as_secs_f64()) }
}

fn produce(
    server: SocketAddr,
    queue: &str,
    start: Instant,
    jobs: impl Iterator<Item = usize>,
    rate: usize,
) -> Vec<f64> {
    let (mut connection, path) = (BenchConnection::open(server), jobs_path(queue));
    let padding = payload_of(220);
    let mut times = Vec::new();
    for job in jobs {
        let due = start + Duration::from_secs_f64(job as f64 / rate as f64);
        let early = due.saturating_duration_since(Instant::now());
        std::thread::sleep(early);
        // A timer that fires late is no fault of the server.
        let due = if early.is_zero() { due } else { Instant::now() };
        let due_us = due.duration_since(start).as_micros();
        let payload = format!(r#"{{"due_us":"{due_us:020}","pad":{padding}}}"#);
        connection.post(&path, &submission(&payload, 1));
        times.push(due.elapsed().as_secs_f64() * 1e6);
    }
    times
}

/// Claims with a long poll, and settles in the next claim. Returns microseconds from due time to
/// response.
fn work(server: SocketAddr, queue: &str, start: Instant, is_stopped: &AtomicBool, handled: &AtomicUsize) -> Vec<f64> {
    let (mut connection, mut settlements, mut times) = (BenchConnection::open(server), String::new(), Vec::new());
    while !is_stopped.load(Ordering::Relaxed) || !settlements.is_empty() {
        let claim = claim_body(queue, 1, &settlements, "50ms");
        let jobs = parse_claim(connection.post("/v1/claims", claim.as_bytes()));
        let now = start.elapsed().as_secs_f64() * 1e6;
        times.extend(jobs.iter().map(|job| now - due_us(job.payload.get())));
        handled.fetch_add(jobs.len(), Ordering::Relaxed);
        settlements = settlements_of(&jobs);
    }
    times
}

/// The due time in a payload of [`produce`].
fn due_us(payload: &str) -> f64 {
    let digits = payload.split('"').nth(3).expect("the due time");
    digits.parse().expect("a number")
}

const PARKED: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Parked claims with a queue of their own, which are granted in turn.
const GRANTED: usize = 50;
/// Grants that are measured at each position.
const GRANTS: usize = 300;

pub fn sweep_parked(context: &SweepContext, samples: &mut SampleFile) {
    for round in 1..=context.rounds {
        for count in PARKED {
            let server = context.start(StoreChoice::Embedded);
            let mut parked: Vec<BenchConnection> = (0..count).map(|_| BenchConnection::open(server.address)).collect();
            for (index, connection) in parked.iter_mut().enumerate() {
                park(connection, index);
            }
            // Time for the server to park the last claims.
            std::thread::sleep(Duration::from_millis(300));
            let cpu = server.cpu_seconds();
            let times = grant(server.address, &mut parked);
            let per_job = (server.cpu_seconds() - cpu) * 1e6 / times.len() as f64;
            push_percentiles(samples, "handler_us", (count, round), times, &PERCENTILES[..2]);
            samples.push("cpu_us", "server CPU", count as f64, round, per_job);
            samples.push("resident_mib", "memory", count as f64, round, server.resident_mib());
        }
    }
}

/// The queue that a parked claim waits for: its own, or the shared queue without jobs.
fn queue_of(index: usize) -> String {
    if index < GRANTED { format!("granted-{index}") } else { "idle".to_owned() }
}

fn park(connection: &mut BenchConnection, index: usize) {
    connection.send("/v1/claims", claim_body(&queue_of(index), 1, "", "60s").as_bytes());
}

/// Submits jobs one at a time to claims in turn. Returns microseconds from submission to response
/// of the claim.
fn grant(server: SocketAddr, parked: &mut [BenchConnection]) -> Vec<f64> {
    let (mut producer, body) = (BenchConnection::open(server), submission(&payload_of(256), 1));
    let granted = parked.len().min(GRANTED);
    let mut times = Vec::new();
    for turn in 0..GRANTS {
        let index = turn % granted;
        let started = Instant::now();
        producer.send(&jobs_path(&queue_of(index)), &body);
        let settlements = settlements_of(&parse_claim(parked[index].receive()));
        times.push(started.elapsed().as_secs_f64() * 1e6);
        producer.receive();
        producer.post("/v1/settlements", format!(r#"{{"settlements":[{settlements}]}}"#).as_bytes());
        park(&mut parked[index], index);
        // Time for the claim to park: its grant is measured, not its arrival.
        std::thread::sleep(Duration::from_millis(1));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::{due_us, percentile};

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let mut times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut times, 0.5), 50.0);
        assert_eq!(percentile(&mut times, 0.99), 99.0);
        assert_eq!(percentile(&mut times, 1.0), 100.0);
        assert!(percentile(&mut [], 0.5).is_nan());
    }

    #[test]
    fn due_time_is_read_from_the_payload() {
        assert_eq!(due_us(r#"{"due_us":"00000000000000012345","pad":"a"}"#), 12_345.0);
    }
}
