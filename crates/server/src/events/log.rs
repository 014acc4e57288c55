//! The last events in memory, and who waits for more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_core::rng::Rng;
use longshore_engine::Effect;
use longshore_store::OsRng;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::timeout;

use super::batch::EventBatch;
use super::cursor::Cursor;
use super::filter::EventFilter;
use super::listener::{Listener, StreamStart};
use super::topic::{ListenerWaiter, TopicKey, Topics};

/// Events that a client can resume from.
pub(super) const KEPT_EVENTS: u64 = 10_000;
/// Events that are kept while there are listeners: how far one that reads may fall behind.
const LIVE_EVENTS: u64 = 50_000;
/// Numbers of dropped events that topics may still have.
const TRIM_STEP: u64 = 1_000;
/// How long a new listener waits for the events of earlier commits.
const MARK_TIMEOUT: Duration = Duration::from_secs(2);

/// The events of this server, or of all servers of the fleet.
#[derive(Debug)]
pub(crate) struct EventLog {
    epoch: u64,
    state: Mutex<LogState>,
    listeners: AtomicUsize,
    /// The last mark of the change feed.
    marked: watch::Sender<u64>,
    /// Listeners that were disconnected because they were too slow.
    cut_off: AtomicU64,
}

#[derive(Debug)]
struct LogState {
    /// Without gaps in their numbers.
    batches: VecDeque<Arc<EventBatch>>,
    /// Number of the next event.
    next: u64,
    /// Events are missing before this position: an older cursor is a gap.
    floor: u64,
    /// Oldest number when topics were trimmed last.
    trimmed: u64,
    topics: Topics,
}

impl LogState {
    /// Number of the oldest event.
    fn oldest(&self) -> u64 {
        self.batches.front().map_or(self.next, |batch| batch.first)
    }

    fn push(&mut self, batch: EventBatch, kept: u64) {
        self.next = batch.end();
        self.batches.push_back(Arc::new(batch));
        while self.batches.front().is_some_and(|oldest| self.next - oldest.end() >= kept) {
            self.batches.pop_front();
        }
        if self.oldest() >= self.trimmed + TRIM_STEP {
            self.trimmed = self.oldest();
            self.topics.trim(self.trimmed);
        }
    }

    /// Returns the batch that has this number.
    fn index_of(&self, number: u64) -> usize {
        self.batches.partition_point(|batch| batch.end() <= number)
    }
}

/// Events of a batch that a listener reads, by their index.
pub(super) type EventRange = (Arc<EventBatch>, std::ops::Range<usize>);

/// What a listener finds.
#[derive(Debug)]
pub(super) enum Found {
    Events {
        events: Vec<EventRange>,
        /// Number of the last one.
        last: u64,
        /// Events of its topic that were not read yet, these included.
        behind: u64,
    },
    /// The listener has read everything up to this number.
    Nothing { last: u64 },
    /// The log has dropped events that the listener has not read.
    Dropped,
}

impl Default for EventLog {
    fn default() -> Self {
        let mut rng = OsRng::default();
        let rng: &mut dyn Rng = &mut rng;
        Self {
            epoch: rng.next_u64(),
            state: Mutex::new(LogState {
                batches: VecDeque::new(),
                next: 1,
                floor: 0,
                trimmed: 0,
                topics: Topics::default(),
            }),
            listeners: AtomicUsize::new(0),
            marked: watch::Sender::new(0),
            cut_off: AtomicU64::new(0),
        }
    }
}

impl EventLog {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    fn kept(&self) -> u64 {
        if self.listeners() > 0 { LIVE_EVENTS } else { KEPT_EVENTS }
    }

    /// Adds the events among the effects of a commit.
    pub(crate) fn publish(&self, effects: &Arc<[Effect]>) {
        let events = if effects.iter().all(Effect::is_event) {
            Arc::clone(effects)
        } else {
            effects.iter().filter(|effect| effect.is_event()).cloned().collect()
        };
        if events.is_empty() {
            return;
        }
        let kept = self.kept();
        let mut state = self.state();
        let first = state.next;
        if self.listeners() > 0 {
            for (number, event) in (first..).zip(events.iter()) {
                state.topics.push(number, event);
            }
            state.topics.wake_all_events();
        }
        state.push(EventBatch::new(self.epoch, first, events), kept);
    }

    /// Tells all listeners that events are missing here.
    pub(crate) fn publish_gap(&self) {
        let kept = self.kept();
        let mut state = self.state();
        let number = state.next;
        if state.batches.back().is_some_and(|last| last.is_gap()) || (number == 1 && self.listeners() == 0) {
            // Nothing happened since the last gap, or no cursor exists.
            return;
        }
        state.topics.push_gap(number);
        state.floor = number;
        state.push(EventBatch::new(self.epoch, number, Arc::default()), kept);
    }

