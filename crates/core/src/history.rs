//! History of a job: its transitions between states.

use crate::limits::HISTORY_MAX;
use crate::state::StateKind;
use crate::time::Timestamp;

pub use longshore_types::Cause;

/// One transition between states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// `None` for the creation.
    pub from: Option<StateKind>,
    pub to: StateKind,
    pub at: Timestamp,
    pub cause: Cause,
}

/// Bounded list: the first transition and the last `HISTORY_MAX - 1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Transition>);

impl History {
    pub fn from_transitions(transitions: Vec<Transition>) -> Self {
        let mut history = Self(Vec::with_capacity(transitions.len().min(HISTORY_MAX)));
        transitions.into_iter().for_each(|transition| history.push(transition));
        history
    }

    pub fn push(&mut self, transition: Transition) {
        if self.0.len() >= HISTORY_MAX {
            self.0.remove(1);
        }
        self.0.push(transition);
    }

    /// Returns the transitions, oldest first.
    pub fn transitions(&self) -> &[Transition] {
        &self.0
    }
}
