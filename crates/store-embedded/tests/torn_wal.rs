//! A torn or truncated WAL (F04, F05): the store opens at some commit, with every change that was
//! acknowledged up to it and no partial batch. A WAL that is corrupt before its last commit is
//! refused (P13).
//!
//! `TORN_FRAMES` is the number of last frames in which the WAL is cut at every byte: 1 by default;
//! 16 are the last 64 KiB.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test says no by panicking")]

mod common;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_core::id::Seq;
use longshore_core::rng::{Rng as _, SeededRng};
use longshore_store::{Store as _, StoreError, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation, examine};
use longshore_testkit::block_on::block_on;

use common::child::{self, Load};
use common::dump::describe;
use common::ledger::Ledger;
use common::strace::{self, Site};
use common::{
    assert_counts, assert_counts_of_queues, between, fast_directory, files_of, jobs_above, read_watermark,
    sample_store, wait_for_watermark, workload,
};

const DATABASE: &str = "longshore.db";
const LOG: &str = "longshore.db-wal";
const NOTE: &str = "longshore.watermark";
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24 + 4_096;
const SCRIPT: &str = "LONGSHORE_SCRIPT_DIRECTORY";

/// The two workloads of this file. Each does nothing without its environment variable.
#[test]
fn child() {
    child::main();
    let Ok(directory) = std::env::var(SCRIPT) else { return };
    let directory = Path::new(&directory);
    let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
    let store = EmbeddedStore::open(options(directory, Arc::clone(&clock))).expect("the store opens");
    let mut script = sample_store::Rich::new(&store, clock);
    tell(directory, &store);
    for step in sample_store::steps() {
        step(&mut script);
        tell(directory, &store);
    }
    // The commit at open has the first sequence number.
    wait_for_watermark(directory, 2);
    println!("done");
    loop {
        std::thread::park();
    }
}

fn options(directory: &Path, clock: Arc<VirtualClock>) -> EmbeddedOptions {
    let place = StoreLocation::Directory(directory.to_owned());
    EmbeddedOptions {
        reserve_bytes: 0,
        reader_threads: 1,
        // Each commit is synced before the next one, and the size of the WAL is that of its frames.
        sync_claims: true,
        wal_chunk_bytes: 0,
        ..EmbeddedOptions::new(place, clock, ClockMode::Virtual)
    }
}

/// Prints the acknowledged state and the size of the WAL: `state LENGTH SUM`.
fn tell(directory: &Path, store: &EmbeddedStore) {
    let bytes = fs::metadata(directory.join(LOG)).expect("a log").len();
    let sum = sum_of(&describe(store).expect("everything can be read"));
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nstate {bytes} {sum}").and_then(|()| out.flush()).expect("the parent listens");
}

fn sum_of(text: &str) -> String {
    format!("{:08x}-{}", crc32fast::hash(text.as_bytes()), text.len())
}

/// Files of a killed process, and the acknowledged state at each size of the WAL.
struct Wreck {
    files: Vec<(std::path::PathBuf, Vec<u8>)>,
    states: Vec<(usize, String)>,
}

