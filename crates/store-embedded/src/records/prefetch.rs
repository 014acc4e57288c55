//! Prefetch of the jobs that claims need next. A thread reads them from the heads of active queues
//! while the writer works.
//!
//! Invariant: a prefetched record equals the committed row until the writer takes it.
//! 1. The writer requests a record after a commit, and only if it is neither in its cache nor in
//!    the buffer. The thread reads it at that commit or a later one.
//! 2. [`Prefetcher::take`] cancels an outstanding request for the same record, so a response that
//!    raced with a write is dropped.
//! 3. `take` removes the record from the buffer, and [`dedup`] requests each record once, so there
//!    is at most one copy.
//! 4. One request is outstanding at a time, and its blocks arrive in order. Payloads never change.
//! 5. A rollback clears the buffer, because sequence numbers may be reused.
//!
//! The writer decodes the records. Jobs that another thread allocates cost the writer more: their
//! memory is remote, and both threads count references to the same names.

mod buffer;
mod read;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::submit::Payload;
use longshore_engine::{ClaimRequest, Claimed, Engine};
use longshore_store::StoreError;

use self::buffer::{BufferSlot, Decode, PrefetchBuffer, RecordBlock};
use self::read::{PrefetchKey, read, serve};
use super::{RecordsError, SeqMap, SqliteRecords};
use crate::error::sql;
use crate::shared::SharedState;
use crate::sqlite::{Location, Role};
use longshore_codec as codec;

/// Jobs in the buffer, of all claim streams together.
const WINDOW: usize = 4_096;
const BYTES_MAX: usize = 16 << 20;
/// Jobs per block.
const BLOCK_JOBS: usize = 512;
/// Jobs that an idle writer decodes at a time.
const DECODE_SLICE: usize = 32;
/// Claims of the last size for which an idle writer decodes jobs, and the minimum in jobs.
const DECODE_AHEAD_CLAIMS: usize = 4;
const DECODE_AHEAD_MIN: usize = 64;
/// Claim streams that are tracked. One more resets the list.
const STREAMS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    thread: Option<PrefetchThread>,
    buffer: PrefetchBuffer,
    /// Blocks of the outstanding request that have not arrived.
    outstanding: VecDeque<Vec<PrefetchKey>>,
    streams: Vec<ClaimStream>,
    /// A claim had to read a record from the table.
    cache_miss: bool,
    /// Jobs that can be claimed before a record of the outstanding request is needed.
    claims_before_gap: usize,
    /// Jobs in the last claim.
    last_claim: usize,
    /// Overrides [`BLOCK_JOBS`] in tests.
    block_jobs: Option<usize>,
}

/// Claims with the same queue and types.
#[derive(Debug)]
struct ClaimStream {
    queue: QueueName,
    types: Vec<JobType>,
    /// Jobs claimed since the last prefetch.
    claimed: usize,
    /// Jobs that the last prefetch has covered.
    window: usize,
}

