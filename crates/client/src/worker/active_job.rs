//! A claimed job from its claim to its settlement, and the table of all of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore_api::Time;
use longshore_api::work::ClaimedJob;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// Why the token of a handler fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// A client has cancelled the job.
    Cancelled,
    /// The execution timeout of the job ends soon.
    Deadline,
    /// The worker shuts down.
    Drain,
    /// The lease is lost: another worker may run the job. Nothing is settled.
    LeaseLost,
}

impl CancelReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Drain => "drain",
            Self::LeaseLost => "lease_lost",
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Cancelled => 1,
            Self::Deadline => 2,
            Self::Drain => 3,
            Self::LeaseLost => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Cancelled, Self::Deadline, Self::Drain, Self::LeaseLost].into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The cancellation token of one run.
#[derive(Debug, Default)]
pub(crate) struct CancelToken {
    reason: AtomicU8,
    fired: Notify,
}

impl CancelToken {
    /// Fires the token. The first reason stays, but for a lost lease, which replaces all others.
    pub(crate) fn fire(&self, reason: CancelReason) {
        let code = reason.code();
        let changed = match reason {
            CancelReason::LeaseLost => self.reason.swap(code, Ordering::AcqRel) != code,
            CancelReason::Cancelled | CancelReason::Deadline | CancelReason::Drain => {
                self.reason.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_ok()
            }
        };
        if changed {
            self.fired.notify_waiters();
        }
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        CancelReason::from_code(self.reason.load(Ordering::Acquire))
    }

    /// Waits until the token fires. Cancel safe.
    pub(crate) async fn fired(&self) -> CancelReason {
        loop {
            let mut fired = std::pin::pin!(self.fired.notified());
            fired.as_mut().enable();
            if let Some(reason) = self.reason() {
                return reason;
            }
            fired.await;
        }
    }
}

impl CancelToken {
    /// Waits until the lease is lost. Cancel safe.
    pub(crate) async fn lease_lost(&self) {
        loop {
            let mut fired = std::pin::pin!(self.fired.notified());
            fired.as_mut().enable();
            if self.reason() == Some(CancelReason::LeaseLost) {
                return;
            }
            fired.await;
        }
    }
}

/// Phase of a claimed job. The thread that changes it owns the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum JobPhase {
    /// Claimed, and waiting for a slot.
    Prefetched,
    Running,
    /// Its settlement waits to be sent.
    Settling,
    /// Settled, lost or abandoned.
    Ended,
}

/// Times of a lease, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTimes {
    /// When the lease was renewed last, at the earliest. The server's lease starts later.
    pub(crate) renewed_at: Duration,
    pub(crate) next_heartbeat: Duration,
    /// After a failed heartbeat: not before this time, also with a waiting checkpoint.
    pub(crate) retry_at: Duration,
    /// Until then no other worker can get the job. `None` if the lease does not expire.
    pub(crate) valid_until: Option<Duration>,
    pub(crate) is_in_flight: bool,
    pub(crate) lost_at: Option<Duration>,
}

/// Data for the next heartbeat.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatNotes {
    pub(crate) progress: Option<Box<RawValue>>,
    pub(crate) checkpoint: Option<Box<RawValue>>,
    /// Handlers that wait until the checkpoint is stored.
    pub(crate) waiters: Vec<oneshot::Sender<Result<(), String>>>,
}

impl HeartbeatNotes {
    pub(crate) fn bytes(&self) -> usize {
        [&self.progress, &self.checkpoint].into_iter().flatten().map(|data| data.get().len()).sum()
    }
}

#[derive(Debug)]
pub(crate) struct ActiveJob {
    pub(crate) key: u64,
    /// Its group of slots.
    pub(crate) group: usize,
    pub(crate) job: ClaimedJob,
    pub(crate) token: CancelToken,
    /// Length of the lease; `None` if it does not expire.
    pub(crate) lease: Option<Duration>,
    /// When the server made the response to the claim, at the earliest.
    pub(crate) claimed_at: Duration,
    /// When the execution timeout ends, at the earliest.
    pub(crate) deadline: Option<Duration>,
    pub(crate) times: Mutex<LeaseTimes>,
    pub(crate) notes: Mutex<HeartbeatNotes>,
    /// The last checkpoint, also before it is stored.
    pub(crate) checkpoint: Mutex<Option<Box<RawValue>>>,
    pub(crate) started_at: OnceLock<Duration>,
    pub(crate) run: OnceLock<AbortHandle>,
    phase: AtomicU8,
}

