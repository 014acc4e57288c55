//! A look at the line, for stores that read ahead of the claims.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::block_list::BlockList;
use super::{Index, PriorityLevel};
use crate::engine::Engine;
use longshore_core::id::{JobType, QueueName, Seq};

impl Engine {
    /// The jobs that claims of these types (none named: of any) would get next, in that order. A paused queue gives none.
    pub fn peek_ready(&self, queue: &QueueName, types: &[JobType], limit: usize) -> Vec<Seq> {
        match self.queue(queue).filter(|queue| !queue.paused) {
            Some(found) => self.index.peek_ready(queue, types, found.intake.priority_order, limit),
            None => Vec::new(),
        }
    }
}

impl Index {
    fn peek_ready(&self, queue: &QueueName, types: &[JobType], priority_order: bool, limit: usize) -> Vec<Seq> {
        let mut next = Vec::new();
        let Some(line) = self.lines.get(queue) else { return next };
        if priority_order {
            for level in &line.levels {
                merge(level.lines(types, limit), limit, &mut next);
            }
        } else {
            merge(line.levels.iter().flat_map(|level| level.lines(types, limit)), limit, &mut next);
        }
        next
    }
}

impl PriorityLevel {
    /// Lines in which the next `limit` jobs stand. However many types there are, those jobs stand in the `limit` lines whose heads come first.
    fn lines<'a>(&'a self, types: &'a [JobType], limit: usize) -> impl Iterator<Item = &'a BlockList> {
        let any = self.heads.values().take(if types.is_empty() { limit } else { 0 });
        any.chain(types).filter_map(|job_type| self.by_type.get(job_type))
    }
}

/// Adds the first of all lines together, by position, until there are `limit`.
fn merge<'a>(lines: impl Iterator<Item = &'a BlockList>, limit: usize, next: &mut Vec<Seq>) {
    let mut heads = BinaryHeap::new();
    let mut rests = Vec::new();
    for mut line in lines.map(BlockList::iter) {
        heads.extend(line.next().map(|(position, seq)| Reverse((position, seq, rests.len()))));
        rests.push(line);
    }
    while next.len() < limit
        && let Some(Reverse((_, seq, which))) = heads.pop()
    {
        // A type that was named twice brings its line twice.
        if next.last() != Some(&seq) {
            next.push(seq);
        }
        let follower = rests.get_mut(which).and_then(Iterator::next);
        heads.extend(follower.map(|(position, seq)| Reverse((position, seq, which))));
    }
}
