//! Queues: created, changed, paused, deleted.

use std::sync::Arc;

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

#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub name: QueueName,
    pub profile: Profile,
    pub overrides: SettingsPatch,
    /// Shared by all jobs that bring no overrides of their own.
    pub policy: Arc<Policy>,
    pub intake: AdmissionSettings,
    pub paused: bool,
    /// On its way out: closed to everybody, while its jobs are ended slice by slice.
    pub deleting: Option<QueueDeleteMode>,
}

/// What becomes of the jobs of a deleted queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueDeleteMode {
    /// All that live are cancelled.
    Cancel,
    /// Waiting jobs are deleted, waiting retries end as failures, running ones may finish.
    LetRunningFinish,
}

/// How a queue is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteQueue {
    IfEmpty,
    Force(QueueDeleteMode),
}

impl Queue {
    pub fn new(name: QueueName, profile: Profile, overrides: SettingsPatch) -> Result<Self, Invalid> {
        let Settings { policy, intake } = overrides.resolve(profile)?;
        Ok(Self { name, profile, overrides, policy: Arc::new(policy), intake, paused: false, deleting: None })
    }

    /// The queue that jobs go to when nobody names one.
    pub const DEFAULT: &'static str = "default";
}

impl<R: JobRecords> CommandContext<'_, R> {
    /// Creates or changes a queue; says whether it is new. `overrides`, when given, replaces all earlier ones.
    pub(crate) fn put_queue(
        &mut self,
        name: &QueueName,
        profile: Option<Profile>,
        overrides: Option<SettingsPatch>,
    ) -> Result<bool, CommandError<R::Error>> {
        let known = self.engine.queues.get(name);
        if known.is_some_and(|queue| queue.deleting.is_some()) {
            return Err(Refusal::Illegal(BEING_DELETED).into());
        }
        let fresh = known.is_none();
        let paused = known.is_some_and(|queue| queue.paused);
        let old_profile = known.map_or(self.engine.options.default_profile, |queue| queue.profile);
        let profile = profile.unwrap_or(old_profile);
        // Another profile starts from its own settings: overrides of the old one would mean something else.
        let kept = known.filter(|queue| queue.profile == profile).map(|queue| queue.overrides.clone());
        let mut queue = Queue::new(name.clone(), profile, overrides.or(kept).unwrap_or_default())?;
        queue.paused = paused;
        self.save_queue(Arc::new(queue))?;
        Ok(fresh)
    }

    pub(crate) fn save_queue(&mut self, queue: Arc<Queue>) -> Result<(), CommandError<R::Error>> {
        self.records.put_queue(&queue).map_err(CommandError::Broken)?;
        self.engine.set_queue(queue.name.clone(), Some(queue));
        Ok(())
    }

    pub(crate) fn set_paused(&mut self, name: &QueueName, paused: bool) -> Result<(), CommandError<R::Error>> {
        let mut queue = self.engine.queue(name).ok_or(Refusal::QueueNotFound)?.as_ref().clone();
        queue.paused = paused;
        self.save_queue(Arc::new(queue))?;
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
        let farewell = match how {
            DeleteQueue::IfEmpty => match self.engine.index.unfinished_count(name) {
                0 => QueueDeleteMode::Cancel,
                jobs => return Err(Refusal::QueueNotEmpty { jobs }.into()),
            },
            DeleteQueue::Force(farewell) => farewell,
        };
        queue.deleting = Some(farewell);
        self.save_queue(Arc::new(queue))?;
        self.engine.deleting_queues.insert(name.clone());
        self.delete_slice(name, self.engine.options.cascade_jobs_max)?;
        Ok(())
    }

    /// Ends some of the jobs of a queue that is leaving, and the queue itself with the last of them. Says how many jobs it touched.
    pub(crate) fn delete_slice(&mut self, name: &QueueName, jobs_max: usize) -> Result<usize, CommandError<R::Error>> {
        let Some(farewell) = self.engine.queues.get(name).and_then(|queue| queue.deleting) else { return Ok(0) };
        let states: &[StateKind] = match farewell {
            QueueDeleteMode::Cancel => {
                &[StateKind::Running, StateKind::Scheduled, StateKind::Delayed, StateKind::Retrying, StateKind::Pending]
            }
            QueueDeleteMode::LetRunningFinish => {
                &[StateKind::Scheduled, StateKind::Delayed, StateKind::Retrying, StateKind::Pending]
            }
        };
        let mut jobs = Vec::new();
        for state in states {
            let of_state = self.records.jobs_in_state(name, *state, jobs_max).map_err(CommandError::Broken)?;
            jobs.extend(of_state.into_iter().map(|seq| (seq, *state)));
        }
        // In order of creation, however many fit into a slice.
        jobs.sort_unstable_by_key(|(seq, _)| *seq);
        jobs.truncate(jobs_max);
        for (seq, state) in &jobs {
            self.update(*seq, |job, moment| {
                match farewell {
                    QueueDeleteMode::Cancel => cancel::cancel_with_queue(job, moment),
                    QueueDeleteMode::LetRunningFinish if *state == StateKind::Retrying => {
                        cancel::fail_retry_with_queue(job, moment);
                    }
                    QueueDeleteMode::LetRunningFinish => cancel::cancel_and_prune_with_queue(job, moment),
                }
                Ok(())
            })?;
        }
        if farewell == QueueDeleteMode::LetRunningFinish {
            // Their dependents hear of it first; whoever has too many to be told at once goes with a later tick.
            self.propagate(jobs_max).map_err(CommandError::Broken)?;
            for (seq, _) in jobs.iter().filter(|(_, state)| *state != StateKind::Retrying) {
                admin::remove_job(self, *seq)?;
            }
        }
        if jobs.len() >= jobs_max {
            return Ok(jobs.len());
        }
        self.records.remove_queue(name).map_err(CommandError::Broken)?;
        self.engine.set_queue(name.clone(), None);
        self.engine.deleting_queues.remove(name);
        Ok(jobs.len())
    }
}
