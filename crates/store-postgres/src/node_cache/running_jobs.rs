//! Jobs that this node has handed out, as they are stored.

use std::collections::{HashMap, VecDeque};

use longshore_core::id::Seq;

use crate::row::JobRow;

const JOBS_MAX: usize = 65_536;
/// Longer records are not cached.
const RECORD_BYTES_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct RunningJobs {
    rows: HashMap<Seq, JobRow>,
    /// By age. Entries of jobs that are not cached any more are skipped.
    order: VecDeque<Seq>,
}

impl RunningJobs {
    pub(super) fn store(&mut self, rows: Vec<(Seq, JobRow)>) {
        for (seq, row) in rows.into_iter().filter(|(_, row)| row.record.len() <= RECORD_BYTES_MAX) {
            if self.rows.insert(seq, row).is_none() {
                self.order.push_back(seq);
            }
        }
        while self.order.len() > JOBS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.rows.remove(&oldest);
        }
    }

    pub(super) fn has_all(&self, seqs: &[Seq]) -> bool {
        seqs.iter().all(|seq| self.rows.contains_key(seq))
    }

    pub(super) fn take(&mut self, seqs: &[Seq]) -> Vec<(Seq, JobRow)> {
        seqs.iter().filter_map(|seq| Some((*seq, self.rows.remove(seq)?))).collect()
    }

    pub(super) fn evict(&mut self, seqs: &[i64]) {
        for seq in seqs {
            self.rows.remove(&Seq(seq.cast_unsigned()));
        }
    }
}
