//! Work runs in slices. Commands and restarts between two slices must not change the result.

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::edit::Edit;
use longshore_core::id::{JobId, JobType};
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob};
use longshore_engine::{
    AdminCommand, ClaimRequest, Command, DeleteQueue, Effect, Engine, EngineOptions, QueueDeleteMode, Response,
    Submission, SubmitRequest,
};
use longshore_testkit::engine_fixture::{EngineFixture, clone_requeue, job, queue};

fn one_at_a_time() -> EngineFixture {
    EngineFixture::with(EngineOptions { cascade_jobs_max: 1, ..EngineOptions::default() })
}

fn after(ids: &[JobId]) -> NewJob {
    let mut new = job(b"");
    new.after = ids.iter().map(|id| DependencyRef::Job(*id)).collect();
    new
}

fn after_any(ids: &[JobId]) -> NewJob {
    let mut new = job(b"");
    new.after_any = ids.iter().map(|id| DependencyRef::Job(*id)).collect();
    new
}

fn complete() -> Outcome {
    Outcome::Complete { result: None, progress: None }
}

fn cancel(id: JobId) -> AdminCommand {
    AdminCommand::Cancel { id, reason: None, force: Force::Now }
}

fn requeue(id: JobId) -> AdminCommand {
    AdminCommand::Requeue { id, how: clone_requeue() }
}

/// Restarts the engine: only its records remain.
fn restart(world: &mut EngineFixture) {
    let mut ended = std::collections::BTreeMap::new();
    for job in world.records.jobs().filter(|job| !job.is_live()) {
        *ended.entry((job.queue.clone(), job.kind())).or_default() += 1;
    }
    let ended = ended.into_iter().map(|((queue, state), jobs)| (queue, state, jobs));
    let (queues, live) = (world.records.queues().cloned(), world.records.jobs().filter(|job| job.is_live()));
    world.engine = Engine::rebuild(world.engine.options(), queues, live, ended, world.engine.next_seq());
}

fn moves(world: &EngineFixture) -> usize {
    world.effects.iter().filter(|effect| matches!(effect, Effect::Moved { .. })).count()
}

/// Makes two jobs that depend on `first`, and one that depends on `first` and `second`.
fn family(world: &mut EngineFixture) -> (JobId, JobId, JobId) {
    let first = world.submit("q", job(b"")).id;
    let second = world.submit("elsewhere", job(b"")).id;
    let both = world.submit("p", after(&[first, second])).id;
    world.submit("p", after(&[first]));
    world.submit("p", after(&[first]));
    (first, second, both)
}

#[test]
fn restart_during_cascade_propagates_once() {
    let mut world = one_at_a_time();
    let (_, _, both) = family(&mut world);
    let claimed = world.claim("q");
    world.settle(&claimed, complete());
    restart(&mut world);
    world.pass(Duration::ZERO);
    assert_eq!(world.state(both), Some(StateKind::Pending), "the second has not completed");
    let counts = world.engine.counts(&queue("p"));
    assert_eq!(longshore_engine::count_of(&counts, StateKind::Scheduled), 2, "the others were released");
}

#[test]
fn submit_or_requeue_between_slices_propagates_once() {
    let mut world = one_at_a_time();
    let (first, second, _) = family(&mut world);
    let cancelled = world.submit("p", after(&[first, second])).id;
    world.admin(cancel(cancelled));
    let claimed = world.claim("q");
    world.settle(&claimed, complete());
    let late = world.submit("p", after(&[first, second])).id;
    world.admin(requeue(cancelled));
    world.pass(Duration::ZERO);
    assert_eq!(world.state(late), Some(StateKind::Pending));
    assert_eq!(world.state(cancelled), Some(StateKind::Pending));
}

#[test]
fn first_end_decides_after_restart() {
    let mut world = one_at_a_time();
    let (late, early) = (world.submit("q", job(b"")).id, world.submit("q", job(b"")).id);
    for _ in 0..3 {
        world.submit("p", after(&[early]));
    }
    let both = world.submit("p", after(&[late, early])).id;
    world.admin(AdminCommand::DeadLetter { id: early, reason: None });
    world.now = world.now + Duration::from_secs(1);
    world.admin(cancel(late));
    restart(&mut world);
    world.pass(Duration::ZERO);
    assert_eq!(world.state(both), Some(StateKind::DeadLetter));
}

