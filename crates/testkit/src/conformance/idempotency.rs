//! Idempotency keys: a repeated submission returns the same job.

use longshore_core::Duration;
use longshore_core::patch::SettingsPatch;
use longshore_core::policy::IdempotencyScope;
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_engine::AdminCommand;

use super::harness::*;

fn keys(scope: IdempotencyScope, window: Duration) -> SettingsPatch {
    SettingsPatch { idempotency_scope: Some(scope), idempotency_window: Some(window), ..SettingsPatch::default() }
}

const HOUR: Duration = Duration::from_hours(1);

pub(super) fn repeated_key_returns_first_job(h: &mut Harness) {
    let first = h.submit("q", keyed("k"));
    assert!(!first.duplicate);
    let before = h.picture();
    let mut other = keyed("k");
    other.payload = longshore_core::submit::Payload::Binary(bytes::Bytes::from_static(b"something else"));
    let again = h.submit("q", other);
    assert_eq!((again.id, again.seq, again.duplicate), (first.id, first.seq, true));
    assert!(h.picture() == before, "a duplicate changed something");
    let claimed = h.claim_one("q");
    assert_eq!(h.submit("q", keyed("k")).state, Some(StateKind::Running));
    h.settle(&claimed, complete()).unwrap();
    assert_eq!(h.submit("q", keyed("k")).state, Some(StateKind::Completed));
    assert_eq!(h.jobs().len(), 1);
}

pub(super) fn key_is_unique_in_scope(h: &mut Harness) {
    let typed = |name: &str| {
        let mut job = keyed("k");
        job.job_type = job_type(name);
        job
    };
    for (scope, same_queue, other_queue) in [
        (IdempotencyScope::Type, false, false),
        (IdempotencyScope::Queue, true, false),
        (IdempotencyScope::Global, true, true),
    ] {
        let (one, two) = (format!("one-{scope}"), format!("two-{scope}"));
        h.put_queue_with(&one, Profile::Standard, keys(scope, HOUR));
        h.put_queue_with(&two, Profile::Standard, keys(scope, HOUR));
        assert!(!h.submit(&one, typed("a")).duplicate, "{scope}");
        assert!(h.submit(&one, typed("a")).duplicate, "{scope}");
        assert_eq!(h.submit(&one, typed("b")).duplicate, same_queue, "{scope}, another type");
        assert_eq!(h.submit(&two, typed("a")).duplicate, other_queue, "{scope}, another queue");
    }
    h.put_queue_with("off", Profile::Standard, keys(IdempotencyScope::Off, HOUR));
    h.refused("validation", "scope off", |h| h.try_submit("off", vec![keyed("k")]).map_err(|refused| refused.first));
}

pub(super) fn key_repeated_in_batch(h: &mut Harness) {
    let answers = h.submit_all("q", vec![keyed("k"), work(), keyed("k"), keyed("l"), keyed("k")]);
    let duplicates: Vec<bool> = answers.iter().map(|answer| answer.duplicate).collect();
    assert_eq!(duplicates, [false, false, true, false, true]);
    assert!(answers[2].id == answers[0].id && answers[4].id == answers[0].id);
    assert_eq!(h.jobs().len(), 3);
}

pub(super) fn key_expires_with_window(h: &mut Harness) {
    h.put_queue_with("q", Profile::Standard, keys(IdempotencyScope::Type, HOUR));
    let first = h.submit("q", keyed("k"));
    h.pass(Duration::from_millis(HOUR.as_millis() - 1));
    assert!(h.submit("q", keyed("k")).duplicate, "to the last millisecond");
    h.pass(Duration::from_millis(1));
    let second = h.submit("q", keyed("k"));
    assert!(!second.duplicate && second.id != first.id);
    assert_eq!(h.submit("q", keyed("k")).id, second.id, "the window starts again");
}

pub(super) fn key_outlives_job_until_window_ends(h: &mut Harness) {
    h.put_queue_with("q", Profile::Standard, keys(IdempotencyScope::Type, HOUR));
    let first = h.run("q", keyed("k"), complete());
    h.admin(AdminCommand::Delete { id: first.id });
    assert!(h.jobs().is_empty());
    let again = h.submit("q", keyed("k"));
    assert_eq!((again.id, again.seq, again.state, again.duplicate), (first.id, first.seq, None, true));
    h.pass(HOUR);
    assert!(!h.submit("q", keyed("k")).duplicate);
}

pub(super) fn unlimited_key_is_deleted_with_job(h: &mut Harness) {
    h.put_queue_with("q", Profile::Standard, keys(IdempotencyScope::Type, Duration::ZERO));
    let first = h.run("q", keyed("k"), complete());
    h.pass(Duration::from_days(6));
    assert!(h.submit("q", keyed("k")).duplicate);
    h.admin(AdminCommand::Delete { id: first.id });
    assert!(!h.submit("q", keyed("k")).duplicate);
}
