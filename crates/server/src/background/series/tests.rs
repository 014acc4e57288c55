use std::sync::Arc;

use super::*;
use longshore_core::history::{Cause, Transition};
use longshore_core::id::{JobId, JobType, Seq};
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_engine::Queue;

const MINUTE: i64 = 60_000;

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn moved(queue: &str, from: Option<StateKind>, to: StateKind, millis: i64, since: Option<i64>) -> Effect {
    Effect::Moved {
        id: JobId::from_bytes([1; 16]),
        seq: Seq(1),
        queue: name(queue),
        job_type: JobType::new("t").unwrap(),
        workflow: None,
        step: Transition { from, to, at: at(millis), cause: Cause::Create },
        since: since.map(at),
    }
}

/// A job that is submitted, waits 2 s, and fails for good after 4 s.
fn dead_job(queue: &str, start: i64) -> Vec<Effect> {
    vec![
        moved(queue, None, StateKind::Pending, start, None),
        moved(queue, Some(StateKind::Pending), StateKind::Scheduled, start, None),
        moved(queue, Some(StateKind::Scheduled), StateKind::Running, start + 2_000, Some(start)),
        moved(queue, Some(StateKind::Running), StateKind::DeadLetter, start + 6_000, Some(start + 2_000)),
    ]
}

fn report(queue: &str, dead: u64) -> QueueStats {
    let queue = Queue::new(name(queue), Profile::Standard, SettingsPatch::default()).unwrap();
    let mut counts = StateCounts::default();
    counts[StateKind::DeadLetter as usize] = dead;
    QueueStats { queue: Arc::new(queue), counts, oldest_scheduled_at: None }
}

fn read(store: &SeriesStore, now: i64, window_ms: i64, step_ms: i64) -> SeriesAnswer {
    store.read(at(now), SeriesSpec { window_ms, step_ms }, &[&name("q")], None)
}

#[test]
fn points_have_counts_gauges_and_durations() {
    let store = SeriesStore::new(at(0));
    store.start(at(0), &[report("q", 3)]);
    store.count(&dead_job("q", 10_000));
    let answer = read(&store, 90_000, 3_600_000, 30_000);
    assert_eq!(answer.totals.len(), 4, "points begin with the server");
    assert_eq!(answer.totals, answer.queues[&name("q")]);
    let first = &answer.totals[0];
    assert_eq!((first.submitted, first.completed, first.failed), (1, 0, 1));
    assert_eq!((first.depth, first.slots, first.dead_letters), (0, 0, 4));
    let (wait, run) = (first.wait.unwrap(), first.run.unwrap());
    assert!((1.86..2.14).contains(&wait.p50) && (3.7..4.3).contains(&run.p99), "{wait:?} {run:?}");
    let last = &answer.totals[3];
    assert_eq!((last.submitted, last.dead_letters, last.wait), (0, 4, None));
    // The same at 1 s.
    let fine = read(&store, 90_000, 300_000, 1_000).totals;
    let of = |second: usize| (fine[second].submitted, fine[second].depth, fine[second].slots, fine[second].failed);
    assert_eq!(
        [of(9), of(10), of(11), of(12), of(16)],
        [(0, 0, 0, 0), (1, 1, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    );
    // Longer steps sum up shorter intervals.
    let minutes = read(&store, 90_000, 3_600_000, MINUTE).totals;
    assert_eq!((minutes.len(), minutes[0].failed, minutes[1].dead_letters), (2, 1, 4));
}

#[test]
fn a_reading_corrects_more_than_moved_meanwhile() {
    let store = SeriesStore::new(at(0));
    store.start(at(0), &[report("q", 3)]);
    store.begin_reading();
    store.count(&dead_job("q", 1_000));
    // The reading was taken before the effects: the difference is within them.
    store.end_reading(at(10_000), &[report("q", 3)]);
    assert_eq!(read(&store, 10_000, MINUTE, 30_000).totals[0].dead_letters, 4);
    store.begin_reading();
    store.end_reading(at(40_000), &[report("q", 9), report("other", 1)]);
    let answer = read(&store, 40_000, MINUTE, 30_000);
    assert_eq!((answer.totals[0].dead_letters, answer.totals[1].dead_letters), (4, 10));
    assert_eq!(answer.queues[&name("q")][1].dead_letters, 9);
    store.begin_reading();
    store.end_reading(at(41_000), &[report("other", 1)]);
    assert!(read(&store, 41_000, MINUTE, 30_000).queues.is_empty(), "a deleted queue is forgotten");
}

#[test]
fn recent_events_are_those_of_their_windows() {
    let store = SeriesStore::new(at(0));
    store.start(at(0), &[report("q", 3)]);
    (0..5).for_each(|number| store.count(&dead_job("q", 20 * MINUTE + number * 1_000)));
    let recent = |now: i64| store.recent(at(now), &name("q"), 5 * MINUTE, 15 * MINUTE);
    let seen = recent(21 * MINUTE).unwrap();
    assert_eq!((seen.failed, seen.completed, seen.dead_letters_before), (5, 0, 3));
    assert_eq!((seen.failing_since, seen.growing_since), (Some(at(20 * MINUTE)), Some(at(20 * MINUTE))));
    let later = recent(30 * MINUTE).unwrap();
    assert_eq!((later.failed, later.dead_letters_before), (0, 3));
    assert!(recent(60 * MINUTE).is_none());
}

#[test]
fn queues_are_bounded_and_idle_ones_make_room() {
    let store = SeriesStore::new(at(0));
    for number in 0..=QUEUES_MAX {
        store.count(&dead_job(&format!("q{number}"), 1_000));
    }
    let count = || store.0.lock().queues.len();
    let is_kept = |queue: &str| store.0.lock().queues.contains_key(&name(queue));
    assert_eq!((count(), is_kept("q1000")), (QUEUES_MAX, false));
    assert_eq!(read(&store, 10_000, MINUTE, 30_000).totals[0].submitted, 1_001, "totals have all queues");
    let later = 2 * 3_600_000;
    for number in 1..QUEUES_MAX {
        store.count(&dead_job(&format!("q{number}"), later));
    }
    store.count(&dead_job("q1000", later));
    let reports: Vec<QueueStats> = (0..=QUEUES_MAX).map(|number| report(&format!("q{number}"), 2)).collect();
    store.begin_reading();
    store.end_reading(at(later + 10_000), &reports);
    assert_eq!((count(), is_kept("q1000"), is_kept("q0")), (QUEUES_MAX, true, false));
}

#[test]
fn windows_and_steps_are_those_in_memory() {
    let is_kept = |window_ms, step_ms| SeriesSpec { window_ms, step_ms }.is_kept();
    assert!(is_kept(300_000, 1_000) && is_kept(3_600_000, 30_000) && is_kept(86_400_000, 60_000));
    for (window, step) in [(300_001, 1_000), (3_600_000, 45_000), (86_400_001, 30_000), (30_000, 60_000), (1_000, 500)]
    {
        assert!(!is_kept(window, step), "{window} {step}");
    }
}
