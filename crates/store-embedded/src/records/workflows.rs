//! Tables of workflows: records with counts, ranges of member numbers, member references.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use longshore_core::id::{Seq, WorkflowId};
use longshore_core::workflow::{MemberCountDelta, Workflow, WorkflowState};
use longshore_store::StoreError;
use longshore_store::WorkflowQuery;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::RecordsError;
use crate::error::sql;
use crate::key_order::KeyOrderCheck;
use longshore_codec as codec;

/// Workflow records that stay in memory between batches.
const CACHED_MAX: usize = 10_000;

/// Workflow records: changed in memory during a batch, written once at its end.
#[derive(Debug, Default)]
pub(crate) struct WorkflowCache {
    cached: HashMap<Seq, Cached>,
    changed: Vec<Seq>,
    /// New members as pairs of workflow and member.
    added_members: Vec<(Seq, Seq)>,
}

#[derive(Debug)]
struct Cached {
    workflow: Workflow,
    changed: bool,
    /// Last row of the members table.
    tail: Option<(u64, u64)>,
}

impl WorkflowCache {
    fn load(&mut self, connection: &Connection, number: Seq) -> Result<Option<&mut Cached>, RecordsError> {
        match self.cached.entry(number) {
            Entry::Occupied(cached) => Ok(Some(cached.into_mut())),
            Entry::Vacant(entry) => {
                let Some(workflow) = read(connection, number)? else { return Ok(None) };
                let tail = tail(connection, number)?;
                Ok(Some(entry.insert(Cached { workflow, changed: false, tail })))
            }
        }
    }

    pub(super) fn get(&mut self, connection: &Connection, number: Seq) -> Result<Option<&Workflow>, RecordsError> {
        Ok(self.load(connection, number)?.map(|cached| &cached.workflow))
    }

    /// Replaces the record except for its counts.
    pub(super) fn put(&mut self, connection: &Connection, workflow: &Workflow) -> Result<(), RecordsError> {
        let number = workflow.number;
        let stored = self.load(connection, number)?.map(|cached| (cached.workflow.tally, cached.tail));
        let (tally, tail) = stored.unwrap_or_default();
        let workflow = Workflow { tally, ..workflow.clone() };
        let previous = self.cached.insert(number, Cached { workflow, changed: true, tail });
        if previous.is_none_or(|cached| !cached.changed) {
            self.changed.push(number);
        }
        Ok(())
    }

    pub(super) fn tally(
        &mut self,
        connection: &Connection,
        number: Seq,
        change: &MemberCountDelta,
    ) -> Result<(), RecordsError> {
        let Some(cached) = self.load(connection, number)? else { return Ok(()) };
        cached.workflow.tally.add(change);
        if !std::mem::replace(&mut cached.changed, true) {
            self.changed.push(number);
        }
        Ok(())
    }

    pub(super) fn admit(&mut self, number: Seq, member: Seq) {
        self.added_members.push((number, member));
    }

