//! Idempotency keys on disk.

use std::collections::BTreeMap;

use longshore_core::id::{JobId, Seq};
use longshore_core::time::Timestamp;
use longshore_engine::{KeyEntry, PruneTarget, ScopedIdempotencyKey};
use rusqlite::{Connection, Row, params};

use super::RecordsError;
use longshore_codec::codec::key::{decode, encode};
use longshore_codec::codec::{self, DecodeError, Writer};

/// The checksum covers the whole row: a key that stands for another job, or lapses at another time, would be a second job or none.
fn checksum(path: &[u8], entry: &KeyEntry) -> u32 {
    let mut writer = Writer { bytes: path.to_vec() };
    writer.fixed(entry.id.as_bytes());
    writer.zigzag(entry.at.as_millis());
    writer.option(entry.prune_at, |writer, at| writer.zigzag(at.as_millis()));
    codec::checksum(entry.seq.0, &writer.bytes)
}

const COLUMNS: &str = "seq, id, at, purge_at, checksum, path";

fn read(row: &Row<'_>) -> Result<KeyEntry, RecordsError> {
    let seq = Seq(row.get::<_, i64>(0)?.cast_unsigned());
    let damaged = |_| RecordsError::Damaged(seq);
    let entry = KeyEntry {
        seq,
        id: JobId::from_bytes(row.get(1).map_err(damaged)?),
        at: Timestamp::from_millis(row.get(2).map_err(damaged)?),
        prune_at: row.get::<_, Option<i64>>(3).map_err(damaged)?.map(Timestamp::from_millis),
    };
    let (sum, path): (u32, Vec<u8>) = (row.get(4).map_err(damaged)?, row.get(5).map_err(damaged)?);
    if checksum(&path, &entry) == sum { Ok(entry) } else { Err(RecordsError::Damaged(seq)) }
}

pub(super) fn get(connection: &Connection, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, RecordsError> {
    let mut select = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM key WHERE path = ?1"))?;
    let mut rows = select.query([encode(key)])?;
    rows.next()?.map(read).transpose()
}

/// All keys by the numbers of their jobs, and how many of them are damaged.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<(BTreeMap<Seq, Vec<u8>>, usize)> {
    let mut select = connection.prepare(&format!("SELECT {COLUMNS} FROM key"))?;
    let (mut rows, mut keys, mut damaged) = (select.query([])?, BTreeMap::new(), 0);
    while let Some(row) = rows.next()? {
        match (read(row), row.get(5)) {
            (Ok(entry), Ok(path)) => drop(keys.insert(entry.seq, path)),
            _ => damaged += 1,
        }
    }
    Ok((keys, damaged))
}

/// Keys behind this one, in the order of their bytes.
pub(crate) fn behind(
    connection: &Connection,
    after: &[u8],
    limit: usize,
) -> Result<Vec<(ScopedIdempotencyKey, KeyEntry)>, RecordsError> {
    let text = format!("SELECT {COLUMNS} FROM key WHERE path > ?1 ORDER BY path LIMIT ?2");
    let mut select = connection.prepare_cached(&text)?;
    let mut rows = select.query(params![after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let entry = read(row)?;
        let path =
            decode(row.get_ref(5)?.as_blob().unwrap_or_default()).map_err(|_| RecordsError::Damaged(entry.seq))?;
        found.push((path, entry));
    }
    Ok(found)
}

pub(super) fn put(connection: &Connection, key: &ScopedIdempotencyKey, entry: &KeyEntry) -> Result<(), RecordsError> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO key(path, seq, id, at, purge_at, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let (path, purge_at) = (encode(key), entry.prune_at.map(Timestamp::as_millis));
    let sum = checksum(&path, entry);
    insert.execute(params![
        path,
        entry.seq.0.cast_signed(),
        entry.id.as_bytes(),
        entry.at.as_millis(),
        purge_at,
        sum
    ])?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, key: &ScopedIdempotencyKey) -> Result<(), RecordsError> {
    connection.prepare_cached("DELETE FROM key WHERE path = ?1")?.execute([encode(key)])?;
    Ok(())
}

pub(crate) fn next_purge(connection: &Connection) -> Result<Option<(Timestamp, PruneTarget)>, RecordsError> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM key WHERE purge_at IS NOT NULL ORDER BY purge_at, path LIMIT 1"
    ))?;
    let mut rows = select.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let entry = read(row)?;
    let path = decode(&row.get::<_, Vec<u8>>(5)?).map_err(|DecodeError| RecordsError::Damaged(entry.seq))?;
    Ok(entry.prune_at.map(|at| (at, PruneTarget::Key(path))))
}
