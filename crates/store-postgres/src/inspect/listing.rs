//! Pages of jobs: candidates from the index that has the fewest, then their records.

use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_store::{JobFilter, JobQuery, Page};
use tokio_postgres::Row;

use super::{EXAMINED_MAX, ReadTransaction};
use crate::connection::{get, stmt};
use crate::error::TxError;
use longshore_codec::type_hash;

/// Places that one trip of a search by time looks at.
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
        for some in candidates.chunks((*limit).clamp(1, 1_000)) {
            let fitting: Vec<i64> =
                some.iter().filter(|candidate| candidate.may_fit(filter)).map(|candidate| candidate.seq).collect();
            if fitting.is_empty() {
                continue;
            }
            let rows = self.link.query(stmt!(self.shared.sql.get, fitting.clone())).await?;
            let found = self.jobs(&rows)?;
            for number in fitting {
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
                    // There may be nothing behind it; the next page says so.
                    return Ok(Page { jobs, next: Some(seq) });
                }
            }
        }
        Ok(Page { jobs, next: last.map(|candidate| Seq(candidate.seq.cast_unsigned())) })
    }

    /// Jobs that may match, newest first.
    async fn candidates(&self, filter: &JobFilter, before: i64, limit: usize) -> Result<Vec<Candidate>, TxError> {
        let sql = &self.shared.sql;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let queues = || -> Vec<i32> {
            match &filter.queue {
                Some(queue) => self.known.queue_id(queue).into_iter().collect(),
                None => (0..i32::try_from(self.known.names.len().0).unwrap_or(i32::MAX)).collect(),
            }
        };
        if let Some(external_id) = &filter.external_id {
            // PostgreSQL has no such texts, and no job has such an external id.
            if external_id.contains('\0') {
                return Ok(Vec::new());
            }
            let order = stmt!(sql.list_external_id, queues(), external_id.to_string(), before);
            return self.link.query(order).await?.iter().map(Candidate::by_number).collect();
        }
        if let Some(word) = filter.tag_term() {
            // Nor has any job such a tag.
            if word.contains('\0') {
                return Ok(Vec::new());
            }
            let rows = self.link.query(stmt!(sql.list_tag, word, before, limit)).await?;
            return rows.iter().map(Candidate::by_number).collect();
        }
        if let Some(workflow) = filter.workflow {
            let Some(number) = self.number_of(workflow).await? else { return Ok(Vec::new()) };
            let rows = self.link.query(stmt!(sql.list_members, number, before, limit)).await?;
            return rows.iter().map(Candidate::by_number).collect();
        }
        let rows = if filter.states.is_empty() && filter.queue.is_none() {
            self.link.query(stmt!(sql.list_all, before, limit)).await?
        } else {
            let states: Vec<i16> = filter.states.admitted().map(|state| state as i16).collect();
            self.link.query(stmt!(sql.list, states, queues(), before, limit)).await?
        };
        let read = |row: &Row| Ok(Candidate { seq: get(row, 0)?, features: Some((get(row, 1)?, get(row, 2)?)) });
        rows.iter().map(read).collect()
    }

    /// Where a listing begins: `before`, or a lower number if all jobs from there on were created too late.
    ///
    /// Jobs are created in the order of their numbers, so a search finds the place. Each trip looks at several places.
    async fn below_too_new(&self, filter: &JobFilter, before: i64) -> Result<i64, TxError> {
        if filter.created_before.is_none() {
            return Ok(before);
        }
        let Some((_, mut high)) = self.first_too_new(filter, vec![before]).await? else { return Ok(before) };
        // All jobs from `high` on are too new; the newest job below `low` is not.
        let mut low = 0;
        while low < high {
            let step = ((high - low) / PROBES).max(1);
            let mut places: Vec<i64> = (1..PROBES).map(|probe| low + probe * step).filter(|at| *at < high).collect();
            places.push(high);
            match self.first_too_new(filter, places.clone()).await? {
                None => low = high,
                Some((place, seq)) => {
                    low = places.into_iter().take_while(|other| *other < place).last().unwrap_or(low);
                    high = seq.max(low);
                }
            }
        }
        Ok(high)
    }

    /// The first of these places below which the newest job is too new, and that job. The places rise.
    async fn first_too_new(&self, filter: &JobFilter, places: Vec<i64>) -> Result<Option<(i64, i64)>, TxError> {
        let rows = self.link.query(stmt!(self.shared.sql.newest_below, places)).await?;
        let mut first: Option<(i64, i64)> = None;
        for row in &rows {
            let (place, number): (i64, i64) = (get(row, 0)?, get(row, 1)?);
            let job = self.decode(Seq(number.cast_unsigned()), &get::<Vec<u8>>(row, 2)?)?;
            if filter.excludes_newer_than(job.created_at) && first.is_none_or(|(other, _)| place < other) {
                first = Some((place, number));
            }
        }
        Ok(first)
    }
}

/// Whether an index finds nothing but matches.
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
    /// Hash of the type, and the priority.
    features: Option<(i64, i16)>,
}

impl Candidate {
    /// From an index that knows nothing but numbers.
    fn by_number(row: &Row) -> Result<Self, TxError> {
        Ok(Self { seq: get(row, 0)?, features: None })
    }

    fn may_fit(&self, filter: &JobFilter) -> bool {
        let Some((job_type, priority)) = self.features else { return true };
        let wanted_type = filter.job_type.as_ref().map(|job_type| type_hash(job_type.as_str()));
        let wanted_priority = filter.priority.map(|priority| i16::from(priority.level()));
        wanted_type.is_none_or(|wanted| wanted == job_type) && wanted_priority.is_none_or(|wanted| wanted == priority)
    }
}
