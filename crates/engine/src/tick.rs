//! What time brings: a bounded number of things that are due, in the order in which they fell due.

use longshore_core::cancel;
use longshore_core::expire::{self, ExpiryOutcome};
use longshore_core::promote;
use longshore_core::time::Timestamp;

use crate::admin;
use crate::context::{CommandContext, ignore_missing};
use crate::engine::Effect;
use crate::index::{Entry, Timer, TimerKind};
use crate::records::{JobRecords, PruneTarget};

/// Budgets from here on keep a quarter for timers.
const TIMER_SHARE_BUDGET_MIN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// Jobs that were touched.
    pub done: usize,
    /// When to tick again; not later than the next thing that falls due. `None`: only a command can change anything.
    pub next: Option<Timestamp>,
}

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn tick(&mut self, budget: usize) -> Result<Ticked, R::Error> {
        let mut done = 0;
        // A long cascade, or a large queue that leaves, must not hold up what is due elsewhere.
        let share = if budget >= TIMER_SHARE_BUDGET_MIN { budget - budget / 4 } else { budget };
        while done < budget {
            if done < share {
                done += self.propagate(share - done)?;
            }
            if done < share
                && let Some(name) = self.engine.deleting_queues.first().cloned()
            {
                done += ignore_missing(self.delete_slice(&name, share - done))?.unwrap_or(1).max(1);
                continue;
            }
            if done < share && !self.engine.active_operations.is_empty() {
                done += self.run_operations(share - done)?.max(1);
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
        if self.engine.has_pending_work() {
            return Ok(Some(self.now));
        }
        let timer = self.engine.next_deadline(self.now);
        let prune = self.records.next_prune(self.now)?.map(|(at, _)| at);
        Ok(timer.into_iter().chain(prune).min())
    }

    fn fire(&mut self, timer: Timer) -> Result<(), R::Error> {
        let (_, kind, seq) = timer;
        let fired = match kind {
            TimerKind::Lifetime => ignore_missing(self.update(seq, |job, moment| {
                cancel::expire_lifetime(job, moment);
                Ok(None)
            })),
            TimerKind::Promotion => ignore_missing(self.update(seq, |job, moment| {
                promote::promote(job, moment);
                Ok(None)
            })),
            TimerKind::Deadline | TimerKind::LeaseExpiry => {
                ignore_missing(self.update_with_queue(seq, |job, home, moment| {
                    let expired = expire::expire(job, home, moment);
                    Ok((expired == ExpiryOutcome::Claimable).then(|| Entry::of(job)))
                }))
            }
        }?;
        // A timer that has fired is gone, even if its record was: ticks always get on.
        self.engine.drop_timer(timer);
        if let Some(entry) = fired.flatten() {
            self.effects.push(Effect::Claimable(entry.queue().clone()));
            self.engine.offer(entry);
        }
        Ok(())
    }

    fn prune(&mut self, prune: PruneTarget) -> Result<(), R::Error> {
        match prune {
            PruneTarget::Job(seq) => {
                let now = self.now;
                let due = self.with_job(seq, |job| job.prune_at().is_some_and(|at| at <= now));
                if ignore_missing(due)?.flatten() == Some(true) {
                    ignore_missing(admin::remove_job(self, seq))?;
                }
            }
            PruneTarget::Key(path) => self.records.remove_key(&path)?,
        }
        Ok(())
    }
}
