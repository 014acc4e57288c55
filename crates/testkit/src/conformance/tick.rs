//! Ticks: the effects of time.

use longshore_core::Duration;
use longshore_core::failure::ReportedCategory;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::patch::{PolicyPatch, RetentionPatch, SettingsPatch};
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::submit::NewJob;
use longshore_engine::Ticked;
use longshore_store::JobRef;

use super::harness::*;

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn tick_without_due_jobs(h: &mut Harness) {
    assert_eq!(h.tick(1), Ticked { done: 0, next: None });
    h.submit("q", work());
    assert_eq!(h.tick(1), Ticked { done: 0, next: None }, "only a command can change anything");
}

pub(super) fn tick_respects_budget(h: &mut Harness) {
    h.submit_all("q", vec![delayed(SECOND); 25]);
    h.clock().advance(SECOND);
    let mut done = 0;
    for _ in 0..25 {
        let ticked = h.tick(7);
        assert!(ticked.done <= 7);
        done += ticked.done;
        if done < 25 {
            assert!(ticked.next.is_some_and(|next| next <= h.now()), "there is more to do");
        }
    }
    assert_eq!((done, h.tick(7)), (25, Ticked { done: 0, next: None }));
    assert_eq!(h.count("q", StateKind::Scheduled), 25);
    h.submit_all("q", vec![delayed(SECOND); BATCH_ITEMS_MAX]);
    h.clock().advance(SECOND);
    h.tick_until_idle();
    assert_eq!(h.count("q", StateKind::Scheduled), 1_025);
}

fn with(policy: PolicyPatch) -> NewJob {
    work_with(|job| job.policy = policy)
}

pub(super) fn tick_processes_every_deadline(h: &mut Harness) {
    let promoted = h.submit("delayed", delayed(SECOND));
    let lifetime = PolicyPatch { lifetime: Some(SECOND), ..PolicyPatch::default() };
    let outlived = h.submit("lifetime", with(lifetime));
    let lost = h.submit("lease", with(PolicyPatch { lease: Some(SECOND), ..PolicyPatch::default() }));
    h.claim_one("lease");
    let slow = h.submit("timeout", with(PolicyPatch { execution_timeout: Some(SECOND), ..PolicyPatch::default() }));
    h.claim_one("timeout");
    let retried = h.run("retry", work(), fail(ReportedCategory::Temporary));
    let retention = RetentionPatch { completed: Some(SECOND), ..RetentionPatch::default() };
    let pruned = h.run("pruned", with(PolicyPatch { retention, ..PolicyPatch::default() }), complete());
    h.pass(Duration::from_millis(850));
    h.tick_until_idle();
    assert!(h.find(JobRef::Id(pruned.id)).is_some(), "nothing is early");
    assert_eq!((h.state(promoted.id), h.state(lost.id)), (StateKind::Delayed, StateKind::Running));
    h.pass(Duration::from_millis(300));
    h.tick_until_idle();
    assert_eq!(h.state(promoted.id), StateKind::Scheduled);
    assert_eq!(h.state(outlived.id), StateKind::DeadLetter);
    assert_eq!(h.state(lost.id), StateKind::Scheduled);
    assert_eq!(h.job(lost.id).counters.reclaims, 1);
    assert_eq!(h.state(slow.id), StateKind::Retrying);
    assert_eq!(h.state(retried.id), StateKind::Scheduled);
    assert!(h.find(JobRef::Id(pruned.id)).is_none());
}

/// `next` is never later than the next deadline, for every command that sets one.
pub(super) fn tick_returns_next_deadline(h: &mut Harness) {
    h.submit("q", delayed(Duration::from_mins(5)));
    assert_eq!(h.tick(1).next, Some(h.now() + Duration::from_mins(5)));
    h.submit("q", delayed(Duration::from_mins(3)));
    assert_eq!(h.tick(1).next, Some(h.now() + Duration::from_mins(3)));
    h.submit("r", work());
    let claimed = h.claim_one("r");
    assert_eq!(h.tick(1).next, claimed.expires_at);
    h.pass(SECOND);
    let extended = h.heartbeat(heartbeat(&claimed)).unwrap();
    assert_eq!(h.tick(1).next, extended.expires_at);
    h.settle(&claimed, complete()).unwrap();
    assert_eq!(h.tick(1).next, Some(h.now() + Duration::from_secs(179)));
    h.pass(Duration::from_mins(5));
    assert_eq!(h.count("q", StateKind::Scheduled), 2);
    let week = h.job(claimed.id).state.completed_at().unwrap() + Duration::from_days(7);
    assert_eq!(h.tick_until_idle(), Some(week), "retention is due too");
}

pub(super) fn tick_skips_future_jobs(h: &mut Harness) {
    let jobs = h.submit_all("q", (1..=20).map(|secs| delayed(Duration::from_secs(secs))).collect());
    for secs in 1..=20 {
        h.pass(SECOND);
        h.tick_until_idle();
        let due = jobs.iter().filter(|job| h.state(job.id) == StateKind::Scheduled).count();
        assert_eq!(due, secs);
        assert_eq!(h.job(jobs[secs - 1].id).scheduled_at, Some(h.now()), "at its own instant");
    }
}

pub(super) fn tick_prunes_all_records_of_job(h: &mut Harness) {
    let patch = SettingsPatch { external_ids: Some(true), ..SettingsPatch::default() };
    h.put_queue_with("q", Profile::Standard, patch);
    let job = h.run("q", work_with(|job| job.external_id = Some("x".into())), complete());
    let needed = h.run("q", work(), complete());
    let dependent = h.submit("later", after(&[needed.id]));
    let claimed = h.claim_one("later");
    assert_eq!(claimed.id, dependent.id);
    h.pass(Duration::from_secs(20));
    h.heartbeat(heartbeat(&claimed)).unwrap();
    // The lease expires meanwhile, and the job waits again.
    h.pass(Duration::from_days(7));
    h.tick_until_idle();
    assert_eq!((h.find(JobRef::Id(job.id)), h.find(JobRef::Seq(job.seq)), h.payload(job.seq)), (None, None, None));
    assert!(h.find(JobRef::Id(needed.id)).is_some(), "a living job depends on it");
    assert!(!h.submit("q", work_with(|job| job.external_id = Some("x".into()))).duplicate);
    let claimed = h.claim_one("later");
    h.settle(&claimed, complete()).unwrap();
    h.tick_until_idle();
    assert!(h.find(JobRef::Id(needed.id)).is_none(), "and then not any more");
}