impl Wreck {
    fn make() -> Self {
        let home = fast_directory();
        let mut command = child::command(&[], home.path(), 0);
        child::without_load(&mut command).env(SCRIPT, home.path());
        let mut states = Vec::new();
        Load::start(&mut command).kill_at("done", |line| {
            if let Some((bytes, sum)) = line.strip_prefix("state ").and_then(|rest| rest.split_once(' ')) {
                states.push((bytes.parse().expect("a number"), sum.to_owned()));
            }
        });
        let files = files_of(home.path());
        let wreck = Self { files, states };
        assert_eq!(wreck.log().len(), wreck.states.last().expect("states").0);
        assert!(wreck.states.len() > 60 && wreck.states.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        wreck
    }

    fn log(&self) -> &[u8] {
        &self.files.iter().find(|(name, _)| name.as_os_str() == LOG).expect("a log").1
    }

    /// Without the watermark, so that only the WAL counts.
    fn with_log(&self, log: &[u8]) -> tempfile::TempDir {
        let copy = self.with_log_and_note(log);
        fs::remove_file(copy.path().join(NOTE)).expect("it is noted how far it had come");
        copy
    }

    fn with_log_and_note(&self, log: &[u8]) -> tempfile::TempDir {
        let copy = fast_directory();
        for (name, bytes) in &self.files {
            let bytes = if name.as_os_str() == LOG { log } else { bytes };
            fs::write(copy.path().join(name), bytes).expect("a file");
        }
        copy
    }

    /// Returns the expected view if everything from this byte on is lost.
    fn state_before(&self, byte: usize) -> &str {
        let known = self.states.iter().take_while(|(bytes, _)| *bytes <= byte).last();
        // Without the first commit of the process the tables are empty.
        known.map_or("", |(_, sum)| sum)
    }

    /// Returns the ends of commits behind this byte.
    fn commits_behind(&self, byte: usize) -> usize {
        let mut ends: Vec<usize> = self.states.iter().map(|(bytes, _)| *bytes).filter(|bytes| *bytes > byte).collect();
        ends.dedup();
        ends.len()
    }
}

/// Returns the view of a store without problems. An empty store is "".
fn look(home: &Path) -> Result<String, StoreError> {
    let diagnosis = examine(home)?;
    assert_eq!(diagnosis.problems, Vec::<String>::new());
    let store = EmbeddedStore::open(options(home, Arc::new(VirtualClock::new(sample_store::BEGIN))))?;
    let elsewhere = assert_counts_of_queues(&store, &jobs_above(&store, Seq(0))?);
    assert!(elsewhere.keys().all(|(queue, _)| queue == "leaving"), "{elsewhere:?}");
    Ok(sum_of(&describe(&store)?))
}

fn assert_shows(wreck: &Wreck, log: &[u8], lost_from: usize, what: &str) {
    let home = wreck.with_log(log);
    let seen = look(home.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = wreck.state_before(lost_from);
    // Every open creates the default queue.
    let expected = if expected.is_empty() { &wreck.states[0].1 } else { expected };
    assert_eq!(seen, *expected, "{what}: not what was acknowledged up to there");
}

#[test]
fn truncated_wal_shows_the_commits_before_the_cut() {
    let wreck = Wreck::make();
    let log = wreck.log();
    let frames: usize = std::env::var("TORN_FRAMES").map_or(1, |value| value.parse().expect("a number"));
    let mut cuts: Vec<usize> = (log.len() - frames * FRAME_BYTES..=log.len()).collect();
    // The borders of each frame, and some bytes inside.
    let borders = (HEADER_BYTES..=log.len()).step_by(FRAME_BYTES);
    cuts.extend(borders.flat_map(|border| [border - 1, border, border + 1, border + 24, border + 1_000]));
    cuts.extend(0..=HEADER_BYTES);
    cuts.retain(|cut| *cut <= log.len());
    cuts.sort_unstable();
    cuts.dedup();
    in_parallel(&cuts, |cut| assert_shows(&wreck, &log[..cut], cut, &format!("cut at {cut}")));
    println!("{} cuts, each shows what was acknowledged up to there", cuts.len());
}

/// F07: before the first checkpoint the database is empty. A WAL that is missing, empty or ends
/// below the watermark is refused. Any other cut shows the commits before it.
#[test]
fn open_refuses_a_wal_below_the_watermark() {
    let wreck = Wreck::make();
    let log = wreck.log();
    let gone = wreck.with_log_and_note(&[]);
    fs::remove_file(gone.path().join(LOG)).expect("a log");
    let zeroed = wreck.with_log_and_note(&vec![0; log.len()]);
    for home in [&gone, &zeroed, &wreck.with_log_and_note(&[])] {
        for refused in [examine(home.path()).err(), look(home.path()).err()] {
            let refused = refused.expect("it is no empty store").to_string();
            assert!(refused.contains("data is missing"), "{refused}");
        }
    }
    let ends: Vec<usize> = (HEADER_BYTES..=log.len()).step_by(FRAME_BYTES).collect();
    let missed: Vec<usize> = ends
        .iter()
        .copied()
        .filter(|cut| match look(wreck.with_log_and_note(&log[..*cut]).path()) {
            Ok(seen) => {
                assert_eq!(seen, wreck.state_before(*cut), "cut at {cut}: not what was acknowledged up to there");
                false
            }
            Err(StoreError::Corrupt { what }) => what.contains("data is missing"),
            Err(error) => panic!("cut at {cut}: {error}"),
        })
        .collect();
    println!("{} of {} cuts are missed", missed.len(), ends.len());
    let first_commit = wreck.states[0].0;
    assert!(ends.iter().all(|cut| *cut >= first_commit || missed.contains(cut)), "the first commit is noted");
    assert!(missed.len() < ends.len(), "the whole log is not missed");
    assert_eq!(missed, ends[..missed.len()], "what is noted is a moment, and everything before it");
}

/// Without further requests and with a fixed clock, the watermark still covers the first and the
/// last commit.
#[test]
fn watermark_follows_the_last_commit() {
    let home = fast_directory();
    let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
    let store = EmbeddedStore::open(options(home.path(), Arc::clone(&clock))).expect("the store opens");
    let opened = read_watermark(home.path());
    for commit in 1..=3 {
        let name = workload::BatchName { cycle: 1, thread: 0, number: commit };
        drop(block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it"));
        let commit_seq = opened + i64::try_from(commit).expect("small");
        wait_for_watermark(home.path(), commit_seq);
        assert_eq!(read_watermark(home.path()), commit_seq);
    }
}

#[test]
fn overwritten_wal_shows_the_commits_before_the_overwrite() {
    let wreck = Wreck::make();
    let (log, mut rng) = (wreck.log(), SeededRng::new(5));
    let mut cases = Vec::new();
    for _ in 0..150 {
        let from = usize::try_from(between(&mut rng, HEADER_BYTES as u64, log.len() as u64 - 1)).expect("small");
        let mut zeroes = log.to_vec();
        zeroes[from..].fill(0);
        let mut garbage = log.to_vec();
        garbage[from..].iter_mut().for_each(|byte| *byte = rng.next_u64().to_le_bytes()[0]);
        // An overwrite with the same byte changes nothing.
        let differs = |changed: &[u8]| changed.iter().zip(log).position(|(a, b)| a != b).unwrap_or(log.len());
        for (what, changed) in [("zeroes", zeroes), ("garbage", garbage)] {
            cases.push((differs(&changed), what, changed));
        }
    }
    in_parallel(&cases, |(from, what, changed)| assert_shows(&wreck, &changed, from, &format!("{what} from {from}")));
    println!("{} destroyed ends, each shows what was acknowledged up to there", cases.len());
}

/// Bit flips and lost sectors in the WAL: a torn last commit is dropped, earlier corruption is
/// refused.
#[test]
fn open_refuses_a_wal_that_is_corrupt_before_its_last_commit() {
    let wreck = Wreck::make();
    let (log, mut rng) = (wreck.log(), SeededRng::new(9));
    let flips: u64 = std::env::var("FLIPS").map_or(600, |value| value.parse().expect("a number"));
    let mut cases = Vec::new();
    for number in 0..flips {
        let mut changed = log.to_vec();
        // Every tenth hits the header, every tenth the last commit.
        let (least, most) = match number % 10 {
            0 => (0, HEADER_BYTES - 1),
            1 => (log.len() - FRAME_BYTES, log.len() - 1),
            _ => (0, log.len() - 1),
        };
        let at = usize::try_from(between(&mut rng, least as u64, most as u64)).expect("small");
        if number % 4 == 3 {
            let sector = at / 512 * 512;
            changed[sector..(sector + 512).min(log.len())].fill(0xee);
            cases.push((sector, "a lost sector", changed));
        } else {
            changed[at] ^= 1 << between(&mut rng, 0, 7);
            cases.push((at, "a flipped bit", changed));
        }
    }
    let (refused, torn) = (AtomicUsize::new(0), AtomicUsize::new(0));
    in_parallel(&cases, |(at, what, changed)| {
        let home = wreck.with_log(&changed);
        match look(home.path()) {
            Err(StoreError::Corrupt { what }) => {
                assert!(what.contains("WAL") || what.contains("longshore.db-wal"), "{what}");
                let opened =
                    EmbeddedStore::open(options(home.path(), Arc::new(VirtualClock::new(sample_store::BEGIN))));
                assert!(opened.is_err(), "`examine` detects more than open");
                assert!(fs::read(home.path().join(LOG)).expect("bytes") == changed, "it is left as it is");
                refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("{what} at {at}: {error}"),
            Ok(_) => {
                // A lost sector may contain the end of a commit.
                let most = if what == "a flipped bit" { 1 } else { 2 };
                assert!(wreck.commits_behind(at) <= most, "{what} at {at} of {} was not noticed", log.len());
                assert_shows(&wreck, &changed, at, &format!("{what} at {at}"));
                torn.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    println!("{} places of damage: {refused:?} refused, {torn:?} taken for a torn end, 0 served", cases.len());
    assert!(refused.into_inner() > 0 && torn.into_inner() > 0);
}

/// Claims are not synced. A flipped bit in one of them is a torn end, although commits follow. In a
/// synced commit it is corruption, because every later commit records the sync.
#[test]
fn open_drops_an_invalid_claim_and_refuses_an_invalid_submission() {
    let home = fast_directory();
    let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
    let options = EmbeddedOptions { sync_claims: false, ..options(home.path(), clock) };
    let store = EmbeddedStore::open(options).expect("the store opens");
    let end = || usize::try_from(fs::metadata(home.path().join(LOG)).expect("a log").len()).expect("small");
    let (mut submissions, mut claims) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let name = workload::BatchName { cycle: 1, thread: 0, number: 3 * number };
        let start = end();
        drop(block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it"));
        submissions.push(start..end());
    }
    for _ in 0..4 {
        let start = end();
        let request = longshore_engine::ClaimRequest {
            queues: vec![workload::queue("even")],
            limit: 1,
            types: Vec::new(),
            terms: longshore_core::claim::ClaimOptions::default(),
        };
        let claimed = block_on(store.claim(request)).expect("the store answers").expect("the rules allow it");
        assert_eq!(claimed.len(), 1);
        claims.push(start..end());
    }
    let files = files_of(home.path());
    drop(store);
    let open_with_flip = |at: usize| {
        let copy = fast_directory();
        for (name, bytes) in &files {
            let mut bytes = bytes.clone();
            if name.as_os_str() == LOG {
                bytes[at] ^= 4;
            }
            fs::write(copy.path().join(name), bytes).expect("a file");
        }
        fs::remove_file(copy.path().join(NOTE)).expect("a watermark");
        look(copy.path())
    };
    for commit in &submissions {
        for at in [commit.start + 30, commit.end - 30] {
            let refused = open_with_flip(at).expect_err("a synced commit is corrupt");
            assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused}");
        }
    }
    for commit in &claims {
        for at in [commit.start + 30, commit.end - 30] {
            drop(open_with_flip(at).unwrap_or_else(|error| panic!("a torn end at {at}: {error}")));
        }
    }
}

/// A WAL that ends before checkpointed pages: the database would be a mixture of two commits. The
/// WAL of a workload that was killed during a checkpoint is cut at random. Every store that opens
/// is consistent; the others are refused.
#[test]
fn open_refuses_a_wal_that_lost_checkpointed_frames() {
    if !strace::allowed() {
        return;
    }
    let (mut refused, mut opened) = (0, 0);
    for (seed, page) in [(1, 2), (2, 300), (3, 2_000)] {
        let home = fast_directory();
        let mut ledger = Ledger::default();
        // Rows that the WAL changes later.
        let mut before = child::command(&[], home.path(), workload::HEAVY);
        Load::start(before.env(child::BATCHES, "10")).finish(&mut ledger);
        let site = Site { call: "pwrite64", file: DATABASE };
        let words = strace::injecting(home.path(), site, &format!("signal=KILL:when={page}"));
        let mut command = child::command(&words, home.path(), 2 * workload::HEAVY + 1);
        // Without the kill the workload ends by itself.
        ledger.ended = false;
        Load::start(command.env(child::BATCHES, "2000")).finish(&mut ledger);
        assert!(!ledger.ended, "it was killed while it copied");
        let files = files_of(home.path());
        let log = &files.iter().find(|(name, _)| name.as_os_str() == LOG).expect("a log").1;
        let mut rng = SeededRng::new(seed);
        for _ in 0..20 {
            let cut = usize::try_from(between(&mut rng, 0, log.len() as u64)).expect("small");
            let copy = fast_directory();
            for (name, bytes) in &files {
                let bytes = if name.as_os_str() == LOG { &bytes[..cut] } else { bytes };
                fs::write(copy.path().join(name), bytes).expect("a file");
            }
            match examine(copy.path()) {
                Err(StoreError::Corrupt { .. }) => {
                    assert!(common::open(copy.path()).is_err());
                    refused += 1;
                }
                Err(error) => panic!("cut at {cut} of {}: {error}", log.len()),
                Ok(diagnosis) => {
                    assert_eq!(diagnosis.problems, Vec::<String>::new(), "cut at {cut} of {}", log.len());
                    let store = common::open(copy.path()).expect("the store opens");
                    let all = jobs_above(&store, Seq(0)).expect("jobs are listed");
                    assert_counts(&store, &all);
                    workload::assert_payloads(&store, &all);
                    opened += 1;
                }
            }
        }
    }
    println!("{refused} cut logs refused, {opened} opened as they were after some commit");
    assert!(refused > 0, "no log had been copied");
}

/// One half for each core.
fn in_parallel<T: Clone + Send + Sync>(cases: &[T], check: impl Fn(T) + Sync) {
    let (left, right) = cases.split_at(cases.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| right.iter().for_each(|case| check(case.clone())));
        left.iter().for_each(|case| check(case.clone()));
        other.join().expect("the other half holds, too");
    });
}
