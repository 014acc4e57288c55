//! Reading ahead of the claims: what stands at the head of a line that is being worked off is read beside the writer, which then finds it in memory.
//!
//! Why no stale record is ever used. A record is asked for after a commit, when it is neither in the writer's cache nor here, so the table has it as it is. It is
//! read at that commit or a later one. The writer changes no record that it has not taken first ([`Ahead::take`]), and from then on the answer to that question
//! is not wanted any more: what is accepted was not even looked at between question and answer, so whichever commit was read, it says the same. And what has
//! been accepted leaves with the first `take`, too: a record is here, or in the writer's cache, never in both, and never here twice ([`each_once`]). One question is open at a
//! time, and its answers come in its order. Payloads are written once. A number is given again only after a batch that never was, and with that everything here goes.
//!
//! Records stay bytes until they are taken: the writer makes them into jobs in its own memory. Made by the other thread they cost the writer more than that, in memory that
//! is far from it and in names that both of them count.

mod buffer;
mod read;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};

use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::submit::Payload;
use longshore_engine::{ClaimRequest, Claimed, Engine};
use longshore_store::StoreError;

use self::buffer::{BufferSlot, Decode, PrefetchBuffer, RecordBlock};
use self::read::{PrefetchKey, answer, read};
use super::{RecordsError, SeqMap, SqliteRecords};
use crate::error::sql;
use crate::schema::{Location, Role};
use crate::writer::Shared;
use longshore_codec::codec;

/// Jobs that are held here, of all lines together.
const WINDOW: usize = 4_096;
const BYTES_MAX: usize = 16 << 20;
/// Jobs that are read, and handed over, together. Tests have few jobs, and want many helpings.
const BLOCK_JOBS: usize = if cfg!(test) { 8 } else { 512 };
/// Jobs that are made at a time, while nobody waits.
const SLICE: usize = 32;
/// Jobs that are made before they are wanted: for so many claims like the last one, and at least so many jobs. While one is being served nobody makes any.
const DECODE_AHEAD_CLAIMS: usize = 4;
const MADE_MIN: usize = 64;
/// Lines that are followed; with more of them the next one starts afresh.
const LINES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    beside: Option<PrefetchThread>,
    shelf: PrefetchBuffer,
    /// The open question, as far as it is not answered.
    asked: VecDeque<Vec<PrefetchKey>>,
    lines: Vec<ClaimStream>,
    /// A claim has met a record that was not in memory.
    cache_miss: bool,
    /// While a question is open: how many may be claimed before one is met that it asks for.
    claims_before_gap: usize,
    /// How many jobs the last claim got.
    last_claim: usize,
}

/// One kind of claim: who asks for the same has the same jobs before him.
#[derive(Debug)]
struct ClaimStream {
    queue: QueueName,
    types: Vec<JobType>,
    /// Claimed since it was last looked at.
    claimed: usize,
    /// How far was looked then.
    window: usize,
}

