//! Claims from a long and a short queue, and reopening of a store with a long queue.

use std::path::Path;
use std::time::{Duration, Instant};

use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{Store, StoreReader};
use longshore_store_embedded::EmbeddedStore;

use crate::host::{Host, memory, writer_seconds};
use crate::{batch, block_on, claim, completions, open_with, queue};

/// Rounds of one second each. The queues alternate, so that both see the same disk.
const ROUNDS: usize = 15;
const ROUNDS_MAX: usize = 80;
/// Steal time in percent above which a round does not count: it slows the queue that needs both
/// processors more.
const STEAL_MAX: f64 = 2.0;
/// Jobs in the short queue.
const SHORT_QUEUE: usize = 10_000;
const REOPENINGS: usize = 3;

/// Drains a long and a short queue in turn, so that other load affects both.
pub fn run(dir: &Path, jobs: usize, size: usize, prefetch_thread: bool) {
    let long = open_with(&dir.join("long"), prefetch_thread);
    let start = Instant::now();
    let filled = fill(&long, jobs, size);
    let elapsed = start.elapsed().as_secs_f64();
    println!("filled {filled} in {elapsed:.1} s, {:.0}/s, {}", filled as f64 / elapsed, memory());
    drop(long);
    let reopen = |before, _| Some(reopen(before, &dir.join("long"), prefetch_thread));
    let long = (0..REOPENINGS).fold(None, reopen).expect("a store");
    let short = open_with(&dir.join("short"), prefetch_thread);
    fill(&short, SHORT_QUEUE, size);
    let (mut rounds, mut tried) = (Vec::new(), 0);
    while rounds.len() < ROUNDS && tried < ROUNDS_MAX {
        let host = Host::now();
        let round = (drain(&long, size), drain(&short, size));
        tried += 1;
        if host.steal_percent_since() <= STEAL_MAX {
            rounds.push(round);
        }
    }
    println!("{} of {tried} rounds count: steal at most {STEAL_MAX} %", rounds.len());
    if rounds.is_empty() {
        return;
    }
    let show = |verb: &str, rate: fn(&Rates) -> f64| {
        let of_long = median(rounds.iter().map(|(long, _)| rate(long)));
        let of_short = median(rounds.iter().map(|(_, short)| rate(short)));
        let ratio = of_long / of_short;
        println!("{verb}, jobs/s, medians: {of_long:.0} of {jobs}, {of_short:.0} of {SHORT_QUEUE}: {ratio:.2}");
    };
    show("claimed", |rates| rates.claimed);
    show("completed", |rates| rates.completed);
    let of_long = median(rounds.iter().map(|(long, _)| long.writer));
    let of_short = median(rounds.iter().map(|(_, short)| short.writer));
    println!("writer, µs to submit, claim and complete a job: {of_long:.2} and {of_short:.2}");
}

/// Compares opening a store with a bare scan of the same records.
fn reopen(before: Option<EmbeddedStore>, dir: &Path, prefetch_thread: bool) -> EmbeddedStore {
    drop(before);
    let host = Host::now();
    let scanned = scan(dir).as_secs_f64();
    let start = Instant::now();
    let store = open_with(dir, prefetch_thread);
    let opened = start.elapsed().as_secs_f64();
    println!(
        "bare scan of the live records in {scanned:.2} s, reopened in {opened:.2} s: {:.2}; {}; steal {:.0} %",
        opened / scanned,
        memory(),
        host.steal_percent_since()
    );
    store
}

/// Fills a queue up to `jobs`. Returns the number of submitted jobs.
fn fill(store: &EmbeddedStore, jobs: usize, size: usize) -> usize {
    let stats = block_on(store.queue(queue())).expect("an answer");
    let existing = stats.map_or(0, |stats| count_of(&stats.counts, StateKind::Scheduled) as usize);
    let mut filled = 0;
    while existing + filled < jobs {
        let (a, b) = block_on(async { tokio::join!(store.submit(batch(size)), store.submit(batch(size))) });
        filled += a.expect("stored").expect("accepted").len() + b.expect("stored").expect("accepted").len();
    }
    filled
}

fn median(rates: impl Iterator<Item = f64>) -> f64 {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Reads every live record.
fn scan(dir: &Path) -> Duration {
    let connection = rusqlite::Connection::open(dir.join("longshore.db")).expect("a database");
    let start = Instant::now();
    let mut select = connection.prepare("SELECT seq, record FROM live_jobs ORDER BY seq").expect("a statement");
    let mut rows = select.query([]).expect("rows");
    let mut bytes = 0;
    while let Some(row) = rows.next().expect("a row") {
        bytes += row.get_ref(1).expect("a column").as_blob().expect("a record").len();
    }
    assert!(bytes > 0);
    start.elapsed()
}

/// Claims and completions, in jobs per second.
#[derive(Clone, Copy)]
struct Rates {
    claimed: f64,
    completed: f64,
    /// Processor time of the writer, in microseconds per job.
    writer: f64,
}

/// Claims and completes for a second, and times both separately. Submits replacements in between,
/// without timing them, so that the queue keeps its length.
fn drain(store: &EmbeddedStore, size: usize) -> Rates {
    let (mut claiming, mut completing) = (Duration::ZERO, Duration::ZERO);
    let (mut done, mut missing) = (0, 0);
    let before = writer_seconds();
    while claiming + completing < Duration::from_secs(1) {
        let start = Instant::now();
        let claimed = block_on(store.claim(claim(size))).expect("stored").expect("accepted");
        claiming += start.elapsed();
        done += claimed.len();
        missing += claimed.len();
        let completions = completions(claimed);
        let start = Instant::now();
        block_on(store.settle(completions)).expect("stored");
        completing += start.elapsed();
        if missing >= 8 * size {
            refill(store, std::mem::take(&mut missing), size);
        }
    }
    refill(store, missing, size);
    let writer = (writer_seconds() - before) * 1e6 / done as f64;
    Rates { claimed: done as f64 / claiming.as_secs_f64(), completed: done as f64 / completing.as_secs_f64(), writer }
}

fn refill(store: &EmbeddedStore, jobs: usize, size: usize) {
    for first in (0..jobs).step_by(size) {
        block_on(store.submit(batch(size.min(jobs - first)))).expect("stored").expect("accepted");
    }
}
