//! Waiting for other jobs: all of `after` must complete, one of `after_any` must end.

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::JobId;
use crate::job::{Job, Moment};
use crate::state::{Ending, State, StateKind};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies {
    pub after: Vec<JobId>,
    pub after_any: Vec<JobId>,
    /// Of `after`, how many have not completed.
    pub unmet: u32,
    pub any_met: bool,
    /// Length of the longest chain that ends here: 1 without dependencies.
    pub depth: u32,
    /// Set while this job is ended through a dependency.
    pub ended_through: Option<EndedThrough>,
}

/// The dependency through which a job ended, and the pending state to which a requeue of that one returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedThrough {
    pub dependency: JobId,
    pub held: bool,
    pub run_at: Option<Timestamp>,
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
    pub fn all(&self) -> impl Iterator<Item = JobId> {
        let more = self.after_any.iter().filter(|id| !self.after.contains(id));
        self.after.iter().chain(more).copied()
    }
}

/// How a dependency stands; `Gone` is a record that retention has removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    In(StateKind),
    Gone,
}

/// Counts the standings of all dependencies anew, and names the first of `after` that ended without success.
pub fn weigh(dependencies: &mut Dependencies, standing: impl Fn(JobId) -> Standing) -> Option<(JobId, Ending)> {
    let mut broken = None;
    dependencies.unmet = 0;
    let ended = |id: &JobId| match standing(*id) {
        Standing::In(kind) => kind.terminal(),
        Standing::Gone => true,
    };
    // Once met it stays met, even if the one that ended is requeued.
    dependencies.any_met = dependencies.any_met || dependencies.after_any.iter().any(ended);
    for id in &dependencies.after {
        let ending = match standing(*id) {
            Standing::In(kind) => Ending::of(kind),
            Standing::Gone => Some(Ending::Completed),
        };
        match ending {
            Some(Ending::Completed) => {}
            Some(ending @ (Ending::Failed | Ending::DeadLetter | Ending::Cancelled)) => {
                broken = broken.or(Some((*id, ending)));
                dependencies.unmet += 1;
            }
            None => dependencies.unmet += 1,
        }
    }
    broken
}

/// Tells a waiting job that `dependency` has ended.
pub fn hear_of_end(job: &mut Job, dependency: JobId, ending: Ending, moment: &mut Moment<'_>) {
    if !matches!(job.state, State::Pending { .. }) {
        return;
    }
    if job.dependencies.after_any.contains(&dependency) {
        job.dependencies.any_met = true;
    }
    if job.dependencies.after.contains(&dependency) {
        match ending {
            Ending::Completed => job.dependencies.unmet = job.dependencies.unmet.saturating_sub(1),
            Ending::Failed | Ending::DeadLetter | Ending::Cancelled => {
                end_through(job, dependency, ending, moment);
                return;
            }
        }
    }
    crate::promote::leave_pending_when_free(job, Cause::Dependencies, moment);
}

/// Ends a job the way its dependency ended.
pub(crate) fn end_through(job: &mut Job, dependency: JobId, ending: Ending, moment: &mut Moment<'_>) {
    let category = match ending {
        Ending::Cancelled => Category::Cancelled,
        Ending::Completed | Ending::Failed | Ending::DeadLetter => Category::Permanent,
    };
    let message = format!("dependency {dependency} ended {}", ending.state(moment.now).kind());
    let failure = Failure::found(category, "dependency_failed", &message, moment.now);
    let held = matches!(job.state, State::Pending { held: true, .. });
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

/// Returns a job that ended through `dependency` to pending.
pub fn revive(
    job: &mut Job,
    dependency: JobId,
    standing: impl Fn(JobId) -> Standing,
    moment: &mut Moment<'_>,
) -> Revival {
    let through = job.dependencies.ended_through.filter(|through| through.dependency == dependency);
    let Some(through) = through.filter(|_| job.state.terminal() && job.requeued_as.is_none()) else {
        return Revival::Untouched;
    };
    let EndedThrough { held, run_at, .. } = through;
    let mut dependencies = job.dependencies.clone();
    if let Some((other, _)) = weigh(&mut dependencies, standing) {
        job.dependencies.ended_through = Some(EndedThrough { dependency: other, held, run_at });
        return Revival::StaysEnded;
    }
    dependencies.ended_through = None;
    job.dependencies = dependencies;
    job.error = None;
    job.owes_dependents = false;
    job.restart_lifetime(moment.now);
    job.enter(State::Pending { held, run_at }, Cause::Revive, moment);
    Revival::Revived
}