/// Longest time between two heartbeats: cancel requests arrive with their responses.
const INTERVAL_MAX: Duration = Duration::from_secs(10);
const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Margin of a deadline: a tenth of the timeout, at most this.
const MARGIN_MAX: Duration = Duration::from_secs(1);

impl ActiveJob {
    /// `claimed_at` is the earliest time of the claim's response, `now` the server's time of it.
    pub(crate) fn new(key: u64, group: usize, job: ClaimedJob, claimed_at: Duration, now: Time) -> Self {
        let millis = |length: i64| Duration::from_millis(u64::try_from(length).unwrap_or(0));
        let lease = match (job.lease.duration, job.lease.expires_at) {
            (Some(lease), _) if lease.0 > 0 => Some(lease.as_std()),
            (_, Some(expires)) => Some(millis(expires.0 - now.0)),
            (_, None) => None,
        };
        let deadline = job.deadline_at.map(|deadline| claimed_at + millis(deadline.0 - now.0));
        let times = LeaseTimes {
            renewed_at: claimed_at,
            next_heartbeat: claimed_at,
            retry_at: Duration::ZERO,
            valid_until: None,
            is_in_flight: false,
            lost_at: None,
        };
        let active = Self {
            key,
            group,
            checkpoint: Mutex::new(job.checkpoint.clone()),
            job,
            token: CancelToken::default(),
            lease,
            claimed_at,
            deadline,
            times: Mutex::new(times),
            notes: Mutex::default(),
            started_at: OnceLock::new(),
            run: OnceLock::new(),
            phase: AtomicU8::new(JobPhase::Prefetched as u8),
        };
        active.on_renewed(claimed_at);
        active
    }

    /// Extends the lease from `sent`, when the request was sent or its response made.
    pub(crate) fn on_renewed(&self, sent: Duration) {
        let mut times = self.times.lock();
        times.renewed_at = sent;
        // A tenth of the lease is a margin for clock drift and for stopping the handler.
        times.valid_until = self.lease.map(|lease| sent + lease - lease / 10);
        times.next_heartbeat = sent + self.interval();
    }

    /// A third of the lease.
    pub(crate) fn interval(&self) -> Duration {
        self.lease.map_or(INTERVAL_MAX, |lease| (lease / 3).clamp(INTERVAL_MIN, INTERVAL_MAX))
    }

    /// When the token fires because of the execution timeout: before the server's own timeout.
    pub(crate) fn token_deadline(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline - (deadline.saturating_sub(self.claimed_at) / 10).min(MARGIN_MAX))
    }

    pub(crate) fn phase(&self) -> JobPhase {
        let phase = self.phase.load(Ordering::Acquire);
        let phases = [JobPhase::Prefetched, JobPhase::Running, JobPhase::Settling];
        phases.into_iter().find(|known| *known as u8 == phase).unwrap_or(JobPhase::Ended)
    }

    /// Changes the phase. Returns whether it was `from`: only one caller succeeds.
    pub(crate) fn change_phase(&self, from: JobPhase, to: JobPhase) -> bool {
        self.phase.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Fires the token with `LeaseLost`, and fails a waiting checkpoint.
    pub(crate) fn lose_lease(&self, now: Duration) {
        self.times.lock().lost_at.get_or_insert(now);
        self.token.fire(CancelReason::LeaseLost);
        self.fail_notes("the lease is lost");
    }

    pub(crate) fn fail_notes(&self, why: &str) {
        for waiter in std::mem::take(&mut *self.notes.lock()).waiters {
            drop(waiter.send(Err(why.to_owned())));
        }
    }
}

/// All claimed jobs that are not settled. Shared with the lease keeper's thread.
#[derive(Debug)]
pub(crate) struct JobTable {
    jobs: Mutex<HashMap<u64, Arc<ActiveJob>>>,
    next_key: AtomicU64,
    /// Occupied slots, by group.
    running: Vec<AtomicUsize>,
    /// Wakes the lease keeper: an earlier timer, a checkpoint, or the end.
    pub(crate) keeper_wake: Notify,
    /// Wakes the dispatcher: a free slot, a settlement, or a removed job.
    pub(crate) dispatch_wake: Notify,
    /// When the keeper wakes up next, in milliseconds of the monotonic clock.
    keeper_planned: AtomicU64,
}

impl JobTable {
    /// Returns an empty table with this many groups of slots.
    pub(crate) fn new(groups: usize) -> Self {
        Self {
            jobs: Mutex::default(),
            next_key: AtomicU64::default(),
            running: std::iter::repeat_with(AtomicUsize::default).take(groups).collect(),
            keeper_wake: Notify::default(),
            dispatch_wake: Notify::default(),
            keeper_planned: AtomicU64::default(),
        }
    }

