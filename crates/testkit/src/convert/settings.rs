//! Conversion of settings by dotted path to the overrides of `longshore-core`.

use std::str::FromStr;

use longshore_core::backoff::{BackoffKind, JitterKind};
use longshore_core::patch::{PolicyPatch, SettingsPatch};
use longshore_core::policy::*;
use longshore_core::refusal::Invalid;
use longshore_core::time::Duration;

use crate::target::Settings;

pub(super) fn queue_overrides(settings: &Settings) -> Result<SettingsPatch, Invalid> {
    let mut patch = SettingsPatch::default();
    for (path, value) in settings {
        if !set_job_path(&mut patch.job, path, value)? {
            set_queue_path(&mut patch, path, value)?;
        }
    }
    Ok(patch)
}

pub(super) fn job_overrides(settings: &Settings) -> Result<PolicyPatch, Invalid> {
    let mut patch = PolicyPatch::default();
    for (path, value) in settings {
        if !set_job_path(&mut patch, path, value)? {
            return Err(wrong(path));
        }
    }
    Ok(patch)
}

fn set_job_path(patch: &mut PolicyPatch, path: &str, value: &str) -> Result<bool, Invalid> {
    let retry = &mut patch.retry;
    match path {
        "retry.limit" => retry.limit = Some(number(path, value)?),
        "retry.counts" => retry.counts = Some(word(path, RetryLimitUnit::parse(value))?),
        "retry.backoff.kind" => retry.backoff_kind = Some(word(path, BackoffKind::parse(value))?),
        "retry.backoff.base" => retry.base = Some(length(path, value)?),
        "retry.backoff.multiplier" => retry.multiplier = Some(number(path, value)?),
        "retry.backoff.cap" => retry.cap = Some(length(path, value)?),
        "retry.backoff.delays" => {
            let delays = value.split(',').filter(|delay| !delay.is_empty());
            retry.delays = Some(delays.map(|delay| length(path, delay)).collect::<Result<_, _>>()?);
        }
        "retry.jitter.kind" => retry.jitter_kind = Some(word(path, JitterKind::parse(value))?),
        "retry.jitter.factor" => retry.jitter_factor = Some(number(path, value)?),
        "retry.honour_retry_after" => retry.honour_retry_after = Some(number(path, value)?),
        "retry.on_permanent" => retry.on_permanent = Some(word(path, OnPermanent::parse(value))?),
        "retry.on_exhausted" => retry.on_exhausted = Some(word(path, OnExhausted::parse(value))?),
        "retry.on_timeout" => retry.on_timeout = Some(word(path, OnFailure::parse(value))?),
        "retry.on_system" => retry.on_system = Some(word(path, OnFailure::parse(value))?),
        "execution_timeout" => patch.execution_timeout = Some(length(path, value)?),
        "lease" => patch.lease = Some(length(path, value)?),
        "lifetime" => patch.lifetime = Some(length(path, value)?),
        "retention.completed" => patch.retention.completed = Some(length(path, value)?),
        "retention.failed" => patch.retention.failed = Some(length(path, value)?),
        "retention.dead_letter" => patch.retention.dead_letter = Some(length(path, value)?),
        "retention.cancelled" => patch.retention.cancelled = Some(length(path, value)?),
        "max_reclaims" => patch.max_reclaims = Some(nullable(path, value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_queue_path(patch: &mut SettingsPatch, path: &str, value: &str) -> Result<(), Invalid> {
    match path {
        "on_lease_expiry" => patch.on_lease_expiry = Some(word(path, OnLeaseExpiry::parse(value))?),
        "reclaim" => patch.reclaim = Some(word(path, Reclaim::parse(value))?),
        "fencing" => patch.fencing = Some(word(path, Fencing::parse(value))?),
        "idempotency.scope" => patch.idempotency_scope = Some(word(path, IdempotencyScope::parse(value))?),
        "idempotency.window" => patch.idempotency_window = Some(length(path, value)?),
        "external_ids" => patch.external_ids = Some(number(path, value)?),
        "payload_max" => patch.payload_max = Some(number(path, value)?),
        "priority_order" => patch.priority_order = Some(number(path, value)?),
        "requeue_order" => patch.requeue_order = Some(word(path, RequeueOrder::parse(value))?),
        "submit" => patch.submit = Some(word(path, SubmitMode::parse(value))?),
        "delayed_start" => patch.delayed_start = Some(number(path, value)?),
        "manual_requeue" => patch.manual_requeue = Some(word(path, ManualRequeue::parse(value))?),
        "cancel_running" => patch.cancel_running = Some(word(path, CancelRunning::parse(value))?),
        "clear_error_on_success" => patch.clear_error_on_success = Some(number(path, value)?),
        "max_queued" => patch.max_queued = Some(nullable(path, value)?),
        "wait_target" if value == "null" => patch.wait_target = Some(Duration::ZERO),
        "wait_target" => patch.wait_target = Some(length(path, value)?),
        _ => return Err(wrong(path)),
    }
    Ok(())
}

fn wrong(path: &str) -> Invalid {
    Invalid::new(path.to_owned(), "cannot be set to this")
}

fn number<T: FromStr>(path: &str, value: &str) -> Result<T, Invalid> {
    value.parse().map_err(|_| wrong(path))
}

fn nullable<T: FromStr>(path: &str, value: &str) -> Result<Option<T>, Invalid> {
    if value == "null" { Ok(None) } else { number(path, value).map(Some) }
}

fn length(path: &str, value: &str) -> Result<Duration, Invalid> {
    value.parse().map_err(|_| wrong(path))
}

fn word<T>(path: &str, word: Option<T>) -> Result<T, Invalid> {
    word.ok_or_else(|| wrong(path))
}
