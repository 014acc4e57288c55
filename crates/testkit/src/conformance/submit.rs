//! Submission: a batch is stored completely or not at all.

use bytes::Bytes;
use longshore_core::id::{LeaseToken, Seq};
use longshore_core::limits::{BATCH_ITEMS_MAX, CORRELATION_ID_CHARS_MAX};
use longshore_core::patch::{PolicyPatch, SettingsPatch};
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::state::{State, StateKind};
use longshore_core::submit::{DependencyRef, NewJob, Payload, Start};
use longshore_core::tags::Tags;
use longshore_core::trace_context::TraceParent;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{Submission, SubmitRequest};
use longshore_store::JobRef;

use super::harness::*;

/// Makes a job that every queue refuses.
fn bad() -> NewJob {
    work_with(|job| job.correlation_id = Some("x".repeat(CORRELATION_ID_CHARS_MAX + 1).into()))
}

pub(super) fn submitted_job_is_readable(h: &mut Harness) {
    let submitted = h.submit("q", work());
    assert_eq!((submitted.state, submitted.duplicate), (Some(StateKind::Scheduled), false));
    let job = h.job(submitted.id);
    assert_eq!((job.seq, job.queue.as_str(), job.kind()), (submitted.seq, "q", StateKind::Scheduled));
    assert_eq!((job.created_at, job.updated_at, job.scheduled_at), (h.now(), h.now(), Some(h.now())));
    assert_eq!(h.find(JobRef::Seq(submitted.seq)), Some(job));
    assert_eq!(h.payload(submitted.seq), Some(work().payload));
    assert_eq!(h.count("q", StateKind::Scheduled), 1);
    assert_eq!(h.jobs().len(), 1);
}

pub(super) fn every_field_round_trips(h: &mut Harness) {
    h.put_queue_with("q", Profile::Standard, SettingsPatch { external_ids: Some(true), ..SettingsPatch::default() });
    let first = h.submit("q", work());
    let at = Timestamp::from_millis(h.now().as_millis() + 90_000);
    let given = NewJob {
        payload: Payload::Json(Bytes::from_static(b"{ \"a\" : 1.50 }")),
        priority: Priority::High,
        start: Start::At(at),
        idempotency_key: Some("Schlüssel ☃".into()),
        external_id: Some("order 66".into()),
        tags: Tags::Map([("tenant".into(), Some("acme".into())), ("urgent".into(), None)].into()),
        correlation_id: Some("corr\nwith a line".into()),
        callback_url: Some("https://example.org/?a=b".into()),
        traceparent: Some(Box::new(TraceParent { trace_id: [7; 16], span_id: [9; 8], flags: 1 })),
        after: vec![DependencyRef::Job(first.id)],
        after_any: vec![DependencyRef::Job(first.id)],
        reference: Some("a".into()),
        hold: Some(true),
        policy: PolicyPatch { lease: Some(Duration::from_secs(77)), ..PolicyPatch::default() },
        ..NewJob::new(job_type("Größe ändern"), work().payload)
    };
    let submitted = h.submit("q", given.clone());
    let job = h.job(submitted.id);
    assert_eq!(job.job_type, given.job_type);
    assert_eq!(job.state, State::Pending { held: true, run_at: Some(at) });
    assert_eq!((job.priority, job.inherited_priority), (Priority::High, Priority::Normal));
    let key = job.idempotency.as_ref().unwrap();
    assert_eq!((Some(key.key.clone()), &key.job_type), (given.idempotency_key, &given.job_type));
    assert_eq!(job.external_id, given.external_id);
    assert_eq!(job.tags, given.tags);
    assert_eq!((&job.correlation_id, &job.callback_url), (&given.correlation_id, &given.callback_url));
    assert_eq!(job.traceparent, given.traceparent);
    assert_eq!(job.dependencies.all().into_iter().collect::<std::collections::BTreeSet<_>>(), [first.id].into());
    assert_eq!(job.policy.lease, Some(Duration::from_secs(77)));
    assert_eq!(h.payload(submitted.seq), Some(given.payload));
    let list = h.submit("q", work_with(|job| job.tags = Tags::List(vec!["b".into(), "a".into(), "b".into()])));
    assert_eq!(h.job(list.id).tags, Tags::List(vec!["b".into(), "a".into(), "b".into()]), "a list stays a list");
}

