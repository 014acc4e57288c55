//! Waiting for other jobs: all of `after` must complete, one of `after_any` must end.

use std::collections::{HashMap, HashSet};

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::JobId;
use crate::job::{Job, Moment};
use crate::state::{Ending, State, StateKind};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies {
    pub after: Vec<After>,
    pub after_any: Vec<JobId>,
    /// Of `after`, how many are not met.
    pub unmet: u32,
    pub any_met: bool,
    /// Length of the longest chain that ends here: 1 without dependencies.
    pub depth: u32,
    /// Set while this job is ended through a dependency.
    pub ended_through: Option<EndedThrough>,
}

/// A job that must complete first. Whether it has is kept with each: news may come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    pub id: JobId,
    pub met: bool,
}

impl After {
    pub fn unmet(id: JobId) -> Self {
        Self { id, met: false }
    }
}

/// The dependency through which a job ended, and the pending state to which a requeue of that one returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedThrough {
    pub dependency: JobId,
    pub held: bool,
    pub run_at: Option<Timestamp>,
}

/// What a job still has to tell those that depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owes {
    #[default]
    Nothing,
    /// Its end.
    End,
    /// That it lives again: whoever ended through it comes back, and whoever waits for any end has had one.
    Return,
    /// That it lives again, with its whole workflow: whoever ended through it comes back, and whoever waits for any end waits for the next.
    NewLife,
    /// That it lived again and has ended since; nobody missed the first half.
    ReturnAndEnd,
}

impl Default for Dependencies {
    fn default() -> Self {
        Self { after: Vec::new(), after_any: Vec::new(), unmet: 0, any_met: false, depth: 1, ended_through: None }
    }
}

impl Dependencies {
    pub fn met(&self) -> bool {
        self.unmet == 0 && (self.after_any.is_empty() || self.any_met)
    }

    /// How many jobs it still waits for.
    pub fn waiting_on(&self) -> usize {
        let any = if self.any_met { 0 } else { self.after_any.len() };
        usize::try_from(self.unmet).unwrap_or(usize::MAX).saturating_add(any)
    }

    /// All dependencies, each once, in the order given.
    pub fn all(&self) -> Vec<JobId> {
        let mut seen = HashSet::with_capacity(self.after.len() + self.after_any.len());
        let ids = self.after.iter().map(|after| after.id).chain(self.after_any.iter().copied());
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// Puts others into the places of some, once each.
    pub(crate) fn rewire(&mut self, successors: &HashMap<JobId, JobId>, ends: Ends) {
        let heir = |id: JobId| successors.get(&id).copied().unwrap_or(id);
        let mut seen = HashSet::with_capacity(self.after.len());
        self.after.iter_mut().for_each(|after| after.id = heir(after.id));
        self.after.retain(|after| seen.insert(after.id));
        match ends {
            // One of `after_any` that has ended stays: its wish is met.
            Ends::Remembered => {}
            Ends::Anew => {
                let mut seen = HashSet::with_capacity(self.after_any.len());
                self.after_any.iter_mut().for_each(|id| *id = heir(*id));
                self.after_any.retain(|id| seen.insert(*id));
                self.any_met = false;
            }
        }
    }

    fn complete(&mut self, dependency: JobId) {
        for after in self.after.iter_mut().filter(|after| after.id == dependency && !after.met) {
            after.met = true;
            self.unmet = self.unmet.saturating_sub(1);
        }
    }
}

/// Whether an end that `after_any` has seen still counts for a job that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Remembered,
    /// The whole workflow begins again: only whoever has ended now.
    Anew,
}

/// How a dependency stands; `Gone` is a record that retention has removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Alive,
    Ended(Ending, Timestamp),
    Gone,
}

impl Standing {
    pub fn of(job: &Job) -> Self {
        match (Ending::of(job.kind()), job.state.completed_at()) {
            (Some(ending), Some(at)) => Self::Ended(ending, at),
            (Some(_), None) | (None, _) => Self::Alive,
        }
    }
}

