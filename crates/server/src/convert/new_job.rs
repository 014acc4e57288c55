//! A job that is handed in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use longshore_api::enums::Priority;
use longshore_api::job::NewJob as WireJob;
use longshore_api::tags::Tags as GivenTags;
use longshore_core::id::{JobId, JobType};
use longshore_core::patch::PolicyPatch;
use longshore_core::refusal::Invalid;
use longshore_core::submit::{DependencyRef, NewJob, Payload, Start};
use longshore_core::tags::Tags;
use longshore_core::trace_context::TraceParent;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::settings::{retention_overrides, retry_overrides};
use super::{instant, raw, shared};
use crate::wire::problem::ItemError;

/// Of a payload that was not given.
const NULL: &[u8] = b"null";

/// What a job says by itself is checked here, as far as the rules do not look at it.
pub(crate) fn read(given: WireJob) -> Result<NewJob, ItemError> {
    let payload = match (given.payload, given.payload_base64) {
        (None, None) => Payload::Json(Bytes::from_static(NULL)),
        (Some(json), None) => Payload::Json(raw::bytes(json)),
        (None, Some(text)) => {
            let wrong = || ItemError::validation("payload_base64", "must be base64 with padding");
            Payload::Binary(raw::from_base64(&text).ok_or_else(wrong)?)
        }
        (Some(_), Some(_)) => return Err(ItemError::validation("payload_base64", "goes without payload")),
    };
    let mut job = NewJob::new(JobType::new(&given.job_type)?, payload);
    if let Some(priority) = given.priority {
        job.priority = priority;
    }
    job.start = match (given.run_at, given.delay) {
        (None, None) => Start::Now,
        (Some(at), None) => Start::At(instant(at)),
        (None, Some(delay)) => Start::In(delay),
        (Some(_), Some(_)) => return Err(ItemError::validation("delay", "goes without run_at")),
    };
    job.idempotency_key = shared(given.idempotency_key);
    job.external_id = shared(given.external_id);
    job.tags = tags(given.tags)?;
    job.correlation_id = shared(given.correlation_id);
    job.callback_url = shared(given.callback_url);
    job.traceparent = given.traceparent.map(|text| TraceParent::parse_field(&text)).transpose()?.map(Box::new);
    job.after = dependencies(given.after.as_deref());
    job.after_any = dependencies(given.after_any.as_deref());
    job.reference = shared(given.reference);
    job.hold = given.hold;
    job.policy = PolicyPatch {
        retry: retry_overrides(given.retry),
        execution_timeout: given.execution_timeout,
        lease: given.lease,
        lifetime: given.lifetime,
        retention: retention_overrides(given.retention),
        max_reclaims: given.max_reclaims,
    };
    Ok(job)
}

/// The fields that most jobs have, borrowed from the body. A job with other fields is a
/// [`WireJob`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlainJob<'a> {
    #[serde(rename = "type", borrow)]
    job_type: Cow<'a, str>,
    #[serde(default, borrow, deserialize_with = "any_json")]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    priority: Option<Priority>,
    #[serde(default, borrow)]
    idempotency_key: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    correlation_id: Option<Cow<'a, str>>,
}

/// Reads JSON of a user: an explicit `null` is a value.
fn any_json<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Returns the same job as [`read`] for the same JSON.
pub(crate) fn read_plain(given: &PlainJob<'_>) -> Result<NewJob, Invalid> {
    let payload = given.payload.map_or(Bytes::from_static(NULL), |json| Bytes::copy_from_slice(json.get().as_bytes()));
    let mut job = NewJob::new(JobType::new(&given.job_type)?, Payload::Json(payload));
    job.priority = given.priority.unwrap_or(job.priority);
    job.idempotency_key = given.idempotency_key.as_deref().map(Arc::from);
    job.correlation_id = given.correlation_id.as_deref().map(Arc::from);
    Ok(job)
}

pub(crate) fn tags(given: Option<GivenTags>) -> Result<Tags, Invalid> {
    let tags = match given {
        None => Tags::None,
        // No tags are no tags, however they are written.
        Some(GivenTags::Map(map)) if map.is_empty() => Tags::None,
        Some(GivenTags::List(list)) if list.is_empty() => Tags::None,
        Some(GivenTags::Map(map)) => {
            let pair = |(key, value): (String, Option<String>)| (key.into(), value.map(Arc::from));
            Tags::Map(map.into_iter().map(pair).collect::<BTreeMap<_, _>>())
        }
        Some(GivenTags::List(list)) => Tags::List(list.into_iter().map(Arc::from).collect()),
    };
    tags.validate_strict()?;
    Ok(tags)
}

pub(crate) fn dependencies(given: Option<&[String]>) -> Vec<DependencyRef> {
    let reference = |text: &String| match text.strip_prefix('#') {
        Some(name) => DependencyRef::Local(name.into()),
        // What is no id is the id of no job.
        None => DependencyRef::Job(text.parse().unwrap_or_else(|_| nil_job_id())),
    };
    given.unwrap_or_default().iter().map(reference).collect()
}

fn nil_job_id() -> JobId {
    JobId::from_bytes([0; 16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::valid_object;

    fn shown(job: &NewJob) -> String {
        format!("{job:?} {:?}", job.payload.bytes())
    }

    #[test]
    fn a_plain_job_is_read_as_any_job() {
        let jobs = [
            r#"{"type":"a"}"#,
            r#" { "type" : "a\u00e4" , "correlation_id": "\n", "payload" : null } "#,
            r#"{"type":"a","payload": {"b": [1, 2]} ,"priority":"low"}"#,
            r#"{"type":"a","payload":"\"","priority":0,"idempotency_key":"k","correlation_id":"c\\"}"#,
            r#"{"type":"a","priority":null,"idempotency_key":null,"correlation_id":null}"#,
            r#"{"type":"a","idempotency_key":""}"#,
        ];
        for json in jobs {
            let plain = read_plain(&valid_object(json).expect(json)).unwrap();
            assert_eq!(shown(&plain), shown(&read(valid_object(json).expect(json)).unwrap()), "{json}");
        }
    }

    #[test]
    fn other_fields_and_invalid_jobs_are_not_plain() {
        let others = [
            r#"{"type":"a","delay":"1s"}"#,
            r#"{"type":"a","payload_base64":""}"#,
            r#"{"type":"a","type":"a"}"#,
            r#"{"payload":1}"#,
            r#"{"type":"a","priority":"urgent"}"#,
            r#"["a"]"#,
            r#"{"type":"a"}x"#,
        ];
        for json in others {
            assert!(valid_object::<PlainJob<'_>>(json).is_none(), "{json}");
        }
    }
}
