//! What operators should look at: pure rules over counters.
//!
//! Each rule gets the facts of one queue, schedule, disk, server or endpoint, and returns what is
//! wrong with it. Nothing here reads jobs.

use std::sync::Arc;

pub use longshore_types::{AttentionCode, Severity, TickOutcome};

use crate::id::{JobType, QueueName, ScheduleName};
use crate::time::{Duration, Timestamp};

/// A ready job waits this long before a missing worker is reported, so that a worker that restarts
/// is not.
pub const NO_WORKER_AFTER: Duration = Duration::from_secs(10);
/// Dead letters are compared with their number this long ago.
pub const GROWTH_WINDOW: Duration = Duration::from_mins(15);
/// Growth within [`GROWTH_WINDOW`] that is reported.
pub const GROWTH_MIN: u64 = 1;
/// Attempts of this time are judged.
pub const BURST_WINDOW: Duration = Duration::from_mins(5);
/// Failures within [`BURST_WINDOW`] below which nothing is reported: a few may be chance.
pub const BURST_FAILURES_MIN: u64 = 10;
/// Failures in percent of all ended attempts from which they are reported.
pub const BURST_PERCENT_MIN: u64 = 50;
/// A tick that was not processed for this long is late.
pub const TICK_LATE_AFTER: Duration = Duration::from_mins(1);
/// Free bytes on the disk of the store below which it is reported.
pub const DISK_FREE_MIN: u64 = 1 << 30;
/// Failed attempts in a row at one endpoint that are reported.
pub const WEBHOOK_FAILURES_MIN: u64 = 3;
/// Difference between the clocks of a server and its database that is reported.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(2);
/// Items of a list.
pub const ITEMS_MAX: usize = 1_000;

/// One thing that needs attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// `None`: not known.
    pub since: Option<Timestamp>,
    pub queue: Option<QueueName>,
    pub facts: FindingFacts,
}

/// What was found, with its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingFacts {
    /// `job_type`: only this type has no worker.
    NoWorker {
        job_type: Option<JobType>,
        ready: Option<u64>,
        oldest_scheduled_at: Option<Timestamp>,
        last_seen_at: Option<Timestamp>,
    },
    OldestOverTarget {
        oldest_scheduled_at: Timestamp,
        wait_target: Duration,
        age: Duration,
        ready: u64,
    },
    DeadLettersGrowing {
        count: u64,
        growth: u64,
    },
    PausedWithWork {
        waiting: u64,
        oldest_scheduled_at: Option<Timestamp>,
    },
    /// `outcome`: that of the last tick; `None` for a tick that is late.
    ScheduleMissed {
        schedule: ScheduleName,
        due_at: Timestamp,
        outcome: Option<TickOutcome>,
        detail: Option<Arc<str>>,
    },
    DiskLow {
        free_bytes: Option<u64>,
        reserve_bytes: Option<u64>,
        refusing: Option<String>,
    },
    NodeBehind {
        offset: Duration,
        is_ahead: bool,
    },
    ErrorBurst {
        failed: u64,
        completed: u64,
    },
    WebhookFailing {
        webhook: Arc<str>,
        failures: u64,
        last_error: Option<Arc<str>>,
        disabled: Option<String>,
    },
}

impl FindingFacts {
    pub fn code(&self) -> AttentionCode {
        match self {
            Self::NoWorker { .. } => AttentionCode::NoWorker,
            Self::OldestOverTarget { .. } => AttentionCode::OldestOverTarget,
            Self::DeadLettersGrowing { .. } => AttentionCode::DeadLettersGrowing,
            Self::PausedWithWork { .. } => AttentionCode::PausedWithWork,
            Self::ScheduleMissed { .. } => AttentionCode::ScheduleMissed,
            Self::DiskLow { .. } => AttentionCode::DiskLow,
            Self::NodeBehind { .. } => AttentionCode::NodeBehind,
            Self::ErrorBurst { .. } => AttentionCode::ErrorBurst,
            Self::WebhookFailing { .. } => AttentionCode::WebhookFailing,
        }
    }
}

/// Counters of a queue.
#[derive(Clone, Debug)]
pub struct QueueFacts {
    pub queue: QueueName,
    pub paused: bool,
    pub ready: u64,
    pub oldest_scheduled_at: Option<Timestamp>,
    pub wait_target: Option<Duration>,
    /// Whether any worker has claimed from the queue lately.
    pub is_served: bool,
    /// Types with ready jobs that no worker of the queue claims.
    pub unserved_types: Vec<JobType>,
    /// Last claim from the queue at this server.
    pub last_claim_at: Option<Timestamp>,
    pub dead_letters: u64,
    /// Dead letters [`GROWTH_WINDOW`] ago.
    pub dead_letters_before: u64,
    pub growing_since: Option<Timestamp>,
    /// Attempts within [`BURST_WINDOW`].
    pub failed: u64,
    pub completed: u64,
    pub failing_since: Option<Timestamp>,
}

