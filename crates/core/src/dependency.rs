//! Waiting for other jobs: all of `after` must complete, one of `after_any` must end.

use std::collections::{HashMap, HashSet};

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::JobId;
use crate::job::{Job, TransitionContext};
use crate::state::{State, StateKind, TerminalState};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies {
    pub after: Vec<RequiredDependency>,
    pub after_any: Vec<JobId>,
    /// Of `after`, how many are not met.
    pub unmet: u32,
    pub any_satisfied: bool,
    /// Length of the longest chain that ends here: 1 without dependencies.
    pub depth: u32,
    /// Set while this job is ended through a dependency.
    pub ended_by: Option<EndedByDependency>,
}

/// A job that must complete first. Whether it has is kept with each: news may come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredDependency {
    pub id: JobId,
    pub met: bool,
}

impl RequiredDependency {
    pub fn unmet(id: JobId) -> Self {
        Self { id, met: false }
    }
}

/// The dependency through which a job ended, and the pending state to which a requeue of that one returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedByDependency {
    pub dependency: JobId,
    pub held: bool,
    pub run_at: Option<Timestamp>,
}

/// What a job still has to tell those that depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingPropagation {
    #[default]
    Nothing,
    /// Its end.
    End,
    /// That it lives again: whoever ended through it comes back, and whoever waits for any end has had one.
    Return,
    /// That it lives again, with its whole workflow: whoever ended through it comes back, and whoever waits for any end waits for the next.
    RestartedWithWorkflow,
    /// That it lived again and has ended since; nobody missed the first half.
    RevivedThenFinished,
}

impl Default for Dependencies {
    fn default() -> Self {
        Self { after: Vec::new(), after_any: Vec::new(), unmet: 0, any_satisfied: false, depth: 1, ended_by: None }
    }
}

impl Dependencies {
    pub fn met(&self) -> bool {
        self.unmet == 0 && (self.after_any.is_empty() || self.any_satisfied)
    }

    /// How many jobs it still waits for.
    pub fn waiting_on(&self) -> usize {
        let any = if self.any_satisfied { 0 } else { self.after_any.len() };
        usize::try_from(self.unmet).unwrap_or(usize::MAX).saturating_add(any)
    }

