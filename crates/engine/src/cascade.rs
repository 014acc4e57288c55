//! The end of a job reaches its dependents, and so does its return. In bounded slices.

use longshore_core::cancel;
use longshore_core::dependency::{self, PendingPropagation, ReviveOutcome};
use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::retry::QueueContext;
use longshore_core::state::{StateKind, TerminalState};

use crate::admin::standing;
use crate::context::{CommandContext, CommandError, ignore_missing};
use crate::propagation_queue::{Propagation, PropagationKey};
use crate::queue::QueueDeleteMode;
use crate::records::JobRecords;

/// What dependents are told.
#[derive(Clone, Copy)]
enum DependencyEvent {
    Ended(TerminalState),
    Returned,
    /// With its whole workflow.
    LivesAnew(Option<WorkflowId>),
    ReturnedAndEnded(TerminalState),
}

fn workflow_of(job: &Job) -> Option<WorkflowId> {
    job.membership.as_ref().map(|membership| membership.workflow)
}

impl<R: JobRecords> CommandContext<'_, R> {
    /// Tells dependents what they are owed, oldest news first, until about `records_max` records were touched. Says how many were.
    pub(crate) fn propagate(&mut self, records_max: usize) -> Result<usize, R::Error> {
        let start = self.records_touched;
        while self.records_touched - start < records_max {
            let Some((place, news)) = self.engine.owed.first() else { break };
            let seen = self.with_job(news.of, |job| {
                (job.id, TerminalState::of(job.kind()), job.pending_propagation, workflow_of(job))
            });
            let (id, message) = match ignore_missing(seen)?.flatten() {
                Some((id, Some(ending), PendingPropagation::End, _)) => (id, DependencyEvent::Ended(ending)),
                Some((id, None, PendingPropagation::Return, _)) => (id, DependencyEvent::Returned),
                Some((id, None, PendingPropagation::RestartedWithWorkflow, workflow)) => {
                    (id, DependencyEvent::LivesAnew(workflow))
                }
                Some((id, Some(ending), PendingPropagation::RevivedThenFinished, _)) => {
                    (id, DependencyEvent::ReturnedAndEnded(ending))
                }
                // There is nothing to tell any more.
                Some((
                    _,
                    _,
                    PendingPropagation::Nothing
                    | PendingPropagation::End
                    | PendingPropagation::Return
                    | PendingPropagation::RestartedWithWorkflow
                    | PendingPropagation::RevivedThenFinished,
                    _,
                ))
                | None => {
                    self.engine.set_propagation(place, None);
                    continue;
                }
            };
            let room = records_max - (self.records_touched - start);
            // One more than fits says whether there are more.
            let slice = self.records.dependents(news.of, news.cursor, room.saturating_add(1))?;
            let mut told = news.cursor;
            let mut complete = slice.len() <= room;
            for dependent in slice.iter().take(room) {
                if self.records_touched - start >= records_max {
                    complete = false;
                    break;
                }
                ignore_missing(self.propagate_to(*dependent, id, message))?;
                told = *dependent;
            }
            self.save_propagation_progress(place, Propagation { cursor: told, ..news }, complete)?;
        }
        Ok(self.records_touched - start)
    }

    /// Notes how far the oldest news has come; telling only adds others behind it.
    fn save_propagation_progress(
        &mut self,
        place: PropagationKey,
        news: Propagation,
        complete: bool,
    ) -> Result<(), R::Error> {
        if !complete {
            self.engine.set_propagation(place, Some(news));
            return Ok(());
        }
        self.engine.set_propagation(place, None);
        ignore_missing(self.update(news.of, |job, _| {
            job.pending_propagation = PendingPropagation::Nothing;
            Ok(())
        }))?;
        Ok(())
    }

    /// How the queue of a job takes its leave, if it is about to.
    fn queue_delete_mode(&mut self, seq: Seq) -> Result<Option<QueueDeleteMode>, CommandError<R::Error>> {
        if self.engine.deleting_queues.is_empty() {
            return Ok(None);
        }
        let queue = self.with_job(seq, |job| job.queue.clone())?;
        Ok(queue.and_then(|queue| self.engine.queues.get(&queue)?.deleting))
    }

    /// Only those who run again with their workflow wait for the next end: for all others one has been enough.
    fn event_for(&mut self, seq: Seq, message: DependencyEvent) -> Result<DependencyEvent, CommandError<R::Error>> {
        let DependencyEvent::LivesAnew(workflow) = message else { return Ok(message) };
        let along = self.with_job(seq, |job| job.is_live() && workflow_of(job) == workflow)?;
        Ok(if along == Some(true) { message } else { DependencyEvent::Returned })
    }

    fn propagate_to(&mut self, seq: Seq, id: JobId, message: DependencyEvent) -> Result<(), CommandError<R::Error>> {
        let message = self.event_for(seq, message)?;
        match message {
            DependencyEvent::Returned
            | DependencyEvent::LivesAnew(_)
            | DependencyEvent::ReturnedAndEnded(TerminalState::Completed) => {
                self.revive(seq, id)?;
            }
            // Whoever ended through this job would come back only to end again.
            DependencyEvent::ReturnedAndEnded(
                TerminalState::Failed | TerminalState::DeadLetter | TerminalState::Cancelled,
            ) => {}
            DependencyEvent::Ended(_) => {}
        }
        let farewell = self.queue_delete_mode(seq)?;
        let cancel = self.will_be_cancelled(seq)?;
        self.update_with_queue(seq, |job, home, moment| {
            if let Some((reason, force)) = cancel.filter(|_| job.kind() == StateKind::Pending) {
                // Its turn would come a little later: the slices must not show.
                dependency::mark_any_met(job, id);
                cancel::cancel(job, reason.as_deref(), force, moment)?;
                return Ok(());
            }
            match (home, message) {
                // Its queue is leaving and would end it a little later: the slices must not show.
                (QueueContext::Deleted, _) if job.kind() == StateKind::Pending => match farewell {
                    Some(QueueDeleteMode::LetRunningFinish) => cancel::cancel_and_prune_with_queue(job, moment),
                    Some(QueueDeleteMode::Cancel) | None => cancel::cancel_with_queue(job, moment),
                },
                (_, DependencyEvent::LivesAnew(_)) => {}
                (QueueContext::Deleted, _) => dependency::mark_any_met(job, id),
                (
                    QueueContext::Exists(_),
                    DependencyEvent::Ended(ending) | DependencyEvent::ReturnedAndEnded(ending),
                ) => {
                    dependency::on_dependency_finished(job, id, ending, moment);
                }
                (QueueContext::Exists(_), DependencyEvent::Returned) => {
                    dependency::on_dependency_revived(job, id, moment)
                }
            }
            Ok(())
        })
    }

    /// Returns a dependent that ended through this job to pending; it owes the same to its own.
    fn revive(&mut self, seq: Seq, dependency: JobId) -> Result<(), CommandError<R::Error>> {
        let seen = self.with_job(seq, |job| {
            let through = job.dependencies.ended_by;
            let concerned = through.is_some_and(|through| through.dependency == dependency);
            concerned.then(|| (job.queue.clone(), job.dependencies.all()))
        })?;
        let Some((queue, dependencies)) = seen.flatten() else { return Ok(()) };
        if self.engine.queue(&queue).is_none() || self.will_be_rerun(seq)? {
            return Ok(());
        }
        self.records_touched += dependencies.len();
        let standings = self.dependency_statuses(&dependencies)?;
        self.update(seq, |job, moment| {
            let own = job.dependencies.clone();
            match dependency::revive(job, dependency, own, |id| standing(&standings, id), moment) {
                ReviveOutcome::Revived | ReviveOutcome::StaysEnded | ReviveOutcome::Untouched => Ok(()),
            }
        })
    }
}
