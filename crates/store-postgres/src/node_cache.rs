//! What a node believes without asking: the runs that it gave out, the heads of lines that it saw last, the numbers that it has left. It may be wrong about all
//! of it; `turn/quick.rs` has the database check what it was built on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_core::id::Seq;
use longshore_core::time::{Duration, Timestamp};
use tokio_postgres::Row;

use crate::row::Found;
use crate::transaction::NUMBERS;

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
const CLAIMS_AHEAD: usize = 4;
/// Claims for which a line is looked at first, after somebody else was seen to claim from it.
const WARY: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Believed {
    runs: Mutex<Runs>,
    lines: Mutex<HashMap<i32, Line>>,
    block: Mutex<Block>,
}

#[derive(Debug, Default)]
struct Runs {
    of: HashMap<Seq, Found>,
    /// By age; who is not there any more is passed over.
    order: VecDeque<Seq>,
}

#[derive(Debug, Default)]
struct Line {
    head: Vec<(Seq, Found)>,
    wary: u32,
    /// Nobody stood before it when the whole line was seen last.
    from: Option<(Place, Timestamp)>,
}

/// Urgency and place: how a line is ordered.
pub(crate) type Place = (i16, i64);

/// The beginning of every line.
pub(crate) const BEGINNING: Place = (i16::MIN, 0);

/// How long somebody may stand unseen where nobody stood before: those whose commit took longer than that of others behind them.
const WHOLE_EVERY: Duration = Duration::from_millis(250);

/// Numbers for new jobs.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    first: u64,
    next: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Believed {
    /// Jobs that run now, as they are stored.
    pub(crate) fn remember_runs(&self, rows: Vec<(Seq, Found)>) {
        let mut runs = lock(&self.runs);
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
        let runs = lock(&self.runs);
        wanted.iter().all(|seq| runs.of.contains_key(seq))
    }

    /// They are forgotten here, and are to be remembered again if they go on.
    pub(crate) fn take_runs(&self, wanted: &[Seq]) -> Vec<(Seq, Found)> {
        let mut runs = lock(&self.runs);
        wanted.iter().filter_map(|seq| Some((*seq, runs.of.remove(seq)?))).collect()
    }

    /// Of jobs that may not run any more.
    pub(crate) fn forget_runs(&self, over: &[i64]) {
        let mut runs = lock(&self.runs);
        for number in over {
            runs.of.remove(&Seq(number.cast_unsigned()));
        }
    }

    /// The head of a line, if it is known to be so long; what comes behind is the head then. One that is too short is forgotten: somebody is about to
    /// look.
    pub(crate) fn take_head(&self, line: i32, length: usize) -> Option<Vec<(Seq, Found)>> {
        let mut lines = lock(&self.lines);
        let known = lines.get_mut(&line)?;
        if length == 0 || known.head.len() < length {
            known.head.clear();
            return None;
        }
        Some(known.head.drain(..length).collect())
    }

    /// How many jobs of a line's head are worth looking at, after a claim of so many with so many bytes.
    pub(crate) fn worth_looking(&self, line: i32, claimed: usize, bytes: usize) -> usize {
        let mut lines = lock(&self.lines);
        if lines.len() >= LINES_MAX && !lines.contains_key(&line) {
            lines.clear();
        }
        let known = lines.entry(line).or_default();
        if known.wary > 0 {
            known.wary -= 1;
            return 0;
        }
        let each = bytes / claimed.max(1) + 1;
        if known.head.len() >= claimed { 0 } else { (CLAIMS_AHEAD * claimed).min(HEAD_MAX).min(HEAD_BYTES_MAX / each) }
    }

    /// Up to the first that cannot be read, or was too long to come along.
    pub(crate) fn remember_head(&self, line: i32, rows: &[Row]) {
        let head: Vec<(Seq, Found)> = rows.iter().map_while(|row| Found::claimable(row).ok()).collect();
        let bytes: usize = head.iter().filter_map(|(_, found)| Some(found.payload.as_ref()?.bytes().len())).sum();
        let head = if bytes <= HEAD_BYTES_MAX { head } else { Vec::new() };
        lock(&self.lines).entry(line).or_default().head = head;
    }

    /// Where to begin to look at a line: what lies before it are remains.
    pub(crate) fn from(&self, line: i32, now: Timestamp) -> Option<Place> {
        let (place, seen) = lock(&self.lines).get(&line)?.from?;
        // The database's clock may have been set, either way.
        (now < seen + WHOLE_EVERY && seen < now + WHOLE_EVERY).then_some(place)
    }

    /// The first who was found in a line; with the time, if the whole line was looked at.
    pub(crate) fn begins_at(&self, line: i32, place: Place, whole: Option<Timestamp>) {
        let mut lines = lock(&self.lines);
        let known = lines.entry(line).or_default();
        known.from = match (whole, known.from) {
            (Some(now), _) => Some((place, now)),
            (None, Some((_, seen))) => Some((place, seen)),
            (None, None) => None,
        };
    }

    /// Somebody stands there now, and may be before everybody else.
    pub(crate) fn comes_to(&self, line: i32, place: Place) {
        if let Some(known) = lock(&self.lines).get_mut(&line)
            && known.from.is_some_and(|(from, _)| place < from)
        {
            known.from = None;
            known.head.clear();
        }
    }

    /// Somebody may have come anywhere.
    pub(crate) fn forget_line(&self, line: i32) {
        if let Some(known) = lock(&self.lines).get_mut(&line) {
            known.from = None;
            known.head.clear();
        }
    }

    /// Somebody may have come to any line.
    pub(crate) fn forget_lines(&self) {
        lock(&self.lines).clear();
    }

    /// The head of a line was not what was believed.
    pub(crate) fn was_wrong_about(&self, line: i32) {
        let mut lines = lock(&self.lines);
        let known = lines.entry(line).or_default();
        known.head.clear();
        known.from = None;
        known.wary = WARY;
    }

    /// So many numbers, in order: the block, and the first of them.
    pub(crate) fn take_numbers(&self, wanted: u64) -> Option<(u64, u64)> {
        let mut block = lock(&self.block);
        let (first, next) = (block.first, block.next);
        if first == 0 || next + wanted > first + NUMBERS {
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
            *block = Block { first, next: first + used };
        }
    }
}
