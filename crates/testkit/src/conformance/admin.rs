//! Commands of operators on queues and jobs.

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::edit::Edit;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::JobId;
use longshore_core::limits::CASCADE_JOBS_MAX;
use longshore_core::patch::{PolicyPatch, SettingsPatch};
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_engine::{AdminCommand, AdminResponse, DeleteQueue, QueueDeleteMode};
use longshore_store::{JobFilter, JobRef};

use super::harness::*;

fn put(name: &str, profile: Option<Profile>, overrides: Option<SettingsPatch>) -> AdminCommand {
    AdminCommand::PutQueue { queue: queue(name), profile, overrides: overrides.map(Box::new) }
}

fn delete_queue(name: &str, how: DeleteQueue) -> AdminCommand {
    AdminCommand::DeleteQueue { queue: queue(name), how }
}

fn lease(secs: u64) -> SettingsPatch {
    let job = PolicyPatch { lease: Some(Duration::from_secs(secs)), ..PolicyPatch::default() };
    SettingsPatch { job, ..SettingsPatch::default() }
}

fn state(id: JobId, state: StateKind) -> AdminResponse {
    AdminResponse::State { id, state }
}

pub(super) fn requeue(id: JobId) -> AdminCommand {
    AdminCommand::Requeue { id, how: Requeue { counters: Reset::Zero, run_at: None } }
}

pub(super) fn cancel(id: JobId, force: Force) -> AdminCommand {
    AdminCommand::Cancel { id, reason: None, force }
}

pub(super) fn put_queue_creates_queue(h: &mut Harness) {
    assert_eq!(h.admin(put("q", Some(Profile::Weave), None)), AdminResponse::QueuePut { created: true });
    let report = h.report("q");
    assert_eq!((report.queue.profile, report.queue.paused, report.oldest_scheduled_at), (Profile::Weave, false, None));
    assert_eq!(h.admin(put("q", None, None)), AdminResponse::QueuePut { created: false });
    assert_eq!(h.report("q").queue, report.queue, "nothing said, nothing changed");
    assert_eq!(h.admin(put("default", Some(Profile::Document), None)), AdminResponse::QueuePut { created: false });
    assert_eq!(h.report("default").queue.profile, Profile::Document);
}

pub(super) fn put_queue_replaces_settings(h: &mut Harness) {
    h.admin(put("q", None, Some(lease(7))));
    let old = h.submit("q", work());
    h.admin(put("q", None, None));
    assert_eq!(h.report("q").queue.overrides, lease(7), "kept");
    h.admin(put("q", None, Some(SettingsPatch { max_queued: Some(Some(5)), ..SettingsPatch::default() })));
    let queue = h.report("q").queue;
    assert_eq!((queue.admission.max_queued, queue.policy.lease), (Some(5), Some(Duration::from_secs(30))), "replaced");
    let new = h.submit("q", work());
    let lease_of = |id| h.job(id).policy.lease;
    assert_eq!(lease_of(old.id), Some(Duration::from_secs(7)), "jobs keep what they were made with");
    assert_eq!(lease_of(new.id), Some(Duration::from_secs(30)));
    h.admin(put("q", Some(Profile::Gopherqueue), None));
    assert_eq!(h.report("q").queue.overrides, SettingsPatch::default(), "another profile drops the overrides");
}

pub(super) fn pause_and_resume_queue(h: &mut Harness) {
    h.submit("q", work());
    let resume = || AdminCommand::ResumeQueue { queue: queue("q") };
    for _ in 0..2 {
        assert_eq!(h.admin(AdminCommand::PauseQueue { queue: queue("q") }), AdminResponse::Done);
        assert!(h.report("q").queue.paused);
    }
    h.admin(put("q", None, Some(lease(7))));
    assert!(h.report("q").queue.paused, "new settings do not resume it");
    for _ in 0..2 {
        assert_eq!(h.admin(resume()), AdminResponse::Done);
        assert!(!h.report("q").queue.paused);
    }
}

pub(super) fn delete_queue_with_live_jobs_requires_force(h: &mut Harness) {
    let done = h.run("q", work(), complete());
    let (running, waiting) = (h.submit("q", work()), h.submit("q", delayed(Duration::from_secs(9))));
    let claimed = h.claim_one("q");
    let gently = || delete_queue("q", DeleteQueue::IfEmpty);
    h.refused("illegal_transition", "living jobs", |h| h.try_admin(gently()));
    assert_eq!(h.admin(delete_queue("q", DeleteQueue::Force(QueueDeleteMode::Cancel))), AdminResponse::Done);
    assert!(answered(h.store().queue(queue("q"))).is_none());
    h.tick_until_idle();
    for id in [running.id, waiting.id] {
        let job = h.job(id);
        assert_eq!(job.kind(), StateKind::Cancelled);
        assert_eq!(job.error.as_ref().unwrap().code.as_deref(), Some("queue_deleted"));
    }
    assert_eq!(h.state(done.id), StateKind::Completed, "what ended stays readable");
    assert!(h.settle(&claimed, complete()).is_err());
    h.refused("queue_not_found", "it is gone", |h| h.try_admin(gently()));
    h.submit("q", work());
    assert_eq!(h.count("q", StateKind::Cancelled), 2, "of the same name, and counts what is left of the old one");
    h.run("empty", work(), complete());
    assert_eq!(h.admin(delete_queue("empty", DeleteQueue::IfEmpty)), AdminResponse::Done);
}

