//! The transition table on every implementation.
//!
//! The first tests run the whole table. Tests named after a specification map its lines to cells,
//! so that a line is proven by a cell that ran, and check that no other transition occurs under its
//! profile.

use longshore_testkit::engine_subject::EngineSubject;
use longshore_testkit::model::Model;
use longshore_testkit::transitions::{
    CELLS, Factory, Moves, PROFILES, STATES, Table, Triple, arises, check, check_actions, shown, triples,
};

/// The targets that must agree with the table.
const SUBJECTS: [(&str, Factory); 2] =
    [("model", || Box::new(Model::new())), ("engine", || Box::new(EngineSubject::new()))];

fn table() -> Table {
    Table::read(include_str!("../tables/transitions.txt")).unwrap_or_else(|faults| panic!("{}", faults.join("\n")))
}

/// Runs the selected part of the table on every target and panics with all differences. Returns all
/// transitions.
fn play(selected: impl Fn(Triple) -> bool) -> Moves {
    let table = table();
    let mut moves = Moves::new();
    let mut differences = Vec::new();
    let mut played = 0;
    for (name, factory) in SUBJECTS {
        for triple in triples().filter(|triple| arises(*triple) && selected(*triple)) {
            let cell = table.cell(triple).unwrap_or_default();
            played += 1;
            match check(factory, triple, cell) {
                Ok(seen) => moves.extend(seen),
                Err(why) => {
                    let Triple { state, command, profile } = triple;
                    differences
                        .push(format!("{name:6} | {state:18} | {command:24} | {profile:11} | {cell:18} | {why}"));
                }
            }
        }
    }
    println!("{played} triples played");
    let heading = "subject | state | command | profile | expected | what happened";
    assert!(differences.is_empty(), "{} of {played} differ\n{heading}\n{}", differences.len(), differences.join("\n"));
    assert!(played > 0, "nothing was played");
    moves
}

/// Checks that each sentence (state, command, cell) is in the table for this profile, so that
/// running the column proves it.
fn says(profile: &'static str, sentences: &[(&'static str, &'static str, &str)]) {
    let table = table();
    for &(state, command, cell) in sentences {
        let actual = table.cell(Triple { state, command, profile });
        assert_eq!(actual, Some(cell), "{state} x {command} in {profile}");
    }
}

/// Checks that the transitions are exactly these, given as `from to`.
fn only(moves: &Moves, allowed: &[&str]) {
    let seen: Vec<String> = moves.iter().map(|(from, to)| format!("{from} {to}")).collect();
    let extra: Vec<&String> = seen.iter().filter(|pair| !allowed.contains(&pair.as_str())).collect();
    let missing: Vec<&&str> = allowed.iter().filter(|pair| !seen.iter().any(|seen| seen == *pair)).collect();
    assert!(extra.is_empty() && missing.is_empty(), "moves that must not be: {extra:?}; moves never seen: {missing:?}");
}

fn column(profile: &'static str) -> Moves {
    play(|triple| triple.profile == profile)
}

#[test]
fn table_has_a_cell_for_every_pair() {
    let possible = triples().filter(|triple| arises(*triple)).count();
    println!("{} triples, {possible} of them possible", triples().count());
    let _ = table();
}

#[test]
fn faulty_table_is_reported() {
    let good = include_str!("../tables/transitions.txt");
    for (from, to) in [
        (
            "scheduled          | claim                    | running",
            "scheduled          | claim                    | flying ",
        ),
        (
            "scheduled          | claim                    | running",
            "scheduled          | clam                     | running",
        ),
        (
            "scheduled          | claim                    | running",
            "scheduled          | claim                    | -      ",
        ),
        ("retrying           | due", "# retrying         | due"),
    ] {
        assert!(good.contains(from));
        assert!(Table::read(&good.replacen(from, to, 1)).is_err(), "{to}");
    }
}