#[test]
fn requeue_between_slices_reaches_all_dependents() {
    let mut world = one_at_a_time();
    let first = world.submit("q", job(b"")).id;
    let any: Vec<JobId> = (0..3).map(|_| world.submit("p", after_any(&[first])).id).collect();
    let strict: Vec<JobId> = (0..3).map(|_| world.submit("p", after(&[first])).id).collect();
    world.admin(cancel(first));
    world.admin(requeue(first));
    restart(&mut world);
    world.pass(Duration::ZERO);
    assert!(any.iter().all(|id| world.state(*id) == Some(StateKind::Scheduled)), "one end is enough, for good");
    assert!(strict.iter().all(|id| world.state(*id) == Some(StateKind::Pending)), "these wait for it again");
}

#[test]
fn completion_before_full_revival_reaches_all_dependents() {
    let mut world = one_at_a_time();
    let first = world.submit("q", job(b"")).id;
    let strict: Vec<JobId> = (0..5).map(|_| world.submit("p", after(&[first])).id).collect();
    world.admin(cancel(first));
    world.pass(Duration::ZERO);
    assert!(strict.iter().all(|id| world.state(*id) == Some(StateKind::Cancelled)));
    world.admin(requeue(first));
    let claimed = world.claim("q");
    world.settle(&claimed, complete());
    world.pass(Duration::ZERO);
    assert!(strict.iter().all(|id| world.state(*id) == Some(StateKind::Scheduled)));
}

#[test]
fn command_changes_bounded_number_of_jobs() {
    let mut world = EngineFixture::with(EngineOptions { cascade_jobs_max: 100, ..EngineOptions::default() });
    let first = world.submit("q", job(b"")).id;
    for _ in 0..500 {
        world.submit("p", after(&[first]));
    }
    for command in [cancel(first), requeue(first)] {
        world.effects.clear();
        world.admin(command);
        assert!(moves(&world) <= 101, "{} moves", moves(&world));
        world.pass(Duration::ZERO);
        assert_eq!(moves(&world), 501, "and the ticks do the rest, each with its effect");
    }
}

#[test]
fn tick_respects_budget_and_reserves_some_for_timers() {
    let mut world = one_at_a_time();
    let first = world.submit("q", job(b"")).id;
    for _ in 0..500 {
        world.submit("p", after(&[first]));
    }
    let mut delayed = job(b"");
    delayed.start = longshore_core::submit::Start::In(Duration::from_secs(1));
    let delayed = world.submit("elsewhere", delayed).id;
    world.admin(cancel(first));
    world.now = world.now + Duration::from_secs(1);
    world.effects.clear();
    let ticked = world.tick(100);
    assert!(moves(&world) <= 100 && ticked.done >= 70, "{} moves, {ticked:?}", moves(&world));
    assert_eq!(world.state(delayed), Some(StateKind::Scheduled), "what is due elsewhere does not wait for the cascade");
}

#[test]
fn delete_succeeds_after_last_propagation() {
    let mut world = EngineFixture::new();
    let first = world.submit("q", job(b"")).id;
    for _ in 0..1_000 {
        world.submit("p", after(&[first]));
    }
    world.admin(cancel(first));
    world.pass(Duration::ZERO);
    world.admin(AdminCommand::Delete { id: first });
    assert_eq!(world.state(first), None);
}

#[test]
fn queue_deletion_removes_jobs_with_many_dependents() {
    let mut world = one_at_a_time();
    world.put_queue("q", Profile::Ocypod, SettingsPatch::default());
    let first = world.submit("q", job(b"")).id;
    for _ in 0..5 {
        world.submit("p", after(&[first]));
    }
    let how = DeleteQueue::Force(QueueDeleteMode::LetRunningFinish);
    world.admin(AdminCommand::DeleteQueue { queue: queue("q"), how });
    world.pass(Duration::ZERO);
    assert_eq!(world.state(first), None);
}

#[test]
fn no_job_returns_to_deleted_queue() {
    let snooze = Outcome::Snooze { delay: Duration::from_secs(1) };
    for outcome in [Some(Outcome::Release), Some(snooze), None] {
        for profile in [Profile::Standard, Profile::Weave, Profile::Ocypod] {
            let mut world = EngineFixture::new();
            world.put_queue("q", profile, SettingsPatch::default());
            let id = world.submit("q", job(b"")).id;
            let claimed = world.claim("q");
            let how = DeleteQueue::Force(QueueDeleteMode::LetRunningFinish);
            world.admin(AdminCommand::DeleteQueue { queue: queue("q"), how });
            match &outcome {
                Some(outcome) => drop(world.settle(&claimed, outcome.clone())),
                None => world.pass(Duration::from_mins(5)),
            }
            let record = world.records.job_by_id(id);
            assert!(record.is_none_or(|job| job.state.terminal()), "{profile} {outcome:?}: {:?}", world.state(id));
        }
    }
}

