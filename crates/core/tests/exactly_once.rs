//! Two nodes that race for the ticks of schedules, over clock changes, restarts and skewed clocks.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_wrap, reason = "this is a test")]

use jiff::tz::{AmbiguousOffset, TimeZone};
use longshore_core::Timestamp;
use longshore_core::rng::{Rng as _, SeededRng};
use longshore_core::schedule::ticks::{PlannedTick, plan_ticks};
use longshore_core::schedule::{DueTimes, Progress, find_time_zone};
use longshore_types::Misfire;

const ZONES: [&str; 5] =
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago"];
const MINUTE: i64 = 60_000;

/// The record of a schedule in a store: every write changes the revision.
struct Record {
    revision: u64,
    progress: Progress,
    fired: Vec<Timestamp>,
}

/// What a node has read, and plans to write.
struct Planned {
    revision: u64,
    progress: Progress,
    fires: Vec<Timestamp>,
}

#[expect(clippy::panic, reason = "a skipped tick fails the test")]
fn plan(record: &Record, times: &DueTimes, now: Timestamp) -> Planned {
    let plan = plan_ticks(times, record.progress.processed_until, now, Misfire::All);
    let fires = plan.ticks.into_iter().map(|tick| match tick {
        PlannedTick::Fire(at) => at,
        PlannedTick::SkipMissed(at) => panic!("{at:?} was skipped"),
    });
    let processed_until = plan.processed_until.unwrap_or(record.progress.processed_until);
    let progress = Progress { processed_until, ..record.progress.clone() };
    Planned { revision: record.revision, progress, fires: fires.collect() }
}

/// Writes if the record is as it was read.
fn compare_and_set(record: &mut Record, planned: Planned) {
    if planned.revision == record.revision && !planned.fires.is_empty() {
        record.revision += 1;
        record.progress = planned.progress;
        record.fired.extend(planned.fires);
    }
}

/// Returns the due times by counting minutes, without a cron library. Local time skips the second
/// pass of a repeated hour.
fn expected(zone: &TimeZone, is_elapsed: bool, start: i64, end: i64) -> Vec<Timestamp> {
    let minutes = (start / MINUTE + 1..=end / MINUTE).map(|minute| minute * MINUTE);
    let is_due = |millis: &i64| {
        let at = jiff::Timestamp::from_millisecond(*millis).unwrap();
        let ambiguous = zone.to_ambiguous_timestamp(zone.to_datetime(at));
        let is_fold = matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. });
        is_elapsed || !is_fold || ambiguous.earlier().unwrap() == at
    };
    minutes.filter(is_due).map(Timestamp::from_millis).collect()
}

fn simulate(zone: &str, is_elapsed: bool, start: i64, minutes: i64, seed: u64) -> usize {
    let zone = find_time_zone(zone).unwrap();
    let expression = if is_elapsed { "* * * * *" } else { "* 0-23 * * *" };
    let at = Timestamp::from_millis;
    let times = DueTimes::cron(expression, zone.clone(), at(start)).unwrap();
    let mut rng = SeededRng::new(seed);
    let mut record = Record { revision: 0, progress: Progress::starting(at(start)), fired: Vec::new() };
    let (mut now, end) = (start, start + minutes * MINUTE);
    while now < end {
        // Mostly seconds; sometimes all nodes are down for hours.
        let step = if rng.next_u64().is_multiple_of(500) { 10 * 3_600_000 } else { 90_000 };
        now = (now + (rng.next_u64() % step) as i64).min(end);
        let skew = |rng: &mut SeededRng| (rng.next_u64() % 2_000) as i64;
        let nodes = [now - skew(&mut rng), now - skew(&mut rng)];
        // Both read, then both write: the second write finds another revision. Or one restarts in
        // between, and reads again.
        let (one, other) = (plan(&record, &times, at(nodes[0])), plan(&record, &times, at(nodes[1])));
        compare_and_set(&mut record, one);
        if rng.next_u64().is_multiple_of(4) {
            let again = plan(&record, &times, at(nodes[1]));
            compare_and_set(&mut record, again);
        } else {
            compare_and_set(&mut record, other);
        }
    }
    let last = plan(&record, &times, at(end));
    compare_and_set(&mut record, last);
    let expected = expected(&zone, is_elapsed, start, end);
    assert!(record.fired == expected, "{expression}: {} fired of {}", record.fired.len(), expected.len());
    record.fired.len()
}

/// Half of the ticks are around the clock changes of spring, half around those of autumn.
#[test]
fn a_million_ticks_fire_exactly_once() {
    let mut ticks = 0;
    for (seed, zone) in (1_u64..).zip(ZONES) {
        for start in ["2026-02-14T12:34:56Z", "2026-09-01T12:34:56Z"] {
            let start = start.parse::<jiff::Timestamp>().unwrap().as_millisecond();
            for is_elapsed in [true, false] {
                ticks += simulate(zone, is_elapsed, start, 51_000, seed);
            }
        }
    }
    assert!(ticks > 1_000_000, "only {ticks} ticks");
}
