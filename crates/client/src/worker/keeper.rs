//! The lease keeper: heartbeats, deadlines and shutdown timers, on a thread of its own.
//!
//! The thread has its own runtime and its own connection. A handler that blocks the runtime of the
//! worker can therefore not stop the heartbeats, and not the signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_api::ErrorCode;
use longshore_api::enums::WorkerDirective;
use longshore_api::work::{BatchHeartbeat, Extended, Verdict};
use tokio::time::{sleep, timeout};

use super::active_job::{ActiveJob, CancelReason, HeartbeatNotes, JobPhase};
use super::core::WorkerCore;
use super::outcome::JobOutcome;
use super::report::{RunEnd, WorkerEvent};
use super::settle::{PendingSettlement, send_settlements};
use crate::client::Client;
use crate::clock::monotonic;
use crate::random::BackoffTimer;

/// Longest sleep of the thread.
const SCAN_MAX: Duration = Duration::from_secs(10);
/// Most heartbeats of one request.
const BATCH_MAX: usize = 1_000;
/// Timeout of a heartbeat request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long releases are retried during an outage.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct LeaseKeeper {
    core: Arc<WorkerCore>,
    client: Client,
}

impl LeaseKeeper {
    /// Starts the thread. It ends after the dispatcher has ended.
    pub(super) fn start(core: &Arc<WorkerCore>) -> io::Result<JoinHandle<()>> {
        let keeper = Self { core: Arc::clone(core), client: core.client.with_own_connections() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if core.options.handle_signals {
            let guard = runtime.enter();
            super::signals::listen(core)?;
            drop(guard);
        }
        let run = move || runtime.block_on(keeper.run());
        std::thread::Builder::new().name("longshore-leases".to_owned()).spawn(run)
    }

    async fn run(self) {
        while !self.core.is_finished.load(Ordering::Acquire) {
            let now = monotonic();
            let shutdown = self.advance_shutdown(now);
            let (due, next) = self.scan(now);
            for batch in due.chunks(BATCH_MAX) {
                tokio::spawn(self.clone().send_heartbeats(batch.to_vec()));
            }
            let next = next.min(shutdown).min(now + SCAN_MAX);
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
                next = next.min(job.times.lock().next_heartbeat);
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
        can_heartbeat(job) && (at >= job.times.lock().next_heartbeat || !job.notes.lock().waiters.is_empty())
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
        self.core.table.free_slot();
        if self.core.options.stuck_max.is_some_and(|most| self.core.reporter.abandoned() >= most) {
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
                self.core.table.free_slot();
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
    async fn send_releases(self, batch: Vec<PendingSettlement>, since: Duration) {
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
        let mut sent_notes = Vec::with_capacity(jobs.len());
        let mut heartbeats = Vec::with_capacity(jobs.len());
        for job in &jobs {
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
        let sent = monotonic();
        let response = timeout(REQUEST_TIMEOUT, self.client.heartbeats(heartbeats)).await;
        match response {
            Ok(Ok(results)) => {
                self.core.reporter.observe_response::<()>(&Ok(()));
                self.core.obey(results.directive.unwrap_or(WorkerDirective::Run));
                for ((job, notes), verdict) in jobs.iter().zip(sent_notes).zip(results.results) {
                    self.on_verdict(job, notes, verdict, sent);
                }
            }
            Ok(Err(error)) => {
                self.core.reporter.observe_response::<()>(&Err(error));
                jobs.iter().zip(sent_notes).for_each(|(job, notes)| self.retry_sooner(job, notes));
            }
            Err(_) => {
                self.core.reporter.on_outage("no response to a heartbeat");
                jobs.iter().zip(sent_notes).for_each(|(job, notes)| self.retry_sooner(job, notes));
            }
        }
        for job in &jobs {
            job.times.lock().is_in_flight = false;
        }
        self.core.table.keeper_wake.notify_one();
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
                _ => self.retry_sooner(job, notes),
            },
        }
    }

    /// Keeps the data of a failed heartbeat, unless the handler has newer data.
    fn retry_sooner(&self, job: &ActiveJob, sent: HeartbeatNotes) {
        let mut notes = job.notes.lock();
        notes.progress = notes.progress.take().or(sent.progress);
        notes.checkpoint = notes.checkpoint.take().or(sent.checkpoint);
        notes.waiters.extend(sent.waiters);
        drop(notes);
        let wait = (job.interval() / 4).max(Duration::from_millis(20));
        job.times.lock().next_heartbeat = monotonic() + wait;
    }
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
        ActiveJob::new(0, crate::worker::sample_job(), Duration::ZERO, Time(0))
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

    #[test]
    fn a_drain_does_not_stop_heartbeats() {
        let draining = job();
        draining.token.fire(CancelReason::Drain);
        assert!(can_heartbeat(&draining));
    }
}
