//! Retries of a workflow: which members run again, what they wait for, and when a retry is refused.

use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob};
use longshore_core::workflow::WorkflowState;
use longshore_engine::{AdminCommand, AdminResponse, Submission, SubmitRequest, Submitted, WorkflowTarget};

use super::admin::requeue;
use super::harness::{Harness, answered, complete, fail, keyed, queue, work};
use super::workflows::{cancel, closed, named, open, retry};

fn after_any(name: &str, any: &[&str]) -> NewJob {
    let after_any = any.iter().map(|name| DependencyRef::Local((*name).into())).collect();
    NewJob { after_any, ..named(name, &[]) }
}

/// Members that run again wait for members that run again, regardless of earlier ends.
pub(super) fn retry_resets_after_any_dependencies(h: &mut Harness) {
    for profile in [Profile::Standard, Profile::Gopherqueue] {
        let name = profile.as_str();
        h.put_queue(name, profile);
        let (id, _) = h.join(name, closed(), vec![after_any("b", &["a"]), named("a", &[])]);
        h.settle(&h.claim_one(name), fail(ReportedCategory::Permanent)).unwrap();
        h.tick_until_idle();
        assert_eq!(h.member(id, "b").kind(), StateKind::Scheduled, "any end will do");
        h.settle(&h.claim_one(name), fail(ReportedCategory::Permanent)).unwrap();
        h.admin(retry(id));
        h.tick_until_idle();
        assert_eq!(h.member(id, "b").kind(), StateKind::Pending, "{name}: no dependency has ended again");
        assert_eq!(h.member(id, "b").dependencies.after_any, [h.member(id, "a").id], "{name}");
        h.settle(&h.claim_one(name), complete()).unwrap();
        h.tick_until_idle();
        h.settle(&h.claim_one(name), complete()).unwrap();
        assert_eq!(h.workflow(id).state(), WorkflowState::Completed, "{name}");
        // A dependency that completed and does not run again is sufficient.
        let (id, _) = h.join(name, closed(), vec![named("a", &[]), after_any("b", &["a"])]);
        h.settle(&h.claim_one(name), complete()).unwrap();
        h.settle(&h.claim_one(name), fail(ReportedCategory::Permanent)).unwrap();
        h.admin(retry(id));
        h.tick_until_idle();
        assert_eq!(h.member(id, "b").kind(), StateKind::Scheduled, "{name}");
        h.settle(&h.claim_one(name), complete()).unwrap();
    }
}

/// The job that ended another was deleted. Its dependents must not run as if it had succeeded.
pub(super) fn retry_skips_dependents_of_deleted_job(h: &mut Harness) {
    let (id, jobs) = h.join("q", closed(), vec![named("a", &[]), named("b", &["a"])]);
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.tick_until_idle();
    assert_eq!(h.state(jobs[1].id), StateKind::Failed);
    h.admin(AdminCommand::Delete { id: jobs[0].id });
    h.refused("illegal_transition", "it was stopped by a job that is gone", |h| h.try_admin(requeue(jobs[1].id)));
    h.refused("illegal_transition", "nothing can run again", |h| h.try_admin(retry(id)));
    assert_eq!(h.workflow(id).state(), WorkflowState::Failed);
}

/// A retry without effect is refused.
pub(super) fn retry_without_effect_is_refused(h: &mut Harness) {
    let outside = h.submit("q", work());
    let mut a = named("a", &[]);
    a.after = vec![DependencyRef::Job(outside.id)];
    let (id, _) = h.join("q", closed(), vec![a, named("b", &["a"])]);
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.tick_until_idle();
    h.refused("illegal_transition", "it hangs on another job", |h| h.try_admin(retry(id)));
    h.admin(requeue(outside.id));
    h.tick_until_idle();
    assert_eq!(h.workflow(id).state(), WorkflowState::Running, "which brings them back");
}

/// A cancellation lasts until the last worker has stopped.
pub(super) fn retry_during_cooperative_cancel_is_refused(h: &mut Harness) {
    let (id, _) = h.join("q", closed(), vec![named("a", &[]), named("b", &["a"])]);
    let running = h.claim_one("q");
    h.admin(cancel(id, Force::ByPolicy));
    h.tick_until_idle();
    h.refused("illegal_transition", "a worker is still running", |h| h.try_admin(retry(id)));
    h.settle(&running, fail(ReportedCategory::Temporary)).unwrap();
    assert_eq!(h.workflow(id).state(), WorkflowState::Cancelled);
    assert_eq!(h.admin(retry(id)), AdminResponse::Workflow { id, state: WorkflowState::Running });
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.admin(retry(id));
}

