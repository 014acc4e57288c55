//! Inputs of a transition that the rules cannot produce: time, randomness, sequence numbers.

use crate::history::Transition;
use crate::id::LeaseVersion;
use crate::rng::Rng;
use crate::time::Timestamp;

/// Context of one transition: its external inputs, and the log of what it changed.
#[expect(missing_debug_implementations, reason = "a random generator has no useful debug output")]
pub struct TransitionContext<'a> {
    pub now: Timestamp,
    pub rng: &'a mut dyn Rng,
    /// Next sequence number. Submissions and queue positions share the counter, so that they
    /// compare.
    pub next_seq: &'a mut u64,
    /// New lease versions are above this floor. A restored store raises it, so that no version is
    /// issued twice.
    pub lease_floor: LeaseVersion,
    /// Transitions of the job, in order.
    pub transitions: &'a mut Vec<Transition>,
}

impl TransitionContext<'_> {
    /// Takes the next sequence number.
    pub fn next_seq(&mut self) -> u64 {
        let seq = *self.next_seq;
        *self.next_seq += 1;
        seq
    }
}
