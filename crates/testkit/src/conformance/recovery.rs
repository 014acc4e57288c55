//! State in memory is rebuilt from the records: order, timers, unfinished operations.

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::JobId;
use longshore_core::limits::CASCADE_JOBS_MAX;
use longshore_core::patch::PolicyPatch;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_engine::{AdminCommand, AdminResponse, DeleteQueue, QueueDeleteMode};
use longshore_store::{JobFilter, JobRef};

pub(super) use super::filters::filters_survive_reopen;
use super::harness::*;

fn order(h: &Harness, name: &str) -> Vec<JobId> {
    h.claim_all(name).iter().map(|job| job.id).collect()
}

pub(super) fn queue_order_survives_reopen(h: &mut Harness) {
    for (name, profile) in [("tail", Profile::Taskharbor), ("submission", Profile::Standard)] {
        h.put_queue(name, profile);
        let jobs: Vec<JobId> = h.submit_all(name, vec![work(); 6]).iter().map(|job| job.id).collect();
        let claimed = h.claim_one(name);
        h.settle(&claimed, Outcome::Release).unwrap();
        h.reopen();
        let mut expected = jobs;
        if profile == Profile::Taskharbor {
            expected.rotate_left(1);
        }
        assert_eq!(order(h, name), expected, "{name}");
    }
}

pub(super) fn priorities_and_types_survive_reopen(h: &mut Harness) {
    let mut jobs = Vec::new();
    for (n, priority) in Priority::ALL.iter().rev().chain(Priority::ALL).enumerate() {
        let new = work_with(|job| {
            job.priority = *priority;
            job.job_type = job_type(if n % 2 == 0 { "even" } else { "odd" });
        });
        jobs.push((*priority, n, h.submit("q", new).id));
    }
    jobs.sort();
    h.reopen();
    let odd = longshore_engine::ClaimRequest { types: vec![job_type("odd")], ..request("q", 1) };
    let first_odd = jobs.iter().position(|(_, n, _)| n % 2 == 1).unwrap();
    assert_eq!(h.try_claim(odd).unwrap()[0].claimed.id, jobs.remove(first_odd).2);
    assert_eq!(order(h, "q"), jobs.iter().map(|(.., id)| *id).collect::<Vec<_>>());
}

const MINUTE: Duration = Duration::from_mins(1);

/// Starts a delay, a retry, a lease, a deadline and a lifetime, each in its own queue, all within a
/// minute.
fn five_timers(h: &Harness) -> [JobId; 5] {
    let half = Duration::from_secs(30);
    let with = |policy: PolicyPatch| work_with(|job| job.policy = policy);
    let delayed_one = h.submit("delayed", delayed(MINUTE)).id;
    let retried = h.run("retried", work(), fail(ReportedCategory::Temporary)).id;
    let lost = h.submit("lost", with(PolicyPatch { lease: Some(half), ..PolicyPatch::default() })).id;
    let slow = with(PolicyPatch { execution_timeout: Some(half), lease: Some(MINUTE), ..PolicyPatch::default() });
    let slow = h.submit("slow", slow).id;
    let outlived = with(PolicyPatch { lifetime: Some(half), ..PolicyPatch::default() });
    let outlived = h.submit("outlived", outlived).id;
    h.claim_one("lost");
    h.claim_one("slow");
    [delayed_one, retried, lost, slow, outlived]
}

const FIRED: [StateKind; 5] =
    [StateKind::Scheduled, StateKind::Scheduled, StateKind::Scheduled, StateKind::Scheduled, StateKind::DeadLetter];

pub(super) fn timers_survive_reopen(h: &mut Harness) {
    let jobs = five_timers(h);
    let next = h.tick_until_idle();
    h.reopen();
    assert_eq!(h.tick_until_idle(), next, "the same deadline as before");
    h.pass(Duration::from_millis(500));
    assert_eq!(h.state(jobs[1]), StateKind::Retrying, "nothing is early");
    h.pass(Duration::from_millis(29_499));
    assert_eq!((h.state(jobs[2]), h.state(jobs[3])), (StateKind::Running, StateKind::Running));
    h.pass(MINUTE);
    h.tick_until_idle();
    assert_eq!(jobs.map(|id| h.state(id)), FIRED);
    let due = h.job(jobs[0]).created_at + MINUTE;
    assert_eq!(h.job(jobs[0]).scheduled_at, Some(due), "at its instant");
}

pub(super) fn deadlines_passed_while_closed_are_processed(h: &mut Harness) {
    let jobs = five_timers(h);
    h.reopen_after(Duration::from_mins(2));
    h.tick_until_idle();
    assert_eq!(jobs.map(|id| h.state(id)), {
        // The run that timed out has just failed, and its retry is in the future.
        let mut fired = FIRED;
        fired[3] = StateKind::Retrying;
        fired
    });
    h.pass(MINUTE);
    h.tick_until_idle();
    assert_eq!(jobs.map(|id| h.state(id)), FIRED);
}

