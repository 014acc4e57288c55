//! The statements that write records, prepared once for all records of a batch.

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, params};

use crate::ended::Features;

pub(super) struct Pen<'a> {
    insert_live: CachedStatement<'a>,
    update_live: CachedStatement<'a>,
    delete_live: CachedStatement<'a>,
    insert_ended: CachedStatement<'a>,
    update_ended: CachedStatement<'a>,
    delete_ended: CachedStatement<'a>,
}

impl<'a> Pen<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            insert_live: connection.prepare_cached("INSERT INTO live(seq, record) VALUES (?1, ?2)")?,
            update_live: connection.prepare_cached("UPDATE live SET record = ?2 WHERE seq = ?1")?,
            delete_live: connection.prepare_cached("DELETE FROM live WHERE seq = ?1")?,
            insert_ended: connection.prepare_cached(
                "INSERT INTO ended(seq, queue, state, type, prune_at, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            update_ended: connection.prepare_cached("UPDATE ended SET record = ?2, prune_at = ?3 WHERE seq = ?1")?,
            delete_ended: connection.prepare_cached("DELETE FROM ended WHERE seq = ?1")?,
        })
    }

    pub(super) fn insert_live(&mut self, seq: Seq, record: &[u8]) -> rusqlite::Result<()> {
        self.insert_live.execute(params![seq.0.cast_signed(), record]).map(drop)
    }

    pub(super) fn update_live(&mut self, seq: Seq, record: &[u8]) -> rusqlite::Result<()> {
        self.update_live.execute(params![seq.0.cast_signed(), record]).map(drop)
    }

    pub(super) fn delete_live(&mut self, seq: Seq) -> rusqlite::Result<()> {
        self.delete_live.execute([seq.0.cast_signed()]).map(drop)
    }

    pub(super) fn insert_ended(
        &mut self,
        seq: Seq,
        job: &Job,
        features: &Features,
        record: &[u8],
    ) -> rusqlite::Result<()> {
        let Features { queue, state, job_type } = features;
        let number = seq.0.cast_signed();
        self.insert_ended.execute(params![number, queue, state, job_type, prune_at(job), record]).map(drop)
    }

    pub(super) fn update_ended(&mut self, seq: Seq, job: &Job, record: &[u8]) -> rusqlite::Result<()> {
        self.update_ended.execute(params![seq.0.cast_signed(), record, prune_at(job)]).map(drop)
    }

    pub(super) fn delete_ended(&mut self, seq: Seq) -> rusqlite::Result<()> {
        self.delete_ended.execute([seq.0.cast_signed()]).map(drop)
    }
}

fn prune_at(job: &Job) -> Option<i64> {
    job.prune_at().map(Timestamp::as_millis)
}
