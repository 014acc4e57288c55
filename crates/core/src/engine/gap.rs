//! A store that was closed for a while: running jobs keep what was left of their leases.

use crate::state::State;
use crate::time::Timestamp;

use super::command::ExecutionContext;
use super::records::JobRecords;
use super::{CommandContext, Engine, ignore_missing};

impl Engine {
    /// Moves the ends of all leases that were live at `seen`, the last instant of the store before it was closed: see
    /// [`Lease::keep_remainder`](crate::lease::Lease::keep_remainder). Returns how many there were. Nothing else about the jobs changes.
    pub fn keep_remainders<R: JobRecords>(
        &mut self,
        seen: Timestamp,
        outside: ExecutionContext<'_, R>,
    ) -> Result<usize, R::Error> {
        let leases = self.index.leases_after(seen);
        let ExecutionContext { records, rng, now, effects } = outside;
        let mut turn = CommandContext::new(self, records, rng, now, effects);
        for seq in &leases {
            ignore_missing(turn.update(*seq, |job, moment| {
                if let State::Running(lease) = &mut job.state {
                    lease.keep_remainder(seen, moment.now);
                }
                Ok(())
            }))?;
        }
        Ok(leases.len())
    }
}
