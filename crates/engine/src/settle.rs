//! Settlements: workers end their leases.

use longshore_core::settle;
use longshore_core::state::StateKind;

use crate::command::Settlement;
use crate::context::{CommandContext, CommandError};
use crate::records::JobRecords;

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Result<StateKind, CommandError<R::Error>> {
        let Settlement { id, token, outcome } = settlement;
        outcome.check()?;
        let seq = self.find(*id)?;
        self.update_with_queue(seq, |job, queue, context| settle::settle(job, *token, outcome, queue, context))
    }
}
