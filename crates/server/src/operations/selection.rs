//! The jobs of an operation: those that match its filter and were there at its start.

use std::sync::Arc;

use longshore_api::operation::OperationFilter;
use longshore_core::error_shape::group_id;
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Invalid;
use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{JobFilter, JobQuery, Store, StoreError};

use crate::convert::shared;

/// Fewest rows of a page: a filter by group checks many for one match.
const ROWS_MIN: usize = 100;
/// Pages that one selection reads.
const PAGES_MAX: usize = 10;
/// Digits of a group id.
const GROUP_DIGITS: usize = 16;

/// A filter that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    filter: JobFilter,
    group: Option<String>,
}

/// Selected jobs, newest first.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) jobs: Vec<Arc<Job>>,
    /// Where the next selection begins.
    pub(crate) before: Seq,
    pub(crate) is_last: bool,
}

impl Selection {
    pub(crate) fn parse(filter: OperationFilter) -> Result<Self, Invalid> {
        let OperationFilter { queue, state, job_type, tag, error_code, group } = filter;
        let mut states: Vec<StateKind> = state.into_iter().flat_map(|states| states.0).collect();
        if let Some(group) = &group {
            let is_id = group.len() == GROUP_DIGITS && group.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
            if !is_id {
                return Err(Invalid::new("filter.group", "must be the id of a group: 16 hexadecimal digits"));
            }
            if states.iter().any(|state| *state != StateKind::DeadLetter) {
                return Err(Invalid::new("filter.state", "must be \"dead_letter\" beside a group of dead letters"));
            }
            states = vec![StateKind::DeadLetter];
        }
        let filter = JobFilter {
            queue: queue.as_deref().map(QueueName::new).transpose().map_err(|invalid| invalid.at("filter.queue"))?,
            states: states.into_iter().collect(),
            job_type: job_type.as_deref().map(JobType::new).transpose().map_err(|invalid| invalid.at("filter.type"))?,
            tag: shared(tag),
            error_code: shared(error_code),
            ..JobFilter::default()
        };
        if filter.is_empty() {
            return Err(Invalid::new("filter", "must select jobs: set at least one field"));
        }
        Ok(Self { filter, group })
    }

    pub(crate) fn queue(&self) -> Option<&QueueName> {
        self.filter.queue.as_ref()
    }

    fn matches(&self, job: &Job) -> bool {
        let Some(group) = &self.group else { return self.filter.matches(job) };
        let error = job.error.as_deref();
        let code = error.and_then(|error| error.code.as_deref()).unwrap_or_default();
        let message = error.map(|error| &*error.message).unwrap_or_default();
        self.filter.matches(job) && group_id(code, message) == *group
    }

    /// Returns the highest sequence number of a job that the operation may treat.
    pub(crate) async fn last(&self, store: &dyn Store) -> Result<Option<Seq>, StoreError> {
        let filter = JobFilter { queue: self.filter.queue.clone(), ..JobFilter::default() };
        let mut before = None;
        loop {
            let page = store.list(JobQuery { filter: filter.clone(), limit: 1, before }).await?;
            match (page.jobs.first(), page.next) {
                (Some(job), _) => return Ok(Some(job.seq)),
                (None, None) => return Ok(None),
                (None, next) => before = next,
            }
        }
    }

    /// Returns the number of matching jobs, if the store keeps it: for a filter of queue and
    /// states.
    pub(crate) async fn counter(&self, store: &dyn Store) -> Result<Option<u64>, StoreError> {
        let kept = JobFilter { queue: self.filter.queue.clone(), states: self.filter.states, ..JobFilter::default() };
        if self.group.is_some() || kept != self.filter {
            return Ok(None);
        }
        let queues = match &self.filter.queue {
            Some(queue) => store.queue(queue.clone()).await?.into_iter().collect(),
            None => store.queues().await?,
        };
        let count = |state| queues.iter().map(|queue| count_of(&queue.counts, state)).sum::<u64>();
        Ok(Some(self.filter.states.admitted().map(count).sum()))
    }

    /// Selects at most `limit` jobs with lower sequence numbers than `before`. The work is bounded,
    /// so there may be fewer although it is not the last selection.
    pub(crate) async fn select(&self, store: &dyn Store, before: Seq, limit: usize) -> Result<Selected, StoreError> {
        let mut selected = Selected { jobs: Vec::new(), before, is_last: false };
        for _ in 0..PAGES_MAX {
            let rows = limit.clamp(ROWS_MIN, BATCH_ITEMS_MAX);
            let query = JobQuery { filter: self.filter.clone(), limit: rows, before: Some(selected.before) };
            let page = store.list(query).await?;
            for job in page.jobs.into_iter().filter(|job| self.matches(job)) {
                if selected.jobs.len() == limit {
                    return Ok(selected);
                }
                selected.before = job.seq;
                selected.jobs.push(job);
            }
            match page.next {
                Some(next) => selected.before = next,
                None => {
                    selected.is_last = true;
                    return Ok(selected);
                }
            }
            if selected.jobs.len() == limit {
                break;
            }
        }
        Ok(selected)
    }

    /// Counts matching jobs in at most so many pages. Returns where the count continues; `None`: it
    /// is complete.
    pub(crate) async fn count(
        &self,
        store: &dyn Store,
        mut before: Seq,
        pages: usize,
    ) -> Result<(u64, Option<Seq>), StoreError> {
        let mut matched = 0;
        for _ in 0..pages {
            let query = JobQuery { filter: self.filter.clone(), limit: BATCH_ITEMS_MAX, before: Some(before) };
            let page = store.list(query).await?;
            matched += page.jobs.iter().filter(|job| self.matches(job)).count() as u64;
            match page.next {
                Some(next) => before = next,
                None => return Ok((matched, None)),
            }
        }
        Ok((matched, Some(before)))
    }
}