/// The response to a growth may be lost, and the client repeats it.
pub(super) fn repeated_growth_adds_members_once(h: &mut Harness) {
    let (id, _) = h.join("q", open(), vec![named("first", &[])]);
    let more = || {
        let a = NewJob { reference: Some("a".into()), ..keyed("ka") };
        let after = vec![DependencyRef::Local("a".into())];
        vec![a, NewJob { after, ..keyed("kb") }]
    };
    let (_, once) = h.join("q", WorkflowTarget::Open(id), more());
    let (_, twice) = h.join("q", WorkflowTarget::Open(id), more());
    let seen = |jobs: &[Submitted]| -> Vec<_> { jobs.iter().map(|job| (job.id, job.membership.clone())).collect() };
    assert_eq!(seen(&once), seen(&twice), "under the same names");
    assert!(twice.iter().all(|job| job.duplicate));
    assert_eq!(h.members(id).len(), 3);
    let again = |h: &Harness| {
        let other = NewJob { reference: Some("a".into()), ..keyed("kc") };
        h.try_join("q", WorkflowTarget::Open(id), vec![other]).map_err(|refused| refused.first)
    };
    h.refused("validation", "the name of another job", again);
}

/// Ended by a member, and waiting for an outside job during the retry, also in slices.
pub(super) fn member_ended_twice_revives_after_both_dependencies(h: &mut Harness) {
    for fillers in [2, 1_200] {
        let outside = h.submit("out", work());
        let mut jobs = vec![named("x", &[])];
        jobs.extend(vec![NewJob { hold: Some(true), ..work() }; fillers]);
        let mut d = named("d", &["x"]);
        d.after.push(DependencyRef::Job(outside.id));
        jobs.push(d);
        let (id, _) = h.join("q", closed(), jobs);
        h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
        h.settle(&h.claim_one("out"), fail(ReportedCategory::Permanent)).unwrap();
        h.tick_until_idle();
        h.admin(retry(id));
        h.tick_until_idle();
        assert_eq!(h.member(id, "d").kind(), StateKind::Failed, "another job stands in the way");
        h.admin(requeue(outside.id));
        h.tick_until_idle();
        assert_eq!(h.member(id, "d").kind(), StateKind::Pending, "{fillers}: now both live");
        h.settle(&h.claim_one("q"), complete()).unwrap();
        h.settle(&h.claim_one("out"), complete()).unwrap();
        h.tick_until_idle();
        h.settle(&h.claim_one("q"), complete()).unwrap();
        h.admin(cancel(id, Force::Now));
        h.tick_until_idle();
    }
}

/// A key that repeats a member refers to its latest clone.
pub(super) fn repeated_growth_refers_to_clone(h: &mut Harness) {
    h.put_queue("g", Profile::Gopherqueue);
    let a = || NewJob { reference: Some("a".into()), ..keyed("ka") };
    let (id, first) = h.join("g", open(), vec![a()]);
    h.settle(&h.claim_one("g"), fail(ReportedCategory::Permanent)).unwrap();
    h.admin(retry(id));
    let clone = h.member(id, "a").id;
    assert_ne!(clone, first[0].id);
    let (_, again) = h.join("g", WorkflowTarget::Open(id), vec![a(), named("b", &["a"])]);
    assert_eq!((again[0].id, again[0].duplicate), (clone, true));
    assert_eq!(h.member(id, "b").kind(), StateKind::Pending, "it waits for the clone");
    assert_eq!(h.member(id, "b").dependencies.after[0].id, clone);
}

/// Children that are added during a large cancellation.
pub(super) fn member_added_during_cancel_is_not_cancelled(h: &mut Harness) {
    let (id, _) = h.join("q", closed(), vec![work(); 1_500]);
    let parent = h.claim_one("q");
    h.admin(cancel(id, Force::ByPolicy));
    let child = || Submission { queue: queue("q"), job: work() };
    let children = vec![child(), child()];
    let request = SubmitRequest::children(parent.id, Some(parent.token), children, None);
    let children = answered(h.store().submit(request)).unwrap();
    h.tick_until_idle();
    for child in children {
        assert_eq!(h.state(child.id), StateKind::Scheduled);
    }
}