/// Returns what is wrong with a queue.
pub fn check_queue(facts: &QueueFacts, now: Timestamp) -> Vec<Finding> {
    let found = [paused_with_work(facts), oldest_over_target(facts, now), growing(facts), error_burst(facts)];
    let found = found.into_iter().flatten().chain(no_worker(facts, now));
    found.map(|finding| Finding { queue: Some(facts.queue.clone()), ..finding }).collect()
}

fn finding(severity: Severity, since: Option<Timestamp>, facts: FindingFacts) -> Finding {
    Finding { severity, since, queue: None, facts }
}

fn paused_with_work(queue: &QueueFacts) -> Option<Finding> {
    let &QueueFacts { paused, ready, oldest_scheduled_at, .. } = queue;
    let facts = FindingFacts::PausedWithWork { waiting: ready, oldest_scheduled_at };
    (paused && ready > 0).then(|| finding(Severity::Warning, oldest_scheduled_at, facts))
}

fn oldest_over_target(queue: &QueueFacts, now: Timestamp) -> Option<Finding> {
    let oldest_scheduled_at = queue.oldest_scheduled_at.filter(|_| !queue.paused)?;
    let (wait_target, age) = (queue.wait_target?, now.since(oldest_scheduled_at));
    let facts = FindingFacts::OldestOverTarget { oldest_scheduled_at, wait_target, age, ready: queue.ready };
    (age > wait_target).then(|| finding(Severity::Warning, Some(oldest_scheduled_at + wait_target), facts))
}

fn growing(queue: &QueueFacts) -> Option<Finding> {
    let growth = queue.dead_letters.saturating_sub(queue.dead_letters_before);
    let facts = FindingFacts::DeadLettersGrowing { count: queue.dead_letters, growth };
    (growth >= GROWTH_MIN).then(|| finding(Severity::Warning, queue.growing_since, facts))
}

fn error_burst(queue: &QueueFacts) -> Option<Finding> {
    let &QueueFacts { failed, completed, failing_since, .. } = queue;
    let is_share = failed.saturating_mul(100) >= failed.saturating_add(completed).saturating_mul(BURST_PERCENT_MIN);
    let facts = FindingFacts::ErrorBurst { failed, completed };
    (failed >= BURST_FAILURES_MIN && is_share).then(|| finding(Severity::Error, failing_since, facts))
}

/// A queue without any worker is one finding; otherwise each type without one is.
fn no_worker(queue: &QueueFacts, now: Timestamp) -> Vec<Finding> {
    let waits = |at: Timestamp| now.since(at) >= NO_WORKER_AFTER;
    if queue.paused || queue.ready == 0 || !queue.oldest_scheduled_at.is_some_and(waits) {
        return Vec::new();
    }
    let of_type = |job_type: Option<JobType>| {
        let is_queue = job_type.is_none();
        let facts = FindingFacts::NoWorker {
            job_type,
            ready: is_queue.then_some(queue.ready),
            oldest_scheduled_at: queue.oldest_scheduled_at.filter(|_| is_queue),
            last_seen_at: queue.last_claim_at,
        };
        finding(Severity::Error, queue.oldest_scheduled_at.filter(|_| is_queue), facts)
    };
    if queue.is_served {
        queue.unserved_types.iter().map(|job_type| of_type(Some(job_type.clone()))).collect()
    } else {
        vec![of_type(None)]
    }
}

/// The last tick of a schedule, and the next one.
#[derive(Clone, Debug)]
pub struct ScheduleFacts {
    pub schedule: ScheduleName,
    pub queue: QueueName,
    pub paused: bool,
    /// Due time, outcome and detail of the last tick.
    pub last: Option<(Timestamp, TickOutcome, Option<Arc<str>>)>,
    /// The first due time that was not processed.
    pub next_due: Option<Timestamp>,
}

/// Returns whether the last tick of a schedule submitted no job although it should, or is late.
///
/// A tick that `overlap` skips is not missed: its job runs already.
pub fn check_schedule(facts: &ScheduleFacts, now: Timestamp) -> Option<Finding> {
    if facts.paused {
        return None;
    }
    let is_late = |due: &Timestamp| now.since(*due) >= TICK_LATE_AFTER;
    let (due_at, outcome, detail) = match (&facts.last, facts.next_due.filter(is_late)) {
        (_, Some(due_at)) => (due_at, None, None),
        (Some((due_at, outcome @ (TickOutcome::SkippedMisfire | TickOutcome::Refused), detail)), None) => {
            (*due_at, Some(*outcome), detail.clone())
        }
        (Some((_, TickOutcome::Fired | TickOutcome::SkippedOverlap, _)) | None, None) => return None,
    };
    let missed = FindingFacts::ScheduleMissed { schedule: facts.schedule.clone(), due_at, outcome, detail };
    let found = finding(Severity::Warning, Some(due_at), missed);
    Some(Finding { queue: Some(facts.queue.clone()), ..found })
}

