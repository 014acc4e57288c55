//! Expected values, and the fields of a snapshot that they are compared with.

use super::values::{
    PRIORITIES, boolean, duration, number, offset, priority, show_duration, show_offset, tags as parse_tags,
};
use crate::target::{AttemptSnapshot, Handle, JobSnapshot, Millis};
use std::collections::BTreeMap;

type Tags = BTreeMap<String, Option<String>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Priority,
    Flag,
    Time,
    Span,
    Job,
    Tags,
}

/// A value found in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Null,
    Text(String),
    Number(i64),
    Priority(i64),
    Flag(bool),
    Time(Millis),
    Span(Millis),
    Job(Handle),
    Tags(Tags),
}

/// `+30s` counts from the start of the scenario, `now+1s` from the current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instant {
    from_now: bool,
    offset: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Matcher {
    Null,
    /// Anything but null.
    Set,
    Text(String),
    Number(i64, i64),
    Priority(i64),
    Flag(bool),
    Time(Instant, Instant),
    Span(Millis, Millis),
    /// A name that the scenario gave to a job.
    Job(usize),
    Tags(Tags),
}

/// The context for comparing and showing times and names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) start: Millis,
    pub(super) now: Millis,
    pub(super) names: &'a [String],
    pub(super) handles: &'a [Option<Handle>],
    pub(super) workflows: &'a [String],
    pub(super) workflow_handles: &'a [Option<Handle>],
}

impl Instant {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("now") {
            Some("") => Ok(Instant { from_now: true, offset: 0 }),
            Some(rest) => Ok(Instant { from_now: true, offset: offset(rest)? }),
            None => Ok(Instant { from_now: false, offset: offset(text)? }),
        }
    }

    fn at(self, context: Context<'_>) -> Millis {
        self.offset + if self.from_now { context.now } else { context.start }
    }
}

impl Matcher {
    /// `intern` returns the number of a job's name.
    pub(super) fn parse(kind: Kind, text: &str, intern: &mut dyn FnMut(&str) -> usize) -> Result<Self, String> {
        fn range<T: Copy>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<(T, T), String> {
            match text.split_once("..") {
                Some((low, high)) => Ok((one(low)?, one(high)?)),
                None => one(text).map(|value| (value, value)),
            }
        }
        match (text, kind) {
            ("null", _) => Ok(Matcher::Null),
            ("set", _) => Ok(Matcher::Set),
            (_, Kind::Text) => Ok(Matcher::Text(text.to_owned())),
            (_, Kind::Number) => range(text, number).map(|(low, high)| Matcher::Number(low, high)),
            (_, Kind::Priority) => priority(text).map(Matcher::Priority),
            (_, Kind::Flag) => boolean(text).map(Matcher::Flag),
            (_, Kind::Time) => range(text, Instant::parse).map(|(low, high)| Matcher::Time(low, high)),
            (_, Kind::Span) => range(text, duration).map(|(low, high)| Matcher::Span(low, high)),
            (_, Kind::Job) => Ok(Matcher::Job(intern(text))),
            ("none", Kind::Tags) => Ok(Matcher::Tags(Tags::new())),
            (_, Kind::Tags) => Ok(Matcher::Tags(parse_tags(text))),
        }
    }

    pub(super) fn matches(&self, got: &Got, context: Context<'_>) -> bool {
        match (self, got) {
            (Matcher::Null, got) => *got == Got::Null,
            (Matcher::Set, got) => *got != Got::Null,
            (Matcher::Text(want), Got::Text(got)) => want == got,
            (Matcher::Number(low, high), Got::Number(got)) => (low..=high).contains(&got),
            (Matcher::Priority(want), Got::Priority(got)) => want == got,
            (Matcher::Flag(want), Got::Flag(got)) => want == got,
            (Matcher::Time(low, high), Got::Time(got)) => (low.at(context)..=high.at(context)).contains(got),
            (Matcher::Span(low, high), Got::Span(got)) => (low..=high).contains(&got),
            (Matcher::Job(want), Got::Job(got)) => context.handles.get(*want) == Some(&Some(*got)),
            (Matcher::Tags(want), Got::Tags(got)) => want == got,
            _ => false,
        }
    }

