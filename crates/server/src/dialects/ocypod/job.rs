//! The JSON of a job: 17 fields, or those of `?fields=`, in that order.

use std::borrow::Cow;

use longshore_core::job::Job;
use longshore_core::submit::Payload;
use longshore_core::view;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::duration::OcypodDuration;
use super::response::OcypodError;
use super::settings::{delays, retries};
use crate::convert::{raw, time, times};
use longshore_core::ocypod::status::Status;

macro_rules! fields {
    ($($variant:ident = $name:literal),+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field { $($variant),+ }

        impl Field {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

fields!(
    Id = "id",
    Queue = "queue",
    Status = "status",
    Tags = "tags",
    CreatedAt = "created_at",
    StartedAt = "started_at",
    EndedAt = "ended_at",
    LastHeartbeat = "last_heartbeat",
    Input = "input",
    Output = "output",
    Timeout = "timeout",
    HeartbeatTimeout = "heartbeat_timeout",
    ExpiresAfter = "expires_after",
    Retries = "retries",
    RetriesAttempted = "retries_attempted",
    RetryDelays = "retry_delays",
    Ended = "ended"
);

impl Field {
    /// Parses `?fields=a,b`; returns all fields without it. Other parameters are ignored.
    pub(super) fn parse(query: &str) -> Result<Cow<'static, [Self]>, OcypodError> {
        let pairs = form_urlencoded::parse(query.as_bytes());
        let mut values = pairs.filter(|(name, _)| name == "fields").map(|(_, value)| value);
        let Some(names) = values.next() else { return Ok(Cow::Borrowed(Self::ALL)) };
        if values.next().is_some() {
            let text = "Query deserialize error: duplicate field `fields`";
            return Err(OcypodError::unreadable(axum::http::StatusCode::BAD_REQUEST, text));
        }
        let field = |name: &str| Self::ALL.iter().copied().find(|field| field.name() == name);
        let fields = names.split(',').map(|name| field(name).ok_or_else(|| OcypodError::unknown_field(name)));
        fields.collect::<Result<Vec<_>, _>>().map(Cow::Owned)
    }
}

pub(super) struct OcypodJob<'a> {
    pub job: &'a Job,
    /// Used only for [`Field::Input`].
    pub payload: Option<&'a Payload>,
    pub fields: &'a [Field],
}

impl Serialize for OcypodJob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { job, payload, fields } = *self;
        let view = view::ocypod(job, None);
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for field in fields {
            let name = field.name();
            match field {
                Field::Id => map.serialize_entry(name, &view.id.0)?,
                Field::Queue => map.serialize_entry(name, view.queue.as_str())?,
                Field::Status => map.serialize_entry(name, Status::of(job).as_str())?,
                Field::Tags => map.serialize_entry(name, &view.tags)?,
                Field::CreatedAt => map.serialize_entry(name, &time(view.created_at))?,
                Field::StartedAt => map.serialize_entry(name, &times(view.started_at))?,
                Field::EndedAt => map.serialize_entry(name, &times(view.ended_at))?,
                Field::LastHeartbeat => map.serialize_entry(name, &times(view.last_heartbeat))?,
                Field::Input => map.serialize_entry(name, &input(payload))?,
                Field::Output => map.serialize_entry(name, &view.output.as_ref().map(raw::to_raw_json))?,
                Field::Timeout => map.serialize_entry(name, &OcypodDuration::or_zero(view.timeout))?,
                Field::HeartbeatTimeout => {
                    map.serialize_entry(name, &OcypodDuration::or_zero(view.heartbeat_timeout))?;
                }
                Field::ExpiresAfter => map.serialize_entry(name, &OcypodDuration::or_zero(view.expires_after))?,
                Field::Retries => map.serialize_entry(name, &retries(&job.policy.retry))?,
                Field::RetriesAttempted => map.serialize_entry(name, &view.retries_attempted)?,
                Field::RetryDelays => {
                    let delays = delays(&job.policy.retry);
                    map.serialize_entry(name, &Some(delays).filter(|delays| !delays.is_empty()))?;
                }
                Field::Ended => map.serialize_entry(name, &view.ended)?,
            }
        }
        map.end()
    }
}

/// Returns the submitted JSON; `None` for a binary payload.
pub(super) fn input(payload: Option<&Payload>) -> Option<Box<RawValue>> {
    payload.and_then(|payload| raw::payload(payload).0)
}
