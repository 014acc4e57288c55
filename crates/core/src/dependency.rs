//! Dependencies: all of `after` must complete, and one of `after_any` must end.

use std::collections::{HashMap, HashSet};

use crate::context::TransitionContext;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::JobId;
use crate::job::Job;
use crate::state::{State, StateKind, TerminalState};
use crate::time::Timestamp;

/// Jobs that a job waits for, and how many of them it still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies {
    pub after: Vec<RequiredDependency>,
    pub after_any: Vec<JobId>,
    /// Number of unmet entries of `after`.
    pub unmet: u32,
    /// Whether one of `after_any` has ended. Stays true if that job is requeued.
    pub any_satisfied: bool,
    /// Length of the longest chain that ends here: 1 without dependencies.
    pub depth: u32,
    /// Set while the job is terminal because of a dependency.
    pub ended_by: Option<EndedByDependency>,
}

/// A job that must complete first. `met` makes repeated events harmless.
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

/// The dependency that ended a job, and the pending state to which its requeue returns the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedByDependency {
    pub dependency: JobId,
    pub held: bool,
    pub run_at: Option<Timestamp>,
}

/// Event that has not been delivered to all dependents yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingPropagation {
    #[default]
    Nothing,
    /// The job finished: deliver its terminal state.
    End,
    /// The job was requeued: revive the dependents that it ended. `after_any` stays satisfied.
    Return,
    /// As `Return`, but `after_any` is reset for members of the same workflow.
    RestartedWithWorkflow,
    /// Requeued, and finished before the first event was fully delivered: deliver both, in order.
    RevivedThenFinished,
}

impl Default for Dependencies {
    fn default() -> Self {
        Self { after: Vec::new(), after_any: Vec::new(), unmet: 0, any_satisfied: false, depth: 1, ended_by: None }
    }
}

impl Dependencies {
    /// Whether the job waits for no other job.
    pub fn met(&self) -> bool {
        self.unmet == 0 && (self.after_any.is_empty() || self.any_satisfied)
    }

    /// Returns the number of jobs that it still waits for.
    pub fn waiting_on(&self) -> usize {
        let any = if self.any_satisfied { 0 } else { self.after_any.len() };
        usize::try_from(self.unmet).unwrap_or(usize::MAX).saturating_add(any)
    }