    /// Adds the jobs of a claim, and wakes the keeper if it would sleep past a timer.
    pub(crate) fn insert(
        &self,
        jobs: Vec<ClaimedJob>,
        group_of: impl Fn(&str) -> usize,
        claimed_at: Duration,
        now: Time,
    ) -> Vec<Arc<ActiveJob>> {
        let first = self.next_key.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let active: Vec<_> = (first..)
            .zip(jobs)
            .map(|(key, job)| Arc::new(ActiveJob::new(key, group_of(&job.job_type), job, claimed_at, now)))
            .collect();
        let mut earliest = Duration::MAX;
        let mut table = self.jobs.lock();
        for job in &active {
            earliest = earliest.min(job.times.lock().next_heartbeat);
            earliest = earliest.min(job.token_deadline().unwrap_or(Duration::MAX));
            table.insert(job.key, Arc::clone(job));
        }
        drop(table);
        if millis_of(earliest) < self.keeper_planned.load(Ordering::Acquire) {
            self.keeper_wake.notify_one();
        }
        active
    }

    pub(crate) fn plan_keeper(&self, at: Duration) {
        self.keeper_planned.store(millis_of(at), Ordering::Release);
    }

    pub(crate) fn remove(&self, job: &ActiveJob) {
        let mut table = self.jobs.lock();
        table.remove(&job.key);
        let is_empty = table.is_empty();
        drop(table);
        if is_empty {
            self.dispatch_wake.notify_one();
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<ActiveJob>> {
        self.jobs.lock().values().cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.lock().is_empty()
    }

    /// Running handlers of all groups.
    pub(crate) fn running(&self) -> usize {
        self.running.iter().map(|running| running.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn running_in(&self, group: usize) -> usize {
        self.running.get(group).map_or(0, |running| running.load(Ordering::Acquire))
    }

    pub(crate) fn take_slot(&self, job: &ActiveJob) {
        if let Some(running) = self.running.get(job.group) {
            running.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn free_slot(&self, job: &ActiveJob) {
        if let Some(running) = self.running.get(job.group) {
            running.fetch_sub(1, Ordering::AcqRel);
        }
        self.dispatch_wake.notify_one();
    }
}

fn millis_of(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays_but_for_a_lost_lease() {
        let token = CancelToken::default();
        assert_eq!(token.reason(), None);
        token.fire(CancelReason::Drain);
        token.fire(CancelReason::Deadline);
        assert_eq!(token.fired().await, CancelReason::Drain);
        token.fire(CancelReason::LeaseLost);
        assert_eq!(token.fired().await, CancelReason::LeaseLost);
    }

    fn claimed(lease: Option<u64>, timeout: Option<i64>) -> ActiveJob {
        let mut job = crate::worker::sample_job();
        job.lease.duration = lease.map(longshore_api::Duration::from_millis);
        job.lease.expires_at = None;
        job.deadline_at = timeout.map(|timeout| Time(1_000 + timeout));
        ActiveJob::new(0, 0, job, Duration::from_secs(7), Time(1_000))
    }

    /// Proves I-61.
    #[test]
    fn a_heartbeat_is_due_after_a_third_of_the_lease() {
        let job = claimed(Some(5_000), None);
        let times = *job.times.lock();
        let elapsed = times.next_heartbeat - times.renewed_at;
        assert_eq!(elapsed.as_millis(), 1_666);
        assert_eq!(times.valid_until, Some(Duration::from_millis(11_500)));
        job.on_renewed(Duration::from_secs(9));
        assert_eq!(job.times.lock().next_heartbeat.as_millis(), 10_666);
        let long = claimed(Some(3_600_000), None);
        assert_eq!(long.interval(), INTERVAL_MAX);
    }

    #[test]
    fn a_deadline_counts_from_the_response_to_the_claim_and_has_a_margin() {
        let job = claimed(None, Some(2_000));
        assert_eq!(job.deadline, Some(Duration::from_secs(9)));
        assert_eq!(job.token_deadline(), Some(Duration::from_millis(8_800)));
        assert_eq!(claimed(None, Some(3_600_000)).token_deadline(), Some(Duration::from_secs(7 + 3_600 - 1)));
        assert_eq!(claimed(None, None).token_deadline(), None);
    }

    #[test]
    fn one_caller_changes_a_phase() {
        let job = claimed(None, None);
        assert!(job.change_phase(JobPhase::Prefetched, JobPhase::Running));
        assert!(!job.change_phase(JobPhase::Prefetched, JobPhase::Running));
        assert_eq!(job.phase(), JobPhase::Running);
    }
}
