//! Propagates the end or revival of a job to its dependents, in bounded slices.

use longshore_core::cancel;
use longshore_core::dependency::{self, PendingPropagation, ReviveOutcome};
use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::retry::QueueContext;
use longshore_core::state::{StateKind, TerminalState};

use crate::admin::status_of;
use crate::context::{CommandContext, CommandError, ignore_missing};
use crate::propagation_queue::{Propagation, PropagationKey};
use crate::queue::QueueDeleteMode;
use crate::records::JobRecords;

/// What a dependent receives.
#[derive(Clone, Copy)]
enum DependencyEvent {
    Finished(TerminalState),
    Revived,
    /// The whole workflow is retried.
    RestartedWithWorkflow(Option<WorkflowId>),
    RevivedThenFinished(TerminalState),
}

impl DependencyEvent {
    /// Returns the event that the dependents of a job have not received yet.
    fn pending_of(job: &Job) -> Option<Self> {
        match (TerminalState::of(job.kind()), job.pending_propagation) {
            (Some(ending), PendingPropagation::End) => Some(Self::Finished(ending)),
            (None, PendingPropagation::Return) => Some(Self::Revived),
            (None, PendingPropagation::RestartedWithWorkflow) => Some(Self::RestartedWithWorkflow(job.workflow())),
            (Some(ending), PendingPropagation::RevivedThenFinished) => Some(Self::RevivedThenFinished(ending)),
            (
                _,
                PendingPropagation::Nothing
                | PendingPropagation::End
                | PendingPropagation::Return
                | PendingPropagation::RestartedWithWorkflow
                | PendingPropagation::RevivedThenFinished,
            ) => None,
        }
    }
}

