//! `/job/{id}` and `/tag/{tag}`: read jobs, change status and output, heartbeat, delete.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use longshore_core::cancel::Force;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::ocypod::status::{Status, StatusChange};
use longshore_core::policy::Fencing;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::tags::Tags;
use longshore_core::view;
use longshore_engine::{AdminCommand, Heartbeat};
use longshore_store::{JobFilter, JobQuery, JobRef};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;

use super::job::{Field, OcypodJob};
use super::request::{OcypodRequest, payload_max};
use super::response::{OcypodError, OcypodResult, no_content, ok};
use crate::convert::raw;
use crate::state::AppState;

/// `GET /job/{id}`
pub(super) async fn get(call: OcypodRequest) -> OcypodResult {
    let (app, id) = (&call.app, call.job()?);
    let fields = Field::parse(call.query())?;
    let job = find(app, id).await?;
    let payload = if fields.contains(&Field::Input) {
        app.call_store(app.store.payloads(vec![job.seq])).await?.into_iter().next().flatten()
    } else {
        None
    };
    ok(&OcypodJob { job: &job, payload: payload.as_ref(), fields: &fields })
}

/// `GET /job/{id}/status`
pub(super) async fn status(call: OcypodRequest) -> OcypodResult {
    let job = find(&call.app, call.job()?).await?;
    ok(&Status::of(&job).as_str())
}

/// `GET /job/{id}/output`
pub(super) async fn get_output(call: OcypodRequest) -> OcypodResult {
    let job = find(&call.app, call.job()?).await?;
    ok(&view::ocypod(&job, None).output.as_ref().map(raw::to_raw_json))
}

/// `PUT /job/{id}/output`: any JSON value, also `null`.
pub(super) async fn put_output(call: OcypodRequest) -> OcypodResult {
    let (app, id) = (call.app.clone(), call.job()?);
    let bytes_max = output_max(&app, id).await?;
    let output = call.json_around(bytes_max)?.value()?;
    change_status(&app, id, StatusChange { status: None, output: Some(output) }).await
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PatchBody<'a> {
    status: Option<StatusName>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

struct StatusName(Status);

impl<'de> Deserialize<'de> for StatusName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StatusVisitor;

        impl Visitor<'_> for StatusVisitor {
            type Value = StatusName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of")?;
                Status::ALL.iter().try_for_each(|status| write!(f, " `{status}`"))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<StatusName, E> {
                // Older documentation says `created` for `queued`.
                let status = if word == "created" { Some(Status::Queued) } else { Status::parse(word) };
                status.map(StatusName).ok_or_else(|| {
                    E::custom(format_args!("unknown variant, expected {}", &self as &dyn serde::de::Expected))
                })
            }
        }

        deserializer.deserialize_str(StatusVisitor)
    }
}

/// `PATCH /job/{id}`: changes status, output, or both. An empty change succeeds for any id.
pub(super) async fn patch(call: OcypodRequest) -> OcypodResult {
    let (app, id) = (call.app.clone(), call.job()?);
    let bytes_max = output_max(&app, id).await?;
    let body = call.json_around(bytes_max)?;
    let PatchBody { status, output } = body.object()?;
    let change = StatusChange {
        status: status.map(|StatusName(status)| status),
        output: output.map(|output| Bytes::copy_from_slice(output.get().as_bytes())),
    };
    if change == StatusChange::default() {
        return no_content();
    }
    change_status(&app, id, change).await
}

async fn change_status(app: &AppState, id: Seq, change: StatusChange) -> OcypodResult {
    let job = find(app, id).await?;
    match app.call_store(app.store.admin(AdminCommand::ChangeStatus { id: job.id, change })).await? {
        Ok(_) => no_content(),
        Err(refusal) => Err(OcypodError::refused(refusal, &job.queue, Some(id))),
    }
}

/// Returns the size limit of a job's output, which is the payload limit of its queue.
async fn output_max(app: &AppState, id: Seq) -> Result<u32, OcypodError> {
    let Some(job) = find_optional(app, id).await? else { return Ok(payload_max()) };
    let queue = app.call_store(app.store.queue(job.queue.clone())).await?;
    Ok(queue.map_or(payload_max(), |report| report.queue.admission.payload_max))
}

