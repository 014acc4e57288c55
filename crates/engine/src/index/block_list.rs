//! A sorted list of positions and jobs, stored in blocks.
//!
//! Jobs are appended at the end and removed at the front, so both touch one block only. An insert
//! or remove in the middle moves a part of one block. An entry takes sixteen bytes.

use std::collections::VecDeque;

use longshore_core::id::Seq;

/// A block of this length is split before an insert; an append starts a new block instead.
const BLOCK_MAX: usize = 512;
/// A block of at most this length is merged with a neighbour if both are short.
const BLOCK_MERGE_AT: usize = BLOCK_MAX / 8;

/// Positions and jobs, by ascending position. No block is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockList {
    blocks: VecDeque<Block>,
}

type Block = VecDeque<(u64, Seq)>;

impl BlockList {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn first(&self) -> Option<(u64, Seq)> {
        self.blocks.front()?.front().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Seq)> + use<'_> {
        self.blocks.iter().flatten().copied()
    }

    pub(super) fn get(&self, position: u64) -> Option<Seq> {
        let block = self.blocks.get(self.block_of(position))?;
        let at = block.binary_search_by_key(&position, |(position, _)| *position).ok()?;
        block.get(at).map(|(_, seq)| *seq)
    }

    /// Returns the block for a position: the last one that starts at or before it, else the first.
    fn block_of(&self, position: u64) -> usize {
        let starts_at_or_before = |block: &Block| block.front().is_some_and(|(first, _)| *first <= position);
        match self.blocks.front() {
            // The common case: a claim removes the head of the list.
            Some(first) if first.back().is_some_and(|(last, _)| position <= *last) => 0,
            Some(_) | None => self.blocks.partition_point(starts_at_or_before).saturating_sub(1),
        }
    }

    /// Inserts a job, or replaces the one at this position.
    pub(super) fn insert(&mut self, position: u64, seq: Seq) {
        let last = self.blocks.back().and_then(|block| block.back());
        if last.is_none_or(|(last, _)| *last < position) {
            return self.push_back(position, seq);
        }
        let mut n = self.block_of(position);
        if self.blocks.get(n).is_some_and(|block| block.len() >= BLOCK_MAX) {
            n = self.split_block(n, position);
        }
        let Some(block) = self.blocks.get_mut(n) else { return };
        match block.binary_search_by_key(&position, |(position, _)| *position) {
            Ok(at) => {
                if let Some(entry) = block.get_mut(at) {
                    entry.1 = seq;
                }
            }
            Err(at) => block.insert(at, (position, seq)),
        }
    }

    fn push_back(&mut self, position: u64, seq: Seq) {
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK_MAX) {
            Some(block) => block.push_back((position, seq)),
            None => self.blocks.push_back(Block::from([(position, seq)])),
        }
    }

    /// Splits a block in half. Returns the block for a position.
    fn split_block(&mut self, n: usize, position: u64) -> usize {
        let Some(block) = self.blocks.get_mut(n) else { return n };
        let upper = block.split_off(block.len() / 2);
        let in_upper = upper.front().is_some_and(|(first, _)| *first <= position);
        self.blocks.insert(n + 1, upper);
        n + usize::from(in_upper)
    }

    pub(super) fn remove(&mut self, position: u64) {
        let n = self.block_of(position);
        let Some(block) = self.blocks.get_mut(n) else { return };
        if block.front().is_some_and(|(first, _)| *first == position) {
            block.pop_front();
        } else if let Ok(at) = block.binary_search_by_key(&position, |(position, _)| *position) {
            block.remove(at);
        } else {
            return;
        }
        let left = block.len();
        if left == 0 {
            drop(self.blocks.remove(n));
        } else if left <= BLOCK_MERGE_AT {
            self.merge_with_next(n);
            if let Some(before) = n.checked_sub(1) {
                self.merge_with_next(before);
            }
        }
    }

    /// Merges a block with the next one if both together fill at most half a block.
    fn merge_with_next(&mut self, n: usize) {
        let len = |n: usize| self.blocks.get(n).map(VecDeque::len);
        if let (Some(short), Some(next)) = (len(n), len(n + 1))
            && short + next <= BLOCK_MAX / 2
            && let Some(mut next) = self.blocks.remove(n + 1)
            && let Some(block) = self.blocks.get_mut(n)
        {
            block.append(&mut next);
            block.shrink_to(BLOCK_MAX / 2);
        }
    }
}

/// Compares the entries; the boundaries of the blocks do not matter.
impl PartialEq for BlockList {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for BlockList {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn assert_same(list: &BlockList, map: &BTreeMap<u64, Seq>) {
        assert!(list.iter().eq(map.iter().map(|(position, seq)| (*position, *seq))));
        assert_eq!(list.first(), map.first_key_value().map(|(position, seq)| (*position, *seq)));
        assert_eq!(list.is_empty(), map.is_empty());
        assert!(list.blocks.iter().all(|block| !block.is_empty() && block.len() <= BLOCK_MAX));
    }

    /// A linear congruential generator: the same numbers in each run.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn agrees_with_a_btree_map() {
        for (seed, span) in [(1, 300), (2, 3_000), (3, 30_000)] {
            let (mut state, mut list, mut map) = (seed, BlockList::default(), BTreeMap::new());
            for step in 0..60_000 {
                let (choice, position) = (random(&mut state) % 8, random(&mut state) % span);
                // Grows first, then shrinks.
                if (step < 30_000) == (choice < 6) {
                    list.insert(position, Seq(step));
                    map.insert(position, Seq(step));
                } else {
                    list.remove(position);
                    map.remove(&position);
                }
                assert_eq!(list.get(position), map.get(&position).copied());
                if step % 500 == 0 {
                    assert_same(&list, &map);
                }
            }
            assert_same(&list, &map);
        }
    }

    #[test]
    fn appends_at_the_end_and_removes_at_the_front() {
        let (mut list, mut map) = (BlockList::default(), BTreeMap::new());
        for position in 0..10_000 {
            list.insert(position, Seq(position));
            map.insert(position, Seq(position));
        }
        assert_eq!(list.blocks.len(), 10_000_usize.div_ceil(BLOCK_MAX));
        for position in 0..9_990 {
            assert_eq!(list.first(), Some((position, Seq(position))));
            list.remove(position);
            map.remove(&position);
        }
        assert_same(&list, &map);
        // Released jobs return to their positions at the front.
        for position in (0..2_000).rev() {
            list.insert(position, Seq(position));
            map.insert(position, Seq(position));
        }
        assert_same(&list, &map);
    }

    #[test]
    fn short_blocks_are_merged() {
        let mut list = BlockList::default();
        (0..100_000).for_each(|position| list.insert(position, Seq(position)));
        (0..100_000).filter(|position| position % 100 != 0).for_each(|position| list.remove(position));
        assert_eq!(list.iter().count(), 1_000);
        let capacity: usize = list.blocks.iter().map(VecDeque::capacity).sum();
        assert!(capacity < 10_000, "{capacity} entries for 1,000");
    }
}
