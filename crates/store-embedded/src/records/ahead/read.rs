//! Records and payloads, many at a time.

use std::sync::mpsc::{SendError, Sender};
use std::sync::{Mutex, PoisonError, RwLock};

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::submit::Payload;
use rusqlite::{Connection, Rows};

use super::{Answer, Question};
use crate::records::payloads::payload_in;
use longshore_records::Names;
use longshore_records::codec;

/// Jobs that are read, and handed over, together.
const HELPING: usize = 512;
/// Rows that may be passed over rather than looking the next one up.
const GAP_MAX: u64 = 16;

/// What is to be read of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub seq: Seq,
    pub record: bool,
    pub payload: bool,
}

/// What was found, as it was written. What was not, or is damaged, is left out.
#[derive(Debug, Default)]
pub(super) struct Found {
    #[expect(clippy::vec_box, reason = "the boxes move on, into the writer's cache")]
    pub jobs: Vec<Box<Job>>,
    pub payloads: Vec<(Seq, Payload)>,
}

/// Answers in helpings, the first in line first. An error means that nobody listens any more.
pub(super) fn answer(
    connection: &Connection,
    names: &RwLock<Names>,
    question: &Question,
    answers: &Sender<Answer>,
    reading: &Mutex<()>,
) -> Result<(), SendError<Answer>> {
    let mut room = question.payload_bytes_max;
    let helpings = question.wanted.chunks(HELPING);
    let mut left = helpings.len();
    for helping in helpings {
        left -= 1;
        let now = reading.lock().unwrap_or_else(PoisonError::into_inner);
        let found = read(connection, names, helping.to_vec(), &mut room).unwrap_or_default();
        drop(now);
        answers.send(Answer { found, last: left == 0 })?;
    }
    Ok(())
}

/// Reads range by range. Each range is of one moment, not all of them together: a reader that stays long keeps the log from starting again.
pub(super) fn read(
    connection: &Connection,
    names: &RwLock<Names>,
    mut wanted: Vec<Wanted>,
    payload_bytes_max: &mut usize,
) -> rusqlite::Result<Found> {
    wanted.sort_unstable_by_key(|wanted| wanted.seq);
    let mut found = Found::default();
    let side_by_side = |a: &Seq, b: &Seq| b.0.saturating_sub(a.0) <= GAP_MAX;
    let records: Vec<Seq> = wanted.iter().filter(|wanted| wanted.record).map(|wanted| wanted.seq).collect();
    for range in records.chunk_by(side_by_side) {
        read_records(connection, names, range, &mut found)?;
    }
    let payloads: Vec<Seq> = wanted.iter().filter(|wanted| wanted.payload).map(|wanted| wanted.seq).collect();
    for range in payloads.chunk_by(side_by_side) {
        read_payloads(connection, range, &mut found, payload_bytes_max)?;
    }
    Ok(found)
}

fn read_records(
    connection: &Connection,
    names: &RwLock<Names>,
    range: &[Seq],
    found: &mut Found,
) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached("SELECT record, seq FROM live WHERE seq BETWEEN ?1 AND ?2")?;
    let mut rows = select.query(ends(range))?;
    each_of(range, &mut rows, 1, |seq, row| {
        let names = names.read().unwrap_or_else(PoisonError::into_inner);
        let record = row.get_ref(0)?.as_blob().ok();
        let job = record.and_then(|bytes| codec::job::decode(seq, bytes, &names).ok());
        found.jobs.extend(job.map(Box::new));
        Ok(true)
    })
}

fn read_payloads(
    connection: &Connection,
    range: &[Seq],
    found: &mut Found,
    bytes_max: &mut usize,
) -> rusqlite::Result<()> {
    let statement = "SELECT kind, checksum, bytes, seq FROM payload WHERE seq BETWEEN ?1 AND ?2";
    let mut select = connection.prepare_cached(statement)?;
    let mut rows = select.query(ends(range))?;
    each_of(range, &mut rows, 3, |seq, row| {
        let bytes = row.get_ref(2)?.as_blob().map_or(0, <[u8]>::len);
        let Some(room) = bytes_max.checked_sub(bytes) else { return Ok(false) };
        if let Ok(payload) = payload_in(row, seq) {
            *bytes_max = room;
            found.payloads.push((seq, payload));
        }
        Ok(true)
    })
}

fn ends(range: &[Seq]) -> [i64; 2] {
    let number = |seq: Option<&Seq>| seq.map_or(0, |seq| seq.0.cast_signed());
    [number(range.first()), number(range.last())]
}

/// Passes over the rows between those that are wanted; `false` from `each` is enough.
fn each_of(
    range: &[Seq],
    rows: &mut Rows<'_>,
    seq_column: usize,
    mut each: impl FnMut(Seq, &rusqlite::Row<'_>) -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    let mut wanted = range.iter().copied().peekable();
    while let Some(row) = rows.next()? {
        let seq = Seq(row.get::<_, i64>(seq_column)?.cast_unsigned());
        while wanted.next_if(|wanted| *wanted < seq).is_some() {}
        if wanted.next_if_eq(&seq).is_some() && !each(seq, row)? {
            break;
        }
    }
    Ok(())
}
