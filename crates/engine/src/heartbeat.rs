//! Heartbeats: workers renew their leases.

use longshore_core::heartbeat::{self, LeaseRenewal};

use crate::command::Heartbeat;
use crate::context::{CommandContext, CommandError};
use crate::records::JobRecords;

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<LeaseRenewal, CommandError<R::Error>> {
        let Heartbeat { id, token, notes } = heartbeat;
        let seq = self.find(*id)?;
        self.update_with_queue(seq, |job, queue, context| heartbeat::heartbeat(job, *token, notes, queue, context))
    }
}
