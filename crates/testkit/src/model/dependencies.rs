//! Dependencies: which jobs wait, how an end propagates, and what a requeue revives.

use super::job::{Error, ModelJob, State};
use super::{ANY_TEXT, Model};
use crate::target::Handle;

impl Model {
    /// Whether `after` counts a dependency as met. A pruned one counts, unless it ended this job.
    fn has_completed(&self, dependency: Handle) -> bool {
        let job = &self.jobs[dependency];
        job.removed || job.state == State::Completed
    }

    fn has_ended(&self, dependency: Handle) -> bool {
        !self.jobs[dependency].is_live()
    }

    pub(crate) fn ended_without_success(&self, dependency: Handle) -> bool {
        let job = &self.jobs[dependency];
        !job.removed && job.state.is_terminal() && job.state != State::Completed
    }

    /// Returns the dependency in `after` that ended first without success. At equal times the first
    /// in the list wins.
    pub(crate) fn broken_dependency(&self, job: &ModelJob) -> Option<Handle> {
        let stopped_it = |dependency: Handle| self.jobs[dependency].removed && job.ended_by == Some(dependency);
        let bad = |dependency: Handle| self.ended_without_success(dependency) || stopped_it(dependency);
        let broken = job.after.iter().copied().filter(|dependency| bad(*dependency));
        broken.min_by_key(|dependency| self.jobs[*dependency].completed_at)
    }

    pub(crate) fn dependencies_hold(&self, job: &ModelJob) -> bool {
        job.after.iter().all(|dependency| self.has_completed(*dependency))
            && (job.after_any.is_empty() || self.any_has_ended(job))
    }

    /// Once a dependency in `after_any` has ended, the condition stays met, even if that job is
    /// requeued.
    fn any_has_ended(&self, job: &ModelJob) -> bool {
        job.any_met || job.after_any.iter().any(|dependency| self.has_ended(*dependency))
    }

    /// Records that `after_any` is met.
    pub(crate) fn record_any_met(&mut self, handle: Handle) {
        let met = self.any_has_ended(&self.jobs[handle]);
        if met && !self.jobs[handle].any_met {
            self.job_mut(handle).any_met = true;
        }
    }

    /// Counts the dependencies that a pending job waits for.
    pub(crate) fn waiting_on(&self, job: &ModelJob) -> usize {
        if job.state != State::Pending {
            return 0;
        }
        let all = job.after.iter().filter(|dependency| !self.has_completed(**dependency)).count();
        all + if self.any_has_ended(job) { 0 } else { job.after_any.len() }
    }

    /// Whether a live job depends on this job. Such a job is neither pruned nor deleted.
    pub(crate) fn is_needed(&self, handle: Handle) -> bool {
        self.jobs
            .iter()
            .any(|other| other.is_live() && (other.after.contains(&handle) || other.after_any.contains(&handle)))
    }

    /// Ends a job. [`Model::propagate`] applies the consequences for others.
    pub(crate) fn end(&mut self, handle: Handle, to: State, cause: &'static str, error: Option<Error>) {
        let now = self.now;
        let job = self.job_mut(handle);
        job.move_to(to, now, cause);
        job.completed_at = Some(now);
        if let Some(error) = error {
            job.error = Some(error);
        }
        job.ended_by = None;
        self.ended.push_back(handle);
        self.record_end_in_workflow(handle);
    }

    /// Propagates ended jobs one by one: each releases or ends its dependents, in order of
    /// creation.
    pub(crate) fn propagate(&mut self) {
        while let Some(ended) = self.ended.pop_front() {
            for dependent in 0..self.jobs.len() {
                if self.jobs[dependent].removed || self.unsent.contains(&dependent) {
                    continue;
                }
                if self.jobs[dependent].after_any.contains(&ended) && !self.jobs[dependent].any_met {
                    self.job_mut(dependent).any_met = true;
                }
                let job = &self.jobs[dependent];
                if job.state != State::Pending {
                    continue;
                }
                let strictly = job.after.contains(&ended);
                if !strictly && !job.after_any.contains(&ended) {
                    continue;
                }
                if strictly && self.ended_without_success(ended) {
                    // All dependencies of a new job had ended before it, so the first in its list
                    // decides.
                    let first = if self.is_new(dependent) { self.broken_dependency(job) } else { None };
                    self.end_by_dependency(dependent, first.unwrap_or(ended));
                } else if !job.held && self.dependencies_hold(job) {
                    let cause = if self.is_new(dependent) { "submit" } else { "dependencies" };
                    self.leave_pending(dependent, cause);
                }
            }
        }
    }

