//! What people do to workflows: open, close, cancel, retry. What concerns all members is done in bounded slices.

use std::collections::HashSet;
use std::sync::Arc;

use longshore_core::cancel::{self, Force};
use longshore_core::dependency::{self, AfterAnyMode, EndedByDependency, PendingPropagation, recompute};
use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::policy::ManualRequeue;
use longshore_core::refusal::Refusal;
use longshore_core::requeue::{self, Requeue, Reset};
use longshore_core::workflow::{
    MemberCounts, Membership, Workflow, WorkflowAction, WorkflowOperation, ended_unsuccessfully,
};

use crate::admin::{ResolvedDependencies, standing};
use crate::command::AdminResponse;
use crate::context::{CommandContext, CommandError, ignore_missing, split_refusal};
use crate::records::JobRecords;

const NOTHING_CAN_RUN: &str =
    "nothing in the workflow can run again: what it waits for has failed elsewhere or is gone, or its queue is";

/// What a slice has left, and how many members were changed up to now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slice {
    More,
    Last { changed: u64 },
}

/// Why a cancel was asked for, and how.
pub(crate) type CancelArguments = (Option<Arc<str>>, Force);

/// How members are run again.
const RERUN: Requeue = Requeue { counters: Reset::Zero, run_at: None };

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn find_workflow(&mut self, id: WorkflowId) -> Result<Workflow, CommandError<R::Error>> {
        self.records.workflow(id).map_err(CommandError::Broken)?.ok_or(CommandError::Refused(Refusal::WorkflowNotFound))
    }

    /// A new record; its number is taken from the counter of jobs.
    pub(crate) fn new_workflow(
        &mut self,
        name: Option<&Arc<str>>,
        open: bool,
    ) -> Result<Workflow, CommandError<R::Error>> {
        let number = Seq(self.engine.next_number);
        self.engine.next_number += 1;
        let id = WorkflowId::from_bytes(*self.records.new_id(number, self.rng).as_bytes());
        let (name, created_at) = (name.cloned(), self.now);
        let workflow = Workflow {
            id,
            number,
            name,
            open,
            created_at,
            members_added: 0,
            cancelled: false,
            operation: None,
            tally: MemberCounts::default(),
        };
        self.records.put_workflow(&workflow).map_err(CommandError::Broken)?;
        Ok(workflow)
    }

    pub(crate) fn open_workflow(&mut self, name: Option<&Arc<str>>) -> Result<AdminResponse, CommandError<R::Error>> {
        Workflow::check_name(name.map(AsRef::as_ref))?;
        let workflow = self.new_workflow(name, true)?;
        Ok(AdminResponse::Workflow { id: workflow.id, state: workflow.state() })
    }

    /// Closing again changes nothing.
    pub(crate) fn close_workflow(&mut self, id: WorkflowId) -> Result<AdminResponse, CommandError<R::Error>> {
        let mut workflow = self.find_workflow(id)?;
        if workflow.open {
            workflow.open = false;
            self.records.put_workflow(&workflow).map_err(CommandError::Broken)?;
        }
        let state = workflow.state();
        if workflow.tally.counts.iter().any(|jobs| *jobs > 0) {
            // Its members may all have gone before.
            self.remove_if_empty(id)?;
        }
        Ok(AdminResponse::Workflow { id, state })
    }

    pub(crate) fn cancel_workflow(
        &mut self,
        id: WorkflowId,
        reason: Option<&str>,
        force: Force,
    ) -> Result<AdminResponse, CommandError<R::Error>> {
        cancel::check_reason(reason)?;
        let mut workflow = self.find_workflow(id)?;
        if workflow.state().terminal() {
            return Err(Refusal::Illegal("the workflow has ended").into());
        }
        (workflow.open, workflow.cancelled) = (false, true);
        self.start_operation(workflow, WorkflowAction::Cancel { reason: reason.map(Arc::from), force })
    }

    pub(crate) fn retry_workflow(&mut self, id: WorkflowId) -> Result<AdminResponse, CommandError<R::Error>> {
        let workflow = self.find_workflow(id)?;
        if workflow.cancelled && !workflow.state().terminal() {
            return Err(Refusal::Illegal("the workflow is being cancelled").into());
        }
        match &workflow.operation {
            Some(WorkflowOperation { action: WorkflowAction::Cancel { .. } | WorkflowAction::Retry, .. }) => {
                Ok(AdminResponse::Workflow { id, state: workflow.state() })
            }
            None if workflow.tally.unsuccessful() == 0 => {
                Err(Refusal::Illegal("nothing in the workflow has failed or was cancelled").into())
            }
            None => self.start_operation(workflow, WorkflowAction::Retry),
        }
    }

    /// Does as much as one command may; ticks do the rest. What was being done before is given up.
    fn start_operation(
        &mut self,
        workflow: Workflow,
        what: WorkflowAction,
    ) -> Result<AdminResponse, CommandError<R::Error>> {
        let (id, retry) = (workflow.id, what == WorkflowAction::Retry);
        let errand = Some(WorkflowOperation {
            action: what,
            cursor: Seq(0),
            last_seq: Seq(self.engine.next_number.saturating_sub(1)),
            changed: 0,
        });
        let before = workflow.cancelled;
        let cancelled = before && !retry;
        let bare = Workflow { operation: None, ..workflow.clone() };
        self.records
            .put_workflow(&Workflow { operation: errand, cancelled, ..workflow })
            .map_err(CommandError::Broken)?;
        self.engine.active_operations.insert(id);
        let jobs_max = self.engine.options.cascade_jobs_max;
        self.propagate(jobs_max).map_err(CommandError::Broken)?;
        let changed = self.run_operation_slice(id, jobs_max)?;
        let Some(workflow) = self.records.workflow(id).map_err(CommandError::Broken)? else {
            // It was closed after the last of its records had gone, and went with this command.
            return Ok(AdminResponse::Workflow { id, state: bare.state() });
        };
        if retry && changed == (Slice::Last { changed: 0 }) {
            // What is refused leaves no trace.
            self.records.put_workflow(&Workflow { cancelled: before, ..workflow }).map_err(CommandError::Broken)?;
            return Err(Refusal::Illegal(NOTHING_CAN_RUN).into());
        }
        Ok(AdminResponse::Workflow { id, state: workflow.state() })
    }

    /// Goes on with what is being done to workflows, until about `records_max` records were touched. Says how many were.
    pub(crate) fn run_operations(&mut self, records_max: usize) -> Result<usize, R::Error> {
        let start = self.records_touched;
        while self.records_touched - start < records_max {
            let Some(id) = self.engine.active_operations.first().copied() else { break };
            let room = records_max - (self.records_touched - start);
            match ignore_missing(self.run_operation_slice(id, room))? {
                Some(Slice::Last { .. }) => {}
                Some(Slice::More) | None => break,
            }
        }
        Ok(self.records_touched - start)
    }

    /// One slice for one workflow.
    fn run_operation_slice(&mut self, id: WorkflowId, records_max: usize) -> Result<Slice, CommandError<R::Error>> {
        let errand = self.records.workflow(id).map_err(CommandError::Broken)?.and_then(|workflow| workflow.operation);
        let Some(mut errand) = errand else {
            self.engine.active_operations.remove(&id);
            return Ok(Slice::Last { changed: 0 });
        };
        if errand.action == WorkflowAction::Retry && !self.engine.owed.is_empty() {
            // Whoever was stopped has to have heard of it before it can come back.
            return Ok(Slice::More);
        }
        let (start, room) = (self.records_touched, records_max.max(1));
        let slice = self.records.members(id, errand.cursor, room).map_err(CommandError::Broken)?;
        let mut last = slice.len() < room;
        for member in slice {
            if member > errand.last_seq {
                last = true;
                break;
            }
            if self.records_touched - start >= room {
                last = false;
                break;
            }
            self.records_touched += 1;
            errand.changed += match &errand.action {
                WorkflowAction::Cancel { reason, force } => self.cancel_member(member, reason.as_deref(), *force)?,
                WorkflowAction::Retry => self.rerun(member, id, errand.cursor)?,
            };
            errand.cursor = member;
        }
        if last {
            self.engine.active_operations.remove(&id);
        }
        let (workflow, changed) = (self.find_workflow(id)?, errand.changed);
        let had_members = workflow.tally.counts.iter().any(|jobs| *jobs > 0);
        self.records
            .put_workflow(&Workflow { operation: (!last).then_some(errand), ..workflow })
            .map_err(CommandError::Broken)?;
        if last && had_members {
            // Its members may all have gone before.
            self.remove_if_empty(id)?;
        }
        Ok(if last { Slice::Last { changed } } else { Slice::More })
    }

    /// Says how many were changed.
    fn cancel_member(
        &mut self,
        member: Seq,
        reason: Option<&str>,
        force: Force,
    ) -> Result<u64, CommandError<R::Error>> {
        // One that has ended says no, and that is all right.
        let cancelled = self.update(member, |job, moment| cancel::cancel(job, reason, force, moment));
        split_refusal(cancelled).map(|cancelled| u64::from(cancelled.is_ok())).map_err(CommandError::Broken)
    }

    /// What is being done to the workflow of this job, if that has still to come to it.
    fn operation_pending_for(&mut self, seq: Seq) -> Result<Option<WorkflowAction>, CommandError<R::Error>> {
        if self.engine.active_operations.is_empty() {
            return Ok(None);
        }
        let membership = self.with_job(seq, |job| job.membership.clone())?.flatten();
        let Some(Membership { workflow, .. }) = membership else { return Ok(None) };
        let errand =
            self.records.workflow(workflow).map_err(CommandError::Broken)?.and_then(|workflow| workflow.operation);
        Ok(errand.filter(|errand| errand.cursor < seq && seq <= errand.last_seq).map(|errand| errand.action))
    }

    /// Whether a retry that is under way has still to come to this job: then it is not brought back by news, which know less.
    pub(crate) fn will_be_rerun(&mut self, seq: Seq) -> Result<bool, CommandError<R::Error>> {
        Ok(self.operation_pending_for(seq)? == Some(WorkflowAction::Retry))
    }

    /// Whether a cancel that is under way has still to come to this job, and with which words.
    pub(crate) fn will_be_cancelled(&mut self, seq: Seq) -> Result<Option<CancelArguments>, CommandError<R::Error>> {
        Ok(match self.operation_pending_for(seq)? {
            Some(WorkflowAction::Cancel { reason, force }) => Some((reason, force)),
            Some(WorkflowAction::Retry) | None => None,
        })
    }

    /// Runs a member again if it ended without success, after those of its dependencies that did so, too. Members of one call may
    /// wait for later ones: those come first; whoever is not behind `reached` has had its turn. Says how many were changed.
    fn rerun(&mut self, member: Seq, workflow: WorkflowId, reached: Seq) -> Result<u64, CommandError<R::Error>> {
        let (mut stack, mut opened, mut changed) = (vec![member], HashSet::new(), 0);
        while let Some(top) = stack.last().copied() {
            let seen = self.with_job(top, |job| {
                let ours = job.membership.as_ref().is_some_and(|membership| membership.workflow == workflow);
                (ours && ended_unsuccessfully(job)).then(|| job.dependencies.all())
            })?;
            let Some(dependencies) = seen.flatten() else {
                stack.pop();
                continue;
            };
            if !opened.insert(top) {
                stack.pop();
                changed += u64::from(self.rerun_one(top)?);
                continue;
            }
            // The first of them comes to lie on top.
            for id in dependencies.into_iter().rev() {
                let Some(elder) = self.records.seq_of(id).map_err(CommandError::Broken)? else { continue };
                // A clone that was made by hand is younger than those who wait for its original.
                let (_, elder) = self.resolve_clone(id, elder)?;
                stack.extend(Some(elder).filter(|elder| *elder > reached && !opened.contains(elder)));
            }
        }
        Ok(changed)
    }

    /// Whoever ran and failed runs again, itself or as a clone; whoever was stopped before it ran waits again. Where a dependency outside of
    /// the workflow stands in the way, or the queue is gone, it stays as it is. Says whether it was changed.
    fn rerun_one(&mut self, seq: Seq) -> Result<bool, CommandError<R::Error>> {
        let Some((name, through)) = self.with_job(seq, |job| (job.queue.clone(), job.dependencies.ended_by))? else {
            return Ok(false);
        };
        let queue = self.engine.queue(&name).cloned();
        let intake = queue.as_ref().map(|queue| &queue.intake);
        let Some(Ok(way)) = self.with_job(seq, |job| requeue::check(job, &RERUN, intake))? else { return Ok(false) };
        let ResolvedDependencies { dependencies, dependency_statuses: standings, links } =
            self.resolve_replacements(seq, AfterAnyMode::Anew)?;
        let mut weighed = dependencies.clone();
        if let Some((other, _)) = recompute(&mut weighed, |id| standing(&standings, id)) {
            self.reassign_blocking_dependency(seq, other)?;
            return Ok(false);
        }
        weighed.ended_by = None;
        match (through, way) {
            (Some(through), ManualRequeue::InPlace | ManualRequeue::Clone) => {
                self.update(seq, |job, moment| {
                    let standing = |id| standing(&standings, id);
                    dependency::revive(job, through.dependency, dependencies, standing, moment);
                    job.pending_propagation = PendingPropagation::RestartedWithWorkflow;
                    longshore_core::promote::schedule_if_unblocked(
                        job,
                        longshore_core::history::Cause::Dependencies,
                        moment,
                    );
                    Ok(())
                })?;
                self.relink(&links, seq)?;
            }
            (None, ManualRequeue::InPlace) => {
                self.update(seq, |job, moment| {
                    requeue::in_place(job, &RERUN, dependencies, |id| standing(&standings, id), moment)?;
                    // Everybody has heard of its end (see `run_errand`); who waits for any end waits for the next.
                    job.pending_propagation = PendingPropagation::RestartedWithWorkflow;
                    Ok(())
                })?;
                self.relink(&links, seq)?;
            }
            (None, ManualRequeue::Clone) => {
                self.requeue_as_clone(seq, &RERUN, weighed)?;
            }
        }
        Ok(true)
    }

    /// Whoever was stopped by one that runs again stays ended through the other that stands in the way: its return brings both back.
    fn reassign_blocking_dependency(&mut self, seq: Seq, other: JobId) -> Result<(), CommandError<R::Error>> {
        let through = self.with_job(seq, |job| {
            let own = job.dependencies.after.iter().any(|after| after.id == other);
            job.dependencies.ended_by.filter(|through| own && through.dependency != other)
        })?;
        let Some(through) = through.flatten() else { return Ok(()) };
        self.update(seq, |job, _| {
            job.dependencies.ended_by = Some(EndedByDependency { dependency: other, ..through });
            Ok(())
        })
    }

    /// A cancel is over once all have ended. Said where a member is about to come back: until then nobody needs to know.
    pub(crate) fn clear_finished_cancel(&mut self, id: WorkflowId) -> Result<(), CommandError<R::Error>> {
        let workflow = self.records.workflow(id).map_err(CommandError::Broken)?;
        let Some(over) = workflow.filter(|workflow| workflow.cancelled && workflow.state().terminal()) else {
            return Ok(());
        };
        self.records.put_workflow(&Workflow { cancelled: false, ..over }).map_err(CommandError::Broken)
    }

    /// A closed workflow goes with the record of its last member.
    pub(crate) fn remove_if_empty(&mut self, id: WorkflowId) -> Result<(), CommandError<R::Error>> {
        let Some(workflow) = self.records.workflow(id).map_err(CommandError::Broken)? else { return Ok(()) };
        if !workflow.open && workflow.tally.records == 0 {
            self.engine.active_operations.remove(&id);
            self.records.remove_workflow(id).map_err(CommandError::Broken)?;
        }
        Ok(())
    }
}
