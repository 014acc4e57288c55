//! What people do to jobs: cancel, requeue, dead-letter, run now, edit, delete, submit what was held.

use std::collections::HashMap;

use crate::cancel::{self, Cancelled, Force};
use crate::dependency::{Dependencies, Ends, Standing};
use crate::edit::{self, Edit};
use crate::id::{JobId, Seq};
use crate::job::{Job, Moment};
use crate::policy::ManualRequeue;
use crate::promote;
use crate::refusal::Refusal;
use crate::requeue::{self, Requeue, Reset};
use crate::state::StateKind;
use crate::status::{self, StatusChange, Step};
use crate::workflow::{Membership, TallyChange};

use super::records::{KeyEntry, KeyPath, PayloadSource, Records};
use super::{Effect, Life, Stop, Turn};

impl<R: Records> Turn<'_, R> {
    pub(crate) fn cancel(
        &mut self,
        id: JobId,
        reason: Option<&str>,
        force: Force,
    ) -> Result<Cancelled, Stop<R::Error>> {
        cancel::check_reason(reason)?;
        let seq = self.find(id)?;
        self.change(seq, |job, moment| cancel::cancel(job, reason, force, moment))
    }

    pub(crate) fn dead_letter(&mut self, id: JobId, reason: Option<&str>) -> Result<StateKind, Stop<R::Error>> {
        cancel::check_reason(reason)?;
        let seq = self.find(id)?;
        self.change(seq, |job, moment| cancel::dead_letter(job, reason, moment))
    }

    pub(crate) fn run_now(&mut self, id: JobId) -> Result<StateKind, Stop<R::Error>> {
        let seq = self.find(id)?;
        self.change(seq, promote::run_now)
    }

    pub(crate) fn edit(&mut self, id: JobId, edit: &Edit) -> Result<StateKind, Stop<R::Error>> {
        edit.check()?;
        let seq = self.find(id)?;
        let (queue, kind) = self.change(seq, |job, moment| {
            let kind = edit::edit(job, edit, moment)?;
            Ok((job.queue.clone(), kind))
        })?;
        if kind == StateKind::Scheduled && edit.job_type.is_some() {
            // Somebody may be waiting for work of just this type.
            self.effects.push(Effect::Claimable(queue));
        }
        Ok(kind)
    }

    pub(crate) fn submit_held(&mut self, id: JobId) -> Result<StateKind, Stop<R::Error>> {
        let seq = self.find(id)?;
        let seen = self.look(seq, |job| (job.queue.clone(), job.state.held(), job.policy.profile.fails_when_full()))?;
        let (name, held, fails_when_full) = seen.ok_or(Refusal::JobNotFound)?;
        let max = self.engine.queue(&name).and_then(|queue| queue.intake.max_queued);
        let full = max.filter(|max| self.engine.index.queued(&name) >= *max);
        if let Some(max_queued) = full
            && held
            && !fails_when_full
        {
            return Err(Refusal::QueueFull { max_queued }.into());
        }
        self.change(seq, |job, moment| promote::submit_held(job, full.is_some(), moment))
    }

    /// Answers the job that will run: the same one, or its clone.
    pub(crate) fn requeue(&mut self, id: JobId, how: &Requeue) -> Result<(JobId, StateKind), Stop<R::Error>> {
        let seq = self.find(id)?;
        let name = self.look(seq, |job| job.queue.clone())?.ok_or(Refusal::JobNotFound)?;
        let queue = self.engine.queue(&name).cloned();
        let checked = self.look(seq, |job| requeue::check(job, how, queue.as_ref().map(|queue| &queue.intake)))?;
        match checked.ok_or(Refusal::JobNotFound)?? {
            // What it waited for is not copied.
            ManualRequeue::Clone => self.requeue_as_clone(seq, how, Dependencies::default()),
            ManualRequeue::InPlace => Ok((id, self.requeue_in_place(seq, how)?)),
        }
    }

    /// Whoever was requeued as a clone meanwhile is waited for in the person of that clone.
    pub(crate) fn requeue_in_place(&mut self, seq: Seq, how: &Requeue) -> Result<StateKind, Stop<R::Error>> {
        let Rewired { dependencies, standings, links } = self.rewired(seq, Ends::Remembered)?;
        let kind = self.change(seq, |job, moment| {
            requeue::in_place(job, how, dependencies, |id| standing(&standings, id), moment)?;
            Ok(job.kind())
        })?;
        self.link_anew(&links, seq)?;
        Ok(kind)
    }

    pub(crate) fn requeue_as_clone(
        &mut self,
        seq: Seq,
        how: &Requeue,
        dependencies: Dependencies,
    ) -> Result<(JobId, StateKind), Stop<R::Error>> {
        let clone_seq = Seq(self.engine.next_number);
        let clone_id = self.records.new_id(clone_seq, self.dice);
        self.engine.next_number += 1;
        let mut moves = Vec::new();
        let copy = self.change(seq, |job, moment| {
            let (now, lease_floor) = (moment.now, moment.lease_floor);
            let (dice, next_number) = (&mut *moment.dice, &mut *moment.next_number);
            let mut apart = Moment { now, dice, next_number, lease_floor, moves: &mut moves };
            Ok(requeue::clone(job, (clone_id, clone_seq), how, dependencies, &mut apart))
        })?;
        self.moves = moves;
        let (kind, dependencies) = (copy.kind(), copy.dependencies.all());
        let membership = copy.membership.clone();
        self.add(Box::new(copy), PayloadSource::CopyOf(seq))?;
        if let Some(Membership { workflow, reference }) = membership {
            // The name leads to whoever stands in its place.
            if self.records.member(workflow, &reference).map_err(Stop::Broken)? == Some(seq) {
                self.records.name_member(workflow, &reference, clone_seq).map_err(Stop::Broken)?;
            }
        }
        for id in &dependencies {
            if let Some(elder) = self.records.seq_of(*id).map_err(Stop::Broken)? {
                self.records.link(elder, clone_seq).map_err(Stop::Broken)?;
            }
        }
        self.touched += 1 + dependencies.len();
        self.count_dependents(dependencies.into_iter().map(|id| (id, 1)), Life::Began)?;
        Ok((clone_id, kind))
    }

    /// A requeue is in place, whatever the policy says: the dialect knows a job by one number.
    pub(crate) fn change_status(&mut self, id: JobId, change: &StatusChange) -> Result<StateKind, Stop<R::Error>> {
        let (seq, now) = (self.find(id)?, self.now);
        let seen = self.look(seq, |job| (status::check(job, change, now), job.kind(), job.queue.clone()))?;
        let (step, kind, name) = seen.ok_or(Refusal::JobNotFound)?;
        match step? {
            Step::Requeue if kind == StateKind::Retrying => {
                self.engine.queue(&name).ok_or(Refusal::QueueNotFound)?;
                self.change(seq, |job, moment| {
                    requeue::instead_of_retry(job, moment);
                    Ok(job.kind())
                })
            }
            Step::Requeue => {
                let how = Requeue { counters: Reset::Keep, run_at: None };
                let queue = self.engine.queue(&name).cloned();
                let intake = queue.as_ref().map(|queue| &queue.intake);
                self.look(seq, |job| requeue::check(job, &how, intake))?.ok_or(Refusal::JobNotFound)??;
                self.requeue_in_place(seq, &how)
            }
            step @ (Step::Note | Step::Complete | Step::Fail | Step::TimeOut | Step::Cancel) => {
                self.change_at_home(seq, |job, home, moment| status::change(job, change, step, home, moment))
            }
        }
    }

    /// What a job that comes back waits for: its dependencies, or the clones that took the places of those that failed.
    pub(crate) fn rewired(&mut self, seq: Seq, ends: Ends) -> Result<Rewired, Stop<R::Error>> {
        let seen = self.look(seq, |job| job.dependencies.clone())?;
        let mut dependencies = seen.ok_or(Refusal::JobNotFound)?;
        let (mut successors, mut links) = (HashMap::new(), Vec::new());
        let concerned = match ends {
            Ends::Remembered => dependencies.after.iter().map(|after| after.id).collect(),
            Ends::Anew => dependencies.all(),
        };
        for id in concerned {
            self.touched += 1;
            let Some(original) = self.records.seq_of(id).map_err(Stop::Broken)? else { continue };
            let (heir, number) = self.last_clone(id, original)?;
            if heir != id {
                successors.insert(id, heir);
                let still_waits = ends == Ends::Remembered && dependencies.after_any.contains(&id);
                links.push((Some(original).filter(|_| !still_waits), number));
            }
        }
        dependencies.rewire(&successors, ends);
        let standings = self.standings(&dependencies.all())?;
        Ok(Rewired { dependencies, standings, links })
    }

    /// Whoever stands in the place of a job now: itself, or the last of its clones.
    pub(crate) fn last_clone(&mut self, id: JobId, original: Seq) -> Result<(JobId, Seq), Stop<R::Error>> {
        let (mut heir, mut number) = (id, original);
        while let Some(next) = self.look(number, |job| job.requeued_as)?.flatten() {
            // If nobody knows any more what became of a clone, its original has to speak for itself.
            let Some(seq) = self.records.seq_of(next).map_err(Stop::Broken)? else { break };
            (heir, number) = (next, seq);
        }
        Ok((heir, number))
    }

    /// Has a job hear from the clones, not from their originals.
    pub(crate) fn link_anew(&mut self, links: &[(Option<Seq>, Seq)], dependent: Seq) -> Result<(), Stop<R::Error>> {
        for (original, clone) in links {
            if let Some(original) = original {
                self.records.unlink(*original, dependent).map_err(Stop::Broken)?;
            }
            self.records.link(*clone, dependent).map_err(Stop::Broken)?;
        }
        Ok(())
    }

    /// How these jobs stand; one that is gone is left out.
    pub(crate) fn standings(&mut self, ids: &[JobId]) -> Result<HashMap<JobId, Standing>, Stop<R::Error>> {
        let mut standings = HashMap::with_capacity(ids.len());
        for id in ids {
            let Some(seq) = self.records.seq_of(*id).map_err(Stop::Broken)? else { continue };
            standings.extend(self.look(seq, Standing::of)?.map(|standing| (*id, standing)));
        }
        Ok(standings)
    }

    pub(crate) fn delete(&mut self, id: JobId) -> Result<(), Stop<R::Error>> {
        let seq = self.find(id)?;
        let seen = self.look(seq, |job| (job.kind(), job.live_dependents))?;
        let (kind, live_dependents) = seen.ok_or(Refusal::JobNotFound)?;
        if !kind.terminal() {
            return Err(Refusal::IllegalTransition { from: kind, verb: "deleted" }.into());
        }
        if live_dependents > 0 {
            return Err(Refusal::Illegal("another job that has not ended depends on this one").into());
        }
        if forget(self, seq)? { Ok(()) } else { Err(Refusal::Illegal("its dependents are still being told").into()) }
    }
}

