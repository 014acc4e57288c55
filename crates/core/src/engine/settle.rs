//! What workers say about the jobs they hold: settlements and heartbeats.

use crate::heartbeat::{self, LeaseRenewal};
use crate::settle;
use crate::state::StateKind;

use super::command::{Heartbeat, Settlement};
use super::records::JobRecords;
use super::{CommandContext, CommandError};

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Result<StateKind, CommandError<R::Error>> {
        let Settlement { id, token, outcome } = settlement;
        outcome.check()?;
        let seq = self.find(*id)?;
        self.update_with_queue(seq, |job, home, moment| settle::settle(job, *token, outcome, home, moment))
    }

    pub(crate) fn extend(&mut self, extension: &Heartbeat) -> Result<LeaseRenewal, CommandError<R::Error>> {
        let Heartbeat { id, token, notes } = extension;
        let seq = self.find(*id)?;
        self.update_with_queue(seq, |job, home, moment| heartbeat::extend(job, *token, notes, home, moment))
    }
}
