//! What workers say about the jobs they hold: settlements, heartbeats, children.

use crate::extend::{self, Extended, Notes};
use crate::id::{JobId, LeaseToken, QueueName};
use crate::lease;
use crate::refusal::Refusal;
use crate::settle::{self, Outcome};
use crate::state::StateKind;
use crate::submit::{DependencyRef, NewJob};

use super::command::FanOut;
use super::records::Records;
use super::submit::{BatchRefusal, Submission, Submitted};
use super::{Stop, Turn};

impl<R: Records> Turn<'_, R> {
    pub(crate) fn settle(
        &mut self,
        id: JobId,
        token: Option<LeaseToken>,
        outcome: &Outcome,
    ) -> Result<StateKind, Stop<R::Error>> {
        outcome.check()?;
        let seq = self.find(id)?;
        self.change_at_home(seq, |job, home, moment| settle::settle(job, token, outcome, home, moment))
    }

    pub(crate) fn extend(
        &mut self,
        id: JobId,
        token: Option<LeaseToken>,
        notes: &Notes,
    ) -> Result<Extended, Stop<R::Error>> {
        let seq = self.find(id)?;
        self.change_at_home(seq, |job, home, moment| extend::extend(job, token, notes, home, moment))
    }

    /// A running job submits others; `finally` waits for all of them.
    pub(crate) fn fan_out(
        &mut self,
        mut fan_out: FanOut,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, Stop<R::Error>> {
        let seq = self.find(fan_out.parent)?;
        let (token, now) = (fan_out.token, self.now);
        let held = self.look(seq, |job| lease::check(job, token, now).map(|_| ()))?;
        held.ok_or(Refusal::JobNotFound)??;
        if fan_out.jobs.is_empty() {
            return Err(Refusal::invalid("jobs", "must name at least one job").into());
        }
        let submissions = match fan_out.finally.take() {
            None => fan_out.jobs,
            Some((queue, last)) => with_finalizer(fan_out.jobs, queue, last),
        };
        self.submit(&submissions, Some(fan_out.parent))
    }
}

/// Lets the finalizer wait for every child.
fn with_finalizer(mut jobs: Vec<Submission>, queue: QueueName, mut last: NewJob) -> Vec<Submission> {
    last.after.extend((0..jobs.len()).map(DependencyRef::Place));
    jobs.push(Submission { queue, job: last });
    jobs
}
