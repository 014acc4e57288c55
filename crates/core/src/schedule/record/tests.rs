use super::*;

fn schedule() -> Schedule {
    Schedule {
        name: ScheduleName::new("nightly").unwrap(),
        recurrence: Recurrence::Every(Duration::from_secs(90)),
        time_zone: "UTC".into(),
        queue: QueueName::new("reports").unwrap(),
        job: r#"{"type":"report"}"#.into(),
        misfire: Misfire::One,
        overlap: Overlap::Allow,
        jitter: Duration::ZERO,
        paused: false,
        pause_note: None,
        created_at: Timestamp::from_millis(1_000),
        updated_at: Timestamp::from_millis(1_000),
        counts_from: Timestamp::from_millis(1_000),
    }
}

/// Rules Schedules, small print.
#[test]
fn a_replaced_schedule_keeps_its_count_unless_the_interval_changes() {
    let (present, now) = (schedule(), Timestamp::from_millis(50_000));
    let mut same = Schedule { created_at: now, updated_at: now, counts_from: now, ..schedule() };
    assert_eq!(same.replace(&present, None, now), DefinitionChange::Nothing);
    assert_eq!(same, present);
    let mut later = Schedule { queue: QueueName::new("other").unwrap(), ..schedule() };
    assert_eq!(later.replace(&present, None, now), DefinitionChange::SameTimes);
    assert_eq!((later.counts_from, later.updated_at), (present.counts_from, now));
    let mut slower = Schedule { recurrence: Recurrence::Every(Duration::from_secs(91)), ..schedule() };
    assert_eq!(slower.replace(&present, None, now), DefinitionChange::NewTimes);
    assert_eq!((slower.counts_from, slower.created_at), (now, present.created_at));
}

/// Rules Schedules, small print.
#[test]
fn a_replaced_schedule_keeps_its_pause_unless_the_request_has_one() {
    let now = Timestamp::from_millis(50_000);
    let mut present = schedule();
    assert_eq!(present.set_paused(true, Some("migration".into()), now), DefinitionChange::NewTimes);
    assert_eq!(present.set_paused(true, None, now), DefinitionChange::Nothing);
    assert_eq!(present.set_paused(true, Some("longer".into()), now), DefinitionChange::SameTimes);
    let mut kept = schedule();
    kept.replace(&present, None, now);
    assert_eq!((kept.paused, kept.pause_note.as_deref()), (true, Some("longer")));
    let mut resumed = schedule();
    assert_eq!(resumed.replace(&present, Some(false), now), DefinitionChange::NewTimes);
    assert_eq!((resumed.paused, resumed.pause_note), (false, None));
}

#[test]
fn ticks_of_a_paused_schedule_are_dropped() {
    let (early, now) = (Timestamp::from_millis(1), Timestamp::from_millis(9));
    let progress = Progress::starting(early);
    assert_eq!(progress.after(DefinitionChange::NewTimes, now).processed_until, now);
    assert_eq!(progress.after(DefinitionChange::SameTimes, now).processed_until, early);
}
