//! Rows to be written to the table `jobs`.

use std::collections::HashMap;

use longshore_core::id::Seq;
use tokio_postgres::types::{ToSql, Type};

use crate::connection::{Connection, SqlValue, StatementCall, stmt};
use crate::error::TxError;
use crate::node_cache::ReadyPosition;
use crate::row::{IndexColumns, JobRow, Origin};
use crate::statements::Statements;

/// Rows of the table `jobs`, column by column.
#[derive(Default)]
pub(crate) struct JobColumns {
    pub(crate) seq: Vec<i64>,
    ready_position: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    timer_kind: Vec<Option<i16>>,
    type_hash: Vec<i64>,
    lease_version: Vec<i64>,
    enqueued_at: Vec<Option<i64>>,
    ended_at: Vec<Option<i64>>,
    prune_at: Vec<Option<i64>>,
    queue: Vec<i32>,
    state: Vec<i16>,
    effective_priority: Vec<i16>,
    priority: Vec<i16>,
    archivable: Vec<bool>,
    standalone: Vec<bool>,
    record: Vec<Vec<u8>>,
    propagation_cursor: Vec<Option<i64>>,
    expected_state: Vec<i16>,
    expected_version: Vec<i64>,
}

impl JobColumns {
    pub(crate) fn push(
        &mut self,
        key: (Seq, i32),
        columns: &IndexColumns,
        propagation_cursor: Option<i64>,
        record: Vec<u8>,
        read: Option<&JobRow>,
    ) {
        let (seq, queue) = key;
        self.seq.push(seq.0.cast_signed());
        self.ready_position.push(columns.ready_position);
        self.due_at.push(columns.due.map(|(at, _)| at));
        self.timer_kind.push(columns.due.map(|(_, kind)| kind));
        self.type_hash.push(columns.type_hash);
        self.lease_version.push(columns.lease_version);
        self.enqueued_at.push(columns.enqueued_at);
        self.ended_at.push(columns.ended_at);
        self.prune_at.push(columns.prune_at);
        self.queue.push(queue);
        self.state.push(columns.state);
        self.effective_priority.push(columns.effective_priority);
        self.priority.push(columns.priority);
        self.archivable.push(columns.archivable);
        self.standalone.push(columns.standalone);
        self.record.push(record);
        self.propagation_cursor.push(propagation_cursor);
        if let Some(row) = read {
            self.expected_state.push(row.state);
            self.expected_version.push(row.lease_version);
        }
    }

    /// Values of all columns.
    fn into_values(self) -> Vec<SqlValue> {
        vec![
            Box::new(self.seq),
            Box::new(self.ready_position),
            Box::new(self.due_at),
            Box::new(self.type_hash),
            Box::new(self.lease_version),
            Box::new(self.enqueued_at),
            Box::new(self.ended_at),
            Box::new(self.prune_at),
            Box::new(self.queue),
            Box::new(self.state),
            Box::new(self.effective_priority),
            Box::new(self.priority),
            Box::new(self.timer_kind),
            Box::new(self.archivable),
            Box::new(self.standalone),
            Box::new(self.record),
            Box::new(self.propagation_cursor),
        ]
    }

    /// Values of new jobs, without the columns that are the same for all of them. Returns `None`
    /// if a job is not a new standalone one.
    pub(crate) fn into_new_job_values(self) -> Option<[SqlValue; 10]> {
        fn none(column: &[Option<i64>]) -> bool {
            column.iter().all(Option::is_none)
        }
        let never_ran = none(&self.enqueued_at) && self.lease_version.iter().all(|version| *version == 0);
        let alive = none(&self.ended_at) && none(&self.prune_at) && !self.archivable.contains(&true);
        if !(never_ran && alive && none(&self.propagation_cursor) && !self.standalone.contains(&false)) {
            return None;
        }
        Some([
            Box::new(self.seq),
            Box::new(self.ready_position),
            Box::new(self.due_at),
            Box::new(self.type_hash),
            Box::new(self.queue),
            Box::new(self.state),
            Box::new(self.effective_priority),
            Box::new(self.priority),
            Box::new(self.timer_kind),
            Box::new(self.record),
        ])
    }

