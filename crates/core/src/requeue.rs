//! A person gives an ended job another chance: in place, or as a clone, as its policy says.

use crate::dependency::{Dependencies, Owes, Standing, weigh};
use crate::history::Cause;
use crate::id::{JobId, Seq};
use crate::job::{Counters, Job, Moment};
use crate::policy::{Intake, ManualRequeue};
use crate::promote::{ahead, leave_pending_when_free};
use crate::refusal::Refusal;
use crate::state::{State, StateKind};
use crate::submit::blank;
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
pub fn check(job: &Job, requeue: &Requeue, intake: Option<&Intake>) -> Result<ManualRequeue, Refusal> {
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
    standing: impl Fn(JobId) -> Standing,
    moment: &mut Moment<'_>,
) -> Result<(), Refusal> {
    if weigh(&mut dependencies, &standing).is_some() {
        let gone = dependencies.ended_through.is_some_and(|through| standing(through.dependency) == Standing::Gone);
        return Err(Refusal::Illegal(if gone {
            "the dependency through which it ended is gone: submit the work anew"
        } else {
            "a dependency has ended without success: requeue that job first"
        }));
    }
    dependencies.ended_through = None;
    job.dependencies = dependencies;
    if requeue.counters == Reset::Zero {
        job.counters = Counters::default();
        job.checkpoint = None;
    }
    job.error = None;
    job.settled = None;
    job.owes = Owes::Return;
    job.restart_lifetime(moment.now);
    let run_at = ahead(requeue.run_at, moment.now);
    if !job.dependencies.met() {
        job.enter(State::Pending { held: false, run_at }, Cause::Requeue, moment);
        return Ok(());
    }
    match run_at {
        Some(until) => job.enter(State::Delayed { until }, Cause::Requeue, moment),
        None => job.enter_line(Cause::Requeue, moment),
    }
    Ok(())
}

/// Puts a waiting retry into line by hand: the retry that was planned did not happen, and is not counted.
pub fn instead_of_retry(job: &mut Job, moment: &mut Moment<'_>) {
    job.counters.retries_scheduled = job.counters.retries_scheduled.saturating_sub(1);
    job.error = None;
    job.settled = None;
    job.enter_line(Cause::Requeue, moment);
}

/// Makes a new job of the same work, which waits for `dependencies`. Only after [`check`]. It takes its original's place in their workflow.
pub fn clone(
    job: &mut Job,
    (id, seq): (JobId, Seq),
    requeue: &Requeue,
    dependencies: Dependencies,
    moment: &mut Moment<'_>,
) -> Job {
    let mut copy = blank(id, seq, job.queue.clone(), job.job_type.clone(), job.policy.clone(), moment);
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
    copy.state = State::Pending { held: false, run_at: ahead(requeue.run_at, moment.now) };
    job.requeued_as = Some(id);
    job.settled = None;
    match copy.state.run_at() {
        Some(_) => leave_pending_when_free(&mut copy, Cause::Submit, moment),
        None if !copy.dependencies.met() => {}
        None => copy.enter_line_at(seq.0, Cause::Submit, moment),
    }
    copy
}
