//! Conversion between wire types and core types.

pub(crate) mod claimed;
pub(crate) mod job;
pub(crate) mod new_job;
pub(crate) mod queue;
pub(crate) mod raw;
pub(crate) mod settings;
pub(crate) mod settlement;
pub(crate) mod view;
pub(crate) mod why;

use std::sync::Arc;

use longshore_api::Time;
use longshore_core::{Duration, Timestamp};

pub(crate) fn time(at: Timestamp) -> Time {
    Time(at.as_millis())
}

pub(crate) fn instant(time: Time) -> Timestamp {
    Timestamp::from_millis(time.0)
}

pub(crate) fn times(at: Option<Timestamp>) -> Option<Time> {
    at.map(time)
}

/// "Off" is `0s` on the wire.
pub(crate) fn wire_duration(duration: Option<Duration>) -> Duration {
    duration.unwrap_or_default()
}

pub(crate) fn text(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|text| text.to_string())
}

pub(crate) fn shared(text: Option<String>) -> Option<Arc<str>> {
    text.map(Arc::from)
}
