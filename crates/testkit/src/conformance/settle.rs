//! Settlements: each ends one lease, once.

use bytes::Bytes;
use longshore_core::Duration;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::id::{JobId, LeaseToken};
use longshore_core::limits::{BATCH_ITEMS_MAX, CASCADE_JOBS_MAX};
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_engine::Settlement;

use super::harness::*;

pub(super) fn outcome_determines_state(h: &mut Harness) {
    let result = Some(Bytes::from_static(b"{\"n\": 1.0}"));
    let later = Outcome::Snooze { delay: Duration::from_secs(5) };
    let report = ReportedFailure {
        code: Some("E7".into()),
        cause: Some("why".into()),
        ..ReportedFailure::new(ReportedCategory::System, "x")
    };
    for (outcome, state) in [
        (Outcome::Complete { result: result.clone(), progress: None }, StateKind::Completed),
        (Outcome::Fail(report), StateKind::Retrying),
        (fail(ReportedCategory::Permanent), StateKind::Failed),
        (later, StateKind::Delayed),
        (Outcome::Release, StateKind::Scheduled),
    ] {
        let name = format!("q-{state}");
        let job = h.submit(&name, work());
        let claimed = h.claim_one(&name);
        assert_eq!(h.settle(&claimed, outcome), Ok(state));
        let stored = h.job(job.id);
        assert_eq!((stored.kind(), stored.attempts.len()), (state, 1));
        assert!(stored.attempts[0].end.is_some() && stored.state.lease().is_none());
        assert_eq!(stored.result, if state == StateKind::Completed { result.clone() } else { None });
        if state == StateKind::Retrying {
            let error = stored.error.as_ref().unwrap();
            assert_eq!((error.code.as_deref(), error.cause.as_deref()), (Some("E7"), Some("why")));
        }
    }
}

pub(super) fn settle_verdicts_keep_order(h: &mut Harness) {
    let claimed = claim_many(h, 6);
    let unknown = Settlement { id: JobId::from_bytes([7; 16]), token: Some(claimed[0].token), outcome: complete() };
    let stale = Settlement { token: Some(LeaseToken::from_bytes([9; 16])), ..settlement(&claimed[1], complete()) };
    let batch = vec![
        settlement(&claimed[5], complete()),
        unknown,
        settlement(&claimed[4], Outcome::Release),
        stale,
        settlement(&claimed[3], fail(ReportedCategory::Permanent)),
        Settlement { token: None, ..settlement(&claimed[2], complete()) },
    ];
    let verdicts = answered(h.store().settle(batch));
    let words: Vec<&str> =
        verdicts.iter().map(|verdict| verdict.as_ref().map_or_else(Refusal::code, |state| state.as_str())).collect();
    assert_eq!(words, ["completed", "job_not_found", "scheduled", "stale_lease", "failed", "validation"]);
    let states: Vec<&str> = claimed.iter().map(|job| h.state(job.id).as_str()).collect();
    assert_eq!(states, ["running", "running", "running", "failed", "scheduled", "completed"]);
}

fn claim_many(h: &Harness, jobs: usize) -> Vec<longshore_engine::Claimed> {
    h.submit_all("q", vec![work(); jobs]);
    let claimed = h.claim_all("q");
    assert_eq!(claimed.len(), jobs);
    claimed
}

pub(super) fn repeated_settlement_returns_same_verdict(h: &mut Harness) {
    for (outcome, state, other) in [
        (complete(), StateKind::Completed, Outcome::Release),
        (fail(ReportedCategory::Permanent), StateKind::Failed, complete()),
        (fail(ReportedCategory::Temporary), StateKind::Retrying, complete()),
        (Outcome::Snooze { delay: Duration::from_mins(1) }, StateKind::Delayed, complete()),
    ] {
        let name = format!("q-{state}");
        h.submit(&name, work());
        let claimed = h.claim_one(&name);
        assert_eq!(h.settle(&claimed, outcome.clone()), Ok(state));
        let before = h.picture();
        assert_eq!(h.settle(&claimed, outcome), Ok(state));
        assert!(h.picture() == before, "the second time changed something");
        h.refused("stale_lease", "another outcome", |h| h.settle(&claimed, other));
    }
}

