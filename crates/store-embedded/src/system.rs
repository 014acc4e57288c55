//! Table of the system records: read, checked and written in the caller's transaction.

use std::sync::Arc;

use longshore_codec::{append_checksum, verify_checksum};
use longshore_engine::{Submitted, Subscriptions, SystemKind};
use longshore_store::{StoreError, SystemQuery, SystemRecord, SystemWrite};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{corrupt, sql};

/// Binds a record to its kind, key and revision: the checksum fails if records are swapped.
fn checksum_seed(kind: i64, key: &[u8], revision: i64) -> u64 {
    let mut seed: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in kind.to_le_bytes().iter().chain(&revision.to_le_bytes()).chain(key) {
        seed = (seed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    seed
}

fn corrupt_record(kind: i64) -> StoreError {
    corrupt(&format!("a system record of kind {kind}"))
}

fn number(kind: SystemKind) -> i64 {
    i64::from(kind.number())
}

/// Reads a range of records, in order of their keys.
pub(crate) fn read(connection: &Connection, query: &SystemQuery) -> Result<Vec<SystemRecord>, StoreError> {
    let order = if query.descending { "DESC" } else { "ASC" };
    let text = format!(
        "SELECT key, revision, record FROM system_record WHERE kind = ?1 AND key >= ?2 AND (?3 IS NULL OR key < ?3) \
         ORDER BY key {order} LIMIT ?4"
    );
    let mut select = connection.prepare_cached(&text).map_err(sql)?;
    let (kind, limit) = (number(query.kind), i64::try_from(query.limit).unwrap_or(i64::MAX));
    let mut rows = select.query(params![kind, query.start, query.end, limit]).map_err(sql)?;
    let mut records: Vec<SystemRecord> = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let (key, revision, record): (Vec<u8>, i64, Vec<u8>) =
            (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?, row.get(2).map_err(sql)?);
        let value = verify_checksum(checksum_seed(kind, &key, revision), &record).map_err(|_| corrupt_record(kind))?;
        let is_in_order = records.last().is_none_or(|last| (last.key < key) != query.descending && last.key != key);
        if !is_in_order {
            return Err(corrupt("rows of table \"system_record\" are out of order"));
        }
        records.push(SystemRecord { value: value.to_vec(), revision: revision.cast_unsigned(), key });
    }
    Ok(records)
}

/// Returns the index of the first change whose record is not as expected.
pub(crate) fn find_conflict(connection: &Connection, write: &SystemWrite) -> rusqlite::Result<Option<usize>> {
    let text = "SELECT revision FROM system_record WHERE kind = ?1 AND key = ?2";
    let mut select = connection.prepare_cached(text)?;
    for (index, change) in write.changes.iter().enumerate() {
        let stored = select.query_row(params![number(change.kind), change.key], |row| row.get::<_, i64>(0));
        let revision = stored.optional()?.map(i64::cast_unsigned);
        if !change.expected.is_met_by(revision) {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Writes all changes. Precondition: there is no conflict.
pub(crate) fn write(
    connection: &Connection,
    write: &SystemWrite,
    revision: u64,
    submitted: &[Submitted],
) -> rusqlite::Result<()> {
    for change in &write.changes {
        match change.stored_value(submitted.iter().map(|job| job.id)) {
            Some(value) => put(connection, change.kind, &change.key, revision, value)?,
            None => {
                let text = "DELETE FROM system_record WHERE kind = ?1 AND key = ?2";
                connection.prepare_cached(text)?.execute(params![number(change.kind), change.key])?;
            }
        }
    }
    Ok(())
}

pub(crate) fn put(
    connection: &Connection,
    kind: SystemKind,
    key: &[u8],
    revision: u64,
    value: Vec<u8>,
) -> rusqlite::Result<()> {
    let (kind, revision) = (number(kind), revision.cast_signed());
    let record = append_checksum(checksum_seed(kind, key, revision), value);
    let text = "INSERT OR REPLACE INTO system_record(kind, key, revision, record) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(text)?.execute(params![kind, key, revision, record]).map(drop)
}

/// Reads what the endpoints of webhooks have subscribed to.
pub(crate) fn subscriptions(connection: &Connection) -> Result<Arc<Subscriptions>, StoreError> {
    let records = read(connection, &SystemQuery::all(SystemKind::Webhook, usize::MAX))?;
    let pairs = records.iter().map(|record| (record.key.as_slice(), record.value.as_slice()));
    let subscriptions = Subscriptions::of_records(pairs).map_err(|_| corrupt("the record of a webhook endpoint"))?;
    Ok(Arc::new(subscriptions))
}

/// Checks every record of every kind.
pub(crate) fn check_all(connection: &Connection) -> Result<(), StoreError> {
    let text = "SELECT DISTINCT kind FROM system_record";
    let kinds: rusqlite::Result<Vec<i64>> =
        connection.prepare(text).and_then(|mut select| select.query_map([], |row| row.get(0))?.collect());
    for number in kinds.map_err(sql)? {
        let kind = u8::try_from(number).ok().and_then(SystemKind::from_number);
        let kind = kind.ok_or_else(|| corrupt_record(number))?;
        read(connection, &SystemQuery::all(kind, usize::MAX))?;
    }
    Ok(())
}
