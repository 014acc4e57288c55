//! The lease keeper: heartbeats, deadlines and shutdown timers, on a thread of its own.
//!
//! The thread has its own runtime and its own connection. A handler that blocks the runtime of the
//! worker can therefore not stop the heartbeats, and not the signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_api::enums::WorkerDirective;
use longshore_api::work::{BatchHeartbeat, Extended, Verdict};
use longshore_api::{ErrorCode, RetryAdvice};
use tokio::time::{sleep, timeout};

use super::active_job::{ActiveJob, CancelReason, HeartbeatNotes, JobPhase};
use super::core::{KeeperLink, WorkerCore};
use super::outcome::JobOutcome;
use super::report::{RunEnd, WorkerEvent, is_outage};
use super::settle::{PendingSettlement, send_settlements};
use crate::client::Client;
use crate::clock::monotonic;
use crate::error::Error;
use crate::random::{BackoffTimer, jittered};

/// Longest sleep of the thread.
const SCAN_MAX: Duration = Duration::from_secs(10);
/// Most heartbeats of one request.
const BATCH_MAX: usize = 1_000;
/// Bytes of progress and checkpoints after which a request gets no more heartbeats.
const BATCH_BYTES: usize = 4 << 20;
/// Timeout of a heartbeat request: the interval of its jobs, within these limits. A connection that
/// hangs must not use up a lease.
const TIMEOUT_MIN: Duration = Duration::from_millis(250);
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// After the future of the run was dropped, jobs are released for this time, with such pauses.
const DROP_TIMEOUT: Duration = Duration::from_secs(3);
const DROP_SCAN: Duration = Duration::from_millis(20);
/// How long releases are retried during an outage.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct LeaseKeeper {
    pub(super) core: Arc<WorkerCore>,
    pub(super) client: Client,
}

