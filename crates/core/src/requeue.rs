//! A person gives an ended job another chance: in place, or as a clone, as its policy says.

use crate::dependency::{Dependencies, DependencyStatus, PendingPropagation, recompute};
use crate::history::Cause;
use crate::id::{JobId, Seq};
use crate::job::{Counters, Job, TransitionContext};
use crate::policy::{AdmissionSettings, ManualRequeue};
use crate::promote::{if_in_future, schedule_if_unblocked};
use crate::refusal::Refusal;
use crate::state::{State, StateKind};
use crate::submit::new_pending;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requeue {
    pub counters: Reset,
    pub run_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// All counters start again from zero, and the checkpoint goes; the lease version never does.
    Zero,
    Keep,
}

/// Says how the job would be requeued, or why it cannot be. `intake`: of its queue, if that still exists.
pub fn check(job: &Job, requeue: &Requeue, intake: Option<&AdmissionSettings>) -> Result<ManualRequeue, Refusal> {
    match job.kind() {
        StateKind::Failed | StateKind::DeadLetter | StateKind::Cancelled => {}
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed => return Err(Refusal::IllegalTransition { from: job.kind(), verb: "requeued" }),
    }
    if job.requeued_as.is_some() {
        return Err(Refusal::Illegal("the job was already requeued: see \"requeued_as\""));
    }
    let intake = intake.ok_or(Refusal::QueueNotFound)?;
    if requeue.run_at.is_some() && !intake.delayed_start {
        return Err(Refusal::invalid("run_at", "is not taken by this queue: it has no delayed start"));
    }
    Ok(job.policy.manual_requeue)
}

/// Runs the same job again. Only after [`check`]. It then waits for `dependencies`: its own, or their successors.
pub fn in_place(
    job: &mut Job,
    requeue: &Requeue,
    mut dependencies: Dependencies,
    standing: impl Fn(JobId) -> DependencyStatus,
    moment: &mut TransitionContext<'_>,
) -> Result<(), Refusal> {
    if recompute(&mut dependencies, &standing).is_some() {
        let gone = dependencies.ended_by.is_some_and(|through| standing(through.dependency) == DependencyStatus::Gone);
        return Err(Refusal::Illegal(if gone {
            "the dependency through which it ended is gone: submit the work anew"
        } else {
            "a dependency has ended without success: requeue that job first"
        }));
    }
    dependencies.ended_by = None;
    job.dependencies = dependencies;
    if requeue.counters == Reset::Zero {
        job.counters = Counters::default();
        job.checkpoint = None;
    }
    job.error = None;
    job.last_settlement = None;
    job.pending_propagation = PendingPropagation::Return;
    job.restart_lifetime(moment.now);
    let run_at = if_in_future(requeue.run_at, moment.now);
    if !job.dependencies.met() {
        job.transition_to(State::Pending { held: false, run_at }, Cause::Requeue, moment);
        return Ok(());
    }
    match run_at {
        Some(until) => job.transition_to(State::Delayed { until }, Cause::Requeue, moment),
        None => job.make_ready(Cause::Requeue, moment),
    }
    Ok(())
}

/// Puts a waiting retry into line by hand: the retry that was planned did not happen, and is not counted.
pub fn requeue_pending_retry(job: &mut Job, moment: &mut TransitionContext<'_>) {
    job.counters.retries_scheduled = job.counters.retries_scheduled.saturating_sub(1);
    job.error = None;
    job.last_settlement = None;
    job.make_ready(Cause::Requeue, moment);
}

/// Makes a new job of the same work, which waits for `dependencies`. Only after [`check`]. It takes its original's place in their workflow.
pub fn clone(
    job: &mut Job,
    (id, seq): (JobId, Seq),
    requeue: &Requeue,
    dependencies: Dependencies,
    moment: &mut TransitionContext<'_>,
) -> Job {
    let mut copy = new_pending(id, seq, job.queue.clone(), job.job_type.clone(), job.policy.clone(), moment);
    copy.priority = job.priority;
    copy.tags = job.tags.clone();
    copy.correlation_id = job.correlation_id.clone();
    copy.callback_url = job.callback_url.clone();
    copy.membership = job.membership.clone();
    copy.requeued_from = Some(job.id);
    if dependencies.depth > 1 {
        copy.inherited_priority = job.inherited_priority;
    }
    copy.dependencies = dependencies;
    copy.state = State::Pending { held: false, run_at: if_in_future(requeue.run_at, moment.now) };
    job.requeued_as = Some(id);
    job.last_settlement = None;
    match copy.state.run_at() {
        Some(_) => schedule_if_unblocked(&mut copy, Cause::Submit, moment),
        None if !copy.dependencies.met() => {}
        None => copy.make_ready_at(seq.0, Cause::Submit, moment),
    }
    copy
}
