//! Claims that carry settlements: both parts are one commit, settlements first.

use longshore_core::failure::ReportedCategory;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_engine::{ClaimRequest, Claimed, Settlement};
use longshore_store::SettledGrant;

use super::harness::*;
use super::parking::wait_for;

fn settle_and_claim(h: &Harness, settlements: Vec<Settlement>, claim: ClaimRequest) -> SettledGrant {
    answered(h.store().settle_and_claim(settlements, claim)).unwrap_or_else(|refusal| panic!("refused: {refusal}"))
}

/// Claims of 1 from `q`, and settles this job.
fn next(h: &Harness, settlement: Settlement) -> (Result<StateKind, Refusal>, Vec<Claimed>) {
    let SettledGrant { mut verdicts, grant } = settle_and_claim(h, vec![settlement], request("q", 1));
    assert_eq!(verdicts.len(), 1);
    (verdicts.remove(0), grant.deliver().into_iter().map(|job| job.claimed).collect())
}

/// A worker drains a queue with one call per job.
pub(super) fn worker_needs_one_call_per_job(h: &mut Harness) {
    let jobs = h.submit_all("q", (0..20).map(|_| work()).collect());
    let mut claimed = h.claim_one("q");
    for (job, following) in jobs.iter().zip(jobs.iter().skip(1)) {
        assert_eq!(claimed.id, job.id);
        let (verdict, mut claims) = next(h, settlement(&claimed, complete()));
        assert_eq!((verdict, h.state(job.id)), (Ok(StateKind::Completed), StateKind::Completed));
        claimed = claims.remove(0);
        assert_eq!((claimed.id, h.state(following.id)), (following.id, StateKind::Running));
    }
    assert_eq!(next(h, settlement(&claimed, complete())), (Ok(StateKind::Completed), Vec::new()));
}

/// The claim gets jobs that its own settlements make ready, with their payloads.
pub(super) fn claim_follows_its_settlements(h: &mut Harness) {
    let released = h.submit("q", work_with(|job| job.payload = Payload::Json("\"released\"".into())));
    let claimed = h.claim_one("q");
    let settled = settle_and_claim(h, vec![settlement(&claimed, Outcome::Release)], request("q", 1));
    assert_eq!(settled.verdicts, [Ok(StateKind::Scheduled)]);
    let again = settled.grant.deliver().remove(0);
    assert_eq!((again.claimed.id, again.payload.bytes().as_ref()), (released.id, &b"\"released\""[..]));
    assert!(again.claimed.version > claimed.version && again.claimed.token != claimed.token);
    let waiting = work_with(|job| {
        job.after = after(&[released.id]).after;
        job.payload = Payload::Json("\"dependent\"".into());
    });
    let dependent = h.submit("q", waiting);
    let settled = settle_and_claim(h, vec![settlement(&again.claimed, complete())], request("q", 1));
    assert_eq!(settled.verdicts, [Ok(StateKind::Completed)]);
    let jobs = settled.grant.deliver();
    assert_eq!((jobs[0].claimed.id, jobs[0].payload.bytes().as_ref()), (dependent.id, &b"\"dependent\""[..]));
    assert_eq!(h.job(released.id).attempts.len(), 2);
}

pub(super) fn settlement_verdicts_are_independent(h: &mut Harness) {
    h.submit_all("q", (0..3).map(|_| work()).collect());
    let claimed = h.claim("q", 2);
    let batch = vec![
        settlement(&claimed[1], fail(ReportedCategory::Permanent)),
        settlement(&claimed[1], complete()),
        Settlement { token: None, ..settlement(&claimed[0], complete()) },
        settlement(&claimed[0], complete()),
    ];
    let settled = settle_and_claim(h, batch, request("q", 10));
    let words: Vec<&str> = settled
        .verdicts
        .iter()
        .map(|verdict| verdict.as_ref().map_or_else(Refusal::code, |state| state.as_str()))
        .collect();
    assert_eq!(words, ["failed", "stale_lease", "validation", "completed"]);
    assert_eq!(settled.grant.deliver().len(), 1, "the claim is served beside refused settlements");
}

pub(super) fn refused_claim_applies_no_settlement(h: &mut Harness) {
    h.submit_all("q", vec![work(), work()]);
    let claimed = h.claim_one("q");
    let invalid =
        [ClaimRequest { queues: Vec::new(), ..request("q", 1) }, request("q", 0), request("q", BATCH_ITEMS_MAX + 1)];
    for claim in invalid {
        h.refused("validation", "a claim with a settlement", |h| {
            answered(h.store().settle_and_claim(vec![settlement(&claimed, complete())], claim)).map(drop)
        });
    }
    assert_eq!(h.settle(&claimed, complete()), Ok(StateKind::Completed));
}

/// A worker that is gone gets no jobs; what it has settled stays settled.
pub(super) fn undelivered_jobs_return_and_settlements_stand(h: &mut Harness) {
    let jobs = h.submit_all("q", vec![work(), work()]);
    let claimed = h.claim_one("q");
    let settled = settle_and_claim(h, vec![settlement(&claimed, complete())], request("q", 1));
    assert_eq!((settled.grant.jobs().len(), h.state(jobs[1].id)), (1, StateKind::Running));
    drop(settled);
    wait_for(|| {
        h.tick_until_idle();
        h.state(jobs[1].id) == StateKind::Scheduled
    });
    assert_eq!((h.state(jobs[0].id), h.job(jobs[1].id).counters.starts), (StateKind::Completed, 0));
    assert_eq!(h.claim_one("q").id, jobs[1].id);
}

pub(super) fn settle_and_claim_max_batch(h: &mut Harness) {
    h.submit_all("q", (0..BATCH_ITEMS_MAX).map(|_| work()).collect());
    h.submit_all("q", (0..BATCH_ITEMS_MAX).map(|_| work()).collect());
    let first = h.claim("q", BATCH_ITEMS_MAX);
    assert_eq!(first.len(), BATCH_ITEMS_MAX);
    let batch = first.iter().map(|job| settlement(job, complete())).collect();
    let settled = settle_and_claim(h, batch, request("q", BATCH_ITEMS_MAX));
    assert!(settled.verdicts.iter().all(|verdict| *verdict == Ok(StateKind::Completed)));
    assert_eq!(settled.grant.deliver().len(), BATCH_ITEMS_MAX);
    assert_eq!(h.count("q", StateKind::Completed), 1_000);
}

/// Empty settlements, an empty queue, a paused queue: the call returns at once.
pub(super) fn settle_and_claim_never_waits(h: &mut Harness) {
    let settled = settle_and_claim(h, Vec::new(), request("q", 1));
    assert_eq!((settled.verdicts.len(), settled.grant.deliver().len()), (0, 0));
    h.submit_all("q", vec![work(), work()]);
    let claimed = h.claim_one("q");
    h.pause("q");
    assert_eq!(next(h, settlement(&claimed, complete())), (Ok(StateKind::Completed), Vec::new()));
}
