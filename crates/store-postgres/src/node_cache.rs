//! What a node caches between transactions: its running jobs, the heads of queues, where to start
//! the scan of a queue, and a block of sequence numbers.
//!
//! Every entry may be stale. The fast path (`transaction/fast_path.rs`) has the database compare
//! the cached rows with the stored ones before it applies anything.

mod queue_heads;
mod running_jobs;
mod scan_start;
mod seq_block;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::row::JobRow;
use queue_heads::QueueHeads;
use running_jobs::RunningJobs;
use scan_start::ScanStarts;
pub(crate) use scan_start::{ReadyPosition, START, ScanCoverage, ScanTicket};
use seq_block::SeqBlock;

/// Queues that a cache holds at most; beyond that it starts over.
const QUEUES_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    running: Mutex<RunningJobs>,
    heads: Mutex<QueueHeads>,
    scan_starts: Mutex<ScanStarts>,
    seq_block: Mutex<SeqBlock>,
}

/// Rows of a committed transaction that change the cache.
#[derive(Debug, Default)]
pub(crate) struct CommittedRows {
    /// Jobs that may not be running any more.
    pub stopped: Vec<i64>,
    /// Running jobs, as they are stored.
    pub running: Vec<(Seq, JobRow)>,
    /// First position of the new ready jobs, per queue.
    pub ready: Vec<(i32, ReadyPosition)>,
}

/// What the claims of a committed transaction saw of one queue.
#[derive(Debug)]
pub(crate) struct FinishedScan<'a> {
    pub queue_id: i32,
    pub ticket: ScanTicket,
    /// Position of the first job that was found.
    pub first: ReadyPosition,
    pub coverage: ScanCoverage,
    pub now: Timestamp,
    /// The next jobs of the queue, if they were read.
    pub head: Option<&'a [Row]>,
}

impl NodeCache {
    /// Applies the rows of a transaction after its commit.
    pub(crate) fn apply(&self, rows: CommittedRows) {
        let mut running = self.running.lock();
        running.evict(&rows.stopped);
        running.store(rows.running);
        drop(running);
        rows.ready.into_iter().for_each(|(queue_id, position)| self.on_ready(queue_id, position));
    }

    pub(crate) fn has_running(&self, seqs: &[Seq]) -> bool {
        self.running.lock().has_all(seqs)
    }

    /// Removes and returns running jobs. The caller stores them again if they go on running.
    pub(crate) fn take_running(&self, seqs: &[Seq]) -> Vec<(Seq, JobRow)> {
        self.running.lock().take(seqs)
    }

    /// Removes and returns the first `length` jobs of a queue, if the cache has as many.
    pub(crate) fn take_head(&self, queue_id: i32, length: usize) -> Option<Vec<(Seq, JobRow)>> {
        self.heads.lock().take(queue_id, length)
    }

    /// Returns how many jobs to prefetch after a claim of `claimed` jobs with `bytes` of payload.
    pub(crate) fn prefetch_size(&self, queue_id: i32, claimed: usize, bytes: usize) -> usize {
        self.heads.lock().prefetch_size(queue_id, claimed, bytes)
    }

    /// The head of a queue was not the cached one: another node claims from it.
    pub(crate) fn on_mispredict(&self, queue_id: i32) {
        self.heads.lock().on_mispredict(queue_id);
        self.scan_starts.lock().forget(queue_id);
    }

    /// Where to start the scan of a queue. `None`: at its beginning.
    pub(crate) fn scan_start(&self, queue_id: i32, now: Timestamp) -> Option<ReadyPosition> {
        self.scan_starts.lock().get(queue_id, now)
    }

    /// Must be called before the statement that scans these queues is sent.
    pub(crate) fn begin_scan(&self, queue_ids: impl Iterator<Item = i32>) -> ScanTicket {
        self.scan_starts.lock().begin(queue_ids)
    }

    /// Stores where the next scan of a queue starts, and its head.
    ///
    /// Neither is stored if a job became ready before that position while the scan ran: the scan's
    /// snapshot may be older than the job's commit.
    pub(crate) fn finish_scan(&self, scan: &FinishedScan<'_>) {
        let full_scan_at = match scan.coverage {
            ScanCoverage { full: true, partial: false } => Some(scan.now),
            ScanCoverage { full: false, .. } => None,
            // The full scan found jobs before the start of the partial one.
            ScanCoverage { full: true, partial: true } => return self.invalidate_queue(scan.queue_id),
        };
        if !self.scan_starts.lock().finish(scan.queue_id, scan.ticket, scan.first, full_scan_at) {
            self.heads.lock().clear_queue(scan.queue_id);
        } else if let Some(rows) = scan.head {
            self.heads.lock().store(scan.queue_id, rows);
        }
    }

