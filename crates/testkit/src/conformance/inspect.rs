//! Reads: jobs by id and sequence number, payloads, queues.

use bytes::Bytes;
use longshore_core::Duration;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::{JobId, Seq};
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::{State, StateKind};
use longshore_core::submit::{NewJob, Payload, Start};
use longshore_store::{JobRef, QueuePosition};

use super::harness::*;

const UNKNOWN: JobRef = JobRef::Seq(Seq(u64::MAX / 2));

pub(super) fn get_by_id_and_seq(h: &mut Harness) {
    let jobs = h.submit_all("q", vec![work(); 3]);
    for job in &jobs {
        let (by_id, by_seq) = (h.find(JobRef::Id(job.id)).unwrap(), h.find(JobRef::Seq(job.seq)).unwrap());
        assert_eq!(by_id, by_seq);
        assert_eq!((by_id.id, by_id.seq), (job.id, job.seq));
    }
    assert_eq!(h.find(UNKNOWN), None);
    assert_eq!(h.find(JobRef::Seq(Seq(0))), None);
    assert_eq!(h.find(JobRef::Seq(Seq(u64::MAX))), None);
    assert_eq!(h.find(JobRef::Id(JobId::from_bytes([7; 16]))), None);
    assert_eq!(h.find(JobRef::Id(JobId::from_bytes([0; 16]))), None);
    let mut near = *jobs[0].id.as_bytes();
    near[15] ^= 1;
    assert_eq!(h.find(JobRef::Id(JobId::from_bytes(near))), None, "an id that differs in one bit is unknown");
}

pub(super) fn get_keeps_order(h: &mut Harness) {
    let jobs = h.submit_all("q", vec![work(); 3]);
    let [a, b, c] = [0, 1, 2].map(|index| &jobs[index]);
    let requested = vec![JobRef::Id(c.id), UNKNOWN, JobRef::Seq(a.seq), JobRef::Id(c.id), JobRef::Seq(b.seq), UNKNOWN];
    let found = answered(h.store().get(requested));
    let seqs: Vec<Option<Seq>> = found.iter().map(|job| job.as_ref().map(|job| job.seq)).collect();
    assert_eq!(seqs, [Some(c.seq), None, Some(a.seq), Some(c.seq), Some(b.seq), None]);
    assert!(answered(h.store().get(Vec::new())).is_empty());
    let payloads = answered(h.store().payloads(vec![c.seq, Seq(0), a.seq, c.seq]));
    assert_eq!(payloads.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true]);
    assert!(answered(h.store().payloads(Vec::new())).is_empty());
}

pub(super) fn get_max_batch(h: &mut Harness) {
    let jobs = h.submit_all("q", vec![work(); BATCH_ITEMS_MAX]);
    let found = answered(h.store().get(jobs.iter().map(|job| JobRef::Id(job.id)).collect()));
    assert!(jobs.iter().zip(&found).all(|(job, found)| found.as_ref().is_some_and(|found| found.seq == job.seq)));
    assert_eq!(found.len(), BATCH_ITEMS_MAX);
    let payloads = answered(h.store().payloads(jobs.iter().map(|job| job.seq).collect()));
    assert_eq!(payloads, vec![Some(work().payload); BATCH_ITEMS_MAX]);
}

/// The bytes and the kind of a payload never change.
pub(super) fn payloads_round_trip(h: &mut Harness) {
    let odd: Vec<u8> = (0..=255).rev().collect();
    let given = [
        Payload::Binary(Bytes::from(odd)),
        Payload::Json(Bytes::from_static(b"{\"a\":1.50, \"a\":1e3 , \"n\":12345678901234567890123}")),
        Payload::Json(Bytes::from_static(b" null\n")),
        Payload::Binary(Bytes::from_static(b"{}")),
        Payload::Binary(Bytes::new()),
    ];
    let new = |payload: &Payload| NewJob::new(job_type("work"), payload.clone());
    let jobs = h.submit_all("q", given.iter().map(new).collect());
    let check = |when: &str| {
        for (job, given) in jobs.iter().zip(&given) {
            assert!(h.payload(job.seq).as_ref() == Some(given), "{given:?} {when}");
        }
    };
    check("after its submission");
    for (given, index) in given.iter().zip(0..) {
        let claimed = h.try_claim(request("q", 1)).unwrap().remove(0);
        assert!(claimed.payload == *given, "{given:?} at the worker");
        let outcome = if index % 2 == 0 { complete() } else { fail(ReportedCategory::Temporary) };
        h.settle(&claimed.claimed, outcome).unwrap();
    }
    check("after a run");
    h.pass(Duration::from_mins(1));
    h.tick_until_idle();
    check("after a retry");
}

