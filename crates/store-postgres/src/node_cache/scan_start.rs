//! Where the scan of a queue starts: a watermark below which no ready job is known.
//!
//! A claim scans from it so that it does not step over the dead index entries of claimed jobs. Jobs
//! of this node that become ready below it reset it. A job that another node commits out of order
//! below it is found by the next full scan, or after the node's notification.

use std::collections::{HashMap, VecDeque};

use longshore_core::time::{Duration, Timestamp};

use super::QUEUES_MAX;

/// Effective priority and ready position: the order of a queue.
pub(crate) type ReadyPosition = (i16, i64);

/// Before every job.
pub(crate) const START: ReadyPosition = (i16::MIN, 0);

/// Longest time between two full scans of a queue.
const FULL_SCAN_INTERVAL: Duration = Duration::from_millis(250);
/// Ready positions that are kept per queue for scans in flight.
const READY_MAX: usize = 64;

/// The state of the cache before a scan was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScanTicket(u64);

/// How the claims of a transaction scanned a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScanCoverage {
    /// From the beginning.
    pub full: bool,
    /// From the scan start.
    pub partial: bool,
}

#[derive(Debug, Default)]
pub(super) struct ScanStarts {
    /// Counts events that may invalidate a scan in flight.
    generation: u64,
    by_queue: HashMap<i32, QueueScan>,
}

#[derive(Debug)]
struct QueueScan {
    /// The position, and when the queue was last scanned in full.
    start: Option<(ReadyPosition, Timestamp)>,
    /// Jobs that became ready, with their generation.
    ready: VecDeque<(u64, ReadyPosition)>,
    /// `ready` is complete after this generation.
    complete_after: u64,
}

impl ScanStarts {
    pub(super) fn begin(&mut self, queue_ids: impl Iterator<Item = i32>) -> ScanTicket {
        for queue_id in queue_ids {
            if self.by_queue.len() >= QUEUES_MAX && !self.by_queue.contains_key(&queue_id) {
                self.clear();
            }
            let complete_after = self.generation;
            let new = || QueueScan { start: None, ready: VecDeque::new(), complete_after };
            self.by_queue.entry(queue_id).or_insert_with(new);
        }
        ScanTicket(self.generation)
    }

    pub(super) fn get(&self, queue_id: i32, now: Timestamp) -> Option<ReadyPosition> {
        let (position, full_scan_at) = self.by_queue.get(&queue_id)?.start?;
        // The database clock may have been set, in either direction.
        let recent = now < full_scan_at + FULL_SCAN_INTERVAL && full_scan_at < now + FULL_SCAN_INTERVAL;
        recent.then_some(position)
    }

    /// Stores the first position that a scan found. Returns `false` and drops the start if a job
    /// may have become ready before it since the ticket was issued.
    pub(super) fn finish(
        &mut self,
        queue_id: i32,
        ticket: ScanTicket,
        first: ReadyPosition,
        full_scan_at: Option<Timestamp>,
    ) -> bool {
        let Some(scan) = self.by_queue.get_mut(&queue_id) else { return false };
        let missed = |(generation, position): &(u64, ReadyPosition)| *generation > ticket.0 && *position < first;
        if ticket.0 < scan.complete_after || scan.ready.iter().any(missed) {
            scan.start = None;
            return false;
        }
        let full_scan_at = full_scan_at.or(scan.start.map(|(_, at)| at));
        scan.start = full_scan_at.map(|at| (first, at));
        true
    }

    /// Returns whether the start was dropped.
    pub(super) fn on_ready(&mut self, queue_id: i32, position: ReadyPosition) -> bool {
        self.generation += 1;
        let Some(scan) = self.by_queue.get_mut(&queue_id) else { return false };
        scan.ready.push_back((self.generation, position));
        if scan.ready.len() > READY_MAX
            && let Some((dropped, _)) = scan.ready.pop_front()
        {
            scan.complete_after = dropped;
        }
        scan.start.take_if(|(start, _)| position < *start).is_some()
    }

    pub(super) fn forget(&mut self, queue_id: i32) {
        if let Some(scan) = self.by_queue.get_mut(&queue_id) {
            scan.start = None;
        }
    }

    /// Invalidates the tickets of all scans in flight.
    pub(super) fn clear(&mut self) {
        self.generation += 1;
        self.by_queue.clear();
    }
}
