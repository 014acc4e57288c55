//! What workers say about the jobs they hold: settlements and heartbeats.

use crate::heartbeat::{self, Extended};
use crate::settle;
use crate::state::StateKind;

use super::command::{Extension, Settlement};
use super::records::Records;
use super::{Stop, Turn};

impl<R: Records> Turn<'_, R> {
    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Result<StateKind, Stop<R::Error>> {
        let Settlement { id, token, outcome } = settlement;
        outcome.check()?;
        let seq = self.find(*id)?;
        self.change_at_home(seq, |job, home, moment| settle::settle(job, *token, outcome, home, moment))
    }

    pub(crate) fn extend(&mut self, extension: &Extension) -> Result<Extended, Stop<R::Error>> {
        let Extension { id, token, notes } = extension;
        let seq = self.find(*id)?;
        self.change_at_home(seq, |job, home, moment| heartbeat::extend(job, *token, notes, home, moment))
    }
}