/// Counts the standings of all dependencies anew, and names the one of `after` that was the first to end without success.
pub fn weigh(dependencies: &mut Dependencies, standing: impl Fn(JobId) -> Standing) -> Option<(JobId, Ending)> {
    let mut broken: Option<(Timestamp, JobId, Ending)> = None;
    let ended = |id: &JobId| match standing(*id) {
        Standing::Ended(..) | Standing::Gone => true,
        Standing::Alive => false,
    };
    // Once met it stays met, even if the one that ended is requeued.
    dependencies.any_met = dependencies.any_met || dependencies.after_any.iter().any(ended);
    // Of one that is gone nothing is known but what it did to this job.
    let culprit = dependencies.ended_through.map(|through| through.dependency);
    for after in &mut dependencies.after {
        after.met = match standing(after.id) {
            Standing::Gone if culprit == Some(after.id) => {
                broken = Some((Timestamp::from_millis(i64::MIN), after.id, Ending::Failed));
                false
            }
            Standing::Ended(Ending::Completed, _) | Standing::Gone => true,
            Standing::Ended(ending @ (Ending::Failed | Ending::DeadLetter | Ending::Cancelled), at) => {
                if broken.is_none_or(|(earliest, ..)| at < earliest) {
                    broken = Some((at, after.id, ending));
                }
                false
            }
            Standing::Alive => false,
        };
    }
    let unmet = dependencies.after.iter().filter(|after| !after.met).count();
    dependencies.unmet = u32::try_from(unmet).unwrap_or(u32::MAX);
    broken.map(|(_, id, ending)| (id, ending))
}

/// One end is enough, also for a job that may come back only later.
pub(crate) fn note_any(job: &mut Job, dependency: JobId) {
    if job.dependencies.after_any.contains(&dependency) {
        job.dependencies.any_met = true;
    }
}

/// Only a pending job waits for others.
fn waits(job: &Job) -> bool {
    match job.kind() {
        StateKind::Pending => true,
        StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => false,
    }
}

/// Tells a job that `dependency` has ended.
pub fn hear_of_end(job: &mut Job, dependency: JobId, ending: Ending, moment: &mut Moment<'_>) {
    note_any(job, dependency);
    if !waits(job) {
        return;
    }
    if job.dependencies.after.iter().any(|after| after.id == dependency) {
        match ending {
            Ending::Completed => job.dependencies.complete(dependency),
            Ending::Failed | Ending::DeadLetter | Ending::Cancelled => {
                end_through(job, dependency, ending, moment);
                return;
            }
        }
    }
    crate::promote::leave_pending_when_free(job, Cause::Dependencies, moment);
}

/// Tells a job that one of those it waits for has ended, and lives again.
pub fn hear_of_return(job: &mut Job, dependency: JobId, moment: &mut Moment<'_>) {
    note_any(job, dependency);
    if waits(job) {
        crate::promote::leave_pending_when_free(job, Cause::Dependencies, moment);
    }
}

/// Ends a job the way its dependency ended.
pub(crate) fn end_through(job: &mut Job, dependency: JobId, ending: Ending, moment: &mut Moment<'_>) {
    let category = match ending {
        Ending::Cancelled => Category::Cancelled,
        Ending::Completed | Ending::Failed | Ending::DeadLetter => Category::Permanent,
    };
    let message = format!("dependency {dependency} ended {}", ending.state(moment.now).kind());
    let failure = Failure::found(category, "dependency_failed", &message, moment.now);
    let held = job.state.held();
    job.dependencies.ended_through = Some(EndedThrough { dependency, held, run_at: job.state.run_at() });
    job.end_by_decree(ending, failure, Cause::DependencyFailed, moment);
}

/// What became of a dependent when the job it ended through was requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revival {
    /// Not ended through that job, or replaced by a clone.
    Untouched,
    /// Another dependency has also ended without success: it hangs on that one now.
    StaysEnded,
    Revived,
}

/// Returns a job that ended through `dependency` to pending. It then waits for `dependencies`: its own, or their successors.
pub fn revive(
    job: &mut Job,
    dependency: JobId,
    mut dependencies: Dependencies,
    standing: impl Fn(JobId) -> Standing,
    moment: &mut Moment<'_>,
) -> Revival {
    let through = job.dependencies.ended_through.filter(|through| through.dependency == dependency);
    let Some(through) = through.filter(|_| job.state.terminal() && job.requeued_as.is_none()) else {
        return Revival::Untouched;
    };
    let EndedThrough { held, run_at, .. } = through;
    if let Some((other, _)) = weigh(&mut dependencies, standing) {
        job.dependencies.ended_through = Some(EndedThrough { dependency: other, held, run_at });
        return Revival::StaysEnded;
    }
    dependencies.ended_through = None;
    job.dependencies = dependencies;
    job.error = None;
    job.owes = Owes::Return;
    job.restart_lifetime(moment.now);
    job.enter(State::Pending { held, run_at }, Cause::Revive, moment);
    Revival::Revived
}