pub(super) fn dependencies_survive_reopen(h: &mut Harness) {
    let (first, second) = (h.submit("q", work()), h.submit("q", work()));
    let both = h.submit("later", after(&[first.id, second.id]));
    let last = h.submit("later", after(&[both.id]));
    for _ in 0..2 {
        h.reopen();
        assert_eq!(h.state(both.id), StateKind::Pending);
        let claimed = h.claim_one("q");
        h.settle(&claimed, complete()).unwrap();
        h.tick_until_idle();
    }
    h.reopen();
    assert_eq!((h.state(both.id), h.state(last.id)), (StateKind::Scheduled, StateKind::Pending));
    h.admin(super::admin::cancel(both.id, Force::Now));
    h.reopen();
    h.tick_until_idle();
    assert_eq!(h.state(last.id), StateKind::Cancelled);
}

pub(super) fn needed_records_survive_retention(h: &mut Harness) {
    let needed = h.run("q", work(), complete());
    let dependent = h.submit(
        "q",
        work_with(|job| {
            job.hold = Some(true);
            job.after = after(&[needed.id]).after;
        }),
    );
    h.reopen_after(Duration::from_days(8));
    h.tick_until_idle();
    assert!(h.find(JobRef::Id(needed.id)).is_some(), "past its retention, and needed");
    h.admin(super::admin::cancel(dependent.id, Force::Now));
    h.reopen();
    h.tick_until_idle();
    assert!(h.find(JobRef::Id(needed.id)).is_none());
}

pub(super) fn retention_survives_reopen(h: &mut Harness) {
    let job = h.run("q", work(), complete());
    h.reopen();
    assert_eq!(h.tick_until_idle(), Some(h.now() + Duration::from_days(7)));
    h.reopen_after(Duration::from_millis(Duration::from_days(7).as_millis() - 1));
    h.tick_until_idle();
    assert!(h.find(JobRef::Id(job.id)).is_some());
    h.pass(Duration::from_millis(1));
    h.tick_until_idle();
    assert_eq!((h.find(JobRef::Id(job.id)), h.payload(job.seq)), (None, None));
    h.reopen();
    assert_eq!(h.count("q", StateKind::Completed), 0);
}

pub(super) fn lazily_reclaimable_job_survives_reopen(h: &mut Harness) {
    h.put_queue("q", Profile::Weave);
    let job = h.submit("q", work());
    let claimed = h.claim_one("q");
    h.pass(claimed.expires_at.unwrap().since(h.now()));
    h.tick_until_idle();
    h.reopen();
    h.tick_until_idle();
    assert_eq!(h.state(job.id), StateKind::Running);
    let taken = h.claim_one("q");
    assert_eq!((taken.id, taken.version.0), (job.id, 2));
}

/// An end with more dependents than one command propagates to, and a reopen before the rest.
pub(super) fn propagation_resumes_after_reopen(h: &mut Harness) {
    let first = h.submit("q", work());
    for some in [CASCADE_JOBS_MAX, 500] {
        h.submit_all("later", vec![after(&[first.id]); some]);
    }
    let claimed = h.claim_one("q");
    h.settle(&claimed, complete()).unwrap();
    h.reopen();
    h.tick(100);
    h.reopen();
    h.tick_until_idle();
    assert_eq!(h.count("later", StateKind::Scheduled), CASCADE_JOBS_MAX as u64 + 500);
}

pub(super) fn queue_deletion_resumes_after_reopen(h: &mut Harness) {
    for some in [CASCADE_JOBS_MAX, 500] {
        h.submit_all("q", vec![work(); some]);
    }
    let how = DeleteQueue::Force(QueueDeleteMode::Cancel);
    h.admin(AdminCommand::DeleteQueue { queue: queue("q"), how });
    h.reopen();
    assert!(answered(h.store().queue(queue("q"))).is_none(), "invisible from the response on");
    assert!(h.claim("q", 1).is_empty());
    h.tick(100);
    h.reopen();
    h.tick_until_idle();
    let cancelled = JobFilter { states: StateKind::Cancelled.into(), ..JobFilter::default() };
    assert_eq!(h.list(&cancelled).len(), CASCADE_JOBS_MAX + 500);
    h.submit("q", work());
    assert_eq!(h.count("q", StateKind::Cancelled), CASCADE_JOBS_MAX as u64 + 500, "of the old queue");
}

pub(super) fn revived_and_cloned_jobs_survive_reopen(h: &mut Harness) {
    let first = h.submit("q", work());
    let second = h.submit("q", after(&[first.id]));
    h.admin(super::admin::cancel(first.id, Force::Now));
    h.tick_until_idle();
    h.reopen();
    h.admin(super::admin::requeue(first.id));
    h.tick_until_idle();
    assert_eq!(h.state(second.id), StateKind::Pending, "revived by what ended it");
    h.put_queue("weave", Profile::Weave);
    let original = h.run("weave", work(), fail(ReportedCategory::Permanent));
    h.reopen();
    let AdminResponse::State { id, .. } = h.admin(super::admin::requeue(original.id)) else { panic!("no state") };
    h.reopen();
    assert_eq!(h.job(id).requeued_from, Some(original.id));
    assert_eq!(h.job(original.id).requeued_as, Some(id));
    h.refused("illegal_transition", "only once", |h| h.try_admin(super::admin::requeue(original.id)));
    let claimed = h.try_claim(request("weave", 1)).unwrap().remove(0);
    assert_eq!((claimed.claimed.id, claimed.payload), (id, work().payload));
}
