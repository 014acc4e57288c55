//! The time in which a store was closed does not count against running leases.

use longshore_core::state::State;
use longshore_core::time::Timestamp;

use crate::command::ExecutionContext;
use crate::context::{CommandContext, ignore_missing};
use crate::engine::Engine;
use crate::records::JobRecords;

impl Engine {
    /// Extends all leases that end after `ended_by` by the time in which the store was closed.
    ///
    /// `last_seen` is the last known instant of the store before it was closed. `ended_by` is the
    /// same, or later if the store may have worked on for a while. Returns the number of leases;
    /// see [`Lease::keep_remainder`](longshore_core::lease::Lease::keep_remainder).
    pub fn keep_remainders<R: JobRecords>(
        &mut self,
        last_seen: Timestamp,
        ended_by: Timestamp,
        context: ExecutionContext<'_, R>,
    ) -> Result<usize, R::Error> {
        let leases = self.index.leases_after(ended_by.max(last_seen));
        let ExecutionContext { records, rng, now, effects } = context;
        let mut context = CommandContext::new(self, records, rng, now, effects);
        for seq in &leases {
            ignore_missing(context.update(*seq, |job, context| {
                if let State::Running(lease) = &mut job.state {
                    lease.keep_remainder(last_seen, context.now);
                }
                Ok(())
            }))?;
        }
        Ok(leases.len())
    }
}
