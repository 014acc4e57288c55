//! Writes the records of a batch: gathered first, then many to a statement.

use std::ops::Range;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::time::Timestamp;
use rusqlite::{Connection, Statement, params};

use super::multi_row::{INSERT_ENDED, INSERT_LIVE, MultiRowStatement, REPLACE_LIVE, ranges};
use crate::finished_index::FilterKey;

/// Records that are to be written, sorted by their numbers.
#[derive(Debug, Default)]
pub(super) struct BatchWriter {
    /// The records, one after the other.
    buffer: Vec<u8>,
    inserted: Vec<(Seq, Range<usize>)>,
    replaced: Vec<(Seq, Range<usize>)>,
    deleted_live: Vec<Seq>,
    ended: Vec<(Seq, Ended)>,
    changed_ended: Vec<(Seq, Ended)>,
    deleted_finished: Vec<Seq>,
}

#[derive(Debug)]
struct Ended {
    features: FilterKey,
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

    pub(super) fn insert_ended(&mut self, job: &Job, features: FilterKey, record: &[u8]) {
        let ended = self.ended(job, features, record);
        self.ended.push((job.seq, ended));
    }

    pub(super) fn update_ended(&mut self, job: &Job, features: FilterKey, record: &[u8]) {
        let ended = self.ended(job, features, record);
        self.changed_ended.push((job.seq, ended));
    }

    pub(super) fn delete_ended(&mut self, seq: Seq) {
        self.deleted_finished.push(seq);
    }

    fn ended(&mut self, job: &Job, features: FilterKey, record: &[u8]) -> Ended {
        Ended { features, prune_at: job.prune_at().map(Timestamp::as_millis), record: self.append(record) }
    }

    /// What is gathered comes into the tables.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        for (table, seqs) in [("live", &self.deleted_live), ("ended", &self.deleted_finished)] {
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
        INSERT_ENDED.write(connection, &self.ended, |statement, first, (seq, ended)| {
            let FilterKey { queue, state, job_type } = &ended.features;
            statement.raw_bind_parameter(first, seq.0.cast_signed())?;
            statement.raw_bind_parameter(first + 1, queue)?;
            statement.raw_bind_parameter(first + 2, state)?;
            statement.raw_bind_parameter(first + 3, job_type)?;
            statement.raw_bind_parameter(first + 4, ended.prune_at)?;
            statement.raw_bind_parameter(first + 5, self.read(&ended.record)?)
        })?;
        for (seq, ended) in &self.changed_ended {
            let text = "UPDATE ended SET record = ?2, prune_at = ?3, state = ?4 WHERE seq = ?1";
            let values = params![seq.0.cast_signed(), self.read(&ended.record)?, ended.prune_at, ended.features.state];
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
