//! What people do to jobs: cancel, requeue, dead-letter, run now, edit, delete, submit what was held.

use std::collections::HashMap;

use longshore_core::cancel::{self, Cancelled, Force};
use longshore_core::dependency::{AfterAnyMode, Dependencies, DependencyStatus};
use longshore_core::edit::{self, Edit};
use longshore_core::id::{JobId, Seq};
use longshore_core::job::{Job, TransitionContext};
use longshore_core::ocypod::status::{self, StatusAction, StatusChange};
use longshore_core::policy::ManualRequeue;
use longshore_core::promote;
use longshore_core::refusal::Refusal;
use longshore_core::requeue::{self, Requeue, Reset};
use longshore_core::state::StateKind;
use longshore_core::workflow::{MemberCountDelta, Membership};

use crate::context::{CommandContext, CommandError, DependentChange};
use crate::engine::Effect;
use crate::records::{JobRecords, KeyEntry, PayloadSource, ScopedIdempotencyKey};

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn cancel(
        &mut self,
        id: JobId,
        reason: Option<&str>,
        force: Force,
    ) -> Result<Cancelled, CommandError<R::Error>> {
        cancel::check_reason(reason)?;
        let seq = self.find(id)?;
        self.update(seq, |job, moment| cancel::cancel(job, reason, force, moment))
    }

    pub(crate) fn dead_letter(&mut self, id: JobId, reason: Option<&str>) -> Result<StateKind, CommandError<R::Error>> {
        cancel::check_reason(reason)?;
        let seq = self.find(id)?;
        self.update(seq, |job, moment| cancel::dead_letter(job, reason, moment))
    }

    pub(crate) fn run_now(&mut self, id: JobId) -> Result<StateKind, CommandError<R::Error>> {
        let seq = self.find(id)?;
        self.update(seq, promote::run_now)
    }

    pub(crate) fn edit(&mut self, id: JobId, edit: &Edit) -> Result<StateKind, CommandError<R::Error>> {
        edit.check()?;
        let seq = self.find(id)?;
        let (queue, kind) = self.update(seq, |job, moment| {
            let kind = edit::edit(job, edit, moment)?;
            Ok((job.queue.clone(), kind))
        })?;
        if kind == StateKind::Scheduled && edit.job_type.is_some() {
            // Somebody may be waiting for work of just this type.
            self.effects.push(Effect::Claimable(queue));
        }
        Ok(kind)
    }

    pub(crate) fn submit_held(&mut self, id: JobId) -> Result<StateKind, CommandError<R::Error>> {
        let seq = self.find(id)?;
        let seen =
            self.with_job(seq, |job| (job.queue.clone(), job.state.held(), job.policy.profile.fails_when_full()))?;
        let (name, held, fails_when_full) = seen.ok_or(Refusal::JobNotFound)?;
        let max = self.engine.queue(&name).and_then(|queue| queue.intake.max_queued);
        let full = max.filter(|max| self.engine.index.queued_count(&name) >= *max);
        if let Some(max_queued) = full
            && held
            && !fails_when_full
        {
            return Err(Refusal::QueueFull { max_queued }.into());
        }
        self.update(seq, |job, moment| promote::submit_held(job, full.is_some(), moment))
    }

    /// Answers the job that will run: the same one, or its clone.
    pub(crate) fn requeue(&mut self, id: JobId, how: &Requeue) -> Result<(JobId, StateKind), CommandError<R::Error>> {
        let seq = self.find(id)?;
        let name = self.with_job(seq, |job| job.queue.clone())?.ok_or(Refusal::JobNotFound)?;
        let queue = self.engine.queue(&name).cloned();
        let checked = self.with_job(seq, |job| requeue::check(job, how, queue.as_ref().map(|queue| &queue.intake)))?;
        match checked.ok_or(Refusal::JobNotFound)?? {
            // What it waited for is not copied.
            ManualRequeue::Clone => self.requeue_as_clone(seq, how, Dependencies::default()),
            ManualRequeue::InPlace => Ok((id, self.requeue_in_place(seq, how)?)),
        }
    }

    /// Whoever was requeued as a clone meanwhile is waited for in the person of that clone.
    pub(crate) fn requeue_in_place(&mut self, seq: Seq, how: &Requeue) -> Result<StateKind, CommandError<R::Error>> {
        let ResolvedDependencies { dependencies, dependency_statuses: standings, links } =
            self.resolve_replacements(seq, AfterAnyMode::Remembered)?;
        let kind = self.update(seq, |job, moment| {
            requeue::in_place(job, how, dependencies, |id| standing(&standings, id), moment)?;
            Ok(job.kind())
        })?;
        self.relink(&links, seq)?;
        Ok(kind)
    }

    pub(crate) fn requeue_as_clone(
        &mut self,
        seq: Seq,
        how: &Requeue,
        dependencies: Dependencies,
    ) -> Result<(JobId, StateKind), CommandError<R::Error>> {
        let clone_seq = Seq(self.engine.next_number);
        let clone_id = self.records.new_id(clone_seq, self.rng);
        self.engine.next_number += 1;
        let mut moves = Vec::new();
        let copy = self.update(seq, |job, moment| {
            let (now, lease_floor) = (moment.now, moment.lease_floor);
            let (rng, next_number) = (&mut *moment.rng, &mut *moment.next_seq);
            let mut apart = TransitionContext { now, rng, next_seq: next_number, lease_floor, transitions: &mut moves };
            Ok(requeue::clone(job, (clone_id, clone_seq), how, dependencies, &mut apart))
        })?;
        self.moves = moves;
        let (kind, dependencies) = (copy.kind(), copy.dependencies.all());
        let membership = copy.membership.clone();
        self.add(Box::new(copy), PayloadSource::CopyOf(seq))?;
        if let Some(Membership { workflow, reference }) = membership {
            // The name leads to whoever stands in its place.
            if self.records.member(workflow, &reference).map_err(CommandError::Broken)? == Some(seq) {
                self.records.set_member_ref(workflow, &reference, clone_seq).map_err(CommandError::Broken)?;
            }
        }
        for id in &dependencies {
            if let Some(elder) = self.records.seq_of(*id).map_err(CommandError::Broken)? {
                self.records.link(elder, clone_seq).map_err(CommandError::Broken)?;
            }
        }
        self.records_touched += 1 + dependencies.len();
        self.adjust_dependent_counts(dependencies.into_iter().map(|id| (id, 1)), DependentChange::Began)?;
        Ok((clone_id, kind))
    }

    /// A requeue is in place, whatever the policy says: the dialect knows a job by one number.
    pub(crate) fn change_status(
        &mut self,
        id: JobId,
        change: &StatusChange,
    ) -> Result<StateKind, CommandError<R::Error>> {
        let (seq, now) = (self.find(id)?, self.now);
        let seen = self.with_job(seq, |job| (status::check(job, change, now), job.kind(), job.queue.clone()))?;
        let (step, kind, name) = seen.ok_or(Refusal::JobNotFound)?;
        match step? {
            StatusAction::Requeue if kind == StateKind::Retrying => {
                self.engine.queue(&name).ok_or(Refusal::QueueNotFound)?;
                self.update(seq, |job, moment| {
                    requeue::requeue_pending_retry(job, moment);
                    Ok(job.kind())
                })
            }
            StatusAction::Requeue => {
                let how = Requeue { counters: Reset::Keep, run_at: None };
                let queue = self.engine.queue(&name).cloned();
                let intake = queue.as_ref().map(|queue| &queue.intake);
                self.with_job(seq, |job| requeue::check(job, &how, intake))?.ok_or(Refusal::JobNotFound)??;
                self.requeue_in_place(seq, &how)
            }
            step @ (StatusAction::Note
            | StatusAction::Complete
            | StatusAction::Fail
            | StatusAction::TimeOut
            | StatusAction::Cancel) => {
                self.update_with_queue(seq, |job, home, moment| status::change(job, change, step, home, moment))
            }
        }
    }

    /// What a job that comes back waits for: its dependencies, or the clones that took the places of those that failed.
    pub(crate) fn resolve_replacements(
        &mut self,
        seq: Seq,
        ends: AfterAnyMode,
    ) -> Result<ResolvedDependencies, CommandError<R::Error>> {
        let seen = self.with_job(seq, |job| job.dependencies.clone())?;
        let mut dependencies = seen.ok_or(Refusal::JobNotFound)?;
        let (mut successors, mut links) = (HashMap::new(), Vec::new());
        let concerned = match ends {
            AfterAnyMode::Remembered => dependencies.after.iter().map(|after| after.id).collect(),
            AfterAnyMode::Anew => dependencies.all(),
        };
        for id in concerned {
            self.records_touched += 1;
            let Some(original) = self.records.seq_of(id).map_err(CommandError::Broken)? else { continue };
            let (heir, number) = self.resolve_clone(id, original)?;
            if heir != id {
                successors.insert(id, heir);
                let still_waits = ends == AfterAnyMode::Remembered && dependencies.after_any.contains(&id);
                links.push((Some(original).filter(|_| !still_waits), number));
            }
        }
        dependencies.replace_dependencies(&successors, ends);
        let standings = self.dependency_statuses(&dependencies.all())?;
        Ok(ResolvedDependencies { dependencies, dependency_statuses: standings, links })
    }

    /// Whoever stands in the place of a job now: itself, or the last of its clones.
    pub(crate) fn resolve_clone(&mut self, id: JobId, original: Seq) -> Result<(JobId, Seq), CommandError<R::Error>> {
        let (mut heir, mut number) = (id, original);
        while let Some(next) = self.with_job(number, |job| job.requeued_as)?.flatten() {
            // If nobody knows any more what became of a clone, its original has to speak for itself.
            let Some(seq) = self.records.seq_of(next).map_err(CommandError::Broken)? else { break };
            (heir, number) = (next, seq);
        }
        Ok((heir, number))
    }

    /// Has a job hear from the clones, not from their originals.
    pub(crate) fn relink(
        &mut self,
        links: &[(Option<Seq>, Seq)],
        dependent: Seq,
    ) -> Result<(), CommandError<R::Error>> {
        for (original, clone) in links {
            if let Some(original) = original {
                self.records.unlink(*original, dependent).map_err(CommandError::Broken)?;
            }
            self.records.link(*clone, dependent).map_err(CommandError::Broken)?;
        }
        Ok(())
    }

    /// How these jobs stand; one that is gone is left out.
    pub(crate) fn dependency_statuses(
        &mut self,
        ids: &[JobId],
    ) -> Result<HashMap<JobId, DependencyStatus>, CommandError<R::Error>> {
        let mut standings = HashMap::with_capacity(ids.len());
        for id in ids {
            let Some(seq) = self.records.seq_of(*id).map_err(CommandError::Broken)? else { continue };
            standings.extend(self.with_job(seq, DependencyStatus::of)?.map(|standing| (*id, standing)));
        }
        Ok(standings)
    }

    pub(crate) fn delete(&mut self, id: JobId) -> Result<(), CommandError<R::Error>> {
        let seq = self.find(id)?;
        let seen = self.with_job(seq, |job| (job.kind(), job.unfinished_dependents))?;
        let (kind, live_dependents) = seen.ok_or(Refusal::JobNotFound)?;
        if !kind.terminal() {
            return Err(Refusal::IllegalTransition { from: kind, verb: "deleted" }.into());
        }
        if live_dependents > 0 {
            return Err(Refusal::Illegal("another job that has not ended depends on this one").into());
        }
        if remove_job(self, seq)? {
            Ok(())
        } else {
            Err(Refusal::Illegal("its dependents are still being told").into())
        }
    }
}

