//! Which schedules are due, and the task that processes them in real time.
//!
//! The engine keeps one instant per schedule: when it is due next. At that instant it reads the
//! schedule from the store, so that it needs no other state, and other nodes may do the same.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration as Wait;

use futures_util::{StreamExt, stream};
use longshore_api::enums::TickOutcome;
use longshore_core::Timestamp;
use longshore_core::attention::ScheduleFacts;
use longshore_core::id::{QueueName, ScheduleName};
use longshore_core::schedule::ticks::SCHEDULES_MAX;
use longshore_core::schedule::{DueTimes, Tick};
use longshore_engine::SystemKind;
use longshore_store::{Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::storage;
use super::tick::{Step, process};
use crate::state::AppState;

/// How often the version of the schedules is read: how late a change by another node takes effect.
const POLL_INTERVAL: Wait = Wait::from_secs(1);
/// Schedules that are processed at once. Their writes share commits.
const CONCURRENCY: usize = 64;
/// Schedules that other servers may create before this server notices.
const COUNT_MARGIN: usize = 100;
/// Definitions that are read at once: each may have a payload of megabytes.
const PAGE: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct ScheduleEngine {
    state: Mutex<EngineState>,
    changed: Notify,
    /// Ticks that this server has processed, in the order of [`TickOutcome::ALL`].
    ticks: [AtomicU64; TickOutcome::ALL.len()],
}

#[derive(Debug, Default)]
struct EngineState {
    version: Option<u64>,
    entries: HashMap<ScheduleName, Entry>,
    due: BTreeSet<(Timestamp, ScheduleName)>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Due times with the revision of their definition.
    times: Option<(u64, Arc<DueTimes>)>,
    revision: Option<u64>,
    due_at: Option<Timestamp>,
    /// The schedule as it was read last.
    seen: Option<SeenSchedule>,
}

/// What the list of attention needs of a schedule.
#[derive(Clone, Debug)]
struct SeenSchedule {
    queue: QueueName,
    paused: bool,
    last: Option<Tick>,
}

/// The instant of a schedule whose progress was not read yet.
const AT_ONCE: Timestamp = Timestamp::from_millis(i64::MIN);

impl EngineState {
    fn set_due(&mut self, name: &ScheduleName, due_at: Option<Timestamp>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if let Some(old) = std::mem::replace(&mut entry.due_at, due_at) {
            self.due.remove(&(old, name.clone()));
        }
        self.due.extend(due_at.map(|due_at| (due_at, name.clone())));
    }

    fn remove(&mut self, name: &ScheduleName) {
        self.set_due(name, None);
        self.entries.remove(name);
    }

    /// Adds a schedule, or requests that it is read again.
    fn touch(&mut self, name: &ScheduleName, revision: Option<u64>) {
        let entry =
            self.entries.entry(name.clone()).or_insert(Entry { times: None, revision: None, due_at: None, seen: None });
        if revision.is_none() || entry.revision != revision {
            entry.revision = revision;
            self.set_due(name, Some(AT_ONCE));
        }
    }
}

impl ScheduleEngine {
    /// Whether the store has no place for another schedule.
    ///
    /// Counts the schedules of the store again if this server has not read them yet, or if the
    /// limit is close.
    pub(crate) async fn is_full(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let is_count_safe = {
            let state = self.state.lock();
            state.version.is_some() && state.entries.len() + COUNT_MARGIN < SCHEDULES_MAX
        };
        if !is_count_safe {
            self.refresh(store).await?;
        }
        Ok(self.state.lock().entries.len() >= SCHEDULES_MAX)
    }

    /// Returns the number of schedules.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Returns the ticks that this server has processed, by outcome.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (TickOutcome, u64)> {
        TickOutcome::ALL.iter().copied().zip(&self.ticks).map(|(outcome, count)| (outcome, count.load(Relaxed)))
    }

    /// Returns by how much the next tick is late, in seconds.
    pub(crate) fn lag_seconds(&self, now: Timestamp) -> u64 {
        self.next_due().filter(|due| *due > AT_ONCE).map_or(0, |due| now.since(due).as_millis() / 1_000)
    }

    /// Requests that a changed schedule is read again.
    pub(crate) fn on_change(&self, name: &ScheduleName) {
        self.state.lock().touch(name, None);
        self.changed.notify_one();
    }

    pub(crate) fn on_delete(&self, name: &ScheduleName) {
        self.state.lock().remove(name);
    }

    /// Returns when the next schedule is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.state.lock().due.first().map(|(due_at, _)| *due_at)
    }

    /// Reads the names of all schedules, if any schedule has changed since the last call.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), StoreError> {
        let version = store.system_version(SystemKind::Schedule).await?;
        if self.state.lock().version == Some(version) {
            return Ok(());
        }
        let mut revisions: HashMap<ScheduleName, u64> = HashMap::new();
        let mut last: Option<ScheduleName> = None;
        loop {
            let page = storage::definitions(store, last.as_ref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            last = page.last().map(|(name, _)| name.clone());
            revisions.extend(page.into_iter().map(|(name, record)| (name, record.revision)));
            if is_last {
                break;
            }
        }
        let mut state = self.state.lock();
        let gone: Vec<ScheduleName> =
            state.entries.keys().filter(|name| !revisions.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| state.remove(name));
        revisions.iter().for_each(|(name, revision)| state.touch(name, Some(*revision)));
        state.version = Some(version);
        Ok(())
    }

    fn due_at(&self, now: Timestamp) -> Vec<ScheduleName> {
        let state = self.state.lock();
        state.due.iter().take_while(|(due_at, _)| *due_at <= now).map(|(_, name)| name.clone()).collect()
    }

    /// Processes all ticks that are due now, one schedule after the other. Returns whether any
    /// schedule was processed.
    pub(crate) async fn process_in_order(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let due = self.due_at(store.now());
        for name in &due {
            self.process(store, name).await?;
        }
        Ok(!due.is_empty())
    }

    async fn process_at_once(&self, store: &dyn Store) -> Result<(), StoreError> {
        let due = self.due_at(store.now());
        let process = |name: ScheduleName| async move { self.process(store, &name).await };
        let results = stream::iter(due).map(process).buffer_unordered(CONCURRENCY);
        results.fold(Ok(()), |all, one| async move { all.and(one) }).await
    }

    /// Processes the due ticks of one schedule.
    async fn process(&self, store: &dyn Store, name: &ScheduleName) -> Result<(), StoreError> {
        // One instant for all batches: a tick that the first plan saw in time stays so.
        let now = store.now();
        loop {
            let Some(stored) = storage::read(store, name).await? else {
                self.state.lock().remove(name);
                return Ok(());
            };
            self.note(&stored);
            if stored.schedule.paused {
                self.state.lock().set_due(name, None);
                return Ok(());
            }
            let Some(times) = self.due_times(&stored) else { return Ok(()) };
            match process(store, &stored, &times, now).await? {
                Step::Advanced(outcomes) => {
                    for outcome in outcomes {
                        if let Some(counter) = self.ticks.get(outcome as usize) {
                            counter.fetch_add(1, Relaxed);
                        }
                    }
                }
                Step::Idle(next) => {
                    self.state.lock().set_due(name, next);
                    return Ok(());
                }
            }
        }
    }

    /// Remembers what the list of attention needs.
    fn note(&self, stored: &storage::StoredSchedule) {
        let storage::StoredSchedule { schedule, progress, .. } = stored;
        if let Some(entry) = self.state.lock().entries.get_mut(&schedule.name) {
            let (queue, paused, last) = (schedule.queue.clone(), schedule.paused, progress.last.clone());
            entry.seen = Some(SeenSchedule { queue, paused, last });
        }
    }

    /// Returns the last and the next tick of every schedule, from memory.
    pub(crate) fn facts(&self) -> Vec<ScheduleFacts> {
        let state = self.state.lock();
        let facts = |(name, entry): (&ScheduleName, &Entry)| {
            let SeenSchedule { queue, paused, last } = entry.seen.clone()?;
            let last = last.map(|tick| (tick.due_at, tick.outcome, tick.detail));
            let next_due = entry.due_at.filter(|due_at| *due_at != AT_ONCE);
            Some(ScheduleFacts { schedule: name.clone(), queue, paused, last, next_due })
        };
        state.entries.iter().filter_map(facts).collect()
    }

    /// Returns the due times from memory. A schedule that cannot be evaluated is logged and rests
    /// until it is changed.
    fn due_times(&self, stored: &storage::StoredSchedule) -> Option<Arc<DueTimes>> {
        let name = &stored.schedule.name;
        let cached = self.state.lock().entries.get(name).and_then(|entry| entry.times.clone());
        if let Some((_, times)) = cached.filter(|(revision, _)| *revision == stored.revision) {
            return Some(times);
        }
        let times = stored.schedule.due_times(stored.schedule.updated_at);
        let mut state = self.state.lock();
        match times {
            Ok(times) => {
                let times = Arc::new(times);
                if let Some(entry) = state.entries.get_mut(name) {
                    entry.times = Some((stored.revision, Arc::clone(&times)));
                    entry.revision = Some(stored.revision);
                }
                Some(times)
            }
            Err(error) => {
                tracing::warn!(schedule = %name, %error, "schedule cannot be evaluated");
                state.set_due(name, None);
                None
            }
        }
    }
}

/// Processes ticks in real time until the server has drained.
pub(crate) async fn run(app: AppState) {
    loop {
        let worked = async {
            app.schedules.refresh(&*app.store).await?;
            app.schedules.process_at_once(&*app.store).await
        };
        let worked = tokio::select! {
            () = app.drained.cancelled() => return,
            worked = worked => worked,
        };
        let pause = match worked {
            Ok(()) => {
                let until_due = app.schedules.next_due().map(|due| due.since(app.now()).as_millis());
                until_due.map_or(POLL_INTERVAL, |millis| Wait::from_millis(millis).min(POLL_INTERVAL))
            }
            Err(error) => {
                tracing::warn!(%error, "schedules were not processed; retrying");
                app.on_store_error(&error);
                POLL_INTERVAL
            }
        };
        tokio::select! {
            () = app.drained.cancelled() => return,
            () = sleep(pause) => {}
            () = app.schedules.changed.notified() => {}
        }
    }
}
