//! Range reads of records and payloads.

use std::sync::mpsc::{SendError, Sender};

use longshore_core::id::Seq;
use parking_lot::Mutex;
use rusqlite::{Connection, Rows};

use super::PrefetchRequest;
use super::buffer::RecordBlock;
use crate::records::payloads::payload_in;
use longshore_codec as codec;

/// Rows that a range read skips before a new lookup is cheaper.
const GAP_MAX: u64 = 16;

/// Parts of a job to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrefetchKey {
    pub seq: Seq,
    pub record: bool,
    pub payload: bool,
}

/// Answers a request block by block. An error means that the writer has dropped the receiver.
pub(super) fn serve(
    connection: &Connection,
    mut request: PrefetchRequest,
    blocks: &Sender<RecordBlock>,
    prefetch_lock: &Mutex<()>,
) -> Result<(), SendError<RecordBlock>> {
    for keys in &request.blocks {
        let memory = request.spare.pop().unwrap_or_default();
        let guard = prefetch_lock.lock();
        let block = read(connection, keys, memory, &mut request.bytes_max).unwrap_or_default();
        drop(guard);
        blocks.send(block)?;
    }
    Ok(())
}

/// Reads a block range by range.
///
/// Each range is a snapshot of its own, because a long snapshot keeps the WAL from restarting.
/// Missing and corrupt rows, and rows beyond `bytes_max`, are left out. `keys` ascend; `memory` is
/// reused.
pub(super) fn read(
    connection: &Connection,
    keys: &[PrefetchKey],
    memory: Vec<u8>,
    bytes_max: &mut usize,
) -> rusqlite::Result<RecordBlock> {
    let mut block = RecordBlock::of(keys.iter().map(|key| key.seq), memory);
    let is_near = |a: &Seq, b: &Seq| b.0.saturating_sub(a.0) <= GAP_MAX;
    let records: Vec<Seq> = keys.iter().filter(|key| key.record).map(|key| key.seq).collect();
    for range in records.chunk_by(is_near) {
        read_records(connection, range, &mut block, bytes_max)?;
    }
    let payloads: Vec<Seq> = keys.iter().filter(|key| key.payload).map(|key| key.seq).collect();
    for range in payloads.chunk_by(is_near) {
        read_payloads(connection, range, &mut block, bytes_max)?;
    }
    Ok(block)
}

fn read_records(
    connection: &Connection,
    range: &[Seq],
    block: &mut RecordBlock,
    bytes_max: &mut usize,
) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached("SELECT record, seq FROM live_jobs WHERE seq BETWEEN ?1 AND ?2")?;
    let mut rows = select.query(ends(range))?;
    for_each_in(range, &mut rows, 1, |seq, row| {
        let stored = row.get_ref(0)?.as_blob().ok();
        let Some(record) = stored.and_then(|stored| codec::verify_checksum(seq.0, stored).ok()) else {
            return Ok(true);
        };
        let record = codec::trim_padding(record);
        let Some(bytes_left) = bytes_max.checked_sub(record.len()) else { return Ok(false) };
        *bytes_max = bytes_left;
        block.put_record(seq, record);
        Ok(true)
    })
}

fn read_payloads(
    connection: &Connection,
    range: &[Seq],
    block: &mut RecordBlock,
    bytes_max: &mut usize,
) -> rusqlite::Result<()> {
    let statement = "SELECT kind, checksum, bytes, seq FROM payload WHERE seq BETWEEN ?1 AND ?2";
    let mut select = connection.prepare_cached(statement)?;
    let mut rows = select.query(ends(range))?;
    for_each_in(range, &mut rows, 3, |seq, row| {
        let bytes = row.get_ref(2)?.as_blob().map_or(0, <[u8]>::len);
        let Some(bytes_left) = bytes_max.checked_sub(bytes) else { return Ok(false) };
        if let Ok(payload) = payload_in(row, seq) {
            *bytes_max = bytes_left;
            block.put_payload(seq, payload);
        }
        Ok(true)
    })
}

fn ends(range: &[Seq]) -> [i64; 2] {
    let number = |seq: Option<&Seq>| seq.map_or(0, |seq| seq.0.cast_signed());
    [number(range.first()), number(range.last())]
}

/// Calls `visit` for the rows of `range` and skips the rows between them. `false` stops.
fn for_each_in(
    range: &[Seq],
    rows: &mut Rows<'_>,
    seq_column: usize,
    mut visit: impl FnMut(Seq, &rusqlite::Row<'_>) -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    let mut pending = range.iter().copied().peekable();
    while let Some(row) = rows.next()? {
        let seq = Seq(row.get::<_, i64>(seq_column)?.cast_unsigned());
        while pending.next_if(|next| *next < seq).is_some() {}
        if pending.next_if_eq(&seq).is_some() && !visit(seq, row)? {
            break;
        }
    }
    Ok(())
}
