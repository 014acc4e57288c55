//! Queues, and the commands of operators.

use super::fields::{are_tags, is_callback_url, is_name, is_priority, is_type, priority_or_normal};
use super::job::{Counters, Error, ModelJob, State};
use super::rules::{Counts, Profile, Refusal, VALIDATION, check_limit, limit_is_locked, queue_rules};
use super::submit::blank_job;
use super::{ANY_TEXT, Model, Queue, server_error};
use crate::target::{Answer, Edit, Handle, Millis, Settings};

pub(super) const ILLEGAL: Refusal = "illegal_transition";
pub(super) const NO_QUEUE: Refusal = "queue_not_found";
pub(crate) const DEFAULT_QUEUE: &str = "default";

impl Model {
    pub(crate) fn put_queue(
        &mut self,
        name: &str,
        profile: Option<&str>,
        settings: Option<&Settings>,
    ) -> Result<Answer, Refusal> {
        if !is_name(name) {
            return Err(VALIDATION);
        }
        let known = self.queues.get(name);
        let present = known.map_or(Profile::Standard, |queue| queue.profile);
        let profile = match profile {
            Some(word) => Profile::from_name(word).ok_or(VALIDATION)?,
            None => present,
        };
        let overrides = match (settings, known) {
            (Some(settings), _) => settings.clone(),
            // Overrides of the old profile are dropped with it.
            (None, Some(queue)) if queue.profile == profile => queue.overrides.clone(),
            (None, _) => Settings::new(),
        };
        let rules = queue_rules(profile, &overrides)?;
        let paused = known.is_some_and(|queue| queue.paused);
        self.queues.insert(name.to_owned(), Queue { profile, overrides, rules, paused });
        Ok(Answer::Done)
    }

    pub(crate) fn set_paused(&mut self, name: &str, paused: bool) -> Result<Answer, Refusal> {
        self.queues.get_mut(name).ok_or(NO_QUEUE)?.paused = paused;
        Ok(Answer::Done)
    }

    pub(crate) fn delete_queue(&mut self, name: &str, force: bool) -> Result<Answer, Refusal> {
        if !self.queues.contains_key(name) {
            return Err(NO_QUEUE);
        }
        if name == DEFAULT_QUEUE {
            return Err(ILLEGAL);
        }
        let living: Vec<Handle> = (0..self.jobs.len())
            .filter(|handle| self.jobs[*handle].is_live() && self.jobs[*handle].queue == name)
            .collect();
        if !living.is_empty() && !force {
            return Err(ILLEGAL);
        }
        // All jobs end before propagation: the deletion of the queue ends each of them, not another
        // job.
        for handle in living {
            let error = server_error("cancelled", "queue_deleted");
            self.end_by_force(handle, State::Cancelled, "queue_deleted", error);
        }
        self.queues.remove(name);
        self.propagate();
        Ok(Answer::Done)
    }

    pub(crate) fn submit_held(&mut self, handle: Handle) -> Result<Answer, Refusal> {
        let job = self.find(handle)?;
        if job.state != State::Pending || !job.held {
            return Err(ILLEGAL);
        }
        let full = self.is_full(&job.queue);
        let fails_when_full = job.profile == Profile::Document;
        let may_go = self.dependencies_hold(job);
        if full && !fails_when_full {
            return Err("queue_full");
        }
        self.job_mut(handle).held = false;
        if may_go {
            self.leave_pending(handle, "submit");
            if full {
                self.fail_full_queue(handle);
            }
        }
        self.propagate();
        Ok(self.state_of(handle))
    }

    fn is_full(&self, queue: &str) -> bool {
        let most = self.queues.get(queue).and_then(|queue| queue.rules.most_queued());
        most.is_some_and(|most| self.waiting_in(queue) >= most)
    }

    /// Fails a job that was submitted to a full `document` queue.
    fn fail_full_queue(&mut self, handle: Handle) {
        let error = server_error("system", "resource_exhausted");
        self.end(handle, State::Failed, "resource_exhausted", Some(error));
    }

    /// Starts a new job. If its queue is full, the job is accepted and fails.
    pub(crate) fn start_new_job(&mut self, handle: Handle) {
        // The count includes the job itself.
        let job = &self.jobs[handle];
        let most = self.queues.get(&job.queue).and_then(|queue| queue.rules.most_queued());
        let full = most.is_some_and(|most| self.waiting_in(&job.queue) > most);
        let fails = full && job.profile == Profile::Document && !job.is_clone();
        self.leave_pending(handle, "submit");
        if fails && self.jobs[handle].state == State::Scheduled {
            self.fail_full_queue(handle);
        }
    }

