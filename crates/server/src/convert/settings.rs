//! Settings: overrides on the way in, resolved values on the way out.

use longshore_api::settings as wire;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::{AdmissionSettings, Policy, Retention, Retry};

use super::shown_length;

pub(crate) fn queue_overrides(given: wire::Settings) -> SettingsPatch {
    let idempotency = given.idempotency.unwrap_or_default();
    SettingsPatch {
        job: PolicyPatch {
            retry: retry_overrides(given.retry),
            execution_timeout: given.execution_timeout,
            lease: given.lease,
            lifetime: given.lifetime,
            retention: retention_overrides(given.retention),
            max_reclaims: given.max_reclaims,
        },
        on_lease_expiry: given.on_lease_expiry,
        reclaim: given.reclaim,
        fencing: given.fencing,
        idempotency_scope: idempotency.scope,
        idempotency_window: idempotency.window,
        external_ids: given.external_ids,
        payload_max: given.payload_max,
        priority_order: given.priority_order,
        requeue_order: given.requeue_order,
        submit: given.submit,
        delayed_start: given.delayed_start,
        manual_requeue: given.manual_requeue,
        cancel_running: given.cancel_running,
        clear_error_on_success: given.clear_error_on_success,
        max_queued: given.max_queued,
    }
}

pub(crate) fn retry_overrides(given: Option<wire::Retry>) -> RetryPatch {
    let given = given.unwrap_or_default();
    let (backoff, jitter) = (given.backoff.unwrap_or_default(), given.jitter.unwrap_or_default());
    RetryPatch {
        limit: given.limit,
        counts: given.counts,
        backoff_kind: backoff.kind.map(Into::into),
        base: backoff.base,
        multiplier: backoff.multiplier,
        cap: backoff.cap,
        delays: backoff.delays,
        jitter_kind: jitter.kind,
        jitter_factor: jitter.factor,
        honour_retry_after: given.honour_retry_after,
        on_permanent: given.on_permanent,
        on_exhausted: given.on_exhausted,
        on_timeout: given.on_timeout,
        on_system: given.on_system,
    }
}

pub(crate) fn retention_overrides(given: Option<wire::Retention>) -> RetentionPatch {
    let given = given.unwrap_or_default();
    RetentionPatch {
        completed: given.completed,
        failed: given.failed,
        dead_letter: given.dead_letter,
        cancelled: given.cancelled,
    }
}

/// Settings of a queue: what its jobs get, and what it asks of them.
pub(crate) fn of_queue(policy: &Policy, intake: &AdmissionSettings) -> wire::Settings {
    wire::Settings {
        idempotency: Some(wire::Idempotency {
            scope: Some(intake.idempotency.scope),
            window: Some(shown_length(intake.idempotency.window)),
        }),
        external_ids: Some(intake.external_ids),
        payload_max: Some(intake.payload_max.into()),
        priority_order: Some(intake.priority_order),
        submit: Some(intake.submit),
        delayed_start: Some(intake.delayed_start),
        max_queued: Some(intake.max_queued),
        ..of_job(policy)
    }
}

/// Settings that are frozen into a job.
pub(crate) fn of_job(policy: &Policy) -> wire::Settings {
    wire::Settings {
        retry: Some(retry(&policy.retry)),
        execution_timeout: Some(shown_length(policy.execution_timeout)),
        lease: Some(shown_length(policy.lease)),
        on_lease_expiry: Some(policy.on_lease_expiry),
        max_reclaims: Some(policy.max_reclaims),
        reclaim: Some(policy.reclaim),
        fencing: Some(policy.fencing),
        lifetime: Some(shown_length(policy.lifetime)),
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
            base: Some(shown_length(Some(backoff.base))),
            multiplier: Some(backoff.multiplier),
            cap: Some(shown_length(backoff.cap)),
            delays: Some(backoff.delays.iter().map(|delay| shown_length(Some(*delay))).collect()),
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
        completed: Some(shown_length(retention.completed)),
        failed: Some(shown_length(retention.failed)),
        dead_letter: Some(shown_length(retention.dead_letter)),
        cancelled: Some(shown_length(retention.cancelled)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::policy::Settings;
    use longshore_core::profile::Profile;

    /// What a queue shows can be sent back, and means the same. Also: no setting is forgotten on either way.
    #[test]
    fn shown_settings_can_be_sent_back() {
        for profile in Profile::ALL {
            let settings = Settings::of_profile(*profile);
            let shown = of_queue(&settings.policy, &settings.intake);
            let text = serde_json::to_string(&shown).unwrap();
            let read: wire::Settings = serde_json::from_str(&text).unwrap();
            assert_eq!(read, shown);
            assert_eq!(queue_overrides(read).resolve(*profile).unwrap(), settings, "{profile}");
        }
    }
}
