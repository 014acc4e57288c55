//! Overrides of settings: a given value replaces, an absent value is inherited, locks are checked.

use crate::backoff::{BackoffKind, JitterKind};
use crate::limits::*;
use crate::policy::*;
use crate::profile::Profile;
use crate::refusal::Invalid;
use crate::time::Duration;

/// Overrides of a queue. A zero duration means "off".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsPatch {
    pub job: PolicyPatch,
    pub on_lease_expiry: Option<OnLeaseExpiry>,
    pub reclaim: Option<Reclaim>,
    pub fencing: Option<Fencing>,
    pub idempotency_scope: Option<IdempotencyScope>,
    pub idempotency_window: Option<Duration>,
    pub external_ids: Option<bool>,
    pub payload_max: Option<u64>,
    pub priority_order: Option<bool>,
    pub requeue_order: Option<RequeueOrder>,
    pub submit: Option<SubmitMode>,
    pub delayed_start: Option<bool>,
    pub manual_requeue: Option<ManualRequeue>,
    pub cancel_running: Option<CancelRunning>,
    pub clear_error_on_success: Option<bool>,
    /// `Some(None)`: no limit.
    pub max_queued: Option<Option<u64>>,
    /// Zero means "off".
    pub wait_target: Option<Duration>,
}

/// Overrides that a job may have too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyPatch {
    pub retry: RetryPatch,
    pub execution_timeout: Option<Duration>,
    pub lease: Option<Duration>,
    pub lifetime: Option<Duration>,
    pub retention: RetentionPatch,
    /// `Some(None)`: no limit.
    pub max_reclaims: Option<Option<u32>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryPatch {
    pub limit: Option<u32>,
    pub counts: Option<RetryLimitUnit>,
    pub backoff_kind: Option<BackoffKind>,
    pub base: Option<Duration>,
    pub multiplier: Option<f64>,
    pub cap: Option<Duration>,
    pub delays: Option<Vec<Duration>>,
    pub jitter_kind: Option<JitterKind>,
    pub jitter_factor: Option<f64>,
    pub honour_retry_after: Option<bool>,
    pub on_permanent: Option<OnPermanent>,
    pub on_exhausted: Option<OnExhausted>,
    pub on_timeout: Option<OnFailure>,
    pub on_system: Option<OnFailure>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetentionPatch {
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub dead_letter: Option<Duration>,
    pub cancelled: Option<Duration>,
}

impl SettingsPatch {
    /// Returns the settings of a queue: its profile with these overrides.
    pub fn resolve(&self, profile: Profile) -> Result<Settings, Invalid> {
        let mut settings = Settings::of_profile(profile);
        self.merge(&mut settings);
        check_admission(&settings.admission)?;
        check_policy(&settings.policy)?;
        check_locks(&Settings::of_profile(profile), &settings)?;
        Ok(settings)
    }

    fn merge(&self, settings: &mut Settings) {
        let Settings { policy, admission } = settings;
        self.job.merge(policy);
        set(&mut policy.on_lease_expiry, self.on_lease_expiry);
        set(&mut policy.reclaim, self.reclaim);
        set(&mut policy.fencing, self.fencing);
        set(&mut policy.requeue_order, self.requeue_order);
        set(&mut policy.manual_requeue, self.manual_requeue);
        set(&mut policy.cancel_running, self.cancel_running);
        set(&mut policy.clear_error_on_success, self.clear_error_on_success);
        set(&mut admission.idempotency.scope, self.idempotency_scope);
        set_duration(&mut admission.idempotency.window, self.idempotency_window);
        set(&mut admission.external_ids, self.external_ids);
        // `check_admission` refuses a value out of range.
        set(&mut admission.payload_max, self.payload_max.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)));
        set(&mut admission.priority_order, self.priority_order);
        set(&mut admission.submit, self.submit);
        set(&mut admission.delayed_start, self.delayed_start);
        // 0 means "off", as for durations.
        set(&mut admission.max_queued, self.max_queued.map(|max| max.filter(|max| *max > 0)));
        set_duration(&mut admission.wait_target, self.wait_target);
    }
}

