use super::planned::{PlannedJob, TreatedJob};
use super::*;
use crate::id::LeaseVersion;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn planned(number: u8) -> PlannedJob {
    PlannedJob {
        seq: Seq(number.into()),
        id: JobId::from_bytes([number; 16]),
        state: StateKind::DeadLetter,
        updated_at: at(0),
        lease_version: LeaseVersion(1),
        transitions: 3,
        held: false,
        cancel_requested: false,
        was_cloned: false,
        run_at: None,
        ended: None,
    }
}

fn slice(numbers: std::ops::Range<u8>, is_last: bool, now: Timestamp) -> PlannedSlice {
    let before = Seq(numbers.start.into());
    PlannedSlice { jobs: numbers.map(planned).collect(), planned_at: now, before, is_last }
}

fn changed(numbers: std::ops::Range<u8>) -> SliceResult {
    let treated = |number| TreatedJob { planned: planned(number), clone: None };
    SliceResult { changed: numbers.map(treated).collect(), refused: Vec::new() }
}

fn operation(matched: u64) -> OperationProgress {
    OperationProgress::new(OperationAction::Requeue, Some(Seq(50)), Some(matched), at(0))
}

#[test]
fn an_unpaced_operation_treats_slice_after_slice() {
    let mut op = operation(3);
    assert_eq!(op.next_step(at(0)), OperationStep::Plan { jobs: 100 });
    op.plan(slice(1..3, false, at(0)), at(0));
    assert_eq!((op.next_step(at(0)), op.remaining()), (OperationStep::Treat, 3));
    let result = SliceResult { refused: vec!["illegal_transition".into()], ..changed(1..2) };
    assert_eq!(op.record_slice(&result, at(1)), Some(0));
    assert_eq!((op.changed, op.refused, op.remaining()), (1, 1, 1));
    // A page may be empty although there are more.
    op.plan(slice(1..1, false, at(1)), at(1));
    assert_eq!(op.next_step(at(1)), OperationStep::Plan { jobs: 100 });
    op.plan(slice(1..1, true, at(1)), at(1));
    assert_eq!((op.state, op.ended_at, op.remaining()), (OperationState::Done, Some(at(1)), 0));
    assert_eq!(op.record_slice(&result, at(9)), None, "a slice is recorded once");
}

#[test]
fn the_rate_is_never_exceeded() {
    let mut op = OperationProgress { rate: Some(25), ..operation(9) };
    assert_eq!(op.next_step(at(0)), OperationStep::Plan { jobs: 3 });
    op.plan(slice(1..4, false, at(0)), at(0));
    op.record_slice(&changed(1..4), at(50));
    assert_eq!(op.next_step(at(50)), OperationStep::Rest(Some(at(120))), "three jobs at 25 per second");
    assert_eq!(op.next_step(at(120)), OperationStep::Plan { jobs: 3 });
}

#[test]
fn a_canary_waits_for_its_jobs_and_for_a_client() {
    let mut op = operation(4);
    op.canary = Some(Canary { size: 2, ..Canary::default() });
    assert_eq!(op.next_step(at(0)), OperationStep::Plan { jobs: 2 });
    op.plan(slice(1..3, false, at(0)), at(0));
    op.record_slice(&changed(1..3), at(0));
    assert_eq!((op.next_step(at(0)), op.state), (OperationStep::WatchCanary, OperationState::Running));
    assert!(op.resume(at(0)).is_err(), "it does not wait yet");
    let ended = || Some(CanaryOutcome::Ended { state: StateKind::Completed, error_code: None });
    assert!(!op.record_canary(vec![ended(), None], at(1)));
    assert!(op.record_canary(vec![ended(), Some(CanaryOutcome::Gone)], at(2)));
    assert_eq!((op.state, op.next_step(at(2))), (OperationState::Waiting, OperationStep::Rest(Some(at(300_000)))));
    op.resume(at(3)).unwrap();
    assert!(op.resume(at(3)).is_err());
    assert_eq!(op.next_step(at(3)), OperationStep::Plan { jobs: 100 });
    op.plan(slice(3..5, true, at(3)), at(3));
    op.record_slice(&changed(3..5), at(4));
    assert_eq!((op.state, op.changed, op.canary.unwrap().jobs.len()), (OperationState::Done, 4, 2));
}