    /// A job became ready at this position.
    pub(crate) fn on_ready(&self, queue_id: i32, position: ReadyPosition) {
        if self.scan_starts.lock().on_ready(queue_id, position) {
            self.heads.lock().clear_queue(queue_id);
        }
    }

    /// A job may have become ready anywhere in the queue.
    pub(crate) fn invalidate_queue(&self, queue_id: i32) {
        self.scan_starts.lock().on_ready(queue_id, START);
        self.heads.lock().clear_queue(queue_id);
    }

    /// A job may have become ready in any queue.
    pub(crate) fn invalidate_all(&self) {
        self.scan_starts.lock().clear();
        self.heads.lock().clear();
    }

    /// Returns the block, and the first of `count` consecutive numbers of it.
    pub(crate) fn allocate_seqs(&self, count: u64) -> Option<(u64, u64)> {
        self.seq_block.lock().allocate(count)
    }

    /// First number of the block in use; 0: none.
    pub(crate) fn seq_block(&self) -> u64 {
        self.seq_block.lock().first()
    }

    /// Stores a new block, of which the first `used` numbers are in use.
    pub(crate) fn store_seq_block(&self, first: u64, used: u64) {
        self.seq_block.lock().replace(first, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: i32 = 7;
    const FULL: ScanCoverage = ScanCoverage { full: true, partial: false };
    const PARTIAL: ScanCoverage = ScanCoverage { full: false, partial: true };

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    fn finish(cache: &NodeCache, ticket: ScanTicket, first: ReadyPosition, coverage: ScanCoverage) {
        let scan = FinishedScan { queue_id: QUEUE, ticket, first, coverage, now: now(), head: None };
        cache.finish_scan(&scan);
    }

    /// A submission commits while a claim scans with an older snapshot. The claim finishes last,
    /// and must not move the scan start past the submitted job.
    #[test]
    fn a_scan_does_not_hide_a_job_that_became_ready_while_it_ran() {
        for coverage in [FULL, PARTIAL] {
            let cache = NodeCache::default();
            let ticket = cache.begin_scan([QUEUE].into_iter());
            finish(&cache, ticket, (2, 5), FULL);
            let ticket = cache.begin_scan([QUEUE].into_iter());
            cache.on_ready(QUEUE, (2, 10));
            finish(&cache, ticket, (2, 11), coverage);
            assert_eq!(cache.scan_start(QUEUE, now()), None, "job 10 precedes the scan's first job");
            let ticket = cache.begin_scan([QUEUE].into_iter());
            finish(&cache, ticket, (2, 10), FULL);
            assert_eq!(cache.scan_start(QUEUE, now()), Some((2, 10)));
        }
    }

    #[test]
    fn jobs_that_become_ready_behind_the_scan_leave_its_start_valid() {
        let cache = NodeCache::default();
        let ticket = cache.begin_scan([QUEUE].into_iter());
        cache.on_ready(QUEUE, (2, 10));
        cache.on_ready(QUEUE + 1, (2, 1));
        finish(&cache, ticket, (2, 9), FULL);
        assert_eq!(cache.scan_start(QUEUE, now()), Some((2, 9)));
        cache.on_ready(QUEUE, (2, 8));
        assert_eq!(cache.scan_start(QUEUE, now()), None);
    }

    #[test]
    fn a_notification_during_a_scan_forces_a_full_scan() {
        let cache = NodeCache::default();
        let ticket = cache.begin_scan([QUEUE].into_iter());
        cache.invalidate_queue(QUEUE);
        finish(&cache, ticket, (2, 9), FULL);
        assert_eq!(cache.scan_start(QUEUE, now()), None);
        let ticket = cache.begin_scan([QUEUE].into_iter());
        cache.invalidate_all();
        cache.begin_scan([QUEUE].into_iter());
        finish(&cache, ticket, (2, 9), FULL);
        assert_eq!(cache.scan_start(QUEUE, now()), None);
    }

    #[test]
    fn more_ready_jobs_than_are_tracked_force_a_full_scan() {
        let cache = NodeCache::default();
        let ticket = cache.begin_scan([QUEUE].into_iter());
        (100..1_000).for_each(|position| cache.on_ready(QUEUE, (2, position)));
        finish(&cache, ticket, (2, 9), FULL);
        assert_eq!(cache.scan_start(QUEUE, now()), None);
    }
}