/// Dependencies in which clones have taken the places of their originals.
pub(crate) struct Rewired {
    pub dependencies: Dependencies,
    pub standings: HashMap<JobId, Standing>,
    /// Originals, and the clones that have to tell the job how they end.
    pub links: Vec<(Option<Seq>, Seq)>,
}

pub(crate) fn standing(standings: &HashMap<JobId, Standing>, id: JobId) -> Standing {
    standings.get(&id).copied().unwrap_or(Standing::Gone)
}

/// Removes an ended record that nobody needs any more. Says whether it did.
pub(crate) fn forget<R: Records>(turn: &mut Turn<'_, R>, seq: Seq) -> Result<bool, Stop<R::Error>> {
    let Some(job) = turn.records.take(seq).map_err(Stop::Broken)? else { return Ok(false) };
    if job.live() || job.live_dependents > 0 {
        turn.records.put_unchanged(job);
        return Ok(false);
    }
    free_key(turn, &job)?;
    turn.engine.file(Some(super::index::Entry::of(&job)), None);
    turn.tally(&job, &TallyChange::gone())?;
    let workflow = job.membership.as_ref().map(|membership| membership.workflow);
    turn.records.remove(job).map_err(Stop::Broken)?;
    if let Some(workflow) = workflow {
        turn.forget_workflow(workflow)?;
    }
    Ok(true)
}

/// A key outlives its job until a finite window ends; a for-ever key goes with the record.
fn free_key<R: Records>(turn: &mut Turn<'_, R>, job: &Job) -> Result<(), Stop<R::Error>> {
    let Some(path) = job.idempotency.as_ref().and_then(|key| KeyPath::of(key, &job.queue)) else { return Ok(()) };
    let entry = turn.records.key(&path).map_err(Stop::Broken)?;
    let Some(entry) = entry.filter(|entry| entry.seq == job.seq) else { return Ok(()) };
    // Where the queue is gone, its profile's own window has to do.
    let of_profile = || job.policy.profile.settings().intake.idempotency.window;
    let window = turn.engine.queue(&job.queue).map_or_else(of_profile, |queue| queue.intake.idempotency.window);
    match window.map(|window| entry.at + window).filter(|end| *end > turn.now) {
        Some(end) => turn.records.put_key(path, KeyEntry { purge_at: Some(end), ..entry }).map_err(Stop::Broken),
        None => turn.records.remove_key(&path).map_err(Stop::Broken),
    }
}