    pub(super) fn show(&self, context: Context<'_>) -> String {
        fn between<T: PartialEq + Copy>(low: T, high: T, show: impl Fn(T) -> String) -> String {
            if low == high { show(low) } else { format!("{}..{}", show(low), show(high)) }
        }
        match self {
            Matcher::Null => "null".to_owned(),
            Matcher::Set => "set".to_owned(),
            Matcher::Text(text) => text.clone(),
            Matcher::Number(low, high) => between(*low, *high, |n| n.to_string()),
            Matcher::Priority(priority) => show_priority(*priority),
            Matcher::Flag(flag) => flag.to_string(),
            Matcher::Time(low, high) => {
                between(low.at(context), high.at(context), |at| show_offset(at - context.start))
            }
            Matcher::Span(low, high) => between(*low, *high, show_duration),
            Matcher::Job(name) => context.names.get(*name).cloned().unwrap_or_default(),
            Matcher::Tags(tags) => show_tags(tags),
        }
    }
}

impl Got {
    pub(super) fn show(&self, context: Context<'_>) -> String {
        match self {
            Got::Null => "null".to_owned(),
            Got::Text(text) => text.clone(),
            Got::Number(number) => number.to_string(),
            Got::Priority(priority) => show_priority(*priority),
            Got::Flag(flag) => flag.to_string(),
            Got::Time(at) => show_offset(at - context.start),
            Got::Span(span) => show_duration(*span),
            Got::Job(job) => show_job(*job, context),
            Got::Tags(tags) => show_tags(tags),
        }
    }
}

fn show_priority(priority: i64) -> String {
    let name = usize::try_from(priority).ok().and_then(|index| PRIORITIES.get(index));
    name.map_or_else(|| priority.to_string(), |name| (*name).to_owned())
}

/// Returns the name of a job in this scenario, or its number if it has none.
pub(super) fn show_job(job: Handle, context: Context<'_>) -> String {
    let symbol = context.handles.iter().position(|handle| *handle == Some(job));
    symbol.and_then(|symbol| context.names.get(symbol)).cloned().unwrap_or_else(|| format!("(job {job})"))
}

fn show_tags(tags: &Tags) -> String {
    if tags.is_empty() {
        return "none".to_owned();
    }
    let shown: Vec<String> = tags
        .iter()
        .map(|(key, value)| value.as_ref().map_or_else(|| key.clone(), |value| format!("{key}:{value}")))
        .collect();
    shown.join(",")
}

type Getter = fn(&JobSnapshot) -> Got;

fn text(value: Option<&String>) -> Got {
    value.map_or(Got::Null, |text| Got::Text(text.clone()))
}

fn time(value: Option<Millis>) -> Got {
    value.map_or(Got::Null, Got::Time)
}

fn job(value: Option<Handle>) -> Got {
    value.map_or(Got::Null, Got::Job)
}

fn count(value: impl TryInto<i64>) -> Got {
    Got::Number(value.try_into().unwrap_or(i64::MAX))
}

