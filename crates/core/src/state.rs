//! The nine states. Each carries its own data; nothing is "null unless the state is such and such".

use std::fmt;

use crate::lease::Lease;
use crate::policy::string_enum;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Accepted and stored; waits for its submission, for dependencies, or for both.
    Pending {
        held: bool,
        run_at: Option<Timestamp>,
    },
    /// In line; `position` orders it among jobs of equal priority.
    Scheduled {
        position: u64,
    },
    /// In line once `until` has come.
    Delayed {
        until: Timestamp,
    },
    /// Handed to a worker.
    Running(Lease),
    /// Failed, and back in line once `until` has come.
    Retrying {
        until: Timestamp,
    },
    Completed {
        at: Timestamp,
    },
    Failed {
        at: Timestamp,
    },
    /// Given up; a person has to look.
    DeadLetter {
        at: Timestamp,
    },
    Cancelled {
        at: Timestamp,
    },
}

string_enum!(
    /// A state without its data.
    StateKind {
        Pending = "pending",
        Scheduled = "scheduled",
        Delayed = "delayed",
        Running = "running",
        Retrying = "retrying",
        Completed = "completed",
        Failed = "failed",
        DeadLetter = "dead_letter",
        Cancelled = "cancelled",
    }
);

impl StateKind {
    pub const COUNT: usize = Self::ALL.len();

    pub fn terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::DeadLetter | Self::Cancelled => true,
            Self::Pending | Self::Scheduled | Self::Delayed | Self::Running | Self::Retrying => false,
        }
    }

    /// Returns whether the job has neither started its next attempt nor ended.
    pub fn is_waiting(self) -> bool {
        !self.terminal() && self != Self::Running
    }
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

    /// When the job reached its end; exists exactly in the terminal states.
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

    /// The instant before which the job must not be claimed, while there is one.
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

    /// Created, and kept back until somebody submits it.
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

/// The four ways to end.
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
