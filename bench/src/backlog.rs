//! A long line beside a short one, and opening a store that has one.

use std::path::Path;
use std::time::{Duration, Instant};

use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{Store, StoreReader};
use longshore_store_embedded::EmbeddedStore;

use crate::machine::{Host, memory, writer_seconds};
use crate::{batch, block_on, claim, completions, open, queue};

/// Turns that count, of a second each, so that both lines meet the same disk.
const TURNS: usize = 15;
const TURNS_TRIED_MAX: usize = 80;
/// A turn during which the host took more of the time than this, in percent, does not count: it hits the line that needs both processors harder.
const STOLEN_MAX: f64 = 2.0;
/// What a long line is compared with.
const SHORT_LINE: usize = 10_000;
const REOPENINGS: usize = 3;

/// A long line and a short one, in turn: how fast each is worked off does not depend on what else the machine does in that minute.
pub fn backlog(dir: &Path, jobs: usize, size: usize) {
    let long = open(&dir.join("long"));
    let start = Instant::now();
    let filled = fill(&long, jobs, size);
    let took = start.elapsed().as_secs_f64();
    println!("filled {filled} in {took:.1} s, {:.0}/s, {}", filled as f64 / took, memory());
    drop(long);
    let long = (0..REOPENINGS).fold(None, |before, _| Some(reopen(before, &dir.join("long")))).expect("a store");
    let short = open(&dir.join("short"));
    fill(&short, SHORT_LINE, size);
    let (mut turns, mut tried) = (Vec::new(), 0);
    while turns.len() < TURNS && tried < TURNS_TRIED_MAX {
        let host = Host::now();
        let turn = (drain(&long, size), drain(&short, size));
        tried += 1;
        if host.steal_percent_since() <= STOLEN_MAX {
            turns.push(turn);
        }
    }
    println!("{} of {tried} turns count: the host took at most {STOLEN_MAX} % of their time", turns.len());
    if turns.is_empty() {
        return;
    }
    let show = |verb: &str, rate: fn(&Rates) -> f64| {
        let of_long = median(turns.iter().map(|(long, _)| rate(long)));
        let of_short = median(turns.iter().map(|(_, short)| rate(short)));
        let ratio = of_long / of_short;
        println!("{verb}, jobs/s, medians: {of_long:.0} of {jobs}, {of_short:.0} of {SHORT_LINE}: {ratio:.2}");
    };
    show("claimed", |rates| rates.claimed);
    show("completed", |rates| rates.completed);
    let of_long = median(turns.iter().map(|(long, _)| long.writer));
    let of_short = median(turns.iter().map(|(_, short)| short.writer));
    println!("writer, µs to put in, claim and complete a job: {of_long:.2} and {of_short:.2}");
}

/// Opens a store beside a bare scan of the same records.
fn reopen(before: Option<EmbeddedStore>, dir: &Path) -> EmbeddedStore {
    drop(before);
    let host = Host::now();
    let scanned = scan(dir).as_secs_f64();
    let start = Instant::now();
    let store = open(dir);
    let opened = start.elapsed().as_secs_f64();
    println!(
        "bare scan of the live records in {scanned:.2} s, reopened in {opened:.2} s: {:.2}; {}; the host took {:.0} %",
        opened / scanned,
        memory(),
        host.steal_percent_since()
    );
    store
}

/// A directory that was filled before is only topped up. Answers how many jobs that took.
fn fill(store: &EmbeddedStore, jobs: usize, size: usize) -> usize {
    let report = block_on(store.queue(queue())).expect("an answer");
    let there = report.map_or(0, |report| count_of(&report.counts, StateKind::Scheduled) as usize);
    let mut filled = 0;
    while there + filled < jobs {
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

/// Reads every live record and does nothing with it.
fn scan(dir: &Path) -> Duration {
    let connection = rusqlite::Connection::open(dir.join("longshore.db")).expect("a database");
    let start = Instant::now();
    let mut select = connection.prepare("SELECT seq, record FROM live ORDER BY seq").expect("a statement");
    let mut rows = select.query([]).expect("rows");
    let mut bytes = 0;
    while let Some(row) = rows.next().expect("a row") {
        bytes += row.get_ref(1).expect("a column").as_blob().expect("a record").len();
    }
    assert!(bytes > 0);
    start.elapsed()
}

/// How fast jobs are claimed, and how fast they are completed, in jobs a second.
#[derive(Clone, Copy)]
struct Rates {
    claimed: f64,
    completed: f64,
    /// Processor time of the writer, in microseconds a job.
    writer: f64,
}

/// Claims and completes for a second, each on its own clock; what has gone is put back now and then, on neither, so that the line
/// keeps its length.
fn drain(store: &EmbeddedStore, size: usize) -> Rates {
    let (mut claiming, mut completing) = (Duration::ZERO, Duration::ZERO);
    let (mut done, mut missing) = (0, 0);
    let before = writer_seconds();
    while claiming + completing < Duration::from_secs(1) {
        let start = Instant::now();
        let held = block_on(store.claim(claim(size))).expect("stored").expect("accepted");
        claiming += start.elapsed();
        done += held.len();
        missing += held.len();
        let completions = completions(held);
        let start = Instant::now();
        block_on(store.settle(completions)).expect("stored");
        completing += start.elapsed();
        if missing >= 8 * size {
            put_back(store, std::mem::take(&mut missing), size);
        }
    }
    put_back(store, missing, size);
    let writer = (writer_seconds() - before) * 1e6 / done as f64;
    Rates { claimed: done as f64 / claiming.as_secs_f64(), completed: done as f64 / completing.as_secs_f64(), writer }
}

fn put_back(store: &EmbeddedStore, jobs: usize, size: usize) {
    for first in (0..jobs).step_by(size) {
        block_on(store.submit(batch(size.min(jobs - first)))).expect("stored").expect("accepted");
    }
}
