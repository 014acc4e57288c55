//! Jobs that are looked at as one: what has become of them all, and what is still to be done to all of them.
//!
//! A workflow does not run anything: its members run by the rules of every job, and its state follows from how many of them are where.

use std::fmt;
use std::sync::Arc;

use crate::cancel::Force;
use crate::id::{Seq, WorkflowId, validate_printable};
use crate::job::Job;
use crate::limits::WORKFLOW_NAME_CHARS_MAX;
use crate::policy::string_enum;
use crate::refusal::Invalid;
use crate::state::StateKind;
use crate::time::Timestamp;

string_enum!(
    /// What a workflow is, as a whole.
    WorkflowState {
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
);

impl WorkflowState {
    pub fn terminal(self) -> bool {
        match self {
            Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    pub id: WorkflowId,
    /// Its place in the order of creation, from the same counter as those of jobs.
    pub number: Seq,
    pub name: Option<Arc<str>>,
    /// More jobs may join.
    pub open: bool,
    pub created_at: Timestamp,
    /// Jobs that were ever given to it: the next one without a name is called by this number.
    pub members_added: u64,
    /// A cancel was its last command: until all have ended, nothing is run again.
    pub cancelled: bool,
    pub operation: Option<WorkflowOperation>,
    pub tally: MemberCounts,
}

/// Sums over the members. Changes of them only add up: their order does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// By state. A member that was replaced by its clone does not count any more; one whose record has gone counts as it ended.
    pub counts: [u64; StateKind::COUNT],
    /// Records that are there, replaced ones included: the workflow goes with the last.
    pub records: u64,
}

/// What one change of a member adds to the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCountDelta {
    pub counts: [i64; StateKind::COUNT],
    pub records: i64,
}

/// Something that is being done to all members, in slices, in order of their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowOperation {
    pub action: WorkflowAction,
    /// Members up to this one are done.
    pub cursor: Seq,
    /// Whoever came later is not concerned.
    pub last_seq: Seq,
    /// How many members were changed.
    pub changed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowAction {
    Cancel {
        reason: Option<Arc<str>>,
        force: Force,
    },
    /// What ended without success runs again, and what it had stopped waits again.
    Retry,
}

/// To which workflow a job belongs, and what it is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub workflow: WorkflowId,
    pub reference: Arc<str>,
}

impl Workflow {
    /// A name is for people.
    pub fn check_name(name: Option<&str>) -> Result<(), Invalid> {
        name.map_or(Ok(()), |name| validate_printable("name", name, WORKFLOW_NAME_CHARS_MAX))
    }

    pub fn state(&self) -> WorkflowState {
        if self.open || self.operation.is_some() || self.tally.alive() > 0 {
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

    /// Members that have not ended.
    pub fn alive(&self) -> u64 {
        StateKind::ALL.iter().filter(|state| !state.terminal()).map(|state| self.of(*state)).sum()
    }

    /// Members that have ended, but not well.
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
    /// A member goes from one state to another; `None` is "does not count".
    pub fn moved(before: Option<StateKind>, after: Option<StateKind>) -> Self {
        let mut change = Self::default();
        change.count(before, -1);
        change.count(after, 1);
        change
    }

    pub fn created(state: StateKind) -> Self {
        Self { records: 1, ..Self::moved(None, Some(state)) }
    }

    /// A record has gone; what became of its job is still counted.
    pub fn gone() -> Self {
        Self { records: -1, ..Self::default() }
    }

    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Several changes at once.
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

/// As what a job counts in its workflow. Its clone takes its place.
pub fn counted_state(job: &Job) -> Option<StateKind> {
    (job.membership.is_some() && job.requeued_as.is_none()).then(|| job.kind())
}

/// Members that a retry of their workflow runs again.
pub fn ended_unsuccessfully(job: &Job) -> bool {
    let badly = match job.kind() {
        StateKind::Failed | StateKind::DeadLetter | StateKind::Cancelled => true,
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed => false,
    };
    badly && job.requeued_as.is_none()
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
    fn the_state_follows_from_the_counts() {
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
    fn changes_add_up() {
        let mut tally = MemberCounts::default();
        let mut sum = MemberCountDelta::created(StateKind::Pending);
        sum.join(&MemberCountDelta::moved(Some(StateKind::Pending), Some(StateKind::Completed)));
        tally.add(&sum);
        tally.add(&MemberCountDelta::gone());
        assert_eq!((tally.of(StateKind::Completed), tally.alive(), tally.records), (1, 0, 0));
        assert!(MemberCountDelta::moved(Some(StateKind::Running), Some(StateKind::Running)).is_nothing());
    }
}