pub(super) fn delete_queue_runs_in_slices(h: &mut Harness) {
    let jobs = CASCADE_JOBS_MAX + 300;
    for some in [CASCADE_JOBS_MAX, 300] {
        h.submit_all("q", vec![work(); some]);
    }
    h.admin(delete_queue("q", DeleteQueue::Force(QueueDeleteMode::Cancel)));
    assert!(answered(h.store().queue(queue("q"))).is_none(), "invisible from the response on");
    assert!(h.claim("q", 10).is_empty());
    h.tick_until_idle();
    let cancelled = JobFilter { states: StateKind::Cancelled.into(), ..JobFilter::default() };
    assert_eq!(h.list(&cancelled).len(), jobs);
}

pub(super) fn delete_queue_lets_running_jobs_finish(h: &mut Harness) {
    let running = h.submit("q", work());
    let claimed = h.claim_one("q");
    let retrying = h.run("q", work(), fail(ReportedCategory::Temporary));
    let waiting = h.submit("q", work());
    h.admin(delete_queue("q", DeleteQueue::Force(QueueDeleteMode::LetRunningFinish)));
    h.tick_until_idle();
    assert_eq!(h.find(JobRef::Id(waiting.id)), None);
    assert_eq!(h.payload(waiting.seq), None);
    assert_eq!((h.state(running.id), h.state(retrying.id)), (StateKind::Running, StateKind::Failed));
    assert_eq!(h.settle(&claimed, complete()), Ok(StateKind::Completed));
}

pub(super) fn submit_held_job(h: &mut Harness) {
    let job = h.submit("q", work_with(|job| job.hold = Some(true)));
    assert_eq!(job.state, Some(StateKind::Pending));
    assert!(h.claim("q", 1).is_empty());
    let submit = || AdminCommand::SubmitHeld { id: job.id };
    assert_eq!(h.admin(submit()), state(job.id, StateKind::Scheduled));
    h.refused("illegal_transition", "once", |h| h.try_admin(submit()));
    assert_eq!(h.claim_one("q").id, job.id);
}

pub(super) fn cancel_waiting_job(h: &mut Harness) {
    let job = h.submit("q", work());
    let dependent = h.submit("q", after(&[job.id]));
    let reason = Some("not needed".to_owned());
    let answer = h.admin(AdminCommand::Cancel { id: job.id, reason, force: Force::ByPolicy });
    assert_eq!(answer, state(job.id, StateKind::Cancelled));
    assert_eq!(&*h.job(job.id).error.as_ref().unwrap().message, "not needed");
    h.tick_until_idle();
    assert_eq!(h.state(dependent.id), StateKind::Cancelled);
    assert!(h.claim("q", 1).is_empty());
    h.refused("illegal_transition", "again", |h| h.try_admin(cancel(job.id, Force::Now)));
}

pub(super) fn cancel_running_job_cooperatively(h: &mut Harness) {
    let asked = h.submit("q", work());
    let first = h.claim_one("q");
    assert_eq!(h.admin(cancel(asked.id, Force::ByPolicy)), AdminResponse::CancelRequested);
    assert!(h.job(asked.id).state.lease().unwrap().cancel_requested.is_some());
    assert_eq!(h.settle(&first, fail(ReportedCategory::Temporary)), Ok(StateKind::Cancelled));
    let forced = h.submit("q", work());
    let second = h.claim_one("q");
    assert_eq!(h.admin(cancel(forced.id, Force::Now)), state(forced.id, StateKind::Cancelled));
    h.refused("stale_lease", "the lease is revoked", |h| h.settle(&second, complete()));
}

pub(super) fn requeue_in_place(h: &mut Harness) {
    let job = h.run("q", work(), fail(ReportedCategory::Permanent));
    let first_in_line = h.submit("q", work());
    assert_eq!(h.admin(requeue(job.id)), state(job.id, StateKind::Scheduled));
    let stored = h.job(job.id);
    assert_eq!((stored.counters.starts, stored.lease_version.0, &stored.error), (0, 1, &None));
    let claimed = h.claim_one("q");
    assert_eq!((claimed.id, claimed.version.0), (job.id, 2), "in its old place");
    assert_eq!(h.claim_one("q").id, first_in_line.id);
    h.settle(&claimed, complete()).unwrap();
    h.refused("illegal_transition", "completed is final", |h| h.try_admin(requeue(job.id)));
}

