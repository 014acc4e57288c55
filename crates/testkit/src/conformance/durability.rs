//! Acknowledged changes survive closing and reopening the store.

use bytes::Bytes;
use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::patch::{PolicyPatch, SettingsPatch};
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{AdminCommand, DeleteQueue, Heartbeat, QueueDeleteMode};
use longshore_store::JobRef;

pub(super) use super::directives::directives_survive_reopen;
use super::harness::*;
pub(super) use super::system::system_records_survive_reopen;

pub(super) fn jobs_survive_reopen(h: &mut Harness) {
    super::listing::crowd(h, 90);
    h.put_queue("named", Profile::Weave);
    h.submit("named", work_with(|job| job.external_id = Some("x".into())));
    let claimed = h.claim_one("named");
    let notes =
        HeartbeatData { progress: Some(Bytes::from_static(b"p")), checkpoint: Some(Bytes::from_static(b"\x00")) };
    h.heartbeat(Heartbeat { notes, ..heartbeat(&claimed) }).unwrap();
    let first = h.submit("waiting", work());
    h.submit("waiting", after(&[first.id]));
    let asked = h.claim_one("waiting");
    h.admin(super::admin::cancel(asked.id, Force::ByPolicy));
    let before = h.picture();
    h.reopen();
    assert_eq!(h.picture(), before);
    h.reopen();
    assert_eq!(h.picture(), before, "and opening alone changes nothing");
}

pub(super) fn payloads_survive_reopen(h: &mut Harness) {
    let payload = |length: usize| Payload::Binary(Bytes::from_iter((0..length).map(|at| (at * 7 % 253) as u8)));
    let sizes = [0, 1, 100, 1_000, 5_000, 100_000, 1 << 20];
    let job = |length: &usize| NewJob::new(job_type("work"), payload(*length));
    let jobs = h.submit_all("q", sizes.iter().map(job).collect());
    let json = h.submit("q", NewJob::new(job_type("work"), Payload::Json(Bytes::from_static(b"[1, 2]"))));
    h.reopen();
    for (job, length) in jobs.iter().zip(sizes) {
        assert!(h.payload(job.seq) == Some(payload(length)), "{length} bytes");
        let claimed = h.try_claim(request("q", 1)).unwrap().remove(0);
        assert!(claimed.claimed.id == job.id && claimed.payload == payload(length), "{length} bytes, claimed");
    }
    assert_eq!(h.payload(json.seq), Some(Payload::Json(Bytes::from_static(b"[1, 2]"))));
}

pub(super) fn tokens_survive_reopen(h: &mut Harness) {
    h.submit_all("q", vec![work(); 3]);
    let claimed = h.claim_all("q");
    h.reopen();
    let extended = h.heartbeat(heartbeat(&claimed[0])).unwrap();
    assert_eq!(extended.expires_at, Some(h.now() + Duration::from_secs(30)));
    assert_eq!(h.settle(&claimed[0], complete()), Ok(StateKind::Completed));
    assert_eq!(h.settle(&claimed[1], Outcome::Release), Ok(StateKind::Scheduled));
    h.refused("stale_lease", "released", |h| h.settle(&claimed[1], complete()));
    let again = h.claim_one("q");
    assert_eq!((again.id, again.version.0), (claimed[1].id, 2));
    assert!(claimed.iter().all(|old| old.token != again.token));
    h.reopen();
    h.refused("stale_lease", "of an earlier claim", |h| h.settle(&claimed[1], complete()));
    h.clock().advance_to(claimed[2].expires_at.unwrap());
    h.refused("stale_lease", "expired", |h| h.settle(&claimed[2], complete()));
}

pub(super) fn repeated_settlement_survives_reopen(h: &mut Harness) {
    h.submit_all("q", vec![work(); 2]);
    let claimed = h.claim_all("q");
    h.settle(&claimed[0], complete()).unwrap();
    h.settle(&claimed[1], fail(ReportedCategory::Temporary)).unwrap();
    h.reopen();
    let before = h.picture();
    assert_eq!(h.settle(&claimed[0], complete()), Ok(StateKind::Completed));
    assert_eq!(h.settle(&claimed[1], fail(ReportedCategory::Temporary)), Ok(StateKind::Retrying));
    assert!(h.picture() == before, "the second time changed something");
}

pub(super) fn keys_and_external_ids_survive_reopen(h: &mut Harness) {
    h.put_queue("named", Profile::Weave);
    let named = || work_with(|job| job.external_id = Some("x".into()));
    let (first, _) = (h.submit("q", keyed("k")), h.submit("named", named()));
    h.reopen();
    let again = h.submit("q", keyed("k"));
    assert_eq!((again.id, again.duplicate), (first.id, true));
    h.refused("duplicate_id", "in use", |h| h.try_submit("named", vec![named()]).map_err(|refused| refused.first));
    h.pass(Duration::from_hours(24));
    assert!(!h.submit("q", keyed("k")).duplicate, "the window ends when it would have");
}

