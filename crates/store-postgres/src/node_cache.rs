//! What a node believes without asking: the runs that it gave out, the heads of lines that it saw last, the numbers that it has left. It may be wrong about all
//! of it; `turn/quick.rs` has the database check what it was built on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_core::id::Seq;
use longshore_core::time::{Duration, Timestamp};
use tokio_postgres::Row;

use crate::row::JobRow;
use crate::transaction::SEQ_BLOCK_SIZE;

/// Runs that are remembered.
const RUNS_MAX: usize = 65_536;
/// Longer records are not.
const RECORD_MAX: usize = 4_096;
/// Lines whose head is remembered.
const LINES_MAX: usize = 1_024;
/// Jobs at the head of a line, and the bytes of their payloads.
const HEAD_MAX: usize = 1_000;
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Claims like the last one that a head should do for.
const PREFETCH_CLAIMS: usize = 4;
/// Claims for which a line is looked at first, after somebody else was seen to claim from it.
const COOLDOWN_CLAIMS: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    running: Mutex<RunningJobs>,
    heads: Mutex<HashMap<i32, QueueHead>>,
    block: Mutex<SeqBlock>,
}

#[derive(Debug, Default)]
struct RunningJobs {
    of: HashMap<Seq, JobRow>,
    /// By age; who is not there any more is passed over.
    order: VecDeque<Seq>,
}

#[derive(Debug, Default)]
struct QueueHead {
    head: Vec<(Seq, JobRow)>,
    cooldown: u32,
    /// Nobody stood before it when the whole line was seen last.
    scan_from: Option<(ReadyPosition, Timestamp)>,
}

/// Urgency and place: how a line is ordered.
pub(crate) type ReadyPosition = (i16, i64);

/// The beginning of every line.
pub(crate) const START: ReadyPosition = (i16::MIN, 0);

