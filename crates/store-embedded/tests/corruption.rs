//! Corruption is detected and never served (F05, F06, F07, P13).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::rng::SeededRng;
use longshore_core::settle::Outcome;
use longshore_core::submit::Payload;
use longshore_core::time::Duration;
use longshore_engine::{AdminCommand, ClaimRequest, Queue, Settlement, StateCounts};
use longshore_store::{Clock, JobFilter, JobQuery, JobRef, Store as _, StoreError, StoreReader as _, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation, examine};
use longshore_testkit::block_on::block_on;
use rusqlite::Connection;
use rusqlite::types::Value;

use common::workload::{self, BatchName};
use common::{between, fast_directory, files_of, jobs_above, payloads_of, sample_store};

const BATCHES: u64 = 12;
const DATABASE: &str = "longshore.db";
const LOG: &str = "longshore.db-wal";
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A fixed clock, so that a store looks the same at every open.
fn open(directory: &Path) -> Result<EmbeddedStore, StoreError> {
    open_at(directory, &Arc::new(VirtualClock::new(sample_store::BEGIN + Duration::from_mins(1))))
}

fn open_at(directory: &Path, clock: &Arc<VirtualClock>) -> Result<EmbeddedStore, StoreError> {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let place = StoreLocation::Directory(directory.to_owned());
    let options = EmbeddedOptions {
        reserve_bytes: 4_096,
        reader_threads: 1,
        // A torn end is one commit, not all commits since the last sync.
        sync_claims: true,
        ..EmbeddedOptions::new(place, clock, ClockMode::Virtual)
    };
    EmbeddedStore::open(options)
}

fn batches() -> impl Iterator<Item = BatchName> {
    (0..BATCHES).map(|number| BatchName { cycle: 1, thread: number % 2, number })
}

