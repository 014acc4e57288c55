//! Properties of the engine that neutral commands cannot show: bytes, ids, effects, and costs.

use bytes::Bytes;
use longshore_core::Duration;
use longshore_core::QueueChange;
use longshore_core::backoff::BackoffKind;
use longshore_core::claim::ClaimOptions;
use longshore_core::edit::Edit;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::id::{JobId, JobType};
use longshore_core::patch::{PolicyPatch, RetryPatch, SettingsPatch};
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob, Payload};
use longshore_engine::{
    AdminCommand, AdminResponse, ClaimRequest, Command, DeleteQueue, Effect, QueueDeleteMode, Response, count_of,
};
use longshore_testkit::engine_fixture::{EngineFixture, clone_requeue, fail, job, queue};

/// Proves G-9.1, G-9.4, G-9.5, O-4, O-18, L-52, L-54.
#[test]
fn payload_bytes_never_change() {
    let odd: Vec<u8> = (0..=255).rev().collect();
    let json = Bytes::from_static(b"{\"a\":1.50, \"a\":1e3 , \"n\":12345678901234567890123}");
    for profile in Profile::ALL {
        let mut world = EngineFixture::new();
        world.put_queue("q", *profile, SettingsPatch::default());
        let held = |mut job: NewJob| {
            job.hold = Some(false);
            job
        };
        let binary = world.submit("q", held(job(&odd)));
        let mut text = held(job(b""));
        text.payload = Payload::Json(json.clone());
        let text = world.submit("q", text);
        let edit = Edit { correlation_id: Some(Some("c".into())), ..Edit::default() };
        world.admin(AdminCommand::Edit { id: binary.id, edit });
        let claimed = world.claim("q");
        assert_eq!((claimed.id, claimed.seq), (binary.id, binary.seq), "the claim identifies the job");
        world.settle(&claimed, fail());
        world.pass(Duration::from_hours(2));
        assert_eq!(world.payload(text.seq), Some(json.clone()), "{profile}");
        if world.state(binary.id).is_some() {
            assert_eq!(world.payload(binary.seq), Some(Bytes::from(odd.clone())), "{profile}");
        }
    }
}

#[test]
fn clone_keeps_payload_after_original_is_deleted() {
    let mut world = EngineFixture::new();
    world.put_queue("q", Profile::Weave, SettingsPatch::default());
    let first = world.submit("q", job(b"work"));
    let claimed = world.claim("q");
    world.settle(&claimed, Outcome::Fail(ReportedFailure::new(ReportedCategory::Permanent, "no")));
    let AdminResponse::State { id, .. } = world.admin(AdminCommand::Requeue { id: first.id, how: clone_requeue() })
    else {
        panic!()
    };
    world.admin(AdminCommand::Delete { id: first.id });
    let again = world.claim("q");
    assert_eq!(again.id, id);
    assert_eq!(world.payload(again.seq), Some(Bytes::from_static(b"work")));
    assert_eq!(world.payload(first.seq), None, "nothing is left of the original");
}

/// Proves G-7.6, G-7.3, G-7.5.
#[test]
fn attempts_link_to_previous_attempt() {
    let mut world = EngineFixture::new();
    world.put_queue("q", Profile::Gopherqueue, SettingsPatch::default());
    let id = world.submit("q", job(b"")).id;
    let mut previous = None;
    let mut seen = std::collections::HashSet::new();
    for number in 1..=3 {
        let claimed = world.claim("q");
        assert_eq!((claimed.id, claimed.attempt), (id, number));
        assert_eq!(claimed.previous_attempt_id, previous);
        assert!(seen.insert(claimed.attempt_id.unwrap()), "an attempt's id never repeats");
        previous = claimed.attempt_id;
        world.settle(&claimed, fail());
        world.pass(Duration::from_mins(1));
    }
    assert_eq!(world.state(id), Some(StateKind::DeadLetter));
    // A snooze does not count the attempt: its number repeats, its id does not.
    let AdminResponse::State { .. } = world.admin(AdminCommand::Requeue { id, how: clone_requeue() }) else { panic!() };
    let first = world.claim("q");
    world.settle(&first, Outcome::Release);
    let second = world.claim("q");
    assert_eq!((first.attempt, second.attempt), (1, 1));
    assert_ne!(first.attempt_id, second.attempt_id);
    assert_eq!(second.previous_attempt_id, first.attempt_id);
}