/// Every field of `expect`, in the order in which differences are reported.
pub(super) const FIELDS: [(&str, Kind, Getter); 43] = [
    ("state", Kind::Text, |s| Got::Text(s.state.clone())),
    ("queue", Kind::Text, |s| Got::Text(s.queue.clone())),
    ("type", Kind::Text, |s| Got::Text(s.job_type.clone())),
    ("priority", Kind::Priority, |s| Got::Priority(s.priority.into())),
    ("effective_priority", Kind::Priority, |s| Got::Priority(s.effective_priority.into())),
    ("starts", Kind::Number, |s| count(s.starts)),
    ("failures", Kind::Number, |s| count(s.failures)),
    ("retries_scheduled", Kind::Number, |s| count(s.retries_scheduled)),
    ("requeues", Kind::Number, |s| count(s.requeues)),
    ("reclaims", Kind::Number, |s| count(s.reclaims)),
    ("lease_version", Kind::Number, |s| count(s.lease_version)),
    ("lease_expires_at", Kind::Time, |s| time(s.lease_expires_at)),
    ("deadline_at", Kind::Time, |s| time(s.deadline_at)),
    ("worker", Kind::Text, |s| text(s.worker.as_ref())),
    ("cancel_requested", Kind::Flag, |s| Got::Flag(s.cancel_requested)),
    ("created_at", Kind::Time, |s| Got::Time(s.created_at)),
    ("updated_at", Kind::Time, |s| Got::Time(s.updated_at)),
    ("run_at", Kind::Time, |s| time(s.run_at)),
    ("scheduled_at", Kind::Time, |s| time(s.scheduled_at)),
    ("started_at", Kind::Time, |s| time(s.started_at)),
    ("first_started_at", Kind::Time, |s| time(s.first_started_at)),
    ("last_heartbeat_at", Kind::Time, |s| time(s.last_heartbeat_at)),
    ("attempt_ended_at", Kind::Time, |s| time(s.attempt_ended_at)),
    ("completed_at", Kind::Time, |s| time(s.completed_at)),
    ("progress", Kind::Text, |s| text(s.progress.as_ref())),
    ("checkpoint", Kind::Text, |s| text(s.checkpoint.as_ref())),
    ("result", Kind::Text, |s| text(s.result.as_ref())),
    ("error", Kind::Text, |s| s.error.as_ref().map_or(Got::Null, |e| Got::Text(e.message.clone()))),
    ("error.category", Kind::Text, |s| text(s.error.as_ref().map(|e| &e.category))),
    ("error.code", Kind::Text, |s| text(s.error.as_ref().and_then(|e| e.code.as_ref()))),
    ("error.message", Kind::Text, |s| text(s.error.as_ref().map(|e| &e.message))),
    ("waiting_on", Kind::Number, |s| count(s.waiting_on)),
    ("parent", Kind::Job, |s| job(s.parent)),
    ("requeued_from", Kind::Job, |s| job(s.requeued_from)),
    ("requeued_as", Kind::Job, |s| job(s.requeued_as)),
    ("tags", Kind::Tags, |s| Got::Tags(s.tags.clone())),
    ("correlation_id", Kind::Text, |s| text(s.correlation_id.as_ref())),
    ("callback_url", Kind::Text, |s| text(s.callback_url.as_ref())),
    ("traceparent", Kind::Text, |s| text(s.traceparent.as_ref())),
    ("idempotency_key", Kind::Text, |s| text(s.idempotency_key.as_ref())),
    ("external_id", Kind::Text, |s| text(s.external_id.as_ref())),
    ("retry.limit", Kind::Number, |s| count(s.retry_limit)),
    ("attempts", Kind::Number, |s| count(s.attempts.len())),
];

type AttemptGetter = fn(&AttemptSnapshot) -> Got;

/// The columns of `attempts`, one value per attempt.
pub(super) const COLUMNS: [(&str, Kind, AttemptGetter); 8] = [
    ("outcomes", Kind::Text, |a| Got::Text(a.outcome.clone().unwrap_or_else(|| "open".to_owned()))),
    ("numbers", Kind::Number, |a| count(a.number)),
    ("versions", Kind::Number, |a| count(a.lease_version)),
    ("workers", Kind::Text, |a| Got::Text(a.worker.clone())),
    ("categories", Kind::Text, |a| text(a.category.as_ref())),
    ("delays", Kind::Span, |a| a.next_delay.map_or(Got::Null, Got::Span)),
    ("starts", Kind::Time, |a| Got::Time(a.started_at)),
    ("ends", Kind::Time, |a| time(a.ended_at)),
];

/// Returns the fields in which two snapshots differ.
pub(super) fn differences(before: &JobSnapshot, after: &JobSnapshot, context: Context<'_>) -> Option<String> {
    if before == after {
        return None;
    }
    let mut found: Vec<String> = FIELDS
        .iter()
        .filter(|(_, _, get)| get(before) != get(after))
        .map(|(name, _, get)| format!("{name} {} → {}", get(before).show(context), get(after).show(context)))
        .collect();
    if before.attempts != after.attempts {
        found.push("the attempts".to_owned());
    }
    if before.history != after.history {
        found.push("the history".to_owned());
    }
    Some(found.join(", "))
}