/// Dependencies in which clones have taken the places of their originals.
pub(crate) struct ResolvedDependencies {
    pub dependencies: Dependencies,
    pub dependency_statuses: HashMap<JobId, DependencyStatus>,
    /// Originals, and the clones that have to tell the job how they end.
    pub links: Vec<(Option<Seq>, Seq)>,
}

pub(crate) fn standing(standings: &HashMap<JobId, DependencyStatus>, id: JobId) -> DependencyStatus {
    standings.get(&id).copied().unwrap_or(DependencyStatus::Gone)
}

/// Removes an ended record that nobody needs any more. Says whether it did.
pub(crate) fn remove_job<R: JobRecords>(
    turn: &mut CommandContext<'_, R>,
    seq: Seq,
) -> Result<bool, CommandError<R::Error>> {
    let Some(job) = turn.records.checkout(seq).map_err(CommandError::Broken)? else { return Ok(false) };
    if job.is_live() || job.unfinished_dependents > 0 {
        turn.records.return_unchanged(job);
        return Ok(false);
    }
    release_idempotency_key(turn, &job)?;
    turn.engine.reindex(Some(crate::index::Entry::of(&job)), None);
    turn.tally(&job, &MemberCountDelta::gone())?;
    let workflow = job.membership.as_ref().map(|membership| membership.workflow);
    turn.records.remove(job).map_err(CommandError::Broken)?;
    if let Some(workflow) = workflow {
        turn.remove_if_empty(workflow)?;
    }
    Ok(true)
}

/// A key outlives its job until a finite window ends; a for-ever key goes with the record.
fn release_idempotency_key<R: JobRecords>(
    turn: &mut CommandContext<'_, R>,
    job: &Job,
) -> Result<(), CommandError<R::Error>> {
    let Some(path) = job.idempotency.as_ref().and_then(|key| ScopedIdempotencyKey::of(key, &job.queue)) else {
        return Ok(());
    };
    let entry = turn.records.key(&path).map_err(CommandError::Broken)?;
    let Some(entry) = entry.filter(|entry| entry.seq == job.seq) else { return Ok(()) };
    // Where the queue is gone, its profile's own window has to do.
    let of_profile = || job.policy.profile.settings().intake.idempotency.window;
    let window = turn.engine.queue(&job.queue).map_or_else(of_profile, |queue| queue.intake.idempotency.window);
    match window.map(|window| entry.at + window).filter(|end| *end > turn.now) {
        Some(end) => {
            turn.records.put_key(path, KeyEntry { prune_at: Some(end), ..entry }).map_err(CommandError::Broken)
        }
        None => turn.records.remove_key(&path).map_err(CommandError::Broken),
    }
}