/// Proves G-1.1, G-1.3, G-1.4, G-10.1.
#[test]
fn id_is_generated_and_never_changes() {
    let mut world = EngineFixture::new();
    let submitted = world.submit("q", job(b""));
    for _ in 0..2 {
        let claimed = world.claim("q");
        assert_eq!(claimed.id, submitted.id);
        world.settle(&claimed, fail());
        world.pass(Duration::from_mins(1));
    }
    let claimed = world.claim("q");
    world.settle(&claimed, Outcome::Complete { result: None, progress: None });
    let record = world.records.job(submitted.seq).unwrap();
    assert_eq!((record.id, record.kind()), (submitted.id, StateKind::Completed));
}

/// Trap O-T10: a retry never returns to a deleted queue.
#[test]
fn deleted_queue_lets_running_jobs_finish() {
    let mut world = EngineFixture::new();
    let retries =
        PolicyPatch { retry: RetryPatch { limit: Some(3), ..RetryPatch::default() }, ..PolicyPatch::default() };
    world.put_queue("q", Profile::Ocypod, SettingsPatch { job: retries, ..SettingsPatch::default() });
    let [waits, runs, retries] = [0; 3].map(|_| world.submit("q", job(b"")).id);
    let claims = world.claim_many("q", 3);
    world.settle(&claims[0], Outcome::Release);
    world.settle(&claims[2], fail());
    let how = DeleteQueue::Force(QueueDeleteMode::LetRunningFinish);
    assert_eq!(world.admin(AdminCommand::DeleteQueue { queue: queue("q"), how }), AdminResponse::Done);
    assert!(world.engine.queue(&queue("q")).is_none());
    assert_eq!(world.state(waits), None, "waiting jobs go with the queue");
    assert_eq!(world.state(retries), Some(StateKind::Failed), "a waiting retry ends as the failure it was");
    assert_eq!(world.state(runs), Some(StateKind::Running));
    world.settle(&claims[1], fail());
    assert_eq!(world.state(runs), Some(StateKind::Failed), "no retry into a queue that is gone");
    let record = world.records.job_by_id(runs).unwrap();
    assert_eq!(record.history.transitions().last().unwrap().cause.as_str(), "queue_deleted");
}

#[test]
fn effects_report_every_transition_once_in_order() {
    let mut world = EngineFixture::new();
    let id = world.submit("q", job(b"")).id;
    let claimed = world.claim("q");
    world.settle(&claimed, Outcome::Complete { result: None, progress: None });
    let moves: Vec<String> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Moved { id: moved, step, .. } if *moved == id => Some(format!("{}:{}", step.to, step.cause)),
            Effect::Moved { .. } | Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => None,
        })
        .collect();
    assert_eq!(moves, ["pending:create", "scheduled:submit", "running:claim", "completed:complete"]);
    world.effects.clear();
    world.settle(&claimed, Outcome::Complete { result: None, progress: None });
    assert_eq!(world.effects, [], "a repeated settlement moves nothing");
    world.admin(AdminCommand::PauseQueue { queue: queue("q") });
    world.admin(AdminCommand::ResumeQueue { queue: queue("q") });
    let (name, at) = (queue("q"), world.now);
    let change = |change| Effect::Queue { name: name.clone(), change, at };
    let resumed = [change(QueueChange::Paused), change(QueueChange::Resumed), Effect::Claimable(name.clone())];
    assert_eq!(world.effects, resumed);
}

/// A chain of 100 ends in one cascade, and the last dependency of 1,000 releases the dependent.
#[test]
fn cascades_are_deep_and_wide() {
    let mut world = EngineFixture::new();
    let mut chain = vec![world.submit("q", job(b"")).id];
    for _ in 1..100 {
        let mut next = job(b"");
        next.after = vec![DependencyRef::Job(*chain.last().unwrap())];
        chain.push(world.submit("q", next).id);
    }
    world.admin(AdminCommand::DeadLetter { id: chain[0], reason: None });
    assert!(chain.iter().all(|id| world.state(*id) == Some(StateKind::DeadLetter)));

    let members: Vec<JobId> = (0..1_000).map(|_| world.submit("q", job(b"")).id).collect();
    let mut last = job(b"");
    last.after = members.iter().map(|id| DependencyRef::Job(*id)).collect();
    let last = world.submit("q", last).id;
    for claimed in world.claim_many("q", 1_000) {
        assert_eq!(world.state(last), Some(StateKind::Pending));
        world.settle(&claimed, Outcome::Complete { result: None, progress: None });
    }
    assert_eq!(world.state(last), Some(StateKind::Scheduled));
}

