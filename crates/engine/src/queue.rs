//! Queues: create, change, pause, delete.

use std::sync::Arc;

use longshore_core::QueueChange;
use longshore_core::cancel;
use longshore_core::id::QueueName;
use longshore_core::patch::SettingsPatch;
use longshore_core::policy::{AdmissionSettings, Policy, Settings};
use longshore_core::profile::Profile;
use longshore_core::refusal::{Invalid, Refusal};
use longshore_core::state::StateKind;

use crate::admin;
use crate::context::{BEING_DELETED, CommandContext, CommandError};
use crate::engine::Effect;
use crate::records::JobRecords;

/// A queue with its resolved settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub name: QueueName,
    pub profile: Profile,
    pub overrides: SettingsPatch,
    /// Shared by all jobs without overrides.
    pub policy: Arc<Policy>,
    pub admission: AdmissionSettings,
    pub paused: bool,
    /// Set while the queue is deleted in slices; it then accepts no commands.
    pub deleting: Option<QueueDeleteMode>,
}

/// What happens to the jobs of a deleted queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueDeleteMode {
    /// Cancels all unfinished jobs.
    Cancel,
    /// Deletes waiting jobs, fails jobs that wait for a retry, and lets running jobs finish.
    LetRunningFinish,
}

/// The condition and mode of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteQueue {
    IfEmpty,
    Force(QueueDeleteMode),
}

impl Queue {
    pub fn new(name: QueueName, profile: Profile, overrides: SettingsPatch) -> Result<Self, Invalid> {
        let Settings { policy, admission } = overrides.resolve(profile)?;
        Ok(Self { name, profile, overrides, policy: Arc::new(policy), admission, paused: false, deleting: None })
    }

    /// The queue of submissions that name none. It always exists.
    pub const DEFAULT: &'static str = "default";
}

