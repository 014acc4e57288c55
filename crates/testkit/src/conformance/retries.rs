//! A workflow that is run again: who waits for whom then, and when there is nothing to run.

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

/// What runs again waits for what runs again, whatever ended the first time.
pub(super) fn any_end_is_awaited_anew(h: &mut Harness) {
    for profile in [Profile::Standard, Profile::Gopherqueue] {
        let name = profile.as_str();
        h.put_queue(name, profile);
        let (id, _) = h.join(name, closed(), vec![after_any("b", &["a"]), named("a", &[])]);
        h.settle(&h.claim_one(name), fail(ReportedCategory::Permanent)).unwrap();
        h.settle_down();
        assert_eq!(h.member(id, "b").kind(), StateKind::Scheduled, "any end will do");
        h.settle(&h.claim_one(name), fail(ReportedCategory::Permanent)).unwrap();
        h.admin(retry(id));
        h.settle_down();
        assert_eq!(h.member(id, "b").kind(), StateKind::Pending, "{name}: nothing has ended anew");
        assert_eq!(h.member(id, "b").dependencies.after_any, [h.member(id, "a").id], "{name}");
        h.settle(&h.claim_one(name), complete()).unwrap();
        h.settle_down();
        h.settle(&h.claim_one(name), complete()).unwrap();
        assert_eq!(h.workflow(id).state(), WorkflowState::Completed, "{name}");
        // One that has ended well and stays so is enough.
        let (id, _) = h.join(name, closed(), vec![named("a", &[]), after_any("b", &["a"])]);
        h.settle(&h.claim_one(name), complete()).unwrap();
        h.settle(&h.claim_one(name), fail(ReportedCategory::Permanent)).unwrap();
        h.admin(retry(id));
        h.settle_down();
        assert_eq!(h.member(id, "b").kind(), StateKind::Scheduled, "{name}");
        h.settle(&h.claim_one(name), complete()).unwrap();
    }
}

/// The job that stopped another has gone: nothing may run as if it had succeeded.
pub(super) fn what_a_lost_job_has_stopped_stays_ended(h: &mut Harness) {
    let (id, jobs) = h.join("q", closed(), vec![named("a", &[]), named("b", &["a"])]);
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.settle_down();
    assert_eq!(h.state(jobs[1].id), StateKind::Failed);
    h.admin(AdminCommand::Delete { id: jobs[0].id });
    h.refused("illegal_transition", "it was stopped by a job that is gone", |h| h.try_admin(requeue(jobs[1].id)));
    h.refused("illegal_transition", "nothing can run again", |h| h.try_admin(retry(id)));
    assert_eq!(h.workflow(id).state(), WorkflowState::Failed);
}

/// What would leave everything as it is says so.
pub(super) fn a_retry_that_can_do_nothing_is_refused(h: &mut Harness) {
    let outside = h.submit("q", work());
    let mut a = named("a", &[]);
    a.after = vec![DependencyRef::Job(outside.id)];
    let (id, _) = h.join("q", closed(), vec![a, named("b", &["a"])]);
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.settle_down();
    h.refused("illegal_transition", "it hangs on another job", |h| h.try_admin(retry(id)));
    h.admin(requeue(outside.id));
    h.settle_down();
    assert_eq!(h.workflow(id).state(), WorkflowState::Running, "which brings them back");
}

/// A cancel is under way until the last worker has heard of it.
pub(super) fn no_retry_while_a_worker_is_being_told(h: &mut Harness) {
    let (id, _) = h.join("q", closed(), vec![named("a", &[]), named("b", &["a"])]);
    let running = h.claim_one("q");
    h.admin(cancel(id, Force::ByPolicy));
    h.settle_down();
    h.refused("illegal_transition", "a worker has not heard of it yet", |h| h.try_admin(retry(id)));
    h.settle(&running, fail(ReportedCategory::Temporary)).unwrap();
    assert_eq!(h.workflow(id).state(), WorkflowState::Cancelled);
    assert_eq!(h.admin(retry(id)), AdminResponse::Workflow { id, state: WorkflowState::Running });
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.admin(retry(id));
}

/// The answer to a call that let a workflow grow may be lost, too.
pub(super) fn growing_twice_is_growing_once(h: &mut Harness) {
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

/// Stopped by a member, and held back by a job outside when the workflow is run again, also where that is done in slices.
pub(super) fn who_is_stopped_twice_comes_back_once_both_live(h: &mut Harness) {
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
        h.settle_down();
        h.admin(retry(id));
        h.settle_down();
        assert_eq!(h.member(id, "d").kind(), StateKind::Failed, "another job stands in the way");
        h.admin(requeue(outside.id));
        h.settle_down();
        assert_eq!(h.member(id, "d").kind(), StateKind::Pending, "{fillers}: now both live");
        h.settle(&h.claim_one("q"), complete()).unwrap();
        h.settle(&h.claim_one("out"), complete()).unwrap();
        h.settle_down();
        h.settle(&h.claim_one("q"), complete()).unwrap();
        h.admin(cancel(id, Force::Now));
        h.settle_down();
    }
}

/// A key that repeats a member means whoever stands in its place now.
pub(super) fn growing_again_means_the_clone(h: &mut Harness) {
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

/// Children that come while a large cancel is under way.
pub(super) fn whoever_joins_a_cancel_is_not_concerned(h: &mut Harness) {
    let (id, _) = h.join("q", closed(), vec![work(); 1_500]);
    let parent = h.claim_one("q");
    h.admin(cancel(id, Force::ByPolicy));
    let child = || Submission { queue: queue("q"), job: work() };
    let children = vec![child(), child()];
    let request = SubmitRequest::children(parent.id, Some(parent.token), children, None);
    let children = answered(h.store().submit(request)).unwrap();
    h.settle_down();
    for child in children {
        assert_eq!(h.state(child.id), StateKind::Scheduled);
    }
}
