//! The Ocypod dialect: changes of status, and totals.

use bytes::Bytes;
use longshore_core::Duration;
use longshore_core::id::JobId;
use longshore_core::ocypod::status::{OCYPOD_TYPE, Status, StatusChange};
use longshore_core::ocypod::totals::Totals;
use longshore_core::patch::{PolicyPatch, RetryPatch, SettingsPatch};
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::submit::NewJob;
use longshore_engine::{AdminCommand, DeleteQueue, QueueDeleteMode, Submission, SubmitRequest};
use longshore_store::JobFilter;

use super::harness::*;

pub(super) fn job() -> NewJob {
    NewJob { job_type: job_type(OCYPOD_TYPE), ..work() }
}

fn put(h: &Harness, retries: u32) {
    let retry = RetryPatch { limit: Some(retries), ..RetryPatch::default() };
    let job = PolicyPatch { retry, execution_timeout: Some(Duration::from_secs(60)), ..PolicyPatch::default() };
    h.put_queue_with("o", Profile::Ocypod, SettingsPatch { job, ..SettingsPatch::default() });
}

fn change(id: JobId, status: Status) -> AdminCommand {
    AdminCommand::ChangeStatus { id, change: StatusChange { status: Some(status), output: None } }
}

fn listed(h: &Harness, state: StateKind) -> Vec<JobId> {
    h.list(&JobFilter { states: state.into(), ..JobFilter::default() }).iter().map(|job| job.id).collect()
}

/// A job may change from one final state to another. Listings and retention follow its current
/// state.
pub(super) fn cancel_failed_job(h: &mut Harness) {
    put(h, 0);
    let [first, second] = [(); 2].map(|()| h.submit("o", job()).id);
    for claimed in h.claim("o", 2) {
        h.admin(change(claimed.id, Status::Failed));
    }
    assert_eq!(listed(h, StateKind::Failed), [second, first]);
    h.pass(Duration::from_secs(200));
    h.admin(change(first, Status::Cancelled));
    assert_eq!(listed(h, StateKind::Failed), [second]);
    assert_eq!(listed(h, StateKind::Cancelled), [first]);
    h.pass(Duration::from_secs(100));
    assert_eq!((listed(h, StateKind::Failed), listed(h, StateKind::Cancelled)), (vec![], vec![first]));
    h.pass(Duration::from_secs(200));
    assert_eq!(listed(h, StateKind::Cancelled), []);
}

pub(super) fn change_status_stores_output(h: &mut Harness) {
    put(h, 0);
    let id = h.submit("o", job()).id;
    h.claim("o", 1);
    let output = Bytes::from_static(br#"{"half": true}"#);
    let change = |output: &Bytes| AdminCommand::ChangeStatus {
        id,
        change: StatusChange { status: None, output: Some(output.clone()) },
    };
    h.admin(change(&output));
    let stored = h.job(id);
    assert_eq!((stored.progress.as_ref(), stored.last_heartbeat_at), (Some(&output), None));
    let large = Bytes::from(vec![b'1'; (256 << 10) + 1]);
    h.refused("payload_too_large", "output", |h| h.try_admin(change(&large)));
}

pub(super) fn submit_requires_ocypod_queue(h: &mut Harness) {
    h.put_queue("s", Profile::Standard);
    for name in ["s", "nowhere"] {
        let mut request = SubmitRequest::new(vec![Submission { queue: queue(name), job: job() }]);
        request.require_profile = Some(Profile::Ocypod);
        let refusal = answered(h.store().submit(request)).unwrap_err();
        assert_eq!(refusal.first.code(), "queue_not_found", "{name}");
    }
    put(h, 0);
    let mut request = SubmitRequest::new(vec![Submission { queue: queue("o"), job: job() }]);
    request.require_profile = Some(Profile::Ocypod);
    assert_eq!(answered(h.store().submit(request)).unwrap().len(), 1);
}

/// Produces transitions of every kind that the totals count. Returns the expected totals.
pub(super) fn busy(h: &Harness) -> Totals {
    put(h, 1);
    h.submit("default", work());
    let ids: Vec<JobId> = (0..6).map(|_| h.submit("o", job()).id).collect();
    h.claim("o", 5);
    h.admin(change(ids[0], Status::Completed));
    h.admin(change(ids[1], Status::Failed));
    h.admin(change(ids[2], Status::TimedOut));
    h.admin(change(ids[3], Status::Cancelled));
    h.refused("illegal_transition", "completed", |h| h.try_admin(change(ids[0], Status::Cancelled)));
    h.pass(Duration::from_secs(60));
    h.admin(change(ids[3], Status::Queued));
    h.admin(AdminCommand::DeleteQueue {
        queue: queue("o"),
        how: DeleteQueue::Force(QueueDeleteMode::LetRunningFinish),
    });
    // One job timed out by the clock. Three retries are automatic, one is manual. Jobs deleted with
    // the queue are not counted.
    Totals { created: 6, completed: 1, retried: 4, failed: 1, timed_out: 2, cancelled: 1 }
}

pub(super) fn totals_count_transitions(h: &mut Harness) {
    assert_eq!(answered(h.store().ocypod_totals()), Totals::default());
    let expected = busy(h);
    assert_eq!(answered(h.store().ocypod_totals()), expected);
}