/// The thread that reads. Whatever it fails to read is left for the writer to find out.
#[derive(Debug)]
struct PrefetchThread {
    questions: Option<Sender<PrefetchRequest>>,
    answers: Option<Receiver<RecordBlock>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PrefetchRequest {
    /// Helping by helping, each by rising numbers.
    wanted: Vec<Vec<PrefetchKey>>,
    bytes_max: usize,
    /// Memory for the answers.
    spare: Vec<Vec<u8>>,
}

impl Prefetcher {
    pub(crate) fn start(location: &Location, shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        let connection = location.open(Role::Reader).map_err(sql)?;
        let shared = Arc::clone(shared);
        let work = move || {
            for question in asked {
                if answer(&connection, question, &sender, &shared.prefetch_lock).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("longshore-ahead".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        let beside = PrefetchThread { questions: Some(questions), answers: Some(answers), thread: Some(thread) };
        Ok(Self { beside: Some(beside), ..Self::default() })
    }

    /// Whether a record is the next one that was read ahead.
    pub(super) fn is_next(&self, seq: Seq) -> bool {
        self.shelf.is_next(seq)
    }

    /// The writer is about to use this record, and perhaps to change it.
    pub(super) fn take(&mut self, seq: Seq, decode: Decode<'_>) -> Option<Box<Job>> {
        let taken = self.shelf.take_record(seq, decode);
        if taken.is_none()
            && let Some(wanted) = self.asked_for(seq)
        {
            wanted.record = false;
        }
        taken
    }

    fn asked_for(&mut self, seq: Seq) -> Option<&mut PrefetchKey> {
        self.asked.iter_mut().find_map(|helping| {
            let place = helping.binary_search_by_key(&seq, |wanted| wanted.seq).ok()?;
            helping.get_mut(place)
        })
    }

    pub(super) fn take_payload(&mut self, seq: Seq) -> Option<Payload> {
        self.shelf.take_payload(seq)
    }

    /// After a batch that never was: some of what is here may have been read in the midst of it.
    pub(super) fn rolled_back(&mut self) {
        self.shelf = PrefetchBuffer::default();
        self.cache_miss = true;
    }

    /// Ends the reading beside the writer.
    pub(crate) fn stop(&mut self) {
        self.beside = None;
        self.asked.clear();
    }

    fn waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Notes who was served, and thus who is next.
    fn record_claim(&mut self, request: &ClaimRequest, claimed: &[Claimed]) {
        self.last_claim = claimed.len();
        self.claims_before_gap = self.claims_before_gap.saturating_sub(claimed.len());
        for served in claimed.chunk_by(|a, b| a.queue == b.queue) {
            let Some(queue) = served.first().map(|claimed| &claimed.queue) else { continue };
            let line = self.lines.iter_mut().find(|line| line.queue == *queue && line.types == request.types);
            if let Some(line) = line {
                line.claimed += served.len();
                continue;
            }
            if self.lines.len() >= LINES_MAX {
                self.lines.clear();
            }
            let types = request.types.clone();
            self.lines.push(ClaimStream { queue: queue.clone(), types, claimed: served.len(), window: 0 });
        }
    }

    /// Takes in what was read meanwhile, unless the writer has touched the record since that was asked for.
    fn receive(&mut self) {
        while !self.asked.is_empty()
            && let Some(answered) =
                self.beside.as_ref().and_then(|beside| beside.answers.as_ref()).map(Receiver::try_recv)
        {
            match answered {
                Ok(mut helping) => {
                    let asked = self.asked.pop_front().unwrap_or_default();
                    for (place, wanted) in asked.iter().enumerate() {
                        helping.forget(place, !wanted.record, !wanted.payload);
                    }
                    self.shelf.add(helping);
                }
                Err(TryRecvError::Empty) => return,
                // It has died: the writer reads for itself.
                Err(TryRecvError::Disconnected) => self.stop(),
            }
        }
    }

    /// Which lines it is time to look at, and how far. The more a line is claimed from, the further: to the double of what is claimed between two looks.
    fn due(&mut self) -> Vec<(usize, usize)> {
        let missed = std::mem::take(&mut self.cache_miss);
        let share = (WINDOW / self.lines.len().max(1)).max(1);
        let mut due = Vec::new();
        for (place, line) in self.lines.iter_mut().enumerate() {
            line.window = line.window.min(share);
            if line.claimed > 0 && (missed || line.claimed >= line.window / 2) {
                line.window = (4 * line.claimed).max(line.window).min(share);
                line.claimed = 0;
                due.push((place, line.window));
            }
        }
        due
    }

    /// Lets go of what stands in no line that is followed, or no longer at its head.
    fn evict_stale(&mut self, engine: &Engine) {
        let at_the_head = self.lines.iter().flat_map(|line| engine.peek_ready(&line.queue, &line.types, line.window));
        let keep: SeqMap<()> = at_the_head.map(|seq| (seq, ())).collect();
        self.shelf.retain(|seq| keep.contains_key(&seq));
    }

    fn ask(&mut self, wanted: &[PrefetchKey]) {
        let bytes_max = BYTES_MAX.saturating_sub(self.shelf.bytes());
        let helpings: Vec<Vec<PrefetchKey>> = wanted.chunks(BLOCK_JOBS).map(sorted).collect();
        self.asked = helpings.clone().into();
        let question = PrefetchRequest { wanted: helpings, bytes_max, spare: std::mem::take(&mut self.shelf.spare) };
        let questions = self.beside.as_ref().and_then(|beside| beside.questions.as_ref());
        if questions.is_none_or(|questions| questions.send(question).is_err()) {
            self.stop();
        }
    }
}

/// Lines may share jobs, and a claim may name a queue twice. Of what is read twice one copy would outlive the change of the other.
fn each_once(mut wanted: Vec<PrefetchKey>) -> Vec<PrefetchKey> {
    let mut seen = SeqMap::with_capacity_and_hasher(wanted.len(), Default::default());
    wanted.retain(|wanted| seen.insert(wanted.seq, ()).is_none());
    wanted
}

fn sorted(wanted: &[PrefetchKey]) -> Vec<PrefetchKey> {
    let mut sorted = wanted.to_vec();
    sorted.sort_unstable_by_key(|wanted| wanted.seq);
    sorted
}

impl Drop for PrefetchThread {
    fn drop(&mut self) {
        // Nobody listens any more: it stops with what it is reading now.
        drop(self.answers.take());
        drop(self.questions.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl SqliteRecords {
    /// Between two batches.
    pub(crate) fn drain_prefetched(&mut self) {
        self.ahead.receive();
    }

    /// While nobody waits: makes some of what was read into the jobs that the next claims want. Says whether there was anything to do.
    pub(crate) fn decode_prefetched(&mut self) -> bool {
        self.ahead.receive();
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let most = (DECODE_AHEAD_CLAIMS * self.ahead.last_claim).clamp(MADE_MIN, WINDOW);
        self.ahead.shelf.decode_next(SLICE, most, &|seq, record| codec::job::decode_unchecked(seq, record, &names))
    }

    /// After a commit: asks for what is next in the lines that are being claimed from.
    pub(crate) fn request_prefetch(&mut self, engine: &Engine) {
        if self.ahead.beside.is_none() || self.ahead.waiting() {
            return;
        }
        let (mut wanted, mut lead) = (Vec::new(), usize::MAX);
        let mut likely = self.ahead.shelf.first();
        for (place, window) in self.ahead.due() {
            let Some(line) = self.ahead.lines.get(place) else { continue };
            let next = engine.peek_ready(&line.queue, &line.types, window);
            let cold: Vec<Option<PrefetchKey>> =
                next.into_iter().map(|seq| self.missing_parts(seq, &mut likely)).collect();
            lead = lead.min(cold.iter().take_while(|wanted| wanted.is_none()).count());
            wanted.extend(cold.into_iter().flatten());
        }
        self.ahead.claims_before_gap = lead;
        if wanted.is_empty() {
            return;
        }
        let shelf = &self.ahead.shelf;
        if shelf.parts() + 2 * wanted.len() > 2 * WINDOW || shelf.bytes() > BYTES_MAX / 2 {
            self.ahead.evict_stale(engine);
        }
        self.ahead.ask(&each_once(wanted));
    }

    /// Before a claim that will meet records which are not in memory: reads them together, where they lie side by side.
    pub(crate) fn prefetch_for_claim(&mut self, engine: &Engine, request: &ClaimRequest) -> Result<(), RecordsError> {
        const FEW: usize = 4;
        // Where nothing is known to be missing it is not worth looking.
        let complete = !self.ahead.waiting() || request.limit <= self.ahead.claims_before_gap;
        if request.limit < FEW || (complete && !self.ahead.cache_miss) {
            return Ok(());
        }
        let mut room = request.limit.min(WINDOW);
        let mut wanted = Vec::new();
        let mut likely = self.ahead.shelf.first();
        for queue in &request.queues {
            let next = engine.peek_ready(queue, &request.types, room);
            room = room.saturating_sub(next.len());
            wanted.extend(next.into_iter().filter_map(|seq| self.missing_parts(seq, &mut likely)));
            if room == 0 {
                break;
            }
        }
        if wanted.len() < FEW {
            return Ok(());
        }
        self.ahead.cache_miss = true;
        let mut bytes_max = BYTES_MAX.saturating_sub(self.ahead.shelf.bytes());
        for helping in each_once(wanted).chunks(BLOCK_JOBS).map(sorted) {
            for PrefetchKey { seq, record, payload } in &helping {
                if let Some(asked) = self.ahead.asked_for(*seq) {
                    (asked.record, asked.payload) = (asked.record && !record, asked.payload && !payload);
                }
            }
            let memory = self.ahead.shelf.spare.pop().unwrap_or_default();
            let read = read(&self.connection, &helping, memory, &mut bytes_max)?;
            self.ahead.shelf.add(read);
        }
        Ok(())
    }

    /// After a claim; `reads` is what stood in [`DiskRecords::reads`] before it.
    pub(crate) fn record_claim(&mut self, request: &ClaimRequest, claimed: &[Claimed], reads: u64) {
        self.ahead.cache_miss |= self.point_reads != reads;
        self.ahead.record_claim(request, claimed);
    }

    /// What of a job in line is not in memory. `likely` walks along the line.
    fn missing_parts(&self, seq: Seq, likely: &mut BufferSlot) -> Option<PrefetchKey> {
        let (record, payload) = self.ahead.shelf.has(seq, likely);
        let record = !record && !self.jobs.contains_key(&seq);
        let payload = !payload && !self.payloads.payloads.contains_key(&seq);
        (record || payload).then_some(PrefetchKey { seq, record, payload })
    }
}
