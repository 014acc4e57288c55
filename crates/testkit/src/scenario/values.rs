//! Durations, timestamps and other values of scenarios.

use crate::target::Millis;

const UNITS: [(&str, Millis); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

pub(super) const STATES: [&str; 9] =
    ["pending", "scheduled", "delayed", "running", "retrying", "completed", "failed", "dead_letter", "cancelled"];

/// The error codes of api.md that a command can be refused with.
pub(super) const CODES: [&str; 16] = [
    "bad_request",
    "validation",
    "dependency_cycle",
    "dependency_unknown",
    "dependency_depth",
    "dependency_breadth",
    "queue_not_found",
    "job_not_found",
    "workflow_not_found",
    "not_found",
    "stale_lease",
    "illegal_transition",
    "duplicate_id",
    "payload_too_large",
    "queue_full",
    "rate_limited",
];

pub(super) const PRIORITIES: [&str; 5] = ["critical", "high", "normal", "low", "bulk"];

pub(super) const PROFILES: [&str; 6] = ["standard", "gopherqueue", "taskharbor", "ocypod", "weave", "document"];

/// Every settings path of api.md. Any other path is a typing error in the scenario.
pub(super) const SETTINGS: [&str; 38] = [
    "retry.limit",
    "retry.counts",
    "retry.backoff.kind",
    "retry.backoff.base",
    "retry.backoff.multiplier",
    "retry.backoff.cap",
    "retry.backoff.delays",
    "retry.jitter.kind",
    "retry.jitter.factor",
    "retry.honour_retry_after",
    "retry.on_permanent",
    "retry.on_exhausted",
    "retry.on_timeout",
    "retry.on_system",
    "execution_timeout",
    "lease",
    "on_lease_expiry",
    "max_reclaims",
    "reclaim",
    "fencing",
    "idempotency.scope",
    "idempotency.window",
    "external_ids",
    "lifetime",
    "retention.completed",
    "retention.failed",
    "retention.dead_letter",
    "retention.cancelled",
    "payload_max",
    "priority_order",
    "requeue_order",
    "submit",
    "delayed_start",
    "manual_requeue",
    "cancel_running",
    "clear_error_on_success",
    "max_queued",
    "wait_target",
];

/// `1h15m5s`, `500ms`, `0s`.
pub(super) fn duration(text: &str) -> Result<Millis, String> {
    let complaint = || format!("`{text}` is no duration (like 30s, 1h15m, 500ms)");
    let mut total: Millis = 0;
    let mut rest = text;
    if rest.is_empty() {
        return Err(complaint());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(complaint)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (name, tail) = tail.split_at(unit);
        let number: Millis = number.parse().map_err(|_| complaint())?;
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == name).ok_or_else(complaint)?;
        total = number.checked_mul(*factor).and_then(|n| n.checked_add(total)).ok_or_else(complaint)?;
        rest = tail;
    }
    Ok(total)
}

/// The inverse of [`duration`].
pub(super) fn show_duration(millis: Millis) -> String {
    let mut rest = millis.unsigned_abs();
    let mut text = if millis < 0 { "-".to_owned() } else { String::new() };
    for (unit, factor) in UNITS {
        let factor = factor.unsigned_abs();
        if rest >= factor {
            text.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if millis == 0 { "0s".to_owned() } else { text }
}

/// Formats a timestamp as a signed offset from the start of the scenario.
pub(super) fn show_offset(millis: Millis) -> String {
    if millis < 0 { show_duration(millis) } else { format!("+{}", show_duration(millis)) }
}

pub(super) fn offset(text: &str) -> Result<Millis, String> {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => duration(rest),
        (_, Some(rest)) => duration(rest).map(|d| -d),
        _ => Err(format!("`{text}` is no instant: write +30s, counted from the start of the story")),
    }
}

pub(super) fn priority(text: &str) -> Result<i64, String> {
    let by_name = PRIORITIES.iter().position(|name| *name == text);
    // Numbers out of range are passed on: the target must refuse them.
    by_name
        .and_then(|index| i64::try_from(index).ok())
        .or_else(|| text.parse().ok())
        .ok_or_else(|| format!("`{text}` is no priority"))
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// `tenant:acme,urgent`: keys with or without a value.
pub(super) fn tags(text: &str) -> std::collections::BTreeMap<String, Option<String>> {
    text.split(',')
        .filter(|tag| !tag.is_empty())
        .map(|tag| match tag.split_once(':') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (tag.to_owned(), None),
        })
        .collect()
}

/// Bounds loops, ranges and repetitions, so that a typing error does not exhaust the memory.
pub(super) const UNFOLDED_MAX: usize = 100_000;
/// More than any queue accepts, so that "too large" can be tested.
const PAYLOAD_BYTES_MAX: usize = 32 << 20;

pub(super) fn payload_bytes(text: &str) -> Result<usize, String> {
    let bytes = number(text)?;
    if bytes > PAYLOAD_BYTES_MAX {
        Err(format!("a payload here has at most {PAYLOAD_BYTES_MAX} bytes"))
    } else {
        Ok(bytes)
    }
}

/// `j1..j4` stands for j1 j2 j3 j4; any other word for itself.
pub(super) fn name_range(text: &str) -> Result<Vec<String>, String> {
    fn numbered(name: &str) -> Option<(&str, usize)> {
        let at = name.rfind(|c: char| !c.is_ascii_digit())? + 1;
        let (stem, number) = name.split_at(at);
        Some((stem, number.parse().ok()?))
    }
    let ends = text.split_once("..").and_then(|(a, b)| Some((numbered(a)?, numbered(b)?)));
    match ends {
        Some(((stem, from), (other, to))) if stem == other && to.saturating_sub(from) >= UNFOLDED_MAX => {
            Err(format!("`{text}` stands for more than {UNFOLDED_MAX} names"))
        }
        Some(((stem, from), (other, to))) if stem == other => Ok((from..=to).map(|n| format!("{stem}{n}")).collect()),
        _ => Ok(vec![text.to_owned()]),
    }
}
