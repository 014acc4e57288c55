//! The settings as the model reads them: six profiles, paths, locks, delays.

use crate::target::{Millis, Settings};

/// The code of a refusal, as api.md names it.
pub(crate) type Refusal = &'static str;

pub(crate) const VALIDATION: Refusal = "validation";

pub(crate) const SECOND: Millis = 1_000;
pub(crate) const MINUTE: Millis = 60 * SECOND;
pub(crate) const HOUR: Millis = 60 * MINUTE;
pub(crate) const DAY: Millis = 24 * HOUR;
/// The longest duration that a setting allows.
pub(crate) const DURATION_MAX: Millis = 36_500 * DAY;

const HIGHEST_LIMIT: u32 = 1_000_000;
const LARGEST_PAYLOAD: usize = 16_777_216;
const MOST_DELAYS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Standard,
    Gopherqueue,
    Taskharbor,
    Ocypod,
    Weave,
    Document,
}

impl Profile {
    pub(crate) const ALL: [Profile; 6] = [
        Profile::Standard,
        Profile::Gopherqueue,
        Profile::Taskharbor,
        Profile::Ocypod,
        Profile::Weave,
        Profile::Document,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Standard => "standard",
            Profile::Gopherqueue => "gopherqueue",
            Profile::Taskharbor => "taskharbor",
            Profile::Ocypod => "ocypod",
            Profile::Weave => "weave",
            Profile::Document => "document",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Whether the profile locks a setting. Only `document` locks any.
    fn locks(self, path: &str) -> bool {
        self == Profile::Document
            && (path.starts_with("retry.")
                || ["delayed_start", "submit", "on_lease_expiry", "manual_requeue", "fencing"].contains(&path))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    Starts,
    Failures,
    Retries,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackoffKind {
    Constant,
    Linear,
    Exponential,
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JitterKind {
    None,
    Symmetric,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnPermanent {
    Failed,
    DeadLetter,
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLeaseExpiry {
    ReclaimCounted,
    ReclaimFree,
    FailTimeout,
    FailRetryable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Type,
    Queue,
    Global,
    Off,
}

/// How long ended jobs are kept; 0 = without limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retention {
    pub completed: Millis,
    pub failed: Millis,
    pub dead_letter: Millis,
    pub cancelled: Millis,
}

impl Retention {
    fn all(kept: Millis) -> Self {
        Retention { completed: kept, failed: kept, dead_letter: kept, cancelled: kept }
    }
}

/// All settings, resolved. Durations in milliseconds, 0 = off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    pub limit: u32,
    pub counts: Counts,
    pub backoff: BackoffKind,
    pub base: Millis,
    pub multiplier: f64,
    pub cap: Millis,
    pub delays: Vec<Millis>,
    pub jitter: JitterKind,
    pub factor: f64,
    pub honour_retry_after: bool,
    pub on_permanent: OnPermanent,
    pub exhausted_is_dead_letter: bool,
    pub timeout_is_final: bool,
    pub system_is_final: bool,
    pub execution_timeout: Millis,
    pub lease: Millis,
    pub on_lease_expiry: OnLeaseExpiry,
    pub max_reclaims: Option<u32>,
    pub lazy_reclaim: bool,
    pub fencing_required: bool,
    pub scope: Scope,
    pub window: Millis,
    pub external_ids: bool,
    pub lifetime: Millis,
    pub retention: Retention,
    pub payload_max: usize,
    pub priority_order: bool,
    pub requeue_at_tail: bool,
    pub submit_explicit: bool,
    pub delayed_start: bool,
    pub requeue_clones: bool,
    pub cancel_cooperative: bool,
    pub clear_error_on_success: bool,
    pub max_queued: Option<u32>,
    /// Zero is off. It changes nothing but what attention reports.
    pub wait_target: Millis,
}

/// requirements.md 2.5, column G.
fn gopherqueue_rules() -> Rules {
    Rules {
        limit: 3,
        counts: Counts::Starts,
        backoff: BackoffKind::Exponential,
        base: SECOND,
        multiplier: 2.0,
        cap: HOUR,
        delays: Vec::new(),
        jitter: JitterKind::None,
        factor: 0.1,
        honour_retry_after: true,
        on_permanent: OnPermanent::Failed,
        exhausted_is_dead_letter: true,
        timeout_is_final: false,
        system_is_final: false,
        execution_timeout: 30 * MINUTE,
        lease: 5 * MINUTE,
        on_lease_expiry: OnLeaseExpiry::ReclaimCounted,
        max_reclaims: None,
        lazy_reclaim: false,
        fencing_required: true,
        scope: Scope::Type,
        window: DAY,
        external_ids: false,
        lifetime: 7 * DAY,
        retention: Retention { dead_letter: 0, ..Retention::all(7 * DAY) },
        payload_max: 1_048_576,
        priority_order: true,
        requeue_at_tail: false,
        submit_explicit: false,
        delayed_start: true,
        requeue_clones: true,
        cancel_cooperative: true,
        clear_error_on_success: false,
        max_queued: None,
        wait_target: 0,
    }
}

/// requirements.md 2.5, column by column, as differences from `gopherqueue`.
pub(crate) fn profile_rules(profile: Profile) -> Rules {
    let gopherqueue = gopherqueue_rules();
    match profile {
        Profile::Gopherqueue => gopherqueue,
        Profile::Standard => Rules {
            lease: 30 * SECOND,
            jitter: JitterKind::Symmetric,
            factor: 0.1,
            lifetime: 0,
            requeue_clones: false,
            ..gopherqueue
        },
        Profile::Taskharbor => Rules {
            limit: 25,
            counts: Counts::Failures,
            base: 200,
            multiplier: 2.0,
            cap: 5 * SECOND,
            jitter: JitterKind::Symmetric,
            factor: 0.2,
            honour_retry_after: false,
            on_permanent: OnPermanent::DeadLetter,
            execution_timeout: 0,
            lease: 30 * SECOND,
            on_lease_expiry: OnLeaseExpiry::ReclaimFree,
            scope: Scope::Queue,
            window: 0,
            priority_order: false,
            requeue_at_tail: true,
            lifetime: 0,
            retention: Retention::all(0),
            requeue_clones: false,
            ..gopherqueue
        },
        Profile::Ocypod => Rules {
            limit: 0,
            counts: Counts::Retries,
            backoff: BackoffKind::List,
            cap: 0,
            honour_retry_after: false,
            on_permanent: OnPermanent::Retry,
            exhausted_is_dead_letter: false,
            execution_timeout: 5 * MINUTE,
            lease: 0,
            on_lease_expiry: OnLeaseExpiry::FailTimeout,
            fencing_required: false,
            scope: Scope::Off,
            priority_order: false,
            requeue_at_tail: true,
            lifetime: 0,
            retention: Retention::all(5 * MINUTE),
            requeue_clones: false,
            cancel_cooperative: false,
            payload_max: 262_144,
            ..gopherqueue
        },
        Profile::Weave => Rules {
            limit: 3,
            counts: Counts::Retries,
            base: 500,
            multiplier: 2.0,
            cap: 30 * SECOND,
            jitter: JitterKind::Full,
            honour_retry_after: false,
            exhausted_is_dead_letter: false,
            execution_timeout: 5 * MINUTE,
            lease: 5 * SECOND,
            on_lease_expiry: OnLeaseExpiry::ReclaimFree,
            lazy_reclaim: true,
            scope: Scope::Off,
            external_ids: true,
            requeue_at_tail: true,
            lifetime: 0,
            retention: Retention::all(0),
            cancel_cooperative: false,
            ..gopherqueue
        },
        Profile::Document => Rules {
            limit: 3,
            counts: Counts::Retries,
            backoff: BackoffKind::Constant,
            base: SECOND,
            cap: 0,
            honour_retry_after: false,
            exhausted_is_dead_letter: false,
            execution_timeout: 0,
            lease: 30 * SECOND,
            on_lease_expiry: OnLeaseExpiry::FailRetryable,
            scope: Scope::Off,
            priority_order: false,
            requeue_at_tail: true,
            submit_explicit: true,
            delayed_start: false,
            lifetime: 0,
            retention: Retention::all(0),
            cancel_cooperative: false,
            clear_error_on_success: true,
            ..gopherqueue
        },
    }
}

/// Returns the rules of a queue: its profile with the overrides.
pub(crate) fn queue_rules(profile: Profile, overrides: &Settings) -> Result<Rules, Refusal> {
    let mut rules = profile_rules(profile);
    override_all(&mut rules, profile, overrides)?;
    Ok(rules)
}

/// Returns the rules of a job: those of its queue with the overrides of the job.
pub(crate) fn job_rules(queue: &Rules, profile: Profile, overrides: &Settings) -> Result<Rules, Refusal> {
    let allowed = |path: &str| {
        path.starts_with("retry.")
            || path.starts_with("retention.")
            || ["execution_timeout", "lease", "lifetime", "max_reclaims"].contains(&path)
    };
    if !overrides.keys().all(|path| allowed(path)) {
        return Err(VALIDATION);
    }
    let mut rules = queue.clone();
    override_all(&mut rules, profile, overrides)?;
    let shorten_only = matches!(profile, Profile::Gopherqueue | Profile::Standard);
    // Off counts as the longest duration.
    let length = |timeout: Millis| if timeout == 0 { Millis::MAX } else { timeout };
    if shorten_only && length(rules.execution_timeout) > length(queue.execution_timeout) {
        return Err(VALIDATION);
    }
    Ok(rules)
}

fn override_all(rules: &mut Rules, profile: Profile, overrides: &Settings) -> Result<(), Refusal> {
    for (path, value) in overrides {
        if profile.locks(path) {
            // A client may send back the current value, so it is not an override.
            let mut changed = rules.clone();
            set(&mut changed, path, value).ok_or(VALIDATION)?;
            if changed != *rules {
                return Err(VALIDATION);
            }
        } else {
            set(rules, path, value).ok_or(VALIDATION)?;
        }
    }
    check_limit(profile, rules, rules.limit)
}

/// Checks that a limit is valid for the unit that the rules count.
pub(crate) fn check_limit(profile: Profile, rules: &Rules, limit: u32) -> Result<(), Refusal> {
    let least = if rules.counts == Counts::Retries { 0 } else { 1 };
    let most = if profile == Profile::Ocypod { u32::MAX } else { HIGHEST_LIMIT };
    if (least..=most).contains(&limit) { Ok(()) } else { Err(VALIDATION) }
}

/// Whether `profile` allows the limit of a job with these rules to become `limit`.
pub(crate) fn limit_is_locked(profile: Profile, rules: &Rules, limit: u32) -> bool {
    profile.locks("retry.limit") && rules.limit != limit
}

fn set(rules: &mut Rules, path: &str, value: &str) -> Option<()> {
    match path {
        "retry.limit" => rules.limit = value.parse().ok()?,
        "retry.counts" => {
            rules.counts = word(
                value,
                &[("starts", Counts::Starts), ("failures", Counts::Failures), ("retries", Counts::Retries)],
            )?;
        }
        "retry.backoff.kind" => {
            rules.backoff = word(
                value,
                &[
                    ("constant", BackoffKind::Constant),
                    ("linear", BackoffKind::Linear),
                    ("exponential", BackoffKind::Exponential),
                    ("list", BackoffKind::List),
                ],
            )?;
        }
        "retry.backoff.base" => rules.base = parse_duration(value)?,
        "retry.backoff.multiplier" => rules.multiplier = number(value, 1.0, 1_000.0)?,
        "retry.backoff.cap" => rules.cap = parse_duration(value)?,
        "retry.backoff.delays" => rules.delays = parse_delays(value)?,
        "retry.jitter.kind" => {
            rules.jitter = word(
                value,
                &[("none", JitterKind::None), ("symmetric", JitterKind::Symmetric), ("full", JitterKind::Full)],
            )?;
        }
        "retry.jitter.factor" => rules.factor = number(value, 0.0, 1.0)?,
        "retry.honour_retry_after" => rules.honour_retry_after = yes(value)?,
        "retry.on_permanent" => {
            rules.on_permanent = word(
                value,
                &[
                    ("failed", OnPermanent::Failed),
                    ("dead_letter", OnPermanent::DeadLetter),
                    ("retry", OnPermanent::Retry),
                ],
            )?;
        }
        "retry.on_exhausted" => {
            rules.exhausted_is_dead_letter = word(value, &[("dead_letter", true), ("failed", false)])?;
        }
        "retry.on_timeout" => rules.timeout_is_final = word(value, &[("final", true), ("retry", false)])?,
        "retry.on_system" => rules.system_is_final = word(value, &[("final", true), ("retry", false)])?,
        _ => set_other(rules, path, value)?,
    }
    Some(())
}

/// Sets everything outside `retry`.
fn set_other(rules: &mut Rules, path: &str, value: &str) -> Option<()> {
    match path {
        "execution_timeout" => rules.execution_timeout = parse_duration(value)?,
        "lease" => rules.lease = parse_duration(value)?,
        "on_lease_expiry" => {
            rules.on_lease_expiry = word(
                value,
                &[
                    ("reclaim_counted", OnLeaseExpiry::ReclaimCounted),
                    ("reclaim_free", OnLeaseExpiry::ReclaimFree),
                    ("fail_timeout", OnLeaseExpiry::FailTimeout),
                    ("fail_retryable", OnLeaseExpiry::FailRetryable),
                ],
            )?;
        }
        "max_reclaims" => rules.max_reclaims = number_or_null(value)?,
        "reclaim" => rules.lazy_reclaim = word(value, &[("lazy", true), ("eager", false)])?,
        "fencing" => rules.fencing_required = word(value, &[("required", true), ("optional", false)])?,
        "idempotency.scope" => {
            rules.scope = word(
                value,
                &[("type", Scope::Type), ("queue", Scope::Queue), ("global", Scope::Global), ("off", Scope::Off)],
            )?;
        }
        "idempotency.window" => rules.window = parse_duration(value)?,
        "external_ids" => rules.external_ids = yes(value)?,
        "lifetime" => rules.lifetime = parse_duration(value)?,
        "retention.completed" => rules.retention.completed = parse_duration(value)?,
        "retention.failed" => rules.retention.failed = parse_duration(value)?,
        "retention.dead_letter" => rules.retention.dead_letter = parse_duration(value)?,
        "retention.cancelled" => rules.retention.cancelled = parse_duration(value)?,
        "payload_max" => {
            rules.payload_max = value.parse().ok().filter(|bytes| (1..=LARGEST_PAYLOAD).contains(bytes))?;
        }
        "priority_order" => rules.priority_order = yes(value)?,
        "requeue_order" => rules.requeue_at_tail = word(value, &[("tail", true), ("submission", false)])?,
        "submit" => rules.submit_explicit = word(value, &[("explicit", true), ("auto", false)])?,
        "delayed_start" => rules.delayed_start = yes(value)?,
        "manual_requeue" => rules.requeue_clones = word(value, &[("clone", true), ("in_place", false)])?,
        "cancel_running" => {
            rules.cancel_cooperative = word(value, &[("cooperative", true), ("immediate", false)])?;
        }
        "clear_error_on_success" => rules.clear_error_on_success = yes(value)?,
        "max_queued" => rules.max_queued = number_or_null(value)?,
        "wait_target" => rules.wait_target = if value == "null" { 0 } else { parse_duration(value)? },
        _ => return None,
    }
    Some(())
}

fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(name, _)| *name == value).map(|(_, meaning)| *meaning)
}

fn yes(value: &str) -> Option<bool> {
    word(value, &[("true", true), ("false", false)])
}

fn number(value: &str, least: f64, most: f64) -> Option<f64> {
    value.parse().ok().filter(|number| (least..=most).contains(number))
}

fn number_or_null(value: &str) -> Option<Option<u32>> {
    if value == "null" { Some(None) } else { value.parse().ok().map(Some) }
}

fn parse_delays(value: &str) -> Option<Vec<Millis>> {
    if value.trim().is_empty() {
        return Some(Vec::new());
    }
    let delays: Option<Vec<Millis>> = value.split(',').map(parse_duration).collect();
    delays.filter(|delays| delays.len() <= MOST_DELAYS)
}

/// Parses `1h15m5s`, `3w 2d`, `500ms`; every number needs a unit.
pub(crate) fn parse_duration(text: &str) -> Option<Millis> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total: Millis = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let amount: Millis = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "w" => 7 * DAY,
            "d" => DAY,
            "h" => HOUR,
            "m" => MINUTE,
            "s" => SECOND,
            "ms" => 1,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(amount.checked_mul(unit)?)?;
    }
    (total <= DURATION_MAX).then_some(total)
}

