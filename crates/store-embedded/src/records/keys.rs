//! Table of idempotency keys.

use std::collections::BTreeMap;

use longshore_core::id::{JobId, Seq};
use longshore_core::time::Timestamp;
use longshore_engine::{KeyEntry, PruneTarget, ScopedIdempotencyKey};
use rusqlite::{Connection, Row, params};

use super::RecordsError;
use longshore_codec::key::{decode, encode};
use longshore_codec::{self as codec, DecodeError, Encoder};

/// The checksum covers the whole row. A key with another job or time would create a duplicate job
/// or lose one.
fn checksum(path: &[u8], entry: &KeyEntry) -> u32 {
    let mut writer = Encoder { bytes: path.to_vec() };
    writer.fixed(entry.id.as_bytes());
    writer.zigzag(entry.at.as_millis());
    writer.option(entry.prune_at, |writer, at| writer.zigzag(at.as_millis()));
    codec::checksum(entry.seq.0, &writer.bytes)
}

const COLUMNS: &str = "seq, id, at, prune_at, checksum, path";

fn read(row: &Row<'_>) -> Result<KeyEntry, RecordsError> {
    let seq = Seq(row.get::<_, i64>(0)?.cast_unsigned());
    let damaged = |_| RecordsError::CorruptJob(seq);
    let entry = KeyEntry {
        seq,
        id: JobId::from_bytes(row.get(1).map_err(damaged)?),
        at: Timestamp::from_millis(row.get(2).map_err(damaged)?),
        prune_at: row.get::<_, Option<i64>>(3).map_err(damaged)?.map(Timestamp::from_millis),
    };
    let (sum, path): (u32, Vec<u8>) = (row.get(4).map_err(damaged)?, row.get(5).map_err(damaged)?);
    if checksum(&path, &entry) == sum { Ok(entry) } else { Err(RecordsError::CorruptJob(seq)) }
}

pub(super) fn get(connection: &Connection, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, RecordsError> {
    let mut select = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM idempotency_key WHERE path = ?1"))?;
    let mut rows = select.query([encode(key)])?;
    rows.next()?.map(read).transpose()
}

/// Returns all keys by job number, and the number of corrupt rows.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<(BTreeMap<Seq, Vec<u8>>, usize)> {
    let mut select = connection.prepare(&format!("SELECT {COLUMNS} FROM idempotency_key"))?;
    let (mut rows, mut keys, mut damaged) = (select.query([])?, BTreeMap::new(), 0);
    while let Some(row) = rows.next()? {
        match (read(row), row.get(5)) {
            (Ok(entry), Ok(path)) => drop(keys.insert(entry.seq, path)),
            _ => damaged += 1,
        }
    }
    Ok((keys, damaged))
}

/// Returns keys after `after`, ordered by their encoding.
pub(crate) fn after(
    connection: &Connection,
    after: &[u8],
    limit: usize,
) -> Result<Vec<(ScopedIdempotencyKey, KeyEntry)>, RecordsError> {
    let text = format!("SELECT {COLUMNS} FROM idempotency_key WHERE path > ?1 ORDER BY path LIMIT ?2");
    let mut select = connection.prepare_cached(&text)?;
    let mut rows = select.query(params![after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let entry = read(row)?;
        let path =
            decode(row.get_ref(5)?.as_blob().unwrap_or_default()).map_err(|_| RecordsError::CorruptJob(entry.seq))?;
        found.push((path, entry));
    }
    Ok(found)
}

pub(super) fn put(connection: &Connection, key: &ScopedIdempotencyKey, entry: &KeyEntry) -> Result<(), RecordsError> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_key(path, seq, id, at, prune_at, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let (path, prune_at) = (encode(key), entry.prune_at.map(Timestamp::as_millis));
    let sum = checksum(&path, entry);
    insert.execute(params![
        path,
        entry.seq.0.cast_signed(),
        entry.id.as_bytes(),
        entry.at.as_millis(),
        prune_at,
        sum
    ])?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, key: &ScopedIdempotencyKey) -> Result<(), RecordsError> {
    connection.prepare_cached("DELETE FROM idempotency_key WHERE path = ?1")?.execute([encode(key)])?;
    Ok(())
}

pub(crate) fn next_prune(connection: &Connection) -> Result<Option<(Timestamp, PruneTarget)>, RecordsError> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM idempotency_key WHERE prune_at IS NOT NULL ORDER BY prune_at, path LIMIT 1"
    ))?;
    let mut rows = select.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let entry = read(row)?;
    let path = decode(&row.get::<_, Vec<u8>>(5)?).map_err(|DecodeError| RecordsError::CorruptJob(entry.seq))?;
    Ok(entry.prune_at.map(|at| (at, PruneTarget::Key(path))))
}
