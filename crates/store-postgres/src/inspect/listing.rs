//! Pages of jobs: candidates from the most selective index, then their records.

use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_store::{JobFilter, JobQuery, Page};
use tokio_postgres::Row;

use super::{EXAMINED_MAX, ReadTransaction};
use crate::connection::{get, stmt};
use crate::error::TxError;
use crate::row::type_hash;

/// Positions that one round trip of the search by time probes.
const PROBES: i64 = 16;

impl ReadTransaction<'_> {
    pub(super) async fn list(&mut self, query: &JobQuery) -> Result<Page, TxError> {
        let JobQuery { filter, limit, before } = query;
        self.begin(Vec::new()).await?;
        let examined = if served_in_full(filter) { *limit } else { EXAMINED_MAX.max(*limit) };
        let before = before.map_or(i64::MAX, |before| i64::try_from(before.0).unwrap_or(i64::MAX));
        let before = self.below_too_new(filter, before).await?;
        let candidates = self.candidates(filter, before, examined).await?;
        let last = candidates.last().copied().filter(|_| candidates.len() >= examined);
        let mut jobs = Vec::new();
        for chunk in candidates.chunks((*limit).clamp(1, 1_000)) {
            let seqs: Vec<i64> =
                chunk.iter().filter(|candidate| candidate.may_match(filter)).map(|candidate| candidate.seq).collect();
            if seqs.is_empty() {
                continue;
            }
            let rows = self.connection.query(stmt!(self.node.sql.get_jobs, seqs.clone())).await?;
            let found = self.jobs(&rows)?;
            for number in seqs {
                let seq = Seq(number.cast_unsigned());
                let Some(job) = found.get(&seq) else { continue };
                if filter.excludes_older_than(job) {
                    return Ok(Page { jobs, next: None });
                }
                if !filter.matches(job) {
                    continue;
                }
                jobs.push(Arc::clone(job));
                if jobs.len() >= *limit {
                    // The next page may be empty.
                    return Ok(Page { jobs, next: Some(seq) });
                }
            }
        }
        Ok(Page { jobs, next: last.map(|candidate| Seq(candidate.seq.cast_unsigned())) })
    }

    /// Jobs that may match, newest first.
    async fn candidates(&self, filter: &JobFilter, before: i64, limit: usize) -> Result<Vec<Candidate>, TxError> {
        let sql = &self.node.sql;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let queues = || -> Vec<i32> {
            match &filter.queue {
                Some(queue) => self.catalog.queue_id(queue).into_iter().collect(),
                None => (0..i32::try_from(self.catalog.names.len().0).unwrap_or(i32::MAX)).collect(),
            }
        };
        if let Some(external_id) = &filter.external_id {
            // PostgreSQL text has no zero bytes, so no job has such an external id.
            if external_id.contains('\0') {
                return Ok(Vec::new());
            }
            let call = stmt!(sql.list_external_id, queues(), external_id.to_string(), before);
            return self.connection.query(call).await?.iter().map(Candidate::by_seq).collect();
        }
        if let Some(term) = filter.tag_term() {
            // No job has such a tag either.
            if term.contains('\0') {
                return Ok(Vec::new());
            }
            let rows = self.connection.query(stmt!(sql.list_tag, term, before, limit)).await?;
            return rows.iter().map(Candidate::by_seq).collect();
        }
        if let Some(workflow) = filter.workflow {
            let Some(number) = self.number_of(workflow).await? else { return Ok(Vec::new()) };
            let rows = self.connection.query(stmt!(sql.list_members, number, before, limit)).await?;
            return rows.iter().map(Candidate::by_seq).collect();
        }
        let rows = if filter.states.is_empty() && filter.queue.is_none() {
            self.connection.query(stmt!(sql.list_all, before, limit)).await?
        } else {
            let states: Vec<i16> = filter.states.admitted().map(|state| state as i16).collect();
            self.connection.query(stmt!(sql.list_jobs, states, queues(), before, limit)).await?
        };
        let read = |row: &Row| Ok(Candidate { seq: get(row, 0)?, features: Some((get(row, 1)?, get(row, 2)?)) });
        rows.iter().map(read).collect()
    }

    /// Returns where a listing starts: `before`, or a lower number if all jobs from there on are
    /// too new. Jobs are created in the order of their numbers, so this is a search with several
    /// probes per round trip.
    async fn below_too_new(&self, filter: &JobFilter, before: i64) -> Result<i64, TxError> {
        if filter.created_before.is_none() {
            return Ok(before);
        }
        let Some((_, mut high)) = self.first_too_new(filter, vec![before]).await? else { return Ok(before) };
        // All jobs from `high` on are too new; the newest job below `low` is not.
        let mut low = 0;
        while low < high {
            let step = ((high - low) / PROBES).max(1);
            let mut positions: Vec<i64> = (1..PROBES).map(|probe| low + probe * step).filter(|at| *at < high).collect();
            positions.push(high);
            match self.first_too_new(filter, positions.clone()).await? {
                None => low = high,
                Some((position, seq)) => {
                    low = positions.into_iter().take_while(|other| *other < position).last().unwrap_or(low);
                    high = seq.max(low);
                }
            }
        }
        Ok(high)
    }

    /// Returns the first of these rising positions below which the newest job is too new, and that
    /// job.
    async fn first_too_new(&self, filter: &JobFilter, positions: Vec<i64>) -> Result<Option<(i64, i64)>, TxError> {
        let rows = self.connection.query(stmt!(self.node.sql.newest_jobs_below, positions)).await?;
        let mut first: Option<(i64, i64)> = None;
        for row in &rows {
            let (position, number): (i64, i64) = (get(row, 0)?, get(row, 1)?);
            let job = self.decode(Seq(number.cast_unsigned()), &get::<Vec<u8>>(row, 2)?)?;
            if filter.excludes_newer_than(job.created_at) && first.is_none_or(|(other, _)| position < other) {
                first = Some((position, number));
            }
        }
        Ok(first)
    }
}

/// Whether every candidate of the index matches.
fn served_in_full(filter: &JobFilter) -> bool {
    let JobFilter {
        queue: _,
        states: _,
        job_type,
        tag,
        priority,
        error_code,
        workflow,
        external_id,
        idempotency_key,
        correlation_id,
        created_after,
        created_before,
    } = filter;
    let texts = [tag, error_code, external_id, idempotency_key, correlation_id];
    job_type.is_none()
        && priority.is_none()
        && workflow.is_none()
        && created_after.is_none()
        && created_before.is_none()
        && texts.iter().all(|text| text.is_none())
}

#[derive(Clone, Copy)]
struct Candidate {
    seq: i64,
    /// Hash of the type, and priority.
    features: Option<(i64, i16)>,
}

impl Candidate {
    /// A row of an index with sequence numbers only.
    fn by_seq(row: &Row) -> Result<Self, TxError> {
        Ok(Self { seq: get(row, 0)?, features: None })
    }

    fn may_match(&self, filter: &JobFilter) -> bool {
        let Some((job_type, priority)) = self.features else { return true };
        let type_filter = filter.job_type.as_ref().map(|job_type| type_hash(job_type.as_str()));
        let priority_filter = filter.priority.map(|priority| i16::from(priority.level()));
        type_filter.is_none_or(|expected| expected == job_type)
            && priority_filter.is_none_or(|expected| expected == priority)
    }
}