/// Returns whether the disk of the store is nearly full, or full. A store without a disk of its own
/// knows neither number.
pub fn check_disk(free_bytes: Option<u64>, reserve_bytes: Option<u64>, refusing: Option<String>) -> Option<Finding> {
    let has_disk = free_bytes.is_some() || reserve_bytes.is_some();
    let severity = match &refusing {
        Some(_) if has_disk => Severity::Error,
        Some(_) => return None,
        None if free_bytes.is_some_and(|free| free < DISK_FREE_MIN) => Severity::Warning,
        None => return None,
    };
    Some(finding(severity, None, FindingFacts::DiskLow { free_bytes, reserve_bytes, refusing }))
}

/// Returns whether the clock of a server differs too much from that of its database.
pub fn check_clock(server: Timestamp, database: Timestamp) -> Option<Finding> {
    let is_ahead = server > database;
    let offset = if is_ahead { server.since(database) } else { database.since(server) };
    let facts = FindingFacts::NodeBehind { offset, is_ahead };
    (offset > CLOCK_OFFSET_MAX).then(|| finding(Severity::Error, None, facts))
}

/// The last deliveries to an endpoint.
#[derive(Clone, Debug)]
pub struct WebhookFacts {
    pub webhook: Arc<str>,
    /// Why the receiver disabled it; `None` if it did not.
    pub disabled: Option<String>,
    /// Failed attempts in a row.
    pub failures: u64,
    pub failing_since: Option<Timestamp>,
    pub last_error: Option<Arc<str>>,
}

/// Returns whether an endpoint was disabled by its receiver, or fails again and again.
pub fn check_webhook(facts: &WebhookFacts) -> Option<Finding> {
    let WebhookFacts { webhook, disabled, failures, failing_since, last_error } = facts.clone();
    let severity = match &disabled {
        Some(_) => Severity::Error,
        None if failures >= WEBHOOK_FAILURES_MIN => Severity::Warning,
        None => return None,
    };
    let failing = FindingFacts::WebhookFailing { webhook, failures, last_error, disabled };
    Some(finding(severity, failing_since, failing))
}