/// `PUT /job/{id}/heartbeat`: the body is ignored.
pub(super) async fn heartbeat(call: OcypodRequest) -> OcypodResult {
    let (app, id) = (&call.app, call.job()?);
    let job = find(app, id).await?;
    // Ocypod has no lease tokens: a heartbeat renews the current lease.
    let token = match job.policy.fencing {
        Fencing::Optional => None,
        Fencing::Required => job.state.lease().map(|lease| lease.token),
    };
    let heartbeat = Heartbeat { id: job.id, token, notes: HeartbeatData::default() };
    let verdicts = app.call_store(app.store.heartbeat(vec![heartbeat])).await?;
    match verdicts.into_iter().next() {
        Some(Ok(_)) => no_content(),
        Some(Err(Refusal::JobNotFound)) => Err(OcypodError::no_job(id)),
        Some(Err(Refusal::StaleLease(_))) | None => {
            Err(OcypodError::conflict(format!("Cannot heartbeat job {id}, job is not running")))
        }
        Some(Err(refusal)) => Err(refusal.into()),
    }
}

/// A concurrent request may requeue the job between cancel and delete.
const DELETE_TRIES_MAX: usize = 10;

/// `DELETE /job/{id}`: cancels a job that has not ended, then deletes it.
pub(super) async fn delete(call: OcypodRequest) -> OcypodResult {
    let not_found = || OcypodError::empty_body(StatusCode::NOT_FOUND);
    let (app, id) = (&call.app, call.job()?);
    let id = find_optional(app, id).await?.ok_or_else(not_found)?.id;
    for _ in 0..DELETE_TRIES_MAX {
        match app.call_store(app.store.admin(AdminCommand::Delete { id })).await? {
            Ok(_) => {
                app.dead_letters.on_delete(id);
                return no_content();
            }
            Err(Refusal::JobNotFound) => return Err(not_found()),
            Err(Refusal::IllegalTransition { .. }) => {}
            // A job of another queue depends on it.
            Err(refusal) => return Err(refusal.into()),
        }
        // A refusal means that the job has ended meanwhile.
        drop(app.call_store(app.store.admin(AdminCommand::Cancel { id, reason: None, force: Force::Now })).await?);
    }
    Err(OcypodError::conflict("the job is being changed by concurrent requests"))
}

/// Whether the job belongs to Ocypod. Its queue may be deleted.
pub(super) fn is_ocypod_job(job: &Job) -> bool {
    job.policy.profile == Profile::Ocypod
}

async fn find_optional(app: &AppState, id: Seq) -> Result<Option<Arc<Job>>, OcypodError> {
    let jobs = app.call_store(app.store.get(vec![JobRef::Seq(id)])).await?;
    Ok(jobs.into_iter().next().flatten().filter(|job| is_ocypod_job(job)))
}

async fn find(app: &AppState, id: Seq) -> Result<Arc<Job>, OcypodError> {
    find_optional(app, id).await?.ok_or_else(|| OcypodError::no_job(id))
}

/// Calls `visit` for every job that matches, newest first.
pub(super) async fn for_each_job(
    app: &AppState,
    filter: JobFilter,
    mut visit: impl FnMut(&Job),
) -> Result<(), OcypodError> {
    let mut query = JobQuery { filter, limit: BATCH_ITEMS_MAX, before: None };
    loop {
        let page = app.call_store(app.store.list(query.clone())).await?;
        page.jobs.iter().for_each(|job| visit(job));
        match page.next {
            Some(next) => query.before = Some(next),
            None => return Ok(()),
        }
    }
}

/// `GET /tag/{tag}`: ids of jobs with a tag, oldest first.
pub(super) async fn tag(call: OcypodRequest) -> OcypodResult {
    let tag: Arc<str> = call.param()?.into();
    let filter = JobFilter { tag: Some(Arc::clone(&tag)), ..JobFilter::default() };
    let mut ids = Vec::new();
    for_each_job(&call.app, filter, |job| {
        if is_ocypod_job(job) && has_tag(&job.tags, &tag) {
            ids.push(job.seq.0);
        }
    })
    .await?;
    ids.reverse();
    ok(&ids)
}

/// The store's filter also matches `key:value`, which Ocypod does not have.
fn has_tag(tags: &Tags, tag: &str) -> bool {
    tags.pairs().any(|(key, _)| key == tag)
}