    /// Returns all dependencies, each once, in their order.
    pub fn all(&self) -> Vec<JobId> {
        let mut seen = HashSet::with_capacity(self.after.len() + self.after_any.len());
        let ids = self.after.iter().map(|after| after.id).chain(self.after_any.iter().copied());
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// Replaces dependencies by their successors, and removes duplicates.
    pub fn replace_dependencies(&mut self, successors: &HashMap<JobId, JobId>, ends: AfterAnyMode) {
        let successor = |id: JobId| successors.get(&id).copied().unwrap_or(id);
        let mut seen = HashSet::with_capacity(self.after.len());
        self.after.iter_mut().for_each(|after| after.id = successor(after.id));
        self.after.retain(|after| seen.insert(after.id));
        match ends {
            // An ended job of `after_any` stays: it satisfies the condition.
            AfterAnyMode::Remembered => {}
            AfterAnyMode::Anew => {
                let mut seen = HashSet::with_capacity(self.after_any.len());
                self.after_any.iter_mut().for_each(|id| *id = successor(*id));
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

/// Whether `after_any` of a revived job stays satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAnyMode {
    Remembered,
    /// The whole workflow restarts: only jobs that are terminal now satisfy it.
    Anew,
}

/// Status of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyStatus {
    Alive,
    Ended(TerminalState, Timestamp),
    /// Retention has removed the record.
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

/// Recomputes the unmet dependencies. Returns the job of `after` that was the first to end without
/// success, if there is one.
pub fn recompute(
    dependencies: &mut Dependencies,
    status: impl Fn(JobId) -> DependencyStatus,
) -> Option<(JobId, TerminalState)> {
    let mut broken: Option<(Timestamp, JobId, TerminalState)> = None;
    let ended = |id: &JobId| match status(*id) {
        DependencyStatus::Ended(..) | DependencyStatus::Gone => true,
        DependencyStatus::Alive => false,
    };
    // Once satisfied it stays satisfied, even if the ended job is requeued.
    dependencies.any_satisfied = dependencies.any_satisfied || dependencies.after_any.iter().any(ended);
    // A removed job counts as completed, unless it is the one that ended this job.
    let ended_by = dependencies.ended_by.map(|ended_by| ended_by.dependency);
    for after in &mut dependencies.after {
        after.met = match status(after.id) {
            DependencyStatus::Gone if ended_by == Some(after.id) => {
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

/// Records that one of `after_any` has ended, also in a job that is not pending now.
pub fn mark_any_met(job: &mut Job, dependency: JobId) {
    if job.dependencies.after_any.contains(&dependency) {
        job.dependencies.any_satisfied = true;
    }
}

/// Whether the job can wait for others: only a pending job can.
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

/// Applies the end of `dependency` to a dependent.
pub fn on_dependency_finished(
    job: &mut Job,
    dependency: JobId,
    ending: TerminalState,
    context: &mut TransitionContext<'_>,
) {
    mark_any_met(job, dependency);
    if !waits(job) {
        return;
    }
    if job.dependencies.after.iter().any(|after| after.id == dependency) {
        match ending {
            TerminalState::Completed => job.dependencies.complete(dependency),
            TerminalState::Failed | TerminalState::DeadLetter | TerminalState::Cancelled => {
                end_by_dependency(job, dependency, ending, context);
                return;
            }
        }
    }
    crate::promote::schedule_if_unblocked(job, Cause::Dependencies, context);
}

/// Applies the requeue of `dependency`, which had ended, to a dependent.
pub fn on_dependency_revived(job: &mut Job, dependency: JobId, context: &mut TransitionContext<'_>) {
    mark_any_met(job, dependency);
    if waits(job) {
        crate::promote::schedule_if_unblocked(job, Cause::Dependencies, context);
    }
}

/// Ends a job in the terminal state of its dependency.
pub(crate) fn end_by_dependency(
    job: &mut Job,
    dependency: JobId,
    ending: TerminalState,
    context: &mut TransitionContext<'_>,
) {
    let category = match ending {
        TerminalState::Cancelled => Category::Cancelled,
        TerminalState::Completed | TerminalState::Failed | TerminalState::DeadLetter => Category::Permanent,
    };
    let message = format!("dependency {dependency} ended {}", ending.state(context.now).kind());
    let failure = Failure::detected(category, "dependency_failed", &message, context.now);
    let held = job.state.held();
    job.dependencies.ended_by = Some(EndedByDependency { dependency, held, run_at: job.state.run_at() });
    job.terminate(ending, failure, Cause::DependencyFailed, context);
}

/// Result of reviving a dependent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviveOutcome {
    /// The job did not end because of that dependency, or a clone replaces it.
    Untouched,
    /// Another dependency has also ended without success: the job stays ended because of it.
    StaysEnded,
    Revived,
}

/// Returns a job that ended because of `dependency` to pending. The job then waits for
/// `dependencies`: its own, or their successors.
pub fn revive(
    job: &mut Job,
    dependency: JobId,
    mut dependencies: Dependencies,
    status: impl Fn(JobId) -> DependencyStatus,
    context: &mut TransitionContext<'_>,
) -> ReviveOutcome {
    let ended_by = job.dependencies.ended_by.filter(|ended_by| ended_by.dependency == dependency);
    let Some(ended_by) = ended_by.filter(|_| job.state.terminal() && job.requeued_as.is_none()) else {
        return ReviveOutcome::Untouched;
    };
    let EndedByDependency { held, run_at, .. } = ended_by;
    if let Some((other, _)) = recompute(&mut dependencies, status) {
        job.dependencies.ended_by = Some(EndedByDependency { dependency: other, held, run_at });
        return ReviveOutcome::StaysEnded;
    }
    dependencies.ended_by = None;
    job.dependencies = dependencies;
    job.error = None;
    job.pending_propagation = PendingPropagation::Return;
    job.restart_lifetime(context.now);
    job.transition_to(State::Pending { held, run_at }, Cause::Revive, context);
    ReviveOutcome::Revived
}