/// Creates ready, running and finished jobs.
fn fill(store: &EmbeddedStore) {
    for name in batches() {
        drop(block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it"));
    }
    let queues = vec![workload::queue("even"), workload::queue("odd")];
    let request = ClaimRequest { queues, limit: 24, types: Vec::new(), terms: ClaimOptions::default() };
    let claimed = block_on(store.claim(request)).expect("the store gives").expect("the rules allow it");
    let complete = |job: &longshore_store::ClaimedJob| Settlement {
        id: job.claimed.id,
        token: Some(job.claimed.token),
        outcome: Outcome::Complete { result: Some("done".into()), progress: None },
    };
    drop(block_on(store.settle(claimed.iter().take(16).map(complete).collect())).expect("the store settles"));
}

/// Everything visible of a store.
#[derive(Clone, Debug, PartialEq)]
struct Picture {
    jobs: BTreeMap<u64, (Arc<Job>, Option<Payload>)>,
    by_id: Vec<bool>,
    tagged: usize,
    queues: Vec<(Arc<Queue>, StateCounts)>,
    duplicates: Vec<bool>,
}

fn look(directory: &Path, ids: &[longshore_core::id::JobId]) -> Result<Picture, StoreError> {
    let store = open(directory)?;
    let all = jobs_above(&store, Seq(0))?;
    let payloads = payloads_of(&store, &all)?;
    let found = block_on(store.get(ids.iter().map(|id| JobRef::Id(*id)).collect()))?;
    let filter = JobFilter { tag: Some("batch".into()), ..JobFilter::default() };
    let tagged = block_on(store.list(JobQuery { filter, limit: 1_000, before: None }))?.jobs.len();
    let queues = block_on(store.queues())?.into_iter().map(|report| (report.queue, report.counts)).collect();
    // A repeated batch gets the same jobs.
    let mut duplicates = Vec::new();
    for name in batches() {
        match block_on(store.submit(name.request()))? {
            Ok(submitted) => duplicates.extend(submitted.iter().map(|one| one.duplicate)),
            Err(refusal) => panic!("a batch is refused: {refusal:?}"),
        }
    }
    let jobs = all.into_iter().zip(payloads).map(|(job, payload)| (job.seq.0, (job, payload))).collect();
    Ok(Picture { jobs, by_id: found.iter().map(Option::is_some).collect(), tagged, queues, duplicates })
}

/// Files of a closed store and what is visible of it.
struct Original {
    files: Vec<(PathBuf, Vec<u8>)>,
    ids: Vec<longshore_core::id::JobId>,
    picture: Picture,
    /// View before the last commit, which a torn WAL may lose.
    before: Option<Picture>,
}

impl Original {
    fn listen_for_panics() {
        std::panic::set_hook(Box::new(|panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            eprintln!("{panic}");
        }));
    }

    /// A closed store with every feature.
    fn closed() -> Self {
        Self::listen_for_panics();
        let home = fast_directory();
        let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
        let store = open_at(home.path(), &clock).expect("the store opens");
        sample_store::fill(&store, &clock);
        fill(&store);
        let ids = ids_of(&store);
        drop(store);
        let files = files_of(home.path());
        let picture = look(home.path(), &ids).expect("a whole store can be read");
        assert_eq!(picture.jobs.len(), ids.len());
        assert!(picture.tagged > 0 && picture.duplicates.iter().all(|duplicate| *duplicate));
        common::assert_whole(home.path());
        Self { files, ids, picture, before: None }
    }

    /// State after a kill: half in the database, half in the WAL.
    fn crashed() -> Self {
        Self::listen_for_panics();
        let home = fast_directory();
        let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
        let store = open_at(home.path(), &clock).expect("the store opens");
        sample_store::fill(&store, &clock);
        drop(store);
        let store = open(home.path()).expect("the store opens");
        fill(&store);
        let before = files_of(home.path());
        fill_one(&store);
        let (files, ids) = (files_of(home.path()), ids_of(&store));
        drop(store);
        assert!(files.iter().any(|(name, bytes)| name.as_os_str() == LOG && bytes.len() > 100_000));
        let seen = |files: &[(PathBuf, Vec<u8>)]| {
            let copy = copy(files);
            common::assert_whole(copy.path());
            look(copy.path(), &ids).expect("a whole store can be read")
        };
        let (picture, before) = (seen(&files), Some(seen(&before)));
        Self { files, ids, picture, before }
    }

    fn copy(&self) -> tempfile::TempDir {
        copy(&self.files)
    }

    /// Returns whether the corruption was harmless or detected. Anything else is an error.
    fn judge(&self, damaged: &Path) -> Result<Verdict, String> {
        // `examine` comes first, because opening a store may change it.
        let diagnosis = examine(damaged);
        let named = diagnosis.as_ref().map_or(true, |diagnosis| !diagnosis.problems.is_empty());
        let before = PANICS.load(Ordering::SeqCst);
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(damaged, &self.ids)));
        if seen.is_err() || PANICS.load(Ordering::SeqCst) != before {
            return Err("a panic".to_owned());
        }
        let Ok(Ok(seen)) = seen else { return Ok(Verdict::Found) };
        if seen == self.picture {
            return Ok(if named { Verdict::Found } else { Verdict::Harmless });
        }
        if self.before.as_ref() == Some(&seen) {
            return Ok(if named { Verdict::Found } else { Verdict::Torn });
        }
        // `examine` names missing data. Wrong data is never served.
        let kept = |(seq, (job, payload)): (&u64, &(Arc<Job>, Option<Payload>))| {
            self.picture.jobs.get(seq).is_some_and(|own| own.0 == *job && (payload.is_none() || own.1 == *payload))
        };
        if !seen.jobs.iter().all(kept) {
            return Err(format!("a wrong record was served (the doctor has found something: {named})"));
        }
        if named { Ok(Verdict::Found) } else { Err(format!("unnoticed: {}", self.difference(&seen))) }
    }

    fn difference(&self, seen: &Picture) -> String {
        let own = &self.picture;
        let differing = [
            ("jobs", own.jobs != seen.jobs),
            ("ids", own.by_id != seen.by_id),
            ("tags", own.tagged != seen.tagged),
            ("queues", own.queues != seen.queues),
            ("idempotency", own.duplicates != seen.duplicates),
        ];
        let words: Vec<&str> = differing.iter().filter(|(_, differs)| *differs).map(|(word, _)| *word).collect();
        words.join(", ")
    }
}

