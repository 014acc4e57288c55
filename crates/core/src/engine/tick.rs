//! What time brings: a bounded number of things that are due, in the order in which they fell due.

use crate::cancel;
use crate::expire::{self, Expired};
use crate::promote;
use crate::time::Timestamp;

use super::index::{Entry, Timer, TimerKind};
use super::records::{Prune, Records};
use super::{Effect, Turn, admin, if_there};

/// Budgets from here on keep a quarter for timers.
const SHARED_FROM: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// Jobs that were touched.
    pub done: usize,
    /// When to tick again; not later than the next thing that falls due. `None`: only a command can change anything.
    pub next: Option<Timestamp>,
}

impl<R: Records> Turn<'_, R> {
    pub(crate) fn tick(&mut self, budget: usize) -> Result<Ticked, R::Error> {
        let mut done = 0;
        // A long cascade, or a large queue that leaves, must not hold up what is due elsewhere.
        let share = if budget >= SHARED_FROM { budget - budget / 4 } else { budget };
        while done < budget {
            if done < share {
                done += self.tell_dependents(share - done)?;
            }
            if done < share
                && let Some(name) = self.engine.leaving.first().cloned()
            {
                done += if_there(self.clear_out(&name, share - done))?.unwrap_or(1).max(1);
                continue;
            }
            if done < share && !self.engine.errands.is_empty() {
                done += self.run_errands(share - done)?.max(1);
                continue;
            }
            if done >= budget {
                break;
            }
            let timer = self.engine.index.next_timer().filter(|(at, ..)| *at <= self.now);
            let prune = self.records.next_prune(self.now)?.filter(|(at, _)| *at <= self.now);
            // On the same instant timers come first: retention is the last in order.
            match (timer, prune) {
                (Some(timer), None) => self.fire(timer)?,
                (Some(timer), Some((prune_at, _))) if timer.0 <= prune_at => self.fire(timer)?,
                (_, Some((_, prune))) => self.prune(prune)?,
                (None, None) => break,
            }
            done += 1;
        }
        Ok(Ticked { done, next: self.next_deadline()? })
    }

    fn next_deadline(&mut self) -> Result<Option<Timestamp>, R::Error> {
        if self.engine.unfinished() {
            return Ok(Some(self.now));
        }
        let timer = self.engine.next_deadline(self.now);
        let prune = self.records.next_prune(self.now)?.map(|(at, _)| at);
        Ok(timer.into_iter().chain(prune).min())
    }

    fn fire(&mut self, timer: Timer) -> Result<(), R::Error> {
        let (_, kind, seq) = timer;
        let fired = match kind {
            TimerKind::Lifetime => if_there(self.change(seq, |job, moment| {
                cancel::end_lifetime(job, moment);
                Ok(None)
            })),
            TimerKind::Promotion => if_there(self.change(seq, |job, moment| {
                promote::promote(job, moment);
                Ok(None)
            })),
            TimerKind::Deadline | TimerKind::LeaseExpiry => if_there(self.change_at_home(seq, |job, home, moment| {
                let expired = expire::expire(job, home, moment);
                Ok((expired == Expired::Claimable).then(|| Entry::of(job)))
            })),
        }?;
        // A timer that has fired is gone, even if its record was: ticks always get on.
        self.engine.drop_timer(timer);
        if let Some(entry) = fired.flatten() {
            self.effects.push(Effect::Claimable(entry.queue().clone()));
            self.engine.offer(entry);
        }
        Ok(())
    }

    fn prune(&mut self, prune: Prune) -> Result<(), R::Error> {
        match prune {
            Prune::Job(seq) => {
                let now = self.now;
                let due = self.look(seq, |job| job.prune_at().is_some_and(|at| at <= now));
                if if_there(due)?.flatten() == Some(true) {
                    if_there(admin::forget(self, seq))?;
                }
            }
            Prune::Key(path) => self.records.remove_key(&path)?,
        }
        Ok(())
    }
}
