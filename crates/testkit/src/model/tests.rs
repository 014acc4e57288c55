//! The main numbers of the specifications, on the model itself.

use super::rules::{BackoffKind, Rules, parse_duration, show_duration};
use super::*;
use crate::target::{Dependency, NewJob, Outcome, Submitted, Token};

fn queue(profile: &str, settings: &[(&str, &str)]) -> Model {
    let mut model = Model::new();
    let settings = settings.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    let put = Command::PutQueue { queue: "q".to_owned(), profile: Some(profile.to_owned()), settings: Some(settings) };
    assert_eq!(model.apply(&put), Answer::Done);
    model
}

fn new_job() -> NewJob {
    NewJob { job_type: "t".to_owned(), hold: Some(false), ..NewJob::default() }
}

fn submit(model: &mut Model, jobs: Vec<NewJob>) -> Answer {
    model.apply(&Command::Submit { queue: "q".to_owned(), jobs })
}

fn claim(model: &mut Model) -> Vec<Handle> {
    let command = Command::Claim {
        queues: vec!["q".to_owned()],
        worker: "w".to_owned(),
        limit: 10,
        types: Vec::new(),
        lease: None,
        execution_timeout: None,
    };
    match model.apply(&command) {
        Answer::Claimed(claimed) => claimed.into_iter().map(|claimed| claimed.job).collect(),
        answer => panic!("{answer:?}"),
    }
}

fn settle(model: &mut Model, job: Handle, outcome: Outcome) -> Answer {
    let token = Token::Version(model.lease_version(job));
    model.apply(&Command::Settle { job, token, outcome })
}

fn failure(category: &str) -> Outcome {
    Outcome::Fail {
        category: category.to_owned(),
        code: None,
        message: "no".to_owned(),
        retry_after: None,
        unrecoverable: false,
    }
}

fn state(model: &mut Model, job: Handle) -> String {
    model.job(job).expect("known").state
}

fn refused(code: &str) -> Answer {
    Answer::Refused { code: code.to_owned() }
}

/// Fails a job until it ends. Returns its starts and its delays.
fn fail_to_the_end(model: &mut Model) -> (u32, Vec<Millis>) {
    let mut waits = Vec::new();
    loop {
        if claim(model).is_empty() {
            model.advance(60 * 60 * 1_000);
            assert_eq!(claim(model), [0]);
        }
        settle(model, 0, failure("temporary"));
        let job = model.job(0).expect("known");
        if job.completed_at.is_some() {
            return (job.starts, waits);
        }
        waits.extend(job.attempts.last().and_then(|attempt| attempt.next_delay));
    }
}

#[test]
fn limits_and_waits_of_each_profile() {
    let no_jitter = ("retry.jitter.kind", "none");
    let cases = [
        ("gopherqueue", vec![], 3, vec![1_000_i64, 2_000], "dead_letter"),
        ("standard", vec![no_jitter], 3, vec![1_000, 2_000], "dead_letter"),
        (
            "taskharbor",
            vec![no_jitter, ("retry.limit", "8")],
            8,
            vec![200, 400, 800, 1_600, 3_200, 5_000, 5_000],
            "dead_letter",
        ),
        ("ocypod", vec![], 1, vec![], "failed"),
        (
            "ocypod",
            vec![("retry.limit", "4"), ("retry.backoff.delays", "10s,1m,5m")],
            5,
            vec![10_000, 60_000, 300_000, 300_000],
            "failed",
        ),
        ("weave", vec![no_jitter], 4, vec![500, 1_000, 2_000], "failed"),
        ("document", vec![], 4, vec![1_000, 1_000, 1_000], "failed"),
    ];
    for (profile, settings, starts, waits, end) in cases {
        let mut model = queue(profile, &settings);
        submit(&mut model, vec![new_job()]);
        assert_eq!(fail_to_the_end(&mut model), (starts, waits), "{profile} {settings:?}");
        assert_eq!(state(&mut model, 0), end, "{profile}");
        let job = model.job(0).expect("known");
        assert_eq!((job.failures, job.retries_scheduled, job.requeues), (starts, starts - 1, starts - 1), "{profile}");
    }
}

#[test]
fn taskharbor_allows_twenty_five_failures() {
    let mut model = queue("taskharbor", &[]);
    submit(&mut model, vec![new_job()]);
    assert_eq!(fail_to_the_end(&mut model).0, 25);
}