impl LeaseKeeper {
    /// Starts the thread. It ends after the dispatcher has ended.
    pub(super) fn start(core: &Arc<WorkerCore>) -> io::Result<JoinHandle<()>> {
        let keeper = Self { core: Arc::clone(core), client: core.client.with_own_connections() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if core.options.handle_signals {
            super::signals::listen(core)?;
        }
        let link = KeeperLink { runtime: runtime.handle().clone(), client: keeper.client.clone() };
        drop(core.keeper.set(link));
        let run = move || runtime.block_on(keeper.run());
        std::thread::Builder::new().name("longshore-leases".to_owned()).spawn(run)
    }

    async fn run(self) {
        let mut dropped_at = None;
        while !self.core.is_finished.load(Ordering::Acquire) {
            let now = monotonic();
            if self.core.is_dropped.load(Ordering::Acquire) {
                let since = *dropped_at.get_or_insert(now);
                let unsent = self.core.queue.take_batch();
                if !unsent.is_empty() {
                    tokio::spawn(self.clone().send_releases(unsent, now));
                }
                // A claim that is on its way may still bring jobs.
                let is_over = self.core.table.is_empty() && !self.core.has_requests();
                if is_over || now >= since + DROP_TIMEOUT {
                    return;
                }
            }
            let shutdown = self.advance_shutdown(now);
            let (due, next) = self.scan(now);
            for batch in split(due) {
                tokio::spawn(self.clone().send_heartbeats(batch));
            }
            let next = next.min(shutdown).min(now + if dropped_at.is_some() { DROP_SCAN } else { SCAN_MAX });
            self.core.table.plan_keeper(next);
            tokio::select! {
                () = sleep(next.saturating_sub(monotonic())) => {}
                () = self.core.table.keeper_wake.notified() => {}
            }
        }
    }

    /// Applies the timers of all jobs. Returns the jobs whose heartbeat is due, and the next timer.
    fn scan(&self, now: Duration) -> (Vec<Arc<ActiveJob>>, Duration) {
        let jobs = self.core.table.all();
        let mut next = Duration::MAX;
        let mut is_any_due = false;
        for job in &jobs {
            next = next.min(self.apply_timers(job, now));
            let is_due = self.is_due(job, now);
            is_any_due |= is_due;
            if !is_due && can_heartbeat(job) {
                next = next.min(next_heartbeat(job));
            }
        }
        if !is_any_due {
            return (Vec::new(), next);
        }
        // One request for all jobs whose turn is soon.
        let due = jobs.into_iter().filter(|job| self.is_due(job, now + job.interval() / 4)).collect();
        (due, next)
    }

    fn is_due(&self, job: &ActiveJob, at: Duration) -> bool {
        can_heartbeat(job) && at >= next_heartbeat(job)
    }

    /// Fires deadlines, detects lost leases and stuck handlers. Returns the next timer of the job.
    fn apply_timers(&self, job: &Arc<ActiveJob>, now: Duration) -> Duration {
        let mut next = Duration::MAX;
        let times = *job.times.lock();
        match times.valid_until {
            Some(until) if times.lost_at.is_none() && now >= until => job.lose_lease(now),
            Some(until) if times.lost_at.is_none() => next = next.min(until),
            Some(_) | None => {}
        }
        // A prefetched job may start before the next scan: its deadline is a timer already.
        if let Some(deadline) = job.token_deadline().filter(|deadline| now < *deadline) {
            next = next.min(deadline);
        }
        match job.phase() {
            JobPhase::Prefetched => next = next.min(self.check_prefetched(job, now)),
            JobPhase::Running => {
                match job.token_deadline() {
                    Some(deadline) if now >= deadline => job.token.fire(CancelReason::Deadline),
                    Some(deadline) => next = next.min(deadline),
                    None => {}
                }
                let lost_at = job.times.lock().lost_at;
                let limit = [job.deadline, lost_at].into_iter().flatten().min();
                match limit.map(|limit| limit + self.core.options.stuck_grace) {
                    Some(limit) if now >= limit => self.abandon(job),
                    Some(limit) => next = next.min(limit),
                    None => {}
                }
            }
            JobPhase::Settling | JobPhase::Ended => {}
        }
        next
    }

    /// Releases a job that has waited for a slot for half of its lease.
    fn check_prefetched(&self, job: &Arc<ActiveJob>, now: Duration) -> Duration {
        let limit = job.lease.map_or(Duration::MAX, |lease| job.claimed_at + lease / 2);
        if now < limit {
            return limit;
        }
        if job.change_phase(JobPhase::Prefetched, JobPhase::Settling) {
            self.core.push_settlement(release(job, now));
        }
        Duration::MAX
    }

    /// Frees the slot of a stuck handler. Its lease is not settled: it expires.
    fn abandon(&self, job: &Arc<ActiveJob>) {
        if !job.change_phase(JobPhase::Running, JobPhase::Settling) {
            return;
        }
        if let Some(run) = job.run.get() {
            run.abort();
        }
        self.core.reporter.emit(&WorkerEvent::Abandoned { job: &job.job });
        self.core.end_run(job, RunEnd::Abandoned, None, Some("the handler ignored its deadline"));
        self.core.table.free_slot(job);
        if self.core.options.stuck_max.is_some_and(|most| self.core.reporter.abandoned() >= most) {
            self.core.is_stuck.store(true, Ordering::Release);
            self.core.begin_drain();
        }
    }

    /// Cancels handlers and releases jobs when it is time. Returns the next of these times.
    fn advance_shutdown(&self, now: Duration) -> Duration {
        let times = *self.core.shutdown.lock();
        let mut next = Duration::MAX;
        match times.cancel_at {
            Some(at) if now >= at && !times.is_cancelled => {
                self.core.shutdown.lock().is_cancelled = true;
                let running = self.core.table.running();
                if running > 0 {
                    self.core.reporter.emit(&WorkerEvent::Cancelling { running });
                }
                for job in self.core.table.all() {
                    job.token.fire(CancelReason::Drain);
                }
            }
            Some(at) if !times.is_cancelled => next = at,
            Some(_) | None => {}
        }
        match times.release_at {
            Some(at) if now >= at => self.release_jobs(now),
            Some(at) => next = next.min(at),
            None => {}
        }
        next
    }

    /// Takes all jobs from their handlers and releases them.
    fn release_jobs(&self, now: Duration) {
        let mut released = Vec::new();
        for job in self.core.table.all() {
            let was_running = job.change_phase(JobPhase::Running, JobPhase::Settling);
            if was_running {
                if let Some(run) = job.run.get() {
                    run.abort();
                }
                self.core.table.free_slot(&job);
            } else if !job.change_phase(JobPhase::Prefetched, JobPhase::Settling) {
                continue;
            }
            if job.token.reason() == Some(CancelReason::LeaseLost) {
                self.core.end_run(&job, RunEnd::Lost, None, Some("the lease was lost"));
            } else {
                released.push(release(&job, now));
            }
        }
        for start in (0..released.len()).step_by(BATCH_MAX).rev() {
            tokio::spawn(self.clone().send_releases(released.split_off(start), now));
        }
    }

    /// Sends releases on this thread: the runtime of the worker may be blocked.
    pub(super) async fn send_releases(self, batch: Vec<PendingSettlement>, since: Duration) {
        if batch.is_empty() {
            return;
        }
        let mut backoff = BackoffTimer::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            let response = send_settlements(&self.client, &batch).await;
            self.core.reporter.observe_response(&response);
            match response {
                Ok(verdicts) => return self.core.apply_verdicts(batch, verdicts),
                Err(error) if monotonic() >= since + RELEASE_TIMEOUT => {
                    let detail = format!("cannot release the job: {error}");
                    return batch.iter().for_each(|settlement| self.core.end_lost(settlement, &detail));
                }
                Err(_) => sleep(backoff.next_delay()).await,
            }
        }
    }

