//! Operations on workflows: open, close, cancel, retry. Cancel and retry run in bounded slices.

use std::collections::HashSet;
use std::sync::Arc;

use longshore_core::cancel::{self, Force};
use longshore_core::dependency::{self, AfterAnyMode, EndedByDependency, PendingPropagation, recompute};
use longshore_core::history::Cause;
use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::policy::ManualRequeue;
use longshore_core::promote;
use longshore_core::refusal::Refusal;
use longshore_core::requeue::{self, Requeue, Reset};
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction, WorkflowOperation, ended_unsuccessfully};

use crate::admin::{ResolvedDependencies, status_of};
use crate::command::AdminResponse;
use crate::context::{CommandContext, CommandError, ignore_missing, split_refusal};
use crate::records::JobRecords;

/// The reason to refuse a retry that would change no member.
const NOTHING_CAN_RUN: &str = "no job of the workflow can run again: a dependency outside of the workflow failed or \
    was deleted, or the queue was deleted";

/// Whether an operation needs another slice; after the last one, how many members it changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slice {
    More,
    Last { changed: u64 },
}

/// The reason and force of a cancel.
pub(crate) type CancelArguments = (Option<Arc<str>>, Force);

/// How a retry requeues members.
const RERUN: Requeue = Requeue { counters: Reset::Zero, run_at: None };

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn find_workflow(&mut self, id: WorkflowId) -> Result<Workflow, CommandError<R::Error>> {
        self.records
            .workflow(id)
            .map_err(CommandError::Storage)?
            .ok_or(CommandError::Refused(Refusal::WorkflowNotFound))
    }

    /// Creates a workflow. Jobs and workflows share one sequence of numbers.
    pub(crate) fn new_workflow(
        &mut self,
        name: Option<&Arc<str>>,
        open: bool,
    ) -> Result<Workflow, CommandError<R::Error>> {
        let number = Seq(self.engine.next_seq);
        self.engine.next_seq += 1;
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
        self.records.put_workflow(&workflow).map_err(CommandError::Storage)?;
        Ok(workflow)
    }

    pub(crate) fn open_workflow(&mut self, name: Option<&Arc<str>>) -> Result<AdminResponse, CommandError<R::Error>> {
        Workflow::check_name(name.map(AsRef::as_ref))?;
        let workflow = self.new_workflow(name, true)?;
        Ok(AdminResponse::Workflow { id: workflow.id, state: workflow.state() })
    }

    /// Closes a workflow. Idempotent.
    pub(crate) fn close_workflow(&mut self, id: WorkflowId) -> Result<AdminResponse, CommandError<R::Error>> {
        let mut workflow = self.find_workflow(id)?;
        if workflow.open {
            workflow.open = false;
            self.records.put_workflow(&workflow).map_err(CommandError::Storage)?;
        }
        let state = workflow.state();
        if workflow.tally.counts.iter().any(|jobs| *jobs > 0) {
            // Retention may have removed all members already.
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
                Err(Refusal::Illegal("no job of the workflow has failed or was cancelled").into())
            }
            None => self.start_operation(workflow, WorkflowAction::Retry),
        }
    }

    /// Starts an operation on all members and runs its first slice. It replaces an unfinished one.
    fn start_operation(
        &mut self,
        workflow: Workflow,
        action: WorkflowAction,
    ) -> Result<AdminResponse, CommandError<R::Error>> {
        let (id, is_retry) = (workflow.id, action == WorkflowAction::Retry);
        let operation = Some(WorkflowOperation {
            action,
            cursor: Seq(0),
            last_seq: Seq(self.engine.next_seq.saturating_sub(1)),
            changed: 0,
        });
        let was_cancelled = workflow.cancelled;
        let cancelled = was_cancelled && !is_retry;
        let state_without_operation = Workflow { operation: None, ..workflow.clone() }.state();
        self.records.put_workflow(&Workflow { operation, cancelled, ..workflow }).map_err(CommandError::Storage)?;
        self.engine.active_operations.insert(id);
        let jobs_max = self.engine.options.cascade_jobs_max;
        self.propagate(jobs_max).map_err(CommandError::Storage)?;
        let slice = self.run_operation_slice(id, jobs_max)?;
        let Some(workflow) = self.records.workflow(id).map_err(CommandError::Storage)? else {
            // It had no member records left, so this command removed it.
            return Ok(AdminResponse::Workflow { id, state: state_without_operation });
        };
        if is_retry && slice == (Slice::Last { changed: 0 }) {
            // A refused command changes nothing.
            self.records
                .put_workflow(&Workflow { cancelled: was_cancelled, ..workflow })
                .map_err(CommandError::Storage)?;
            return Err(Refusal::Illegal(NOTHING_CAN_RUN).into());
        }
        Ok(AdminResponse::Workflow { id, state: workflow.state() })
    }

    /// Continues active operations until about `records_max` records were read or changed.
    /// Returns the number of those records.
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

    /// Runs one slice of the operation of one workflow.
    fn run_operation_slice(&mut self, id: WorkflowId, records_max: usize) -> Result<Slice, CommandError<R::Error>> {
        let operation =
            self.records.workflow(id).map_err(CommandError::Storage)?.and_then(|workflow| workflow.operation);
        let Some(mut operation) = operation else {
            self.engine.active_operations.remove(&id);
            return Ok(Slice::Last { changed: 0 });
        };
        if operation.action == WorkflowAction::Retry && !self.engine.propagation.is_empty() {
            // All members that a failure ended must have received it before they can be revived.
            return Ok(Slice::More);
        }
        let (start, room) = (self.records_touched, records_max.max(1));
        let slice = self.records.members(id, operation.cursor, room).map_err(CommandError::Storage)?;
        let mut last = slice.len() < room;
        for member in slice {
            if member > operation.last_seq {
                last = true;
                break;
            }
            if self.records_touched - start >= room {
                last = false;
                break;
            }
            self.records_touched += 1;
            operation.changed += match &operation.action {
                WorkflowAction::Cancel { reason, force } => self.cancel_member(member, reason.as_deref(), *force)?,
                WorkflowAction::Retry => self.rerun(member, id, operation.cursor)?,
            };
            operation.cursor = member;
        }
        if last {
            self.engine.active_operations.remove(&id);
        }
        let (workflow, changed) = (self.find_workflow(id)?, operation.changed);
        let had_members = workflow.tally.counts.iter().any(|jobs| *jobs > 0);
        self.records
            .put_workflow(&Workflow { operation: (!last).then_some(operation), ..workflow })
            .map_err(CommandError::Storage)?;
        if last && had_members {
            // Retention may have removed all members already.
            self.remove_if_empty(id)?;
        }
        Ok(if last { Slice::Last { changed } } else { Slice::More })
    }

    /// Returns how many members were changed: 0 or 1.
    fn cancel_member(
        &mut self,
        member: Seq,
        reason: Option<&str>,
        force: Force,
    ) -> Result<u64, CommandError<R::Error>> {
        // A member that has ended refuses the cancel.
        let cancelled = self.update(member, |job, context| cancel::cancel(job, reason, force, context));
        split_refusal(cancelled).map(|cancelled| u64::from(cancelled.is_ok())).map_err(CommandError::Storage)
    }

    /// Returns the active operation of the workflow of a job, if it has not reached the job yet.
    fn operation_pending_for(&mut self, seq: Seq) -> Result<Option<WorkflowAction>, CommandError<R::Error>> {
        if self.engine.active_operations.is_empty() {
            return Ok(None);
        }
        let Some(workflow) = self.with_job(seq, Job::workflow)?.flatten() else { return Ok(None) };
        let operation =
            self.records.workflow(workflow).map_err(CommandError::Storage)?.and_then(|workflow| workflow.operation);
        Ok(operation
            .filter(|operation| operation.cursor < seq && seq <= operation.last_seq)
            .map(|operation| operation.action))
    }

    /// Returns whether an active retry has not reached this job yet. Then only the retry revives
    /// it: a propagation does not know the other dependencies that will run again.
    pub(crate) fn will_be_rerun(&mut self, seq: Seq) -> Result<bool, CommandError<R::Error>> {
        Ok(self.operation_pending_for(seq)? == Some(WorkflowAction::Retry))
    }

    /// Returns the arguments of an active cancel that has not reached this job yet.
    pub(crate) fn will_be_cancelled(&mut self, seq: Seq) -> Result<Option<CancelArguments>, CommandError<R::Error>> {
        Ok(match self.operation_pending_for(seq)? {
            Some(WorkflowAction::Cancel { reason, force }) => Some((reason, force)),
            Some(WorkflowAction::Retry) | None => None,
        })
    }

    /// Reruns a member that ended without success, after those of its dependencies that did so.
    ///
    /// Dependencies can have greater numbers than their dependents, so this is a depth-first
    /// search. Members up to `cursor` are skipped: the operation has processed them. Returns how
    /// many members were changed.
    fn rerun(&mut self, member: Seq, workflow: WorkflowId, cursor: Seq) -> Result<u64, CommandError<R::Error>> {
        let (mut stack, mut visited, mut changed) = (vec![member], HashSet::new(), 0);
        while let Some(top) = stack.last().copied() {
            let dependencies = self.with_job(top, |job| {
                let is_candidate = job.workflow() == Some(workflow) && ended_unsuccessfully(job);
                is_candidate.then(|| job.dependencies.all())
            })?;
            let Some(dependencies) = dependencies.flatten() else {
                stack.pop();
                continue;
            };
            if !visited.insert(top) {
                stack.pop();
                changed += u64::from(self.rerun_one(top)?);
                continue;
            }
            // In reverse, so that the first dependency is processed first.
            for id in dependencies.into_iter().rev() {
                let Some(seq) = self.records.seq_of(id).map_err(CommandError::Storage)? else { continue };
                // A clone is newer than the dependents of its original.
                let (_, seq) = self.resolve_clone(id, seq)?;
                stack.extend(Some(seq).filter(|seq| *seq > cursor && !visited.contains(seq)));
            }
        }
        Ok(changed)
    }

    /// Requeues a member that failed, or revives one that ended before it ran. Returns whether it
    /// did.
    ///
    /// A member stays ended if a dependency outside of the workflow blocks it or its queue was
    /// deleted.
    fn rerun_one(&mut self, seq: Seq) -> Result<bool, CommandError<R::Error>> {
        let Some((name, ended_by)) = self.with_job(seq, |job| (job.queue.clone(), job.dependencies.ended_by))? else {
            return Ok(false);
        };
        let queue = self.engine.queue(&name).cloned();
        let admission = queue.as_ref().map(|queue| &queue.admission);
        let Some(Ok(mode)) = self.with_job(seq, |job| requeue::check(job, &RERUN, admission))? else {
            return Ok(false);
        };
        let ResolvedDependencies { dependencies, dependency_statuses: statuses, links } =
            self.resolve_replacements(seq, AfterAnyMode::Anew)?;
        let mut recomputed = dependencies.clone();
        if let Some((blocking, _)) = recompute(&mut recomputed, |id| status_of(&statuses, id)) {
            self.reassign_blocking_dependency(seq, blocking)?;
            return Ok(false);
        }
        recomputed.ended_by = None;
        match (ended_by, mode) {
            (Some(cause), ManualRequeue::InPlace | ManualRequeue::Clone) => {
                self.update(seq, |job, context| {
                    let status = |id| status_of(&statuses, id);
                    dependency::revive(job, cause.dependency, dependencies, status, context);
                    job.pending_propagation = PendingPropagation::RestartedWithWorkflow;
                    promote::schedule_if_unblocked(job, Cause::Dependencies, context);
                    Ok(())
                })?;
                self.relink(&links, seq)?;
            }
            (None, ManualRequeue::InPlace) => {
                self.update(seq, |job, context| {
                    requeue::in_place(job, &RERUN, dependencies, |id| status_of(&statuses, id), context)?;
                    // All dependents have received its end (see `run_operation_slice`). Those with
                    // `after_any` now wait for the next end.
                    job.pending_propagation = PendingPropagation::RestartedWithWorkflow;
                    Ok(())
                })?;
                self.relink(&links, seq)?;
            }
            (None, ManualRequeue::Clone) => {
                self.requeue_as_clone(seq, &RERUN, recomputed)?;
            }
        }
        Ok(true)
    }

    /// Records the blocking dependency as the cause of a member's end, in place of one that runs
    /// again. A revival of the blocking dependency then revives the member.
    fn reassign_blocking_dependency(&mut self, seq: Seq, blocking: JobId) -> Result<(), CommandError<R::Error>> {
        let cause = self.with_job(seq, |job| {
            let is_direct = job.dependencies.after.iter().any(|after| after.id == blocking);
            job.dependencies.ended_by.filter(|cause| is_direct && cause.dependency != blocking)
        })?;
        let Some(cause) = cause.flatten() else { return Ok(()) };
        self.update(seq, |job, _| {
            job.dependencies.ended_by = Some(EndedByDependency { dependency: blocking, ..cause });
            Ok(())
        })
    }

    /// Clears the mark of a cancel once all members have ended. Called when a member is revived:
    /// before that, the mark has no effect.
    pub(crate) fn clear_finished_cancel(&mut self, id: WorkflowId) -> Result<(), CommandError<R::Error>> {
        let workflow = self.records.workflow(id).map_err(CommandError::Storage)?;
        let Some(ended) = workflow.filter(|workflow| workflow.cancelled && workflow.state().terminal()) else {
            return Ok(());
        };
        self.records.put_workflow(&Workflow { cancelled: false, ..ended }).map_err(CommandError::Storage)
    }

    /// Removes a closed workflow without member records.
    pub(crate) fn remove_if_empty(&mut self, id: WorkflowId) -> Result<(), CommandError<R::Error>> {
        let Some(workflow) = self.records.workflow(id).map_err(CommandError::Storage)? else { return Ok(()) };
        if !workflow.open && workflow.tally.records == 0 {
            self.engine.active_operations.remove(&id);
            self.records.remove_workflow(id).map_err(CommandError::Storage)?;
        }
        Ok(())
    }
}