/// The prefetch thread. The writer itself reads what the thread leaves out, and reports errors.
#[derive(Debug)]
struct PrefetchThread {
    requests: Option<Sender<PrefetchRequest>>,
    blocks: Option<Receiver<RecordBlock>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PrefetchRequest {
    /// Keys block by block, each in ascending order.
    blocks: Vec<Vec<PrefetchKey>>,
    bytes_max: usize,
    /// Reusable memory for the blocks.
    spare: Vec<Vec<u8>>,
}

impl Prefetcher {
    pub(crate) fn start(location: &Location, shared: &Arc<SharedState>) -> Result<Self, StoreError> {
        let (request_tx, requests) = channel();
        let (block_tx, blocks) = channel();
        let connection = location.open(Role::Reader).map_err(sql)?;
        let shared = Arc::clone(shared);
        let work = move || {
            for request in requests {
                if serve(&connection, request, &block_tx, &shared.prefetch_lock).is_err() {
                    return;
                }
            }
        };
        let thread =
            Builder::new().name("longshore-prefetch".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        let thread = PrefetchThread { requests: Some(request_tx), blocks: Some(blocks), thread: Some(thread) };
        Ok(Self { thread: Some(thread), ..Self::default() })
    }

    /// Returns whether this is the next prefetched record.
    pub(super) fn is_next(&self, seq: Seq) -> bool {
        self.buffer.is_next(seq)
    }

    /// Takes a record that the writer is about to use.
    pub(super) fn take(&mut self, seq: Seq, decode: Decode<'_>) -> Option<Box<Job>> {
        let job = self.buffer.take_record(seq, decode);
        if job.is_none()
            && let Some(key) = self.outstanding_key(seq)
        {
            key.record = false;
        }
        job
    }

    fn outstanding_key(&mut self, seq: Seq) -> Option<&mut PrefetchKey> {
        self.outstanding.iter_mut().find_map(|block| {
            let index = block.binary_search_by_key(&seq, |key| key.seq).ok()?;
            block.get_mut(index)
        })
    }

    pub(super) fn take_payload(&mut self, seq: Seq) -> Option<Payload> {
        self.buffer.take_payload(seq)
    }

    /// Clears the buffer after a rollback.
    pub(super) fn rolled_back(&mut self) {
        self.buffer = PrefetchBuffer::default();
        self.cache_miss = true;
    }

    /// Stops the thread.
    pub(crate) fn stop(&mut self) {
        self.thread = None;
        self.outstanding.clear();
    }

    fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Records a claim, to predict the next one.
    fn record_claim(&mut self, request: &ClaimRequest, claimed: &[Claimed]) {
        self.last_claim = claimed.len();
        self.claims_before_gap = self.claims_before_gap.saturating_sub(claimed.len());
        for served in claimed.chunk_by(|a, b| a.queue == b.queue) {
            let Some(queue) = served.first().map(|claimed| &claimed.queue) else { continue };
            let stream = self.streams.iter_mut().find(|stream| stream.queue == *queue && stream.types == request.types);
            if let Some(stream) = stream {
                stream.claimed += served.len();
                continue;
            }
            if self.streams.len() >= STREAMS_MAX {
                self.streams.clear();
            }
            let types = request.types.clone();
            self.streams.push(ClaimStream { queue: queue.clone(), types, claimed: served.len(), window: 0 });
        }
    }

    /// Receives blocks. Drops records that the writer has taken since the request.
    fn receive(&mut self) {
        while !self.outstanding.is_empty()
            && let Some(received) =
                self.thread.as_ref().and_then(|thread| thread.blocks.as_ref()).map(Receiver::try_recv)
        {
            match received {
                Ok(mut block) => {
                    let keys = self.outstanding.pop_front().unwrap_or_default();
                    for (index, key) in keys.iter().enumerate() {
                        block.discard(index, !key.record, !key.payload);
                    }
                    self.buffer.add(block);
                }
                Err(TryRecvError::Empty) => return,
                // The thread has died: the writer reads by itself.
                Err(TryRecvError::Disconnected) => self.stop(),
            }
        }
    }

    /// Returns the streams to prefetch and how far. A stream gets twice the jobs that are claimed
    /// between two prefetches.
    fn due_streams(&mut self) -> Vec<(usize, usize)> {
        let had_miss = std::mem::take(&mut self.cache_miss);
        let share = (WINDOW / self.streams.len().max(1)).max(1);
        let mut due = Vec::new();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.window = stream.window.min(share);
            if stream.claimed > 0 && (had_miss || stream.claimed >= stream.window / 2) {
                stream.window = (4 * stream.claimed).max(stream.window).min(share);
                stream.claimed = 0;
                due.push((index, stream.window));
            }
        }
        due
    }

    /// Evicts jobs that are not at the head of a tracked stream.
    fn evict_stale(&mut self, engine: &Engine) {
        let heads = self.streams.iter();
        let heads = heads.flat_map(|stream| engine.peek_ready(&stream.queue, &stream.types, stream.window));
        let keep: SeqMap<()> = heads.map(|seq| (seq, ())).collect();
        self.buffer.retain(|seq| keep.contains_key(&seq));
    }

    fn block_jobs(&self) -> usize {
        self.block_jobs.unwrap_or(BLOCK_JOBS)
    }

