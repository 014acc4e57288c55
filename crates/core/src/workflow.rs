//! Workflows: jobs that are observed and changed as one.
//!
//! Members run by the rules of every job. The state of a workflow is derived from their states.

use std::sync::Arc;

use crate::cancel::Force;
use crate::id::{Seq, WorkflowId, validate_printable};
use crate::job::Job;
use crate::limits::WORKFLOW_NAME_CHARS_MAX;
use crate::refusal::Invalid;
use crate::state::StateKind;
use crate::time::Timestamp;

pub use longshore_types::WorkflowState;

/// Record of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    pub id: WorkflowId,
    /// Order of creation, from the same counter as the sequence numbers of jobs.
    pub number: Seq,
    pub name: Option<Arc<str>>,
    /// Whether jobs can be added.
    pub open: bool,
    pub created_at: Timestamp,
    /// Jobs that were ever added. The next one without a name gets this number as its name.
    pub members_added: u64,
    /// The last command was a cancel: no member is retried until all have ended.
    pub cancelled: bool,
    pub operation: Option<WorkflowOperation>,
    pub tally: MemberCounts,
}

/// Counts of members. Changes are sums, so that their order does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// By state. A member that its clone replaces is not counted. A pruned member counts in its
    /// last state.
    pub counts: [u64; StateKind::COUNT],
    /// Existing records, replaced members included. The workflow is pruned with the last one.
    pub records: u64,
}

/// Change of the counts by one change of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCountDelta {
    pub counts: [i64; StateKind::COUNT],
    pub records: i64,
}

/// An action on all members, applied in slices, in order of their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowOperation {
    pub action: WorkflowAction,
    /// Last processed member.
    pub cursor: Seq,
    /// Last member of the operation: later ones are not part of it.
    pub last_seq: Seq,
    /// Number of changed members.
    pub changed: u64,
}

/// Action on all members of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowAction {
    Cancel {
        reason: Option<Arc<str>>,
        force: Force,
    },
    /// Requeues members that ended without success, and revives members that ended because of them.
    Retry,
}

/// The workflow of a job, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub workflow: WorkflowId,
    pub reference: Arc<str>,
}

impl Workflow {
    /// Checks the name of a workflow.
    pub fn check_name(name: Option<&str>) -> Result<(), Invalid> {
        name.map_or(Ok(()), |name| validate_printable("name", name, WORKFLOW_NAME_CHARS_MAX))
    }

    /// Returns the state, derived from the counts.
    pub fn state(&self) -> WorkflowState {
        if self.open || self.operation.is_some() || self.tally.unfinished() > 0 {
            WorkflowState::Running
        } else if self.tally.of(StateKind::Failed) + self.tally.of(StateKind::DeadLetter) > 0 {
            WorkflowState::Failed
        } else if self.tally.of(StateKind::Cancelled) > 0 {
            WorkflowState::Cancelled
        } else {
            WorkflowState::Completed
        }
    }
}

impl MemberCounts {
    pub fn of(&self, state: StateKind) -> u64 {
        self.counts.get(state as usize).copied().unwrap_or(0)
    }

    /// Returns the number of members that have not ended.
    pub fn unfinished(&self) -> u64 {
        StateKind::ALL.iter().filter(|state| !state.terminal()).map(|state| self.of(*state)).sum()
    }

    /// Returns the number of members that ended without success.
    pub fn unsuccessful(&self) -> u64 {
        [StateKind::Failed, StateKind::DeadLetter, StateKind::Cancelled].into_iter().map(|state| self.of(state)).sum()
    }

    pub fn add(&mut self, change: &MemberCountDelta) {
        for (count, change) in self.counts.iter_mut().zip(change.counts) {
            *count = count.saturating_add_signed(change);
        }
        self.records = self.records.saturating_add_signed(change.records);
    }
}

impl MemberCountDelta {
    /// A member changes its state; `None`: it is not counted.
    pub fn moved(before: Option<StateKind>, after: Option<StateKind>) -> Self {
        let mut change = Self::default();
        change.count(before, -1);
        change.count(after, 1);
        change
    }

    pub fn created(state: StateKind) -> Self {
        Self { records: 1, ..Self::moved(None, Some(state)) }
    }

    /// A record was pruned; its job stays counted.
    pub fn gone() -> Self {
        Self { records: -1, ..Self::default() }
    }

    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds another change.
    pub fn join(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count += other;
        }
        self.records += other.records;
    }

    fn count(&mut self, state: Option<StateKind>, number: i64) {
        if let Some(count) = state.and_then(|state| self.counts.get_mut(state as usize)) {
            *count += number;
        }
    }
}

/// Returns the state in which a job counts; `None` if its clone replaces it.
pub fn counted_state(job: &Job) -> Option<StateKind> {
    (job.membership.is_some() && job.requeued_as.is_none()).then(|| job.kind())
}

/// Whether a retry of its workflow runs the job again.
pub fn ended_unsuccessfully(job: &Job) -> bool {
    let is_unsuccessful = match job.kind() {
        StateKind::Failed | StateKind::DeadLetter | StateKind::Cancelled => true,
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed => false,
    };
    is_unsuccessful && job.requeued_as.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SeededRng;

    fn workflow(counts: &[(StateKind, u64)]) -> Workflow {
        let mut tally = MemberCounts::default();
        for (state, number) in counts {
            (0..*number).for_each(|_| tally.add(&MemberCountDelta::created(*state)));
        }
        Workflow {
            id: WorkflowId::random(&mut SeededRng::new(1)),
            number: Seq(1),
            name: None,
            open: false,
            created_at: Timestamp::from_millis(0),
            members_added: 0,
            cancelled: false,
            operation: None,
            tally,
        }
    }

    /// Rules Workflows.
    #[test]
    fn state_follows_from_counts() {
        use StateKind::{Cancelled, Completed, DeadLetter, Failed};
        let state = |counts: &[(StateKind, u64)]| workflow(counts).state();
        assert_eq!(state(&[]), WorkflowState::Completed);
        assert_eq!(state(&[(Completed, 3)]), WorkflowState::Completed);
        assert_eq!(state(&[(Completed, 3), (Cancelled, 1)]), WorkflowState::Cancelled);
        assert_eq!(state(&[(Cancelled, 3), (Failed, 1)]), WorkflowState::Failed);
        assert_eq!(state(&[(Cancelled, 3), (DeadLetter, 1)]), WorkflowState::Failed);
        for alive in StateKind::ALL.iter().filter(|state| !state.terminal()) {
            assert_eq!(state(&[(Failed, 1), (*alive, 1)]), WorkflowState::Running);
        }
        assert_eq!(Workflow { open: true, ..workflow(&[(Completed, 1)]) }.state(), WorkflowState::Running);
    }

    #[test]
    fn deltas_add_up() {
        let mut tally = MemberCounts::default();
        let mut sum = MemberCountDelta::created(StateKind::Pending);
        sum.join(&MemberCountDelta::moved(Some(StateKind::Pending), Some(StateKind::Completed)));
        tally.add(&sum);
        tally.add(&MemberCountDelta::gone());
        assert_eq!((tally.of(StateKind::Completed), tally.unfinished(), tally.records), (1, 0, 0));
        assert!(MemberCountDelta::moved(Some(StateKind::Running), Some(StateKind::Running)).is_nothing());
    }
}
