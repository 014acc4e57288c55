//! Creates the jobs of a batch that passed all checks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longshore_core::QueueChange;
use longshore_core::dependency::{Dependencies, DependencyStatus, RequiredDependency, recompute};
use longshore_core::id::{JobId, Seq};
use longshore_core::job::TransitionContext;
use longshore_core::state::{StateKind, TerminalState};
use longshore_core::submit::{self, ResolvedSubmission};
use longshore_core::workflow::Membership;

use super::plan::{BatchItem, BatchPlan, DependencyTarget, JobPlan};
use super::workflow_membership::Memberships;
use super::{Submission, Submitted};
use crate::admin::status_of;
use crate::context::{CommandContext, CommandError, DependentChange};
use crate::queue::Queue;
use crate::records::{JobRecords, KeyEntry, PayloadSource, ScopedIdempotencyKey};

/// What the creation of a batch has produced so far.
struct Creation<'a> {
    plan: &'a BatchPlan,
    memberships: &'a Memberships,
    parent: Option<JobId>,
    /// The ids of the new jobs, by index.
    ids: Vec<Option<(JobId, Seq)>>,
    /// The statuses of existing dependencies and of the jobs created so far.
    statuses: HashMap<JobId, DependencyStatus>,
    states: HashMap<JobId, StateKind>,
    /// How many new jobs wait for each dependency: written once per dependency at the end.
    new_dependents: BTreeMap<JobId, u32>,
}

