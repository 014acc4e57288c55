//! After a kill at any system call the store has every acknowledged change and no partial batch
//! (F01, F02, F50): during creation, work, close and recovery.
//!
//! The kill comes on entry, so the call is not made. A kill on exit equals a kill on entry of the
//! next call. `CALL_POINTS` is the number of kills for each call, file and start state: 4 by
//! default.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use longshore_core::rng::SeededRng;

use common::child::{self, Load};
use common::ledger::Ledger;
use common::strace::Site;
use common::{assert_whole, between, open, strace};

/// The workload; see `common/child.rs`.
#[test]
fn child() {
    child::main();
}

/// State of the directory at the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// Missing: the store is created.
    Nothing,
    Closed,
    /// After another kill.
    Crashed,
}

/// Batches per submitter: enough for a useful WAL, few enough for the workload to end.
const BATCHES: u64 = 12;

struct Player {
    cycle: u64,
    rng: SeededRng,
    kills: BTreeMap<Site, u64>,
    acknowledged: u64,
}

impl Player {
    /// Runs the workload behind the command prefix of `before` and checks the store. Returns
    /// whether the workload was killed.
    fn play(&mut self, found: Found, before: impl FnOnce(&Path) -> Vec<String>) -> bool {
        let place = tempfile::tempdir().expect("a directory");
        let home = place.path().join("store");
        let mut ledger = Ledger::default();
        match found {
            Found::Nothing => {}
            Found::Closed => drop(open(&home).expect("the store opens")),
            Found::Crashed => {
                let after = Duration::from_micros(between(&mut self.rng, 5_000, 40_000));
                Load::start(&mut child::command(&[], &home, self.cycle)).kill(after, &mut ledger);
                ledger.next_load();
                self.cycle += 1;
            }
        }
        let words = before(&home);
        let mut command = child::command(&words, &home, self.cycle);
        let status = Load::start(command.env(child::BATCHES, BATCHES.to_string())).finish(&mut ledger);
        assert_eq!(ledger.errors, Vec::<String>::new());
        assert_eq!(ledger.ended, status.success(), "{found:?} {words:?}: {status}");

        let store = open(&home).expect("the store opens after a crash");
        ledger.check_recent(&store);
        ledger.check_all(&store);
        let _: u64 = ledger.ask_again(&store, self.cycle);
        drop(store);
        assert_whole(&home);
        self.cycle += 1;
        self.acknowledged += ledger.acknowledged;
        !ledger.ended
    }
}

/// Returns up to `points` numbers from 1 to `last`, denser at the start.
fn places(last: u64, points: u64, rng: &mut SeededRng) -> Vec<u64> {
    if last <= points {
        return (1..=last).collect();
    }
    let mut places: Vec<u64> = (1..=points / 2).collect();
    let (rest, first) = (points - points / 2, points / 2 + 1);
    for part in 0..rest {
        let span = last - first;
        places.push(between(rng, first + span * part / rest, first + span * (part + 1) / rest));
    }
    places
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_at_a_call() {
    if !strace::allowed() {
        return;
    }
    let points = std::env::var("CALL_POINTS").map_or(4, |value| value.parse().expect("a number"));
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("calls");
    let mut player = Player { cycle: 0, rng: SeededRng::new(3), kills: BTreeMap::new(), acknowledged: 0 };
    let mut missed = 0;
    for found in [Found::Nothing, Found::Closed, Found::Crashed] {
        assert!(!player.play(found, |home| strace::watching(home, &log)), "no kill was injected");
        for (site, last) in strace::most_by_one_thread(&log) {
            for at in places(last, points, &mut player.rng) {
                let what = format!("signal=KILL:when={at}");
                if player.play(found, |home| strace::injecting(home, site, &what)) {
                    *player.kills.entry(site).or_default() += 1;
                } else {
                    // Another run makes a few more or fewer calls.
                    missed += 1;
                }
            }
        }
    }
    let kills: u64 = player.kills.values().sum();
    println!(
        "{kills} kills at a call, {} acknowledged operations, none lost; {missed} ended before",
        player.acknowledged
    );
    player.kills.iter().for_each(|(site, kills)| println!("  {site}: {kills}"));
    assert!(missed * 4 < kills, "too many were not killed at all");
    for (call, file) in
        [("pwrite64", "longshore.db"), ("pwrite64", "longshore.db-wal"), ("ftruncate", "longshore.db-wal")]
    {
        assert!(player.kills.contains_key(&Site { call, file }), "no kill at {call} of {file}");
    }
}
