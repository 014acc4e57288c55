//! Collects the records of a batch and writes them with multi-row statements.

use std::ops::Range;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::time::Timestamp;
use rusqlite::{Connection, Statement, params};

use super::multi_row::{INSERT_FINISHED, INSERT_LIVE, MultiRowStatement, REPLACE_LIVE, ranges};
use crate::finished_index::FilterKey;

/// Records to write, sorted by number.
#[derive(Debug, Default)]
pub(super) struct BatchWriter {
    /// Encoded records, concatenated.
    buffer: Vec<u8>,
    inserted: Vec<(Seq, Range<usize>)>,
    replaced: Vec<(Seq, Range<usize>)>,
    deleted_live: Vec<Seq>,
    finished: Vec<(Seq, FinishedRow)>,
    updated_finished: Vec<(Seq, FinishedRow)>,
    deleted_finished: Vec<Seq>,
}

#[derive(Debug)]
struct FinishedRow {
    key: FilterKey,
    prune_at: Option<i64>,
    record: Range<usize>,
}

impl BatchWriter {
    fn append(&mut self, record: &[u8]) -> Range<usize> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(record);
        start..self.buffer.len()
    }

    pub(super) fn insert_live(&mut self, seq: Seq, record: &[u8]) {
        let record = self.append(record);
        self.inserted.push((seq, record));
    }

    pub(super) fn replace_live(&mut self, seq: Seq, record: &[u8]) {
        let record = self.append(record);
        self.replaced.push((seq, record));
    }

    pub(super) fn delete_live(&mut self, seq: Seq) {
        self.deleted_live.push(seq);
    }

    pub(super) fn insert_finished(&mut self, job: &Job, key: FilterKey, record: &[u8]) {
        let row = self.finished_row(job, key, record);
        self.finished.push((job.seq, row));
    }

    pub(super) fn update_finished(&mut self, job: &Job, key: FilterKey, record: &[u8]) {
        let row = self.finished_row(job, key, record);
        self.updated_finished.push((job.seq, row));
    }

    pub(super) fn delete_finished(&mut self, seq: Seq) {
        self.deleted_finished.push(seq);
    }

    fn finished_row(&mut self, job: &Job, key: FilterKey, record: &[u8]) -> FinishedRow {
        FinishedRow { key, prune_at: job.prune_at().map(Timestamp::as_millis), record: self.append(record) }
    }

    /// Writes all collected records to the tables.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        for (table, seqs) in [("live_jobs", &self.deleted_live), ("finished_jobs", &self.deleted_finished)] {
            if seqs.is_empty() {
                continue;
            }
            let text = format!("DELETE FROM {table} WHERE seq BETWEEN ?1 AND ?2");
            let mut delete = connection.prepare_cached(&text)?;
            for (first, last) in ranges(seqs) {
                delete.execute([first.0.cast_signed(), last.0.cast_signed()])?;
            }
        }
        self.write_live(connection, &INSERT_LIVE, &self.inserted)?;
        self.write_live(connection, &REPLACE_LIVE, &self.replaced)?;
        INSERT_FINISHED.write(connection, &self.finished, |statement, first, (seq, row)| {
            let FilterKey { queue, state, job_type } = &row.key;
            statement.raw_bind_parameter(first, seq.0.cast_signed())?;
            statement.raw_bind_parameter(first + 1, queue)?;
            statement.raw_bind_parameter(first + 2, state)?;
            statement.raw_bind_parameter(first + 3, job_type)?;
            statement.raw_bind_parameter(first + 4, row.prune_at)?;
            statement.raw_bind_parameter(first + 5, self.read(&row.record)?)
        })?;
        for (seq, row) in &self.updated_finished {
            let text = "UPDATE finished_jobs SET record = ?2, prune_at = ?3, state = ?4 WHERE seq = ?1";
            let values = params![seq.0.cast_signed(), self.read(&row.record)?, row.prune_at, row.key.state];
            connection.prepare_cached(text)?.execute(values)?;
        }
        Ok(())
    }

    fn write_live(
        &self,
        connection: &Connection,
        many: &MultiRowStatement,
        rows: &[(Seq, Range<usize>)],
    ) -> rusqlite::Result<()> {
        many.write(connection, rows, |statement: &mut Statement<'_>, first, (seq, record)| {
            statement.raw_bind_parameter(first, seq.0.cast_signed())?;
            statement.raw_bind_parameter(first + 1, self.read(record)?)
        })
    }

    fn read(&self, record: &Range<usize>) -> rusqlite::Result<&[u8]> {
        self.buffer.get(record.clone()).ok_or(rusqlite::Error::InvalidQuery)
    }
}