#[test]
fn a_canary_that_all_jobs_belong_to_waits_too() {
    let mut op = operation(1);
    op.canary = Some(Canary { size: 5, ..Canary::default() });
    op.plan(slice(1..2, false, at(0)), at(0));
    op.record_slice(&changed(1..2), at(0));
    assert_eq!(op.next_step(at(0)), OperationStep::Plan { jobs: 4 });
    op.plan(slice(1..1, true, at(0)), at(0));
    assert_eq!(op.next_step(at(0)), OperationStep::WatchCanary);
    op.record_canary(vec![Some(CanaryOutcome::Gone)], at(0));
    op.resume(at(0)).unwrap();
    assert_eq!(op.state, OperationState::Done);
    // Without any job there is nothing to wait for.
    let mut none = operation(0);
    none.canary = Some(Canary { size: 5, ..Canary::default() });
    none.start(at(0));
    assert_eq!((none.state, none.is_settled()), (OperationState::Done, true));
}

#[test]
fn a_stop_lets_the_slice_finish_and_can_be_undone() {
    let mut op = operation(4);
    assert!(op.start_undo(at(0)).is_err(), "nothing was changed");
    op.plan(slice(1..3, false, at(0)), at(0));
    assert!(op.stop(at(1)).unwrap() && !op.stop(at(2)).unwrap());
    assert_eq!((op.next_step(at(2)), op.ended_at), (OperationStep::Treat, Some(at(1))));
    op.start_undo(at(2)).unwrap();
    assert!(op.start_undo(at(2)).is_err(), "once only");
    assert_eq!(op.next_step(at(2)), OperationStep::Treat, "the slice is recorded before it is taken back");
    op.record_slice(&changed(1..3), at(3));
    assert_eq!((op.state, op.next_step(at(3))), (OperationState::Stopped, OperationStep::Undo));
    op.record_undo(1, 1, at(4));
    let undo = op.undo.unwrap();
    assert_eq!((undo.state, undo.undone, undo.kept, op.is_settled()), (UndoState::Done, 1, 1, true));
    assert_eq!((op.remaining(), op.undo_until()), (2, None));
}

#[test]
fn chunks_are_dropped_after_five_minutes() {
    let mut op = operation(2);
    op.plan(slice(1..2, false, at(0)), at(0));
    op.record_slice(&changed(1..2), at(0));
    op.plan(slice(2..3, true, at(100_000)), at(100_000));
    assert_eq!(op.record_slice(&changed(2..3), at(100_000)), Some(1));
    assert_eq!((op.state, op.undo_until()), (OperationState::Done, Some(at(400_000))));
    assert_eq!(op.next_step(at(299_999)), OperationStep::Rest(Some(at(300_000))));
    assert_eq!(op.next_step(at(300_000)), OperationStep::DropChunks);
    op.record_dropped(1, Some(at(100_000)));
    assert_eq!((op.next_step(at(300_000)), op.is_settled()), (OperationStep::Rest(Some(at(400_000))), false));
    assert!(op.clone().start_undo(at(400_000)).is_err() && op.clone().start_undo(at(399_999)).is_ok());
    op.record_dropped(2, None);
    assert_eq!((op.next_step(at(400_000)), op.is_settled()), (OperationStep::Rest(None), true));
}

#[test]
fn counting_comes_first_and_a_dry_run_only_counts() {
    let mut op = OperationProgress::new(OperationAction::Delete, Some(Seq(9)), None, at(0));
    op.dry_run = true;
    op.start(at(0));
    assert_eq!((op.next_step(at(0)), op.count.before), (OperationStep::Count, Seq(10)));
    op.record_count(5, Some(Seq(4)), at(1));
    assert_eq!((op.next_step(at(1)), op.remaining()), (OperationStep::Count, 5));
    op.record_count(1, None, at(2));
    assert_eq!((op.state, op.count.matched, op.remaining()), (OperationState::Done, 6, 6));
    assert!(op.stop(at(3)).is_err() && op.start_undo(at(3)).is_err());
    let mut empty = OperationProgress::new(OperationAction::Delete, None, None, at(0));
    empty.start(at(0));
    assert_eq!(empty.state, OperationState::Done);
}
