//! The clock: what is due, in which order, and the random delays.

use super::Model;
use super::job::{Error, ModelJob, State};
use super::lease::Failure;
use super::rules::{OnLeaseExpiry, profile_rules};
use super::{ANY_TEXT, server_error};
use crate::target::{Handle, Millis};

/// The order of events at one instant.
#[derive(Clone, Copy)]
enum Phase {
    Lifetime,
    Deadline,
    LeaseExpiry,
    Promotion,
    Retention,
}

const PHASES: [Phase; 5] = [Phase::Lifetime, Phase::Deadline, Phase::LeaseExpiry, Phase::Promotion, Phase::Retention];

/// Returns when `phase` applies to this job, if ever.
fn due_at(job: &ModelJob, phase: Phase) -> Option<Millis> {
    if job.removed {
        return None;
    }
    match phase {
        Phase::Lifetime => (job.rules.lifetime > 0 && job.is_live()).then(|| job.lifetime_from + job.rules.lifetime),
        // A job without a holder has neither deadline.
        Phase::Deadline => job.lease.as_ref().filter(|lease| !lease.lapsed).and_then(|lease| lease.deadline_at),
        Phase::LeaseExpiry => job.lease.as_ref().filter(|lease| !lease.lapsed).and_then(|lease| lease.expires_at),
        Phase::Promotion => {
            let waits = matches!(job.state, State::Delayed | State::Retrying) && job.run_at_window.is_none();
            if waits { job.run_at } else { None }
        }
        Phase::Retention => {
            let kept = match job.state {
                State::Completed => job.rules.retention.completed,
                State::Failed => job.rules.retention.failed,
                State::DeadLetter => job.rules.retention.dead_letter,
                State::Cancelled => job.rules.retention.cancelled,
                State::Pending | State::Scheduled | State::Delayed | State::Running | State::Retrying => return None,
            };
            if kept > 0 { job.completed_at.map(|ended| ended + kept) } else { None }
        }
    }
}

