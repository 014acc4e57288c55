//! End of a batch: writes changed records and updates counts, chunk summaries and the live index.

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use rusqlite::params;

use super::batch_writer::BatchWriter;
use super::{RecordsError, SqliteRecords, StoredIn, WrittenJob, state_number};
use crate::finished_index::{FilterKey, chunk_of, save_chunk_key};
use crate::live_index::LiveChange;
use longshore_codec as codec;

/// Result of writing one record.
struct WrittenRecord {
    seq: Seq,
    before: StoredIn,
    after: StoredIn,
    /// Set for a job that finished in this batch.
    key: Option<FilterKey>,
    prune_at: Option<Timestamp>,
}

impl SqliteRecords {
    /// Writes the changes of the batch so far, in its transaction.
    pub(crate) fn flush(&mut self) -> Result<(), RecordsError> {
        if self.dictionary().has_unsaved() {
            crate::dictionary::save(&self.dictionary(), &self.connection)?;
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

    /// Writes the changed records. Returns where each was stored before and is stored now.
    fn write_records(&mut self, changed: Vec<(Seq, StoredIn)>) -> Result<Vec<WrittenRecord>, RecordsError> {
        let dictionary = self.indexes.dictionary();
        let mut writer = BatchWriter::default();
        let mut record = Vec::new();
        let mut written = Vec::with_capacity(changed.len());
        for (seq, before) in changed {
            let Some(job) = self.jobs.get(&seq) else { continue };
            record = codec::job::encode(job, &dictionary, record).ok_or(RecordsError::NotStorable)?;
            let after = StoredIn::of(job);
            match (&before, &after) {
                (StoredIn::Live(_), StoredIn::Live(_)) => writer.replace_live(seq, &record),
                (StoredIn::Nowhere, StoredIn::Live(_)) => writer.insert_live(seq, &record),
                (StoredIn::Finished(_), StoredIn::Live(_)) => {
                    writer.delete_finished(seq);
                    writer.insert_live(seq, &record);
                }
                (StoredIn::Finished(_), StoredIn::Finished(_)) => {
                    writer.update_finished(job, FilterKey::of(job, &dictionary), &record);
                }
                (StoredIn::Live(_), StoredIn::Finished(_)) => {
                    writer.delete_live(seq);
                    writer.insert_finished(job, FilterKey::of(job, &dictionary), &record);
                }
                (StoredIn::Nowhere, StoredIn::Finished(_)) => {
                    writer.insert_finished(job, FilterKey::of(job, &dictionary), &record);
                }
                (_, StoredIn::Nowhere) => {}
            }
            let key = match (&before, &after) {
                (StoredIn::Finished(before), StoredIn::Finished(after)) if before == after => None,
                (_, StoredIn::Finished(_)) => Some(FilterKey::of(job, &dictionary)),
                (_, StoredIn::Live(_) | StoredIn::Nowhere) => None,
            };
            written.push(WrittenRecord { seq, before, after, key, prune_at: job.prune_at() });
        }
        writer.write(&self.connection)?;
        Ok(written)
    }

    /// Updates counts, chunk summaries and the live index.
    fn update_indexes(&mut self, written: Vec<WrittenRecord>) -> Result<(), RecordsError> {
        let mut changes = Vec::with_capacity(written.len());
        for WrittenRecord { seq, before, after, key, prune_at } in written {
            if let Some(key) = key {
                self.add_chunk_key(seq, key)?;
            }
            if let Some(at) = prune_at {
                self.prunes.schedule_prune(&self.connection, seq, at)?;
            }
            self.written.push(WrittenJob { seq, is_new: matches!(before, StoredIn::Nowhere) });
            self.recount(seq, &before, &after);
            let change = LiveChange { before: before.live(), after: after.live() };
            if change.before != change.after {
                changes.push(change);
            }
        }
        self.indexes.live_mut().replace(changes);
        Ok(())
    }

    /// Adds a finished job to the summary of its chunk.
    fn add_chunk_key(&mut self, seq: Seq, key: FilterKey) -> Result<(), RecordsError> {
        let chunk = chunk_of(seq);
        if self.indexes.chunks().contains(chunk, &key) {
            return Ok(());
        }
        save_chunk_key(&self.connection, chunk, &key)?;
        self.indexes.chunks_mut().add(chunk, key);
        self.new_chunk_keys.push((chunk, key));
        Ok(())
    }

    fn recount(&mut self, seq: Seq, before: &StoredIn, after: &StoredIn) {
        for (origin, sign) in [(before, -1), (after, 1)] {
            if let StoredIn::Finished(state) = origin
                && let Some(job) = self.jobs.get(&seq)
            {
                *self.finished_counts.entry((job.queue.clone(), *state)).or_default() += sign;
            }
        }
    }

    fn erase(&mut self, seq: Seq, origin: &StoredIn) -> Result<(), RecordsError> {
        let number = seq.0.cast_signed();
        match origin {
            StoredIn::Nowhere | StoredIn::Live(_) => {
                self.connection.prepare_cached("DELETE FROM live_jobs WHERE seq = ?1")?.execute([number])?;
            }
            StoredIn::Finished(_) => {
                self.connection.prepare_cached("DELETE FROM finished_jobs WHERE seq = ?1")?.execute([number])?;
            }
        }
        self.connection.prepare_cached("DELETE FROM payload WHERE seq = ?1")?.execute([number])?;
        Ok(())
    }

    fn flush_counts(&mut self) -> Result<(), RecordsError> {
        for ((queue, state), change) in self.finished_counts.drain().filter(|(_, change)| *change != 0) {
            let mut upsert = self.connection.prepare_cached(
                "INSERT INTO finished_counts(queue, state, jobs) VALUES (?1, ?2, ?3) \
                 ON CONFLICT(queue, state) DO UPDATE SET jobs = jobs + excluded.jobs",
            )?;
            upsert.execute(params![queue.as_str(), state_number(state), change])?;
        }
        Ok(())
    }
}
