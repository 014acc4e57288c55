//! One client of the event stream: its position, and the chunks it receives.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use longshore_store::clock::monotonic;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::batch::{TEXT_BYTES, gap_text};
use super::cursor::Cursor;
use super::filter::EventFilter;
use super::log::{EventLog, EventRange, Found, KEPT_EVENTS};
use super::topic::{ListenerWaiter, TopicKey};

/// A comment is sent after this time without an event.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Longest chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Longest chunk while there are many listeners.
const CROWDED_CHUNK_BYTES: usize = 8 << 10;
/// Up to this number, listeners get their events at once.
const UNPACED_LISTENERS: usize = 16;
/// Many listeners get at most this many chunks per second, together. Jobs come first.
const CHUNKS_PER_SECOND: u64 = 4_000;
/// A listener that is more than [`KEPT_EVENTS`] behind and accepts nothing for this time is too
/// slow.
const STALLED: Duration = Duration::from_secs(1);

/// Where a listener begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamStart {
    /// With the next event.
    Now,
    /// After the event of this cursor; with a gap if the log does not have the events since.
    After(Cursor),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent yet.
    New {
        has_gap: bool,
    },
    Open,
    Closed,
}

/// A registered listener. Dropping it removes it from the log.
#[derive(Debug)]
pub(crate) struct Listener {
    log: Arc<EventLog>,
    key: TopicKey,
    filter: EventFilter,
    /// Whether the topic has no event that the filter rejects.
    takes_all: bool,
    /// Number of the last event that was read.
    position: u64,
    phase: Phase,
    waiter: Arc<ListenerWaiter>,
    last_chunk: Instant,
    /// When the client took the last chunk. The socket did not accept more since.
    taken_at: Duration,
}

impl Listener {
    pub(super) fn new(log: Arc<EventLog>, key: TopicKey, filter: EventFilter, position: u64, has_gap: bool) -> Self {
        let EventFilter { queue, job_type, job, workflow, states, scope } = &filter;
        let conditions = [queue.is_some(), job_type.is_some(), job.is_some(), workflow.is_some(), !states.is_empty()];
        let conditions = conditions.into_iter().filter(|is_set| *is_set).count();
        Self {
            takes_all: scope.is_none() && conditions == usize::from(key != TopicKey::All),
            log,
            key,
            filter,
            position,
            phase: Phase::New { has_gap },
            waiter: Arc::default(),
            last_chunk: Instant::now(),
            taken_at: monotonic(),
        }
    }

    /// Waits for the next bytes of the stream. `None` ends it.
    ///
    /// The caller asks again as soon as the socket has accepted the bytes.
    pub(crate) async fn next_chunk(&mut self, stopping: &CancellationToken) -> Option<Bytes> {
        let stalled = monotonic().saturating_sub(self.taken_at);
        let chunk = tokio::select! {
            () = stopping.cancelled() => None,
            chunk = self.chunk(stalled) => chunk,
        };
        (self.last_chunk, self.taken_at) = (Instant::now(), monotonic());
        chunk
    }

    async fn chunk(&mut self, stalled: Duration) -> Option<Bytes> {
        match self.phase {
            Phase::New { has_gap } => {
                self.phase = Phase::Open;
                let mut bytes = BytesMut::from(self.comment().as_ref());
                if has_gap {
                    bytes.extend_from_slice(&gap_text(self.log.cursor(self.position)));
                }
                return Some(bytes.freeze());
            }
            Phase::Open => {}
            Phase::Closed => return None,
        }
        let keep_alive = Instant::now() + KEEP_ALIVE;
        let crowd = self.log.listeners();
        let pause = Duration::from_millis(crowd as u64 * 1_000 / CHUNKS_PER_SECOND);
        let is_crowded = crowd > UNPACED_LISTENERS;
        if is_crowded {
            sleep_until(self.last_chunk + pause).await;
        }
        let chunk_max = if is_crowded { CROWDED_CHUNK_BYTES } else { CHUNK_BYTES };
        let mut has_skipped = false;
        loop {
            match self.log.read(&self.key, self.position, chunk_max / TEXT_BYTES, &self.waiter) {
                Found::Events { behind, .. } if stalled >= STALLED && behind > KEPT_EVENTS => {
                    return Some(self.cut_off());
                }
                Found::Dropped => return Some(self.cut_off()),
                Found::Events { events, last, .. } => {
                    self.position = last;
                    if let Some(bytes) = self.text(events) {
                        return Some(bytes);
                    }
                    has_skipped = true;
                }
                Found::Nothing { last } => {
                    self.position = last;
                    if std::mem::take(&mut has_skipped) && is_crowded {
                        // Its filter rejects most events of its topic: commits do not wake it now.
                        sleep_until(Instant::now() + pause).await;
                        continue;
                    }
                    tokio::select! {
                        () = self.waiter.notify.notified() => {}
                        () = sleep_until(keep_alive) => return Some(self.comment()),
                    }
                }
            }
        }
    }

    /// Returns a comment with the position, so that a client can resume without any event.
    fn comment(&self) -> Bytes {
        format!(": cursor {}\n\n", self.log.cursor(self.position)).into()
    }

    fn cut_off(&mut self) -> Bytes {
        self.phase = Phase::Closed;
        self.log.count_cut_off();
        Bytes::from_static(b"event: closed\ndata: {\"reason\":\"slow\"}\n\n")
    }

    /// Returns the text of the events that match; `None` if there is none.
    fn text(&self, ranges: Vec<EventRange>) -> Option<Bytes> {
        let mut parts: Vec<Bytes> = Vec::with_capacity(ranges.len());
        for (batch, range) in ranges {
            if self.takes_all || batch.is_gap() {
                parts.push(batch.text(range));
                continue;
            }
            for index in range {
                if batch.events.get(index).is_some_and(|event| self.filter.matches(event)) {
                    parts.push(batch.text(index..index + 1));
                }
            }
        }
        if let [only] = parts.as_mut_slice() {
            return Some(std::mem::take(only));
        }
        let mut bytes = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        (!bytes.is_empty()).then(|| bytes.freeze())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.log.remove(&self.key, &self.waiter);
    }
}