impl<R: JobRecords> CommandContext<'_, R> {
    /// Propagates pending events, oldest first, until about `records_max` records were read or
    /// changed. Returns the number of those records.
    pub(crate) fn propagate(&mut self, records_max: usize) -> Result<usize, R::Error> {
        let start = self.records_touched;
        while self.records_touched - start < records_max {
            let Some((key, propagation)) = self.engine.propagation.first() else { break };
            let source = self.with_job(propagation.dependency, |job| Some((job.id, DependencyEvent::pending_of(job)?)));
            let Some((id, event)) = ignore_missing(source)?.flatten().flatten() else {
                self.engine.set_propagation(key, None);
                continue;
            };
            let room = records_max - (self.records_touched - start);
            // One more than fits shows whether there are more.
            let slice = self.records.dependents(propagation.dependency, propagation.cursor, room.saturating_add(1))?;
            let mut cursor = propagation.cursor;
            let mut is_complete = slice.len() <= room;
            for dependent in slice.iter().take(room) {
                if self.records_touched - start >= records_max {
                    is_complete = false;
                    break;
                }
                ignore_missing(self.propagate_to(*dependent, id, event))?;
                cursor = *dependent;
            }
            self.save_propagation_progress(key, Propagation { cursor, ..propagation }, is_complete)?;
        }
        Ok(self.records_touched - start)
    }

    /// Saves the cursor of the first propagation. `key` is still the first: new ones are queued
    /// behind it.
    fn save_propagation_progress(
        &mut self,
        key: PropagationKey,
        propagation: Propagation,
        is_complete: bool,
    ) -> Result<(), R::Error> {
        if !is_complete {
            self.engine.set_propagation(key, Some(propagation));
            return Ok(());
        }
        self.engine.set_propagation(key, None);
        ignore_missing(self.update(propagation.dependency, |job, _| {
            job.pending_propagation = PendingPropagation::Nothing;
            Ok(())
        }))?;
        Ok(())
    }

    /// Returns the delete mode of the queue of a job, if the queue is being deleted.
    fn queue_delete_mode(&mut self, seq: Seq) -> Result<Option<QueueDeleteMode>, CommandError<R::Error>> {
        if self.engine.deleting_queues.is_empty() {
            return Ok(None);
        }
        let queue = self.with_job(seq, |job| job.queue.clone())?;
        Ok(queue.and_then(|queue| self.engine.queues.get(&queue)?.deleting))
    }

    /// Returns the event for one dependent. A restart concerns live members of the same workflow:
    /// they wait for the next end. For other dependents the earlier end still counts, so they
    /// receive a revival.
    fn event_for(&mut self, seq: Seq, event: DependencyEvent) -> Result<DependencyEvent, CommandError<R::Error>> {
        let DependencyEvent::RestartedWithWorkflow(workflow) = event else { return Ok(event) };
        let is_restarted = self.with_job(seq, |job| job.is_live() && job.workflow() == workflow)?;
        Ok(if is_restarted == Some(true) { event } else { DependencyEvent::Revived })
    }

    fn propagate_to(&mut self, seq: Seq, id: JobId, event: DependencyEvent) -> Result<(), CommandError<R::Error>> {
        let event = self.event_for(seq, event)?;
        let revives = match event {
            DependencyEvent::Revived | DependencyEvent::RestartedWithWorkflow(_) => true,
            // After a second failure, a revived dependent would end again at once.
            DependencyEvent::RevivedThenFinished(ending) => ending.is_success(),
            DependencyEvent::Finished(_) => false,
        };
        if revives {
            self.revive(seq, id)?;
        }
        let delete_mode = self.queue_delete_mode(seq)?;
        let cancel = self.will_be_cancelled(seq)?;
        self.update_with_queue(seq, |job, queue, context| {
            let is_pending = job.kind() == StateKind::Pending;
            if let Some((reason, force)) = cancel.filter(|_| is_pending) {
                // The cancel of the workflow would reach this job in a later slice. The result must
                // not depend on the size of a slice.
                dependency::mark_any_met(job, id);
                cancel::cancel(job, reason.as_deref(), force, context)?;
                return Ok(());
            }
            match (queue, event) {
                // Likewise for the delete of its queue.
                (QueueContext::Deleted, _) if is_pending => match delete_mode {
                    Some(QueueDeleteMode::LetRunningFinish) => cancel::cancel_and_prune_with_queue(job, context),
                    Some(QueueDeleteMode::Cancel) | None => cancel::cancel_with_queue(job, context),
                },
                (_, DependencyEvent::RestartedWithWorkflow(_)) => {}
                (QueueContext::Deleted, _) => dependency::mark_any_met(job, id),
                (
                    QueueContext::Exists(_),
                    DependencyEvent::Finished(ending) | DependencyEvent::RevivedThenFinished(ending),
                ) => {
                    dependency::on_dependency_finished(job, id, ending, context);
                }
                (QueueContext::Exists(_), DependencyEvent::Revived) => {
                    dependency::on_dependency_revived(job, id, context);
                }
            }
            Ok(())
        })
    }

    /// Returns a dependent that this dependency had ended to pending. The revival then propagates
    /// further.
    fn revive(&mut self, seq: Seq, dependency: JobId) -> Result<(), CommandError<R::Error>> {
        let fields = self.with_job(seq, |job| {
            let is_affected = job.dependencies.ended_by.is_some_and(|cause| cause.dependency == dependency);
            is_affected.then(|| (job.queue.clone(), job.dependencies.all()))
        })?;
        let Some((queue, dependencies)) = fields.flatten() else { return Ok(()) };
        if self.engine.queue(&queue).is_none() || self.will_be_rerun(seq)? {
            return Ok(());
        }
        self.records_touched += dependencies.len();
        let statuses = self.dependency_statuses(&dependencies)?;
        self.update(seq, |job, context| {
            let own = job.dependencies.clone();
            match dependency::revive(job, dependency, own, |id| status_of(&statuses, id), context) {
                ReviveOutcome::Revived | ReviveOutcome::StaysEnded | ReviveOutcome::Untouched => Ok(()),
            }
        })
    }
}
