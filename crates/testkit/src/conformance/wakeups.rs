//! Hints: whoever waits is told after the change is there to be seen.

use longshore_core::Duration;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::JobId;
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_engine::{AdminCommand, Effect};
use longshore_store::ChangeFeed;

use super::harness::*;
use super::workflows::{closed, retry};
use crate::block_on::block_on_for;

/// Longer than any commit takes: a hint that has not come by then does not come.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// The next effects; a listener that has just subscribed misses none.
fn told(wakeups: &mut ChangeFeed) -> Vec<Effect> {
    let effects = block_on_for(PATIENCE, wakeups.changed()).expect("the change was announced");
    effects.expect("nothing was missed").to_vec()
}

/// Listens until a job has moved into this state.
fn hears(wakeups: &mut ChangeFeed, job: JobId, state: StateKind) {
    loop {
        let effects = told(wakeups);
        let moved =
            |effect: &Effect| matches!(effect, Effect::Moved { id, step, .. } if *id == job && step.to == state);
        if effects.iter().any(moved) {
            return;
        }
    }
}

fn hears_of_work(wakeups: &mut ChangeFeed, name: &str) {
    while !told(wakeups).contains(&Effect::Claimable(queue(name))) {}
}

pub(super) fn a_change_is_told_after_it_is_there(h: &mut Harness) {
    let mut wakeups = h.store().wakeups();
    let job = h.submit("q", work());
    let effects = told(&mut wakeups);
    let moves: Vec<StateKind> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Moved { id, seq, queue, job_type, workflow, step } => {
                assert_eq!((*id, *seq, queue.as_str(), job_type), (job.id, job.seq, "q", &work().job_type));
                assert_eq!((step.at, *workflow), (h.now(), None));
                Some(step.to)
            }
            Effect::Claimable(_) => None,
        })
        .collect();
    assert_eq!(moves, [StateKind::Pending, StateKind::Scheduled], "every move, in order");
    assert_eq!(h.state(job.id), StateKind::Scheduled, "and there it is");
    let claimed = h.claim_one("q");
    hears(&mut wakeups, job.id, StateKind::Running);
    h.settle(&claimed, complete()).unwrap();
    hears(&mut wakeups, job.id, StateKind::Completed);
    let late = h.submit("q", delayed(Duration::from_secs(1)));
    h.pass(Duration::from_secs(1));
    h.settle_down();
    hears(&mut wakeups, late.id, StateKind::Scheduled);
}

pub(super) fn what_is_refused_is_not_told(h: &mut Harness) {
    let job = h.run("q", work(), complete());
    let mut wakeups = h.store().wakeups();
    assert!(h.try_admin(AdminCommand::RunNow { id: job.id }).is_err());
    assert!(h.try_submit("q", Vec::new()).is_err());
    assert!(h.claim("q", 1).is_empty());
    let next = h.submit("q", work());
    let effects = told(&mut wakeups);
    let of_next = |effect: &Effect| matches!(effect, Effect::Moved { id, .. } if *id == next.id);
    assert!(effects.iter().all(of_next), "only of the change that was made: {effects:?}");
}

pub(super) fn everybody_listening_is_told(h: &mut Harness) {
    let mut listeners: Vec<ChangeFeed> = (0..3).map(|_| h.store().wakeups()).collect();
    let jobs = h.submit_all("q", vec![work(); 3]);
    for listener in &mut listeners {
        let effects = told(listener);
        for job in &jobs {
            let in_line = |effect: &Effect| matches!(effect, Effect::Moved { id, step, .. } if *id == job.id && step.to == StateKind::Scheduled);
            assert!(effects.iter().any(in_line), "one commit, one hint");
        }
    }
    let late = h.store().wakeups();
    drop(listeners);
    h.submit("q", work());
    drop(late);
    h.submit("q", work());
}

pub(super) fn a_resumed_queue_may_have_work(h: &mut Harness) {
    h.submit("q", work());
    h.pause("q");
    let mut wakeups = h.store().wakeups();
    h.admin(AdminCommand::ResumeQueue { queue: queue("q") });
    hears_of_work(&mut wakeups, "q");
}

pub(super) fn the_next_deadline_is_announced(h: &mut Harness) {
    let mut wakeups = h.store().wakeups();
    let mut expect = |due: longshore_core::Timestamp| {
        // It may be announced a little after the answer, never later than it falls due.
        while wakeups.deadline().is_none_or(|deadline| deadline > due) {
            let moved = block_on_for(PATIENCE, wakeups.deadline_moved());
            assert!(moved.is_some(), "no deadline by {due:?} was announced");
        }
    };
    h.submit("q", delayed(Duration::from_mins(10)));
    expect(h.now() + Duration::from_mins(10));
    h.submit("q", delayed(Duration::from_mins(5)));
    expect(h.now() + Duration::from_mins(5));
    h.submit("r", work());
    let claimed = h.claim_one("r");
    expect(claimed.expires_at.unwrap());
    h.settle(&claimed, complete()).unwrap();
    h.pass(Duration::from_mins(6));
    h.submit("q", delayed(Duration::from_secs(1)));
    expect(h.now() + Duration::from_secs(1));
}

/// A command that leaves more to be done than it may do itself: nobody has to ask for the rest, even where the first slice has moved no job.
pub(super) fn what_is_done_in_slices_is_due_at_once(h: &mut Harness) {
    let mut jobs = vec![work(); 1_500];
    jobs.push(work());
    let (id, jobs) = h.join("q", closed(), jobs);
    let mut claimed = h.claim_all("q");
    let last = claimed.pop().expect("all of them");
    for some in claimed.chunks(500) {
        let settlements = some.iter().map(|claimed| settlement(claimed, complete())).collect();
        assert!(answered(h.store().settle(settlements)).iter().all(Result::is_ok));
    }
    h.settle(&last, fail(ReportedCategory::Permanent)).unwrap();
    h.settle_down();
    let mut wakeups = h.store().wakeups();
    h.admin(retry(id));
    if h.workflow(id).operation.is_some() {
        while wakeups.deadline().is_none_or(|deadline| deadline > h.now()) {
            let moved = block_on_for(PATIENCE, wakeups.deadline_moved());
            assert!(moved.is_some(), "nobody is told that there is more to do");
        }
    }
    h.settle_down();
    assert_eq!(h.state(jobs.last().expect("jobs").id), StateKind::Scheduled);
}

pub(super) fn an_expired_lease_is_told(h: &mut Harness) {
    h.put_queue("lazy", Profile::Weave);
    h.submit("lazy", work());
    h.submit("eager", work());
    let (lazy, eager) = (h.claim_one("lazy"), h.claim_one("eager"));
    let mut wakeups = h.store().wakeups();
    h.pass(lazy.expires_at.unwrap().since(h.now()));
    h.settle_down();
    hears_of_work(&mut wakeups, "lazy");
    h.pass(eager.expires_at.unwrap().since(h.now()));
    h.settle_down();
    hears(&mut wakeups, eager.id, StateKind::Scheduled);
}
