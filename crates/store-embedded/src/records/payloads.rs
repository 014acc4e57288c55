//! Payloads: written at submission, read at claim, some cached in between.

use std::collections::VecDeque;

use bytes::Bytes;
use longshore_core::id::Seq;
use longshore_core::submit::Payload;
use rusqlite::{Connection, Row};

use super::multi_row::INSERT_PAYLOADS;
use super::{RecordsError, SeqMap, SqliteRecords};
use longshore_codec as codec;

/// Longer payloads get their own statement, because SQLite copies all values of a statement first.
const SHARED_PAYLOAD_BYTES_MAX: usize = 4 << 10;

/// Payloads of recent submissions that stay in memory: most jobs are claimed soon.
#[derive(Debug)]
pub(super) struct PayloadCache {
    pub(super) payloads: SeqMap<Payload>,
    order: VecDeque<(Seq, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl PayloadCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { payloads: SeqMap::default(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    pub(super) fn insert(&mut self, seq: Seq, payload: Payload) {
        let bytes = payload.bytes().len() + 64;
        self.bytes += bytes;
        self.payloads.insert(seq, payload);
        self.order.push_back((seq, bytes));
        while self.bytes > self.bytes_max
            && let Some((oldest, bytes)) = self.order.pop_front()
        {
            self.bytes -= bytes;
            self.payloads.remove(&oldest);
        }
    }
}

impl SqliteRecords {
    pub(crate) fn payload(&mut self, seq: Seq) -> Result<Option<Payload>, RecordsError> {
        if let Some(payload) = self.prefetcher.take_payload(seq) {
            return Ok(Some(payload));
        }
        match self.payloads.payloads.get(&seq) {
            Some(payload) => Ok(Some(payload.clone())),
            None => read_payload(&self.connection, seq),
        }
    }

    pub(super) fn write_payloads(&mut self) -> Result<(), RecordsError> {
        let rows = std::mem::take(&mut self.new_payloads);
        let small = |(_, payload): &(Seq, Payload)| payload.bytes().len() <= SHARED_PAYLOAD_BYTES_MAX;
        for rows in rows.chunk_by(|one, next| small(one) && small(next)) {
            INSERT_PAYLOADS.write(&self.connection, rows, |statement, first, (seq, payload)| {
                let kind = match payload {
                    Payload::Json(_) => 0,
                    Payload::Binary(_) => 1,
                };
                let bytes = payload.bytes();
                statement.raw_bind_parameter(first, seq.0.cast_signed())?;
                statement.raw_bind_parameter(first + 1, kind)?;
                statement.raw_bind_parameter(first + 2, codec::checksum(checksum_seed(*seq, kind), bytes))?;
                statement.raw_bind_parameter(first + 3, bytes.as_ref())
            })?;
        }
        Ok(())
    }
}

/// Checksum of a payload, bound to its job and its kind.
fn checksum_seed(seq: Seq, kind: u8) -> u64 {
    seq.0 | u64::from(kind) << 63
}

pub(crate) fn read_payload(connection: &Connection, seq: Seq) -> Result<Option<Payload>, RecordsError> {
    let mut select = connection.prepare_cached("SELECT kind, checksum, bytes FROM payload WHERE seq = ?1")?;
    let mut rows = select.query([seq.0.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    payload_in(row, seq).map(Some)
}

/// Decodes a row of kind, checksum and bytes.
pub(super) fn payload_in(row: &Row<'_>, seq: Seq) -> Result<Payload, RecordsError> {
    let kind: u8 = row.get(0).map_err(|_| RecordsError::CorruptJob(seq))?;
    let bytes = row.get_ref(2)?.as_blob().map_err(|_| RecordsError::CorruptJob(seq))?;
    let checksum: u32 = row.get(1).map_err(|_| RecordsError::CorruptJob(seq))?;
    if codec::checksum(checksum_seed(seq, kind), bytes) != checksum {
        return Err(RecordsError::CorruptJob(seq));
    }
    let bytes = Bytes::copy_from_slice(bytes);
    match kind {
        0 => Ok(Payload::Json(bytes)),
        1 => Ok(Payload::Binary(bytes)),
        _ => Err(RecordsError::CorruptJob(seq)),
    }
}