/// Formats a duration. Days are the largest unit.
pub(crate) fn show_duration(duration: Millis) -> String {
    let mut rest = duration;
    let mut text = String::new();
    for (unit, length) in [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1)] {
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

impl Rules {
    /// Returns the smallest and the largest delay before retry `n` (1 = the first) that jitter
    /// allows.
    pub(crate) fn delay_window(&self, n: u32) -> (Millis, Millis) {
        let longest = if self.cap == 0 { DURATION_MAX } else { self.cap } as f64;
        let base = self.base as f64;
        let plain = match self.backoff {
            BackoffKind::Constant => base,
            BackoffKind::Linear => base * f64::from(n),
            BackoffKind::Exponential => {
                base * self.multiplier.powi(i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX))
            }
            BackoffKind::List => {
                let index = (n as usize).min(self.delays.len()).saturating_sub(1);
                self.delays.get(index).map_or(0.0, |delay| *delay as f64)
            }
        };
        // 0 × infinity is not a number; without a base there is no delay.
        let delay = if plain.is_nan() { 0.0 } else { plain.min(longest) };
        let whole = delay.floor();
        match self.jitter {
            JitterKind::None => (whole as Millis, whole as Millis),
            JitterKind::Symmetric => {
                let least = (whole * (1.0 - self.factor)).floor();
                let most = (delay * (1.0 + self.factor)).min(longest).floor();
                (least as Millis, most as Millis)
            }
            JitterKind::Full => (0, whole as Millis),
        }
    }

    /// Whether a delay of these rules is random.
    pub(crate) fn has_jitter(&self) -> bool {
        match self.jitter {
            JitterKind::None => false,
            JitterKind::Symmetric => self.factor > 0.0,
            JitterKind::Full => true,
        }
    }

    /// Clamps the hint of a handler to the longest delay.
    pub(crate) fn clamp_to_cap(&self, delay: Millis) -> Millis {
        if self.cap == 0 { delay } else { delay.min(self.cap) }
    }

    /// Returns how many jobs may wait in a queue; 0 is off.
    pub(crate) fn most_queued(&self) -> Option<usize> {
        self.max_queued.filter(|most| *most > 0).map(|most| most as usize)
    }

    /// Returns how many starts an orphaned job may have, if lost leases count.
    pub(crate) fn limit_in_starts(&self) -> u32 {
        match self.counts {
            Counts::Starts | Counts::Failures => self.limit,
            Counts::Retries => self.limit + 1,
        }
    }

    /// Returns how many retries follow the first run, in any unit of the limit.
    pub(crate) fn limit_in_retries(&self) -> u32 {
        match self.counts {
            Counts::Starts | Counts::Failures => self.limit.saturating_sub(1),
            Counts::Retries => self.limit,
        }
    }
}