/// One lost lease, then failures to the end, under the limit of each profile.
#[test]
fn lost_lease_counts_by_profile() {
    let heartbeat = ("lease", "30s");
    let cases = [
        ("gopherqueue", vec![], 3),
        ("taskharbor", vec![("retry.limit", "3")], 4),
        ("ocypod", vec![("retry.limit", "3"), heartbeat], 4),
        ("weave", vec![], 5),
        ("document", vec![], 4),
    ];
    for (profile, settings, starts) in cases {
        let mut model = queue(profile, &settings);
        submit(&mut model, vec![new_job()]);
        assert_eq!(claim(&mut model), [0]);
        model.advance(5 * 60 * 1_000 - 1);
        model.advance(1);
        assert_eq!(fail_to_the_end(&mut model).0, starts, "{profile}");
    }
}

#[test]
fn lost_leases_exhaust_a_counted_limit() {
    let mut model = queue("gopherqueue", &[]);
    submit(&mut model, vec![new_job()]);
    for _ in 0..3 {
        assert_eq!(claim(&mut model), [0]);
        model.advance(5 * 60 * 1_000);
    }
    let job = model.job(0).expect("known");
    let error = job.error.expect("an error");
    assert_eq!((job.state.as_str(), job.starts, job.failures, job.reclaims), ("dead_letter", 3, 1, 2));
    assert_eq!((error.category.as_str(), error.code.as_deref()), ("system", Some("lease_expired")));
}

#[test]
fn backoff_formulas() {
    let base = Rules { base: 1_000, cap: 0, multiplier: 1.5, ..profile_rules(Profile::Gopherqueue) };
    let waits = |rules: &Rules| (1..=5).map(|n| rules.delay_window(n).0).collect::<Vec<_>>();
    assert_eq!(waits(&base), [1_000, 1_500, 2_250, 3_375, 5_062]);
    assert_eq!(waits(&Rules { backoff: BackoffKind::Linear, ..base.clone() }), [1_000, 2_000, 3_000, 4_000, 5_000]);
    assert_eq!(waits(&Rules { backoff: BackoffKind::Constant, cap: 700, ..base.clone() }), [700; 5]);
    assert_eq!(waits(&Rules { backoff: BackoffKind::List, ..base.clone() }), [0; 5]);
    assert_eq!(waits(&Rules { base: 0, ..base }), [0; 5]);
    // The windows of full jitter: 0.5, 1, 2, 4, 8, 16, 30 s.
    let weave = profile_rules(Profile::Weave);
    let windows: Vec<_> = (1..=8).map(|n| weave.delay_window(n)).collect();
    let ends = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    assert_eq!(windows, ends.map(|end| (0, end)));
    // Jitter is clamped to the cap.
    let harbor = profile_rules(Profile::Taskharbor);
    assert_eq!(harbor.delay_window(1), (160, 240));
    assert_eq!(harbor.delay_window(9), (4_000, 5_000));
    assert_eq!(weave.delay_window(u32::MAX), (0, 30_000));
}

#[test]
fn jittered_retry_waits_for_adopted_instant() {
    let mut model = queue("weave", &[]);
    submit(&mut model, vec![new_job()]);
    claim(&mut model);
    settle(&mut model, 0, failure("temporary"));
    assert_eq!(model.awaits_adoption(), [0]);
    let now = model.now();
    assert!(model.adopt_run_at(0, now + 501).is_err());
    assert!(model.adopt_run_at(0, now - 1).is_err());
    assert_eq!(model.adopt_run_at(0, now + 321), Ok(()));
    assert!(model.awaits_adoption().is_empty());
    let job = model.job(0).expect("known");
    assert_eq!((job.run_at, job.attempts[0].next_delay), (Some(now + 321), Some(321)));
    model.advance(320);
    assert_eq!(state(&mut model, 0), "retrying");
    model.advance(1);
    assert_eq!(state(&mut model, 0), "scheduled");
}

