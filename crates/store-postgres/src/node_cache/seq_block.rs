//! Sequence numbers that this node may assign to new jobs.

use crate::transaction::SEQ_BLOCK_SIZE;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeqBlock {
    first: u64,
    next: u64,
}

impl SeqBlock {
    pub(super) fn first(self) -> u64 {
        self.first
    }

    pub(super) fn allocate(&mut self, count: u64) -> Option<(u64, u64)> {
        let Self { first, next } = *self;
        if first == 0 || next + count > first + SEQ_BLOCK_SIZE {
            return None;
        }
        self.next += count;
        Some((first, next))
    }

    /// Ignores a block that is older than the one in use.
    pub(super) fn replace(&mut self, first: u64, used: u64) {
        if first > self.first {
            *self = Self { first, next: first + used };
        }
    }
}
