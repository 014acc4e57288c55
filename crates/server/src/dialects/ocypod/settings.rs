//! The five settings of an Ocypod queue, and the corresponding settings of Longshore.
//!
//! | Ocypod | Longshore |
//! | --- | --- |
//! | `timeout` | `execution_timeout` |
//! | `heartbeat_timeout` | `lease` |
//! | `expires_after` | all of `retention` |
//! | `retries` | `retry.limit`, counting `retries` |
//! | `retry_delays` | `retry.backoff` of the kind `list`, `delays` |

use longshore_core::backoff::BackoffKind;
use longshore_core::limits::BACKOFF_DELAYS_MAX;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::{Policy, Retry, RetryLimitUnit};
use longshore_engine::Queue;
use serde::{Deserialize, Deserializer, Serialize};

use super::duration::OcypodDuration;
use super::response::OcypodError;

/// The keys of a `[queue.NAME]` section in Ocypod's configuration file. A missing key has Ocypod's
/// default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueKeys<'a> {
    pub timeout: Option<&'a str>,
    pub heartbeat_timeout: Option<&'a str>,
    pub expires_after: Option<&'a str>,
    pub retries: Option<u64>,
    pub retry_delays: Option<Vec<&'a str>>,
}

/// Returns the overrides for a queue of the profile `ocypod`, or the error of an invalid key.
pub fn queue_settings(keys: &QueueKeys<'_>) -> Result<SettingsPatch, String> {
    let duration = |key: &str, text: Option<&str>| {
        text.map(OcypodDuration::parse).transpose().map_err(|error| format!("{key}: {error}"))
    };
    let delays =
        |delays: &Vec<&str>| delays.iter().map(|text| OcypodDuration::parse(text)).collect::<Result<Vec<_>, _>>();
    let settings = SettingsBody {
        timeout: duration("timeout", keys.timeout)?,
        heartbeat_timeout: duration("heartbeat_timeout", keys.heartbeat_timeout)?,
        expires_after: duration("expires_after", keys.expires_after)?,
        retries: keys.retries,
        retry_delays: keys
            .retry_delays
            .as_ref()
            .map(delays)
            .transpose()
            .map_err(|error| format!("retry_delays: {error}"))?,
    };
    settings.check()?;
    Ok(settings.overrides(&SettingsPatch::default()))
}

/// The body of a PUT: a missing field gets its default, `null` is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SettingsBody {
    #[serde(deserialize_with = "not_null")]
    pub timeout: Option<OcypodDuration>,
    #[serde(deserialize_with = "not_null")]
    pub heartbeat_timeout: Option<OcypodDuration>,
    #[serde(deserialize_with = "not_null")]
    pub expires_after: Option<OcypodDuration>,
    #[serde(deserialize_with = "not_null")]
    pub retries: Option<u64>,
    #[serde(deserialize_with = "not_null")]
    pub retry_delays: Option<Vec<OcypodDuration>>,
}

fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl SettingsBody {
    fn check(&self) -> Result<(), String> {
        check_delays(self.retry_delays.as_deref())
    }

    /// Keeps overrides that have no Ocypod setting.
    fn overrides(self, before: &SettingsPatch) -> SettingsPatch {
        let retry = RetryPatch {
            limit: self.retries.map(limit),
            counts: None,
            backoff_kind: None,
            base: None,
            multiplier: None,
            cap: None,
            delays: self.retry_delays.map(durations),
            jitter_kind: None,
            jitter_factor: None,
            ..before.job.retry.clone()
        };
        let job = PolicyPatch {
            retry,
            execution_timeout: self.timeout.map(|duration| duration.0),
            lease: self.heartbeat_timeout.map(|duration| duration.0),
            retention: retention(self.expires_after),
            ..before.job.clone()
        };
        SettingsPatch { job, ..before.clone() }
    }

    /// Returns the overrides of a queue; `before` is its present version.
    pub(super) fn overrides_of(self, before: Option<&Queue>) -> Result<SettingsPatch, OcypodError> {
        self.check().map_err(OcypodError::bad)?;
        let none = SettingsPatch::default();
        Ok(self.overrides(before.map_or(&none, |queue| &queue.overrides)))
    }

    /// Returns the overrides of a single job.
    pub(super) fn job_overrides(self) -> Result<PolicyPatch, OcypodError> {
        self.check().map_err(OcypodError::bad)?;
        let retry = RetryPatch {
            limit: self.retries.map(limit),
            counts: self.retries.map(|_| RetryLimitUnit::Retries),
            backoff_kind: self.retry_delays.as_ref().map(|_| BackoffKind::List),
            delays: self.retry_delays.map(durations),
            ..RetryPatch::default()
        };
        Ok(PolicyPatch {
            retry,
            execution_timeout: self.timeout.map(|duration| duration.0),
            lease: self.heartbeat_timeout.map(|duration| duration.0),
            retention: retention(self.expires_after),
            ..PolicyPatch::default()
        })
    }
}

