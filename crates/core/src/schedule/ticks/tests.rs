use super::*;
use crate::schedule::find_time_zone;

const SECOND: i64 = 1_000;

fn every(seconds: u64) -> DueTimes {
    DueTimes::every(Duration::from_secs(seconds), Timestamp::from_millis(0)).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * SECOND)
}

#[test]
fn a_tick_on_time_fires_whatever_misfire_says() {
    for misfire in Misfire::ALL {
        let plan = plan_ticks(&every(60), at(60), at(180), *misfire);
        assert_eq!(plan.ticks, [PlannedTick::Fire(at(120)), PlannedTick::Fire(at(180))]);
        assert_eq!(plan.processed_until, Some(at(180)));
        assert_eq!(plan_ticks(&every(60), at(180), at(239), *misfire), TickPlan::default());
    }
}

#[test]
fn misfire_decides_about_missed_ticks() {
    let fired = |misfire| {
        let plan = plan_ticks(&every(60), at(0), at(3_600), misfire);
        assert_eq!((plan.ticks.len(), plan.processed_until), (60, Some(at(3_600))));
        plan.ticks.iter().filter(|tick| matches!(tick, PlannedTick::Fire(_))).count()
    };
    // Those of 3,540 and 3,600 are on time.
    assert_eq!(fired(Misfire::Skip), 2);
    assert_eq!(fired(Misfire::One), 3);
    assert_eq!(fired(Misfire::All), 60);
    let plan = plan_ticks(&every(60), at(0), at(3_600), Misfire::One);
    assert_eq!(plan.ticks.iter().rev().nth(2), Some(&PlannedTick::Fire(at(3_480))));
    assert_eq!(plan.ticks.first(), Some(&PlannedTick::SkipMissed(at(60))));
}

/// A server that was down for years does not visit every tick of these years: a visit of more than
/// a billion ticks would exceed the time limit of a test.
#[test]
fn the_work_for_missed_ticks_is_bounded() {
    let zone = find_time_zone("Europe/Berlin").unwrap();
    let each_second = DueTimes::cron("* * * * * *", zone, at(0)).unwrap();
    for times in [every(1), each_second] {
        let now = at(50 * 365 * 86_400);
        let plan = plan_ticks(&times, at(0), now, Misfire::All);
        let (fired, skipped): (Vec<PlannedTick>, Vec<PlannedTick>) =
            plan.ticks.iter().copied().partition(|tick| matches!(tick, PlannedTick::Fire(_)));
        assert_eq!(fired.len(), MISSED_FIRED_MAX + 61);
        assert!(skipped.len() <= TICKS_KEPT);
        assert_eq!(plan.processed_until, Some(now));
        let plan = plan_ticks(&times, at(0), now, Misfire::Skip);
        assert_eq!(plan.ticks.len(), TICKS_KEPT + 61);
    }
}

#[test]
fn jitter_is_derived_from_name_and_due_time() {
    let jitter = Duration::from_secs(30);
    let values: Vec<Duration> = (0..1_000).map(|minute| jitter_of("a", at(minute * 60), jitter)).collect();
    assert_eq!(values, (0..1_000).map(|minute| jitter_of("a", at(minute * 60), jitter)).collect::<Vec<_>>());
    assert!(values.iter().all(|value| *value < jitter));
    // All thirds of the range are used.
    for third in 0..3 {
        let range = Duration::from_secs(third * 10)..Duration::from_secs(third * 10 + 10);
        assert!(values.iter().filter(|value| range.contains(value)).count() > 250);
    }
    assert_ne!(jitter_of("a", at(60), jitter), jitter_of("b", at(60), jitter));
    assert_eq!(jitter_of("a", at(60), Duration::ZERO), Duration::ZERO);
}

#[test]
fn jitter_counts_from_the_due_time_and_delay_from_the_creation() {
    let (none, second) = (Duration::ZERO, Duration::from_secs(1));
    assert_eq!(run_at(at(60), none, none, at(60)), None);
    assert_eq!(run_at(at(60), second, none, at(60)), Some(at(61)));
    assert_eq!(run_at(at(60), second, none, at(90)), None);
    assert_eq!(run_at(at(60), second, second, at(90)), Some(at(91)));
}

#[test]
fn a_tick_overlaps_with_a_job_that_has_not_ended() {
    assert!(overlaps(Overlap::Skip, Some(StateKind::Retrying)));
    assert!(!overlaps(Overlap::Skip, Some(StateKind::DeadLetter)));
    assert!(!overlaps(Overlap::Skip, None));
    assert!(!overlaps(Overlap::Allow, Some(StateKind::Running)));
}
