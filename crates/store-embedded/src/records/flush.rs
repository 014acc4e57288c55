//! The end of a batch: tables, counts, sums and listings are brought in step with the records in memory.

use std::sync::PoisonError;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use rusqlite::params;

use super::batch_writer::BatchWriter;
use super::{RecordsError, SqliteRecords, StoredIn, WrittenJob, state_number};
use crate::finished_index::{FilterKey, chunk_of, save_features};
use crate::live_index::Change;
use longshore_codec as codec;

/// What became of one record in a flush.
struct Written {
    seq: Seq,
    before: StoredIn,
    after: StoredIn,
    /// Of a job that has just ended.
    features: Option<FilterKey>,
    prune_at: Option<Timestamp>,
}

impl SqliteRecords {
    /// Writes what the batch has changed so far, inside its transaction.
    pub(crate) fn flush(&mut self) -> Result<(), RecordsError> {
        if self.names().has_unsaved() {
            crate::dictionary::save(&self.names(), &self.connection)?;
        }
        if !self.new_payloads.is_empty() {
            self.write_payloads()?;
        }
        if !self.changed.is_empty() {
            let mut changed: Vec<(Seq, StoredIn)> = self.changed.drain().collect();
            changed.sort_unstable_by_key(|(seq, _)| *seq);
            let written = self.write_records(changed)?;
            self.update_indexes(written)?;
        }
        for (seq, origin) in std::mem::take(&mut self.removed) {
            self.erase(seq, &origin)?;
        }
        self.workflows.flush(&self.connection)?;
        self.flush_counts()
    }

    /// Brings the tables in step with the records in memory; says where each lay before, and lies now.
    fn write_records(&mut self, changed: Vec<(Seq, StoredIn)>) -> Result<Vec<Written>, RecordsError> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let mut pen = BatchWriter::default();
        let mut record = Vec::new();
        let mut written = Vec::with_capacity(changed.len());
        for (seq, before) in changed {
            let Some(job) = self.jobs.get(&seq) else { continue };
            record = codec::job::encode(job, &names, record).ok_or(RecordsError::NotStorable)?;
            let after = StoredIn::of(job);
            match (&before, &after) {
                (StoredIn::Live(_), StoredIn::Live(_)) => pen.replace_live(seq, &record),
                (StoredIn::Nowhere, StoredIn::Live(_)) => pen.insert_live(seq, &record),
                (StoredIn::Ended(_), StoredIn::Live(_)) => {
                    pen.delete_ended(seq);
                    pen.insert_live(seq, &record);
                }
                (StoredIn::Ended(_), StoredIn::Ended(_)) => pen.update_ended(job, FilterKey::of(job, &names), &record),
                (StoredIn::Live(_), StoredIn::Ended(_)) => {
                    pen.delete_live(seq);
                    pen.insert_ended(job, FilterKey::of(job, &names), &record);
                }
                (StoredIn::Nowhere, StoredIn::Ended(_)) => pen.insert_ended(job, FilterKey::of(job, &names), &record),
                (_, StoredIn::Nowhere) => {}
            }
            let features = match (&before, &after) {
                (StoredIn::Ended(before), StoredIn::Ended(after)) if before == after => None,
                (_, StoredIn::Ended(_)) => Some(FilterKey::of(job, &names)),
                (_, StoredIn::Live(_) | StoredIn::Nowhere) => None,
            };
            written.push(Written { seq, before, after, features, prune_at: job.prune_at() });
        }
        pen.write(&self.connection)?;
        Ok(written)
    }

    /// Keeps counts, sums and listings in step with what was written.
    fn update_indexes(&mut self, written: Vec<Written>) -> Result<(), RecordsError> {
        let mut changes = Vec::with_capacity(written.len());
        for Written { seq, before, after, features, prune_at } in written {
            if let Some(features) = features {
                self.add_chunk_key(seq, features)?;
            }
            if let Some(at) = prune_at {
                self.prunes.schedule_prune(&self.connection, seq, at)?;
            }
            self.touched.push(WrittenJob { seq, fresh: matches!(before, StoredIn::Nowhere) });
            self.recount(seq, &before, &after);
            let change = Change { before: before.live(), after: after.live() };
            if change.before != change.after {
                changes.push(change);
            }
        }
        self.live.write().unwrap_or_else(PoisonError::into_inner).replace(changes);
        Ok(())
    }

    /// Adds what is new about an ended job to the sum of its chunk.
    fn add_chunk_key(&mut self, seq: Seq, features: FilterKey) -> Result<(), RecordsError> {
        let chunk = chunk_of(seq);
        if self.chunks.read().unwrap_or_else(PoisonError::into_inner).knows(chunk, &features) {
            return Ok(());
        }
        save_features(&self.connection, chunk, &features)?;
        self.chunks.write().unwrap_or_else(PoisonError::into_inner).add(chunk, features);
        self.new_chunk_keys.push((chunk, features));
        Ok(())
    }

    fn recount(&mut self, seq: Seq, before: &StoredIn, after: &StoredIn) {
        for (origin, sign) in [(before, -1), (after, 1)] {
            if let StoredIn::Ended(state) = origin
                && let Some(job) = self.jobs.get(&seq)
            {
                *self.ended_counts.entry((job.queue.clone(), *state)).or_default() += sign;
            }
        }
    }

    fn erase(&mut self, seq: Seq, origin: &StoredIn) -> Result<(), RecordsError> {
        let number = seq.0.cast_signed();
        match origin {
            StoredIn::Nowhere | StoredIn::Live(_) => {
                self.connection.prepare_cached("DELETE FROM live WHERE seq = ?1")?.execute([number])?;
            }
            StoredIn::Ended(_) => {
                self.connection.prepare_cached("DELETE FROM ended WHERE seq = ?1")?.execute([number])?;
            }
        }
        self.connection.prepare_cached("DELETE FROM payload WHERE seq = ?1")?.execute([number])?;
        Ok(())
    }

    fn flush_counts(&mut self) -> Result<(), RecordsError> {
        for ((queue, state), change) in self.ended_counts.drain().filter(|(_, change)| *change != 0) {
            let mut upsert = self.connection.prepare_cached(
                "INSERT INTO ended_count(queue, state, jobs) VALUES (?1, ?2, ?3) \
                 ON CONFLICT(queue, state) DO UPDATE SET jobs = jobs + excluded.jobs",
            )?;
            upsert.execute(params![queue.as_str(), state_number(state), change])?;
        }
        Ok(())
    }
}
