//! Who stands where in one line.
//!
//! A line grows at its end and is worked off at its beginning. So it is cut into blocks: both happen at the edge of one, and ten million jobs lie side by side,
//! sixteen bytes each. Whoever comes back into the middle, or leaves from there, moves some of one block.

use std::collections::VecDeque;

use longshore_core::id::Seq;

/// A block that has so many is halved before it takes more, unless they come at its end.
const BLOCK_MAX: usize = 512;
/// A block that has no more than this left is put together with a neighbour that is short enough.
const BLOCK_MERGE_AT: usize = BLOCK_MAX / 8;

/// Positions and who stands there, by rising positions. No block is empty.
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
        let place = block.binary_search_by_key(&position, |(position, _)| *position).ok()?;
        block.get(place).map(|(_, seq)| *seq)
    }

    /// Where a position belongs: the last block that begins no later, or the first.
    fn block_of(&self, position: u64) -> usize {
        let begins_no_later = |block: &Block| block.front().is_some_and(|(first, _)| *first <= position);
        match self.blocks.front() {
            // Mostly it is the head of the line.
            Some(first) if first.back().is_some_and(|(last, _)| position <= *last) => 0,
            Some(_) | None => self.blocks.partition_point(begins_no_later).saturating_sub(1),
        }
    }

    /// Whoever stood there before is gone.
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
            Ok(place) => {
                if let Some(there) = block.get_mut(place) {
                    there.1 = seq;
                }
            }
            Err(place) => block.insert(place, (position, seq)),
        }
    }

    fn push_back(&mut self, position: u64, seq: Seq) {
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK_MAX) {
            Some(block) => block.push_back((position, seq)),
            None => self.blocks.push_back(Block::from([(position, seq)])),
        }
    }

    /// Says in which half a position belongs.
    fn split_block(&mut self, n: usize, position: u64) -> usize {
        let Some(block) = self.blocks.get_mut(n) else { return n };
        let upper = block.split_off(block.len() / 2);
        let above = upper.front().is_some_and(|(first, _)| *first <= position);
        self.blocks.insert(n + 1, upper);
        n + usize::from(above)
    }

    pub(super) fn remove(&mut self, position: u64) {
        let n = self.block_of(position);
        let Some(block) = self.blocks.get_mut(n) else { return };
        if block.front().is_some_and(|(first, _)| *first == position) {
            block.pop_front();
        } else if let Ok(place) = block.binary_search_by_key(&position, |(position, _)| *position) {
            block.remove(place);
        } else {
            return;
        }
        let left = block.len();
        if left == 0 {
            drop(self.blocks.remove(n));
        } else if left <= BLOCK_MERGE_AT {
            self.join(n);
            if let Some(before) = n.checked_sub(1) {
                self.join(before);
            }
        }
    }

    /// Puts a block together with the next one, where both are half a block at most.
    fn join(&mut self, n: usize) {
        let blocks = |n: usize| self.blocks.get(n).map(VecDeque::len);
        if let (Some(short), Some(next)) = (blocks(n), blocks(n + 1))
            && short + next <= BLOCK_MAX / 2
            && let Some(mut next) = self.blocks.remove(n + 1)
            && let Some(block) = self.blocks.get_mut(n)
        {
            block.append(&mut next);
            block.shrink_to(BLOCK_MAX / 2);
        }
    }
}

/// How a line is cut does not matter.
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

    fn same(places: &BlockList, plain: &BTreeMap<u64, Seq>) {
        assert!(places.iter().eq(plain.iter().map(|(position, seq)| (*position, *seq))));
        assert_eq!(places.first(), plain.first_key_value().map(|(position, seq)| (*position, *seq)));
        assert_eq!(places.is_empty(), plain.is_empty());
        assert!(places.blocks.iter().all(|block| !block.is_empty() && block.len() <= BLOCK_MAX));
    }

    /// A small generator: the same numbers each time.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn places_are_those_of_a_plain_map() {
        for (seed, span) in [(1, 300), (2, 3_000), (3, 30_000)] {
            let (mut state, mut places, mut plain) = (seed, BlockList::default(), BTreeMap::new());
            for step in 0..60_000 {
                let (what, position) = (random(&mut state) % 8, random(&mut state) % span);
                // Grows first, then shrinks.
                if (step < 30_000) == (what < 6) {
                    places.insert(position, Seq(step));
                    plain.insert(position, Seq(step));
                } else {
                    places.remove(position);
                    plain.remove(&position);
                }
                assert_eq!(places.get(position), plain.get(&position).copied());
                if step % 500 == 0 {
                    same(&places, &plain);
                }
            }
            same(&places, &plain);
        }
    }

    #[test]
    fn a_line_grows_at_its_end_and_is_worked_off_at_its_beginning() {
        let (mut places, mut plain) = (BlockList::default(), BTreeMap::new());
        for position in 0..10_000 {
            places.insert(position, Seq(position));
            plain.insert(position, Seq(position));
        }
        assert_eq!(places.blocks.len(), 10_000_usize.div_ceil(BLOCK_MAX));
        for position in 0..9_990 {
            assert_eq!(places.first(), Some((position, Seq(position))));
            places.remove(position);
            plain.remove(&position);
        }
        same(&places, &plain);
        // Those who were given back stand before everybody else again.
        for position in (0..2_000).rev() {
            places.insert(position, Seq(position));
            plain.insert(position, Seq(position));
        }
        same(&places, &plain);
    }

    #[test]
    fn what_is_left_of_a_line_takes_little_room() {
        let mut places = BlockList::default();
        (0..100_000).for_each(|position| places.insert(position, Seq(position)));
        (0..100_000).filter(|position| position % 100 != 0).for_each(|position| places.remove(position));
        assert_eq!(places.iter().count(), 1_000);
        let room: usize = places.blocks.iter().map(VecDeque::capacity).sum();
        assert!(room < 10_000, "{room} places for 1,000");
    }
}
