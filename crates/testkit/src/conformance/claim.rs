//! Claims: which jobs are leased, and what the worker receives.

use std::collections::HashSet;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::failure::ReportedCategory;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, WorkerName};
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::patch::SettingsPatch;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::tags::Tags;
use longshore_core::trace_context::TraceParent;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{AdminCommand, ClaimRequest, Claimed};

use super::harness::*;

fn ids(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|job| job.id).collect()
}

fn at(priority: Priority) -> NewJob {
    work_with(|job| job.priority = priority)
}

pub(super) fn claim_is_fifo(h: &mut Harness) {
    let mut order = Vec::new();
    for _ in 0..5 {
        order.extend(h.submit_all("q", vec![work(); 4]).iter().map(|job| job.id));
    }
    let mut claimed = Vec::new();
    for limit in [1, 3, 7] {
        claimed.extend(ids(&h.claim("q", limit)));
    }
    claimed.extend(ids(&h.claim_all("q")));
    assert_eq!(claimed, order);
    assert!(h.claim("q", 1).is_empty());
}

pub(super) fn claim_follows_priority_if_enabled(h: &mut Harness) {
    let fifo = SettingsPatch { priority_order: Some(false), ..SettingsPatch::default() };
    h.put_queue_with("fifo", Profile::Standard, fifo);
    let mixed = [Priority::Bulk, Priority::Normal, Priority::Critical, Priority::Low, Priority::High, Priority::Normal];
    let mut by_urgency: Vec<_> = mixed.iter().map(|one| (*one, h.submit("q", at(*one)).id)).collect();
    by_urgency.sort_by_key(|(priority, _)| *priority);
    assert_eq!(ids(&h.claim_all("q")), by_urgency.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    let in_order: Vec<_> = mixed.iter().map(|one| h.submit("fifo", at(*one)).id).collect();
    assert_eq!(ids(&h.claim_all("fifo")), in_order);
}

pub(super) fn claim_filters_types(h: &mut Harness) {
    let typed = |name: &str| work_with(|job| job.job_type = job_type(name));
    let jobs: Vec<_> = ["a", "b", "c", "a", "b", "c"].map(|name| h.submit("q", typed(name)).id).into();
    let claim = |types: &[&str], limit| {
        let types = types.iter().map(|name| job_type(name)).collect();
        let jobs = h.try_claim(ClaimRequest { types, ..request("q", limit) }).unwrap();
        jobs.iter().map(|job| job.claimed.id).collect::<Vec<_>>()
    };
    assert_eq!(claim(&["b"], 1), [jobs[1]]);
    assert_eq!(claim(&["unknown"], 5), []);
    assert_eq!(claim(&["c", "a"], 3), [jobs[0], jobs[2], jobs[3]], "in queue order");
    assert_eq!(claim(&[], 5), [jobs[4], jobs[5]], "no type means any");
}

pub(super) fn claim_follows_queue_order(h: &mut Harness) {
    let (one, two) = (h.submit("one", work()).id, h.submit("two", work()).id);
    let queues = ["nowhere", "two", "one"].map(queue).into();
    let jobs = h.try_claim(ClaimRequest { queues, ..request("one", 10) }).unwrap();
    assert_eq!(jobs.iter().map(|job| job.claimed.id).collect::<Vec<_>>(), [two, one]);
    assert!(answered(h.store().queue(queue("nowhere"))).is_none(), "a claim creates no queue");
}

pub(super) fn claim_respects_limit(h: &mut Harness) {
    h.submit_all("q", vec![work(); 30]);
    for limit in 1..=7 {
        let given = h.claim("q", limit).len();
        assert!((1..=limit).contains(&given), "{given} of {limit}");
    }
}

/// Each job has its own payload, of its own length.
pub(super) fn claim_max_batch(h: &mut Harness) {
    let payload = |n: usize| Payload::Binary(Bytes::from(n.to_string().repeat(1 + n % 7)));
    let job = |n: usize| NewJob::new(job_type("work"), payload(n));
    let submitted = h.submit_all("q", (0..BATCH_ITEMS_MAX).map(job).collect());
    h.submit("q", work());
    let mut claimed = h.try_claim(request("q", BATCH_ITEMS_MAX)).unwrap();
    assert!((1..=BATCH_ITEMS_MAX).contains(&claimed.len()));
    while claimed.len() <= BATCH_ITEMS_MAX {
        claimed.extend(h.try_claim(request("q", 1)).unwrap());
    }
    for (n, submitted) in submitted.iter().enumerate() {
        assert_eq!(claimed[n].claimed.id, submitted.id);
        assert!(claimed[n].payload == payload(n), "the payload of job {n}");
    }
    assert_eq!(h.count("q", StateKind::Running), 1_001);
}

pub(super) fn claim_returns_all_fields(h: &mut Harness) {
    let given = work_with(|job| {
        job.priority = Priority::High;
        job.tags = Tags::Map([("tenant".into(), Some("acme".into()))].into());
        job.correlation_id = Some("corr".into());
        job.traceparent = Some(Box::new(TraceParent { trace_id: [7; 16], span_id: [9; 8], flags: 0 }));
        job.idempotency_key = Some("key".into());
    });
    let submitted = h.submit("q", given.clone());
    let mut jobs = h.try_claim(request("q", 1)).unwrap();
    let first = jobs.remove(0);
    assert_eq!(first.payload, given.payload);
    let claimed = first.claimed;
    assert_eq!((claimed.id, claimed.seq, claimed.queue.as_str()), (submitted.id, submitted.seq, "q"));
    assert_eq!((&claimed.job_type, claimed.priority, claimed.attempt), (&given.job_type, Priority::High, 1));
    assert_eq!((&claimed.tags, claimed.created_at), (&given.tags, h.now()));
    assert_eq!((&claimed.correlation_id, &claimed.idempotency_key), (&given.correlation_id, &given.idempotency_key));
    assert_eq!(claimed.traceparent, given.traceparent);
    assert_eq!((&claimed.previous_attempt_id, &claimed.checkpoint), (&None, &None));
    let notes = HeartbeatData { progress: None, checkpoint: Some(Bytes::from_static(b"halfway")) };
    h.heartbeat(longshore_engine::Heartbeat { notes, ..heartbeat(&claimed) }).unwrap();
    h.settle(&claimed, fail(ReportedCategory::Temporary)).unwrap();
    h.pass(Duration::from_mins(1));
    let again = h.claim_one("q");
    assert_eq!((again.attempt, again.checkpoint.as_deref()), (2, Some(&b"halfway"[..])));
    assert_eq!(again.previous_attempt_id, claimed.attempt_id);
}

pub(super) fn claim_tokens_are_unique(h: &mut Harness) {
    let job = h.submit("q", work());
    h.submit_all("q", vec![work(); 20]);
    let mut tokens = HashSet::new();
    for version in 1..=5 {
        let claimed = h.claim_one("q");
        assert_eq!((claimed.id, claimed.version.0), (job.id, version), "released to its old position");
        assert_eq!(h.job(job.id).lease_version.0, version);
        assert!(tokens.insert(claimed.token));
        h.settle(&claimed, Outcome::Release).unwrap();
    }
    let claimed = h.claim_all("q");
    assert!(claimed.iter().all(|job| tokens.insert(job.token)));
}

pub(super) fn claim_skips_paused_queue(h: &mut Harness) {
    h.submit("q", work());
    h.pause("q");
    assert!(h.claim("q", 10).is_empty());
    h.submit("q", work());
    assert!(h.claim("q", 10).is_empty());
    h.admin(AdminCommand::ResumeQueue { queue: queue("q") });
    assert_eq!(h.claim_all("q").len(), 2);
}

pub(super) fn claim_skips_delayed_job(h: &mut Harness) {
    let job = h.submit("q", delayed(Duration::from_secs(10)));
    assert_eq!(job.state, Some(StateKind::Delayed));
    h.pass(Duration::from_millis(9_999));
    h.tick_until_idle();
    assert!(h.claim("q", 1).is_empty());
    h.pass(Duration::from_millis(1));
    h.tick_until_idle();
    assert_eq!(h.claim_one("q").id, job.id);
}

pub(super) fn claim_applies_options(h: &mut Harness) {
    let job = h.submit("q", work());
    let worker = WorkerName::new("w 1").unwrap();
    let (lease, timeout) = (Duration::from_secs(5), Duration::from_secs(60));
    let terms = ClaimOptions { worker: Some(worker.clone()), lease: Some(lease), execution_timeout: Some(timeout) };
    let claimed = h.try_claim(ClaimRequest { terms, ..request("q", 1) }).unwrap().remove(0).claimed;
    assert_eq!(claimed.expires_at, Some(h.now() + lease));
    assert_eq!(claimed.deadline_at, Some(h.now() + timeout));
    let stored = h.job(job.id);
    let held = stored.state.lease().unwrap();
    assert_eq!((held.token, &held.worker, held.length), (claimed.token, &Some(worker), Some(lease)));
    assert_eq!((held.expires_at, held.deadline_at), (claimed.expires_at, claimed.deadline_at));
}

pub(super) fn invalid_claim_is_refused(h: &mut Harness) {
    h.submit("q", work());
    let bad = [
        ("nothing", request("q", 0)),
        ("too much", request("q", BATCH_ITEMS_MAX + 1)),
        ("nowhere", ClaimRequest { queues: Vec::new(), ..request("q", 1) }),
        ("too many queues", ClaimRequest { queues: vec![queue("q"); BATCH_ITEMS_MAX + 1], ..request("q", 1) }),
        ("no lease", {
            let terms = ClaimOptions { lease: Some(Duration::ZERO), ..ClaimOptions::default() };
            ClaimRequest { terms, ..request("q", 1) }
        }),
    ];
    for (what, request) in bad {
        h.refused("validation", what, |h| h.try_claim(request));
    }
    assert_eq!(h.claim("q", BATCH_ITEMS_MAX).len(), 1);
}

pub(super) fn claim_reclaims_expired_lease_lazily(h: &mut Harness) {
    h.put_queue("q", Profile::Weave);
    let job = h.submit("q", work());
    let lost = h.claim_one("q");
    let expiry: Timestamp = lost.expires_at.unwrap();
    h.submit("q", work());
    h.pass(expiry.since(h.now()));
    h.tick_until_idle();
    assert_eq!(h.state(job.id), StateKind::Running, "until the next claim");
    let reclaimed = h.claim_one("q");
    assert_eq!((reclaimed.id, reclaimed.version.0), (job.id, 2), "at its old position");
    assert!(h.settle(&lost, complete()).is_err());
    h.settle(&reclaimed, complete()).unwrap();
}