impl<R: JobRecords> CommandContext<'_, R> {
    /// Stores the batch. Jobs are numbered in the order of the batch and created in `order`.
    pub(super) fn create_jobs(
        &mut self,
        batch: &[&Submission],
        parent: Option<JobId>,
        plan: &BatchPlan,
        order: &[usize],
        memberships: &Memberships,
    ) -> Result<Vec<Submitted>, CommandError<R::Error>> {
        self.create_missing_queues(batch, plan)?;
        let is_new = |item: &Option<BatchItem>| matches!(item, Some(BatchItem::New(_)));
        let ids = plan.items.iter().map(|item| is_new(item).then(|| self.allocate_id())).collect();
        let statuses = plan.existing.iter().map(|(id, dependency)| (*id, dependency.status)).collect();
        let (states, new_dependents) = (HashMap::new(), BTreeMap::new());
        let mut creation = Creation { plan, memberships, parent, ids, statuses, states, new_dependents };
        for index in order {
            if let (Some(submission), Some(job)) = (batch.get(*index), plan.new_job_at(*index)) {
                self.create_item(*index, submission, job, &mut creation)?;
            }
        }
        let Creation { ids, states, new_dependents, .. } = creation;
        self.adjust_dependent_counts(new_dependents, DependentChange::Added)?;
        let mut results = plan.results(&ids, &states);
        for (result, membership) in results.iter_mut().zip(&memberships.by_index) {
            result.membership = membership.clone();
        }
        Ok(results)
    }

    /// Creates the queues of new jobs. A duplicate creates no queue.
    fn create_missing_queues(&mut self, batch: &[&Submission], plan: &BatchPlan) -> Result<(), CommandError<R::Error>> {
        for (Submission { queue, .. }, item) in batch.iter().zip(&plan.items) {
            if matches!(item, Some(BatchItem::New(_))) && self.engine.queue(queue).is_none() {
                self.save_queue(self.queue_for_submit(queue)?)?;
                self.emit_queue_change(queue, QueueChange::Created);
            }
        }
        Ok(())
    }

    fn create_item(
        &mut self,
        index: usize,
        submission: &Submission,
        job: &JobPlan,
        creation: &mut Creation<'_>,
    ) -> Result<(), CommandError<R::Error>> {
        let Some((id, seq)) = creation.id_at(index) else { return Ok(()) };
        let mut dependencies = creation.dependencies_of(index);
        let broken = recompute(&mut dependencies, |id| status_of(&creation.statuses, id));
        let queue = self.queue_for_submit(&submission.queue)?;
        let max_queued = queue.admission.max_queued.filter(|_| job.policy.profile.fails_when_full());
        let membership = creation.memberships.by_index.get(index).cloned().flatten();
        if let Some(Membership { workflow, reference }) = membership.as_ref().filter(|_| creation.memberships.named)
            && submission.job.reference.is_some()
        {
            self.records.set_member_ref(*workflow, reference, seq).map_err(CommandError::Storage)?;
        }
        let resolved = ResolvedSubmission {
            id,
            seq,
            queue: submission.queue.clone(),
            policy: Arc::clone(&job.policy),
            dependencies,
            inherited_priority: creation.plan.inherited_at(index).priority,
            broken,
            fails_queue_full: max_queued.is_some_and(|max| self.engine.index.queued_count(&submission.queue) >= max),
            parent: creation.parent,
            membership,
        };
        let state = self.create_job(submission, resolved, &queue, job.key.clone(), &mut creation.new_dependents)?;
        creation.states.insert(id, state);
        let status = TerminalState::of(state)
            .map_or(DependencyStatus::Alive, |ending| DependencyStatus::Ended(ending, self.now));
        creation.statuses.insert(id, status);
        Ok(())
    }

    fn allocate_id(&mut self) -> (JobId, Seq) {
        let seq = Seq(self.engine.next_seq);
        self.engine.next_seq += 1;
        (self.records.new_id(seq, self.rng), seq)
    }

    /// Stores one job with its idempotency key and dependency edges. Returns its state.
    fn create_job(
        &mut self,
        submission: &Submission,
        resolved: ResolvedSubmission,
        queue: &Queue,
        key: Option<ScopedIdempotencyKey>,
        new_dependents: &mut BTreeMap<JobId, u32>,
    ) -> Result<StateKind, CommandError<R::Error>> {
        let mut context = TransitionContext {
            now: self.now,
            rng: self.rng,
            next_seq: &mut self.engine.next_seq,
            lease_floor: self.engine.options.lease_floor,
            transitions: &mut self.transitions,
        };
        let job = submit::create(&submission.job, resolved, &queue.admission, &mut context);
        let (id, seq, state) = (job.id, job.seq, job.kind());
        let dependencies = job.dependencies.all();
        self.add(Box::new(job), PayloadSource::New(submission.job.payload.clone()))?;
        if let Some(key) = key {
            let entry = KeyEntry { id, seq, at: self.now, prune_at: None };
            self.records.put_key(key, entry).map_err(CommandError::Storage)?;
        }
        for id in &dependencies {
            if let Some(dependency) = self.records.seq_of(*id).map_err(CommandError::Storage)? {
                self.records.link(dependency, seq).map_err(CommandError::Storage)?;
            }
        }
        if !state.terminal() {
            for id in dependencies {
                *new_dependents.entry(id).or_default() += 1;
            }
        }
        Ok(state)
    }
}

impl Creation<'_> {
    fn id_at(&self, index: usize) -> Option<(JobId, Seq)> {
        self.ids.get(index).copied().flatten()
    }

    /// Returns the dependencies of an item as job ids.
    fn dependencies_of(&self, index: usize) -> Dependencies {
        let id_of = |target: &DependencyTarget| match target {
            DependencyTarget::Job(id) => Some(*id),
            DependencyTarget::Item(index) => self.id_at(*index).map(|(id, _)| id),
        };
        let Some(targets) = self.plan.dependencies.get(index) else { return Dependencies::default() };
        Dependencies {
            after: targets.after.iter().filter_map(id_of).map(RequiredDependency::unmet).collect(),
            after_any: targets.after_any.iter().filter_map(id_of).collect(),
            depth: self.plan.inherited_at(index).depth,
            ..Dependencies::default()
        }
    }
}