pub(super) fn stale_token_changes_nothing(h: &mut Harness) {
    h.submit("q", work());
    let old = h.claim_one("q");
    h.settle(&old, Outcome::Release).unwrap();
    let new = h.claim_one("q");
    assert_eq!(old.id, new.id);
    for outcome in [complete(), fail(ReportedCategory::Temporary), Outcome::Release] {
        h.refused("stale_lease", "the last holder's token", |h| h.settle(&old, outcome));
    }
    h.settle(&new, complete()).unwrap();
}

pub(super) fn expired_lease_settles_nothing(h: &mut Harness) {
    h.submit("q", work());
    let claimed = h.claim_one("q");
    // At the instant of expiry, before any tick.
    h.clock().advance_to(claimed.expires_at.unwrap());
    h.refused("stale_lease", "expired by the clock", |h| h.settle(&claimed, complete()));
    h.tick_until_idle();
    h.refused("stale_lease", "reclaimed", |h| h.settle(&claimed, complete()));
    assert_eq!(h.claim_one("q").version.0, 2);
}

pub(super) fn job_repeated_in_batch(h: &mut Harness) {
    let claimed = claim_many(h, 2);
    let batch = vec![
        settlement(&claimed[0], complete()),
        settlement(&claimed[0], complete()),
        settlement(&claimed[1], Outcome::Release),
        settlement(&claimed[1], complete()),
    ];
    let verdicts = answered(h.store().settle(batch));
    assert_eq!(verdicts[..3], [Ok(StateKind::Completed), Ok(StateKind::Completed), Ok(StateKind::Scheduled)]);
    assert_eq!(verdicts[3].as_ref().unwrap_err().code(), "stale_lease");
    assert_eq!(h.job(claimed[0].id).attempts.len(), 1);
}

pub(super) fn settle_max_batch(h: &mut Harness) {
    assert!(answered(h.store().settle(Vec::new())).is_empty(), "none is some number too");
    let claimed = claim_many(h, BATCH_ITEMS_MAX);
    let verdicts = answered(h.store().settle(claimed.iter().map(|job| settlement(job, complete())).collect()));
    assert_eq!(verdicts, vec![Ok(StateKind::Completed); BATCH_ITEMS_MAX]);
    assert_eq!(h.count("q", StateKind::Completed), 1_000);
}

pub(super) fn settle_propagates_to_dependents(h: &mut Harness) {
    for (outcome, state) in [
        (complete(), StateKind::Scheduled),
        (fail(ReportedCategory::Permanent), StateKind::Failed),
        (fail(ReportedCategory::Temporary), StateKind::Pending),
    ] {
        let name = format!("q-{state}");
        let first = h.submit(&name, work());
        let second = h.submit(&name, after(&[first.id]));
        let third = h.submit(&name, after(&[second.id]));
        assert_eq!(h.job(first.id).unfinished_dependents, 1);
        let claimed = h.claim_one(&name);
        h.settle(&claimed, outcome).unwrap();
        h.tick_until_idle();
        assert_eq!(h.state(second.id), state);
        let passed_on = if state == StateKind::Failed { StateKind::Failed } else { StateKind::Pending };
        assert_eq!(h.state(third.id), passed_on);
    }
}

/// More dependents than one command propagates to. Ticks process the rest.
pub(super) fn settle_propagates_in_slices(h: &mut Harness) {
    let dependents = CASCADE_JOBS_MAX + 200;
    let first = h.submit("q", work());
    for some in [CASCADE_JOBS_MAX, 200] {
        h.submit_all("later", vec![after(&[first.id]); some]);
    }
    let claimed = h.claim_one("q");
    h.settle(&claimed, complete()).unwrap();
    h.tick_until_idle();
    assert_eq!(h.count("later", StateKind::Scheduled), dependents as u64);
    assert_eq!(h.claim_all("later").len(), dependents);
}
