//! Rows of the table of jobs on their way there.

use longshore_core::id::Seq;
use tokio_postgres::types::{ToSql, Type};

use super::Orders;
use crate::error::Trouble;
use crate::link::{Link, order};
use crate::row::{Columns, Found};
use crate::statements::Statements;

/// Rows of the table of jobs, column by column.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) seq: Vec<i64>,
    place: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    timer: Vec<Option<i16>>,
    job_type: Vec<i64>,
    lease_version: Vec<i64>,
    came_at: Vec<Option<i64>>,
    ended_at: Vec<Option<i64>>,
    prune_at: Vec<Option<i64>>,
    queue: Vec<i32>,
    state: Vec<i16>,
    urgency: Vec<i16>,
    priority: Vec<i16>,
    over: Vec<bool>,
    plain: Vec<bool>,
    record: Vec<Vec<u8>>,
    told: Vec<Option<i64>>,
    was: Vec<i16>,
    was_version: Vec<i64>,
}

impl Table {
    pub(crate) fn push(
        &mut self,
        place: (Seq, i32),
        columns: &Columns,
        told: Option<i64>,
        record: Vec<u8>,
        was: Option<&Found>,
    ) {
        let (seq, queue) = place;
        self.seq.push(seq.0.cast_signed());
        self.place.push(columns.place);
        self.due_at.push(columns.due.map(|(at, _)| at));
        self.timer.push(columns.due.map(|(_, kind)| kind));
        self.job_type.push(columns.job_type);
        self.lease_version.push(columns.lease_version);
        self.came_at.push(columns.came_at);
        self.ended_at.push(columns.ended_at);
        self.prune_at.push(columns.prune_at);
        self.queue.push(queue);
        self.state.push(columns.state);
        self.urgency.push(columns.urgency);
        self.priority.push(columns.priority);
        self.over.push(columns.over);
        self.plain.push(columns.plain);
        self.record.push(record);
        self.told.push(told);
        if let Some(was) = was {
            self.was.push(was.state);
            self.was_version.push(was.lease_version);
        }
    }

    pub(crate) fn insert<'a>(self, orders: &mut Orders<'a>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            orders.push(order!(
                sql.insert_jobs,
                self.seq,
                self.place,
                self.due_at,
                self.job_type,
                self.lease_version,
                self.came_at,
                self.ended_at,
                self.prune_at,
                self.queue,
                self.state,
                self.urgency,
                self.priority,
                self.timer,
                self.over,
                self.plain,
                self.record,
                self.told,
            ));
        }
    }

    /// From the line into a worker's hands.
    pub(crate) fn begin_runs<'a>(self, orders: &mut Orders<'a>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            let Self { seq, due_at, timer, lease_version, record, was_version, .. } = self;
            orders.push(order!(sql.begin_runs, seq, due_at, timer, lease_version, record, was_version, rows));
        }
    }

    pub(crate) fn end_runs<'a>(self, orders: &mut Orders<'a>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            let Self { seq, state, ended_at, prune_at, over, record, was_version, .. } = self;
            orders.push(order!(sql.end_runs, seq, state, ended_at, prune_at, over, record, was_version, rows));
        }
    }

    pub(crate) fn row(&self, place: usize) -> Option<Vec<&(dyn ToSql + Sync)>> {
        Some(vec![
            self.seq.get(place)?,
            self.place.get(place)?,
            self.due_at.get(place)?,
            self.job_type.get(place)?,
            self.lease_version.get(place)?,
            self.came_at.get(place)?,
            self.ended_at.get(place)?,
            self.prune_at.get(place)?,
            self.queue.get(place)?,
            self.state.get(place)?,
            self.urgency.get(place)?,
            self.priority.get(place)?,
            self.timer.get(place)?,
            self.over.get(place)?,
            self.plain.get(place)?,
            self.record.get(place)?,
            self.told.get(place)?,
        ])
    }

    pub(crate) async fn copy(&self, link: &Link, sql: &Statements) -> Result<(), Trouble> {
        let rows = (0..self.seq.len()).filter_map(|place| self.row(place));
        link.copy(&sql.copy_jobs, &JOB_TYPES, rows).await
    }

    pub(crate) fn update<'a>(self, orders: &mut Orders<'a>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            orders.push(order!(
                sql.update_jobs,
                self.seq,
                self.place,
                self.due_at,
                self.job_type,
                self.lease_version,
                self.came_at,
                self.ended_at,
                self.prune_at,
                self.state,
                self.urgency,
                self.priority,
                self.timer,
                self.over,
                self.plain,
                self.record,
                self.was,
                self.was_version,
                self.told,
                rows,
            ));
        }
    }

    /// Nothing but records: no index hears of it.
    pub(crate) fn heartbeat<'a>(self, orders: &mut Orders<'a>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            orders.push(order!(sql.heartbeat_jobs, self.seq, self.record, self.was_version, rows));
        }
    }
}

/// Columns of [`Table::row`].
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
