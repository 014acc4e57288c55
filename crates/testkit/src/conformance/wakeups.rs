//! The change feed: subscribers are notified after a change is visible.

use longshore_core::failure::ReportedCategory;
use longshore_core::id::JobId;
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{AdminCommand, Effect};
use longshore_store::ChangeFeed;

use super::harness::*;
use super::workflows::{closed, retry};
use crate::block_on::block_on_for;

/// Longer than any commit takes.
const PUBLISH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// Returns the next effects. A feed that was just subscribed misses none.
fn next_effects(feed: &mut ChangeFeed) -> Vec<Effect> {
    let effects = block_on_for(PUBLISH_TIMEOUT, feed.changed()).expect("the change was published");
    effects.expect("nothing was missed").to_vec()
}

/// Waits until a job has entered this state. Returns when the phase began that this has ended.
fn wait_for_state(feed: &mut ChangeFeed, job: JobId, state: StateKind) -> Option<Timestamp> {
    loop {
        let moved = next_effects(feed).into_iter().find_map(|effect| match effect {
            Effect::Moved { id, step, since, .. } if id == job && step.to == state => Some(since),
            Effect::Moved { .. } | Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => None,
        });
        if let Some(since) = moved {
            return since;
        }
    }
}

fn wait_for_claimable(feed: &mut ChangeFeed, name: &str) {
    while !next_effects(feed).contains(&Effect::Claimable(queue(name))) {}
}

pub(super) fn change_is_published_after_commit(h: &mut Harness) {
    let mut feed = h.store().wakeups();
    let job = h.submit("q", work());
    let effects = next_effects(&mut feed);
    let moves: Vec<StateKind> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Moved { id, seq, queue, job_type, workflow, step, since } => {
                assert_eq!((*id, *seq, queue.as_str(), job_type), (job.id, job.seq, "q", &work().job_type));
                assert_eq!((step.at, *workflow, *since), (h.now(), None, None));
                Some(step.to)
            }
            Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => None,
        })
        .collect();
    assert_eq!(moves, [StateKind::Pending, StateKind::Scheduled], "every transition, in order");
    assert_eq!(h.state(job.id), StateKind::Scheduled, "visible when published");
    let ready_at = h.now();
    h.pass(Duration::from_secs(3));
    let claimed = h.claim_one("q");
    assert_eq!(wait_for_state(&mut feed, job.id, StateKind::Running), Some(ready_at), "the wait began there");
    let started_at = h.now();
    h.pass(Duration::from_secs(2));
    h.settle(&claimed, complete()).unwrap();
    assert_eq!(wait_for_state(&mut feed, job.id, StateKind::Completed), Some(started_at), "the attempt began there");
    let late = h.submit("q", delayed(Duration::from_secs(1)));
    h.pass(Duration::from_secs(1));
    h.tick_until_idle();
    wait_for_state(&mut feed, late.id, StateKind::Scheduled);
}

pub(super) fn refusal_publishes_nothing(h: &mut Harness) {
    let job = h.run("q", work(), complete());
    let mut feed = h.store().wakeups();
    assert!(h.try_admin(AdminCommand::RunNow { id: job.id }).is_err());
    assert!(h.try_submit("q", Vec::new()).is_err());
    assert!(h.claim("q", 1).is_empty());
    let next = h.submit("q", work());
    let effects = next_effects(&mut feed);
    let of_next = |effect: &Effect| matches!(effect, Effect::Moved { id, .. } if *id == next.id);
    assert!(effects.iter().all(of_next), "effects of the accepted change only: {effects:?}");
}

pub(super) fn every_subscriber_receives_changes(h: &mut Harness) {
    let mut feeds: Vec<ChangeFeed> = (0..3).map(|_| h.store().wakeups()).collect();
    let jobs = h.submit_all("q", vec![work(); 3]);
    for feed in &mut feeds {
        let effects = next_effects(feed);
        for job in &jobs {
            let scheduled = |effect: &Effect| matches!(effect, Effect::Moved { id, step, .. } if *id == job.id && step.to == StateKind::Scheduled);
            assert!(effects.iter().any(scheduled), "one commit, one notification");
        }
    }
    let late = h.store().wakeups();
    drop(feeds);
    h.submit("q", work());
    drop(late);
    h.submit("q", work());
}

pub(super) fn resume_publishes_claimable_queue(h: &mut Harness) {
    h.submit("q", work());
    h.pause("q");
    let mut feed = h.store().wakeups();
    h.admin(AdminCommand::ResumeQueue { queue: queue("q") });
    wait_for_claimable(&mut feed, "q");
}

pub(super) fn next_deadline_is_published(h: &mut Harness) {
    let mut feed = h.store().wakeups();
    let mut expect = |due: longshore_core::Timestamp| {
        // The deadline may be published after the response, but before it is due.
        while feed.deadline().is_none_or(|deadline| deadline > due) {
            let moved = block_on_for(PUBLISH_TIMEOUT, feed.deadline_moved());
            assert!(moved.is_some(), "no deadline by {due:?} was published");
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

/// A command that leaves work for ticks publishes a deadline, even if its first slice changed no
/// job.
pub(super) fn unfinished_slices_are_due_now(h: &mut Harness) {
    let mut jobs = vec![work(); 1_500];
    jobs.push(work());
    let (id, jobs) = h.join("q", closed(), jobs);
    let mut claimed = h.claim_all("q");
    let last = claimed.pop().expect("all jobs");
    for some in claimed.chunks(500) {
        let settlements = some.iter().map(|claimed| settlement(claimed, complete())).collect();
        assert!(answered(h.store().settle(settlements)).iter().all(Result::is_ok));
    }
    h.settle(&last, fail(ReportedCategory::Permanent)).unwrap();
    h.tick_until_idle();
    let mut feed = h.store().wakeups();
    h.admin(retry(id));
    if h.workflow(id).operation.is_some() {
        while feed.deadline().is_none_or(|deadline| deadline > h.now()) {
            let moved = block_on_for(PUBLISH_TIMEOUT, feed.deadline_moved());
            assert!(moved.is_some(), "no deadline for the rest was published");
        }
    }
    h.tick_until_idle();
    assert_eq!(h.state(jobs.last().expect("jobs").id), StateKind::Scheduled);
}

pub(super) fn lease_expiry_is_published(h: &mut Harness) {
    h.put_queue("lazy", Profile::Weave);
    h.submit("lazy", work());
    h.submit("eager", work());
    let (lazy, eager) = (h.claim_one("lazy"), h.claim_one("eager"));
    let mut feed = h.store().wakeups();
    h.pass(lazy.expires_at.unwrap().since(h.now()));
    h.tick_until_idle();
    wait_for_claimable(&mut feed, "lazy");
    h.pass(eager.expires_at.unwrap().since(h.now()));
    h.tick_until_idle();
    wait_for_state(&mut feed, eager.id, StateKind::Scheduled);
}