#[test]
fn refused_claim_leases_nothing() {
    let mut world = EngineFixture::with(EngineOptions { auto_queues: false, ..EngineOptions::default() });
    world.put_queue("a", Profile::Standard, SettingsPatch::default());
    world.submit("a", job(b""));
    let before = world.engine.clone();
    let queues = vec![queue("a"), queue("missing")];
    let request = ClaimRequest { queues, limit: 10, types: Vec::new(), terms: ClaimOptions::default() };
    let Response::Claimed(Err(refusal)) = world.apply(Command::Claim(request)) else { panic!("it must be refused") };
    assert_eq!(refusal.code(), "queue_not_found");
    assert_eq!(world.engine, before);
    let batch = vec![Submission { queue: queue("missing"), job: job(b"") }];
    let Response::Submitted(Err(refused)) = world.apply(Command::Submit(SubmitRequest::new(batch))) else { panic!() };
    assert_eq!(refused.first.code(), "queue_not_found", "without auto queues nothing is made up");
}

#[test]
fn index_outside_batch_is_unknown_dependency() {
    let mut world = EngineFixture::new();
    let mut lost = job(b"");
    lost.after = vec![DependencyRef::BatchIndex(7)];
    let batch = vec![Submission { queue: queue("q"), job: lost }];
    let Response::Submitted(Err(refused)) = world.apply(Command::Submit(SubmitRequest::new(batch))) else { panic!() };
    assert_eq!(refused.first.code(), "dependency_unknown");
}

#[test]
fn changed_type_wakes_matching_claims() {
    let mut world = EngineFixture::new();
    let id = world.submit("q", job(b"")).id;
    world.effects.clear();
    world.admin(AdminCommand::Edit { id, edit: Edit { job_type: JobType::new("other").ok(), ..Edit::default() } });
    assert_eq!(world.effects, [Effect::Claimable(queue("q"))]);
}

#[test]
fn reclaimable_orphan_wakes_queue() {
    let mut world = EngineFixture::new();
    world.put_queue("q", Profile::Weave, SettingsPatch::default());
    world.submit("q", job(b""));
    world.claim("q");
    world.effects.clear();
    world.pass(Duration::from_secs(5));
    assert_eq!(world.effects, [Effect::Claimable(queue("q"))]);
}

/// A failed commit is rolled back completely.
#[test]
fn rollback_restores_engine() {
    let mut world = EngineFixture::new();
    let first = world.submit("q", job(b"")).id;
    world.submit("p", after(&[first]));
    let claimed = world.claim("q");
    let (engine, records) = (world.engine.clone(), world.records.clone());
    world.engine.begin();
    world.settle(&claimed, complete());
    world.submit("new", job(b""));
    world.admin(AdminCommand::PauseQueue { queue: queue("p") });
    world.admin(AdminCommand::DeleteQueue { queue: queue("new"), how: DeleteQueue::Force(QueueDeleteMode::Cancel) });
    world.engine.rollback();
    world.records = records;
    assert_eq!(world.engine, engine);
    world.settle(&claimed, complete());
    assert_eq!(world.state(first), Some(StateKind::Completed), "and it goes on from there");
}

#[test]
fn queue_deletion_in_any_slices_leaves_no_job() {
    for cascade_jobs_max in [1_000, 2, 1] {
        let mut world = EngineFixture::with(EngineOptions { cascade_jobs_max, ..EngineOptions::default() });
        let mut settings = SettingsPatch::default();
        settings.job.retention.cancelled = Some(Duration::ZERO);
        world.put_queue("q", Profile::Ocypod, settings);
        let first = world.submit("q", job(b"")).id;
        let second = world.submit("q", after(&[first])).id;
        world.submit("q", after(&[second]));
        let how = DeleteQueue::Force(QueueDeleteMode::LetRunningFinish);
        world.admin(AdminCommand::DeleteQueue { queue: queue("q"), how });
        world.pass(Duration::ZERO);
        assert_eq!(world.records.jobs().count(), 0, "at most {cascade_jobs_max} at a time");
    }
}