impl PolicyPatch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the policy of a job: that of its queue with these overrides.
    pub fn resolve(&self, queue: &Policy) -> Result<Policy, Invalid> {
        let mut policy = queue.clone();
        self.merge(&mut policy);
        check_policy(&policy)?;
        if locked_settings(policy.profile).contains(&"retry")
            && let Some(field) = changed_retry_setting(&queue.retry, &policy.retry)
        {
            return Err(locked(field, policy.profile));
        }
        let is_longer = match (policy.execution_timeout, queue.execution_timeout) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(job), Some(queue)) => job > queue,
        };
        if is_longer && policy.profile.only_shortens_execution_timeout() {
            let max = queue.execution_timeout.unwrap_or_default();
            return Err(Invalid::new("execution_timeout", format!("may be at most the queue's {max}")));
        }
        Ok(policy)
    }

    fn merge(&self, policy: &mut Policy) {
        self.retry.merge(&mut policy.retry);
        set_duration(&mut policy.execution_timeout, self.execution_timeout);
        set_duration(&mut policy.lease, self.lease);
        set_duration(&mut policy.lifetime, self.lifetime);
        set_duration(&mut policy.retention.completed, self.retention.completed);
        set_duration(&mut policy.retention.failed, self.retention.failed);
        set_duration(&mut policy.retention.dead_letter, self.retention.dead_letter);
        set_duration(&mut policy.retention.cancelled, self.retention.cancelled);
        set(&mut policy.max_reclaims, self.max_reclaims);
    }
}

impl RetryPatch {
    fn merge(&self, retry: &mut Retry) {
        set(&mut retry.limit, self.limit);
        set(&mut retry.counts, self.counts);
        set(&mut retry.backoff.kind, self.backoff_kind);
        set(&mut retry.backoff.base, self.base);
        set(&mut retry.backoff.multiplier, self.multiplier);
        set_duration(&mut retry.backoff.cap, self.cap);
        set(&mut retry.backoff.delays, self.delays.clone());
        set(&mut retry.jitter.kind, self.jitter_kind);
        set(&mut retry.jitter.factor, self.jitter_factor);
        set(&mut retry.honour_retry_after, self.honour_retry_after);
        set(&mut retry.on_permanent, self.on_permanent);
        set(&mut retry.on_exhausted, self.on_exhausted);
        set(&mut retry.on_timeout, self.on_timeout);
        set(&mut retry.on_system, self.on_system);
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

fn set_duration(field: &mut Option<Duration>, given: Option<Duration>) {
    if let Some(duration) = given {
        *field = duration.non_zero();
    }
}

/// Checks a retry limit in its unit: with 0 starts a job would never run.
pub fn check_retry_limit(limit: u32, counts: RetryLimitUnit, profile: Profile) -> Result<(), Invalid> {
    let min = match counts {
        RetryLimitUnit::Starts | RetryLimitUnit::Failures => 1,
        RetryLimitUnit::Retries => 0,
    };
    let max = if profile.retries_without_limit() { u32::MAX } else { RETRY_LIMIT_MAX };
    if (min..=max).contains(&limit) {
        return Ok(());
    }
    Err(Invalid::new("retry.limit", format!("must be {min}-{max} where it counts {counts}")))
}

fn check_policy(policy: &Policy) -> Result<(), Invalid> {
    let Retry { limit, counts, backoff, jitter, .. } = &policy.retry;
    check_retry_limit(*limit, *counts, policy.profile)?;
    if !(BACKOFF_MULTIPLIER_MIN..=BACKOFF_MULTIPLIER_MAX).contains(&backoff.multiplier) {
        let range = format!("must be {BACKOFF_MULTIPLIER_MIN}-{BACKOFF_MULTIPLIER_MAX}");
        return Err(Invalid::new("retry.backoff.multiplier", range));
    }
    if backoff.delays.len() > BACKOFF_DELAYS_MAX {
        return Err(Invalid::new("retry.backoff.delays", format!("may have at most {BACKOFF_DELAYS_MAX} entries")));
    }
    if !(0.0..=1.0).contains(&jitter.factor) {
        return Err(Invalid::new("retry.jitter.factor", "must be 0-1"));
    }
    let durations = [
        ("execution_timeout", policy.execution_timeout),
        ("lease", policy.lease),
        ("lifetime", policy.lifetime),
        ("retention.completed", policy.retention.completed),
        ("retention.failed", policy.retention.failed),
        ("retention.dead_letter", policy.retention.dead_letter),
        ("retention.cancelled", policy.retention.cancelled),
        ("retry.backoff.base", Some(backoff.base)),
        ("retry.backoff.cap", backoff.cap),
    ];
    for (field, duration) in durations {
        check_duration(field, duration.unwrap_or_default())?;
    }
    for delay in &backoff.delays {
        check_duration("retry.backoff.delays", *delay)?;
    }
    Ok(())
}

fn check_admission(admission: &AdmissionSettings) -> Result<(), Invalid> {
    if !(1..=PAYLOAD_BYTES_MAX).contains(&admission.payload_max) {
        return Err(Invalid::new("payload_max", format!("must be 1-{PAYLOAD_BYTES_MAX} bytes")));
    }
    check_duration("idempotency.window", admission.idempotency.window.unwrap_or_default())?;
    check_duration("wait_target", admission.wait_target.unwrap_or_default())
}

/// Settings that a queue of this profile cannot change; `retry` stands for all settings in it.
pub fn locked_settings(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Document => &["retry", "on_lease_expiry", "fencing", "manual_requeue", "submit", "delayed_start"],
        Profile::Standard | Profile::Gopherqueue | Profile::Taskharbor | Profile::Ocypod | Profile::Weave => &[],
    }
}

/// Refuses a changed value of a locked setting. The value of the profile may be repeated, so that
/// the settings of a queue can be sent back.
fn check_locks(profile: &Settings, settings: &Settings) -> Result<(), Invalid> {
    let (Settings { policy: old, admission: old_admission }, Settings { policy: new, admission: new_admission }) =
        (profile, settings);
    let name = old.profile;
    for field in locked_settings(name) {
        let if_changed = |is_same: bool| (!is_same).then_some(*field);
        let changed = match *field {
            "retry" => changed_retry_setting(&old.retry, &new.retry),
            "on_lease_expiry" => if_changed(old.on_lease_expiry == new.on_lease_expiry),
            "fencing" => if_changed(old.fencing == new.fencing),
            "manual_requeue" => if_changed(old.manual_requeue == new.manual_requeue),
            "submit" => if_changed(old_admission.submit == new_admission.submit),
            "delayed_start" => if_changed(old_admission.delayed_start == new_admission.delayed_start),
            _ => if_changed(old == new && old_admission == new_admission),
        };
        if let Some(path) = changed {
            return Err(locked(path, name));
        }
    }
    Ok(())
}

/// Returns the path of the first setting in `retry` that differs.
fn changed_retry_setting(old: &Retry, new: &Retry) -> Option<&'static str> {
    let settings = [
        ("retry.limit", old.limit == new.limit),
        ("retry.counts", old.counts == new.counts),
        ("retry.backoff.kind", old.backoff.kind == new.backoff.kind),
        ("retry.backoff.base", old.backoff.base == new.backoff.base),
        ("retry.backoff.multiplier", old.backoff.multiplier.to_bits() == new.backoff.multiplier.to_bits()),
        ("retry.backoff.cap", old.backoff.cap == new.backoff.cap),
        ("retry.backoff.delays", old.backoff.delays == new.backoff.delays),
        ("retry.jitter.kind", old.jitter.kind == new.jitter.kind),
        ("retry.jitter.factor", old.jitter.factor.to_bits() == new.jitter.factor.to_bits()),
        ("retry.honour_retry_after", old.honour_retry_after == new.honour_retry_after),
        ("retry.on_permanent", old.on_permanent == new.on_permanent),
        ("retry.on_exhausted", old.on_exhausted == new.on_exhausted),
        ("retry.on_timeout", old.on_timeout == new.on_timeout),
        ("retry.on_system", old.on_system == new.on_system),
    ];
    settings.into_iter().find(|(_, is_same)| !is_same).map(|(path, _)| path)
}