    async fn send_heartbeats(self, jobs: Vec<Arc<ActiveJob>>) {
        let mut rest = vec![jobs];
        while let Some(mut jobs) = rest.pop() {
            let error = match self.send_batch(&jobs).await {
                Ok(()) => continue,
                Err(error) => error,
            };
            match error {
                // Data of one job may have refused the request: the others must not lose their
                // leases.
                Some(error) if jobs.len() > 1 && is_refusal(&error) => {
                    let half = jobs.split_off(jobs.len() / 2);
                    rest.extend([jobs, half]);
                }
                Some(error) if is_refusal(&error) => {
                    let code = error.problem().map_or_else(|| "bad_request".to_owned(), |problem| problem.code.clone());
                    let detail = error.to_string();
                    for job in &jobs {
                        let refused = Verdict::Refused {
                            id: None,
                            code: code.clone(),
                            detail: detail.clone(),
                            field: None,
                            allowed: Vec::new(),
                        };
                        let notes = std::mem::take(&mut *job.notes.lock());
                        self.on_verdict(job, notes, refused, monotonic());
                    }
                }
                error => {
                    let asked = error.and_then(|error| error.retry_after()).unwrap_or_default();
                    jobs.iter().for_each(|job| retry_sooner(job, asked));
                }
            }
        }
        self.core.table.keeper_wake.notify_one();
    }

