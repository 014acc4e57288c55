//! Settings: requests have overrides, responses have resolved values.

use longshore_api::settings as wire;
use longshore_core::Duration;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::{AdmissionSettings, Policy, Retention, Retry};

use super::wire_duration;

pub(crate) fn queue_overrides(settings: wire::Settings) -> SettingsPatch {
    let idempotency = settings.idempotency.unwrap_or_default();
    SettingsPatch {
        job: PolicyPatch {
            retry: retry_overrides(settings.retry),
            execution_timeout: settings.execution_timeout,
            lease: settings.lease,
            lifetime: settings.lifetime,
            retention: retention_overrides(settings.retention),
            max_reclaims: settings.max_reclaims,
        },
        on_lease_expiry: settings.on_lease_expiry,
        reclaim: settings.reclaim,
        fencing: settings.fencing,
        idempotency_scope: idempotency.scope,
        idempotency_window: idempotency.window,
        external_ids: settings.external_ids,
        payload_max: settings.payload_max,
        priority_order: settings.priority_order,
        requeue_order: settings.requeue_order,
        submit: settings.submit,
        delayed_start: settings.delayed_start,
        manual_requeue: settings.manual_requeue,
        cancel_running: settings.cancel_running,
        clear_error_on_success: settings.clear_error_on_success,
        max_queued: settings.max_queued,
        wait_target: settings.wait_target.map(Option::unwrap_or_default),
    }
}

pub(crate) fn retry_overrides(retry: Option<wire::Retry>) -> RetryPatch {
    let retry = retry.unwrap_or_default();
    let (backoff, jitter) = (retry.backoff.unwrap_or_default(), retry.jitter.unwrap_or_default());
    RetryPatch {
        limit: retry.limit,
        counts: retry.counts,
        backoff_kind: backoff.kind.map(Into::into),
        base: backoff.base,
        multiplier: backoff.multiplier,
        cap: backoff.cap,
        delays: backoff.delays,
        jitter_kind: jitter.kind,
        jitter_factor: jitter.factor,
        honour_retry_after: retry.honour_retry_after,
        on_permanent: retry.on_permanent,
        on_exhausted: retry.on_exhausted,
        on_timeout: retry.on_timeout,
        on_system: retry.on_system,
    }
}

pub(crate) fn retention_overrides(retention: Option<wire::Retention>) -> RetentionPatch {
    let retention = retention.unwrap_or_default();
    RetentionPatch {
        completed: retention.completed,
        failed: retention.failed,
        dead_letter: retention.dead_letter,
        cancelled: retention.cancelled,
    }
}

/// What is set on a queue, as a request has it. An object without a setting is absent.
pub(crate) fn of_overrides(overrides: &SettingsPatch) -> wire::Settings {
    let SettingsPatch {
        job,
        on_lease_expiry,
        reclaim,
        fencing,
        idempotency_scope,
        idempotency_window,
        external_ids,
        payload_max,
        priority_order,
        requeue_order,
        submit,
        delayed_start,
        manual_requeue,
        cancel_running,
        clear_error_on_success,
        max_queued,
        wait_target,
    } = overrides;
    let PolicyPatch { retry, execution_timeout, lease, lifetime, retention, max_reclaims } = job;
    let RetentionPatch { completed, failed, dead_letter, cancelled } = *retention;
    wire::Settings {
        retry: given(retry_of_overrides(retry)),
        execution_timeout: *execution_timeout,
        lease: *lease,
        on_lease_expiry: *on_lease_expiry,
        max_reclaims: *max_reclaims,
        reclaim: *reclaim,
        fencing: *fencing,
        idempotency: given(wire::Idempotency { scope: *idempotency_scope, window: *idempotency_window }),
        external_ids: *external_ids,
        lifetime: *lifetime,
        retention: given(wire::Retention { completed, failed, dead_letter, cancelled }),
        payload_max: *payload_max,
        priority_order: *priority_order,
        requeue_order: *requeue_order,
        submit: *submit,
        delayed_start: *delayed_start,
        manual_requeue: *manual_requeue,
        cancel_running: *cancel_running,
        clear_error_on_success: *clear_error_on_success,
        max_queued: *max_queued,
        wait_target: wait_target.map(Duration::non_zero),
    }
}

fn retry_of_overrides(retry: &RetryPatch) -> wire::Retry {
    let RetryPatch {
        limit,
        counts,
        backoff_kind,
        base,
        multiplier,
        cap,
        delays,
        jitter_kind,
        jitter_factor,
        honour_retry_after,
        on_permanent,
        on_exhausted,
        on_timeout,
        on_system,
    } = retry;
    wire::Retry {
        limit: *limit,
        counts: *counts,
        backoff: given(wire::Backoff {
            kind: backoff_kind.and_then(|kind| kind.named()),
            base: *base,
            multiplier: *multiplier,
            cap: *cap,
            delays: delays.clone(),
        }),
        jitter: given(wire::Jitter { kind: *jitter_kind, factor: *jitter_factor }),
        honour_retry_after: *honour_retry_after,
        on_permanent: *on_permanent,
        on_exhausted: *on_exhausted,
        on_timeout: *on_timeout,
        on_system: *on_system,
    }
}

