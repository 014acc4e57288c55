//! The nine states of a job. Each variant has the data of its state, so that no field depends on
//! it.

use crate::lease::Lease;
use crate::time::Timestamp;

pub use longshore_types::StateKind;

/// State of a job, with its data.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Stored; waits for its submission, for dependencies, or for both.
    Pending {
        held: bool,
        run_at: Option<Timestamp>,
    },
    /// Ready; `position` orders it among jobs of equal priority.
    Scheduled {
        position: u64,
    },
    /// Ready at `until`.
    Delayed {
        until: Timestamp,
    },
    /// Held by a worker.
    Running(Lease),
    /// Failed; ready again at `until`.
    Retrying {
        until: Timestamp,
    },
    Completed {
        at: Timestamp,
    },
    Failed {
        at: Timestamp,
    },
    /// Ended without success; kept for an operator.
    DeadLetter {
        at: Timestamp,
    },
    Cancelled {
        at: Timestamp,
    },
}

impl State {
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Pending { .. } => StateKind::Pending,
            Self::Scheduled { .. } => StateKind::Scheduled,
            Self::Delayed { .. } => StateKind::Delayed,
            Self::Running(_) => StateKind::Running,
            Self::Retrying { .. } => StateKind::Retrying,
            Self::Completed { .. } => StateKind::Completed,
            Self::Failed { .. } => StateKind::Failed,
            Self::DeadLetter { .. } => StateKind::DeadLetter,
            Self::Cancelled { .. } => StateKind::Cancelled,
        }
    }

    pub fn terminal(&self) -> bool {
        self.kind().terminal()
    }

    /// Returns when the job ended; `Some` in exactly the terminal states.
    pub fn completed_at(&self) -> Option<Timestamp> {
        match self {
            Self::Completed { at } | Self::Failed { at } | Self::DeadLetter { at } | Self::Cancelled { at } => {
                Some(*at)
            }
            Self::Pending { .. }
            | Self::Scheduled { .. }
            | Self::Delayed { .. }
            | Self::Running(_)
            | Self::Retrying { .. } => None,
        }
    }

    /// Returns the time before which the job cannot be claimed.
    pub fn run_at(&self) -> Option<Timestamp> {
        match self {
            Self::Pending { run_at, .. } => *run_at,
            Self::Delayed { until } | Self::Retrying { until } => Some(*until),
            Self::Scheduled { .. }
            | Self::Running(_)
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::DeadLetter { .. }
            | Self::Cancelled { .. } => None,
        }
    }

    /// Whether the job waits for a client to submit it.
    pub fn held(&self) -> bool {
        match self {
            Self::Pending { held, .. } => *held,
            Self::Scheduled { .. }
            | Self::Delayed { .. }
            | Self::Running(_)
            | Self::Retrying { .. }
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::DeadLetter { .. }
            | Self::Cancelled { .. } => false,
        }
    }

    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Running(lease) => Some(lease),
            Self::Pending { .. }
            | Self::Scheduled { .. }
            | Self::Delayed { .. }
            | Self::Retrying { .. }
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::DeadLetter { .. }
            | Self::Cancelled { .. } => None,
        }
    }
}

/// A terminal state, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalState {
    Completed,
    Failed,
    DeadLetter,
    Cancelled,
}

impl TerminalState {
    pub fn is_success(self) -> bool {
        self == Self::Completed
    }

    pub fn state(self, at: Timestamp) -> State {
        match self {
            Self::Completed => State::Completed { at },
            Self::Failed => State::Failed { at },
            Self::DeadLetter => State::DeadLetter { at },
            Self::Cancelled => State::Cancelled { at },
        }
    }

    pub fn of(state: StateKind) -> Option<Self> {
        match state {
            StateKind::Completed => Some(Self::Completed),
            StateKind::Failed => Some(Self::Failed),
            StateKind::DeadLetter => Some(Self::DeadLetter),
            StateKind::Cancelled => Some(Self::Cancelled),
            StateKind::Pending
            | StateKind::Scheduled
            | StateKind::Delayed
            | StateKind::Running
            | StateKind::Retrying => None,
        }
    }
}