/// For every state and profile: the actions of a job are exactly the commands that succeed.
#[test]
fn actions_are_the_commands_that_succeed() {
    let (_, factory) = SUBJECTS[1];
    let table = table();
    let pairs = STATES.iter().flat_map(|state| PROFILES.iter().map(move |profile| (*state, *profile)));
    let differences: Vec<String> =
        pairs.flat_map(|(state, profile)| check_actions(factory, state, profile, &table)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The checker must accept exactly one cell per pair.
#[test]
fn only_the_expected_cell_passes() {
    let (_, factory) = SUBJECTS[0];
    let table = table();
    let mut too_many = Vec::new();
    for triple in triples().filter(|triple| arises(*triple)) {
        let right = table.cell(triple).unwrap_or_default();
        let wrong = CELLS.iter().filter(|cell| **cell != right && check(factory, triple, cell).is_ok());
        too_many.extend(wrong.map(|cell| format!("{triple:?}: {right}, but also {cell}")));
    }
    assert!(too_many.is_empty(), "{}", too_many.join("\n"));
}

/// Every refusal leaves the job unchanged, every history is contiguous, and the id never changes.
///
/// Proves G-1.4, G-2.1, G-2.21, G-7.3, G-8.9, G-10.1, T-21, I-20, L-46.
#[test]
fn whole_table_passes() {
    let moves = play(|_| true);
    for (from, to) in &moves {
        let backward = to == "pending" && from != "none";
        assert!(!backward, "{from} to {to}");
        assert!(from != "completed", "{from} to {to}");
        assert!(to != "running" || ["scheduled", "running"].contains(&from.as_str()), "{from} to {to}");
        assert!(to != "completed" || from == "running", "{from} to {to}");
    }
}

/// A record is deleted only after its end, by a command or by retention.
///
/// Proves I-3.
#[test]
fn no_job_is_lost() {
    let table = table();
    for triple in triples().filter(|triple| table.cell(*triple) == Some("gone")) {
        assert!(["delete", "retention"].contains(&triple.command), "{triple:?}");
        assert!(["completed", "failed", "dead_letter", "cancelled"].contains(&triple.state), "{triple:?}");
    }
    let _ = play(|triple| !["delete", "retention"].contains(&triple.command));
}

/// Proves G-0.1, G-2.10 to G-2.21.
/// Proves G-4.5, G-4.6, G-4.7, G-5.11, G-6.11 to G-6.14.
/// Proves G-8.2, G-8.3, G-8.5.
#[test]
fn gopherqueue_transitions_match_its_table() {
    says(
        "gopherqueue",
        &[
            ("pending-held", "submit-held", "scheduled"),
            ("delayed", "due", "scheduled"),
            ("scheduled", "claim", "running"),
            ("running", "complete", "completed"),
            ("running", "fail-permanent", "failed"),
            ("running-last", "fail-permanent", "failed"),
            ("running", "fail-temporary", "retrying"),
            ("running-last", "fail-temporary", "dead_letter"),
            ("retrying", "due", "scheduled"),
            ("retrying", "edit-limit", "dead_letter"),
            // Required outside its table: timeouts, orphans, lifetime, dependencies, cancellation.
            ("running", "deadline", "retrying"),
            ("running-last", "deadline", "dead_letter"),
            ("running", "lease-expiry", "scheduled"),
            ("running-last", "lease-expiry", "dead_letter"),
            ("running", "lifetime", "dead_letter"),
            ("scheduled", "lifetime", "dead_letter"),
            ("completed", "lifetime", "="),
            ("pending-waiting", "dependency-completed", "scheduled"),
            ("pending-waiting", "dependency-failed", "failed"),
            ("pending-waiting", "dependency-dead-lettered", "dead_letter"),
            ("pending-waiting", "dependency-cancelled", "cancelled"),
            ("running-cancelling", "fail-temporary", "cancelled"),
        ],
    );
    only(
        &column("gopherqueue"),
        &[
            "none pending",
            "pending scheduled",
            "pending delayed",
            "delayed scheduled",
            "scheduled running",
            "running completed",
            "running failed",
            "running retrying",
            "running dead_letter",
            "retrying scheduled",
            "retrying dead_letter",
            "running scheduled",
            "running delayed",
            "pending failed",
            "pending dead_letter",
            "delayed dead_letter",
            "scheduled dead_letter",
            "pending cancelled",
            "delayed cancelled",
            "scheduled cancelled",
            "running cancelled",
            "retrying cancelled",
        ],
    );
}

/// Proves T-4, T-5, T-11, T-12, T-15, T-17, T-19, T-20, T-25, T-27.
#[test]
fn taskharbor_dead_letters_and_requeues() {
    says(
        "taskharbor",
        &[
            ("delayed", "claim", "="),
            ("delayed", "due", "scheduled"),
            ("running", "claim", "="),
            ("running", "fail-temporary", "retrying"),
            ("running-last", "fail-temporary", "dead_letter"),
            ("running", "fail-permanent", "dead_letter"),
            ("running", "fail-final", "dead_letter"),
            ("running", "deadline", "retrying"),
            ("running", "lease-expiry", "scheduled"),
            ("running-last", "lease-expiry", "scheduled"),
            ("running", "complete-bogus", "stale_lease"),
            ("running", "complete-tokenless", "validation"),
            ("scheduled", "dead-letter", "dead_letter"),
            ("dead_letter", "requeue", "scheduled"),
        ],
    );
    let moves = column("taskharbor");
    assert!(moves.contains(&("dead_letter".to_owned(), "scheduled".to_owned())));
}

/// Proves O-5, O-6, O-7, O-31, O-32, O-34, O-45, O-48, O-49.
#[test]
fn ocypod_fails_times_out_and_retries() {
    says(
        "ocypod",
        &[
            ("scheduled", "claim", "running"),
            ("running", "complete", "completed"),
            ("running", "complete-tokenless", "completed"),
            ("running", "fail-temporary", "retrying"),
            ("running", "fail-permanent", "retrying"),
            ("running-last", "fail-temporary", "failed"),
            ("running", "deadline", "retrying"),
            ("running-last", "deadline", "failed"),
            ("running", "lease-expiry", "retrying"),
            ("running-last", "lease-expiry", "failed"),
            ("retrying", "due", "scheduled"),
            ("scheduled", "cancel", "cancelled"),
            ("running", "cancel", "cancelled"),
            ("retrying", "cancel", "cancelled"),
            ("completed", "cancel", "illegal_transition"),
            ("completed", "retention", "gone"),
            ("cancelled", "retention", "gone"),
            ("failed", "requeue", "scheduled"),
            ("cancelled", "requeue", "scheduled"),
        ],
    );
    let _ = column("ocypod");
}

/// Proves I-10, I-12, I-18, I-28 to I-34, I-38, I-39, I-41, I-43, I-46, I-59, I-60.
#[test]
fn weave_transitions_match_its_matrix() {
    says(
        "weave",
        &[
            ("scheduled", "claim", "running"),
            // Accepted, and not claimable yet.
            ("delayed", "claim", "="),
            ("pending-held", "claim", "="),
            ("retrying", "claim", "="),
            ("running", "claim", "="),
            ("running", "complete", "completed"),
            ("running", "fail-temporary", "retrying"),
            ("retrying", "due", "scheduled"),
            ("running-last", "fail-temporary", "failed"),
            // An expired lease: still in flight, claimable, and invalid for its old holder.
            ("running", "lease-expiry", "="),
            ("running-expired", "claim", "running"),
            ("running-expired", "complete", "stale_lease"),
            ("running-expired", "fail-temporary", "stale_lease"),
            ("running-expired", "heartbeat", "stale_lease"),
            ("running-expired", "deadline", "="),
            ("running", "complete-bogus", "stale_lease"),
            ("running", "complete-tokenless", "validation"),
            // The arrow of the drawing from Ready to Succeeded.
            ("scheduled", "complete", "stale_lease"),
            ("completed", "claim", "="),
            ("completed", "requeue", "illegal_transition"),
            ("failed", "claim", "="),
        ],
    );
    let moves = column("weave");
    assert!(moves.contains(&("running".to_owned(), "running".to_owned())));
    // A running job returns to its queue only when its worker releases it. Expiry alone does not
    // move it.
    let unreleased = play(|triple| triple.profile == "weave" && triple.command != "release");
    assert!(!unreleased.contains(&("running".to_owned(), "scheduled".to_owned())));
}

/// Proves L-9 to L-20, L-22, L-24, L-41, L-43, L-45.
#[test]
fn document_transitions_match_its_lifecycle() {
    says(
        "document",
        &[
            ("pending-held", "submit-held", "scheduled"),
            ("pending-held", "claim", "="),
            ("scheduled", "claim", "running"),
            ("running", "complete", "completed"),
            ("running", "fail-permanent", "failed"),
            ("running-last", "fail-temporary", "failed"),
            ("running", "fail-temporary", "retrying"),
            ("running", "fail-timeout", "retrying"),
            ("retrying", "due", "scheduled"),
            ("pending-held", "submit-held-full", "failed"),
            ("scheduled", "cancel", "cancelled"),
            ("running", "cancel", "cancelled"),
            ("running", "release", "illegal_transition"),
            ("running", "snooze", "illegal_transition"),
            ("running", "lease-expiry", "retrying"),
            ("running-last", "lease-expiry", "failed"),
            ("running", "dead-letter", "illegal_transition"),
            ("retrying", "run-now", "illegal_transition"),
            ("completed", "requeue", "illegal_transition"),
            ("failed", "requeue", "clone"),
            ("failed", "delete", "gone"),
        ],
    );
    only(
        &column("document"),
        &[
            "none pending",
            "pending scheduled",
            "scheduled running",
            "running completed",
            "running failed",
            "running retrying",
            "retrying scheduled",
            "scheduled failed",
            // Out of band: cancelled and dead_letter are both shown as FAILED.
            "pending cancelled",
            "scheduled cancelled",
            "running cancelled",
            "retrying cancelled",
            // A dependency in another queue, or a lifetime setting.
            "pending failed",
            "pending dead_letter",
            "scheduled dead_letter",
            "running dead_letter",
            "retrying dead_letter",
        ],
    );
}

/// Proves G-10.9, G-10.10, G-10.11.
#[test]
fn editable_fields_by_state() {
    for profile in PROFILES {
        says(profile, &[("scheduled", "edit-type", "="), ("running", "edit-type", "illegal_transition")]);
        says(profile, &[("scheduled", "edit-priority", "="), ("running", "edit-priority", "illegal_transition")]);
        let tags = if profile == "ocypod" { "validation" } else { "=" };
        says(profile, &[("scheduled", "edit-tags", tags), ("running", "edit-tags", tags)]);
    }
    let _ = play(|triple| triple.command.starts_with("edit-"));
}

/// Checks the words of a specification for each state, in the order of `STATES`; `-` if the profile
/// has no such state.
fn words(profile: &'static str, field: &str, words: [&str; 13]) {
    for (name, factory) in SUBJECTS {
        for (state, word) in STATES.into_iter().zip(words) {
            let triple = Triple { state, command: "claim", profile };
            assert_eq!(word == "-", !arises(triple), "{state} in {profile}");
            if arises(triple) {
                let view =
                    shown(factory, triple, false).unwrap_or_else(|why| panic!("{name}, {state} in {profile}: {why}"));
                assert_eq!(view.get(field).map(String::as_str), Some(word), "{name}: {field} of {state} in {profile}");
            }
        }
    }
}

fn word_after(profile: &'static str, state: &'static str, command: &'static str, field: &str, word: &str) {
    for (name, factory) in SUBJECTS {
        let triple = Triple { state, command, profile };
        let view = shown(factory, triple, true).unwrap_or_else(|why| panic!("{name}, {triple:?}: {why}"));
        assert_eq!(view.get(field).map(String::as_str), Some(word), "{name}: {field} of {triple:?}");
    }
}

/// Proves G-2.2 to G-2.9, G-10.4.
#[test]
fn gopherqueue_has_a_word_for_each_state() {
    let (r, no) = ("RUNNING", "-");
    words(
        "gopherqueue",
        "state",
        [
            "PENDING",
            "PENDING",
            "SCHEDULED",
            "DELAYED",
            r,
            r,
            r,
            no,
            "RETRYING",
            "COMPLETED",
            "FAILED",
            "DEAD_LETTER",
            "CANCELLED",
        ],
    );
}

/// Fields beyond the specification are not in its view.
///
/// Proves G-0.3.
#[test]
fn gopherqueue_view_has_only_its_own_fields() {
    let mut fields = [
        "id",
        "type",
        "state",
        "priority",
        "attempt",
        "created_at",
        "updated_at",
        "scheduled_at",
        "started_at",
        "completed_at",
        "tags",
        "correlation_id",
        "callback_url",
    ];
    fields.sort_unstable();
    for (name, factory) in SUBJECTS {
        for state in STATES {
            let triple = Triple { state, command: "claim", profile: "gopherqueue" };
            if arises(triple) {
                let view = shown(factory, triple, false).unwrap_or_else(|why| panic!("{name}, {state}: {why}"));
                assert_eq!(view.keys().map(String::as_str).collect::<Vec<_>>(), fields, "{name}, {state}");
            }
        }
    }
}

#[test]
fn taskharbor_has_a_word_for_each_state() {
    let (ready, later, held) = ("runnable", "scheduled", "reserved");
    words(
        "taskharbor",
        "state",
        [ready, ready, ready, later, held, held, held, "-", later, "done", "dlq", "dlq", "cancelled"],
    );
}

/// Proves O-3, O-8, O-12, O-26, O-28 to O-36.
#[test]
fn ocypod_has_a_status_and_an_end_for_each_state() {
    let (c, r, f) = ("created", "running", "failed");
    words("ocypod", "status", [c, c, c, c, r, r, "-", "-", f, "completed", f, f, "cancelled"]);
    let (no, yes) = ("false", "true");
    words("ocypod", "ended", [no, no, no, no, no, no, "-", "-", no, yes, yes, yes, yes]);
    for command in ["deadline", "lease-expiry"] {
        for (state, ended) in [("running", no), ("running-last", yes)] {
            word_after("ocypod", state, command, "status", "timed_out");
            word_after("ocypod", state, command, "ended", ended);
        }
    }
}

/// Proves I-20, I-24 to I-27.
#[test]
fn weave_has_four_words() {
    let (r, i, f) = ("Ready", "InFlight", "Failed");
    words("weave", "state", [r, r, r, r, i, i, "-", i, r, "Succeeded", f, f, f]);
}

/// Proves L-1 to L-8, L-33, L-53, L-54, L-55.
#[test]
fn document_has_six_words_and_two_ends() {
    let (r, f) = ("RUNNING", "FAILED");
    words("document", "state", ["CREATED", "CREATED", "QUEUED", "-", r, r, "-", "-", "RETRYING", "SUCCEEDED", f, f, f]);
}