fn copy(files: &[(PathBuf, Vec<u8>)]) -> tempfile::TempDir {
    let copy = fast_directory();
    for (name, bytes) in files {
        fs::write(copy.path().join(name), bytes).expect("a file");
    }
    copy
}

fn ids_of(store: &EmbeddedStore) -> Vec<longshore_core::id::JobId> {
    jobs_above(store, Seq(0)).expect("jobs are listed").iter().map(|job| job.id).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Harmless,
    Found,
    /// Treated as a torn WAL: only the last commit is lost.
    Torn,
}

/// Counts the verdicts by kind of corruption. Fails with a list of undetected ones.
#[derive(Default)]
struct Tally {
    harmless: Vec<String>,
    found: usize,
    torn: usize,
    bad: Vec<String>,
}

impl Tally {
    fn add(&mut self, what: &str, verdict: Result<Verdict, String>) {
        match verdict {
            Ok(Verdict::Harmless) => self.harmless.push(what.to_owned()),
            Ok(Verdict::Found) => self.found += 1,
            Ok(Verdict::Torn) => self.torn += 1,
            Err(bad) => self.bad.push(format!("{what}: {bad}")),
        }
    }

    fn finish(self, what: &str) {
        let Self { harmless, found, torn, bad } = &self;
        let (harmless, bad) = (harmless.len(), bad.len());
        println!("{what}: {harmless} harmless, {found} found, {torn} taken for a torn end, {bad} served");
        assert!(self.bad.is_empty(), "{:#?}", self.bad);
    }
}

/// The same number of flips in each file, regardless of its size.
#[test]
fn bit_flip_in_any_file_is_harmless_or_detected() {
    let mut rng = SeededRng::new(7);
    let flips = std::env::var("FLIPS").map_or(300, |value| value.parse().expect("a number"));
    for (how, original) in [("closed", Original::closed()), ("crashed", Original::crashed())] {
        for (name, bytes) in original.files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let mut tally = Tally::default();
            for _ in 0..flips {
                let at = usize::try_from(between(&mut rng, 0, bytes.len() as u64 - 1)).expect("small");
                let bit = between(&mut rng, 0, 7);
                let copy = original.copy();
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                fs::write(copy.path().join(name), flipped).expect("a file");
                tally.add(&format!("{} byte {at} bit {bit}", name.display()), original.judge(copy.path()));
            }
            tally.finish(&format!("flipped bits, {how}, {}", name.display()));
        }
    }
}

#[test]
fn truncated_or_zeroed_database_is_detected() {
    let original = Original::closed();
    let (_, bytes) = original.files.iter().find(|(name, _)| name.as_os_str() == DATABASE).expect("a database");
    let mut tally = Tally::default();
    for at in (0..bytes.len()).step_by(4_096) {
        for what in ["cut", "blank", "twice"] {
            let copy = original.copy();
            let mut changed = bytes.clone();
            let page = at..(at + 4_096).min(bytes.len());
            match what {
                "cut" => changed.truncate(at + 100),
                "blank" => changed[page].fill(0),
                // A misdirected write.
                _ => changed.copy_within(page, (at + 4_096) % bytes.len()),
            }
            fs::write(copy.path().join(DATABASE), changed).expect("a file");
            tally.add(&format!("{what} at {at}"), original.judge(copy.path()));
        }
    }
    tally.finish("pages");
}

/// Returns the leaf pages of a table, in order.
fn leaves_of(directory: &Path, table: &str) -> Vec<usize> {
    let connection = Connection::open(directory.join(DATABASE)).expect("a database");
    let mut select = connection
        .prepare("SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path")
        .expect("SQLite knows its pages");
    let pages = select.query_map([table], |row| row.get::<_, i64>(0)).expect("pages");
    pages.map(|page| usize::try_from(page.expect("a page")).expect("a number") - 1).collect()
}

