//! Settings: requests have overrides, responses have resolved values.

use longshore_api::settings as wire;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::{AdmissionSettings, Policy, Retention, Retry};

use super::enums::{ToCore, ToWire};
use super::{length, wire_duration};

pub(crate) fn queue_overrides(settings: wire::Settings) -> SettingsPatch {
    let idempotency = settings.idempotency.unwrap_or_default();
    SettingsPatch {
        job: PolicyPatch {
            retry: retry_overrides(settings.retry),
            execution_timeout: settings.execution_timeout.map(length),
            lease: settings.lease.map(length),
            lifetime: settings.lifetime.map(length),
            retention: retention_overrides(settings.retention),
            max_reclaims: settings.max_reclaims,
        },
        on_lease_expiry: settings.on_lease_expiry.map(ToCore::core),
        reclaim: settings.reclaim.map(ToCore::core),
        fencing: settings.fencing.map(ToCore::core),
        idempotency_scope: idempotency.scope.map(ToCore::core),
        idempotency_window: idempotency.window.map(length),
        external_ids: settings.external_ids,
        payload_max: settings.payload_max,
        priority_order: settings.priority_order,
        requeue_order: settings.requeue_order.map(ToCore::core),
        submit: settings.submit.map(ToCore::core),
        delayed_start: settings.delayed_start,
        manual_requeue: settings.manual_requeue.map(ToCore::core),
        cancel_running: settings.cancel_running.map(ToCore::core),
        clear_error_on_success: settings.clear_error_on_success,
        max_queued: settings.max_queued,
    }
}

pub(crate) fn retry_overrides(retry: Option<wire::Retry>) -> RetryPatch {
    let retry = retry.unwrap_or_default();
    let (backoff, jitter) = (retry.backoff.unwrap_or_default(), retry.jitter.unwrap_or_default());
    RetryPatch {
        limit: retry.limit,
        counts: retry.counts.map(ToCore::core),
        backoff_kind: backoff.kind.map(ToCore::core),
        base: backoff.base.map(length),
        multiplier: backoff.multiplier,
        cap: backoff.cap.map(length),
        delays: backoff.delays.map(|delays| delays.into_iter().map(length).collect()),
        jitter_kind: jitter.kind.map(ToCore::core),
        jitter_factor: jitter.factor,
        honour_retry_after: retry.honour_retry_after,
        on_permanent: retry.on_permanent.map(ToCore::core),
        on_exhausted: retry.on_exhausted.map(ToCore::core),
        on_timeout: retry.on_timeout.map(ToCore::core),
        on_system: retry.on_system.map(ToCore::core),
    }
}

pub(crate) fn retention_overrides(retention: Option<wire::Retention>) -> RetentionPatch {
    let retention = retention.unwrap_or_default();
    RetentionPatch {
        completed: retention.completed.map(length),
        failed: retention.failed.map(length),
        dead_letter: retention.dead_letter.map(length),
        cancelled: retention.cancelled.map(length),
    }
}

/// Settings of a queue: the policy of its jobs, and its admission settings.
pub(crate) fn of_queue(policy: &Policy, intake: &AdmissionSettings) -> wire::Settings {
    wire::Settings {
        idempotency: Some(wire::Idempotency {
            scope: Some(intake.idempotency.scope.wire()),
            window: Some(wire_duration(intake.idempotency.window)),
        }),
        external_ids: Some(intake.external_ids),
        payload_max: Some(intake.payload_max.into()),
        priority_order: Some(intake.priority_order),
        submit: Some(intake.submit.wire()),
        delayed_start: Some(intake.delayed_start),
        max_queued: Some(intake.max_queued),
        ..of_job(policy)
    }
}

/// Settings that a job keeps from its submission.
pub(crate) fn of_job(policy: &Policy) -> wire::Settings {
    wire::Settings {
        retry: Some(retry(&policy.retry)),
        execution_timeout: Some(wire_duration(policy.execution_timeout)),
        lease: Some(wire_duration(policy.lease)),
        on_lease_expiry: Some(policy.on_lease_expiry.wire()),
        max_reclaims: Some(policy.max_reclaims),
        reclaim: Some(policy.reclaim.wire()),
        fencing: Some(policy.fencing.wire()),
        lifetime: Some(wire_duration(policy.lifetime)),
        retention: Some(retention(policy.retention)),
        requeue_order: Some(policy.requeue_order.wire()),
        manual_requeue: Some(policy.manual_requeue.wire()),
        cancel_running: Some(policy.cancel_running.wire()),
        clear_error_on_success: Some(policy.clear_error_on_success),
        ..wire::Settings::default()
    }
}

fn retry(retry: &Retry) -> wire::Retry {
    let Retry { backoff, jitter, .. } = retry;
    wire::Retry {
        limit: Some(retry.limit),
        counts: Some(retry.counts.wire()),
        backoff: Some(wire::Backoff {
            kind: backoff.kind.wire(),
            base: Some(wire_duration(Some(backoff.base))),
            multiplier: Some(backoff.multiplier),
            cap: Some(wire_duration(backoff.cap)),
            delays: Some(backoff.delays.iter().map(|delay| wire_duration(Some(*delay))).collect()),
        }),
        jitter: Some(wire::Jitter { kind: Some(jitter.kind.wire()), factor: Some(jitter.factor) }),
        honour_retry_after: Some(retry.honour_retry_after),
        on_permanent: Some(retry.on_permanent.wire()),
        on_exhausted: Some(retry.on_exhausted.wire()),
        on_timeout: Some(retry.on_timeout.wire()),
        on_system: Some(retry.on_system.wire()),
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
            let settings = profile.settings();
            let response = of_queue(&settings.policy, &settings.intake);
            let text = serde_json::to_string(&response).unwrap();
            let read: wire::Settings = serde_json::from_str(&text).unwrap();
            assert_eq!(read, response);
            assert_eq!(queue_overrides(read).resolve(*profile).unwrap(), settings, "{profile}");
        }
    }
}