impl<R: JobRecords> CommandContext<'_, R> {
    /// Creates or changes a queue. Returns whether it is new. `overrides` replaces all earlier
    /// ones.
    pub(crate) fn put_queue(
        &mut self,
        name: &QueueName,
        profile: Option<Profile>,
        overrides: Option<SettingsPatch>,
    ) -> Result<bool, CommandError<R::Error>> {
        let existing = self.engine.queues.get(name);
        if existing.is_some_and(|queue| queue.deleting.is_some()) {
            return Err(Refusal::Illegal(BEING_DELETED).into());
        }
        let created = existing.is_none();
        let paused = existing.is_some_and(|queue| queue.paused);
        let old_profile = existing.map_or(self.engine.options.default_profile, |queue| queue.profile);
        let profile = profile.unwrap_or(old_profile);
        // A change of profile drops the overrides: they were relative to the old profile.
        let kept = existing.filter(|queue| queue.profile == profile).map(|queue| queue.overrides.clone());
        let mut queue = Queue::new(name.clone(), profile, overrides.or(kept).unwrap_or_default())?;
        queue.paused = paused;
        let is_same = existing.is_some_and(|existing| **existing == queue);
        self.save_queue(Arc::new(queue))?;
        if created {
            self.emit_queue_change(name, QueueChange::Created);
        } else if !is_same {
            self.emit_queue_change(name, QueueChange::Changed);
        }
        Ok(created)
    }

    pub(crate) fn save_queue(&mut self, queue: Arc<Queue>) -> Result<(), CommandError<R::Error>> {
        self.records.put_queue(&queue).map_err(CommandError::Storage)?;
        self.engine.set_queue(queue.name.clone(), Some(queue));
        Ok(())
    }

    pub(crate) fn set_paused(&mut self, name: &QueueName, paused: bool) -> Result<(), CommandError<R::Error>> {
        let mut queue = self.engine.queue(name).ok_or(Refusal::QueueNotFound)?.as_ref().clone();
        let was_paused = std::mem::replace(&mut queue.paused, paused);
        self.save_queue(Arc::new(queue))?;
        if was_paused != paused {
            self.emit_queue_change(name, if paused { QueueChange::Paused } else { QueueChange::Resumed });
        }
        if !paused {
            self.effects.push(Effect::Claimable(name.clone()));
        }
        Ok(())
    }

    pub(crate) fn delete_queue(&mut self, name: &QueueName, how: DeleteQueue) -> Result<(), CommandError<R::Error>> {
        let mut queue = self.engine.queue(name).ok_or(Refusal::QueueNotFound)?.as_ref().clone();
        if name.as_str() == Queue::DEFAULT {
            return Err(Refusal::Illegal("the queue \"default\" always exists").into());
        }
        let mode = match how {
            DeleteQueue::IfEmpty => match self.engine.index.unfinished_count(name) {
                0 => QueueDeleteMode::Cancel,
                jobs => return Err(Refusal::QueueNotEmpty { jobs }.into()),
            },
            DeleteQueue::Force(mode) => mode,
        };
        queue.deleting = Some(mode);
        self.save_queue(Arc::new(queue))?;
        self.engine.deleting_queues.insert(name.clone());
        self.delete_slice(name, self.engine.options.cascade_jobs_max)?;
        self.emit_queue_change(name, QueueChange::Deleted);
        Ok(())
    }

    /// Reports a change of a queue to the event stream.
    pub(crate) fn emit_queue_change(&mut self, name: &QueueName, change: QueueChange) {
        self.effects.push(Effect::Queue { name: name.clone(), change, at: self.now });
    }

    /// Ends up to `jobs_max` jobs of a queue that is being deleted, and removes the queue with the
    /// last one. Returns how many jobs it changed.
    pub(crate) fn delete_slice(&mut self, name: &QueueName, jobs_max: usize) -> Result<usize, CommandError<R::Error>> {
        let Some(mode) = self.engine.queues.get(name).and_then(|queue| queue.deleting) else { return Ok(0) };
        let states: &[StateKind] = match mode {
            QueueDeleteMode::Cancel => {
                &[StateKind::Running, StateKind::Scheduled, StateKind::Delayed, StateKind::Retrying, StateKind::Pending]
            }
            QueueDeleteMode::LetRunningFinish => {
                &[StateKind::Scheduled, StateKind::Delayed, StateKind::Retrying, StateKind::Pending]
            }
        };
        let mut jobs = Vec::new();
        for state in states {
            let slice = self.records.jobs_in_state(name, *state, jobs_max).map_err(CommandError::Storage)?;
            jobs.extend(slice.into_iter().map(|seq| (seq, *state)));
        }
        // In order of creation: the result must not depend on the size of a slice.
        jobs.sort_unstable_by_key(|(seq, _)| *seq);
        jobs.truncate(jobs_max);
        for (seq, state) in &jobs {
            self.update(*seq, |job, context| {
                match mode {
                    QueueDeleteMode::Cancel => cancel::cancel_with_queue(job, context),
                    QueueDeleteMode::LetRunningFinish if *state == StateKind::Retrying => {
                        cancel::fail_retry_with_queue(job, context);
                    }
                    QueueDeleteMode::LetRunningFinish => cancel::cancel_and_prune_with_queue(job, context),
                }
                Ok(())
            })?;
        }
        if mode == QueueDeleteMode::LetRunningFinish {
            // Dependents receive the end before the record is removed. A job with too many
            // dependents for one slice is removed by a later tick.
            self.propagate(jobs_max).map_err(CommandError::Storage)?;
            for (seq, _) in jobs.iter().filter(|(_, state)| *state != StateKind::Retrying) {
                admin::remove_job(self, *seq)?;
            }
        }
        if jobs.len() >= jobs_max {
            return Ok(jobs.len());
        }
        self.records.remove_queue(name).map_err(CommandError::Storage)?;
        self.engine.set_queue(name.clone(), None);
        self.engine.deleting_queues.remove(name);
        Ok(jobs.len())
    }
}