    pub(super) fn remove(&mut self, connection: &Connection, number: Seq) -> Result<(), RecordsError> {
        self.flush(connection)?;
        self.cached.remove(&number);
        for table in [
            "DELETE FROM workflow WHERE number = ?1",
            "DELETE FROM member WHERE workflow = ?1",
            "DELETE FROM member_ref WHERE workflow = ?1",
        ] {
            connection.prepare_cached(table)?.execute([number.0.cast_signed()])?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, connection: &Connection) -> Result<(), RecordsError> {
        let mut added = std::mem::take(&mut self.added_members);
        // Members of one request have adjacent numbers, but not always in order.
        added.sort_unstable();
        for one in added.chunk_by(|a, b| a.0 == b.0) {
            let Some((number, _)) = one.first() else { continue };
            let Some(cached) = self.load(connection, *number)? else { continue };
            cached.tail = append(connection, *number, cached.tail, one.iter().map(|(_, member)| member.0))?;
        }
        for number in std::mem::take(&mut self.changed) {
            let Some(cached) = self.cached.get_mut(&number) else { continue };
            cached.changed = false;
            write(connection, &cached.workflow)?;
        }
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        if self.cached.len() > CACHED_MAX {
            self.cached.clear();
        }
    }
}

/// Appends members to the last row, or adds rows.
fn append(
    connection: &Connection,
    number: Seq,
    mut tail: Option<(u64, u64)>,
    members: impl Iterator<Item = u64>,
) -> rusqlite::Result<Option<(u64, u64)>> {
    let mut upsert = connection
        .prepare_cached("INSERT OR REPLACE INTO member(workflow, first, last, checksum) VALUES (?1, ?2, ?3, ?4)")?;
    let mut save = |(first, last): (u64, u64)| {
        let sum = span_checksum(number, first, last);
        upsert.execute(params![number.0.cast_signed(), first.cast_signed(), last.cast_signed(), sum]).map(drop)
    };
    for member in members {
        match tail {
            Some((first, last)) if member == last + 1 => tail = Some((first, member)),
            Some((_, last)) if member <= last => save((member, member))?,
            Some(full) => {
                save(full)?;
                tail = Some((member, member));
            }
            None => tail = Some((member, member)),
        }
    }
    tail.map_or(Ok(()), save)?;
    Ok(tail)
}

fn tail(connection: &Connection, number: Seq) -> Result<Option<(u64, u64)>, RecordsError> {
    let mut select = connection
        .prepare_cached("SELECT first, last, checksum FROM member WHERE workflow = ?1 ORDER BY first DESC LIMIT 1")?;
    let mut rows = select.query([number.0.cast_signed()])?;
    rows.next()?.map(|row| span(number, row)).transpose()
}

fn span(number: Seq, row: &Row<'_>) -> Result<(u64, u64), RecordsError> {
    let damaged = |_| RecordsError::CorruptWorkflow(number);
    let first = row.get::<_, i64>(0).map_err(damaged)?.cast_unsigned();
    let last = row.get::<_, i64>(1).map_err(damaged)?.cast_unsigned();
    let sum: u32 = row.get(2).map_err(damaged)?;
    if span_checksum(number, first, last) == sum {
        Ok((first, last))
    } else {
        Err(RecordsError::CorruptWorkflow(number))
    }
}

/// Checksum of a row. A wrong range would lose members of the workflow.
fn span_checksum(number: Seq, first: u64, last: u64) -> u32 {
    let mut writer = codec::Encoder::default();
    writer.varint(first);
    writer.varint(last);
    codec::checksum(number.0, &writer.bytes)
}

/// Returns the position in `WorkflowState::ALL`.
pub(crate) fn state_number(state: WorkflowState) -> i64 {
    state as i64
}

fn write(connection: &Connection, workflow: &Workflow) -> rusqlite::Result<()> {
    let mut upsert = connection.prepare_cached(
        "INSERT OR REPLACE INTO workflow(number, state, operation_active, record) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let (state, operation_active) = (state_number(workflow.state()), workflow.operation.is_some());
    upsert
        .execute(params![workflow.number.0.cast_signed(), state, operation_active, codec::workflow::encode(workflow)])
        .map(drop)
}

pub(crate) fn read(connection: &Connection, number: Seq) -> Result<Option<Workflow>, RecordsError> {
    // An id of another store decrypts to any number. SQLite integers are signed.
    let Ok(signed) = i64::try_from(number.0) else { return Ok(None) };
    let mut select = connection.prepare_cached("SELECT number, record FROM workflow WHERE number = ?1")?;
    let mut rows = select.query([signed])?;
    rows.next()?.map(decode).transpose()
}

fn decode(row: &Row<'_>) -> Result<Workflow, RecordsError> {
    let number = Seq(row.get::<_, i64>(0)?.cast_unsigned());
    let damaged = || RecordsError::CorruptWorkflow(number);
    let record = row.get_ref(1)?.as_blob().map_err(|_| damaged())?;
    codec::workflow::decode(number, record).map_err(|_| damaged())
}

/// Returns a page, newest first.
pub(crate) fn page(connection: &Connection, query: &WorkflowQuery) -> Result<Vec<Workflow>, RecordsError> {
    let statement = match query.state {
        None => "SELECT number, record FROM workflow WHERE ?1 IS NULL AND number < ?2 ORDER BY number DESC LIMIT ?3",
        Some(_) => "SELECT number, record FROM workflow WHERE state = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3",
    };
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before.0).unwrap_or(i64::MAX));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(statement)?;
    let mut rows = select.query(params![query.state.map(state_number), before, limit])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        page.push(decode(row)?);
    }
    Ok(page)
}