fn locked(field: &'static str, profile: Profile) -> Invalid {
    Invalid::new(field, format!("is locked by the profile \"{profile}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(retry: RetryPatch) -> PolicyPatch {
        PolicyPatch { retry, ..PolicyPatch::default() }
    }

    /// Proves G-4.1, G-4.2, G-4.4, G-4.9, G-5.1, G-1.11.
    #[test]
    fn gopherqueue_defaults() {
        let Settings { policy, admission } = Settings::of_profile(Profile::Gopherqueue);
        assert_eq!(policy.execution_timeout, Some(Duration::from_mins(30)));
        assert_eq!(policy.lease, Some(Duration::from_mins(5)));
        assert_eq!(policy.lifetime, Some(Duration::from_days(7)));
        assert_eq!((policy.retry.limit, policy.retry.counts), (3, RetryLimitUnit::Starts));
        assert_eq!(admission.idempotency.window, Some(Duration::from_hours(24)));
        assert_eq!(policy.retention.dead_letter, None, "dead letters are kept for an operator");
    }

    /// Proves O-38, O-37.
    #[test]
    fn overrides_merge_deeply() {
        let patch = SettingsPatch {
            job: retry(RetryPatch {
                limit: Some(4),
                delays: Some(vec![Duration::from_secs(10)]),
                ..RetryPatch::default()
            }),
            ..SettingsPatch::default()
        };
        let queue = patch.resolve(Profile::Ocypod).unwrap().policy;
        assert_eq!((queue.retry.limit, queue.retry.backoff.delays.len()), (4, 1));
        let job = retry(RetryPatch { limit: Some(1), ..RetryPatch::default() }).resolve(&queue).unwrap();
        assert_eq!((job.retry.limit, job.retry.backoff.delays.len()), (1, 1));
        assert_eq!(job.retry.on_permanent, OnPermanent::Retry);
        let off = PolicyPatch { execution_timeout: Some(Duration::ZERO), ..PolicyPatch::default() };
        assert_eq!(off.resolve(&queue).unwrap().execution_timeout, None);
    }

    /// Proves G-4.8.
    #[test]
    fn job_may_only_shorten_execution_timeout() {
        let timeout =
            |secs| PolicyPatch { execution_timeout: Some(Duration::from_secs(secs)), ..PolicyPatch::default() };
        for profile in [Profile::Gopherqueue, Profile::Standard] {
            let queue = Settings::of_profile(profile).policy;
            assert!(timeout(10).resolve(&queue).is_ok());
            assert!(timeout(30 * 60).resolve(&queue).is_ok());
            assert_eq!(timeout(30 * 60 + 1).resolve(&queue).unwrap_err().field, "execution_timeout");
            assert!(timeout(0).resolve(&queue).is_err(), "off counts as longer");
        }
        assert!(timeout(3_600).resolve(&Settings::of_profile(Profile::Weave).policy).is_ok());
    }

    /// Proves L-29, L-38.
    #[test]
    fn document_profile_locks_settings() {
        let queue = Settings::of_profile(Profile::Document).policy;
        let limit = |limit| retry(RetryPatch { limit: Some(limit), ..RetryPatch::default() });
        assert_eq!(limit(5).resolve(&queue).unwrap_err().field, "retry.limit");
        let base = retry(RetryPatch { base: Some(Duration::from_secs(2)), ..RetryPatch::default() });
        assert_eq!(base.resolve(&queue).unwrap_err().field, "retry.backoff.base");
        assert!(limit(3).resolve(&queue).is_ok(), "the locked value itself may be repeated");
        let whole =
            |patch: SettingsPatch| patch.resolve(Profile::Document).map_err(|invalid| invalid.field.into_owned());
        let default = SettingsPatch::default;
        let patches = [
            ("retry.limit", SettingsPatch { job: limit(2), ..default() }),
            ("delayed_start", SettingsPatch { delayed_start: Some(true), ..default() }),
            ("submit", SettingsPatch { submit: Some(SubmitMode::Auto), ..default() }),
            ("on_lease_expiry", SettingsPatch { on_lease_expiry: Some(OnLeaseExpiry::ReclaimFree), ..default() }),
            ("manual_requeue", SettingsPatch { manual_requeue: Some(ManualRequeue::InPlace), ..default() }),
            ("fencing", SettingsPatch { fencing: Some(Fencing::Optional), ..default() }),
        ];
        for (field, patch) in patches {
            assert_eq!(whole(patch), Err(field.to_owned()));
        }
        assert!(whole(SettingsPatch { max_queued: Some(Some(5)), ..default() }).is_ok());
    }

    #[test]
    fn out_of_range_error_names_field() {
        let field = |patch: SettingsPatch| patch.resolve(Profile::Standard).unwrap_err().field.into_owned();
        let job = |retry: RetryPatch| SettingsPatch { job: self::retry(retry), ..SettingsPatch::default() };
        let empty = RetryPatch::default;
        assert_eq!(field(job(RetryPatch { limit: Some(0), ..empty() })), "retry.limit");
        assert_eq!(field(job(RetryPatch { multiplier: Some(f64::NAN), ..empty() })), "retry.backoff.multiplier");
        assert_eq!(field(job(RetryPatch { jitter_factor: Some(1.5), ..empty() })), "retry.jitter.factor");
        assert_eq!(
            field(job(RetryPatch { delays: Some(vec![Duration::ZERO; 101]), ..empty() })),
            "retry.backoff.delays"
        );
        assert_eq!(field(job(RetryPatch { cap: Some(Duration::from_days(40_000)), ..empty() })), "retry.backoff.cap");
        let payload = |bytes| SettingsPatch { payload_max: Some(bytes), ..SettingsPatch::default() };
        let target = |days| SettingsPatch { wait_target: Some(Duration::from_days(days)), ..SettingsPatch::default() };
        assert_eq!(field(target(40_000)), "wait_target");
        assert_eq!(target(1).resolve(Profile::Document).unwrap().admission.wait_target, Some(Duration::from_days(1)));
        assert_eq!(target(0).resolve(Profile::Standard).unwrap().admission.wait_target, None, "zero is off");
        assert_eq!(field(payload(0)), "payload_max");
        assert_eq!(field(payload(u64::from(PAYLOAD_BYTES_MAX) + 1)), "payload_max");
        assert!(payload(u64::from(PAYLOAD_BYTES_MAX)).resolve(Profile::Standard).is_ok());
    }
}
