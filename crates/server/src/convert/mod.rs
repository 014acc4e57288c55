//! Conversion between wire types and core types.

pub(crate) mod claimed;
pub(crate) mod enums;
pub(crate) mod job;
pub(crate) mod new_job;
pub(crate) mod queue;
pub(crate) mod raw;
pub(crate) mod settings;
pub(crate) mod settlement;
pub(crate) mod view;

use std::sync::Arc;

use longshore_api::{Duration as WireDuration, Time};
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

pub(crate) fn length(length: WireDuration) -> Duration {
    Duration::from_millis(length.0)
}

/// "Off" is `0s` on the wire.
pub(crate) fn wire_duration(length: Option<Duration>) -> WireDuration {
    WireDuration(length.unwrap_or_default().as_millis())
}

pub(crate) fn text(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|text| text.to_string())
}

pub(crate) fn shared(text: Option<String>) -> Option<Arc<str>> {
    text.map(Arc::from)
}
