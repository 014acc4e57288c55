//! Dead letters in groups, kept current without a scan on a request.
//!
//! After the start, and after a gap in the events, all dead letters are read once, in pages. From
//! then on the events of all servers name the jobs that entered or left the state. The task reads
//! these again, so neither the order nor a repetition of events matters. The expiry of its
//! retention finds a pruned job; the counts of the queues find a job that another server has
//! deleted.
//!
//! A request sends a mark through the feed of changes and waits until everything before it is
//! counted. So the counts include every change that was acknowledged before the request. Without
//! requests the task only reads full batches.

mod aggregate;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::dead_letters::DeadLetterGroups;
use longshore_core::id::{JobId, QueueName};
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::state::StateKind;
use longshore_engine::{Effect, count_of};
use longshore_store::clock::monotonic;
use longshore_store::{JobFilter, JobQuery, JobRef, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use self::aggregate::{Aggregate, DeadLetterFacts};
use crate::state::AppState;

/// Groups of a response.
const GROUPS_MAX: usize = 200;
/// Jobs that wait to be read again. With more of them, all dead letters are read again.
const TOUCHED_MAX: usize = 100_000;
/// How long a request waits for the counts to be current.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Pause between two pages of a sweep: requests go first.
const PAGE_PAUSE: Duration = Duration::from_millis(5);
/// Pause after a failure of the store.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time between two comparisons with the counts of the queues. Two in a row must differ.
const COMPARE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct DeadLetters {
    aggregate: Mutex<Aggregate>,
    pending: Mutex<Pending>,
    wake: Notify,
    /// The last mark before which all changes are counted.
    counted: watch::Sender<u64>,
}

/// Why all dead letters must be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    NotNeeded,
    /// The server has started; `is_done`: they were read, but events of others may be missing.
    AtStart {
        is_done: bool,
    },
    /// Changes were missed.
    Missed,
}

/// What the feed has reported and the task has not read yet.
#[derive(Debug)]
struct Pending {
    touched: HashSet<JobId>,
    sweep: Sweep,
    mark: u64,
    compared_at: Option<Duration>,
    /// By how much the last comparison differed.
    difference: i128,
}

impl Default for DeadLetters {
    fn default() -> Self {
        let pending = Pending {
            touched: HashSet::new(),
            sweep: Sweep::AtStart { is_done: false },
            mark: 0,
            compared_at: None,
            difference: 0,
        };
        Self {
            aggregate: Mutex::default(),
            pending: Mutex::new(pending),
            wake: Notify::new(),
            counted: watch::Sender::new(0),
        }
    }
}

impl Pending {
    /// Adds jobs that must be read again. Returns whether they fill a batch.
    fn touch(&mut self, ids: impl IntoIterator<Item = JobId>) -> bool {
        self.touched.extend(ids);
        if self.touched.len() > TOUCHED_MAX {
            self.touched.clear();
            self.sweep = Sweep::Missed;
        }
        self.touched.len() >= BATCH_ITEMS_MAX
    }
}

impl DeadLetters {
    /// Notes jobs that became dead letters or are none any more. `is_whole`: the feed has reported
    /// all changes of the store since the start.
    pub(crate) fn on_effects(&self, effects: &[Effect], is_whole: bool) {
        let moved = effects.iter().filter_map(|effect| match effect {
            Effect::Moved { id, step, .. } => {
                (step.to == StateKind::DeadLetter || step.from == Some(StateKind::DeadLetter)).then_some(*id)
            }
            Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => None,
        });
        let mut moved = moved.peekable();
        if moved.peek().is_none() {
            return;
        }
        let mut pending = self.pending.lock();
        if is_whole && pending.sweep == (Sweep::AtStart { is_done: true }) {
            pending.sweep = Sweep::NotNeeded;
        }
        let is_batch = pending.touch(moved);
        drop(pending);
        if is_batch {
            self.wake.notify_one();
        }
    }

    /// Notes a job that was deleted: no event reports it.
    pub(crate) fn on_delete(&self, id: JobId) {
        let is_batch = self.pending.lock().touch([id]);
        if is_batch {
            self.wake.notify_one();
        }
    }

    /// Notes that changes were missed. The next request has them read.
    pub(crate) fn on_missed(&self) {
        self.pending.lock().sweep = Sweep::Missed;
    }

    /// All changes before the mark were reported.
    pub(crate) fn on_mark(&self, mark: u64) {
        let mut pending = self.pending.lock();
        pending.mark = mark.max(pending.mark);
        drop(pending);
        self.wake.notify_one();
    }

    /// Waits until all changes before a mark are counted. Returns whether they are.
    async fn has_counted(&self, mark: u64) -> bool {
        let mut counted = self.counted.subscribe();
        let counted = timeout(WAIT_MAX, counted.wait_for(|counted| *counted >= mark)).await;
        matches!(counted, Ok(Ok(_)))
    }

    /// Returns the largest groups, with all changes before the mark if that is possible in time.
    pub(crate) async fn groups(
        &self,
        store: &dyn Store,
        mark: u64,
        admits: impl Fn(&QueueName) -> bool,
    ) -> DeadLetterGroups {
        let is_current = self.has_counted(mark).await;
        let aggregate = self.aggregate.lock();
        let groups = aggregate.report(store.now(), GROUPS_MAX, admits);
        DeadLetterGroups { groups, approximate: !is_current || aggregate.is_truncated() }
    }