#[test]
fn stale_tokens_change_nothing() {
    let mut model = queue("taskharbor", &[]);
    submit(&mut model, vec![new_job()]);
    claim(&mut model);
    model.advance(30_000);
    claim(&mut model);
    let before = model.job(0);
    for token in [Token::Version(1), Token::Version(3), Token::Bogus] {
        for outcome in [
            Outcome::Complete { result: None, progress: None },
            failure("permanent"),
            Outcome::Snooze { delay: 5 },
            Outcome::Release,
        ] {
            let settle = Command::Settle { job: 0, token: token.clone(), outcome };
            assert_eq!(model.apply(&settle), refused("stale_lease"));
        }
        let heartbeat = Command::Heartbeat { job: 0, token, progress: None, checkpoint: None };
        assert_eq!(model.apply(&heartbeat), refused("stale_lease"));
    }
    let missing = Command::Settle { job: 0, token: Token::Missing, outcome: Outcome::Release };
    assert_eq!(model.apply(&missing), refused("validation"));
    assert_eq!(model.job(0), before);
    // A lease is invalid at the instant of its end, even if the job was not claimed again.
    model.advance(29_999);
    assert_eq!(state(&mut model, 0), "running");
    model.advance(1);
    assert_eq!(settle(&mut model, 0, Outcome::Complete { result: None, progress: None }), refused("stale_lease"));
}

#[test]
fn repeated_settlement_applies_once() {
    let mut model = queue("gopherqueue", &[]);
    submit(&mut model, vec![new_job()]);
    claim(&mut model);
    settle(&mut model, 0, failure("temporary"));
    let again = settle(&mut model, 0, failure("temporary"));
    assert_eq!(again, Answer::State { job: 0, state: "retrying".to_owned() });
    assert_eq!(model.job(0).expect("known").failures, 1);
    assert_eq!(settle(&mut model, 0, Outcome::Release), refused("stale_lease"));
}

#[test]
fn lapsed_lease_is_reclaimed_in_place() {
    let mut model = queue("weave", &[]);
    submit(&mut model, vec![new_job()]);
    claim(&mut model);
    model.advance(10 * 60 * 1_000);
    let job = model.job(0).expect("known");
    assert_eq!((job.state.as_str(), job.reclaims, job.attempt_ended_at), ("running", 0, None));
    assert_eq!(model.view(0, "weave").expect("known")["state"], "InFlight");
    assert_eq!(claim(&mut model), [0]);
    let job = model.job(0).expect("known");
    assert_eq!((job.lease_version, job.starts, job.reclaims, job.failures), (2, 2, 1, 0));
    let last = job.history.last().expect("never empty");
    assert_eq!(
        (last.from.as_deref(), last.to.as_str(), last.cause.as_str()),
        (Some("running"), "running", "lease_expired")
    );
}

#[test]
fn document_locks_settings() {
    let put = |path: &str, value: &str| {
        let settings = Settings::from([(path.to_owned(), value.to_owned())]);
        let command =
            Command::PutQueue { queue: "q".to_owned(), profile: Some("document".to_owned()), settings: Some(settings) };
        Model::new().apply(&command)
    };
    for (path, other, own) in [
        ("retry.limit", "5", "3"),
        ("retry.backoff.base", "2s", "1s"),
        ("submit", "auto", "explicit"),
        ("delayed_start", "true", "false"),
        ("on_lease_expiry", "reclaim_free", "fail_retryable"),
        ("manual_requeue", "in_place", "clone"),
        ("fencing", "optional", "required"),
    ] {
        assert_eq!(put(path, other), refused("validation"), "{path}");
        assert_eq!(put(path, own), Answer::Done, "{path}");
    }
    assert_eq!(put("lease", "5s"), Answer::Done);
}

#[test]
fn full_document_queue_fails_submissions() {
    let mut model = queue("document", &[("max_queued", "1")]);
    submit(&mut model, vec![new_job()]);
    submit(&mut model, vec![NewJob { hold: None, ..new_job() }]);
    // In one call, and in two.
    submit(&mut model, vec![new_job()]);
    let answer = model.apply(&Command::SubmitHeld { job: 1 });
    assert_eq!(answer, Answer::State { job: 1, state: "failed".to_owned() });
    for job in [1, 2] {
        let job = model.job(job).expect("known");
        let causes: Vec<&str> = job.history.iter().map(|row| row.cause.as_str()).collect();
        assert_eq!(causes, ["create", "submit", "resource_exhausted"]);
        assert_eq!((job.starts, job.failures), (0, 0));
    }
}

