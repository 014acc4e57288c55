//! Parked claims: each gets exactly one response, and every lease is in a response.

use longshore_core::Duration;
use longshore_core::claim::ClaimOptions;
use longshore_core::failure::ReportedCategory;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Start};
use longshore_engine::ClaimRequest;
use longshore_store::{Grant, Park, StoreFuture};
use tokio::sync::oneshot;

use super::harness::*;
use crate::block_on::block_on_for;
use crate::parking::{self, Order};

/// Longer than any response takes.
const RESPONSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

type Call<'a> = StoreFuture<'a, Result<Grant, Refusal>>;

/// Parks a claim as the `number`-th of all. Returns its call and the sender that ends its wait.
fn park<'a>(h: &'a Harness, number: usize, queues: &[&str], types: &[&str]) -> (Call<'a>, oneshot::Sender<()>) {
    let request = ClaimRequest {
        queues: queues.iter().map(|name| queue(name)).collect(),
        types: types.iter().map(|name| job_type(name)).collect(),
        limit: 1,
        terms: ClaimOptions::default(),
    };
    let (end, ended) = oneshot::channel::<()>();
    let until = Park::Until(Box::pin(async move { drop(ended.await) }));
    let mut call = h.store().claim_or_park(request, until);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending(), "there is nothing to claim");
    wait_for(|| h.store().parked_claims() == number);
    (call, end)
}

pub(super) fn wait_for(reached: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if reached() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("the condition was never met");
}

pub(super) fn granted(call: Call<'_>) -> Grant {
    block_on_for(RESPONSE_TIMEOUT, call).expect("the claim stays parked although a job is ready").unwrap().unwrap()
}

fn typed(name: &str) -> NewJob {
    work_with(|job| job.job_type = job_type(name))
}

pub(super) fn submit_grants_parked_claim(h: &mut Harness) {
    let (call, _end) = park(h, 1, &["q"], &[]);
    let job = h.submit("q", work());
    let jobs = granted(call).deliver();
    assert_eq!((jobs[0].claimed.id, jobs.len(), h.state(job.id)), (job.id, 1, StateKind::Running));
    wait_for(|| h.store().parked_claims() == 0);
}

pub(super) fn wait_timeout_returns_empty(h: &mut Harness) {
    let (call, end) = park(h, 1, &["q"], &[]);
    drop(end);
    assert_eq!(granted(call).jobs().len(), 0);
    let job = h.submit("q", work());
    assert_eq!(h.state(job.id), StateKind::Scheduled);
}

pub(super) fn abandoned_claim_leases_nothing(h: &mut Harness) {
    let (call, _end) = park(h, 1, &["q"], &[]);
    drop(call);
    let job = h.submit("q", work());
    wait_for(|| h.store().parked_claims() == 0);
    let history: Vec<_> = h.job(job.id).history.transitions().iter().map(|step| step.to).collect();
    assert_eq!(history.last(), Some(&StateKind::Scheduled), "{history:?}");
    assert_eq!(h.claim_one("q").version, h.job(job.id).lease_version);
    assert_eq!(h.job(job.id).attempts.len(), 1);
}

/// Claim X on [b, a] gets the job of b, Y on [b] stays parked, and Z on [a] must get the job of a.
pub(super) fn commit_grants_every_matching_claim(h: &mut Harness) {
    // Fan-out: one completion makes both jobs ready.
    let first = h.submit("root", work());
    for name in ["a", "b"] {
        h.submit(name, after(&[first.id]));
    }
    let (x, y, z) = (park(h, 1, &["b", "a"], &[]), park(h, 2, &["b"], &[]), park(h, 3, &["a"], &[]));
    let root = h.claim_one("root");
    h.settle(&root, complete()).unwrap();
    h.tick_until_idle();
    let served = [granted(x.0).deliver(), granted(z.0).deliver()];
    assert_eq!(served.map(|jobs| jobs[0].claimed.queue.clone()), [queue("b"), queue("a")]);
    drop(y.1);
    assert_eq!(granted(y.0).jobs().len(), 0);
    // Delayed jobs that become due together.
    for name in ["a", "b"] {
        h.submit(name, work_with(|job| job.start = Start::In(Duration::from_secs(5))));
    }
    let (x, y, z) = (park(h, 1, &["b", "a"], &[]), park(h, 2, &["b"], &[]), park(h, 3, &["a"], &[]));
    h.pass(Duration::from_secs(5));
    h.tick_until_idle();
    granted(x.0).deliver();
    granted(z.0).deliver();
    drop(y);
    // Types of one queue.
    let (x, y, z) = (park(h, 1, &["q"], &["s", "t"]), park(h, 2, &["q"], &["s"]), park(h, 3, &["q"], &["t"]));
    h.submit_all("q", vec![typed("s"), typed("t")]);
    assert_eq!(granted(x.0).deliver()[0].claimed.job_type, job_type("s"));
    assert_eq!(granted(z.0).deliver()[0].claimed.job_type, job_type("t"));
    drop(y);
}

/// An undelivered response returns its lease without cost, in every profile.
pub(super) fn undelivered_grant_restores_job(h: &mut Harness) {
    for profile in Profile::ALL {
        let name = profile.to_string();
        h.put_queue(&name, *profile);
        let (call, _end) = park(h, 1, &[&name], &[]);
        let job = h.submit(&name, work_with(|job| job.hold = Some(false)));
        drop(granted(call));
        let returned = |h: &Harness| {
            h.tick_until_idle();
            h.state(job.id) == StateKind::Scheduled
        };
        let behind = h.submit(&name, work_with(|job| job.hold = Some(false)));
        wait_for(|| returned(h));
        let seen = h.job(job.id);
        assert_eq!((seen.counters.starts, seen.counters.failures), (0, 0), "{profile}");
        assert_eq!((seen.counters.retries_scheduled, seen.counters.reclaims), (0, 0), "{profile}");
        assert!(seen.error.is_none(), "{profile}");
        if *profile == Profile::Document {
            // The job returns like a retry, at the tail.
            assert_eq!(h.claim_one(&name).id, behind.id);
        }
        let again = h.claim_one(&name);
        assert_eq!((again.id, again.attempt), (job.id, 1), "{profile}: and it runs as if for the first time");
        h.settle(&again, fail(ReportedCategory::Temporary)).unwrap();
    }
}

/// Virtual time advances to its end before parked claims are served.
pub(super) fn hold_keeps_claims_parked(h: &mut Harness) {
    answered(h.store().hold_grants(true));
    let ready = h.submit("q", work());
    let (mut call, _end) = park(h, 1, &["q"], &[]);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    h.submit("q", work());
    assert!(call.as_mut().poll(&mut context).is_pending());
    assert_eq!(h.count("q", StateKind::Scheduled), 2);
    answered(h.store().hold_grants(false));
    assert_eq!(granted(call).deliver()[0].claimed.id, ready.id);
}

pub(super) fn resume_grants_parked_claims(h: &mut Harness) {
    h.submit_all("q", vec![work(); 3]);
    h.pause("q");
    let calls: Vec<_> = (1..=3).map(|number| park(h, number, &["q"], &[])).collect();
    h.admin(longshore_engine::AdminCommand::ResumeQueue { queue: queue("q") });
    for (call, _end) in calls {
        assert_eq!(granted(call).deliver().len(), 1);
    }
}

pub(super) fn random_claims_match_model(h: &mut Harness) {
    parking::play(&**h.store(), h.clock(), 0x7ea5, 150, Order::Any);
}
