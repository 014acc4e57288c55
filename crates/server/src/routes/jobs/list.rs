//! `GET /v1/jobs`

use axum::extract::State;
use bytes::Bytes;
use longshore_api::enums::{Priority, State as Word};
use longshore_api::job::Jobs;
use longshore_api::states::States;
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::limits::{
    BATCH_ITEMS_MAX, CORRELATION_ID_CHARS_MAX, ERROR_CODE_CHARS_MAX, EXTERNAL_ID_CHARS_MAX, IDEMPOTENCY_KEY_CHARS_MAX,
};
use longshore_store::{JobFilter, JobQuery, Page};

use super::fields::{Fields, SelectedRows};
use crate::app::AppState;
use crate::convert::enums::ToCore;
use crate::convert::instant;
use crate::convert::job::record;
use crate::wire::answer::{Answer, ok};
use crate::wire::problem::ApiError;
use crate::wire::query::Query;

/// Rows of a page, unless said otherwise.
const LIMIT_DEFAULT: usize = 100;

pub(crate) async fn list(State(app): State<AppState>, mut query: Query) -> Answer {
    let filter = read_filter(&mut query)?;
    let workflow = query.take("workflow").map(|id| id.parse());
    let fields = Fields::read(&mut query)?;
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let before = query.cursor()?;
    query.end()?;
    let page = match workflow.transpose() {
        Ok(workflow) => rows(&app, JobFilter { workflow, ..filter }, limit, before).await?,
        // What is no id is the id of no workflow.
        Err(_) => Page { jobs: Vec::new(), next: None },
    };
    let (jobs, next) = (page.jobs.iter().map(|job| record(job)), page.next.map(|seq| seq.to_string()));
    match fields {
        None => ok(&Jobs { jobs: jobs.collect(), next }),
        Some(fields) => ok(&SelectedRows { jobs: jobs.map(|job| fields.of(&job)).collect::<Result<_, _>>()?, next }),
    }
}

/// All but the workflow.
fn read_filter(query: &mut Query) -> Result<JobFilter, ApiError> {
    let states = match query.take("state").map(|text| text.parse()) {
        None => Vec::new(),
        Some(Ok(States(states))) => states,
        Some(Err(_)) => return Err(ApiError::not_some_of("state", Word::WORDS)),
    };
    Ok(JobFilter {
        queue: query.take("queue").map(|name| QueueName::new(&name)).transpose()?,
        states: states.into_iter().map(ToCore::core).collect(),
        job_type: query.take("type").map(|name| JobType::new(&name)).transpose()?,
        tag: query.take("tag").map(Into::into),
        priority: priority(query)?.map(ToCore::core),
        error_code: query.text("error_code", ERROR_CODE_CHARS_MAX)?,
        workflow: None,
        external_id: query.text("external_id", EXTERNAL_ID_CHARS_MAX)?,
        idempotency_key: query.text("idempotency_key", IDEMPOTENCY_KEY_CHARS_MAX)?,
        correlation_id: query.text("correlation_id", CORRELATION_ID_CHARS_MAX)?,
        created_after: query.parse("created_after")?.map(instant),
        created_before: query.parse("created_before")?.map(instant),
    })
}

/// Rows that are asked for at once, and bytes of results and notes after which a page ends early: what jobs carry may be large.
const SLICE: usize = 25;
const PAGE_BYTES_MAX: usize = 16 << 20;

async fn rows(app: &AppState, filter: JobFilter, limit: usize, before: Option<Seq>) -> Result<Page, ApiError> {
    let mut page = Page { jobs: Vec::new(), next: before };
    let mut bytes = 0;
    while page.jobs.len() < limit {
        let slice = SLICE.min(limit - page.jobs.len());
        let query = JobQuery { filter: filter.clone(), limit: slice, before: page.next };
        let found = app.call_store(app.store.list(query)).await?;
        // A short page has cost as much as a page may.
        let short = found.jobs.len() < slice;
        for job in found.jobs {
            bytes += carried(&job);
            if bytes > PAGE_BYTES_MAX && !page.jobs.is_empty() {
                return Ok(page);
            }
            page.next = Some(job.seq);
            page.jobs.push(job);
        }
        page.next = found.next;
        if short || page.next.is_none() {
            break;
        }
    }
    Ok(page)
}

fn carried(job: &Job) -> usize {
    [&job.progress, &job.checkpoint, &job.result].into_iter().flatten().map(Bytes::len).sum()
}

fn priority(query: &mut Query) -> Result<Option<Priority>, ApiError> {
    query.one_of("priority", Priority::WORDS, Priority::parse)
}
