//! Records and payloads, many at a time.

use std::sync::mpsc::{SendError, Sender};
use std::sync::{Mutex, PoisonError};

use longshore_core::id::Seq;
use rusqlite::{Connection, Rows};

use super::PrefetchRequest;
use super::buffer::RecordBlock;
use crate::records::payloads::payload_in;
use longshore_codec as codec;

/// Rows that may be passed over rather than looking the next one up.
const GAP_MAX: u64 = 16;

/// What is to be read of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrefetchKey {
    pub seq: Seq,
    pub record: bool,
    pub payload: bool,
}

/// Answers helping by helping. An error means that nobody listens any more.
pub(super) fn answer(
    connection: &Connection,
    mut question: PrefetchRequest,
    answers: &Sender<RecordBlock>,
    reading: &Mutex<()>,
) -> Result<(), SendError<RecordBlock>> {
    for wanted in &question.wanted {
        let memory = question.spare.pop().unwrap_or_default();
        let now = reading.lock().unwrap_or_else(PoisonError::into_inner);
        let helping = read(connection, wanted, memory, &mut question.bytes_max).unwrap_or_default();
        drop(now);
        answers.send(helping)?;
    }
    Ok(())
}

/// Reads range by range. Each range is of one moment, not all of them together: a reader that stays long keeps the log from starting again. What is not there,
/// is damaged, or for which there is no room, is left out. `wanted` rises, `memory` is lent.
pub(super) fn read(
    connection: &Connection,
    wanted: &[PrefetchKey],
    memory: Vec<u8>,
    bytes_max: &mut usize,
) -> rusqlite::Result<RecordBlock> {
    let mut helping = RecordBlock::of(wanted.iter().map(|wanted| wanted.seq), memory);
    let side_by_side = |a: &Seq, b: &Seq| b.0.saturating_sub(a.0) <= GAP_MAX;
    let records: Vec<Seq> = wanted.iter().filter(|wanted| wanted.record).map(|wanted| wanted.seq).collect();
    for range in records.chunk_by(side_by_side) {
        read_records(connection, range, &mut helping, bytes_max)?;
    }
    let payloads: Vec<Seq> = wanted.iter().filter(|wanted| wanted.payload).map(|wanted| wanted.seq).collect();
    for range in payloads.chunk_by(side_by_side) {
        read_payloads(connection, range, &mut helping, bytes_max)?;
    }
    Ok(helping)
}

fn read_records(
    connection: &Connection,
    range: &[Seq],
    helping: &mut RecordBlock,
    bytes_max: &mut usize,
) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached("SELECT record, seq FROM live WHERE seq BETWEEN ?1 AND ?2")?;
    let mut rows = select.query(ends(range))?;
    each_of(range, &mut rows, 1, |seq, row| {
        let sealed = row.get_ref(0)?.as_blob().ok();
        let Some(record) = sealed.and_then(|sealed| codec::verify_checksum(seq.0, sealed).ok()) else {
            return Ok(true);
        };
        let record = codec::trim_padding(record);
        let Some(room) = bytes_max.checked_sub(record.len()) else { return Ok(false) };
        *bytes_max = room;
        helping.put_record(seq, record);
        Ok(true)
    })
}

fn read_payloads(
    connection: &Connection,
    range: &[Seq],
    helping: &mut RecordBlock,
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
            helping.put_payload(seq, payload);
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
