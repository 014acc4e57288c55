//! Reading ahead of the claims: what stands at the head of a line that is being worked off is read beside the writer, which then finds it in memory.
//!
//! Why no stale record is ever used. A record is asked for after a commit, when it is neither in the writer's cache nor here, so the table has it as it is. It is
//! read at that commit or a later one. The writer changes no record that it has not taken first ([`Ahead::take`]), and from then on the answer to that question
//! is not wanted any more (`asked`): what is accepted was not even looked at between question and answer, so whichever commit was read, it says the same. And what has
//! been accepted leaves with the first `take`, too: a record is here, or in the writer's cache, never in both. Questions have numbers, and one is open at a time, so no
//! answer can be taken for another. Payloads are written once, and no number is given twice.

mod read;
#[cfg(test)]
mod tests;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, RwLock};
use std::thread::{Builder, JoinHandle};

use longshore_core::engine::{ClaimRequest, Claimed, Engine};
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::submit::Payload;
use longshore_store::StoreError;

use self::read::{Found, Wanted, answer, read};
use super::{DiskRecords, SeqMap, Trouble};
use crate::error::sql;
use crate::schema::{Location, Role};
use crate::writer::Shared;
use longshore_records::Names;

/// Jobs that are held here, of all lines together.
const WINDOW: usize = 16_384;
const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Lines that are followed; with more of them the next one starts afresh.
const LINES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Ahead {
    beside: Option<Beside>,
    warm: SeqMap<Warm>,
    payload_bytes: usize,
    lines: Vec<Line>,
    /// A claim has met a record that was not in memory.
    missed: bool,
    /// While a question is open: how many may be claimed before one is met that it asks for.
    lead: usize,
}

#[derive(Debug, Default)]
struct Warm {
    /// The question that asked for it, while the writer has not touched the record since.
    asked: Option<u64>,
    job: Option<Box<Job>>,
    payload: Option<Payload>,
}

impl Warm {
    /// Says how many bytes more there are.
    fn hold(&mut self, payload: Payload) -> usize {
        let bytes = payload.bytes().len();
        if self.payload.replace(payload).is_none() { bytes } else { 0 }
    }
}

/// One kind of claim: who asks for the same has the same jobs before him.
#[derive(Debug)]
struct Line {
    queue: QueueName,
    types: Vec<JobType>,
    /// Claimed since it was last looked at.
    claimed: usize,
    /// How far was looked then.
    window: usize,
}

/// The thread that reads. Whatever it fails to read is left for the writer to find out.
#[derive(Debug)]
struct Beside {
    questions: Option<Sender<Question>>,
    answers: Option<Receiver<Answer>>,
    thread: Option<JoinHandle<()>>,
    /// The last question, and whether it is still open.
    question: u64,
    waiting: bool,
}

#[derive(Debug)]
struct Question {
    wanted: Vec<Wanted>,
    payload_bytes_max: usize,
}

#[derive(Debug)]
struct Answer {
    found: Found,
    last: bool,
}

impl Ahead {
    pub(crate) fn start(
        location: &Location,
        names: &Arc<RwLock<Names>>,
        shared: &Arc<Shared>,
    ) -> Result<Self, StoreError> {
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        let (connection, names) = (location.open(Role::Reader).map_err(sql)?, Arc::clone(names));
        let shared = Arc::clone(shared);
        let work = move || {
            for question in asked {
                if answer(&connection, &names, &question, &sender, &shared.reading_ahead).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("longshore-ahead".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        let beside = Beside {
            questions: Some(questions),
            answers: Some(answers),
            thread: Some(thread),
            question: 0,
            waiting: false,
        };
        Ok(Self { beside: Some(beside), ..Self::default() })
    }

    /// The writer is about to use this record, and perhaps to change it.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Box<Job>> {
        let warm = self.warm.get_mut(&seq)?;
        warm.asked = None;
        let job = warm.job.take();
        if warm.payload.is_none() {
            self.warm.remove(&seq);
        }
        job
    }

    pub(super) fn take_payload(&mut self, seq: Seq) -> Option<Payload> {
        let payload = self.warm.remove(&seq)?.payload?;
        self.payload_bytes = self.payload_bytes.saturating_sub(payload.bytes().len());
        Some(payload)
    }

    /// Ends the reading beside the writer.
    pub(crate) fn stop(&mut self) {
        self.beside = None;
    }

    fn waiting(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.waiting)
    }

    /// Notes who was served, and thus who is next.
    fn follow(&mut self, request: &ClaimRequest, claimed: &[Claimed]) {
        self.lead = self.lead.saturating_sub(claimed.len());
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
            self.lines.push(Line { queue: queue.clone(), types, claimed: served.len(), window: 0 });
        }
    }

    /// Takes in what was read meanwhile, unless the writer has touched the record since that was asked for.
    fn receive(&mut self) {
        while let Some(beside) = self.beside.as_mut().filter(|beside| beside.waiting)
            && let Some(Ok(Answer { found, last })) = beside.answers.as_ref().map(Receiver::try_recv)
        {
            beside.waiting = !last;
            let asked = Some(beside.question);
            for job in found.jobs {
                if let Some(warm) = self.warm.get_mut(&job.seq).filter(|warm| warm.asked == asked) {
                    warm.job = Some(job);
                }
            }
            for (seq, payload) in found.payloads {
                if let Some(warm) = self.warm.get_mut(&seq).filter(|warm| warm.asked == asked) {
                    self.payload_bytes += warm.hold(payload);
                }
            }
        }
    }