    /// All dependencies, each once, in the order given.
    pub fn all(&self) -> Vec<JobId> {
        let mut seen = HashSet::with_capacity(self.after.len() + self.after_any.len());
        let ids = self.after.iter().map(|after| after.id).chain(self.after_any.iter().copied());
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// Puts others into the places of some, once each.
    pub fn replace_dependencies(&mut self, successors: &HashMap<JobId, JobId>, ends: AfterAnyMode) {
        let heir = |id: JobId| successors.get(&id).copied().unwrap_or(id);
        let mut seen = HashSet::with_capacity(self.after.len());
        self.after.iter_mut().for_each(|after| after.id = heir(after.id));
        self.after.retain(|after| seen.insert(after.id));
        match ends {
            // One of `after_any` that has ended stays: its wish is met.
            AfterAnyMode::Remembered => {}
            AfterAnyMode::Anew => {
                let mut seen = HashSet::with_capacity(self.after_any.len());
                self.after_any.iter_mut().for_each(|id| *id = heir(*id));
                self.after_any.retain(|id| seen.insert(*id));
                self.any_satisfied = false;
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
pub enum AfterAnyMode {
    Remembered,
    /// The whole workflow begins again: only whoever has ended now.
    Anew,
}

/// How a dependency stands; `Gone` is a record that retention has removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyStatus {
    Alive,
    Ended(TerminalState, Timestamp),
    Gone,
}

impl DependencyStatus {
    pub fn of(job: &Job) -> Self {
        match (TerminalState::of(job.kind()), job.state.completed_at()) {
            (Some(ending), Some(at)) => Self::Ended(ending, at),
            (Some(_), None) | (None, _) => Self::Alive,
        }
    }
}

/// Counts the standings of all dependencies anew, and names the one of `after` that was the first to end without success.
pub fn recompute(
    dependencies: &mut Dependencies,
    standing: impl Fn(JobId) -> DependencyStatus,
) -> Option<(JobId, TerminalState)> {
    let mut broken: Option<(Timestamp, JobId, TerminalState)> = None;
    let ended = |id: &JobId| match standing(*id) {
        DependencyStatus::Ended(..) | DependencyStatus::Gone => true,
        DependencyStatus::Alive => false,
    };
    // Once met it stays met, even if the one that ended is requeued.
    dependencies.any_satisfied = dependencies.any_satisfied || dependencies.after_any.iter().any(ended);
    // Of one that is gone nothing is known but what it did to this job.
    let culprit = dependencies.ended_by.map(|through| through.dependency);
    for after in &mut dependencies.after {
        after.met = match standing(after.id) {
            DependencyStatus::Gone if culprit == Some(after.id) => {
                broken = Some((Timestamp::from_millis(i64::MIN), after.id, TerminalState::Failed));
                false
            }
            DependencyStatus::Ended(TerminalState::Completed, _) | DependencyStatus::Gone => true,
            DependencyStatus::Ended(
                ending @ (TerminalState::Failed | TerminalState::DeadLetter | TerminalState::Cancelled),
                at,
            ) => {
                if broken.is_none_or(|(earliest, ..)| at < earliest) {
                    broken = Some((at, after.id, ending));
                }
                false
            }
            DependencyStatus::Alive => false,
        };
    }
    let unmet = dependencies.after.iter().filter(|after| !after.met).count();
    dependencies.unmet = u32::try_from(unmet).unwrap_or(u32::MAX);
    broken.map(|(_, id, ending)| (id, ending))
}

/// One end is enough, also for a job that may come back only later.
pub fn mark_any_met(job: &mut Job, dependency: JobId) {
    if job.dependencies.after_any.contains(&dependency) {
        job.dependencies.any_satisfied = true;
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
pub fn on_dependency_finished(
    job: &mut Job,
    dependency: JobId,
    ending: TerminalState,
    moment: &mut TransitionContext<'_>,
) {
    mark_any_met(job, dependency);
    if !waits(job) {
        return;
    }
    if job.dependencies.after.iter().any(|after| after.id == dependency) {
        match ending {
            TerminalState::Completed => job.dependencies.complete(dependency),
            TerminalState::Failed | TerminalState::DeadLetter | TerminalState::Cancelled => {
                end_by_dependency(job, dependency, ending, moment);
                return;
            }
        }
    }
    crate::promote::schedule_if_unblocked(job, Cause::Dependencies, moment);
}

/// Tells a job that one of those it waits for has ended, and lives again.
pub fn on_dependency_revived(job: &mut Job, dependency: JobId, moment: &mut TransitionContext<'_>) {
    mark_any_met(job, dependency);
    if waits(job) {
        crate::promote::schedule_if_unblocked(job, Cause::Dependencies, moment);
    }
}

/// Ends a job the way its dependency ended.
pub(crate) fn end_by_dependency(
    job: &mut Job,
    dependency: JobId,
    ending: TerminalState,
    moment: &mut TransitionContext<'_>,
) {
    let category = match ending {
        TerminalState::Cancelled => Category::Cancelled,
        TerminalState::Completed | TerminalState::Failed | TerminalState::DeadLetter => Category::Permanent,
    };
    let message = format!("dependency {dependency} ended {}", ending.state(moment.now).kind());
    let failure = Failure::detected(category, "dependency_failed", &message, moment.now);
    let held = job.state.held();
    job.dependencies.ended_by = Some(EndedByDependency { dependency, held, run_at: job.state.run_at() });
    job.terminate(ending, failure, Cause::DependencyFailed, moment);
}

/// What became of a dependent when the job it ended through was requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviveOutcome {
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
    standing: impl Fn(JobId) -> DependencyStatus,
    moment: &mut TransitionContext<'_>,
) -> ReviveOutcome {
    let through = job.dependencies.ended_by.filter(|through| through.dependency == dependency);
    let Some(through) = through.filter(|_| job.state.terminal() && job.requeued_as.is_none()) else {
        return ReviveOutcome::Untouched;
    };
    let EndedByDependency { held, run_at, .. } = through;
    if let Some((other, _)) = recompute(&mut dependencies, standing) {
        job.dependencies.ended_by = Some(EndedByDependency { dependency: other, held, run_at });
        return ReviveOutcome::StaysEnded;
    }
    dependencies.ended_by = None;
    job.dependencies = dependencies;
    job.error = None;
    job.pending_propagation = PendingPropagation::Return;
    job.restart_lifetime(moment.now);
    job.transition_to(State::Pending { held, run_at }, Cause::Revive, moment);
    ReviveOutcome::Revived
}