    /// The feed has delivered the events of all commits before this mark.
    pub(crate) fn set_mark(&self, mark: u64) {
        self.marked.send_if_modified(|current| std::mem::replace(current, mark.max(*current)) < mark);
    }

    /// Waits until the log has the events of all commits before a mark.
    pub(crate) async fn reached(&self, mark: u64) {
        // A feed that has lagged may have lost the mark. The listener then begins a bit earlier.
        drop(timeout(MARK_TIMEOUT, self.marked.subscribe().wait_for(|marked| *marked >= mark)).await);
    }

    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Relaxed)
    }

    /// Returns how many listeners were disconnected because they were too slow.
    pub(crate) fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    pub(super) fn count_cut_off(&self) {
        self.cut_off.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cursor(&self, number: u64) -> Cursor {
        Cursor { epoch: self.epoch, number }
    }

    /// Registers a listener.
    pub(crate) fn listen(self: &Arc<Self>, filter: EventFilter, start: StreamStart) -> Listener {
        let key = TopicKey::of(&filter);
        let mut state = self.state();
        let last = state.next - 1;
        let is_known = |cursor: &Cursor| {
            let is_kept = cursor.number + 1 >= state.oldest() && last.saturating_sub(cursor.number) <= KEPT_EVENTS;
            cursor.epoch == self.epoch && cursor.number <= last && cursor.number >= state.floor && is_kept
        };
        let (position, has_gap) = match start {
            StreamStart::Now => (last, false),
            StreamStart::After(cursor) if is_known(&cursor) => (cursor.number, false),
            StreamStart::After(_) => (last, true),
        };
        let LogState { batches, topics, .. } = &mut *state;
        let events = batches.iter().flat_map(|batch| {
            (batch.first..batch.end()).enumerate().map(|(index, number)| (number, batch.events.get(index)))
        });
        topics.add_listener(&key, events);
        // Under the lock: from here on, the log keeps more events.
        self.listeners.fetch_add(1, Ordering::Relaxed);
        drop(state);
        Listener::new(Arc::clone(self), key, filter, position, has_gap)
    }

    pub(super) fn remove(&self, key: &TopicKey, waiter: &Arc<ListenerWaiter>) {
        self.state().topics.remove_listener(key, waiter);
        self.listeners.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns at most `limit` events of a topic after a position. If there is none, `waiter` is
    /// notified of the next one.
    pub(super) fn read(&self, key: &TopicKey, position: u64, limit: usize, waiter: &Arc<ListenerWaiter>) -> Found {
        let mut state = self.state();
        let (oldest, last) = (state.oldest(), state.next - 1);
        if *key == TopicKey::All {
            if position == last {
                state.topics.wait(key, waiter);
                return Found::Nothing { last };
            }
            if position + 1 < oldest {
                return Found::Dropped;
            }
            return range_after(&state, position, limit);
        }
        let Some(topic) = state.topics.get(key) else { return Found::Nothing { last } };
        let from = topic.numbers.partition_point(|number| *number <= position);
        let numbers: Vec<u64> = topic.numbers.iter().skip(from).take(limit).copied().collect();
        let (behind, dropped) = (topic.numbers.len() - from, topic.dropped);
        let Some((first, end)) = numbers.first().copied().zip(numbers.last().copied()) else {
            if dropped > position {
                return Found::Dropped;
            }
            state.topics.wait(key, waiter);
            return Found::Nothing { last };
        };
        if dropped > position || first < oldest {
            return Found::Dropped;
        }
        let mut events: Vec<EventRange> = Vec::new();
        let mut at = state.index_of(first);
        for number in numbers {
            while state.batches.get(at).is_some_and(|batch| batch.end() <= number) {
                at += 1;
            }
            let Some(batch) = state.batches.get(at) else { break };
            let index = offset(batch, number);
            match events.last_mut() {
                Some((known, range)) if known.first == batch.first && range.end == index => range.end += 1,
                Some(_) | None => events.push((Arc::clone(batch), index..index + 1)),
            }
        }
        Found::Events { events, last: end, behind: behind as u64 }
    }
}

fn offset(batch: &EventBatch, number: u64) -> usize {
    usize::try_from(number.saturating_sub(batch.first)).unwrap_or(usize::MAX)
}

/// Returns at most `limit` events after a position that the log has.
fn range_after(state: &LogState, position: u64, limit: usize) -> Found {
    let behind = state.next - 1 - position;
    let (mut events, mut last, mut left) = (Vec::new(), position, limit);
    for batch in state.batches.range(state.index_of(position + 1)..) {
        let start = offset(batch, last + 1);
        let count = (batch.len() - start).min(left);
        if count == 0 {
            break;
        }
        events.push((Arc::clone(batch), start..start + count));
        last += count as u64;
        left -= count;
    }
    Found::Events { events, last, behind }
}
