//! What people do to workflows: open, close, cancel, retry. What concerns all members is done in bounded slices.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cancel::{self, Force};
use crate::dependency::{self, Dependencies, weigh};
use crate::id::{Seq, WorkflowId};
use crate::policy::ManualRequeue;
use crate::refusal::Refusal;
use crate::requeue::{self, Requeue, Reset};
use crate::workflow::{Deed, Errand, Tally, Workflow, ended_badly};

use super::command::AdminAnswer;
use super::operate::{Rewired, standing};
use super::records::Records;
use super::{Stop, Turn, if_there, split};

/// How members are run again.
const AGAIN: Requeue = Requeue { counters: Reset::Zero, run_at: None };

impl<R: Records> Turn<'_, R> {
    pub(crate) fn find_workflow(&mut self, id: WorkflowId) -> Result<Workflow, Stop<R::Error>> {
        self.records.workflow(id).map_err(Stop::Broken)?.ok_or(Stop::Refused(Refusal::WorkflowNotFound))
    }

    /// A new record; its number is taken from the counter of jobs.
    pub(crate) fn new_workflow(&mut self, name: Option<&Arc<str>>, open: bool) -> Result<Workflow, Stop<R::Error>> {
        let number = Seq(self.engine.next_number);
        self.engine.next_number += 1;
        let id = WorkflowId::from_bytes(*self.records.new_id(number, self.dice).as_bytes());
        let (name, created_at) = (name.cloned(), self.now);
        let workflow =
            Workflow { id, number, name, open, created_at, joined: 0, errand: None, tally: Tally::default() };
        self.records.put_workflow(&workflow).map_err(Stop::Broken)?;
        Ok(workflow)
    }

    pub(crate) fn open_workflow(&mut self, name: Option<&Arc<str>>) -> Result<AdminAnswer, Stop<R::Error>> {
        Workflow::check_name(name.map(AsRef::as_ref))?;
        let workflow = self.new_workflow(name, true)?;
        Ok(AdminAnswer::Workflow { id: workflow.id, state: workflow.state() })
    }

    /// Closing again changes nothing.
    pub(crate) fn close_workflow(&mut self, id: WorkflowId) -> Result<AdminAnswer, Stop<R::Error>> {
        let mut workflow = self.find_workflow(id)?;
        if workflow.open {
            workflow.open = false;
            self.records.put_workflow(&workflow).map_err(Stop::Broken)?;
        }
        let state = workflow.state();
        if workflow.joined > 0 {
            // Its members may all have gone before.
            self.forget_workflow(id)?;
        }
        Ok(AdminAnswer::Workflow { id, state })
    }

    pub(crate) fn cancel_workflow(
        &mut self,
        id: WorkflowId,
        reason: Option<&str>,
        force: Force,
    ) -> Result<AdminAnswer, Stop<R::Error>> {
        cancel::check_reason(reason)?;
        let mut workflow = self.find_workflow(id)?;
        if workflow.state().terminal() {
            return Err(Refusal::Illegal("the workflow has ended").into());
        }
        workflow.open = false;
        self.begin_errand(workflow, Deed::Cancel { reason: reason.map(Arc::from), force })
    }

    pub(crate) fn retry_workflow(&mut self, id: WorkflowId) -> Result<AdminAnswer, Stop<R::Error>> {
        let workflow = self.find_workflow(id)?;
        match &workflow.errand {
            Some(Errand { what: Deed::Cancel { .. }, .. }) => {
                Err(Refusal::Illegal("the workflow is being cancelled").into())
            }
            Some(Errand { what: Deed::Retry, .. }) => Ok(AdminAnswer::Workflow { id, state: workflow.state() }),
            None if workflow.tally.unsuccessful() == 0 => {
                Err(Refusal::Illegal("nothing in the workflow has failed or was cancelled").into())
            }
            None => self.begin_errand(workflow, Deed::Retry),
        }
    }

    /// Does as much as one command may; ticks do the rest. What was being done before is given up.
    fn begin_errand(&mut self, workflow: Workflow, what: Deed) -> Result<AdminAnswer, Stop<R::Error>> {
        let id = workflow.id;
        let errand = Some(Errand { what, reached: Seq(0), until: Seq(self.engine.next_number) });
        self.records.put_workflow(&Workflow { errand, ..workflow }).map_err(Stop::Broken)?;
        self.engine.errands.insert(id);
        let jobs_max = self.engine.options.cascade_jobs_max;
        self.tell_dependents(jobs_max).map_err(Stop::Broken)?;
        self.run_errand(id, jobs_max)?;
        let state = self.find_workflow(id)?.state();
        Ok(AdminAnswer::Workflow { id, state })
    }

    /// Goes on with what is being done to workflows, until about `records_max` records were touched. Says how many were.
    pub(crate) fn run_errands(&mut self, records_max: usize) -> Result<usize, R::Error> {
        let start = self.touched;
        while self.touched - start < records_max {
            let Some(id) = self.engine.errands.first().copied() else { break };
            let room = records_max - (self.touched - start);
            if if_there(self.run_errand(id, room))? != Some(true) {
                break;
            }
        }
        Ok(self.touched - start)
    }

    /// One slice for one workflow. Says whether that was the last.
    fn run_errand(&mut self, id: WorkflowId, records_max: usize) -> Result<bool, Stop<R::Error>> {
        let errand = self.records.workflow(id).map_err(Stop::Broken)?.and_then(|workflow| workflow.errand);
        let Some(mut errand) = errand else {
            self.engine.errands.remove(&id);
            return Ok(true);
        };
        if errand.what == Deed::Retry && !self.engine.owed.is_empty() {
            // Whoever was stopped has to have heard of it before it can come back.
            return Ok(false);
        }
        let (start, room) = (self.touched, records_max.max(1));
        let slice = self.records.members(id, errand.reached, room).map_err(Stop::Broken)?;
        let mut last = slice.len() < room;
        for member in slice {
            if member > errand.until {
                last = true;
                break;
            }
            if self.touched - start >= room {
                last = false;
                break;
            }
            self.touched += 1;
            match &errand.what {
                Deed::Cancel { reason, force } => self.cancel_member(member, reason.as_deref(), *force)?,
                Deed::Retry => self.rerun(member, id, errand.reached)?,
            }
            errand.reached = member;
        }
        if last {
            self.engine.errands.remove(&id);
        }
        let workflow = self.find_workflow(id)?;
        self.records.put_workflow(&Workflow { errand: (!last).then_some(errand), ..workflow }).map_err(Stop::Broken)?;
        Ok(last)
    }

    fn cancel_member(&mut self, member: Seq, reason: Option<&str>, force: Force) -> Result<(), Stop<R::Error>> {
        // One that has ended says no, and that is all right.
        let cancelled = self.change(member, |job, moment| cancel::cancel(job, reason, force, moment));
        split(cancelled).map(|_| ()).map_err(Stop::Broken)
    }

    /// Runs a member again if it ended without success, after those of its dependencies that did so, too. Members of one call may
    /// wait for later ones: those come first; whoever is not behind `reached` has had its turn.
    fn rerun(&mut self, member: Seq, workflow: WorkflowId, reached: Seq) -> Result<(), Stop<R::Error>> {
        let (mut stack, mut opened) = (vec![member], HashSet::new());
        while let Some(top) = stack.last().copied() {
            let seen = self.look(top, |job| {
                let ours = job.membership.as_ref().is_some_and(|membership| membership.workflow == workflow);
                (ours && ended_badly(job)).then(|| job.dependencies.all())
            })?;
            let Some(dependencies) = seen.flatten() else {
                stack.pop();
                continue;
            };
            if !opened.insert(top) {
                stack.pop();
                self.rerun_one(top)?;
                continue;
            }
            for id in dependencies {
                let elder = self.records.seq_of(id).map_err(Stop::Broken)?;
                stack.extend(elder.filter(|elder| *elder > reached && !opened.contains(elder)));
            }
        }
        Ok(())
    }

    /// Whoever ran and failed runs again, itself or as a clone; whoever was stopped before it ran waits again. Where a dependency outside of
    /// the workflow stands in the way, or the queue is gone, it stays as it is.
    fn rerun_one(&mut self, seq: Seq) -> Result<(), Stop<R::Error>> {
        let Some((name, through)) = self.look(seq, |job| (job.queue.clone(), job.dependencies.ended_through))? else {
            return Ok(());
        };
        let queue = self.engine.queue(&name).cloned();
        let intake = queue.as_ref().map(|queue| &queue.intake);
        let Some(Ok(way)) = self.look(seq, |job| requeue::check(job, &AGAIN, intake))? else { return Ok(()) };
        let Rewired { dependencies, standings, links } = self.rewired(seq)?;
        let mut weighed = Dependencies { ended_through: None, ..dependencies.clone() };
        if weigh(&mut weighed, |id| standing(&standings, id)).is_some() {
            return Ok(());
        }
        match (through, way) {
            (Some(through), ManualRequeue::InPlace | ManualRequeue::Clone) => {
                self.change(seq, |job, moment| {
                    let standing = |id| standing(&standings, id);
                    dependency::revive(job, through.dependency, dependencies, standing, moment);
                    crate::promote::leave_pending_when_free(job, crate::history::Cause::Dependencies, moment);
                    Ok(())
                })?;
                self.link_anew(&links, seq)
            }
            (None, ManualRequeue::InPlace) => {
                self.change(seq, |job, moment| {
                    requeue::in_place(job, &AGAIN, dependencies, |id| standing(&standings, id), moment)
                })?;
                self.link_anew(&links, seq)
            }
            (None, ManualRequeue::Clone) => self.requeue_as_clone(seq, &AGAIN, weighed).map(|_| ()),
        }
    }

    /// A closed workflow goes with the record of its last member.
    pub(crate) fn forget_workflow(&mut self, id: WorkflowId) -> Result<(), Stop<R::Error>> {
        let Some(workflow) = self.records.workflow(id).map_err(Stop::Broken)? else { return Ok(()) };
        if !workflow.open && workflow.tally.records == 0 {
            self.engine.errands.remove(&id);
            self.records.remove_workflow(id).map_err(Stop::Broken)?;
        }
        Ok(())
    }
}