/// Returns an object that has a setting.
fn given<T: Default + PartialEq>(object: T) -> Option<T> {
    (object != T::default()).then_some(object)
}

/// Settings of a queue: the policy of its jobs, and its admission settings.
pub(crate) fn of_queue(policy: &Policy, admission: &AdmissionSettings) -> wire::Settings {
    wire::Settings {
        idempotency: Some(wire::Idempotency {
            scope: Some(admission.idempotency.scope),
            window: Some(wire_duration(admission.idempotency.window)),
        }),
        external_ids: Some(admission.external_ids),
        payload_max: Some(admission.payload_max.into()),
        priority_order: Some(admission.priority_order),
        submit: Some(admission.submit),
        delayed_start: Some(admission.delayed_start),
        max_queued: Some(admission.max_queued),
        wait_target: Some(admission.wait_target),
        ..of_job(policy)
    }
}

/// Settings that a job keeps from its submission.
pub(crate) fn of_job(policy: &Policy) -> wire::Settings {
    wire::Settings {
        retry: Some(retry(&policy.retry)),
        execution_timeout: Some(wire_duration(policy.execution_timeout)),
        lease: Some(wire_duration(policy.lease)),
        on_lease_expiry: Some(policy.on_lease_expiry),
        max_reclaims: Some(policy.max_reclaims),
        reclaim: Some(policy.reclaim),
        fencing: Some(policy.fencing),
        lifetime: Some(wire_duration(policy.lifetime)),
        retention: Some(retention(policy.retention)),
        requeue_order: Some(policy.requeue_order),
        manual_requeue: Some(policy.manual_requeue),
        cancel_running: Some(policy.cancel_running),
        clear_error_on_success: Some(policy.clear_error_on_success),
        ..wire::Settings::default()
    }
}

fn retry(retry: &Retry) -> wire::Retry {
    let Retry { backoff, jitter, .. } = retry;
    wire::Retry {
        limit: Some(retry.limit),
        counts: Some(retry.counts),
        backoff: Some(wire::Backoff {
            kind: backoff.kind.named(),
            base: Some(wire_duration(Some(backoff.base))),
            multiplier: Some(backoff.multiplier),
            cap: Some(wire_duration(backoff.cap)),
            delays: Some(backoff.delays.iter().map(|delay| wire_duration(Some(*delay))).collect()),
        }),
        jitter: Some(wire::Jitter { kind: Some(jitter.kind), factor: Some(jitter.factor) }),
        honour_retry_after: Some(retry.honour_retry_after),
        on_permanent: Some(retry.on_permanent),
        on_exhausted: Some(retry.on_exhausted),
        on_timeout: Some(retry.on_timeout),
        on_system: Some(retry.on_system),
    }
}

fn retention(retention: Retention) -> wire::Retention {
    wire::Retention {
        completed: Some(wire_duration(retention.completed)),
        failed: Some(wire_duration(retention.failed)),
        dead_letter: Some(wire_duration(retention.dead_letter)),
        cancelled: Some(wire_duration(retention.cancelled)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::profile::Profile;

    /// The settings of a response are valid in a request. No setting is missing in either.
    #[test]
    fn shown_settings_can_be_sent_back() {
        for profile in Profile::ALL {
            let settings = longshore_core::policy::Settings::of_profile(*profile);
            let response = of_queue(&settings.policy, &settings.admission);
            let text = serde_json::to_string(&response).unwrap();
            let read: wire::Settings = serde_json::from_str(&text).unwrap();
            assert_eq!(read, response);
            let overrides = queue_overrides(read.clone());
            assert_eq!(overrides.resolve(*profile).unwrap(), settings, "{profile}");
            // All settings are given here, so none is missing in the overrides of a response.
            assert_eq!(of_overrides(&overrides), read, "{profile}");
        }
    }

    #[test]
    fn shown_overrides_are_those_that_were_given() {
        for text in [
            "{}",
            r#"{"retry":{"limit":5}}"#,
            r#"{"retry":{"backoff":{"cap":"1m"}},"lease":"0s","max_queued":null}"#,
            r#"{"idempotency":{"window":"1h"},"retention":{"failed":"0s"},"priority_order":false}"#,
        ] {
            let given: wire::Settings = serde_json::from_str(text).unwrap();
            let shown = serde_json::to_value(of_overrides(&queue_overrides(given))).unwrap();
            assert_eq!(shown, serde_json::from_str::<serde_json::Value>(text).unwrap());
        }
    }
}
