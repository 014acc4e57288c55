//! After a kill at any time the store has every acknowledged change and no partial batch (F01, P1,
//! P2, P4).
//!
//! `KILL_CYCLES` is the number of kills: 200 by default, 2,000 in a soak test. `KILL_SEED` repeats
//! a run.

mod common;

use std::time::Duration;

use longshore_core::rng::SeededRng;
use longshore_store::clock::monotonic;

use common::child::{self, Load};
use common::ledger::Ledger;
use common::{assert_whole, between, open, workload};

/// The workload; see `common/child.rs`.
#[test]
fn child() {
    child::main();
}

/// Cycles per directory. Every byte is checked after each kill, so a store must stay small.
const CYCLES_OF_ONE_STORE: u64 = 40;

/// Proves G-1.6, I-4.
#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let setting = |name, default| std::env::var(name).map_or(default, |value| value.parse().expect("a number"));
    let (cycles, seed) = (setting("KILL_CYCLES", 200), setting("KILL_SEED", 1));
    let mut rng = SeededRng::new(seed);
    let (mut acknowledged, mut unanswered_but_there, mut worst) = (0, 0, Duration::ZERO);
    for first in (0..cycles).step_by(usize::try_from(CYCLES_OF_ONE_STORE).expect("small")) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut ledger = Ledger::default();
        let last = cycles.min(first + CYCLES_OF_ONE_STORE);
        for cycle in first..last {
            let after = between(&mut rng, 5_000, 60_000) * if workload::heavy(cycle) { 6 } else { 1 };
            let load = Load::start(&mut child::command(&[], directory.path(), cycle));
            load.kill(Duration::from_micros(after), &mut ledger);
            assert_eq!(ledger.errors, Vec::<String>::new());

            let started = monotonic();
            let store = open(directory.path()).expect("the store opens after a crash");
            worst = worst.max(monotonic().saturating_sub(started));
            ledger.check_recent(&store);
            ledger.check_all(&store);
            unanswered_but_there += ledger.ask_again(&store, cycle);
            drop(store);
            assert_whole(directory.path());
        }
        acknowledged += ledger.acknowledged;
    }
    println!(
        "{cycles} kills, {acknowledged} acknowledged operations, none lost; {unanswered_but_there} batches were there \
         without an answer; worst reopening {worst:?}"
    );
}
