//! The end of a batch: tables, counts, sums and listings are brought in step with the records in memory.

use std::sync::PoisonError;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use rusqlite::params;

use super::batch_writer::Pen;
use super::{DiskRecords, Origin, Touched, Trouble, state_number};
use crate::finished_index::{Features, chunk_of, save_features};
use crate::live_index::Change;
use longshore_codec::codec;

/// What became of one record in a flush.
struct Written {
    seq: Seq,
    before: Origin,
    after: Origin,
    /// Of a job that has just ended.
    features: Option<Features>,
    prune_at: Option<Timestamp>,
}

impl DiskRecords {
    /// Writes what the batch has changed so far, inside its transaction.
    pub(crate) fn flush(&mut self) -> Result<(), Trouble> {
        if self.names().anything_fresh() {
            crate::dictionary::save(&self.names(), &self.connection)?;
        }
        if !self.new_payloads.is_empty() {
            self.write_payloads()?;
        }
        if !self.changed.is_empty() {
            let mut changed: Vec<(Seq, Origin)> = self.changed.drain().collect();
            changed.sort_unstable_by_key(|(seq, _)| *seq);
            let written = self.write_records(changed)?;
            self.account(written)?;
        }
        for (seq, origin) in std::mem::take(&mut self.removed) {
            self.erase(seq, &origin)?;
        }
        self.workflows.flush(&self.connection)?;
        self.flush_counts()
    }

    /// Brings the tables in step with the records in memory; says where each lay before, and lies now.
    fn write_records(&mut self, changed: Vec<(Seq, Origin)>) -> Result<Vec<Written>, Trouble> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let mut pen = Pen::default();
        let mut record = Vec::new();
        let mut written = Vec::with_capacity(changed.len());
        for (seq, before) in changed {
            let Some(job) = self.jobs.get(&seq) else { continue };
            record = codec::job::encode(job, &names, record).ok_or(Trouble::NotStorable)?;
            let after = Origin::of(job);
            match (&before, &after) {
                (Origin::Live(_), Origin::Live(_)) => pen.replace_live(seq, &record),
                (Origin::Nowhere, Origin::Live(_)) => pen.insert_live(seq, &record),
                (Origin::Ended(_), Origin::Live(_)) => {
                    pen.delete_ended(seq);
                    pen.insert_live(seq, &record);
                }
                (Origin::Ended(_), Origin::Ended(_)) => pen.update_ended(job, Features::of(job, &names), &record),
                (Origin::Live(_), Origin::Ended(_)) => {
                    pen.delete_live(seq);
                    pen.insert_ended(job, Features::of(job, &names), &record);
                }
                (Origin::Nowhere, Origin::Ended(_)) => pen.insert_ended(job, Features::of(job, &names), &record),
                (_, Origin::Nowhere) => {}
            }
            let features = match (&before, &after) {
                (Origin::Ended(before), Origin::Ended(after)) if before == after => None,
                (_, Origin::Ended(_)) => Some(Features::of(job, &names)),
                (_, Origin::Live(_) | Origin::Nowhere) => None,
            };
            written.push(Written { seq, before, after, features, prune_at: job.prune_at() });
        }
        pen.write(&self.connection)?;
        Ok(written)
    }

    /// Keeps counts, sums and listings in step with what was written.
    fn account(&mut self, written: Vec<Written>) -> Result<(), Trouble> {
        let mut changes = Vec::with_capacity(written.len());
        for Written { seq, before, after, features, prune_at } in written {
            if let Some(features) = features {
                self.sum_up(seq, features)?;
            }
            if let Some(at) = prune_at {
                self.prunes.note(&self.connection, seq, at)?;
            }
            self.touched.push(Touched { seq, fresh: matches!(before, Origin::Nowhere) });
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
    fn sum_up(&mut self, seq: Seq, features: Features) -> Result<(), Trouble> {
        let chunk = chunk_of(seq);
        if self.chunks.read().unwrap_or_else(PoisonError::into_inner).knows(chunk, &features) {
            return Ok(());
        }
        save_features(&self.connection, chunk, &features)?;
        self.chunks.write().unwrap_or_else(PoisonError::into_inner).add(chunk, features);
        self.summed.push((chunk, features));
        Ok(())
    }

    fn recount(&mut self, seq: Seq, before: &Origin, after: &Origin) {
        for (origin, sign) in [(before, -1), (after, 1)] {
            if let Origin::Ended(state) = origin
                && let Some(job) = self.jobs.get(&seq)
            {
                *self.ended_counts.entry((job.queue.clone(), *state)).or_default() += sign;
            }
        }
    }

    fn erase(&mut self, seq: Seq, origin: &Origin) -> Result<(), Trouble> {
        let number = seq.0.cast_signed();
        match origin {
            Origin::Nowhere | Origin::Live(_) => {
                self.connection.prepare_cached("DELETE FROM live WHERE seq = ?1")?.execute([number])?;
            }
            Origin::Ended(_) => {
                self.connection.prepare_cached("DELETE FROM ended WHERE seq = ?1")?.execute([number])?;
            }
        }
        self.connection.prepare_cached("DELETE FROM payload WHERE seq = ?1")?.execute([number])?;
        Ok(())
    }

    fn flush_counts(&mut self) -> Result<(), Trouble> {
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
