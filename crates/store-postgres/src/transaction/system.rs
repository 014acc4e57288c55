//! System records in a transaction: locked before the rules run, checked, and written with the
//! jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_engine::{Submitted, SystemKind};
use longshore_store::{Expected, SystemRefusal, SystemWrite, SystemWritten};

use super::Transaction;
use crate::connection::{StatementCall, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::request::TxRequest;
use crate::statements::Statements;

/// Kind and key of a record.
pub(crate) type SystemPath = (SystemKind, Vec<u8>);

/// Records that requests of this transaction name, locked, and the revision for new values.
#[derive(Debug, Default)]
pub(crate) struct LockedSystem {
    revisions: HashMap<SystemPath, u64>,
    next_revision: u64,
}

/// What one run of the rules writes.
#[derive(Debug, Default)]
pub(crate) struct SystemChanges {
    /// Checked records; `None`: deleted.
    checked: BTreeMap<SystemPath, Option<Vec<u8>>>,
    /// Records that the engine writes without reading them.
    unchecked: BTreeMap<SystemPath, Vec<u8>>,
    announced: BTreeSet<SystemKind>,
}

impl SystemChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.checked.is_empty() && self.unchecked.is_empty()
    }

    pub(crate) fn put(&mut self, kind: SystemKind, key: Vec<u8>, value: Vec<u8>) {
        self.unchecked.insert((kind, key), value);
    }

    /// Returns the index of the first change whose record is not as expected.
    pub(crate) fn find_conflict(&self, write: &SystemWrite, locked: &LockedSystem) -> Option<usize> {
        write.changes.iter().position(|change| {
            let path = (change.kind, change.key.clone());
            match self.checked.get(&path) {
                // The caller cannot know the revision of a record that this transaction writes.
                Some(Some(_)) => change.expected != Expected::Any,
                Some(None) => !change.expected.is_met_by(None),
                None => !change.expected.is_met_by(locked.revisions.get(&path).copied()),
            }
        })
    }

    /// Adds the changes of a write without a conflict.
    pub(crate) fn add(
        &mut self,
        write: &SystemWrite,
        submitted: Vec<Submitted>,
        locked: &LockedSystem,
    ) -> SystemWritten {
        for change in &write.changes {
            let value = change.stored_value(submitted.iter().map(|job| job.id));
            self.checked.insert((change.kind, change.key.clone()), value);
        }
        self.announced.extend(write.announced_kinds());
        SystemWritten { revision: locked.next_revision, submitted }
    }

    /// Whether the catalog of every node has to be read again.
    pub(crate) fn changes_catalog(&self) -> bool {
        self.announced.contains(&SystemKind::Webhook)
    }

    /// Adds the statements that write the changes.
    pub(crate) fn write<'o>(
        &self,
        locked: &LockedSystem,
        statements: &mut Vec<StatementCall<'o>>,
        sql: &'o Statements,
    ) {
        let (mut inserted, mut updated, mut removed, mut put) =
            (Columns::default(), Columns::default(), Columns::default(), Columns::default());
        for (path, value) in &self.checked {
            match (value, locked.revisions.contains_key(path)) {
                (Some(value), false) => inserted.push(path, value),
                (Some(value), true) => updated.push(path, value),
                (None, true) => removed.push(path, &[]),
                (None, false) => {}
            }
        }
        self.unchecked.iter().for_each(|(path, value)| put.push(path, value));
        let revision = locked.next_revision.cast_signed();
        if !inserted.kinds.is_empty() {
            let Columns { kinds, keys, values } = inserted;
            statements.push(stmt!(sql.insert_system_records, kinds, keys, values, revision));
        }
        if !updated.kinds.is_empty() {
            let Columns { kinds, keys, values } = updated;
            statements.push(stmt!(sql.update_system_records, kinds, keys, values, revision));
        }
        if !removed.kinds.is_empty() {
            statements.push(stmt!(sql.remove_system_records, removed.kinds, removed.keys));
        }
        if !put.kinds.is_empty() {
            let Columns { kinds, keys, values } = put;
            statements.push(stmt!(sql.put_system_records, kinds, keys, values));
        }
        if !self.announced.is_empty() {
            let kinds: Vec<i16> = self.announced.iter().map(|kind| i16::from(kind.number())).collect();
            statements.push(stmt!(sql.announce_system_records, kinds));
        }
        if self.changes_catalog() {
            statements.push(stmt!(sql.bump_catalog_version));
        }
    }
}

/// Records column by column.
#[derive(Default)]
struct Columns {
    kinds: Vec<i16>,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
}

impl Columns {
    fn push(&mut self, (kind, key): &SystemPath, value: &[u8]) {
        self.kinds.push(i16::from(kind.number()));
        self.keys.push(key.clone());
        self.values.push(value.to_vec());
    }
}

impl Transaction<'_> {
    /// Locks the records that the requests name, in order of their keys.
    pub(super) async fn lock_system(&mut self, requests: &[TxRequest]) -> Result<(), TxError> {
        let mut paths = BTreeSet::new();
        let mut has_writes = false;
        for request in requests {
            if let TxRequest::System(write, _) = request {
                has_writes = true;
                paths.extend(write.changes.iter().map(|change| (change.kind, change.key.clone())));
            }
        }
        if !has_writes {
            return Ok(());
        }
        let mut columns = Columns::default();
        paths.iter().for_each(|path| columns.push(path, &[]));
        let sql = &self.node.sql;
        let calls = [stmt!(sql.next_system_revision), stmt!(sql.lock_system_records, columns.kinds, columns.keys)];
        let rows = self.connection.pipeline(&calls, TxBoundary::Inside).await?;
        let damaged = || TxError::Damaged("table system_records".to_owned());
        let [revision, locked] = rows.as_slice() else { return Err(damaged()) };
        let revision: i64 = get(revision.first().ok_or_else(damaged)?, 0)?;
        self.system.next_revision = revision.cast_unsigned();
        for row in locked {
            let kind = u8::try_from(get::<i16>(row, 0)?).ok().and_then(SystemKind::from_number).ok_or_else(damaged)?;
            self.system.revisions.insert((kind, get(row, 1)?), get::<i64>(row, 2)?.cast_unsigned());
        }
        Ok(())
    }
}

/// Returns the refusal of a write whose record has changed.
pub(super) fn conflict(index: usize) -> Result<SystemWritten, SystemRefusal> {
    Err(SystemRefusal::Conflict { index })
}