/// Creates a closed store with several pages of live and of finished jobs. Returns the job numbers.
fn several_pages() -> (tempfile::TempDir, Vec<Seq>) {
    let home = fast_directory();
    let store = open(home.path()).expect("the store opens");
    for number in 0..400 {
        let name = BatchName { cycle: 1, thread: number % 2, number };
        drop(block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it"));
    }
    fill(&store);
    for _ in 0..30 {
        fill(&store);
    }
    let all = jobs_above(&store, Seq(0)).expect("jobs are listed").iter().map(|job| job.seq).collect();
    (home, all)
}

/// A misdirected write: each row is valid, and other rows are missing.
#[test]
fn misplaced_page_is_not_served() {
    let (home, all) = several_pages();
    let (files, bytes) = (files_of(home.path()), fs::read(home.path().join(DATABASE)).expect("bytes"));
    let moved = |from: usize, to: usize| {
        let (copy, mut changed) = (copy(&files), bytes.clone());
        changed.copy_within(from * 4_096..(from + 1) * 4_096, to * 4_096);
        fs::write(copy.path().join(DATABASE), changed).expect("a file");
        copy
    };
    let live = leaves_of(home.path(), "live_jobs");
    assert!(live.len() > 4, "{live:?}");
    for (from, to) in live.iter().zip(live.iter().skip(1)).flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
        let copy = moved(from, to);
        let refused = open(copy.path()).expect_err("jobs are missing").to_string();
        assert!(refused.contains("corrupt") && refused.contains("\"live_jobs\""), "{refused}");
    }
    // The whole tree but one page is lost: the remaining rows are in order.
    let root: i64 = {
        let connection = Connection::open(home.path().join(DATABASE)).expect("a database");
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'live_jobs'";
        connection.query_row(root, [], |row| row.get(0)).expect("a table")
    };
    for leaf in &live {
        let copy = moved(*leaf, usize::try_from(root).expect("a number") - 1);
        let refused = open(copy.path()).expect_err("jobs are missing").to_string();
        assert!(refused.contains("corrupt") && refused.contains("\"live_jobs\""), "{refused}");
    }
    let ended = leaves_of(home.path(), "finished_jobs");
    assert!(ended.len() > 4, "{ended:?}");
    for (from, to) in ended.iter().zip(ended.iter().skip(1)).flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
        let copy = moved(from, to);
        let Ok(store) = open(copy.path()) else { continue };
        for limit in [3, 1_000] {
            assert_ends(&store, limit, &all);
        }
    }
}

/// `examine` names everything that open refuses, also in empty indexes.
#[test]
fn examine_names_what_open_refuses() {
    let home = fast_directory();
    let store = open(home.path()).expect("the store opens");
    fill(&store);
    drop(store);
    let (files, bytes) = (files_of(home.path()), fs::read(home.path().join(DATABASE)).expect("bytes"));
    let pages = bytes.len() / 4_096;
    for to in 2..pages {
        for from in [2, 3, 7, 15, 17, pages - 1] {
            let (copy, mut changed) = (copy(&files), bytes.clone());
            changed.copy_within(from * 4_096..(from + 1) * 4_096, to * 4_096);
            fs::write(copy.path().join(DATABASE), changed).expect("a file");
            let whole = examine(copy.path()).is_ok_and(|found| found.problems.is_empty());
            let opened = open(copy.path());
            assert!(!whole || opened.is_ok(), "page {to} as page {from}: {:?}", opened.err());
        }
    }
}

/// Checks that a listing ends, in order, or fails with corruption.
fn assert_ends(store: &EmbeddedStore, limit: usize, all: &[Seq]) {
    let mut before = None;
    for _ in 0..=all.len() {
        let page = match block_on(store.list(JobQuery { filter: JobFilter::default(), limit, before })) {
            Ok(page) => page,
            Err(error) => return assert!(matches!(error, StoreError::Corrupt { .. }), "{error}"),
        };
        for job in &page.jobs {
            assert!(before.is_none_or(|before| job.seq < before), "{} is listed behind {before:?}", job.seq);
            before = Some(job.seq);
        }
        let Some(next) = page.next else {
            return assert!(limit < 1_000, "a page that lies in two places was not noticed");
        };
        before = Some(next);
    }
    panic!("the listing does not end");
}

