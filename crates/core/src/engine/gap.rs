//! A store that was closed for a while: running jobs keep what was left of their leases.

use crate::state::State;
use crate::time::Timestamp;

use super::command::Outside;
use super::records::Records;
use super::{Engine, Turn, if_there};

impl Engine {
    /// Moves the ends of all leases that were live at `seen`, the last instant of the store before it was closed: see
    /// [`Lease::keep_remainder`](crate::lease::Lease::keep_remainder). Returns how many there were. Nothing else about the jobs changes.
    pub fn keep_remainders<R: Records>(&mut self, seen: Timestamp, outside: Outside<'_, R>) -> Result<usize, R::Error> {
        let leases = self.index.leases_after(seen);
        let Outside { records, dice, now, effects } = outside;
        let mut turn = Turn::new(self, records, dice, now, effects);
        for seq in &leases {
            if_there(turn.change(*seq, |job, moment| {
                if let State::Running(lease) = &mut job.state {
                    lease.keep_remainder(seen, moment.now);
                }
                Ok(())
            }))?;
        }
        Ok(leases.len())
    }
}
