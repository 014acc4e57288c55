//! The next ready jobs, for stores that prefetch records before they are claimed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::block_list::BlockList;
use super::{Index, PriorityLevel};
use crate::engine::Engine;
use longshore_core::id::{JobType, QueueName, Seq};

impl Engine {
    /// Returns the next jobs for claims of these types (empty: all types), in the order of the
    /// claims. A paused queue has none.
    pub fn peek_ready(&self, queue: &QueueName, types: &[JobType], limit: usize) -> Vec<Seq> {
        match self.queue(queue).filter(|queue| !queue.paused) {
            Some(settings) => self.index.peek_ready(queue, types, settings.admission.priority_order, limit),
            None => Vec::new(),
        }
    }
}

impl Index {
    fn peek_ready(&self, queue: &QueueName, types: &[JobType], priority_order: bool, limit: usize) -> Vec<Seq> {
        let mut next = Vec::new();
        let Some(queue) = self.queues.get(queue) else { return next };
        if priority_order {
            for level in &queue.levels {
                merge(level.lists(types, limit), limit, &mut next);
            }
        } else {
            merge(queue.levels.iter().flat_map(|level| level.lists(types, limit)), limit, &mut next);
        }
        next
    }
}

impl PriorityLevel {
    /// Returns the lists that hold the next `limit` jobs. For all types these are the `limit` lists
    /// with the lowest heads, however many types there are.
    fn lists<'a>(&'a self, types: &'a [JobType], limit: usize) -> impl Iterator<Item = &'a BlockList> {
        let any = self.heads.values().take(if types.is_empty() { limit } else { 0 });
        any.chain(types).filter_map(|job_type| self.by_type.get(job_type))
    }
}

/// Merges the lists by position into `next`, until it holds `limit` jobs.
fn merge<'a>(lists: impl Iterator<Item = &'a BlockList>, limit: usize, next: &mut Vec<Seq>) {
    let mut heads = BinaryHeap::new();
    let mut rests = Vec::new();
    for mut list in lists.map(BlockList::iter) {
        heads.extend(list.next().map(|(position, seq)| Reverse((position, seq, rests.len()))));
        rests.push(list);
    }
    while next.len() < limit
        && let Some(Reverse((_, seq, which))) = heads.pop()
    {
        // A request may name a type twice: its list is then merged twice.
        if next.last() != Some(&seq) {
            next.push(seq);
        }
        let successor = rests.get_mut(which).and_then(Iterator::next);
        heads.extend(successor.map(|(position, seq)| Reverse((position, seq, which))));
    }
}