/// Proves G-5.9.
#[test]
fn custom_backoff_computes_every_delay() {
    fn square(n: u32, base: Duration, _: Option<Duration>) -> Duration {
        Duration::from_millis(base.as_millis() * u64::from(n) * u64::from(n))
    }
    let kind = BackoffKind::Custom(longshore_core::backoff::CustomBackoff { name: "square", delay: square });
    let retry = RetryPatch { backoff_kind: Some(kind), limit: Some(4), ..RetryPatch::default() };
    let patch = PolicyPatch { retry, ..PolicyPatch::default() };
    let mut world = EngineFixture::new();
    world.put_queue("q", Profile::Gopherqueue, SettingsPatch { job: patch, ..SettingsPatch::default() });
    let id = world.submit("q", job(b"")).id;
    for wait in [1, 4, 9] {
        let claimed = world.claim("q");
        world.settle(&claimed, fail());
        let until = world.records.job_by_id(id).unwrap().state.run_at().unwrap();
        assert_eq!(until.since(world.now), Duration::from_secs(wait));
        world.pass(Duration::from_secs(wait));
    }
}

#[test]
fn counts_are_kept_by_increments() {
    let mut world = EngineFixture::new();
    for _ in 0..5 {
        world.submit("q", job(b""));
    }
    let claimed = world.claim_many("q", 2);
    world.settle(&claimed[0], Outcome::Complete { result: None, progress: None });
    let counts = world.engine.counts(&queue("q"));
    let expected = [(StateKind::Scheduled, 3), (StateKind::Running, 1), (StateKind::Completed, 1)];
    for state in StateKind::ALL {
        let number = expected.iter().find(|(kind, _)| kind == state).map_or(0, |(_, number)| *number);
        assert_eq!(count_of(&counts, *state), number, "{state}");
    }
}

/// A claim for one type does not read jobs of other types.
#[test]
fn claim_of_rare_type_reads_only_claimed_jobs() {
    let mut world = EngineFixture::new();
    for _ in 0..5_000 {
        world.submit("q", job(b""));
    }
    let rare = JobType::new("rare").unwrap();
    let mut rare_job = job(b"");
    rare_job.job_type = rare.clone();
    let rare_job = world.submit("q", rare_job).id;
    world.effects.clear();
    let request =
        ClaimRequest { queues: vec![queue("q")], limit: 10, types: vec![rare], terms: ClaimOptions::default() };
    let Response::Claimed(Ok(jobs)) = world.apply(Command::Claim(request)) else { panic!() };
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [rare_job]);
    assert_eq!(world.effects.len(), 1);
}

/// `standard` spreads its retries by a tenth in both directions.
#[test]
fn standard_retries_are_spread() {
    let mut world = EngineFixture::new();
    let mut delays = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let id = world.submit("q", job(b"")).id;
        let claimed = world.claim("q");
        world.settle(&claimed, fail());
        let until = world.records.job_by_id(id).unwrap().state.run_at().unwrap();
        delays.insert(until.since(world.now).as_millis());
    }
    assert!(delays.iter().all(|millis| (900..=1_100).contains(millis)), "{delays:?}");
    assert!(delays.len() > 20 && delays.first() < Some(&950) && delays.last() > Some(&1_050), "{delays:?}");
}

/// A store prefetches by it.
#[test]
fn peek_ready_predicts_claims() {
    let types = ["a", "b", "c"].map(|name| JobType::new(name).unwrap());
    for priority_order in [true, false] {
        let mut world = EngineFixture::new();
        let overrides = SettingsPatch { priority_order: Some(priority_order), ..SettingsPatch::default() };
        world.put_queue("q", Profile::Standard, overrides);
        for n in 0..60_usize {
            let mut job = job(b"");
            (job.job_type, job.priority) = (types[n * 7 % 3].clone(), Priority::ALL[n * 11 % 5]);
            world.submit("q", job);
        }
        for asked in [vec![], vec![0], vec![2, 0], vec![1, 1]] {
            let types: Vec<JobType> = asked.into_iter().map(|n| types[n].clone()).collect();
            let expected = world.engine.peek_ready(&queue("q"), &types, 7);
            let request = ClaimRequest { queues: vec![queue("q")], limit: 7, types, terms: ClaimOptions::default() };
            let Response::Claimed(Ok(claimed)) = world.apply(Command::Claim(request)) else { panic!() };
            assert_eq!(claimed.iter().map(|job| job.seq).collect::<Vec<_>>(), expected);
            assert_eq!(expected.len(), 7);
        }
        world.admin(AdminCommand::PauseQueue { queue: queue("q") });
        assert_eq!(world.engine.peek_ready(&queue("q"), &[], 7), [], "a paused queue has no claimable jobs");
    }
}
