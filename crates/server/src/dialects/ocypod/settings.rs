//! The five settings of an Ocypod queue, and the settings of ours that they stand for.
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

/// The keys of a `[queue.NAME]` section in Ocypod's own configuration file; what is absent has Ocypod's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueKeys<'a> {
    pub timeout: Option<&'a str>,
    pub heartbeat_timeout: Option<&'a str>,
    pub expires_after: Option<&'a str>,
    pub retries: Option<u64>,
    pub retry_delays: Option<Vec<&'a str>>,
}

/// What these keys override in a queue of the profile `ocypod`; or which of them is wrong, and why.
pub fn queue_settings(keys: &QueueKeys<'_>) -> Result<SettingsPatch, String> {
    let length = |key: &str, text: Option<&str>| {
        text.map(OcypodDuration::read).transpose().map_err(|complaint| format!("{key}: {complaint}"))
    };
    let delays =
        |delays: &Vec<&str>| delays.iter().map(|text| OcypodDuration::read(text)).collect::<Result<Vec<_>, _>>();
    let given = Given {
        timeout: length("timeout", keys.timeout)?,
        heartbeat_timeout: length("heartbeat_timeout", keys.heartbeat_timeout)?,
        expires_after: length("expires_after", keys.expires_after)?,
        retries: keys.retries,
        retry_delays: keys
            .retry_delays
            .as_ref()
            .map(delays)
            .transpose()
            .map_err(|complaint| format!("retry_delays: {complaint}"))?,
    };
    given.check()?;
    Ok(given.overrides(&SettingsPatch::default()))
}

/// The body of a PUT: an absent field returns to the default, `null` is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Given {
    #[serde(deserialize_with = "there")]
    pub timeout: Option<OcypodDuration>,
    #[serde(deserialize_with = "there")]
    pub heartbeat_timeout: Option<OcypodDuration>,
    #[serde(deserialize_with = "there")]
    pub expires_after: Option<OcypodDuration>,
    #[serde(deserialize_with = "there")]
    pub retries: Option<u64>,
    #[serde(deserialize_with = "there")]
    pub retry_delays: Option<Vec<OcypodDuration>>,
}

fn there<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Given {
    fn check(&self) -> Result<(), String> {
        check_delays(self.retry_delays.as_deref())
    }

    /// What was overridden in words that Ocypod does not have stays.
    fn overrides(self, before: &SettingsPatch) -> SettingsPatch {
        let retry = RetryPatch {
            limit: self.retries.map(limit),
            counts: None,
            backoff_kind: None,
            base: None,
            multiplier: None,
            cap: None,
            delays: self.retry_delays.map(lengths),
            jitter_kind: None,
            jitter_factor: None,
            ..before.job.retry.clone()
        };
        let job = PolicyPatch {
            retry,
            execution_timeout: self.timeout.map(|length| length.0),
            lease: self.heartbeat_timeout.map(|length| length.0),
            retention: retention(self.expires_after),
            ..before.job.clone()
        };
        SettingsPatch { job, ..before.clone() }
    }

    /// `before`: the queue, if there is one.
    pub(super) fn read(self, before: Option<&Queue>) -> Result<SettingsPatch, OcypodError> {
        self.check().map_err(OcypodError::bad)?;
        let none = SettingsPatch::default();
        Ok(self.overrides(before.map_or(&none, |queue| &queue.overrides)))
    }

    /// The same of a job, instead of its queue's.
    pub(super) fn of_job(self) -> Result<PolicyPatch, OcypodError> {
        self.check().map_err(OcypodError::bad)?;
        let retry = RetryPatch {
            limit: self.retries.map(limit),
            counts: self.retries.map(|_| RetryLimitUnit::Retries),
            backoff_kind: self.retry_delays.as_ref().map(|_| BackoffKind::List),
            delays: self.retry_delays.map(lengths),
            ..RetryPatch::default()
        };
        Ok(PolicyPatch {
            retry,
            execution_timeout: self.timeout.map(|length| length.0),
            lease: self.heartbeat_timeout.map(|length| length.0),
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

fn lengths(given: Vec<OcypodDuration>) -> Vec<longshore_core::Duration> {
    given.into_iter().map(|length| length.0).collect()
}

fn retention(expires_after: Option<OcypodDuration>) -> RetentionPatch {
    let kept = expires_after.map(|length| length.0);
    RetentionPatch { completed: kept, failed: kept, dead_letter: kept, cancelled: kept }
}

/// More retries than can be counted are retries for ever.
fn limit(retries: u64) -> u32 {
    u32::try_from(retries).unwrap_or(u32::MAX)
}

/// The number of retries, as it was given.
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
pub(super) struct Shown {
    timeout: OcypodDuration,
    heartbeat_timeout: OcypodDuration,
    expires_after: OcypodDuration,
    retries: u64,
    retry_delays: Vec<OcypodDuration>,
}

pub(super) fn shown(policy: &Policy) -> Shown {
    Shown {
        timeout: OcypodDuration::shown(policy.execution_timeout),
        heartbeat_timeout: OcypodDuration::shown(policy.lease),
        expires_after: OcypodDuration::shown(policy.retention.completed),
        retries: retries(&policy.retry),
        retry_delays: delays(&policy.retry),
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::profile::Profile;

    use super::*;

    fn told(keys: &QueueKeys<'_>) -> String {
        match queue_settings(keys) {
            Ok(patch) => serde_json::to_string(&shown(&patch.resolve(Profile::Ocypod).unwrap().policy)).unwrap(),
            Err(complaint) => complaint,
        }
    }

    /// Proves O-20, O-21, O-22, O-23, O-25, O-37, O-47, O-50.
    #[test]
    fn the_keys_of_a_configuration_file() {
        assert_eq!(
            told(&QueueKeys::default()),
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
            told(&keys),
            r#"{"timeout":"1h 15m","heartbeat_timeout":"1m 30s","expires_after":"0s","retries":4,"retry_delays":["10s","1m","5m"]}"#
        );
        assert_eq!(
            told(&QueueKeys { timeout: Some("10"), ..QueueKeys::default() }),
            "timeout: time unit needed, for example 10sec or 10ms"
        );
        let many = QueueKeys { retry_delays: Some(vec!["1s"; 101]), ..QueueKeys::default() };
        assert_eq!(told(&many), "retry_delays: may have at most 100 entries");
    }

    #[test]
    fn more_retries_than_anybody_counts() {
        for given in [0, 1_000_001, u64::from(u32::MAX) - 1, u64::MAX] {
            let patch = queue_settings(&QueueKeys { retries: Some(given), ..QueueKeys::default() }).unwrap();
            assert_eq!(retries(&patch.resolve(Profile::Ocypod).unwrap().policy.retry), given);
        }
    }

    /// What an operator set in our own words outlives a PUT of the dialect, unless the dialect has a word for it.
    #[test]
    fn a_put_speaks_only_of_its_five_settings() {
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
        let after = Given::default().overrides(&before);
        assert_eq!((after.payload_max, after.job.max_reclaims), (Some(1_000), Some(Some(3))));
        assert_eq!((after.job.lease, after.job.retry), (None, RetryPatch::default()));
    }
}