pub(super) fn batch_results_keep_order(h: &mut Harness) {
    let job = |n: u8| NewJob::new(job_type(&format!("type {n}")), Payload::Binary(Bytes::from(vec![n; 3])));
    let batch: Vec<_> = (0..20).map(|n| (if n % 2 == 0 { "even" } else { "odd" }, job(n))).collect();
    let batch = batch.into_iter().map(|(name, job)| Submission { queue: queue(name), job }).collect();
    let answers = answered(h.store().submit(SubmitRequest::new(batch))).unwrap();
    assert_eq!(answers.len(), 20);
    assert!(answers.is_sorted_by_key(|answer| answer.seq), "numbers rise in the order given");
    for (n, answer) in (0..).zip(&answers) {
        let stored = h.job(answer.id);
        assert_eq!(stored.job_type, job(n).job_type);
        assert_eq!(stored.queue.as_str(), if n % 2 == 0 { "even" } else { "odd" });
        assert_eq!(h.payload(answer.seq), Some(job(n).payload));
    }
    let later = h.submit("even", work());
    assert!(answers.iter().all(|answer| answer.seq < later.seq), "and go on rising");
}

pub(super) fn batch_with_invalid_item_stores_nothing(h: &mut Harness) {
    h.submit("q", work());
    let before = h.picture();
    for place in [0, 3, 6] {
        let mut jobs: Vec<NewJob> = (0..7).map(|n| keyed(&format!("key {n}"))).collect();
        jobs[place] = bad();
        let refused = h.try_submit("a queue-to-be".replace(' ', "-").as_str(), jobs).unwrap_err();
        assert_eq!(refused.first.code(), "validation");
        assert_eq!(refused.errors.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [place]);
    }
    assert!(h.picture() == before, "a refused batch left something behind");
    assert!(answered(h.store().queue(queue("a-queue-to-be"))).is_none(), "not even its queue");
    assert!(!h.submit("q", keyed("key 0")).duplicate, "nor its keys");
}

pub(super) fn batch_size_is_bounded(h: &mut Harness) {
    h.refused("validation", "no job at all", |h| h.try_submit("q", Vec::new()).map_err(|refused| refused.first));
    let too_many = vec![work(); BATCH_ITEMS_MAX + 1];
    h.refused("validation", "one too many", |h| h.try_submit("q", too_many).map_err(|refused| refused.first));
    let answers = h.submit_all("q", vec![work(); BATCH_ITEMS_MAX]);
    assert_eq!(answers.len(), BATCH_ITEMS_MAX);
    assert_eq!(h.count("q", StateKind::Scheduled), 1_000);
    assert_eq!(h.jobs().len(), BATCH_ITEMS_MAX);
}

pub(super) fn batch_refusal_names_all_items(h: &mut Harness) {
    let mut jobs = vec![bad(); BATCH_ITEMS_MAX];
    jobs[7] = work();
    let refused = h.try_submit("q", jobs).unwrap_err();
    let named: Vec<usize> = refused.errors.iter().map(|(at, _)| *at).collect();
    assert_eq!(named, (0..BATCH_ITEMS_MAX).filter(|at| *at != 7).collect::<Vec<_>>());
    assert!(h.jobs().is_empty());
}

pub(super) fn submit_creates_queue(h: &mut Harness) {
    assert!(answered(h.store().queue(queue("new"))).is_none());
    h.submit("new", work());
    let report = h.report("new");
    assert_eq!((report.queue.profile, report.queue.paused), (Profile::Standard, false));
    let names: Vec<String> = h.picture().queues.iter().map(|(queue, ..)| queue.name.to_string()).collect();
    assert_eq!(names, ["default", "new"]);
}

pub(super) fn batch_items_depend_on_each_other(h: &mut Harness) {
    let named = |name: &str, after: &[&str]| {
        work_with(|job| {
            job.reference = Some(name.into());
            job.after = after.iter().map(|name| DependencyRef::Local((*name).into())).collect();
        })
    };
    let answers = h.submit_all("q", vec![named("c", &["a", "b"]), named("a", &[]), named("b", &["a"])]);
    let states: Vec<_> = answers.iter().map(|answer| answer.state.unwrap()).collect();
    assert_eq!(states, [StateKind::Pending, StateKind::Scheduled, StateKind::Pending]);
    for expected in [1, 2, 0] {
        let claimed = h.claim("q", 10);
        assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [answers[expected].id]);
        h.settle(&claimed[0], complete()).unwrap();
    }
}