#[test]
fn dependencies_are_bounded() {
    let mut model = queue("gopherqueue", &[]);
    let on = |dependency| NewJob { after: vec![dependency], ..new_job() };
    let link = |name: usize| NewJob {
        reference: Some(format!("r{name}")),
        after: name.checked_sub(1).map(|before| Dependency::Ref(format!("r{before}"))).into_iter().collect(),
        ..new_job()
    };
    assert_eq!(submit(&mut model, (0..101).map(link).collect()), refused("dependency_depth"));
    assert!(matches!(submit(&mut model, (0..100).map(link).collect()), Answer::Submitted(_)));
    assert_eq!(submit(&mut model, vec![on(Dependency::Job(99))]), refused("dependency_depth"));
    assert_eq!(submit(&mut model, vec![on(Dependency::Unknown)]), refused("dependency_unknown"));
    let itself = NewJob { reference: Some("r".to_owned()), ..on(Dependency::Ref("r".to_owned())) };
    assert_eq!(submit(&mut model, vec![itself]), refused("dependency_cycle"));
    submit(&mut model, (0..1_000).map(|_| new_job()).collect());
    let all = |from: Handle| NewJob { after: (from..1_100).map(Dependency::Job).collect(), ..new_job() };
    assert_eq!(submit(&mut model, vec![all(99)]), refused("dependency_breadth"));
    assert!(matches!(submit(&mut model, vec![all(100)]), Answer::Submitted(_)));
}

#[test]
fn ends_propagate_and_revive() {
    let mut model = queue("taskharbor", &[]);
    let after = |job| NewJob { after: vec![Dependency::Job(job)], ..new_job() };
    submit(&mut model, vec![NewJob { priority: Some(1), ..new_job() }]);
    submit(&mut model, vec![after(0)]);
    submit(&mut model, vec![after(1)]);
    assert_eq!(model.job(2).expect("known").effective_priority, 1);
    model.apply(&Command::Cancel { job: 0, reason: None, force: false });
    assert_eq!([1, 2].map(|job| state(&mut model, job)), ["cancelled", "cancelled"]);
    let requeue = |job| Command::Requeue { job, reset: true, run_at: None };
    assert_eq!(model.apply(&requeue(1)), refused("illegal_transition"));
    model.apply(&requeue(0));
    assert_eq!([0, 1, 2].map(|job| state(&mut model, job)), ["scheduled", "pending", "pending"]);
    claim(&mut model);
    settle(&mut model, 0, Outcome::Complete { result: None, progress: None });
    assert_eq!([1, 2].map(|job| state(&mut model, job)), ["scheduled", "pending"]);
}

#[test]
fn key_outlives_job_and_then_lapses() {
    let mut model = queue("gopherqueue", &[("idempotency.window", "20s"), ("retention.completed", "10s")]);
    let keyed = || vec![NewJob { idempotency_key: Some("k".to_owned()), ..new_job() }];
    let answer = |job, state: Option<&str>, duplicate| {
        Answer::Submitted(vec![Submitted { job, state: state.map(str::to_owned), duplicate }])
    };
    assert_eq!(submit(&mut model, keyed()), answer(Some(0), Some("scheduled"), false));
    assert_eq!(submit(&mut model, keyed()), answer(Some(0), Some("scheduled"), true));
    claim(&mut model);
    settle(&mut model, 0, Outcome::Complete { result: None, progress: None });
    model.advance(10_000);
    assert!(model.job(0).is_none());
    model.advance(9_999);
    assert_eq!(submit(&mut model, keyed()), answer(None, None, true));
    model.advance(1);
    assert_eq!(submit(&mut model, keyed()), answer(Some(1), Some("scheduled"), false));
}

#[test]
fn requeue_order_keeps_or_loses_position() {
    for (profile, order) in [("gopherqueue", [0, 1]), ("taskharbor", [1, 0])] {
        let mut model = queue(profile, &[]);
        submit(&mut model, vec![new_job()]);
        claim(&mut model);
        submit(&mut model, vec![new_job()]);
        settle(&mut model, 0, Outcome::Release);
        assert_eq!(claim(&mut model), order, "{profile}");
    }
}

#[test]
fn durations_in_and_out() {
    for (text, length) in
        [("1h15m5s", 4_505_000), ("3w2d", 23 * 86_400_000), ("500ms", 500), ("0s", 0), ("1m 30s", 90_000)]
    {
        assert_eq!(parse_duration(text), Some(length), "{text}");
    }
    for text in ["", "5", "1.5s", "-1s", "5y", "36501d", "s"] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
    assert_eq!(
        [4_505_000, 0, 300_000, 604_800_000, 1_500].map(show_duration),
        ["1h15m5s", "0s", "5m", "7d", "1s500ms"]
    );
}