    /// Ends a dependent as its dependency ended.
    pub(crate) fn end_by_dependency(&mut self, dependent: Handle, dependency: Handle) {
        let to = self.jobs[dependency].state;
        let category = if to == State::Cancelled { "cancelled" } else { "permanent" };
        let error = Error { category, code: Some("dependency_failed".to_owned()), message: ANY_TEXT.to_owned() };
        self.end(dependent, to, "dependency_failed", Some(error));
        self.job_mut(dependent).ended_by = Some(dependency);
    }

    /// Moves a job out of pending, or back from its end: delayed if its start is in the future,
    /// else scheduled.
    pub(crate) fn leave_pending(&mut self, handle: Handle, cause: &'static str) {
        let now = self.now;
        if self.jobs[handle].run_at.is_some_and(|instant| instant > now) {
            self.job_mut(handle).move_to(State::Delayed, now, cause);
        } else {
            self.enter_scheduled(handle, cause);
        }
    }

    /// Makes a job ready.
    pub(crate) fn enter_scheduled(&mut self, handle: Handle, cause: &'static str) {
        let now = self.now;
        let at_tail = self.jobs[handle].rules.requeue_at_tail && !self.is_new(handle);
        let position = if at_tail { self.next_number() } else { self.jobs[handle].sequence };
        let job = self.job_mut(handle);
        if job.state == State::Retrying {
            job.counters.requeues += 1;
        }
        job.move_to(State::Scheduled, now, cause);
        job.scheduled_at = Some(now);
        job.run_at = None;
        job.position = position;
    }

    /// Returns jobs to pending that ended because of a job that is live again, transitively.
    pub(crate) fn revive_dependents(&mut self, requeued: Handle) {
        let mut alive_again = std::collections::VecDeque::from([requeued]);
        while let Some(source) = alive_again.pop_front() {
            for dependent in 0..self.jobs.len() {
                if self.try_revive(dependent, source) {
                    alive_again.push_back(dependent);
                }
            }
        }
    }

    /// Returns the dependencies with originals replaced by their last clones, each once.
    pub(crate) fn current_clones(&self, dependencies: &[Handle]) -> Vec<Handle> {
        let mut current_clones = Vec::new();
        for dependency in dependencies {
            let mut last = *dependency;
            while let Some(clone) = self.jobs[last].requeued_as
                && !self.jobs[last].removed
                && !self.jobs[clone].removed
            {
                last = clone;
            }
            if !current_clones.contains(&last) {
                current_clones.push(last);
            }
        }
        current_clones
    }

    /// Returns a job that ended because of `source` to pending, if no other dependency forbids it.
    fn try_revive(&mut self, dependent: Handle, source: Handle) -> bool {
        let job = &self.jobs[dependent];
        if job.removed || !job.state.is_terminal() || job.ended_by != Some(source) {
            return false;
        }
        if job.requeued_as.is_some() || !self.queues.contains_key(&job.queue) {
            return false;
        }
        if let Some(other) = self.broken_dependency(job) {
            self.job_mut(dependent).ended_by = Some(other);
            return false;
        }
        self.revive(dependent);
        true
    }

    pub(crate) fn revive(&mut self, handle: Handle) {
        let now = self.now;
        let job = self.job_mut(handle);
        job.move_to(State::Pending, now, "revive");
        job.completed_at = None;
        job.error = None;
        job.ended_by = None;
        job.lifetime_from = now;
        job.cancel_requested = false;
        self.record_any_met(handle);
    }
}