pub(super) fn requeue_as_clone(h: &mut Harness) {
    h.put_queue("q", Profile::Weave);
    let original = h.run("q", work_with(|job| job.external_id = Some("x".into())), fail(ReportedCategory::Permanent));
    let AdminResponse::State { id, state } = h.admin(requeue(original.id)) else { panic!("no state") };
    assert!(id != original.id && state == StateKind::Scheduled);
    let clone = h.job(id);
    assert_eq!((clone.requeued_from, &clone.external_id), (Some(original.id), &None));
    assert_eq!(h.job(original.id).requeued_as, Some(id));
    assert_eq!(h.payload(clone.seq), Some(work().payload));
    h.refused("illegal_transition", "only once", |h| h.try_admin(requeue(original.id)));
    h.admin(AdminCommand::Delete { id: original.id });
    let claimed = h.try_claim(request("q", 1)).unwrap().remove(0);
    assert_eq!((claimed.claimed.id, claimed.payload), (id, work().payload), "it needs its original no more");
}

pub(super) fn requeue_revives_dependents(h: &mut Harness) {
    let first = h.submit("q", work());
    let second = h.submit("q", after(&[first.id]));
    let third = h.submit("q", after(&[second.id]));
    h.admin(cancel(first.id, Force::Now));
    h.tick_until_idle();
    assert_eq!((h.state(second.id), h.state(third.id)), (StateKind::Cancelled, StateKind::Cancelled));
    h.admin(requeue(first.id));
    h.tick_until_idle();
    assert_eq!((h.state(second.id), h.state(third.id)), (StateKind::Pending, StateKind::Pending));
    for expected in [first.id, second.id, third.id] {
        let claimed = h.claim_one("q");
        assert_eq!(claimed.id, expected);
        h.settle(&claimed, complete()).unwrap();
        h.tick_until_idle();
    }
}

pub(super) fn dead_letter_job(h: &mut Harness) {
    let job = h.submit("q", work());
    let bury = || AdminCommand::DeadLetter { id: job.id, reason: Some("poison".to_owned()) };
    assert_eq!(h.admin(bury()), state(job.id, StateKind::DeadLetter));
    assert_eq!(h.job(job.id).error.as_ref().unwrap().code.as_deref(), Some("dead_letter"));
    h.refused("illegal_transition", "once", |h| h.try_admin(bury()));
    h.pass(Duration::from_days(400));
    assert_eq!(h.state(job.id), StateKind::DeadLetter, "kept for a person to see");
}

pub(super) fn run_delayed_job_now(h: &mut Harness) {
    let job = h.submit("q", delayed(Duration::from_days(30)));
    let hurry = || AdminCommand::RunNow { id: job.id };
    assert_eq!(h.admin(hurry()), state(job.id, StateKind::Scheduled));
    assert_eq!(h.tick(1).next, None, "its timer is gone");
    h.refused("illegal_transition", "it is scheduled", |h| h.try_admin(hurry()));
    assert_eq!(h.claim_one("q").id, job.id);
}

pub(super) fn edit_job(h: &mut Harness) {
    let (job, other) = (h.submit("q", work()), h.submit("q", work()));
    let edit = Edit {
        priority: Some(Priority::Low),
        job_type: Some(job_type("other")),
        tags: Some(Tags::Map([("new".into(), None)].into())),
        correlation_id: Some(Some("c".into())),
        callback_url: Some(Some("https://example.org".into())),
        retry_limit: Some(9),
    };
    assert_eq!(h.admin(AdminCommand::Edit { id: job.id, edit: edit.clone() }), state(job.id, StateKind::Scheduled));
    let stored = h.job(job.id);
    assert_eq!((stored.priority, &stored.job_type), (Priority::Low, &job_type("other")));
    assert_eq!((Some(&stored.tags), stored.policy.retry.limit), (edit.tags.as_ref(), 9));
    assert_eq!(stored.correlation_id.as_deref(), Some("c"));
    assert!(matches!(stored.state, State::Scheduled { .. }));
    assert_eq!(h.payload(job.seq), Some(work().payload), "the payload never changes");
    let order: Vec<_> = h.claim_all("q").iter().map(|claimed| claimed.id).collect();
    assert_eq!(order, [other.id, job.id], "less urgent now");
    h.refused("illegal_transition", "running", |h| h.try_admin(AdminCommand::Edit { id: job.id, edit }));
}

pub(super) fn delete_job(h: &mut Harness) {
    let job = h.run("q", work(), complete());
    let waiting = h.submit("q", after(&[job.id]));
    let delete = |id| AdminCommand::Delete { id };
    h.refused("illegal_transition", "it lives", |h| h.try_admin(delete(waiting.id)));
    h.refused("illegal_transition", "it is needed", |h| h.try_admin(delete(job.id)));
    h.admin(cancel(waiting.id, Force::Now));
    assert_eq!(h.admin(delete(job.id)), AdminResponse::Done);
    assert_eq!((h.find(JobRef::Id(job.id)), h.find(JobRef::Seq(job.seq)), h.payload(job.seq)), (None, None, None));
    h.refused("job_not_found", "it is gone", |h| h.try_admin(delete(job.id)));
    assert_eq!(h.count("q", StateKind::Completed), 0);
}
