//! Operations on one job: cancel, requeue, dead-letter, run now, edit, delete, submit a held job.

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
use longshore_core::requeue::{self, Requeue, Reset, Reversal};
use longshore_core::state::StateKind;
use longshore_core::workflow::{MemberCountDelta, Membership};

use crate::context::{CommandContext, CommandError, DependentChange};
use crate::engine::Effect;
use crate::index::IndexEntry;
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
        self.update(seq, |job, context| cancel::cancel(job, reason, force, context))
    }

    pub(crate) fn dead_letter(&mut self, id: JobId, reason: Option<&str>) -> Result<StateKind, CommandError<R::Error>> {
        cancel::check_reason(reason)?;
        let seq = self.find(id)?;
        self.update(seq, |job, context| cancel::dead_letter(job, reason, context))
    }

    pub(crate) fn take_back(&mut self, id: JobId, how: &Reversal) -> Result<StateKind, CommandError<R::Error>> {
        let seq = self.find(id)?;
        self.update(seq, |job, context| requeue::take_back(job, how, context))
    }

    pub(crate) fn run_now(&mut self, id: JobId) -> Result<StateKind, CommandError<R::Error>> {
        let seq = self.find(id)?;
        self.update(seq, promote::run_now)
    }

    pub(crate) fn edit(&mut self, id: JobId, edit: &Edit) -> Result<StateKind, CommandError<R::Error>> {
        edit.check()?;
        let seq = self.find(id)?;
        let (queue, kind) = self.update(seq, |job, context| {
            let kind = edit::edit(job, edit, context)?;
            Ok((job.queue.clone(), kind))
        })?;
        if kind == StateKind::Scheduled && edit.job_type.is_some() {
            // A claim may wait for a job of the new type.
            self.effects.push(Effect::Claimable(queue));
        }
        Ok(kind)
    }

    pub(crate) fn submit_held(&mut self, id: JobId) -> Result<StateKind, CommandError<R::Error>> {
        let seq = self.find(id)?;
        let fields =
            self.with_job(seq, |job| (job.queue.clone(), job.state.held(), job.policy.profile.fails_when_full()))?;
        let (name, held, fails_when_full) = fields.ok_or(Refusal::JobNotFound)?;
        let max = self.engine.queue(&name).and_then(|queue| queue.admission.max_queued);
        let full = max.filter(|max| self.engine.index.queued_count(&name) >= *max);
        if let Some(max_queued) = full
            && held
            && !fails_when_full
        {
            return Err(Refusal::QueueFull { max_queued }.into());
        }
        self.update(seq, |job, context| promote::submit_held(job, full.is_some(), context))
    }

    /// Returns the job that will run: the same one, or its clone.
    pub(crate) fn requeue(&mut self, id: JobId, how: &Requeue) -> Result<(JobId, StateKind), CommandError<R::Error>> {
        let seq = self.find(id)?;
        let name = self.with_job(seq, |job| job.queue.clone())?.ok_or(Refusal::JobNotFound)?;
        let queue = self.engine.queue(&name).cloned();
        let checked =
            self.with_job(seq, |job| requeue::check(job, how, queue.as_ref().map(|queue| &queue.admission)))?;
        match checked.ok_or(Refusal::JobNotFound)?? {
            // A clone has no dependencies: those of its original have ended.
            ManualRequeue::Clone => self.requeue_as_clone(seq, how, Dependencies::default()),
            ManualRequeue::InPlace => Ok((id, self.requeue_in_place(seq, how)?)),
        }
    }

    /// Requeues a job under its own id. Dependencies that were requeued as clones are replaced by
    /// the clones.
    pub(crate) fn requeue_in_place(&mut self, seq: Seq, how: &Requeue) -> Result<StateKind, CommandError<R::Error>> {
        let ResolvedDependencies { dependencies, dependency_statuses: statuses, links } =
            self.resolve_replacements(seq, AfterAnyMode::Remembered)?;
        let kind = self.update(seq, |job, context| {
            requeue::in_place(job, how, dependencies, |id| status_of(&statuses, id), context)?;
            Ok(job.kind())
        })?;
        self.relink(&links, seq)?;
        Ok(kind)
    }

    /// Creates a clone of a job, which runs in its place. Returns the id and state of the clone.
    pub(crate) fn requeue_as_clone(
        &mut self,
        seq: Seq,
        how: &Requeue,
        dependencies: Dependencies,
    ) -> Result<(JobId, StateKind), CommandError<R::Error>> {
        let clone_seq = Seq(self.engine.next_seq);
        let clone_id = self.records.new_id(clone_seq, self.rng);
        self.engine.next_seq += 1;
        let mut transitions = Vec::new();
        let copy = self.update(seq, |job, context| {
            let (now, lease_floor) = (context.now, context.lease_floor);
            let (rng, next_seq) = (&mut *context.rng, &mut *context.next_seq);
            // The transitions of the clone: those of the original are separate effects.
            let transitions = &mut transitions;
            let mut clone_context = TransitionContext { now, rng, next_seq, lease_floor, transitions };
            Ok(requeue::clone(job, (clone_id, clone_seq), how, dependencies, &mut clone_context))
        })?;
        self.transitions = transitions;
        let (kind, dependencies) = (copy.kind(), copy.dependencies.all());
        let membership = copy.membership.clone();
        self.add(Box::new(copy), PayloadSource::CopyOf(seq))?;
        if let Some(Membership { workflow, reference }) = membership {
            // The reference now resolves to the clone.
            if self.records.member(workflow, &reference).map_err(CommandError::Storage)? == Some(seq) {
                self.records.set_member_ref(workflow, &reference, clone_seq).map_err(CommandError::Storage)?;
            }
        }
        for id in &dependencies {
            if let Some(dependency) = self.records.seq_of(*id).map_err(CommandError::Storage)? {
                self.records.link(dependency, clone_seq).map_err(CommandError::Storage)?;
            }
        }
        self.records_touched += 1 + dependencies.len();
        self.adjust_dependent_counts(dependencies.into_iter().map(|id| (id, 1)), DependentChange::Added)?;
        Ok((clone_id, kind))
    }

    /// Changes the status of a job for an Ocypod client. A requeue keeps the id, whatever the
    /// policy says: the dialect knows no clones.
    pub(crate) fn change_status(
        &mut self,
        id: JobId,
        change: &StatusChange,
    ) -> Result<StateKind, CommandError<R::Error>> {
        let (seq, now) = (self.find(id)?, self.now);
        let fields = self.with_job(seq, |job| (status::check(job, change, now), job.kind(), job.queue.clone()))?;
        let (action, kind, name) = fields.ok_or(Refusal::JobNotFound)?;
        match action? {
            StatusAction::Requeue if kind == StateKind::Retrying => {
                self.engine.queue(&name).ok_or(Refusal::QueueNotFound)?;
                self.update(seq, |job, context| {
                    requeue::requeue_pending_retry(job, context);
                    Ok(job.kind())
                })
            }
            StatusAction::Requeue => {
                let how = Requeue { counters: Reset::Keep, run_at: None };
                let queue = self.engine.queue(&name).cloned();
                let admission = queue.as_ref().map(|queue| &queue.admission);
                self.with_job(seq, |job| requeue::check(job, &how, admission))?.ok_or(Refusal::JobNotFound)??;
                self.requeue_in_place(seq, &how)
            }
            action @ (StatusAction::Note
            | StatusAction::Complete
            | StatusAction::Fail
            | StatusAction::TimeOut
            | StatusAction::Cancel) => {
                self.update_with_queue(seq, |job, queue, context| status::change(job, change, action, queue, context))
            }
        }
    }

    /// Returns the dependencies of a job that is requeued, with cloned dependencies replaced by
    /// their clones.
    pub(crate) fn resolve_replacements(
        &mut self,
        seq: Seq,
        mode: AfterAnyMode,
    ) -> Result<ResolvedDependencies, CommandError<R::Error>> {
        let dependencies = self.with_job(seq, |job| job.dependencies.clone())?;
        let mut dependencies = dependencies.ok_or(Refusal::JobNotFound)?;
        let (mut clones, mut links) = (HashMap::new(), Vec::new());
        let candidates = match mode {
            AfterAnyMode::Remembered => dependencies.after.iter().map(|after| after.id).collect(),
            AfterAnyMode::Anew => dependencies.all(),
        };
        for id in candidates {
            self.records_touched += 1;
            let Some(original) = self.records.seq_of(id).map_err(CommandError::Storage)? else { continue };
            let (clone, clone_seq) = self.resolve_clone(id, original)?;
            if clone != id {
                clones.insert(id, clone);
                let keeps_link = mode == AfterAnyMode::Remembered && dependencies.after_any.contains(&id);
                links.push((Some(original).filter(|_| !keeps_link), clone_seq));
            }
        }
        dependencies.replace_dependencies(&clones, mode);
        let statuses = self.dependency_statuses(&dependencies.all())?;
        Ok(ResolvedDependencies { dependencies, dependency_statuses: statuses, links })
    }

    /// Returns the job that replaces this one: the last of its clones, or itself.
    pub(crate) fn resolve_clone(&mut self, id: JobId, original: Seq) -> Result<(JobId, Seq), CommandError<R::Error>> {
        let (mut last, mut last_seq) = (id, original);
        while let Some(next) = self.with_job(last_seq, |job| job.requeued_as)?.flatten() {
            // The record of the clone was removed: its original decides.
            let Some(seq) = self.records.seq_of(next).map_err(CommandError::Storage)? else { break };
            (last, last_seq) = (next, seq);
        }
        Ok((last, last_seq))
    }

    /// Moves the dependency edges of a job from the originals to the clones.
    pub(crate) fn relink(
        &mut self,
        links: &[(Option<Seq>, Seq)],
        dependent: Seq,
    ) -> Result<(), CommandError<R::Error>> {
        for (original, clone) in links {
            if let Some(original) = original {
                self.records.unlink(*original, dependent).map_err(CommandError::Storage)?;
            }
            self.records.link(*clone, dependent).map_err(CommandError::Storage)?;
        }
        Ok(())
    }

    /// Returns the status of each job that still has a record.
    pub(crate) fn dependency_statuses(
        &mut self,
        ids: &[JobId],
    ) -> Result<HashMap<JobId, DependencyStatus>, CommandError<R::Error>> {
        let mut statuses = HashMap::with_capacity(ids.len());
        for id in ids {
            let Some(seq) = self.records.seq_of(*id).map_err(CommandError::Storage)? else { continue };
            statuses.extend(self.with_job(seq, DependencyStatus::of)?.map(|status| (*id, status)));
        }
        Ok(statuses)
    }

    pub(crate) fn delete(&mut self, id: JobId) -> Result<(), CommandError<R::Error>> {
        let seq = self.find(id)?;
        let fields = self.with_job(seq, |job| (job.kind(), job.unfinished_dependents))?;
        let (kind, unfinished_dependents) = fields.ok_or(Refusal::JobNotFound)?;
        if !kind.terminal() {
            return Err(Refusal::IllegalTransition { from: kind, verb: "deleted" }.into());
        }
        if unfinished_dependents > 0 {
            return Err(Refusal::Illegal("another job that has not ended depends on this one").into());
        }
        if remove_job(self, seq)? {
            Ok(())
        } else {
            Err(Refusal::Illegal("its end has not reached all of its dependents yet: try again").into())
        }
    }
}

