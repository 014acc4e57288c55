//! The end of a job reaches its dependents; a requeue brings back those that ended through it. In bounded slices.

use std::collections::VecDeque;

use crate::cancel;
use crate::dependency::{self, Revival};
use crate::id::{JobId, Seq};
use crate::retry::Home;
use crate::state::{Ending, StateKind};

use super::operate::standing;
use super::records::Records;
use super::{Stop, Turn, if_there};

impl<R: Records> Turn<'_, R> {
    /// Tells up to `jobs_max` dependents of ended jobs, those first that ended first. Says how many it told.
    pub(crate) fn tell_dependents(&mut self, jobs_max: usize) -> Result<usize, R::Error> {
        let mut told = 0;
        while told < jobs_max {
            let Some((seq, after)) = self.engine.owed.front().copied() else { break };
            let seen = self.look(seq, |job| (job.id, Ending::of(job.kind()), job.owes_dependents));
            let Some(Some((id, Some(ending), true))) = if_there(seen)? else {
                // Requeued meanwhile, or gone: nothing is owed any more.
                self.engine.owed.pop_front();
                continue;
            };
            let slice = self.records.dependents(seq, after, jobs_max - told)?;
            told += slice.len().max(1);
            for dependent in &slice {
                if_there(self.change_at_home(*dependent, |job, home, moment| {
                    match home {
                        Home::Exists(_) => dependency::hear_of_end(job, id, ending, moment),
                        // Its queue is leaving and would end it a little later: the slices must not show.
                        Home::Deleted if job.kind() == StateKind::Pending => cancel::end_with_queue(job, moment),
                        Home::Deleted => {}
                    }
                    Ok(())
                }))?;
            }
            // The look above took the front, and telling only appends: it is still the same.
            match (slice.last(), self.engine.owed.front_mut()) {
                (Some(last), Some(front)) => front.1 = *last,
                (None, _) => {
                    self.engine.owed.pop_front();
                    if_there(self.change(seq, |job, _| {
                        job.owes_dependents = false;
                        Ok(())
                    }))?;
                }
                (Some(_), None) => {}
            }
        }
        Ok(told)
    }

    /// Returns the dependents that ended through this job to pending, and theirs, and so on.
    pub(crate) fn revive_dependents(&mut self, seq: Seq, id: JobId) -> Result<(), Stop<R::Error>> {
        let mut revived = VecDeque::from([(seq, id)]);
        while let Some((seq, id)) = revived.pop_front() {
            let mut after = Seq(0);
            loop {
                let slice =
                    self.records.dependents(seq, after, self.engine.options.cascade_jobs_max).map_err(Stop::Broken)?;
                let Some(last) = slice.last() else { break };
                after = *last;
                for dependent in slice {
                    revived.extend(self.revive_one(dependent, id)?);
                }
            }
        }
        Ok(())
    }

    fn revive_one(&mut self, seq: Seq, dependency: JobId) -> Result<Option<(Seq, JobId)>, Stop<R::Error>> {
        let seen = self.look(seq, |job| {
            let through = job.dependencies.ended_through;
            let concerned = through.is_some_and(|through| through.dependency == dependency);
            concerned.then(|| (job.id, job.queue.clone(), job.dependencies.all().collect::<Vec<_>>()))
        })?;
        let Some((id, queue, dependencies)) = seen.flatten() else { return Ok(None) };
        if self.engine.queue(&queue).is_none() {
            return Ok(None);
        }
        let standings = self.standings(&dependencies)?;
        let revival = self.change(seq, |job, moment| {
            Ok(dependency::revive(job, dependency, |id| standing(&standings, id), moment))
        })?;
        Ok(match revival {
            Revival::Revived => Some((seq, id)),
            Revival::Untouched | Revival::StaysEnded => None,
        })
    }
}