    /// Sends one request. On an error the data of the heartbeats is kept; `None` is a timeout.
    async fn send_batch(&self, jobs: &[Arc<ActiveJob>]) -> Result<(), Option<Error>> {
        let mut sent_notes = Vec::with_capacity(jobs.len());
        let mut heartbeats = Vec::with_capacity(jobs.len());
        for job in jobs {
            job.times.lock().is_in_flight = true;
            let notes = std::mem::take(&mut *job.notes.lock());
            heartbeats.push(BatchHeartbeat {
                id: job.job.id.clone(),
                lease: Some(job.job.lease.token.clone()),
                progress: notes.progress.clone(),
                checkpoint: notes.checkpoint.clone(),
            });
            sent_notes.push(notes);
        }
        let interval = jobs.iter().map(|job| job.interval()).min().unwrap_or(TIMEOUT_MAX);
        let sent = monotonic();
        let response = timeout(interval.clamp(TIMEOUT_MIN, TIMEOUT_MAX), self.client.heartbeats(heartbeats)).await;
        let error = match response {
            Ok(Ok(results)) => {
                self.core.reporter.observe_response::<()>(&Ok(()));
                if let Some(now) = results.now {
                    self.core.clock.lock().add(sent, monotonic(), now);
                }
                self.core.obey(results.directive.unwrap_or(WorkerDirective::Run));
                for ((job, notes), verdict) in jobs.iter().zip(sent_notes).zip(results.results) {
                    self.on_verdict(job, notes, verdict, sent);
                }
                None
            }
            Ok(Err(error)) => {
                jobs.iter().zip(sent_notes).for_each(|(job, notes)| keep_notes(job, notes));
                let response = Err::<(), _>(error);
                self.core.reporter.observe_response(&response);
                Some(response.err())
            }
            Err(_) => {
                jobs.iter().zip(sent_notes).for_each(|(job, notes)| keep_notes(job, notes));
                self.core.reporter.on_outage("no response to a heartbeat");
                Some(None)
            }
        };
        for job in jobs {
            job.times.lock().is_in_flight = false;
        }
        error.map_or(Ok(()), Err)
    }

    fn on_verdict(&self, job: &ActiveJob, notes: HeartbeatNotes, verdict: Verdict<Extended>, sent: Duration) {
        match verdict {
            Verdict::Done(extended) => {
                job.on_renewed(sent);
                for waiter in notes.waiters {
                    drop(waiter.send(Ok(())));
                }
                if extended.cancel_requested {
                    job.token.fire(CancelReason::Cancelled);
                }
            }
            Verdict::Refused { code, detail, .. } => match ErrorCode::from_code(&code) {
                Some(ErrorCode::StaleLease | ErrorCode::JobNotFound | ErrorCode::IllegalTransition) => {
                    *job.notes.lock() = notes;
                    job.lose_lease(monotonic());
                }
                // The data was refused, not the lease: send a heartbeat without it.
                Some(ErrorCode::Validation | ErrorCode::PayloadTooLarge | ErrorCode::BadRequest) => {
                    tracing::warn!(id = job.job.id, detail, "progress or checkpoint refused");
                    job.times.lock().next_heartbeat = sent;
                    for waiter in notes.waiters {
                        drop(waiter.send(Err(detail.clone())));
                    }
                }
                _ => {
                    keep_notes(job, notes);
                    retry_sooner(job, Duration::ZERO);
                }
            },
        }
    }
}

