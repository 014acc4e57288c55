//! Checks of a new job by itself: words, ranges, lengths.

use std::collections::BTreeMap;

use super::rules::{DURATION_MAX, Refusal, Scope, VALIDATION, job_rules};
use super::submit::Batch;
use crate::target::NewJob;

const NORMAL: u8 = 2;

/// Returns the key. An empty key counts as none.
pub(super) fn usable_key(member: &NewJob) -> Option<&str> {
    member.idempotency_key.as_deref().filter(|key| !key.is_empty())
}

pub(super) fn check_fields(batch: &Batch, index: usize) -> Result<(), Refusal> {
    let member = batch.members[index];
    let rules = &batch.rules;
    let at_most = |text: &Option<String>, most: usize| text.as_ref().is_none_or(|text| text.chars().count() <= most);
    let repeated_reference =
        member.reference.is_some() && batch.members[..index].iter().any(|other| other.reference == member.reference);
    let delayed = member.run_at.is_some() || member.delay.is_some_and(|delay| delay > 0);
    let valid = is_type(&member.job_type)
        && member.priority.is_none_or(is_priority)
        && !(member.run_at.is_some() && member.delay.is_some())
        && member.delay.is_none_or(|delay| (0..=DURATION_MAX).contains(&delay))
        && (rules.delayed_start || !delayed)
        && at_most(&member.idempotency_key, 256)
        && (usable_key(member).is_none() || rules.scope != Scope::Off)
        && member.external_id.as_ref().is_none_or(|id| rules.external_ids && !id.is_empty())
        && at_most(&member.external_id, 256)
        && are_tags(&member.tags)
        && at_most(&member.correlation_id, 256)
        && member.callback_url.as_deref().is_none_or(is_callback_url)
        && member.traceparent.as_deref().is_none_or(is_traceparent)
        && !repeated_reference;
    if !valid {
        return Err(VALIDATION);
    }
    job_rules(rules, batch.profile, &member.settings)?;
    if member.payload_bytes > rules.payload_max { Err("payload_too_large") } else { Ok(()) }
}

/// A URL of http or https with a host, at most 2,048 characters, without user info and fragment.
pub(crate) fn is_callback_url(url: &str) -> bool {
    let lower = url.to_ascii_lowercase();
    let Some(rest) = ["http://", "https://"].into_iter().find_map(|scheme| lower.strip_prefix(scheme)) else {
        return false;
    };
    let host: String = rest.chars().take_while(|c| !"/?".contains(*c)).collect();
    url.chars().count() <= 2_048
        && !host.is_empty()
        && !host.starts_with(':')
        && !host.contains('@')
        && !url.contains(['#', '\\', ' '])
}

/// `00-`, a trace id, a span id and flags in lower-case hex; the ids are not all zeroes.
fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &&str| part.chars().all(|c| "0123456789abcdef".contains(c));
    let parts: Vec<&str> = text.split('-').filter(is_hex).collect();
    let is_id = |part: &str, digits: usize| part.len() == digits && part.chars().any(|c| c != '0');
    match parts[..] {
        ["00", trace, span, flags] => text.len() == 55 && is_id(trace, 32) && is_id(span, 16) && flags.len() == 2,
        _ => false,
    }
}

pub(crate) fn is_priority(level: i64) -> bool {
    (0..=4).contains(&level)
}

/// Returns a priority that was checked before.
pub(crate) fn priority_or_normal(level: Option<i64>) -> u8 {
    level.and_then(|level| u8::try_from(level).ok()).unwrap_or(NORMAL)
}

pub(crate) fn is_type(text: &str) -> bool {
    (1..=256).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-:".contains(c);
    (1..=128).contains(&text.chars().count()) && text.chars().all(allowed)
}

pub(crate) fn are_tags(tags: &BTreeMap<String, Option<String>>) -> bool {
    let short = |value: &Option<String>| {
        value.as_ref().is_none_or(|value| value.chars().count() <= 256 && !value.contains('\0'))
    };
    tags.len() <= 64 && tags.iter().all(|(key, value)| is_name(key) && short(value))
}