/// Puts the most severe first, then the oldest, and bounds the list.
pub fn sort(findings: &mut Vec<Finding>) {
    findings.sort_by(|a, b| {
        let order = |found: &Finding| (found.severity, found.since.is_none(), found.since, found.facts.code());
        order(a).cmp(&order(b)).then_with(|| a.queue.cmp(&b.queue))
    });
    findings.truncate(ITEMS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(10_000_000);

    fn ago(secs: i64) -> Timestamp {
        Timestamp::from_millis(NOW.as_millis() - secs * 1_000)
    }

    fn queue() -> QueueFacts {
        QueueFacts {
            queue: QueueName::new("q").unwrap(),
            paused: false,
            ready: 3,
            oldest_scheduled_at: Some(ago(100)),
            wait_target: None,
            is_served: true,
            unserved_types: Vec::new(),
            last_claim_at: None,
            dead_letters: 5,
            dead_letters_before: 5,
            growing_since: None,
            failed: 0,
            completed: 0,
            failing_since: None,
        }
    }

    fn codes(facts: &QueueFacts) -> Vec<AttentionCode> {
        check_queue(facts, NOW).iter().map(|found| found.facts.code()).collect()
    }

    #[test]
    fn a_served_queue_needs_nothing() {
        assert_eq!(codes(&queue()), []);
    }

    #[test]
    fn a_paused_queue_with_work_is_one_finding() {
        let paused = QueueFacts { paused: true, is_served: false, wait_target: Some(Duration::ZERO), ..queue() };
        assert_eq!(codes(&paused), [AttentionCode::PausedWithWork]);
        assert_eq!(codes(&QueueFacts { ready: 0, ..paused }), []);
    }

    #[test]
    fn the_target_counts_from_ready() {
        let target = |secs| QueueFacts { wait_target: Some(Duration::from_secs(secs)), ..queue() };
        assert_eq!(codes(&target(100)), []);
        let found = check_queue(&target(90), NOW);
        assert_eq!((found[0].facts.code(), found[0].since), (AttentionCode::OldestOverTarget, Some(ago(10))));
    }

    #[test]
    fn a_missing_worker_is_of_the_queue_or_of_types() {
        let unserved = QueueFacts { is_served: false, ..queue() };
        assert_eq!(codes(&unserved), [AttentionCode::NoWorker]);
        let fresh = QueueFacts { oldest_scheduled_at: Some(ago(9)), ..unserved.clone() };
        assert_eq!(codes(&fresh), [], "a worker may be restarting");
        assert_eq!(codes(&QueueFacts { ready: 0, oldest_scheduled_at: None, ..unserved }), []);
        let unserved_types = ["a", "b"].map(|name| JobType::new(name).unwrap()).to_vec();
        assert_eq!(codes(&QueueFacts { unserved_types, ..queue() }), [AttentionCode::NoWorker; 2]);
    }

    #[test]
    fn growth_and_bursts_have_thresholds() {
        let grown = QueueFacts { dead_letters_before: 4, growing_since: Some(ago(60)), ..queue() };
        assert_eq!(codes(&grown), [AttentionCode::DeadLettersGrowing]);
        assert_eq!(codes(&QueueFacts { dead_letters_before: 9, ..queue() }), [], "fewer than before");
        let burst = |failed, completed| codes(&QueueFacts { failed, completed, ..queue() });
        assert_eq!(burst(10, 10), [AttentionCode::ErrorBurst]);
        assert_eq!((burst(9, 0), burst(10, 11)), (vec![], vec![]));
    }

    #[test]
    fn schedules_are_missed_or_late() {
        let tick = |outcome| Some((ago(500), outcome, None));
        let facts = ScheduleFacts {
            schedule: ScheduleName::new("nightly").unwrap(),
            queue: QueueName::new("q").unwrap(),
            paused: false,
            last: tick(TickOutcome::Fired),
            next_due: Some(ago(59)),
        };
        assert_eq!(check_schedule(&facts, NOW), None);
        let late = ScheduleFacts { next_due: Some(ago(60)), ..facts.clone() };
        assert_eq!(check_schedule(&late, NOW).unwrap().since, Some(ago(60)));
        assert_eq!(check_schedule(&ScheduleFacts { paused: true, ..late }, NOW), None);
        for (outcome, is_missed) in
            [(TickOutcome::SkippedMisfire, true), (TickOutcome::Refused, true), (TickOutcome::SkippedOverlap, false)]
        {
            let facts = ScheduleFacts { last: tick(outcome), ..facts.clone() };
            assert_eq!(check_schedule(&facts, NOW).is_some(), is_missed, "{outcome}");
        }
    }

    #[test]
    fn disks_clocks_and_endpoints() {
        let severity = |free, reserve, refusing: Option<&str>| {
            check_disk(free, reserve, refusing.map(str::to_owned)).map(|found| found.severity)
        };
        assert_eq!(severity(Some(DISK_FREE_MIN), Some(1), None), None);
        assert_eq!(severity(Some(DISK_FREE_MIN - 1), Some(1), None), Some(Severity::Warning));
        assert_eq!(severity(Some(1), Some(0), Some("full")), Some(Severity::Error));
        assert_eq!(severity(None, None, Some("standby")), None, "PostgreSQL has its own disk");
        assert_eq!(check_clock(ago(2), NOW), None);
        assert!(check_clock(ago(3), NOW).is_some() && check_clock(NOW, ago(3)).is_some());
        let endpoint = |failures, disabled: Option<&str>| {
            let disabled = disabled.map(str::to_owned);
            let facts = WebhookFacts { webhook: "w".into(), disabled, failures, failing_since: None, last_error: None };
            check_webhook(&facts).map(|found| found.severity)
        };
        assert_eq!(endpoint(2, None), None);
        assert_eq!(endpoint(3, None), Some(Severity::Warning));
        assert_eq!(endpoint(0, Some("410")), Some(Severity::Error));
    }

    #[test]
    fn the_most_severe_and_oldest_come_first() {
        let mut found = check_queue(&QueueFacts { paused: true, ..queue() }, NOW);
        found.extend(check_disk(Some(0), None, None));
        found.extend(check_queue(&QueueFacts { is_served: false, ..queue() }, NOW));
        found.extend(check_queue(&QueueFacts { failed: 10, failing_since: Some(ago(200)), ..queue() }, NOW));
        sort(&mut found);
        let codes: Vec<_> = found.iter().map(|found| found.facts.code()).collect();
        let expected =
            [AttentionCode::ErrorBurst, AttentionCode::NoWorker, AttentionCode::PausedWithWork, AttentionCode::DiskLow];
        assert_eq!(codes, expected);
    }
}