    /// Keeps what the writer has just read itself.
    fn keep(&mut self, found: Found) {
        for job in found.jobs {
            let seq = job.seq;
            self.warm.entry(seq).or_default().job = Some(job);
        }
        for (seq, payload) in found.payloads {
            self.payload_bytes += self.warm.entry(seq).or_default().hold(payload);
        }
    }

    /// Which lines it is time to look at, and how far. The more a line is claimed from, the further: to the double of what is claimed between two looks.
    fn due(&mut self) -> Vec<(usize, usize)> {
        let missed = std::mem::take(&mut self.missed);
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
    fn tidy(&mut self, engine: &Engine) {
        let at_the_head = self.lines.iter().flat_map(|line| engine.in_line(&line.queue, &line.types, line.window));
        let keep: SeqMap<()> = at_the_head.map(|seq| (seq, ())).collect();
        self.warm.retain(|seq, _| keep.contains_key(seq));
        let payloads = self.warm.values().filter_map(|warm| warm.payload.as_ref());
        self.payload_bytes = payloads.map(|payload| payload.bytes().len()).sum();
    }

    fn ask(&mut self, wanted: Vec<Wanted>) {
        let payload_bytes_max = PAYLOAD_BYTES_MAX.saturating_sub(self.payload_bytes);
        let Some(beside) = &mut self.beside else { return };
        beside.question += 1;
        for wanted in &wanted {
            self.warm.entry(wanted.seq).or_default().asked = Some(beside.question);
        }
        let sent = beside.questions.as_ref().map(|questions| questions.send(Question { wanted, payload_bytes_max }));
        match sent {
            Some(Ok(())) => beside.waiting = true,
            // It has died: the writer reads for itself.
            Some(Err(_)) | None => self.beside = None,
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Nobody listens any more: it stops with what it is reading now.
        drop(self.answers.take());
        drop(self.questions.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl DiskRecords {
    /// Between two batches.
    pub(crate) fn receive_ahead(&mut self) {
        self.ahead.receive();
    }

    /// After a commit: asks for what is next in the lines that are being claimed from.
    pub(crate) fn look_ahead(&mut self, engine: &Engine) {
        if self.ahead.beside.is_none() || self.ahead.waiting() {
            return;
        }
        let (mut wanted, mut lead) = (Vec::new(), usize::MAX);
        for (place, window) in self.ahead.due() {
            let Some(line) = self.ahead.lines.get(place) else { continue };
            let next = engine.in_line(&line.queue, &line.types, window);
            let cold = next.iter().map(|seq| self.cold(*seq));
            lead = lead.min(cold.clone().take_while(Option::is_none).count());
            wanted.extend(cold.flatten());
        }
        self.ahead.lead = lead;
        if wanted.is_empty() {
            return;
        }
        if self.ahead.warm.len() + wanted.len() > WINDOW || self.ahead.payload_bytes > PAYLOAD_BYTES_MAX / 2 {
            self.ahead.tidy(engine);
        }
        self.ahead.ask(wanted);
    }

    /// Before a claim that will meet records which are not in memory: reads them together, where they lie side by side.
    pub(crate) fn prepare(&mut self, engine: &Engine, request: &ClaimRequest) -> Result<(), Trouble> {
        const FEW: usize = 4;
        // Where nothing is known to be missing it is not worth looking.
        let complete = !self.ahead.waiting() || request.limit <= self.ahead.lead;
        if request.limit < FEW || (complete && !self.ahead.missed) {
            return Ok(());
        }
        let mut room = request.limit.min(WINDOW);
        let mut wanted = Vec::new();
        for queue in &request.queues {
            let next = engine.in_line(queue, &request.types, room);
            room = room.saturating_sub(next.len());
            wanted.extend(next.into_iter().filter_map(|seq| self.cold(seq)));
            if room == 0 {
                break;
            }
        }
        if wanted.len() < FEW {
            return Ok(());
        }
        self.ahead.missed = true;
        let mut payload_bytes_max = PAYLOAD_BYTES_MAX.saturating_sub(self.ahead.payload_bytes);
        let found = read(&self.connection, &self.names, wanted, &mut payload_bytes_max)?;
        self.ahead.keep(found);
        Ok(())
    }

    /// After a claim; `reads` is what stood in [`DiskRecords::reads`] before it.
    pub(crate) fn follow(&mut self, request: &ClaimRequest, claimed: &[Claimed], reads: u64) {
        self.ahead.missed |= self.reads != reads;
        self.ahead.follow(request, claimed);
    }

    /// What of a job in line is not in memory.
    fn cold(&self, seq: Seq) -> Option<Wanted> {
        let warm = self.ahead.warm.get(&seq);
        let record = !self.jobs.contains_key(&seq) && warm.is_none_or(|warm| warm.job.is_none());
        let payload = warm.is_none_or(|warm| warm.payload.is_none()) && !self.payloads.payloads.contains_key(&seq);
        (record || payload).then_some(Wanted { seq, record, payload })
    }
}