/// An empty file replaces the database: the store does not start from scratch.
#[test]
fn open_refuses_a_wal_without_its_database() {
    let original = Original::crashed();
    for gone in [true, false] {
        let left = original.copy();
        let database = left.path().join(DATABASE);
        if gone {
            fs::remove_file(&database).expect("it is there");
        } else {
            fs::write(&database, []).expect("a file");
        }
        assert!(open(left.path()).is_err(), "a store whose database is gone was opened as an empty one");
        assert!(examine(left.path()).is_err());
        let kept = files_of(left.path()).into_iter().find(|(name, _)| name.as_os_str() == LOG);
        assert!(original.files.contains(&kept.expect("the log is there")), "the log was left alone");
    }
    // The WAL of another store is refused.
    let (other, left) = (Original::crashed(), original.copy());
    let (_, log) = other.files.iter().find(|(name, _)| name.as_os_str() == LOG).expect("a log");
    fs::write(left.path().join(LOG), log).expect("a file");
    let error = open(left.path()).expect_err("the log of another store");
    assert!(error.to_string().contains("another store"), "{error}");
}

/// Counts by kind.
fn fill_one(store: &EmbeddedStore) -> usize {
    let name = BatchName { cycle: 2, thread: 0, number: 0 };
    block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it").len()
}

/// Flips that SQLite cannot detect: one bit of one value in every column of every table.
#[test]
fn bit_flip_in_any_value_is_harmless_or_detected() {
    let original = Original::closed();
    let (mut rng, mut tally) = (SeededRng::new(11), Tally::default());
    let probe = original.copy();
    let tables: Vec<(String, Vec<String>)> = {
        let connection = Connection::open(probe.path().join(DATABASE)).expect("a database");
        let mut select = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").expect("tables");
        let names = select.query_map([], |row| row.get::<_, String>(0)).expect("tables");
        names.map(|name| name.expect("a name")).map(|name| (name.clone(), columns(&connection, &name))).collect()
    };
    for (table, columns) in &tables {
        for column in 0..columns.len() {
            for row in 0..12 {
                let copy = original.copy();
                if flip_value(copy.path(), table, columns, column, row, &mut rng) {
                    tally.add(&format!("{table}.{} of row {row}", columns[column]), original.judge(copy.path()));
                }
            }
        }
    }
    // A chunk key without a job, or a prune time that is too early, only costs time.
    let in_vain = |what: &&String| what.starts_with("finished_chunks.") || what.starts_with("chunk_prune_at.prune_at");
    let careless: Vec<&String> = tally.harmless.iter().filter(|what| !in_vain(what)).collect();
    assert!(careless.is_empty(), "undetected: {careless:?}");
    tally.finish("flipped values");
}

fn columns(connection: &Connection, table: &str) -> Vec<String> {
    let select = connection.prepare(&format!("SELECT * FROM {table}")).expect("a table");
    select.column_names().map(str::to_owned).collect()
}

