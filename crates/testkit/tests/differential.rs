//! The engine and the reference model agree on random histories: every answer, and the visible
//! state after every step.
//!
//! The soak test runs more of them: `make soak-model`, or `HISTORIES=100000 FIRST_SEED=0 cargo test
//! --release … -- soak`.

use longshore_testkit::differential::{self, Step, drafts};
use longshore_testkit::engine_subject::EngineSubject;
use longshore_testkit::target::{Answer, Command, TestTarget};

const COMMANDS: usize = 200;

fn agree(make: impl Fn() -> EngineSubject, seeds: impl IntoIterator<Item = u64>) {
    differential::run_histories(make, seeds, COMMANDS).unwrap_or_else(|report| panic!("{report}"));
}

/// Proves G-0.1, G-0.2, L-46, I-3.
#[test]
fn engine_and_model_agree_on_even_histories() {
    agree(EngineSubject::new, (0..2_000).step_by(2));
}

#[test]
fn engine_and_model_agree_on_odd_histories() {
    agree(EngineSubject::new, (1..2_000).step_by(2));
}

/// Work in the smallest slices ends like work in one piece. Retries of workflows are left out: a
/// retry in slices learns only at its end that nothing can run again, and outside jobs that revived
/// in an earlier slice are live in a later one.
#[test]
fn engine_in_small_slices_agrees_with_the_model() {
    for (slices, seeds) in [((1, 1), 10_000..10_150), ((3, 7), 20_000..20_150)] {
        for seed in seeds {
            let mut pair = differential::DifferentialRunner::new(EngineSubject::with_slices(slices.0, slices.1));
            for draft in drafts(seed, COMMANDS) {
                let step = draft.step(pair.model());
                if !matches!(step, Step::Command(Command::RetryWorkflow { .. })) {
                    pair.step(step).unwrap_or_else(|report| panic!("seed {seed}, {report}"));
                }
            }
            pair.finish().unwrap_or_else(|report| panic!("seed {seed}, {report}"));
        }
    }
}

/// The engine has no state besides its records: a rebuilt engine is equal.
#[test]
fn rebuilt_engine_is_equal() {
    for seed in 0..150 {
        let mut subject = EngineSubject::new();
        let mut model = longshore_testkit::model::Model::new();
        for (number, draft) in drafts(seed, COMMANDS).into_iter().enumerate() {
            match draft.step(&model) {
                Step::Command(command) => {
                    model.apply(&command);
                    subject.apply(&command);
                }
                Step::Advance(by) => {
                    model.advance(by);
                    subject.advance(by);
                }
            }
            if number % 20 == 19 {
                assert_eq!(subject.rebuilt(), *subject.engine(), "seed {seed}, after step {number}");
            }
        }
    }
}

/// A refusal changes nothing: no field of a job, no order, timer, count or sequence number.
#[test]
fn refusal_changes_nothing_in_the_engine() {
    let mut refusals = 0;
    for seed in 0..60 {
        let (mut subject, mut model) = (EngineSubject::new(), longshore_testkit::model::Model::new());
        for draft in drafts(seed, COMMANDS) {
            match draft.step(&model) {
                Step::Command(command) => {
                    let before = subject.engine().clone();
                    model.apply(&command);
                    if let Answer::Refused { code } = subject.apply(&command) {
                        assert_eq!(*subject.engine(), before, "seed {seed}: {command:?} was refused with {code}");
                        refusals += 1;
                    }
                }
                Step::Advance(by) => {
                    model.advance(by);
                    subject.advance(by);
                }
            }
        }
    }
    assert!(refusals > 1_000, "only {refusals} refusals were seen");
}

/// Runs only if the environment sets the number of histories.
#[test]
fn soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(histories) = number("HISTORIES") else { return };
    let first = number("FIRST_SEED").unwrap_or(0);
    let half = first + histories / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| agree(EngineSubject::new, first..half));
        agree(EngineSubject::new, half..first + histories);
    });
    println!("{histories} histories of {COMMANDS} commands agree, seeds {first} to {}", first + histories - 1);
}
