//! Dependencies: what waits, what an end does to those behind it, what a requeue brings back.

use super::job::{Error, ModelJob, State};
use super::{ANY_TEXT, Model};
use crate::target::Handle;

impl Model {
    /// A dependency that `after` counts as met; a pruned one does, unless it is known to be the one that stopped this job.
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

    /// Of `after`, the one that was the first to end without success; of several at one instant, the first of the list.
    pub(crate) fn broken_dependency(&self, job: &ModelJob) -> Option<Handle> {
        let stopped_it = |dependency: Handle| self.jobs[dependency].removed && job.ended_through == Some(dependency);
        let bad = |dependency: Handle| self.ended_without_success(dependency) || stopped_it(dependency);
        let broken = job.after.iter().copied().filter(|dependency| bad(*dependency));
        broken.min_by_key(|dependency| self.jobs[*dependency].completed_at)
    }

    pub(crate) fn dependencies_hold(&self, job: &ModelJob) -> bool {
        job.after.iter().all(|dependency| self.has_completed(*dependency))
            && (job.after_any.is_empty() || self.any_has_ended(job))
    }

    /// Once one of `after_any` has ended the wish is met for good, even if that one is requeued.
    fn any_has_ended(&self, job: &ModelJob) -> bool {
        job.any_met || job.after_any.iter().any(|dependency| self.has_ended(*dependency))
    }

    /// Remembers a met `after_any`.
    pub(crate) fn note_any(&mut self, handle: Handle) {
        let met = self.any_has_ended(&self.jobs[handle]);
        if met && !self.jobs[handle].any_met {
            self.job_mut(handle).any_met = true;
        }
    }

    /// Only a pending job waits on anything.
    pub(crate) fn waiting_on(&self, job: &ModelJob) -> usize {
        if job.state != State::Pending {
            return 0;
        }
        let all = job.after.iter().filter(|dependency| !self.has_completed(**dependency)).count();
        all + if self.any_has_ended(job) { 0 } else { job.after_any.len() }
    }

    /// A job that something living depends on may be neither pruned nor deleted.
    pub(crate) fn is_needed(&self, handle: Handle) -> bool {
        self.jobs
            .iter()
            .any(|other| other.is_live() && (other.after.contains(&handle) || other.after_any.contains(&handle)))
    }

    /// Sets the end of a job; what it means for others follows with [`Model::propagate`].
    pub(crate) fn end(&mut self, handle: Handle, to: State, cause: &'static str, error: Option<Error>) {
        let now = self.now;
        let job = self.job_mut(handle);
        job.move_to(to, now, cause);
        job.completed_at = Some(now);
        if let Some(error) = error {
            job.error = Some(error);
        }
        job.ended_through = None;
        self.ended.push_back(handle);
        self.note_end_in_workflow(handle);
    }

    /// Handles ended jobs one by one: each releases or ends its dependents, in creation order.
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
                    // A newcomer finds all of them ended at once: the first of its list decides.
                    let first = if self.is_newborn(dependent) { self.broken_dependency(job) } else { None };
                    self.end_through(dependent, first.unwrap_or(ended));
                } else if !job.held && self.dependencies_hold(job) {
                    let cause = if self.is_newborn(dependent) { "submit" } else { "dependencies" };
                    self.let_go(dependent, cause);
                }
            }
        }
    }

    /// Ends a dependent the way its dependency ended.
    pub(crate) fn end_through(&mut self, dependent: Handle, dependency: Handle) {
        let to = self.jobs[dependency].state;
        let category = if to == State::Cancelled { "cancelled" } else { "permanent" };
        let error = Error { category, code: Some("dependency_failed".to_owned()), message: ANY_TEXT.to_owned() };
        self.end(dependent, to, "dependency_failed", Some(error));
        self.job_mut(dependent).ended_through = Some(dependency);
    }

    /// A job out of pending (or back from its end): delayed if its instant is still ahead, else scheduled.
    pub(crate) fn let_go(&mut self, handle: Handle, cause: &'static str) {
        let now = self.now;
        if self.jobs[handle].run_at.is_some_and(|instant| instant > now) {
            self.job_mut(handle).move_to(State::Delayed, now, cause);
        } else {
            self.enter_scheduled(handle, cause);
        }
    }

    /// Takes a place in line.
    pub(crate) fn enter_scheduled(&mut self, handle: Handle, cause: &'static str) {
        let now = self.now;
        let at_tail = self.jobs[handle].rules.requeue_at_tail && !self.is_newborn(handle);
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

    /// Brings back to pending what ended through a job that lives again, and what ended through that.
    pub(crate) fn revive_dependents(&mut self, requeued: Handle) {
        let mut alive_again = std::collections::VecDeque::from([requeued]);
        while let Some(source) = alive_again.pop_front() {
            for dependent in 0..self.jobs.len() {
                if self.can_come_back(dependent, source) {
                    alive_again.push_back(dependent);
                }
            }
        }
    }

    /// Dependencies with the last clones in the places of their originals, each once.
    pub(crate) fn stand_ins(&self, dependencies: &[Handle]) -> Vec<Handle> {
        let mut stand_ins = Vec::new();
        for dependency in dependencies {
            let mut last = *dependency;
            while let Some(clone) = self.jobs[last].requeued_as
                && !self.jobs[last].removed
                && !self.jobs[clone].removed
            {
                last = clone;
            }
            if !stand_ins.contains(&last) {
                stand_ins.push(last);
            }
        }
        stand_ins
    }

    /// Returns one that ended through `source` to pending, if nothing else stands against it.
    fn can_come_back(&mut self, dependent: Handle, source: Handle) -> bool {
        let job = &self.jobs[dependent];
        if job.removed || !job.state.is_terminal() || job.ended_through != Some(source) {
            return false;
        }
        if job.requeued_as.is_some() || !self.queues.contains_key(&job.queue) {
            return false;
        }
        if let Some(other) = self.broken_dependency(job) {
            self.job_mut(dependent).ended_through = Some(other);
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
        job.ended_through = None;
        job.lifetime_from = now;
        job.cancel_requested = false;
        self.note_any(handle);
    }
}