/// How long somebody may stand unseen where nobody stood before: those whose commit took longer than that of others behind them.
const FULL_SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// Numbers for new jobs.
#[derive(Clone, Copy, Debug, Default)]
struct SeqBlock {
    first: u64,
    next: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeCache {
    /// Jobs that run now, as they are stored.
    pub(crate) fn store_running(&self, rows: Vec<(Seq, JobRow)>) {
        let mut runs = lock(&self.running);
        for (seq, found) in rows.into_iter().filter(|(_, found)| found.record.len() <= RECORD_MAX) {
            if runs.of.insert(seq, found).is_none() {
                runs.order.push_back(seq);
            }
        }
        // Runs that have ended leave their place in the order behind.
        while runs.order.len() > RUNS_MAX
            && let Some(oldest) = runs.order.pop_front()
        {
            runs.of.remove(&oldest);
        }
    }

    pub(crate) fn knows_runs(&self, wanted: &[Seq]) -> bool {
        let runs = lock(&self.running);
        wanted.iter().all(|seq| runs.of.contains_key(seq))
    }

    /// They are forgotten here, and are to be remembered again if they go on.
    pub(crate) fn take_runs(&self, wanted: &[Seq]) -> Vec<(Seq, JobRow)> {
        let mut runs = lock(&self.running);
        wanted.iter().filter_map(|seq| Some((*seq, runs.of.remove(seq)?))).collect()
    }

    /// Of jobs that may not run any more.
    pub(crate) fn evict_running(&self, over: &[i64]) {
        let mut runs = lock(&self.running);
        for number in over {
            runs.of.remove(&Seq(number.cast_unsigned()));
        }
    }

    /// The head of a line, if it is known to be so long; what comes behind is the head then. One that is too short is forgotten: somebody is about to
    /// look.
    pub(crate) fn take_head(&self, line: i32, length: usize) -> Option<Vec<(Seq, JobRow)>> {
        let mut lines = lock(&self.heads);
        let known = lines.get_mut(&line)?;
        if length == 0 || known.head.len() < length {
            known.head.clear();
            return None;
        }
        Some(known.head.drain(..length).collect())
    }

    /// How many jobs of a line's head are worth looking at, after a claim of so many with so many bytes.
    pub(crate) fn prefetch_size(&self, line: i32, claimed: usize, bytes: usize) -> usize {
        let mut lines = lock(&self.heads);
        if lines.len() >= LINES_MAX && !lines.contains_key(&line) {
            lines.clear();
        }
        let known = lines.entry(line).or_default();
        if known.cooldown > 0 {
            known.cooldown -= 1;
            return 0;
        }
        let each = bytes / claimed.max(1) + 1;
        if known.head.len() >= claimed {
            0
        } else {
            (PREFETCH_CLAIMS * claimed).min(HEAD_MAX).min(HEAD_BYTES_MAX / each)
        }
    }

    /// Up to the first that cannot be read, or was too long to come along.
    pub(crate) fn store_head(&self, line: i32, rows: &[Row]) {
        let head: Vec<(Seq, JobRow)> = rows.iter().map_while(|row| JobRow::claimable(row).ok()).collect();
        let bytes: usize = head.iter().filter_map(|(_, found)| Some(found.payload.as_ref()?.bytes().len())).sum();
        let head = if bytes <= HEAD_BYTES_MAX { head } else { Vec::new() };
        lock(&self.heads).entry(line).or_default().head = head;
    }

    /// Where to begin to look at a line: what lies before it are remains.
    pub(crate) fn scan_from(&self, line: i32, now: Timestamp) -> Option<ReadyPosition> {
        let (place, seen) = lock(&self.heads).get(&line)?.scan_from?;
        // The database's clock may have been set, either way.
        (now < seen + FULL_SCAN_INTERVAL && seen < now + FULL_SCAN_INTERVAL).then_some(place)
    }

    /// The first who was found in a line; with the time, if the whole line was looked at.
    pub(crate) fn set_scan_start(&self, line: i32, place: ReadyPosition, whole: Option<Timestamp>) {
        let mut lines = lock(&self.heads);
        let known = lines.entry(line).or_default();
        known.scan_from = match (whole, known.scan_from) {
            (Some(now), _) => Some((place, now)),
            (None, Some((_, seen))) => Some((place, seen)),
            (None, None) => None,
        };
    }

    /// Somebody stands there now, and may be before everybody else.
    pub(crate) fn invalidate_if_before(&self, line: i32, place: ReadyPosition) {
        if let Some(known) = lock(&self.heads).get_mut(&line)
            && known.scan_from.is_some_and(|(from, _)| place < from)
        {
            known.scan_from = None;
            known.head.clear();
        }
    }

    /// Somebody may have come anywhere.
    pub(crate) fn invalidate_queue(&self, line: i32) {
        if let Some(known) = lock(&self.heads).get_mut(&line) {
            known.scan_from = None;
            known.head.clear();
        }
    }

    /// Somebody may have come to any line.
    pub(crate) fn invalidate_all(&self) {
        lock(&self.heads).clear();
    }

    /// The head of a line was not what was believed.
    pub(crate) fn on_mispredict(&self, line: i32) {
        let mut lines = lock(&self.heads);
        let known = lines.entry(line).or_default();
        known.head.clear();
        known.scan_from = None;
        known.cooldown = COOLDOWN_CLAIMS;
    }

    /// So many numbers, in order: the block, and the first of them.
    pub(crate) fn allocate_seqs(&self, wanted: u64) -> Option<(u64, u64)> {
        let mut block = lock(&self.block);
        let (first, next) = (block.first, block.next);
        if first == 0 || next + wanted > first + SEQ_BLOCK_SIZE {
            return None;
        }
        block.next += wanted;
        Some((first, next))
    }

    /// The block that numbers are taken from.
    pub(crate) fn block(&self) -> u64 {
        lock(&self.block).first
    }

    /// A new block was drawn; the first of its numbers are used already.
    pub(crate) fn remember_block(&self, first: u64, used: u64) {
        let mut block = lock(&self.block);
        // A lane that was slower may come with an older one.
        if first > block.first {
            *block = SeqBlock { first, next: first + used };
        }
    }
}