/// Splits heartbeats into requests, by count and by bytes.
fn split(jobs: Vec<Arc<ActiveJob>>) -> Vec<Vec<Arc<ActiveJob>>> {
    let mut batches = Vec::new();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for job in jobs {
        let length = job.notes.lock().bytes();
        if batch.len() >= BATCH_MAX || (bytes > 0 && bytes + length > BATCH_BYTES) {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += length;
        batch.push(job);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// Whether the server has refused a request as a whole.
fn is_refusal(error: &Error) -> bool {
    error.retry() == RetryAdvice::Never && !is_outage(error) && matches!(error, Error::Refused(_))
}

/// Keeps the data of a failed heartbeat, unless the handler has newer data.
fn keep_notes(job: &ActiveJob, sent: HeartbeatNotes) {
    let mut notes = job.notes.lock();
    notes.progress = notes.progress.take().or(sent.progress);
    notes.checkpoint = notes.checkpoint.take().or(sent.checkpoint);
    notes.waiters.extend(sent.waiters);
}

/// Plans the next heartbeat after a failed one, with jitter: workers share an outage. The wait that
/// the server has asked for is kept as long as the lease allows two more tries.
fn retry_sooner(job: &ActiveJob, asked: Duration) {
    let wait = jittered((job.interval() / 3).max(Duration::from_millis(20))).max(asked.min(job.interval() / 2));
    let mut times = job.times.lock();
    times.retry_at = monotonic() + wait;
    times.next_heartbeat = times.retry_at;
}

/// A checkpoint that a handler waits for is sent at once, but for the pause after a failure.
fn next_heartbeat(job: &ActiveJob) -> Duration {
    let has_waiters = !job.notes.lock().waiters.is_empty();
    let times = job.times.lock();
    if has_waiters { times.retry_at } else { times.next_heartbeat }
}

/// A job has heartbeats from its claim until it is settled or its lease is lost.
fn can_heartbeat(job: &ActiveJob) -> bool {
    let times = job.times.lock();
    job.phase() != JobPhase::Ended && !times.is_in_flight && times.lost_at.is_none()
}

fn release(job: &Arc<ActiveJob>, now: Duration) -> PendingSettlement {
    PendingSettlement { active: Arc::clone(job), outcome: JobOutcome::Release, finished_at: now }
}

#[cfg(test)]
mod tests {
    use longshore_api::Time;

    use super::*;

    fn job() -> ActiveJob {
        ActiveJob::new(0, 0, crate::worker::sample_job(), Duration::ZERO, Time(0))
    }

    /// Proves I-63.
    #[test]
    fn heartbeats_stop_with_the_job_or_its_lease() {
        let done = job();
        assert!(can_heartbeat(&done));
        done.change_phase(JobPhase::Prefetched, JobPhase::Running);
        done.change_phase(JobPhase::Running, JobPhase::Settling);
        assert!(can_heartbeat(&done), "until the outcome is stored");
        done.change_phase(JobPhase::Settling, JobPhase::Ended);
        assert!(!can_heartbeat(&done));
        let lost = job();
        lost.lose_lease(Duration::ZERO);
        assert!(!can_heartbeat(&lost));
        assert_eq!(lost.token.reason(), Some(CancelReason::LeaseLost));
    }

    fn with_checkpoint(bytes: usize) -> Arc<ActiveJob> {
        let job = Arc::new(job());
        let data = serde_json::value::to_raw_value(&"x".repeat(bytes)).unwrap();
        job.notes.lock().checkpoint = Some(data);
        job
    }

    #[test]
    fn requests_are_split_by_bytes_and_by_count() {
        let lengths = |jobs: Vec<_>| split(jobs).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths((0..40).map(|_| with_checkpoint(1 << 20)).collect()).iter().sum::<usize>(), 40);
        assert_eq!(lengths((0..7).map(|_| with_checkpoint(1 << 20)).collect()), [3, 3, 1]);
        assert_eq!(lengths(vec![with_checkpoint(9 << 20), with_checkpoint(0)]), [1, 1]);
        assert_eq!(lengths((0..2_500).map(|_| Arc::new(job())).collect()), [1_000, 1_000, 500]);
    }

    #[test]
    fn a_waiting_checkpoint_is_sent_at_once_but_not_again_and_again() {
        let job = job();
        let (stored, _answer) = tokio::sync::oneshot::channel();
        job.notes.lock().waiters.push(stored);
        assert_eq!(next_heartbeat(&job), Duration::ZERO);
        retry_sooner(&job, Duration::ZERO);
        assert!(next_heartbeat(&job) > Duration::ZERO);
        // The lease of 30 s has heartbeats every 10 s: it cannot wait for a minute.
        retry_sooner(&job, Duration::from_secs(60));
        let wait = job.times.lock().retry_at.saturating_sub(monotonic());
        assert!(wait > Duration::from_secs(4) && wait <= Duration::from_secs(5), "{wait:?}");
    }

    #[test]
    fn a_drain_does_not_stop_heartbeats() {
        let draining = job();
        draining.token.fire(CancelReason::Drain);
        assert!(can_heartbeat(&draining));
    }
}
