//! `GET /v1/jobs`: filter, page, and select fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bytes::Bytes;
use longshore_api::ErrorCode;
use longshore_api::enums::{Priority, State as JobStateName};
use longshore_api::job::{Job as WireJob, Jobs};
use longshore_api::states::States;
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::limits::{
    BATCH_ITEMS_MAX, CORRELATION_ID_CHARS_MAX, ERROR_CODE_CHARS_MAX, EXTERNAL_ID_CHARS_MAX, IDEMPOTENCY_KEY_CHARS_MAX,
};
use longshore_store::{JobFilter, JobQuery, Page};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::PartialSchema;
use utoipa::openapi::{RefOr, Schema};

use super::record::records;
use crate::access::CallerState as State;
use crate::convert::instant;
use crate::state::AppState;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;
use crate::wire::response::{ApiResult, ok};

/// Rows of a page if the query has no limit.
const LIMIT_DEFAULT: usize = 100;

pub(crate) async fn list(State(app): State<AppState>, mut query: Query) -> ApiResult {
    let filter = parse_filter(&mut query)?;
    let workflow = query.take("workflow").map(|id| id.parse());
    let fields = SelectedFields::parse(&mut query)?;
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let before = query.cursor()?;
    query.end()?;
    let page = match workflow.transpose() {
        Ok(workflow) => rows(&app, JobFilter { workflow, ..filter }, limit, before).await?,
        // A malformed id matches no workflow.
        Err(_) => Page { jobs: Vec::new(), next: None },
    };
    let (jobs, next) = (records(&app, &page.jobs).await?, page.next.map(|seq| seq.to_string()));
    match fields {
        None => ok(&Jobs { jobs, next }),
        Some(fields) => {
            ok(&SelectedRows { jobs: jobs.iter().map(|job| fields.select(job)).collect::<Result<_, _>>()?, next })
        }
    }
}

/// Parses all filters but `workflow`.
fn parse_filter(query: &mut Query) -> Result<JobFilter, ApiError> {
    let states = match query.take("state").map(|text| text.parse()) {
        None => Vec::new(),
        Some(Ok(States(states))) => states,
        Some(Err(_)) => return Err(ApiError::not_some_of("state", JobStateName::WORDS)),
    };
    Ok(JobFilter {
        queue: query.take("queue").map(|name| QueueName::new(&name)).transpose()?,
        states: states.into_iter().collect(),
        job_type: query.take("type").map(|name| JobType::new(&name)).transpose()?,
        tag: query.take("tag").map(Into::into),
        priority: priority(query)?,
        error_code: query.text("error_code", ERROR_CODE_CHARS_MAX)?,
        workflow: None,
        external_id: query.text("external_id", EXTERNAL_ID_CHARS_MAX)?,
        idempotency_key: query.text("idempotency_key", IDEMPOTENCY_KEY_CHARS_MAX)?,
        correlation_id: query.text("correlation_id", CORRELATION_ID_CHARS_MAX)?,
        created_after: query.parse("created_after")?.map(instant),
        created_before: query.parse("created_before")?.map(instant),
    })
}

/// Rows that are read from the store at once: progress, checkpoint and result may be large.
const SLICE: usize = 25;
/// A page ends early once its rows have this many bytes.
const PAGE_BYTES_MAX: usize = 16 << 20;

async fn rows(app: &AppState, filter: JobFilter, limit: usize, before: Option<Seq>) -> Result<Page, ApiError> {
    let mut page = Page { jobs: Vec::new(), next: before };
    let mut bytes = 0;
    while page.jobs.len() < limit {
        let slice = SLICE.min(limit - page.jobs.len());
        let query = JobQuery { filter: filter.clone(), limit: slice, before: page.next };
        let slice_page = app.call_store(app.store.list(query)).await?;
        // A short slice has used up the store's limit of scanned rows.
        let is_short = slice_page.jobs.len() < slice;
        for job in slice_page.jobs {
            bytes += data_bytes(&job);
            if bytes > PAGE_BYTES_MAX && !page.jobs.is_empty() {
                return Ok(page);
            }
            page.next = Some(job.seq);
            page.jobs.push(job);
        }
        page.next = slice_page.next;
        if is_short || page.next.is_none() {
            break;
        }
    }
    Ok(page)
}

fn data_bytes(job: &Job) -> usize {
    [&job.progress, &job.checkpoint, &job.result].into_iter().flatten().map(Bytes::len).sum()
}

fn priority(query: &mut Query) -> Result<Option<Priority>, ApiError> {
    query.one_of("priority", Priority::WORDS, Priority::parse)
}

/// Fields that rows of a list never have.
const PAYLOADS: [&str; 2] = ["payload", "payload_base64"];

/// Names of the fields of a record, as in the OpenAPI description.
static FIELD_NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let RefOr::T(Schema::Object(job)) = WireJob::schema() else { return BTreeSet::new() };
    let names = job.properties.into_keys();
    names.filter(|name| !PAYLOADS.contains(&name.as_str())).collect()
});

/// The value of `fields=id,state,…`: what a row of the list contains.
#[derive(Debug)]
struct SelectedFields(BTreeSet<String>);

/// A record with some of its fields; values keep their bytes.
type SelectedRow = BTreeMap<String, Box<RawValue>>;

#[derive(Debug, Serialize)]
struct SelectedRows {
    jobs: Vec<SelectedRow>,
    next: Option<String>,
}

impl SelectedFields {
    /// Returns `None` if the query selects no fields: rows are complete then.
    fn parse(query: &mut Query) -> Result<Option<Self>, ApiError> {
        let Some(text) = query.take("fields") else { return Ok(None) };
        let names: BTreeSet<String> = text.split(',').map(str::to_owned).collect();
        if names.is_subset(&FIELD_NAMES) {
            return Ok(Some(Self(names)));
        }
        let allowed: Vec<&str> = FIELD_NAMES.iter().map(String::as_str).collect();
        Err(ApiError::not_some_of("fields", &allowed))
    }

    fn select(&self, job: &WireJob) -> Result<SelectedRow, ApiError> {
        let row = serde_json::to_string(job).and_then(|text| serde_json::from_str::<SelectedRow>(&text));
        let mut row =
            row.map_err(|_| ApiError::new(ErrorCode::Internal, "internal error: cannot serialize the response"))?;
        row.retain(|name, _| self.0.contains(name));
        Ok(row)
    }
}