pub(super) fn queues_are_sorted_by_name(h: &mut Harness) {
    for name in ["b", "a:1", "Z", "default", "a", "a.b", "0"] {
        h.put_queue(name, Profile::Standard);
    }
    let names: Vec<String> = h.picture().queues.iter().map(|(queue, ..)| queue.name.to_string()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    assert_eq!(names.len(), 7);
    assert!(answered(h.store().queue(queue("A"))).is_none(), "names are case-sensitive");
}

pub(super) fn queue_stats_count_by_state(h: &mut Harness) {
    h.submit("q", work_with(|job| job.hold = Some(true)));
    h.submit("q", delayed(Duration::from_secs(60)));
    h.run("q", work(), complete());
    h.run("q", work(), fail(ReportedCategory::Permanent));
    h.run("q", work(), fail(ReportedCategory::Temporary));
    let cancelled = h.submit("q", work());
    h.admin(super::admin::cancel(cancelled.id, longshore_core::cancel::Force::Now));
    let dead = h.submit("q", work());
    h.admin(longshore_engine::AdminCommand::DeadLetter { id: dead.id, reason: None });
    h.submit_all("q", vec![work(); 3]);
    h.claim_one("q");
    for state in StateKind::ALL {
        let expected = if *state == StateKind::Scheduled { 2 } else { 1 };
        assert_eq!(h.count("q", *state), expected, "{state}");
    }
    assert!(h.report("default").counts.iter().all(|count| *count == 0));
}

pub(super) fn queue_stats_report_oldest_ready_job(h: &mut Harness) {
    let since = |h: &Harness| h.report("q").oldest_scheduled_at;
    h.put_queue("q", Profile::Standard);
    assert_eq!(since(h), None);
    h.submit("q", delayed(Duration::from_mins(9)));
    assert_eq!(since(h), None, "not ready yet");
    let first = h.now();
    h.submit("q", work());
    h.pass(Duration::from_secs(5));
    let second = h.now();
    h.submit("q", work());
    assert_eq!(since(h), Some(first));
    h.claim_one("q");
    assert_eq!(since(h), Some(second));
    let last = h.claim_one("q");
    assert_eq!(since(h), None);
    // A released job is first again, but the other job has waited longer.
    let third = h.now();
    h.submit("q", work());
    h.pass(Duration::from_secs(5));
    h.settle(&last, Outcome::Release).unwrap();
    assert_eq!(since(h), Some(third));
}

/// The count is the number of claims before the job's own.
pub(super) fn count_ahead_matches_claim_order(h: &mut Harness) {
    for (name, profile) in [("urgent", Profile::Standard), ("plain", Profile::Taskharbor)] {
        h.put_queue(name, profile);
        h.submit_all("elsewhere", vec![work(); 3]);
        let levels = [Priority::Low, Priority::Critical, Priority::Normal, Priority::Normal, Priority::Low];
        let jobs = levels.map(|priority| h.submit(name, work_with(|job| job.priority = priority)));
        let held = h.submit(name, work_with(|job| job.hold = Some(true)));
        let priority_order = h.report(name).queue.admission.priority_order;
        let ahead = |position: u64, priority: Priority| {
            let priority = priority_order.then_some(priority);
            answered(h.store().count_ahead(QueuePosition { queue: queue(name), position, priority }))
        };
        for claims in 0..levels.len() {
            let waiting = jobs.iter().zip(levels).filter(|(job, _)| h.state(job.id) == StateKind::Scheduled);
            let mut counts: Vec<_> = waiting.map(|(job, level)| (ahead(job.seq.0, level), job.id)).collect();
            counts.sort_unstable();
            let numbers: Vec<u64> = counts.iter().map(|(count, _)| *count).collect();
            let expected: Vec<u64> = (0..).take(levels.len() - claims).collect();
            assert_eq!(numbers, expected, "{name} after {claims} claims");
            assert_eq!(h.claim_one(name).id, counts[0].1);
        }
        assert_eq!(ahead(held.seq.0, Priority::Bulk), 0, "no job is ready");
    }
    let nowhere = QueuePosition { queue: queue("nowhere"), position: u64::MAX, priority: None };
    assert_eq!(answered(h.store().count_ahead(nowhere)), 0);
}

/// Released jobs and jobs whose delay has ended are appended to the queue.
pub(super) fn count_ahead_after_delays_and_releases(h: &mut Harness) {
    h.put_queue("tail", Profile::Taskharbor);
    let delays = [3, 1, 0, 2, 2];
    let jobs = delays.map(|seconds| {
        let start = if seconds == 0 { Start::Now } else { Start::In(Duration::from_secs(seconds)) };
        h.submit("tail", work_with(|job| job.start = start))
    });
    for _ in 0..3 {
        h.pass(Duration::from_secs(1));
    }
    let released = h.claim_one("tail");
    h.settle(&released, Outcome::Release).unwrap();
    let position = |h: &Harness, id: JobId| match h.job(id).state {
        State::Scheduled { position } => position,
        ref other => panic!("{other:?} is not scheduled"),
    };
    let mut waiting: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    while !waiting.is_empty() {
        let ahead = |id: &JobId| {
            let position = QueuePosition { queue: queue("tail"), position: position(h, *id), priority: None };
            (answered(h.store().count_ahead(position)), *id)
        };
        let mut counts: Vec<_> = waiting.iter().map(ahead).collect();
        counts.sort_unstable();
        let numbers: Vec<u64> = counts.iter().map(|(count, _)| *count).collect();
        assert_eq!(numbers, (0..).take(waiting.len()).collect::<Vec<u64>>());
        let claimed = h.claim_one("tail").id;
        assert_eq!(claimed, counts[0].1);
        waiting.retain(|id| *id != claimed);
    }
}

pub(super) fn now_follows_clock(h: &mut Harness) {
    assert_eq!(h.store().now(), h.now());
    h.clock().advance(Duration::from_millis(1_234));
    assert_eq!(h.store().now(), h.now());
}
