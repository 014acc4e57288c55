//! The first jobs of queues, prefetched for the next claims.

use std::collections::HashMap;

use longshore_core::id::Seq;
use tokio_postgres::Row;

use super::QUEUES_MAX;
use crate::row::JobRow;

/// Jobs of one head, and the bytes of their payloads.
const HEAD_MAX: usize = 1_000;
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Claims of the last size that a head should serve.
const PREFETCH_CLAIMS: usize = 4;
/// Claims without a prefetch after a misprediction.
const COOLDOWN_CLAIMS: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct QueueHeads(HashMap<i32, QueueHead>);

#[derive(Debug, Default)]
struct QueueHead {
    jobs: Vec<(Seq, JobRow)>,
    cooldown: u32,
}

impl QueueHeads {
    /// A head that is too short is dropped: the claim that follows reads the queue.
    pub(super) fn take(&mut self, queue_id: i32, length: usize) -> Option<Vec<(Seq, JobRow)>> {
        let head = self.0.get_mut(&queue_id)?;
        if length == 0 || head.jobs.len() < length {
            head.jobs.clear();
            return None;
        }
        Some(head.jobs.drain(..length).collect())
    }

    /// Returns 0 while the head suffices, or during a cooldown.
    pub(super) fn prefetch_size(&mut self, queue_id: i32, claimed: usize, bytes: usize) -> usize {
        if self.0.len() >= QUEUES_MAX && !self.0.contains_key(&queue_id) {
            self.0.clear();
        }
        let head = self.0.entry(queue_id).or_default();
        if head.cooldown > 0 {
            head.cooldown -= 1;
            return 0;
        }
        if head.jobs.len() >= claimed {
            return 0;
        }
        let bytes_per_job = bytes / claimed.max(1) + 1;
        (PREFETCH_CLAIMS * claimed).min(HEAD_MAX).min(HEAD_BYTES_MAX / bytes_per_job)
    }

    /// Stores the jobs up to the first that cannot be decoded or was too large to be read.
    pub(super) fn store(&mut self, queue_id: i32, rows: &[Row]) {
        let jobs: Vec<(Seq, JobRow)> = rows.iter().map_while(|row| JobRow::claimable(row).ok()).collect();
        let bytes: usize = jobs.iter().filter_map(|(_, row)| Some(row.payload.as_ref()?.bytes().len())).sum();
        let jobs = if bytes <= HEAD_BYTES_MAX { jobs } else { Vec::new() };
        self.0.entry(queue_id).or_default().jobs = jobs;
    }

    pub(super) fn on_mispredict(&mut self, queue_id: i32) {
        *self.0.entry(queue_id).or_default() = QueueHead { jobs: Vec::new(), cooldown: COOLDOWN_CLAIMS };
    }

    pub(super) fn clear_queue(&mut self, queue_id: i32) {
        if let Some(head) = self.0.get_mut(&queue_id) {
            head.jobs.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