fn check_delays(delays: Option<&[OcypodDuration]>) -> Result<(), String> {
    if delays.is_some_and(|delays| delays.len() > BACKOFF_DELAYS_MAX) {
        return Err(format!("retry_delays: may have at most {BACKOFF_DELAYS_MAX} entries"));
    }
    Ok(())
}

fn durations(delays: Vec<OcypodDuration>) -> Vec<longshore_core::Duration> {
    delays.into_iter().map(|duration| duration.0).collect()
}

fn retention(expires_after: Option<OcypodDuration>) -> RetentionPatch {
    let retention = expires_after.map(|duration| duration.0);
    RetentionPatch { completed: retention, failed: retention, dead_letter: retention, cancelled: retention }
}

/// Saturates: `u32::MAX` means unlimited retries.
fn limit(retries: u64) -> u32 {
    u32::try_from(retries).unwrap_or(u32::MAX)
}

/// Returns the number of retries; unlimited retries are `u64::MAX`.
pub(super) fn retries(retry: &Retry) -> u64 {
    match retry.counts {
        RetryLimitUnit::Retries if retry.limit == u32::MAX => u64::MAX,
        RetryLimitUnit::Retries => u64::from(retry.limit),
        RetryLimitUnit::Starts | RetryLimitUnit::Failures => u64::from(retry.retries_max()),
    }
}

pub(super) fn delays(retry: &Retry) -> Vec<OcypodDuration> {
    match retry.backoff.kind {
        BackoffKind::List => retry.backoff.delays.iter().copied().map(OcypodDuration).collect(),
        BackoffKind::Constant | BackoffKind::Linear | BackoffKind::Exponential | BackoffKind::Custom(_) => Vec::new(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct OcypodSettings {
    timeout: OcypodDuration,
    heartbeat_timeout: OcypodDuration,
    expires_after: OcypodDuration,
    retries: u64,
    retry_delays: Vec<OcypodDuration>,
}

pub(super) fn to_wire(policy: &Policy) -> OcypodSettings {
    OcypodSettings {
        timeout: OcypodDuration::or_zero(policy.execution_timeout),
        heartbeat_timeout: OcypodDuration::or_zero(policy.lease),
        expires_after: OcypodDuration::or_zero(policy.retention.completed),
        retries: retries(&policy.retry),
        retry_delays: delays(&policy.retry),
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::profile::Profile;

    use super::*;

    fn resolved(keys: &QueueKeys<'_>) -> String {
        match queue_settings(keys) {
            Ok(patch) => serde_json::to_string(&to_wire(&patch.resolve(Profile::Ocypod).unwrap().policy)).unwrap(),
            Err(error) => error,
        }
    }

    /// Proves O-20, O-21, O-22, O-23, O-25, O-37, O-47, O-50.
    #[test]
    fn keys_of_a_configuration_file_resolve() {
        assert_eq!(
            resolved(&QueueKeys::default()),
            r#"{"timeout":"5m","heartbeat_timeout":"0s","expires_after":"5m","retries":0,"retry_delays":[]}"#
        );
        let keys = QueueKeys {
            timeout: Some("1h15m"),
            heartbeat_timeout: Some("90s"),
            expires_after: Some("0s"),
            retries: Some(4),
            retry_delays: Some(vec!["10s", "1m", "5m"]),
        };
        assert_eq!(
            resolved(&keys),
            r#"{"timeout":"1h 15m","heartbeat_timeout":"1m 30s","expires_after":"0s","retries":4,"retry_delays":["10s","1m","5m"]}"#
        );
        assert_eq!(
            resolved(&QueueKeys { timeout: Some("10"), ..QueueKeys::default() }),
            "timeout: time unit needed, for example 10sec or 10ms"
        );
        let many = QueueKeys { retry_delays: Some(vec!["1s"; 101]), ..QueueKeys::default() };
        assert_eq!(resolved(&many), "retry_delays: may have at most 100 entries");
    }

    #[test]
    fn large_retry_counts_survive_a_round_trip() {
        for count in [0, 1_000_001, u64::from(u32::MAX) - 1, u64::MAX] {
            let patch = queue_settings(&QueueKeys { retries: Some(count), ..QueueKeys::default() }).unwrap();
            assert_eq!(retries(&patch.resolve(Profile::Ocypod).unwrap().policy.retry), count);
        }
    }

    /// Overrides without an Ocypod setting survive a PUT of Ocypod.
    #[test]
    fn a_put_replaces_only_its_five_settings() {
        let before = SettingsPatch {
            job: PolicyPatch {
                lease: Some(longshore_core::Duration::from_secs(9)),
                max_reclaims: Some(Some(3)),
                retry: RetryPatch { counts: Some(RetryLimitUnit::Starts), limit: Some(7), ..RetryPatch::default() },
                ..PolicyPatch::default()
            },
            payload_max: Some(1_000),
            ..SettingsPatch::default()
        };
        let after = SettingsBody::default().overrides(&before);
        assert_eq!((after.payload_max, after.job.max_reclaims), (Some(1_000), Some(Some(3))));
        assert_eq!((after.job.lease, after.job.retry), (None, RetryPatch::default()));
    }
}
