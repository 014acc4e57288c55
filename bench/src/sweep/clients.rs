//! Producers and workers of a sweep: threads with one connection each.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::http::{BenchConnection, claim_body, parse_claim, settlements_of, submission};

/// Connections of producers and of workers.
pub const CONNECTIONS: usize = 8;

/// What all threads of a phase did together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub jobs: usize,
    /// From the common start to the last response.
    pub seconds: f64,
}

impl Tally {
    pub fn per_second(&self) -> f64 {
        self.jobs as f64 / self.seconds.max(1e-9)
    }
}

/// Runs `work` on every connection at once. `work` gets its index, its connection and the start; it
/// returns its jobs, and the time from the start to the last of them.
pub fn run_connections<F>(server: SocketAddr, work: F) -> Tally
where
    F: Fn(usize, &mut BenchConnection, Instant) -> (usize, Duration) + Sync,
{
    let barrier = Barrier::new(CONNECTIONS);
    let one = |index: usize| {
        let mut connection = BenchConnection::open(server);
        barrier.wait();
        work(index, &mut connection, Instant::now())
    };
    let results: Vec<(usize, Duration)> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..CONNECTIONS).map(|index| scope.spawn(move || one(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client that succeeds")).collect()
    });
    let add = |sum: Tally, (jobs, time): &(usize, Duration)| Tally {
        jobs: sum.jobs + jobs,
        seconds: sum.seconds.max(time.as_secs_f64()),
    };
    results.iter().fold(Tally::default(), add)
}

/// Path of the submissions to a queue.
pub fn jobs_path(queue: &str) -> String {
    format!("/v1/queues/{queue}/jobs")
}

/// Submits `count` jobs per request for a time.
pub fn submit_for(server: SocketAddr, queue: &str, payload: &str, count: usize, time: Duration) -> Tally {
    let (path, body) = (jobs_path(queue), submission(payload, count));
    run_connections(server, |_, connection, start| {
        let mut jobs = 0;
        while start.elapsed() < time {
            connection.post(&path, &body);
            jobs += count;
        }
        (jobs, start.elapsed())
    })
}

/// Submits `jobs` jobs in bulk.
pub fn fill(server: SocketAddr, queue: &str, payload: &str, jobs: usize) {
    let (path, size) = (jobs_path(queue), 500);
    let body = submission(payload, size);
    run_connections(server, |index, connection, start| {
        let requests = (jobs / size).saturating_sub(index).div_ceil(CONNECTIONS);
        for _ in 0..requests {
            connection.post(&path, &body);
        }
        (requests * size, start.elapsed())
    });
}

/// How long a worker without a job waits before it considers its only queue empty.
const EMPTY_WAIT: &str = "100ms";

/// Claims and completes for a time or until a queue is empty. Each claim carries the settlements of
/// the one before.
pub fn drain_for(server: SocketAddr, queues: &[String], limit: usize, time: Duration) -> Tally {
    let wait = if queues.len() == 1 { EMPTY_WAIT } else { "0s" };
    run_connections(server, |index, connection, start| {
        let (mut settlements, mut held, mut done, mut turn) = (String::new(), 0, 0, index);
        let mut last = Duration::ZERO;
        while start.elapsed() < time {
            let queue = &queues[turn % queues.len()];
            turn += CONNECTIONS;
            let claim = claim_body(queue, limit, &settlements, wait);
            let jobs = parse_claim(connection.post("/v1/claims", claim.as_bytes()));
            if held > 0 {
                (done, last) = (done + held, start.elapsed());
            } else if jobs.is_empty() && queues.len() == 1 {
                return (done, last);
            }
            (settlements, held) = (settlements_of(&jobs), jobs.len());
        }
        if held > 0 {
            let body = format!(r#"{{"settlements":[{settlements}]}}"#);
            connection.post("/v1/settlements", body.as_bytes());
            (done, last) = (done + held, start.elapsed());
        }
        (done, last)
    })
}