    pub(crate) fn insert<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            statements.push(StatementCall { sql: &sql.insert_jobs, values: self.into_values() });
        }
    }

    /// Values of `mark_claimed`.
    pub(crate) fn into_claimed_values(self) -> [SqlValue; 6] {
        let Self { seq, due_at, timer_kind, lease_version, record, expected_version, .. } = self;
        [
            Box::new(seq),
            Box::new(due_at),
            Box::new(timer_kind),
            Box::new(lease_version),
            Box::new(record),
            Box::new(expected_version),
        ]
    }

    /// Values of `mark_finished`.
    pub(crate) fn into_finished_values(self) -> [SqlValue; 7] {
        let Self { seq, state, ended_at, prune_at, archivable, record, expected_version, .. } = self;
        [
            Box::new(seq),
            Box::new(state),
            Box::new(ended_at),
            Box::new(prune_at),
            Box::new(archivable),
            Box::new(record),
            Box::new(expected_version),
        ]
    }

    /// Values of `mark_heartbeat`.
    pub(crate) fn into_heartbeat_values(self) -> [SqlValue; 3] {
        [Box::new(self.seq), Box::new(self.record), Box::new(self.expected_version)]
    }

    /// Running jobs as rows, for the node cache.
    pub(crate) fn running_rows(&self) -> Vec<(Seq, JobRow)> {
        let row = |index: usize| {
            let due = (self.due_at.get(index)?, self.timer_kind.get(index)?);
            let row = JobRow {
                origin: Origin::Jobs,
                state: *self.state.get(index)?,
                lease_version: *self.lease_version.get(index)?,
                ready_position: *self.ready_position.get(index)?,
                due: due.0.map(|at| (at, due.1.unwrap_or(0))),
                record: self.record.get(index)?.clone(),
                propagation_cursor: *self.propagation_cursor.get(index)?,
                payload: None,
                payload_bytes: None,
            };
            Some((Seq(self.seq.get(index)?.cast_unsigned()), row))
        };
        (0..self.seq.len()).filter_map(row).collect()
    }

    /// First ready position of these rows, per queue.
    pub(crate) fn first_positions(&self) -> Vec<(i32, ReadyPosition)> {
        let mut first: HashMap<i32, ReadyPosition> = HashMap::new();
        for ((queue, effective_priority), position) in
            self.queue.iter().zip(&self.effective_priority).zip(&self.ready_position)
        {
            if let Some(position) = position {
                let position = (*effective_priority, *position);
                first.entry(*queue).and_modify(|first| *first = (*first).min(position)).or_insert(position);
            }
        }
        first.into_iter().collect()
    }

    /// Returns the rows in this order. `None`: a row is missing.
    pub(crate) fn in_order(mut self, order: &[Seq]) -> Option<Self> {
        let indexes: HashMap<i64, usize> = self.seq.iter().enumerate().map(|(index, seq)| (*seq, index)).collect();
        let indexes: Vec<usize> =
            order.iter().map(|seq| indexes.get(&seq.0.cast_signed()).copied()).collect::<Option<_>>()?;
        fn pick<T: Clone>(column: &mut Vec<T>, indexes: &[usize]) -> Option<()> {
            *column = indexes.iter().map(|index| column.get(*index).cloned()).collect::<Option<_>>()?;
            Some(())
        }
        pick(&mut self.seq, &indexes)?;
        pick(&mut self.ready_position, &indexes)?;
        pick(&mut self.due_at, &indexes)?;
        pick(&mut self.timer_kind, &indexes)?;
        pick(&mut self.lease_version, &indexes)?;
        pick(&mut self.state, &indexes)?;
        pick(&mut self.record, &indexes)?;
        pick(&mut self.propagation_cursor, &indexes)?;
        pick(&mut self.expected_version, &indexes)?;
        Some(self)
    }

    pub(crate) fn mark_claimed<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let values = self.into_claimed_values().into();
            statements.push(StatementCall { sql: &sql.mark_claimed, values });
        }
    }

    pub(crate) fn mark_finished<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let values = self.into_finished_values().into();
            statements.push(StatementCall { sql: &sql.mark_finished, values });
        }
    }

    pub(crate) fn row(&self, index: usize) -> Option<Vec<&(dyn ToSql + Sync)>> {
        Some(vec![
            self.seq.get(index)?,
            self.ready_position.get(index)?,
            self.due_at.get(index)?,
            self.type_hash.get(index)?,
            self.lease_version.get(index)?,
            self.enqueued_at.get(index)?,
            self.ended_at.get(index)?,
            self.prune_at.get(index)?,
            self.queue.get(index)?,
            self.state.get(index)?,
            self.effective_priority.get(index)?,
            self.priority.get(index)?,
            self.timer_kind.get(index)?,
            self.archivable.get(index)?,
            self.standalone.get(index)?,
            self.record.get(index)?,
            self.propagation_cursor.get(index)?,
        ])
    }

    pub(crate) async fn copy(&self, connection: &Connection, sql: &Statements) -> Result<(), TxError> {
        let rows = (0..self.seq.len()).filter_map(|index| self.row(index));
        connection.copy(&sql.copy_jobs, &JOB_TYPES, rows).await
    }

    pub(crate) fn update<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = super::write::row_count(&self.seq);
            statements.push(stmt!(
                sql.update_jobs,
                self.seq,
                self.ready_position,
                self.due_at,
                self.type_hash,
                self.lease_version,
                self.enqueued_at,
                self.ended_at,
                self.prune_at,
                self.state,
                self.effective_priority,
                self.priority,
                self.timer_kind,
                self.archivable,
                self.standalone,
                self.record,
                self.expected_state,
                self.expected_version,
                self.propagation_cursor,
                rows,
            ));
        }
    }

    pub(crate) fn mark_heartbeat<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let values = self.into_heartbeat_values().into();
            statements.push(StatementCall { sql: &sql.mark_heartbeat, values });
        }
    }
}

/// Types of [`JobColumns::row`].
pub(crate) const JOB_TYPES: [Type; 17] = [
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT4,
    Type::INT2,
    Type::INT2,
    Type::INT2,
    Type::INT2,
    Type::BOOL,
    Type::BOOL,
    Type::BYTEA,
    Type::INT8,
];