/// Dependencies in which clones have replaced their originals.
pub(crate) struct ResolvedDependencies {
    pub dependencies: Dependencies,
    pub dependency_statuses: HashMap<JobId, DependencyStatus>,
    /// Edges to move: from the original (`None`: its edge stays) to the clone.
    pub links: Vec<(Option<Seq>, Seq)>,
}

/// Returns the status of a dependency; a job without a record is gone.
pub(crate) fn status_of(statuses: &HashMap<JobId, DependencyStatus>, id: JobId) -> DependencyStatus {
    statuses.get(&id).copied().unwrap_or(DependencyStatus::Gone)
}

/// Removes the record of a job that has ended and has no unfinished dependents.
/// Returns whether it was removed.
pub(crate) fn remove_job<R: JobRecords>(
    context: &mut CommandContext<'_, R>,
    seq: Seq,
) -> Result<bool, CommandError<R::Error>> {
    let Some(job) = context.records.checkout(seq).map_err(CommandError::Storage)? else { return Ok(false) };
    if job.is_live() || job.unfinished_dependents > 0 {
        context.records.return_unchanged(job);
        return Ok(false);
    }
    release_idempotency_key(context, &job)?;
    context.engine.reindex(Some(IndexEntry::of(&job)), None);
    context.add_to_workflow_counts(&job, &MemberCountDelta::gone())?;
    let workflow = job.workflow();
    context.records.remove(job).map_err(CommandError::Storage)?;
    if let Some(workflow) = workflow {
        context.remove_if_empty(workflow)?;
    }
    Ok(true)
}

/// Keeps the key until its window ends. A key without a window is removed with the record.
fn release_idempotency_key<R: JobRecords>(
    context: &mut CommandContext<'_, R>,
    job: &Job,
) -> Result<(), CommandError<R::Error>> {
    let Some(path) = job.idempotency.as_ref().and_then(|key| ScopedIdempotencyKey::of(key, &job.queue)) else {
        return Ok(());
    };
    let entry = context.records.key(&path).map_err(CommandError::Storage)?;
    let Some(entry) = entry.filter(|entry| entry.seq == job.seq) else { return Ok(()) };
    // The queue may have been deleted: then the window of the profile applies.
    let profile_window =
        || longshore_core::policy::Settings::of_profile(job.policy.profile).admission.idempotency.window;
    let window =
        context.engine.queue(&job.queue).map_or_else(profile_window, |queue| queue.admission.idempotency.window);
    match window.map(|window| entry.at + window).filter(|end| *end > context.now) {
        Some(end) => {
            context.records.put_key(path, KeyEntry { prune_at: Some(end), ..entry }).map_err(CommandError::Storage)
        }
        None => context.records.remove_key(&path).map_err(CommandError::Storage),
    }
}
