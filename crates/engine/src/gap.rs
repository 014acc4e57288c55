//! A store that was closed for a while: running jobs keep what was left of their leases.

use longshore_core::state::State;
use longshore_core::time::Timestamp;

use crate::command::ExecutionContext;
use crate::context::{CommandContext, ignore_missing};
use crate::engine::Engine;
use crate::records::JobRecords;

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
