//! Rows of the table of jobs on their way there.

use std::collections::HashMap;

use longshore_core::id::Seq;
use tokio_postgres::types::{ToSql, Type};

use crate::connection::{Connection, StatementCall, Value, stmt};
use crate::error::TxError;
use crate::node_cache::ReadyPosition;
use crate::row::{IndexColumns, JobRow, Origin};
use crate::statements::Statements;

/// Rows of the table of jobs, column by column.
#[derive(Default)]
pub(crate) struct JobColumns {
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

impl JobColumns {
    pub(crate) fn push(
        &mut self,
        place: (Seq, i32),
        columns: &IndexColumns,
        told: Option<i64>,
        record: Vec<u8>,
        was: Option<&JobRow>,
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

    /// All columns.
    pub(crate) fn whole(self) -> Vec<Value> {
        vec![
            Box::new(self.seq),
            Box::new(self.place),
            Box::new(self.due_at),
            Box::new(self.job_type),
            Box::new(self.lease_version),
            Box::new(self.came_at),
            Box::new(self.ended_at),
            Box::new(self.prune_at),
            Box::new(self.queue),
            Box::new(self.state),
            Box::new(self.urgency),
            Box::new(self.priority),
            Box::new(self.timer),
            Box::new(self.over),
            Box::new(self.plain),
            Box::new(self.record),
            Box::new(self.told),
        ]
    }

    /// The columns in which jobs that begin to wait differ; `None` if any of these is not such a job.
    pub(crate) fn newcomers(self) -> Option<[Value; 10]> {
        fn none(column: &[Option<i64>]) -> bool {
            column.iter().all(Option::is_none)
        }
        let never_ran = none(&self.came_at) && self.lease_version.iter().all(|version| *version == 0);
        let alive = none(&self.ended_at) && none(&self.prune_at) && !self.over.contains(&true);
        if !(never_ran && alive && none(&self.told) && !self.plain.contains(&false)) {
            return None;
        }
        Some([
            Box::new(self.seq),
            Box::new(self.place),
            Box::new(self.due_at),
            Box::new(self.job_type),
            Box::new(self.queue),
            Box::new(self.state),
            Box::new(self.urgency),
            Box::new(self.priority),
            Box::new(self.timer),
            Box::new(self.record),
        ])
    }

    pub(crate) fn insert<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            statements.push(StatementCall { sql: &sql.insert_jobs, values: self.whole() });
        }
    }

    /// What changes of jobs that are claimed, and the lease versions that they had.
    pub(crate) fn begun(self) -> [Value; 6] {
        let Self { seq, due_at, timer, lease_version, record, was_version, .. } = self;
        [
            Box::new(seq),
            Box::new(due_at),
            Box::new(timer),
            Box::new(lease_version),
            Box::new(record),
            Box::new(was_version),
        ]
    }

    /// What changes of jobs that have ended.
    pub(crate) fn ended(self) -> [Value; 7] {
        let Self { seq, state, ended_at, prune_at, over, record, was_version, .. } = self;
        [
            Box::new(seq),
            Box::new(state),
            Box::new(ended_at),
            Box::new(prune_at),
            Box::new(over),
            Box::new(record),
            Box::new(was_version),
        ]
    }

    /// What changes of jobs that go on running.
    pub(crate) fn beaten(self) -> [Value; 3] {
        [Box::new(self.seq), Box::new(self.record), Box::new(self.was_version)]
    }

    /// Jobs that run now, as they will be found.
    pub(crate) fn runs(&self) -> Vec<(Seq, JobRow)> {
        let run = |place: usize| {
            let due = (self.due_at.get(place)?, self.timer.get(place)?);
            let found = JobRow {
                origin: Origin::Jobs,
                state: *self.state.get(place)?,
                lease_version: *self.lease_version.get(place)?,
                place: *self.place.get(place)?,
                due: due.0.map(|at| (at, due.1.unwrap_or(0))),
                record: self.record.get(place)?.clone(),
                told: *self.told.get(place)?,
                payload: None,
            };
            Some((Seq(self.seq.get(place)?.cast_unsigned()), found))
        };
        (0..self.seq.len()).filter_map(run).collect()
    }

    /// The first place of each line in which some of these stand.
    pub(crate) fn first_in_lines(&self) -> Vec<(i32, ReadyPosition)> {
        let mut first: HashMap<i32, ReadyPosition> = HashMap::new();
        for ((queue, urgency), place) in self.queue.iter().zip(&self.urgency).zip(&self.place) {
            if let Some(place) = place {
                let known = first.entry(*queue).or_insert((*urgency, *place));
                *known = (*known).min((*urgency, *place));
            }
        }
        first.into_iter().collect()
    }

    /// The same rows in another order.
    pub(crate) fn in_order(mut self, order: &[Seq]) -> Option<Self> {
        let places: HashMap<i64, usize> = self.seq.iter().enumerate().map(|(place, seq)| (*seq, place)).collect();
        let places: Vec<usize> =
            order.iter().map(|seq| places.get(&seq.0.cast_signed()).copied()).collect::<Option<_>>()?;
        fn pick<T: Clone>(column: &mut Vec<T>, places: &[usize]) -> Option<()> {
            *column = places.iter().map(|place| column.get(*place).cloned()).collect::<Option<_>>()?;
            Some(())
        }
        pick(&mut self.seq, &places)?;
        pick(&mut self.place, &places)?;
        pick(&mut self.due_at, &places)?;
        pick(&mut self.timer, &places)?;
        pick(&mut self.lease_version, &places)?;
        pick(&mut self.state, &places)?;
        pick(&mut self.record, &places)?;
        pick(&mut self.told, &places)?;
        pick(&mut self.was_version, &places)?;
        Some(self)
    }

    /// From the line into a worker's hands.
    pub(crate) fn begin_runs<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            let mut values: Vec<Value> = self.begun().into();
            values.push(Box::new(rows));
            statements.push(StatementCall { sql: &sql.begin_runs, values });
        }
    }

    pub(crate) fn end_runs<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            let mut values: Vec<Value> = self.ended().into();
            values.push(Box::new(rows));
            statements.push(StatementCall { sql: &sql.end_runs, values });
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

    pub(crate) async fn copy(&self, link: &Connection, sql: &Statements) -> Result<(), TxError> {
        let rows = (0..self.seq.len()).filter_map(|place| self.row(place));
        link.copy(&sql.copy_jobs, &JOB_TYPES, rows).await
    }

    pub(crate) fn update<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            statements.push(stmt!(
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
    pub(crate) fn heartbeat<'a>(self, statements: &mut Vec<StatementCall<'a>>, sql: &'a Statements) {
        if !self.seq.is_empty() {
            let rows = i64::try_from(self.seq.len()).unwrap_or(i64::MAX);
            let mut values: Vec<Value> = self.beaten().into();
            values.push(Box::new(rows));
            statements.push(StatementCall { sql: &sql.heartbeat_jobs, values });
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
