//! The proofs of the rules on a store: scenarios, transition table, random histories compared with
//! the model.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::StoreFixture;
use crate::differential;
use crate::scenario;
use crate::store_subject::StoreSubject;
use crate::target::TestTarget;
use crate::transitions::{self, Table, Triple};

/// Makes fresh fixtures, on several threads at once.
type Make<'a> = &'a (dyn Fn() -> StoreFixture + Sync);

const COMMANDS_PER_HISTORY: usize = 200;

/// The number of commands between reopens.
const COMMANDS_PER_RESTART: usize = 7;

/// Processes many items on as many threads as there are processors, and panics with all failures.
/// Stops after `failures_max` failures, because shrinking a history takes long.
fn spread<T: Sync + Debug>(items: &[T], failures_max: usize, work: impl Fn(&T) -> Result<(), String> + Sync) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::SeqCst)) {
            if failures.lock().unwrap().len() >= failures_max {
                return;
            }
            // A panic is a failure of one item; the other items still run.
            let done = catch_unwind(AssertUnwindSafe(|| work(item)));
            if let Err(why) = done.unwrap_or_else(|panic| Err(format!("{item:?}: {}", panic_message(&*panic)))) {
                failures.lock().unwrap().push(why);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    let failures = failures.into_inner().unwrap();
    let (failed, played) = (failures.len(), items.len());
    assert!(failures.is_empty(), "{failed} of {played} failed:\n\n{}\n", failures.join("\n\n"));
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("panic: {}", words.unwrap_or("no message"))
}

fn play_scenarios(make: impl Fn() -> StoreSubject + Sync) {
    let files = scenario::all_files();
    assert!(files.len() >= 70, "only {} scenario files were found", files.len());
    spread(&files, usize::MAX, |file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        scenario::run(&text, &name, &mut make()).map(drop).map_err(|failure| failure.to_string())
    });
}

/// Runs every scenario on this store.
pub fn scenarios(make: Make<'_>) {
    play_scenarios(|| StoreSubject::of(make()));
}

/// Runs every scenario and reopens the store after each command. Does nothing if the store is not
/// durable.
pub fn scenarios_with_restarts(make: Make<'_>) {
    if make().durable() {
        play_scenarios(|| StoreSubject::of(make()).restarting_every(1));
    }
}

/// Compares every (state × command × profile) triple with the transition table.
pub fn transitions(make: Make<'_>) {
    let table = Table::read(include_str!("../../tables/transitions.txt")).unwrap_or_else(|all| panic!("{all:?}"));
    let triples: Vec<Triple> = transitions::triples().filter(|triple| transitions::arises(*triple)).collect();
    let subject = || Box::new(StoreSubject::of(make())) as Box<dyn TestTarget>;
    spread(&triples, usize::MAX, |triple| {
        let cell = table.cell(*triple).unwrap_or_default();
        transitions::check(subject, *triple, cell).map(drop).map_err(|why| format!("{triple:?}, {cell}: {why}"))
    });
}

fn play_histories(make: impl Fn() -> StoreSubject + Sync, seeds: impl IntoIterator<Item = u64>) {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    spread(&seeds, 1, |seed| differential::run_histories(&make, [*seed], COMMANDS_PER_HISTORY));
}

/// Compares the store with the model on the random histories of these seeds: every answer, and the
/// visible state after every step.
pub fn histories(make: Make<'_>, seeds: impl IntoIterator<Item = u64>) {
    play_histories(|| StoreSubject::of(make()), seeds);
}

/// Like [`histories`], and reopens the store in between. Does nothing if the store is not durable.
pub fn histories_with_restarts(make: Make<'_>, seeds: impl IntoIterator<Item = u64>) {
    if make().durable() {
        play_histories(|| StoreSubject::of(make()).restarting_every(COMMANDS_PER_RESTART), seeds);
    }
}
