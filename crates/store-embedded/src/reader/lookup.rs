//! Index tables of listings: search terms, external ids, order of creation.

use longshore_codec as codec;
use longshore_core::id::{QueueName, Seq};
use longshore_core::time::Timestamp;
use longshore_store::{JobFilter, StoreError};
use rusqlite::params;

use super::{SnapshotReader, check_descending};
use crate::error::sql;

impl SnapshotReader {
    /// Returns the jobs with a search term, newest first.
    pub(super) fn with_term(&self, term: &str, before: Option<Seq>, limit: usize) -> Result<Vec<Seq>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = "SELECT seq FROM tag WHERE term = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
        let mut select = self.connection.prepare_cached(statement).map_err(sql)?;
        let rows = select.query_map(params![term, signed(before), limit], |row| row.get::<_, i64>(0)).map_err(sql)?;
        let numbers = rows.map(|number| number.map(|number| Seq(number.cast_unsigned())));
        let numbers: Vec<Seq> = numbers.collect::<Result<_, _>>().map_err(sql)?;
        check_descending("tag", before, numbers.iter().copied())?;
        Ok(numbers)
    }

    /// Returns the job of a queue with this external id, or one job per queue. Costs one lookup per
    /// queue.
    pub(super) fn with_external_id(
        &self,
        queue: Option<&QueueName>,
        external_id: &str,
    ) -> Result<Vec<Seq>, StoreError> {
        let statement = "SELECT seq FROM external_id WHERE queue = ?1 AND external_id = ?2";
        let mut select = self.connection.prepare_cached(statement).map_err(sql)?;
        let queues = match queue {
            Some(queue) => vec![queue.clone()],
            None => self.all_queues(),
        };
        let mut holders = Vec::new();
        for queue in queues {
            let rows = select.query_map(params![queue.as_str(), external_id], |row| row.get::<_, i64>(0));
            for number in rows.map_err(sql)? {
                holders.push(Seq(number.map_err(sql)?.cast_unsigned()));
            }
        }
        Ok(holders)
    }

    /// Returns every queue that ever had a job. Finished jobs of deleted queues are still listed.
    fn all_queues(&self) -> Vec<QueueName> {
        let dictionary = self.indexes.dictionary();
        let queues = u32::try_from(dictionary.len().0).unwrap_or(u32::MAX);
        (0..queues).filter_map(|number| dictionary.queue(number).cloned()).collect()
    }

    /// Returns the start of a listing: `before`, or a lower number if all jobs from there on were
    /// created too late.
    ///
    /// Jobs are created in the order of their numbers, so a binary search finds the start.
    pub(super) fn below_too_new(&self, filter: &JobFilter, before: Option<Seq>) -> Result<Option<Seq>, StoreError> {
        if filter.created_before.is_none() {
            return Ok(before);
        }
        let too_new = |below: Option<Seq>| -> Result<Option<Seq>, StoreError> {
            let newest = self.newest_below(below)?;
            Ok(newest.filter(|(_, created_at)| filter.excludes_newer_than(*created_at)).map(|(seq, _)| seq))
        };
        let Some(mut high) = too_new(before)? else { return Ok(before) };
        // All jobs from `high` on are too new. The newest job below `low` is not.
        let mut low = Seq(0);
        while low < high {
            let middle = Seq(low.0 + (high.0 - low.0).div_ceil(2));
            match too_new(Some(middle))? {
                Some(seq) => high = seq.max(low),
                None => low = middle,
            }
        }
        Ok(Some(high))
    }

    /// Returns the job with the highest number below `below` and its creation time.
    fn newest_below(&self, below: Option<Seq>) -> Result<Option<(Seq, Timestamp)>, StoreError> {
        let mut newest = None;
        for table in ["live_jobs", "finished_jobs"] {
            let statement = format!("SELECT seq, record FROM {table} WHERE seq < ?1 ORDER BY seq DESC LIMIT 1");
            let mut select = self.connection.prepare_cached(&statement).map_err(sql)?;
            let mut rows = select.query([signed(below)]).map_err(sql)?;
            let Some(row) = rows.next().map_err(sql)? else { continue };
            let seq = Seq(row.get::<_, i64>(0).map_err(sql)?.cast_unsigned());
            if newest.is_some_and(|(other, _)| other >= seq) {
                continue;
            }
            let corrupt = || StoreError::corrupt(format!("the record of job {seq}"));
            let bytes = row.get_ref(1).map_err(sql)?.as_blob().map_err(|_| corrupt())?;
            let dictionary = self.indexes.dictionary();
            let job = codec::job::decode(seq, bytes, &dictionary).map_err(|_| corrupt())?;
            newest = Some((seq, job.created_at));
        }
        Ok(newest)
    }
}

fn signed(below: Option<Seq>) -> i64 {
    below.map_or(i64::MAX, |below| i64::try_from(below.0).unwrap_or(i64::MAX))
}