    pub(crate) fn cancel(&mut self, handle: Handle, reason: Option<&String>, force: bool) -> Result<Answer, Refusal> {
        check_reason(reason)?;
        if self.find(handle)?.state.is_terminal() {
            return Err(ILLEGAL);
        }
        let message = reason.cloned().unwrap_or_else(|| ANY_TEXT.to_owned());
        if self.cancel_or_request(handle, &message, force) {
            return Ok(Answer::CancelRequested);
        }
        self.propagate();
        Ok(self.state_of(handle))
    }

    /// Cancels a live job, or requests its cancellation. Returns true if it was requested.
    pub(crate) fn cancel_or_request(&mut self, handle: Handle, message: &str, force: bool) -> bool {
        let (now, message) = (self.now, message.to_owned());
        let job = &self.jobs[handle];
        if job.is_held_by_worker(now) && job.rules.cancel_cooperative && !force {
            let job = self.job_mut(handle);
            // The reason of a repeated request is unspecified.
            let differs = job.cancel_requested && job.cancel_message != message;
            job.cancel_message = if differs { ANY_TEXT.to_owned() } else { message };
            job.cancel_requested = true;
            return true;
        }
        let error = Error { message, ..server_error("cancelled", "cancelled") };
        self.end_by_force(handle, State::Cancelled, "cancel", error);
        false
    }

    pub(crate) fn dead_letter(&mut self, handle: Handle, reason: Option<&String>) -> Result<Answer, Refusal> {
        check_reason(reason)?;
        let job = self.find(handle)?;
        if job.state.is_terminal() || job.profile == Profile::Document {
            return Err(ILLEGAL);
        }
        let message = reason.cloned().unwrap_or_else(|| ANY_TEXT.to_owned());
        let error = Error { message, ..server_error("permanent", "dead_letter") };
        self.end_by_force(handle, State::DeadLetter, "dead_letter", error);
        self.propagate();
        Ok(self.state_of(handle))
    }

    pub(crate) fn run_now(&mut self, handle: Handle) -> Result<Answer, Refusal> {
        let job = self.find(handle)?;
        let waits = matches!(job.state, State::Delayed | State::Retrying);
        if !waits || job.profile == Profile::Document {
            return Err(ILLEGAL);
        }
        self.enter_scheduled(handle, "run_now");
        Ok(self.state_of(handle))
    }

    pub(crate) fn requeue(&mut self, handle: Handle, reset: bool, run_at: Option<Millis>) -> Result<Answer, Refusal> {
        let job = self.find(handle)?;
        let requeueable = matches!(job.state, State::Failed | State::DeadLetter | State::Cancelled);
        if !requeueable || job.requeued_as.is_some() {
            return Err(ILLEGAL);
        }
        let queue = self.queues.get(&job.queue).ok_or(NO_QUEUE)?;
        if run_at.is_some() && !queue.rules.delayed_start {
            return Err(VALIDATION);
        }
        let run_at = run_at.filter(|instant| *instant > self.now);
        if job.rules.requeue_clones {
            return Ok(self.clone_behind(handle, run_at, Vec::new(), Vec::new()));
        }
        self.requeue_in_place(handle, reset, run_at)
    }

    /// `run_at` is in the future, if given.
    pub(crate) fn requeue_in_place(
        &mut self,
        handle: Handle,
        reset: bool,
        run_at: Option<Millis>,
    ) -> Result<Answer, Refusal> {
        let job = self.find(handle)?;
        let requeueable = matches!(job.state, State::Failed | State::DeadLetter | State::Cancelled);
        if !requeueable || job.requeued_as.is_some() {
            return Err(ILLEGAL);
        }
        if !self.queues.contains_key(&job.queue) {
            return Err(NO_QUEUE);
        }
        let after = self.current_clones(&job.after);
        let would_wait = ModelJob { after: after.clone(), ..job.clone() };
        if self.broken_dependency(&would_wait).is_some() {
            return Err(ILLEGAL);
        }
        self.job_mut(handle).after = after;
        self.return_from_end(handle, reset, run_at);
        self.revive_dependents(handle);
        Ok(self.state_of(handle))
    }

    /// Returns an ended job to the state that its dependencies allow.
    pub(crate) fn return_from_end(&mut self, handle: Handle, reset: bool, run_at: Option<Millis>) {
        let job = &self.jobs[handle];
        let may_go = self.dependencies_hold(job);
        let now = self.now;
        self.record_any_met(handle);
        let job = self.job_mut(handle);
        if reset {
            job.counters = Counters::default();
            job.checkpoint = None;
        }
        job.completed_at = None;
        job.error = None;
        job.lifetime_from = now;
        job.cancel_requested = false;
        job.held = false;
        job.settled = None;
        job.ended_by = None;
        job.run_at = run_at;
        if may_go {
            self.leave_pending(handle, "requeue");
        } else {
            job.move_to(State::Pending, now, "requeue");
        }
    }

