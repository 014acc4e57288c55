//! The tick: handles a bounded number of due timers and pending work, in the order of their
//! deadlines.

use longshore_core::cancel;
use longshore_core::expire::{self, ExpiryOutcome};
use longshore_core::promote;
use longshore_core::time::Timestamp;

use crate::admin;
use crate::context::{CommandContext, ignore_missing};
use crate::engine::Effect;
use crate::index::{IndexEntry, Timer, TimerKind};
use crate::records::{JobRecords, PruneTarget};

/// From this budget on, a quarter of it is reserved for timers and retention.
const TIMER_SHARE_BUDGET_MIN: usize = 16;

/// The result of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// How many jobs the tick changed.
    pub done: usize,
    /// When to tick again: no later than the next deadline. `None`: only a command can create work.
    pub next: Option<Timestamp>,
}

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn tick(&mut self, budget: usize) -> Result<Ticked, R::Error> {
        let mut done = 0;
        // A long cascade or the delete of a large queue must not delay the timers of other jobs.
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
            // Timers precede retention at the same instant.
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
            TimerKind::Lifetime => ignore_missing(self.update(seq, |job, context| {
                cancel::expire_lifetime(job, context);
                Ok(None)
            })),
            TimerKind::Promotion => ignore_missing(self.update(seq, |job, context| {
                promote::promote(job, context);
                Ok(None)
            })),
            TimerKind::Deadline | TimerKind::LeaseExpiry => {
                ignore_missing(self.update_with_queue(seq, |job, queue, context| {
                    let expired = expire::expire(job, queue, context);
                    Ok((expired == ExpiryOutcome::Claimable).then(|| IndexEntry::of(job)))
                }))
            }
        }?;
        // Remove the timer even if its record is missing: otherwise the tick would never get past
        // it.
        self.engine.drop_timer(timer);
        if let Some(entry) = fired.flatten() {
            self.effects.push(Effect::Claimable(entry.queue().clone()));
            self.engine.mark_reclaimable(entry);
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
