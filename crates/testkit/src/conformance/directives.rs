//! Directives: quiet and stopped workers get no jobs.

use longshore_core::claim::ClaimOptions;
use longshore_core::directive::WorkerDirective;
use longshore_core::id::WorkerName;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::ClaimRequest;
use longshore_store::{Grant, Park, StoreFuture};

use super::harness::*;
use super::parking::{granted, wait_for};

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn claim_as(name: &str, queue_name: &str) -> ClaimRequest {
    let terms = ClaimOptions { worker: Some(worker(name)), ..ClaimOptions::default() };
    ClaimRequest { terms, ..request(queue_name, 1) }
}

fn direct(h: &Harness, name: &str, directive: WorkerDirective) {
    answered(h.store().set_directive(worker(name), directive));
    assert_eq!(h.store().directive(Some(&worker(name))), directive);
}

/// Parks a claim that does not end by itself.
fn park<'a>(h: &'a Harness, number: usize, claim: ClaimRequest) -> StoreFuture<'a, Result<Grant, Refusal>> {
    let mut call = h.store().claim_or_park(claim, Park::Until(Box::pin(std::future::pending())));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending(), "there is nothing to claim");
    wait_for(|| h.store().parked_claims() == number);
    call
}

pub(super) fn held_back_worker_claims_nothing(h: &mut Harness) {
    let job = h.submit("q", work());
    assert_eq!(h.store().directive(None), WorkerDirective::Run);
    for directive in [WorkerDirective::Quiet, WorkerDirective::Stop] {
        direct(h, "w", directive);
        assert_eq!(h.try_claim(claim_as("w", "q")).unwrap().len(), 0, "{directive}");
        // A claim that may wait returns at once.
        let until = Park::Until(Box::pin(std::future::pending()));
        assert_eq!(granted(h.store().claim_or_park(claim_as("w", "q"), until)).jobs().len(), 0, "{directive}");
    }
    assert_eq!(h.state(job.id), StateKind::Scheduled);
    assert_eq!(h.job(job.id).attempts.len(), 0);
    direct(h, "w", WorkerDirective::Run);
    assert_eq!(h.try_claim(claim_as("w", "q")).unwrap()[0].claimed.id, job.id);
}

pub(super) fn held_back_worker_settles_and_heartbeats(h: &mut Harness) {
    let jobs = h.submit_all("q", vec![work(), work()]);
    let claimed = h.try_claim(claim_as("w", "q")).unwrap().remove(0).claimed;
    direct(h, "w", WorkerDirective::Stop);
    let renewal = h.heartbeat(heartbeat(&claimed)).unwrap();
    assert_eq!(renewal.worker, Some(worker("w")));
    let settled = answered(h.store().settle_and_claim(vec![settlement(&claimed, complete())], claim_as("w", "q")));
    let settled = settled.unwrap();
    assert_eq!((settled.verdicts, settled.grant.deliver().len()), (vec![Ok(StateKind::Completed)], 0));
    assert_eq!(h.state(jobs[1].id), StateKind::Scheduled);
    let other = h.try_claim(claim_as("other", "q")).unwrap().remove(0).claimed;
    assert_eq!(other.id, jobs[1].id, "another worker gets the job");
}

/// The parked claims of a worker end when it becomes quiet. A job that follows is not for it.
pub(super) fn directive_ends_parked_claims(h: &mut Harness) {
    let parked = [park(h, 1, claim_as("w", "q")), park(h, 2, claim_as("w", "q")), park(h, 3, claim_as("other", "q"))];
    direct(h, "w", WorkerDirective::Quiet);
    let [first, second, other] = parked;
    assert_eq!((granted(first).jobs().len(), granted(second).jobs().len()), (0, 0));
    let job = h.submit("q", work());
    assert_eq!(granted(other).deliver()[0].claimed.id, job.id);
    wait_for(|| h.store().parked_claims() == 0);
}

pub(super) fn directives_survive_reopen(h: &mut Harness) {
    for (name, directive) in
        [("a", WorkerDirective::Quiet), ("b", WorkerDirective::Stop), ("c", WorkerDirective::Quiet)]
    {
        direct(h, name, directive);
    }
    direct(h, "c", WorkerDirective::Run);
    h.submit("q", work());
    h.reopen();
    let stored = ["a", "b", "c"].map(|name| h.store().directive(Some(&worker(name))));
    assert_eq!(stored, [WorkerDirective::Quiet, WorkerDirective::Stop, WorkerDirective::Run]);
    assert_eq!(h.try_claim(claim_as("a", "q")).unwrap().len(), 0);
    assert_eq!(h.try_claim(claim_as("c", "q")).unwrap().len(), 1);
}