pub(super) fn keys_of_deleted_jobs_survive_reopen(h: &mut Harness) {
    let job = h.run("q", keyed("k"), complete());
    h.admin(AdminCommand::Delete { id: job.id });
    h.reopen();
    let again = h.submit("q", keyed("k"));
    assert_eq!((again.id, again.state, again.duplicate), (job.id, None, true));
    h.reopen_after(Duration::from_hours(24));
    h.tick_until_idle();
    assert!(!h.submit("q", keyed("k")).duplicate);
}

pub(super) fn queue_settings_survive_reopen(h: &mut Harness) {
    for (profile, n) in Profile::ALL.iter().zip(1..) {
        let job = PolicyPatch { lease: Some(Duration::from_millis(n)), ..PolicyPatch::default() };
        let patch = SettingsPatch { job, max_queued: Some(Some(n)), ..SettingsPatch::default() };
        h.put_queue_with(profile.as_str(), *profile, patch);
    }
    h.pause("weave");
    h.pause("default");
    h.submit("by-submission", work());
    let before = h.picture();
    h.reopen();
    assert_eq!(h.picture(), before);
    assert!(h.report("weave").queue.paused && !h.report("standard").queue.paused);
    h.submit("weave", work());
    assert!(h.claim("weave", 1).is_empty());
    h.admin(AdminCommand::ResumeQueue { queue: queue("weave") });
    h.reopen();
    assert_eq!(h.claim_one("weave").expires_at, Some(h.now() + Duration::from_millis(5)));
}

pub(super) fn deleted_queue_stays_deleted(h: &mut Harness) {
    let job = h.submit("q", work());
    let how = DeleteQueue::Force(QueueDeleteMode::Cancel);
    h.admin(AdminCommand::DeleteQueue { queue: queue("q"), how });
    h.reopen();
    assert!(answered(h.store().queue(queue("q"))).is_none());
    h.tick_until_idle();
    assert_eq!(h.state(job.id), StateKind::Cancelled);
}

pub(super) fn counts_survive_reopen(h: &mut Harness) {
    super::listing::crowd(h, 45);
    let counts = |h: &Harness| h.picture().queues.into_iter().map(|(queue, counts, _)| (queue.name.clone(), counts));
    let before: Vec<_> = counts(h).collect();
    h.reopen();
    assert_eq!(counts(h).collect::<Vec<_>>(), before);
    h.run("three", work(), complete());
    h.reopen();
    assert_eq!(h.count("three", StateKind::Completed), 1);
}

pub(super) fn deleted_jobs_stay_deleted(h: &mut Harness) {
    let kept = h.run("q", work(), complete());
    let deleted = h.run("q", work(), complete());
    h.admin(AdminCommand::Delete { id: deleted.id });
    h.reopen();
    assert_eq!((h.find(JobRef::Id(deleted.id)), h.payload(deleted.seq)), (None, None));
    assert!(h.find(JobRef::Id(kept.id)).is_some());
}

/// Even if the newest record was deleted and positions were assigned after it.
pub(super) fn sequence_numbers_are_never_reused(h: &mut Harness) {
    h.put_queue("tail", Profile::Taskharbor);
    h.submit("tail", work());
    let mut last = h.run("q", work(), complete());
    for _ in 0..4 {
        h.admin(AdminCommand::Delete { id: last.id });
        let claimed = h.claim_one("tail");
        h.settle(&claimed, Outcome::Release).unwrap();
        h.reopen();
        let next = h.run("q", work(), complete());
        assert!(next.seq > last.seq, "{} after {}", next.seq, last.seq);
        last = next;
    }
    h.submit("tail", work());
    let order: Vec<_> = h.claim_all("tail").iter().map(|job| job.version.0).collect();
    assert_eq!(order, [5, 1], "who came back earlier stands before who came later");
}

pub(super) fn reopen_empty_store(h: &mut Harness) {
    let before = h.picture();
    h.reopen();
    assert_eq!(h.picture(), before);
    assert_eq!(h.tick(1).next, None);
}

pub(super) fn reopen_many_times(h: &mut Harness) {
    let mut alive = Vec::new();
    for round in 0..25_u64 {
        alive.push(h.submit("q", keyed(&round.to_string())).id);
        if round % 3 == 2 {
            let claimed = h.claim_one("q");
            assert_eq!(claimed.id, alive.remove(0), "first in, first out, round {round}");
            h.settle(&claimed, complete()).unwrap();
        }
        h.reopen();
        assert_eq!(h.count("q", StateKind::Scheduled), alive.len() as u64);
    }
}

pub(super) fn totals_survive_reopen(h: &mut Harness) {
    let expected = super::dialect::busy(h);
    h.reopen();
    assert_eq!(answered(h.store().ocypod_totals()), expected);
    h.put_queue("o", Profile::Ocypod);
    h.submit("o", super::dialect::job());
    h.reopen();
    assert_eq!(answered(h.store().ocypod_totals()).created, expected.created + 1);
}
