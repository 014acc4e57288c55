//! The proofs of the rules, played on a store: scenarios, the transition table, random histories beside the model.

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

/// Makes fresh worlds, from several threads at once.
type Make<'a> = &'a (dyn Fn() -> StoreFixture + Sync);

const COMMANDS_PER_HISTORY: usize = 200;

/// Often enough to fall between any two commands of some history, rarely enough to get somewhere.
const COMMANDS_PER_RESTART: usize = 7;

/// Does the same to many things, on as many threads as there are processors, and panics with what went wrong. Stops after so many
/// failures: a history that fails is cut down first, and that takes its time.
fn spread<T: Sync + Debug>(items: &[T], failures_max: usize, work: impl Fn(&T) -> Result<(), String> + Sync) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::SeqCst)) {
            if failures.lock().unwrap().len() >= failures_max {
                return;
            }
            // A panic is one failure like another: the rest is played all the same.
            let done = catch_unwind(AssertUnwindSafe(|| work(item)));
            if let Err(why) = done.unwrap_or_else(|panic| Err(format!("{item:?}: {}", words_of(&*panic)))) {
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

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("panic: {}", words.unwrap_or("without words"))
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

/// Every scenario holds on this store.
pub fn scenarios(make: Make<'_>) {
    play_scenarios(|| StoreSubject::of(make()));
}

/// Every scenario holds although the store is closed and opened again after each command. Without effect where it cannot be.
pub fn scenarios_with_restarts(make: Make<'_>) {
    if make().durable() {
        play_scenarios(|| StoreSubject::of(make()).restarting_every(1));
    }
}

/// Every (state × command × profile) triple comes out as the table says.
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

/// The store and the model agree on the random histories of these seeds: every answer, and all that can be seen after every step.
pub fn histories(make: Make<'_>, seeds: impl IntoIterator<Item = u64>) {
    play_histories(|| StoreSubject::of(make()), seeds);
}

/// They agree although the store is closed and opened again now and then. Without effect where it cannot be.
pub fn histories_with_restarts(make: Make<'_>, seeds: impl IntoIterator<Item = u64>) {
    if make().durable() {
        play_histories(|| StoreSubject::of(make()).restarting_every(COMMANDS_PER_RESTART), seeds);
    }
}