/// Returns the workflows with a running operation.
pub(crate) fn with_active_operation(connection: &Connection) -> Result<Vec<WorkflowId>, StoreError> {
    let mut select = connection
        .prepare("SELECT number, record FROM workflow WHERE operation_active <> 0 ORDER BY number")
        .map_err(sql)?;
    let (mut rows, mut found) = (select.query([]).map_err(sql)?, Vec::new());
    let mut order = KeyOrderCheck::through("workflow");
    while let Some(row) = rows.next().map_err(sql)? {
        let workflow = decode(row).map_err(|_| crate::error::corrupt("the record of a workflow"))?;
        order.next(workflow.number)?;
        found.push(workflow.id);
    }
    Ok(found)
}

/// Returns numbers of members after `after`, oldest first.
pub(crate) fn members(
    connection: &Connection,
    number: Seq,
    after: Seq,
    limit: usize,
) -> Result<Vec<Seq>, RecordsError> {
    // The row that contains `after` comes first.
    let mut select = connection.prepare_cached(
        "SELECT first, last, checksum FROM member WHERE workflow = ?1 AND first >= coalesce(\
         (SELECT max(first) FROM member WHERE workflow = ?1 AND first <= ?2), 0) ORDER BY first",
    )?;
    let after_number = i64::try_from(after.0).unwrap_or(i64::MAX);
    let mut rows = select.query(params![signed(number), after_number])?;
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        let (first, last) = span(number, row)?;
        let room = limit - members.len();
        members.extend((first.max(after.0.saturating_add(1))..=last).take(room).map(Seq));
        if members.len() >= limit {
            break;
        }
    }
    Ok(members)
}

/// Returns numbers of members before `before`, newest first.
pub(crate) fn members_before(
    connection: &Connection,
    number: Seq,
    before: Option<Seq>,
    limit: usize,
) -> Result<Vec<Seq>, RecordsError> {
    let before = before.map_or(i64::MAX.unsigned_abs(), |before| before.0.min(i64::MAX.unsigned_abs()));
    let mut select = connection.prepare_cached(
        "SELECT first, last, checksum FROM member WHERE workflow = ?1 AND first < ?2 ORDER BY first DESC",
    )?;
    let mut rows = select.query(params![signed(number), before.cast_signed()])?;
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        let (first, last) = span(number, row)?;
        let room = limit - members.len();
        members.extend((first..=last.min(before.saturating_sub(1))).rev().take(room).map(Seq));
        if members.len() >= limit {
            break;
        }
    }
    Ok(members)
}

/// An id of another store decrypts to any number, which has no row.
fn signed(number: Seq) -> i64 {
    i64::try_from(number.0).unwrap_or(-1)
}

pub(super) fn name(connection: &Connection, number: Seq, name: &str, member: Seq) -> rusqlite::Result<()> {
    let mut upsert =
        connection.prepare_cached("INSERT OR REPLACE INTO member_ref(workflow, name, seq) VALUES (?1, ?2, ?3)")?;
    upsert.execute(params![signed(number), name, member.0.cast_signed()]).map(drop)
}

pub(super) fn named(connection: &Connection, number: Seq, name: &str) -> rusqlite::Result<Option<Seq>> {
    let mut select = connection.prepare_cached("SELECT seq FROM member_ref WHERE workflow = ?1 AND name = ?2")?;
    let found = select.query_row(params![signed(number), name], |row| row.get::<_, i64>(0)).optional()?;
    Ok(found.map(|seq| Seq(seq.cast_unsigned())))
}

/// Deletes the reference of a deleted member.
pub(super) fn unname(connection: &Connection, number: Seq, name: &str, member: Seq) -> rusqlite::Result<()> {
    let mut delete =
        connection.prepare_cached("DELETE FROM member_ref WHERE workflow = ?1 AND name = ?2 AND seq = ?3")?;
    delete.execute(params![signed(number), name, member.0.cast_signed()]).map(drop)
}

/// Returns the references of members, in order.
pub(crate) fn names(connection: &Connection, number: Seq) -> Result<Vec<(String, Seq)>, RecordsError> {
    let mut select = connection.prepare_cached("SELECT name, seq FROM member_ref WHERE workflow = ?1 ORDER BY name")?;
    let found =
        select.query_map([signed(number)], |row| Ok((row.get(0)?, Seq(row.get::<_, i64>(1)?.cast_unsigned()))))?;
    found.map(|name| name.map_err(RecordsError::from)).collect()
}
