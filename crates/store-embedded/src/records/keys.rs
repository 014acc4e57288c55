//! Idempotency keys on disk.

use longshore_core::engine::{KeyEntry, KeyPath, Prune};
use longshore_core::id::{JobId, JobType, QueueName, Seq};
use longshore_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::Trouble;
use crate::codec::{Damaged, Reader, Writer};

pub(crate) fn encode(key: &KeyPath) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.option(key.queue.as_ref(), |writer, queue| writer.text(queue.as_str().as_bytes()));
    writer.option(key.job_type.as_ref(), |writer, job_type| writer.text(job_type.as_str().as_bytes()));
    writer.text(key.key.as_bytes());
    writer.bytes
}

fn decode(bytes: &[u8]) -> Result<KeyPath, Damaged> {
    let mut reader = Reader::new(bytes);
    let queue = reader.option(|reader| QueueName::new(reader.text()?).map_err(|_| Damaged))?;
    let job_type = reader.option(|reader| JobType::new(reader.text()?).map_err(|_| Damaged))?;
    let key = reader.text()?.into();
    reader.end()?;
    Ok(KeyPath { queue, job_type, key })
}

pub(super) fn get(connection: &Connection, key: &KeyPath) -> Result<Option<KeyEntry>, Trouble> {
    let mut select = connection.prepare_cached("SELECT seq, id, at, purge_at FROM key WHERE path = ?1")?;
    let entry = select.query_row([encode(key)], |row| {
        Ok(KeyEntry {
            seq: Seq(row.get::<_, i64>(0)?.cast_unsigned()),
            id: JobId::from_bytes(row.get(1)?),
            at: Timestamp::from_millis(row.get(2)?),
            purge_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
        })
    });
    Ok(entry.optional()?)
}

pub(super) fn put(connection: &Connection, key: &KeyPath, entry: &KeyEntry) -> Result<(), Trouble> {
    let mut insert = connection
        .prepare_cached("INSERT OR REPLACE INTO key(path, seq, id, at, purge_at) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let purge_at = entry.purge_at.map(Timestamp::as_millis);
    insert.execute(params![
        encode(key),
        entry.seq.0.cast_signed(),
        entry.id.as_bytes(),
        entry.at.as_millis(),
        purge_at
    ])?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, key: &KeyPath) -> Result<(), Trouble> {
    connection.prepare_cached("DELETE FROM key WHERE path = ?1")?.execute([encode(key)])?;
    Ok(())
}

pub(super) fn next_purge(connection: &Connection) -> Result<Option<(Timestamp, Prune)>, Trouble> {
    let mut select = connection
        .prepare_cached("SELECT purge_at, path FROM key WHERE purge_at IS NOT NULL ORDER BY purge_at, path LIMIT 1")?;
    let found = select.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))).optional()?;
    let Some((at, path)) = found else { return Ok(None) };
    let path = decode(&path).map_err(|Damaged| Trouble::Damaged(Seq(0)))?;
    Ok(Some((Timestamp::from_millis(at), Prune::Key(path))))
}