pub(super) fn submit_children_requires_parent_lease(h: &mut Harness) {
    let parent = h.submit("q", work());
    let claimed = h.claim_one("q");
    let children = || (0..3).map(|_| Submission { queue: queue("q"), job: work() }).collect::<Vec<_>>();
    let finally = || Some(Submission { queue: queue("q"), job: work() });
    let submit = |h: &Harness, token| {
        let request = SubmitRequest::children(parent.id, token, children(), finally());
        answered(h.store().submit(request)).map_err(|refused| refused.first)
    };
    h.refused("stale_lease", "another token", |h| submit(h, Some(LeaseToken::from_bytes([9; 16]))));
    h.refused("validation", "no token", |h| submit(h, None));
    let born = submit(h, Some(claimed.token)).unwrap();
    assert_eq!(born.len(), 4);
    assert!(born.iter().all(|child| h.job(child.id).parent == Some(parent.id)));
    assert_eq!(h.state(born[3].id), StateKind::Pending);
    h.settle(&claimed, complete()).unwrap();
    h.refused("stale_lease", "after the lease", |h| submit(h, Some(claimed.token)));
    for child in h.claim_all("q") {
        h.settle(&child, complete()).unwrap();
    }
    assert_eq!(h.claim_one("q").id, born[3].id, "runs after all of them");
}

pub(super) fn submit_max_children_with_finalizer(h: &mut Harness) {
    let parent = h.submit("q", work());
    let claimed = h.claim_one("q");
    let children = vec![Submission { queue: queue("q"), job: work() }; BATCH_ITEMS_MAX];
    let finally = Submission { queue: queue("q"), job: work() };
    let request = SubmitRequest::children(parent.id, Some(claimed.token), children, Some(finally));
    let born = answered(h.store().submit(request)).unwrap();
    assert_eq!(born.len(), BATCH_ITEMS_MAX + 1);
    let settlements = h.claim_all("q").iter().map(|child| settlement(child, complete())).collect::<Vec<_>>();
    assert_eq!(settlements.len(), BATCH_ITEMS_MAX);
    assert!(answered(h.store().settle(settlements)).iter().all(Result::is_ok));
    h.tick_until_idle();
    assert_eq!(h.state(born[BATCH_ITEMS_MAX].id), StateKind::Scheduled);
}

pub(super) fn payload_size_is_bounded(h: &mut Harness) {
    let limit = 1 << 20;
    let bytes = |length: usize| Bytes::from_iter((0..length).map(|at| (at % 251) as u8));
    let job = |length: usize| NewJob::new(job_type("work"), Payload::Binary(bytes(length)));
    let mut given = Vec::new();
    for length in [0, 1, 255, 4_096, 70_000, limit] {
        given.push((h.submit("q", job(length)).seq, Payload::Binary(bytes(length))));
    }
    let seqs: Vec<Seq> = given.iter().map(|(seq, _)| *seq).collect();
    let found = answered(h.store().payloads(seqs));
    assert!(given.iter().zip(&found).all(|((_, given), found)| found.as_ref() == Some(given)));
    for (seq, given) in &given {
        let claimed = h.try_claim(request("q", 1)).unwrap().remove(0);
        assert!(claimed.claimed.seq == *seq && claimed.payload == *given, "the payload of {seq}");
    }
    let too_large = vec![job(limit + 1)];
    h.refused("payload_too_large", "one byte more", |h| h.try_submit("q", too_large).map_err(|refused| refused.first));
}

pub(super) fn external_id_is_unique_in_queue(h: &mut Harness) {
    for name in ["one", "two"] {
        h.put_queue(name, Profile::Weave);
    }
    let named = |id: &str| work_with(|job| job.external_id = Some(id.into()));
    let first = h.submit("one", named("x"));
    h.submit("two", named("x"));
    h.submit("one", named("y"));
    let again = |h: &Harness| h.try_submit("one", vec![named("x")]).map_err(|refused| refused.first);
    h.refused("duplicate_id", "in use", again);
    let twice = |h: &Harness| h.try_submit("one", vec![named("z"), named("z")]).map_err(|refused| refused.first);
    h.refused("duplicate_id", "twice in a batch", twice);
    let claimed = h.claim_one("one");
    assert_eq!(claimed.id, first.id);
    h.settle(&claimed, complete()).unwrap();
    h.refused("duplicate_id", "an ended job keeps it", again);
    h.admin(longshore_engine::AdminCommand::Delete { id: first.id });
    assert!(!h.submit("one", named("x")).duplicate, "freed with the record");
}