/// Returns whether there was a row with a value to flip.
fn flip_value(home: &Path, table: &str, names: &[String], column: usize, row: usize, rng: &mut SeededRng) -> bool {
    let connection = Connection::open(home.join(DATABASE)).expect("a database");
    let mut select = connection.prepare(&format!("SELECT * FROM {table} LIMIT 1 OFFSET {row}")).expect("a table");
    let values = |row: &rusqlite::Row<'_>| (0..names.len()).map(|at| row.get::<_, Value>(at)).collect();
    let found: rusqlite::Result<Vec<Value>> = select.query_row([], values);
    let Ok(mut values) = found else { return false };
    drop(select);
    let mut flip = |bytes: &mut Vec<u8>, bits| {
        if bytes.is_empty() {
            return false;
        }
        let at = usize::try_from(between(rng, 0, bytes.len() as u64 - 1)).expect("small");
        bytes[at] ^= 1 << between(rng, 0, bits);
        true
    };
    let wheres: Vec<String> = names.iter().enumerate().map(|(at, name)| format!("{name} IS ?{}", at + 1)).collect();
    let old = values.clone();
    let flipped = match &mut values[column] {
        Value::Integer(number) => {
            let mut bytes = number.to_le_bytes()[..2].to_vec();
            let flipped = flip(&mut bytes, 7);
            *number = (*number & !0xffff) | i64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            flipped
        }
        // Text stays text: only the lowest bits of a letter are flipped.
        Value::Text(text) => {
            let mut bytes = std::mem::take(text).into_bytes();
            let flipped = flip(&mut bytes, 2);
            *text = String::from_utf8(bytes).expect("text");
            flipped
        }
        Value::Blob(bytes) => flip(bytes, 7),
        Value::Null | Value::Real(_) => false,
    };
    let new = values[column].clone();
    let update = format!("UPDATE {table} SET {} = ?{} WHERE {}", names[column], names.len() + 1, wheres.join(" AND "));
    let parameters = rusqlite::params_from_iter(old.into_iter().chain([new]));
    flipped && connection.execute(&update, parameters).is_ok_and(|rows| rows == 1)
}

#[test]
fn swapped_records_and_payloads_are_detected() {
    let original = Original::closed();
    for (table, column) in
        [("live_jobs", "record"), ("finished_jobs", "record"), ("payload", "bytes"), ("payload", "bytes, checksum")]
    {
        let copy = original.copy();
        {
            let connection = Connection::open(copy.path().join(DATABASE)).expect("a database");
            let swap = format!(
                "UPDATE {table} SET ({column}) = (SELECT {column} FROM {table} other WHERE other.seq <> {table}.seq AND \
                 other.seq IN (SELECT seq FROM {table} LIMIT 2)) WHERE seq IN (SELECT seq FROM {table} LIMIT 2)"
            );
            assert_eq!(connection.execute(&swap, []).expect("they are swapped"), 2);
        }
        assert_eq!(original.judge(copy.path()), Ok(Verdict::Found), "{table}.{column}");
        let named = examine(copy.path()).expect("it can be examined").problems;
        assert!(!named.is_empty(), "{table}.{column}");
    }
}

/// P13: a missing payload is corruption. The error names the job, so that it can be cancelled.
#[test]
fn missing_payload_is_reported_and_its_job_can_be_cancelled() {
    let home = fast_directory();
    let jobs = fill_one(&open(home.path()).expect("the store opens"));
    let connection = Connection::open(home.path().join(DATABASE)).expect("a database");
    let first = "(SELECT min(seq) FROM live_jobs)";
    let lost = connection.execute(&format!("DELETE FROM payload WHERE seq = {first}"), []).expect("it is deleted");
    assert_eq!(lost, 1);
    let seq: i64 = connection.query_row(&format!("SELECT {first}"), [], |row| row.get(0)).expect("a job");
    drop(connection);
    let store = open(home.path()).expect("the store opens");
    let all = jobs_above(&store, Seq(0)).expect("jobs are listed");
    assert_eq!(all.len(), jobs);
    let job = all.iter().find(|job| job.seq == Seq(seq.cast_unsigned())).expect("the job");
    let claim = || {
        let queues = vec![job.queue.clone()];
        block_on(store.claim(ClaimRequest { queues, limit: 1, types: Vec::new(), terms: ClaimOptions::default() }))
    };
    for refused in [block_on(store.payloads(vec![job.seq])).map(drop), claim().map(drop)] {
        let refused = refused.expect_err("it is gone").to_string();
        assert!(refused.contains(&format!("the payload of job {}", job.id)), "{refused}");
    }
    let cancel = AdminCommand::Cancel { id: job.id, reason: None, force: Force::Now };
    block_on(store.admin(cancel)).expect("the store does it").expect("the rules allow it");
    drop(claim().expect("the next one is given").expect("the rules allow it"));
    // A job that does not exist has no payload.
    assert_eq!(block_on(store.payloads(vec![Seq(1_000_000)])).expect("an answer"), vec![None]);
}