    /// Clones a job. A clone has no dependencies, unless its workflow sets them.
    pub(crate) fn clone_behind(
        &mut self,
        original: Handle,
        run_at: Option<Millis>,
        after: Vec<Handle>,
        after_any: Vec<Handle>,
    ) -> Answer {
        let old = &self.jobs[original];
        let (depth, inherited_priority) =
            if after.is_empty() && after_any.is_empty() { (1, None) } else { (old.depth, old.inherited_priority) };
        let copy = ModelJob {
            priority: old.priority,
            run_at,
            tags: old.tags.clone(),
            correlation_id: old.correlation_id.clone(),
            callback_url: old.callback_url.clone(),
            traceparent: old.traceparent.clone(),
            requeued_from: Some(original),
            inherited_priority,
            after,
            after_any,
            depth,
            ..blank_job(&old.queue, old.profile, old.rules.clone(), &old.job_type, self.now)
        };
        self.new_from = self.jobs.len();
        let clone = self.add(copy);
        self.job_mut(original).requeued_as = Some(clone);
        self.job_mut(original).settled = None;
        self.take_over_place(original, clone);
        self.admit(clone);
        self.state_of(clone)
    }

    pub(crate) fn edit(&mut self, handle: Handle, edit: &Edit) -> Result<Answer, Refusal> {
        check_edit(edit)?;
        let job = self.find(handle)?;
        let ahead_of_running = edit.priority.is_some() || edit.job_type.is_some();
        if job.state.is_terminal() || (job.state == State::Running && ahead_of_running) {
            return Err(ILLEGAL);
        }
        if edit.tags.is_some() && job.profile == Profile::Ocypod {
            return Err(VALIDATION);
        }
        if let Some(limit) = edit.retry_limit {
            check_limit(job.profile, &job.rules, limit)?;
            if limit_is_locked(job.profile, &job.rules, limit) {
                return Err(VALIDATION);
            }
        }
        let job = self.job_mut(handle);
        if edit.priority.is_some() {
            job.priority = priority_or_normal(edit.priority);
        }
        if let Some(job_type) = &edit.job_type {
            job.job_type.clone_from(job_type);
        }
        if let Some(tags) = &edit.tags {
            job.tags.clone_from(tags);
        }
        job.correlation_id = edit.correlation_id.clone().or(job.correlation_id.take());
        job.callback_url = edit.callback_url.clone().or(job.callback_url.take());
        if let Some(limit) = edit.retry_limit {
            job.rules.limit = limit;
            self.end_if_now_exhausted(handle);
        }
        Ok(self.state_of(handle))
    }

    /// Ends a waiting retry that a lowered limit forbids.
    fn end_if_now_exhausted(&mut self, handle: Handle) {
        let job = &self.jobs[handle];
        let limit = job.rules.limit;
        let spent = match job.rules.counts {
            Counts::Starts => job.counters.starts >= limit,
            Counts::Failures => job.counters.failures >= limit,
            // The waiting retry is counted already.
            Counts::Retries => job.counters.retries_scheduled > limit,
        };
        if job.state == State::Retrying && spent {
            let to = self.exhausted_state(handle);
            self.end(handle, to, "exhausted", None);
            self.propagate();
        }
    }

    pub(crate) fn delete(&mut self, handle: Handle) -> Result<Answer, Refusal> {
        let job = self.find(handle)?;
        if !job.state.is_terminal() || self.is_needed(handle) {
            return Err(ILLEGAL);
        }
        self.remove(handle);
        Ok(Answer::Done)
    }
}

pub(super) fn check_reason(reason: Option<&String>) -> Result<(), Refusal> {
    if reason.is_none_or(|reason| reason.chars().count() <= 1_024) { Ok(()) } else { Err(VALIDATION) }
}

fn check_edit(edit: &Edit) -> Result<(), Refusal> {
    let at_most = |text: &Option<String>, most: usize| text.as_ref().is_none_or(|text| text.chars().count() <= most);
    let valid = edit.priority.is_none_or(is_priority)
        && edit.job_type.as_ref().is_none_or(|job_type| is_type(job_type))
        && edit.tags.as_ref().is_none_or(are_tags)
        && at_most(&edit.correlation_id, 256)
        && edit.callback_url.as_deref().is_none_or(is_callback_url);
    if valid { Ok(()) } else { Err(VALIDATION) }
}