    /// Reads everything that is pending.
    async fn catch_up(&self, store: &dyn Store) -> Result<(), StoreError> {
        loop {
            let (batch, mark, needs_sweep) = self.next_batch(store);
            if needs_sweep && let Err(error) = self.sweep(store).await {
                self.on_missed();
                return Err(error);
            }
            let is_last = batch.is_empty();
            if let Err(error) = self.read_again(store, &batch).await {
                self.pending.lock().touched.extend(batch);
                return Err(error);
            }
            if !is_last {
                continue;
            }
            if mark > *self.counted.borrow() {
                self.compare(store).await?;
                self.counted.send_replace(mark);
            }
            if self.pending.lock().mark <= mark {
                return Ok(());
            }
        }
    }

    /// Removes and returns a batch of jobs to read again, with the last mark, and whether all dead
    /// letters must be read.
    fn next_batch(&self, store: &dyn Store) -> (Vec<JobId>, u64, bool) {
        let mut pending = self.pending.lock();
        let is_asked = pending.mark > *self.counted.borrow();
        let (needs_sweep, sweep) = match pending.sweep {
            Sweep::NotNeeded => (false, Sweep::NotNeeded),
            Sweep::AtStart { is_done: false } => (true, Sweep::AtStart { is_done: true }),
            Sweep::AtStart { is_done: true } | Sweep::Missed if is_asked => (true, Sweep::NotNeeded),
            sweep @ (Sweep::AtStart { is_done: true } | Sweep::Missed) => (false, sweep),
        };
        pending.sweep = sweep;
        let mut batch: Vec<JobId> = pending.touched.iter().take(BATCH_ITEMS_MAX).copied().collect();
        for id in &batch {
            pending.touched.remove(id);
        }
        let mark = pending.mark;
        drop(pending);
        if batch.is_empty() && is_asked {
            batch = self.aggregate.lock().expired(store.now(), BATCH_ITEMS_MAX);
        }
        (batch, mark, needs_sweep)
    }

    async fn read_again(&self, store: &dyn Store, batch: &[JobId]) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let jobs = store.get(batch.iter().map(|id| JobRef::Id(*id)).collect()).await?;
        let mut aggregate = self.aggregate.lock();
        for (id, job) in batch.iter().zip(&jobs) {
            aggregate.apply(*id, job.as_deref().and_then(DeadLetterFacts::of), store.now());
        }
        aggregate.forget_minutes_before(store.now());
        Ok(())
    }

    /// Reads all dead letters, newest first, as far as there is room.
    async fn sweep(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.aggregate.lock().begin_sweep();
        let filter = JobFilter { states: StateKind::DeadLetter.into(), ..JobFilter::default() };
        let mut before = None;
        let is_complete = loop {
            let page = store.list(JobQuery { filter: filter.clone(), limit: BATCH_ITEMS_MAX, before }).await?;
            let is_full = {
                let mut aggregate = self.aggregate.lock();
                page.jobs.iter().for_each(|job| aggregate.apply(job.id, DeadLetterFacts::of(job), store.now()));
                aggregate.is_full()
            };
            before = page.next;
            if before.is_none() {
                break true;
            }
            if is_full {
                break false;
            }
            sleep(PAGE_PAUSE).await;
        };
        self.aggregate.lock().end_sweep(is_complete);
        Ok(())
    }

    /// Compares the number of dead letters with the counts of the queues, from time to time.
    async fn compare(&self, store: &dyn Store) -> Result<(), StoreError> {
        let now = monotonic();
        {
            let mut pending = self.pending.lock();
            if pending.compared_at.is_some_and(|at| now.saturating_sub(at) < COMPARE_INTERVAL) {
                return Ok(());
            }
            pending.compared_at = Some(now);
        }
        let queues = store.queues().await?;
        let stored: u64 = queues.iter().map(|report| count_of(&report.counts, StateKind::DeadLetter)).sum();
        let aggregate = self.aggregate.lock();
        let has_room = aggregate.has_room_for(stored);
        let difference = if has_room { i128::from(stored) - aggregate.len() as i128 } else { 0 };
        // Since then enough dead letters have gone.
        let has_room_again = has_room && aggregate.is_truncated();
        drop(aggregate);
        let mut pending = self.pending.lock();
        // Jobs that move right now make a difference that changes.
        if has_room_again || (difference != 0 && pending.difference == difference) {
            pending.sweep = Sweep::Missed;
        }
        pending.difference = difference;
        Ok(())
    }
}

/// Reads the dead letters at the start, then follows the changes until the server has drained.
pub(crate) async fn run(app: AppState) {
    let store = Arc::clone(&app.store);
    loop {
        let caught_up = tokio::select! {
            () = app.drained.cancelled() => return,
            caught_up = app.dead_letters.catch_up(&*store) => caught_up,
        };
        if let Err(error) = caught_up {
            tracing::debug!(%error, "dead letters are not counted: trying again");
            tokio::select! {
                () = app.drained.cancelled() => return,
                () = sleep(RETRY_PAUSE) => continue,
            }
        }
        tokio::select! {
            () = app.drained.cancelled() => return,
            () = app.dead_letters.wake.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u128) -> JobId {
        JobId::from_bytes(number.to_be_bytes())
    }

    #[tokio::test]
    async fn deletes_wake_the_reader_and_are_bounded() {
        let letters = DeadLetters::default();
        (0..BATCH_ITEMS_MAX as u128).for_each(|number| letters.on_delete(job(number)));
        // A full batch is read without a request.
        letters.wake.notified().await;
        (0..=TOUCHED_MAX as u128).for_each(|number| letters.on_delete(job(number)));
        let pending = letters.pending.lock();
        assert!(pending.touched.len() <= BATCH_ITEMS_MAX, "{}", pending.touched.len());
        assert_eq!(pending.sweep, Sweep::Missed);
    }
}