    fn send_request(&mut self, keys: &[PrefetchKey]) {
        let bytes_max = BYTES_MAX.saturating_sub(self.buffer.bytes());
        let blocks: Vec<Vec<PrefetchKey>> = keys.chunks(self.block_jobs()).map(sorted).collect();
        self.outstanding = blocks.clone().into();
        let request = PrefetchRequest { blocks, bytes_max, spare: std::mem::take(&mut self.buffer.spare) };
        let requests = self.thread.as_ref().and_then(|thread| thread.requests.as_ref());
        if requests.is_none_or(|requests| requests.send(request).is_err()) {
            self.stop();
        }
    }
}

/// Removes duplicates. Streams may share jobs, and a claim may name a queue twice. A second copy
/// would survive a change of the first.
fn dedup(mut keys: Vec<PrefetchKey>) -> Vec<PrefetchKey> {
    let mut present = SeqMap::with_capacity_and_hasher(keys.len(), Default::default());
    keys.retain(|key| present.insert(key.seq, ()).is_none());
    keys
}

fn sorted(keys: &[PrefetchKey]) -> Vec<PrefetchKey> {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable_by_key(|key| key.seq);
    sorted
}

impl Drop for PrefetchThread {
    fn drop(&mut self) {
        // The thread stops after its current block.
        drop(self.blocks.take());
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl SqliteRecords {
    /// Receives prefetched blocks. The writer calls it between two batches.
    pub(crate) fn drain_prefetched(&mut self) {
        self.prefetcher.receive();
    }

    /// Decodes records for the next claims while the writer is idle. Returns whether it did any
    /// work.
    pub(crate) fn decode_prefetched(&mut self) -> bool {
        self.prefetcher.receive();
        let dictionary = self.indexes.dictionary();
        let jobs_max = (DECODE_AHEAD_CLAIMS * self.prefetcher.last_claim).clamp(DECODE_AHEAD_MIN, WINDOW);
        self.prefetcher
            .buffer
            .decode_next(DECODE_SLICE, jobs_max, &|seq, record| codec::job::decode_unchecked(seq, record, &dictionary))
    }

    /// Requests the next jobs of the active streams. The writer calls it after a commit.
    pub(crate) fn request_prefetch(&mut self, engine: &Engine) {
        if self.prefetcher.thread.is_none() || self.prefetcher.has_outstanding() {
            return;
        }
        let (mut keys, mut claims_before_gap) = (Vec::new(), usize::MAX);
        let mut hint = self.prefetcher.buffer.first();
        for (index, window) in self.prefetcher.due_streams() {
            let Some(stream) = self.prefetcher.streams.get(index) else { continue };
            let next = engine.peek_ready(&stream.queue, &stream.types, window);
            let missing: Vec<Option<PrefetchKey>> =
                next.into_iter().map(|seq| self.missing_parts(seq, &mut hint)).collect();
            let before_gap = missing.iter().take_while(|key| key.is_none()).count();
            claims_before_gap = claims_before_gap.min(before_gap);
            keys.extend(missing.into_iter().flatten());
        }
        self.prefetcher.claims_before_gap = claims_before_gap;
        if keys.is_empty() {
            return;
        }
        let buffer = &self.prefetcher.buffer;
        if buffer.parts() + 2 * keys.len() > 2 * WINDOW || buffer.bytes() > BYTES_MAX / 2 {
            self.prefetcher.evict_stale(engine);
        }
        self.prefetcher.send_request(&dedup(keys));
    }

    /// Reads the missing jobs of a claim with range reads, before the claim.
    pub(crate) fn prefetch_for_claim(&mut self, engine: &Engine, request: &ClaimRequest) -> Result<(), RecordsError> {
        const RANGE_MIN: usize = 4;
        // Skips the search if no record is known to be missing.
        let is_complete = !self.prefetcher.has_outstanding() || request.limit <= self.prefetcher.claims_before_gap;
        if request.limit < RANGE_MIN || (is_complete && !self.prefetcher.cache_miss) {
            return Ok(());
        }
        let mut limit = request.limit.min(WINDOW);
        let mut keys = Vec::new();
        let mut hint = self.prefetcher.buffer.first();
        for queue in &request.queues {
            let next = engine.peek_ready(queue, &request.types, limit);
            limit = limit.saturating_sub(next.len());
            keys.extend(next.into_iter().filter_map(|seq| self.missing_parts(seq, &mut hint)));
            if limit == 0 {
                break;
            }
        }
        if keys.len() < RANGE_MIN {
            return Ok(());
        }
        self.prefetcher.cache_miss = true;
        let mut bytes_max = BYTES_MAX.saturating_sub(self.prefetcher.buffer.bytes());
        for block in dedup(keys).chunks(self.prefetcher.block_jobs()).map(sorted) {
            for PrefetchKey { seq, record, payload } in &block {
                if let Some(key) = self.prefetcher.outstanding_key(*seq) {
                    (key.record, key.payload) = (key.record && !record, key.payload && !payload);
                }
            }
            let memory = self.prefetcher.buffer.spare.pop().unwrap_or_default();
            let block = read(&self.connection, &block, memory, &mut bytes_max)?;
            self.prefetcher.buffer.add(block);
        }
        Ok(())
    }

    /// Records a claim. `reads` is the value of `point_reads` before it.
    pub(crate) fn record_claim(&mut self, request: &ClaimRequest, claimed: &[Claimed], reads: u64) {
        self.prefetcher.cache_miss |= self.point_reads != reads;
        self.prefetcher.record_claim(request, claimed);
    }

    /// Returns the parts of a job that are not in memory. `hint` advances along the queue.
    fn missing_parts(&self, seq: Seq, hint: &mut BufferSlot) -> Option<PrefetchKey> {
        let (record, payload) = self.prefetcher.buffer.has(seq, hint);
        let record = !record && !self.jobs.contains_key(&seq);
        let payload = !payload && !self.payloads.payloads.contains_key(&seq);
        (record || payload).then_some(PrefetchKey { seq, record, payload })
    }
}