impl Model {
    /// Processes everything that is due now.
    pub(crate) fn settle_due(&mut self) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for phase in PHASES {
                // A retry whose jittered instant may be now is ordered with the other due jobs.
                let later = matches!(phase, Phase::Promotion | Phase::Retention);
                if later && self.awaits_adoption_now() {
                    return;
                }
                for handle in 0..self.jobs.len() {
                    let due = due_at(&self.jobs[handle], phase).is_some_and(|instant| instant <= self.now);
                    if due && self.act(handle, phase) {
                        self.propagate();
                        quiet = false;
                    }
                }
            }
        }
    }

    /// Returns the next deadline after now.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let instants = self.jobs.iter().flat_map(|job| PHASES.into_iter().filter_map(|phase| due_at(job, phase)));
        instants.filter(|instant| *instant > self.now).min()
    }

    pub(crate) fn advance_to(&mut self, target: Millis) {
        loop {
            self.adopt_earliest();
            let Some(instant) = self.next_due().filter(|instant| *instant <= target) else { break };
            self.now = instant;
            self.settle_due();
            if instant == target {
                // A delay drawn now can still be adopted.
                return;
            }
        }
        self.now = self.now.max(target);
    }

    /// Uses the shortest delay if no drawn delay was adopted.
    pub(crate) fn adopt_earliest(&mut self) {
        for handle in self.awaits_adoption() {
            if let Some((first, _)) = self.jobs[handle].run_at_window {
                let adopted = self.adopt_run_at(handle, first);
                debug_assert!(adopted.is_ok(), "the low end is inside the window");
            }
        }
    }

    /// Processes a due event. Returns false if it cannot happen now.
    fn act(&mut self, handle: Handle, phase: Phase) -> bool {
        match phase {
            Phase::Lifetime => {
                let error = server_error("timeout", "lifetime");
                self.end_by_force(handle, State::DeadLetter, "lifetime", error);
            }
            Phase::Deadline => self.fail(
                handle,
                Failure {
                    category: "timeout",
                    code: Some("execution_timeout".to_owned()),
                    message: ANY_TEXT.to_owned(),
                    retry_after: None,
                    unrecoverable: false,
                    always_ordinary: false,
                    outcome: "timed_out",
                    cause: "timeout",
                },
            ),
            Phase::LeaseExpiry => self.expire_lease(handle),
            Phase::Promotion => self.enter_scheduled(handle, "due"),
            Phase::Retention => {
                if self.is_needed(handle) {
                    return false;
                }
                self.remove(handle);
            }
        }
        true
    }

    fn expire_lease(&mut self, handle: Handle) {
        if self.jobs[handle].cancel_requested {
            self.cancel_as_requested(handle);
            return;
        }
        let job = &self.jobs[handle];
        let reclaims_spent = job.rules.max_reclaims.is_some_and(|most| job.counters.reclaims >= most);
        let starts_spent = job.rules.on_lease_expiry == OnLeaseExpiry::ReclaimCounted
            && job.counters.starts >= job.rules.limit_in_starts();
        if reclaims_spent || starts_spent {
            self.end_by_lost_leases(handle);
            return;
        }
        let as_failure = |category| Failure {
            category,
            code: Some("lease_expired".to_owned()),
            message: ANY_TEXT.to_owned(),
            retry_after: None,
            unrecoverable: false,
            always_ordinary: category == "system",
            outcome: "lease_expired",
            cause: "lease_expired",
        };
        match job.rules.on_lease_expiry {
            OnLeaseExpiry::FailTimeout => self.fail(handle, as_failure("timeout")),
            OnLeaseExpiry::FailRetryable => self.fail(handle, as_failure("system")),
            OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => self.reclaim(handle),
        }
    }

    fn reclaim(&mut self, handle: Handle) {
        let now = self.now;
        let job = self.job_mut(handle);
        if job.rules.lazy_reclaim {
            if let Some(lease) = &mut job.lease {
                lease.lapsed = true;
            }
            return;
        }
        job.counters.reclaims += 1;
        job.close_attempt(now, "lease_expired", None);
        self.enter_scheduled(handle, "lease_expired");
    }

    fn end_by_lost_leases(&mut self, handle: Handle) {
        let now = self.now;
        let to = self.exhausted_state(handle);
        let job = self.job_mut(handle);
        job.counters.failures += 1;
        job.close_attempt(now, "lease_expired", Some("system"));
        self.end(handle, to, "lease_expired", Some(server_error("system", "lease_expired")));
    }

    /// Ends a job from outside its run. Nothing is counted, and an open attempt is closed.
    pub(crate) fn end_by_force(&mut self, handle: Handle, to: State, cause: &'static str, error: Error) {
        let now = self.now;
        let category = error.category;
        self.job_mut(handle).close_attempt(now, "cancelled", Some(category));
        self.end(handle, to, cause, Some(error));
    }

    /// Deletes the record. Keys with a finite window remain.
    pub(crate) fn remove(&mut self, handle: Handle) {
        self.job_mut(handle).removed = true;
        let of_profile = || profile_rules(self.jobs[handle].profile).window;
        let window = self.queues.get(&self.jobs[handle].queue).map_or_else(of_profile, |queue| queue.rules.window);
        if window == 0 {
            self.keys.retain(|key| key.job != handle);
        }
        for key in self.keys.iter_mut().filter(|key| key.job == handle) {
            key.ends = Some(key.at + window);
        }
        self.record_removal_in_workflow(handle);
    }

    /// Returns the first and last instant that a jittered retry of this job may have.
    pub fn run_at_window(&self, job: Handle) -> Option<(Millis, Millis)> {
        self.jobs.get(job).and_then(|job| job.run_at_window)
    }

    fn awaits_adoption_now(&self) -> bool {
        self.jobs.iter().any(|job| job.run_at_window.is_some_and(|(first, _)| first <= self.now))
    }

    /// Returns retrying jobs with jitter whose instant was not adopted yet.
    pub fn awaits_adoption(&self) -> Vec<Handle> {
        (0..self.jobs.len()).filter(|handle| self.jobs[*handle].run_at_window.is_some()).collect()
    }

    /// Adopts the instant that another implementation drew for a jittered retry, if it is allowed.
    pub fn adopt_run_at(&mut self, job: Handle, run_at: Millis) -> Result<(), String> {
        let Some((first, last)) = self.run_at_window(job) else {
            return Err(format!("job {job} does not wait for a jittered instant"));
        };
        if !(first..=last).contains(&run_at) {
            return Err(format!("job {job}: retry at {run_at} is outside the jitter window {first} to {last}"));
        }
        let record = self.job_mut(job);
        record.run_at = Some(run_at);
        record.run_at_window = None;
        if let Some(attempt) = record.attempts.last_mut() {
            attempt.next_delay = attempt.ended_at.map(|ended| run_at - ended);
        }
        self.settle_due();
        Ok(())
    }

    /// Returns the first instant up to `until` at which a run may time out and retry with jitter. A
    /// differential run stops there, so that the delay is adopted before it ends.
    pub fn next_jitter(&self, until: Millis) -> Option<Millis> {
        self.jobs
            .iter()
            .filter(|job| job.rules.has_jitter())
            .flat_map(|job| [due_at(job, Phase::Deadline), due_at(job, Phase::LeaseExpiry)])
            .flatten()
            .filter(|instant| *instant > self.now && *instant <= until)
            .min()
    }
}
