//! Submission of a batch: all checks come first, then all jobs are stored, or none.

mod create;
mod dependencies;
mod plan;
mod request;
mod workflow_membership;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_core::id::{JobId, QueueName};
use longshore_core::job::{IdempotencyKey, Job};
use longshore_core::lease;
use longshore_core::policy::SubmitMode;
use longshore_core::refusal::Refusal;
use longshore_core::submit::{self, DependencyRef, NewJob};

use plan::{BatchItem, BatchPlan, JobPlan, topological_order};
use request::ItemRefs;
use workflow_membership::{WorkflowBinding, check_length};

pub use request::{
    BatchRefusal, InvalidSubmission, ParsedSubmission, Submission, SubmitRequest, Submitted, WorkflowTarget,
};

use crate::context::{CommandContext, CommandError};
use crate::queue::Queue;
use crate::records::{JobRecords, ScopedIdempotencyKey};

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn submit_request(
        &mut self,
        request: &SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, R::Error> {
        match self.submit(request) {
            Ok(result) => Ok(result),
            Err(CommandError::Refused(refusal)) => Ok(Err(refusal.into())),
            Err(CommandError::Storage(error)) => Err(error),
        }
    }

    fn submit(
        &mut self,
        request: &SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, CommandError<R::Error>> {
        let SubmitRequest { batch, parent, finally, require_profile, joining } = request;
        let mut binding = WorkflowBinding::Nothing;
        if let Some((parent, token)) = parent {
            let (seq, now) = (self.find(*parent)?, self.now);
            let workflow = self.with_job(seq, |job| lease::check(job, *token, now).map(|_| job.workflow()))?;
            if let Some(workflow) = workflow.ok_or(Refusal::JobNotFound)?? {
                binding = WorkflowBinding::Unnamed(workflow);
            }
        }
        if let Some(target) = joining {
            binding = self.check_target(target)?;
        }
        check_length(batch, joining.as_ref())?;
        if let Some(profile) = require_profile {
            let matches = |name: &QueueName| self.engine.queue(name).is_some_and(|queue| queue.profile == *profile);
            if !batch.iter().flatten().all(|submission| matches(&submission.queue)) {
                return Err(Refusal::QueueNotFound.into());
            }
        }
        let parent = parent.map(|(parent, _)| parent);
        match finally {
            None => self.submit_batch(batch, parent, &binding),
            Some(finally) => {
                let mut last = ParsedSubmission::clone(finally);
                let group = (0..batch.len()).map(DependencyRef::BatchIndex);
                match &mut last {
                    Ok(submission) => submission.job.after.extend(group),
                    Err(invalid) => invalid.after.extend(group),
                }
                let batch: Vec<ParsedSubmission> = batch.iter().cloned().chain([last]).collect();
                self.submit_batch(&batch, parent, &binding)
            }
        }
    }

    fn submit_batch(
        &mut self,
        batch: &[ParsedSubmission],
        parent: Option<JobId>,
        binding: &WorkflowBinding,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, CommandError<R::Error>> {
        let items: Vec<ItemRefs<'_>> = batch.iter().map(ItemRefs::of).collect();
        let mut plan = BatchPlan::new(batch.len());
        let (refs, repeated) = submit::index_refs(items.iter().map(|item| item.reference));
        let refused: HashSet<usize> = repeated.iter().map(|(index, _)| *index).collect();
        plan.errors.extend(repeated);
        for (index, parsed) in batch.iter().enumerate() {
            let item = match parsed {
                _ if refused.contains(&index) => None,
                Ok(submission) => self.plan_item_or_refuse(index, submission, &mut plan)?,
                Err(invalid) => {
                    plan.errors.push((index, invalid.refusal.clone()));
                    None
                }
            };
            plan.items.push(item);
        }
        if let WorkflowBinding::Open(workflow) = binding {
            self.resolve_member_refs(*workflow, &items, &refs, &mut plan)?;
        }
        let dependency_errors = self.resolve_dependencies(&items, &refs, &mut plan)?;
        self.check_queue_capacity(batch, &mut plan);
        plan.errors.extend(dependency_errors);
        let order = topological_order(&mut plan, &items);
        if !plan.errors.is_empty() {
            return Ok(Err(plan.into_refusal()));
        }
        // Without errors every item is valid: the indexes of the plan stay the same.
        let batch: Vec<&Submission> = batch.iter().flatten().collect();
        let memberships = match self.join(&batch, binding, &plan)? {
            Ok(memberships) => memberships,
            Err(existing) => return Ok(Ok(existing)),
        };
        Ok(Ok(self.create_jobs(&batch, parent, &plan, &order, &memberships)?))
    }

    /// Plans one item; a refusal becomes an error of the plan.
    fn plan_item_or_refuse(
        &mut self,
        index: usize,
        submission: &Submission,
        plan: &mut BatchPlan,
    ) -> Result<Option<BatchItem>, CommandError<R::Error>> {
        match self.plan_item(index, submission, plan) {
            Ok(item) => Ok(Some(item)),
            Err(CommandError::Refused(refusal)) => {
                plan.errors.push((index, refusal));
                Ok(None)
            }
            Err(error @ CommandError::Storage(_)) => Err(error),
        }
    }

    /// Checks one item without its dependencies, and finds out whether it is a duplicate.
    fn plan_item(
        &mut self,
        index: usize,
        submission: &Submission,
        plan: &mut BatchPlan,
    ) -> Result<BatchItem, CommandError<R::Error>> {
        let Submission { queue: name, job: new } = submission;
        let queue = self.queue_for_submit(name)?;
        let policy = submit::check(new, &queue.policy, &queue.admission)?;
        let key = scoped_key(new, &queue);
        if let Some(key) = &key {
            if let Some(first) = plan.keys.get(key) {
                return Ok(BatchItem::DuplicateInBatch(*first));
            }
            if let Some(existing) = self.find_by_idempotency_key(key, &queue)? {
                return Ok(BatchItem::Duplicate(existing));
            }
            plan.keys.insert(key.clone(), index);
        }
        if let Some(external_id) = &new.external_id {
            let in_batch = !plan.external_ids.insert((name.clone(), Arc::clone(external_id)));
            let in_store = self.records.external_id(name, external_id).map_err(CommandError::Storage)?.is_some();
            if in_batch || in_store {
                return Err(Refusal::DuplicateId.into());
            }
        }
        let held = new.hold.unwrap_or(queue.admission.submit == SubmitMode::Explicit);
        Ok(BatchItem::New(Box::new(JobPlan { policy, key, priority: new.priority, held })))
    }

    /// Refuses the new jobs for which their queues have no capacity.
    ///
    /// A job that ends at its creation takes no capacity. Where the profile fails jobs of a full
    /// queue, the job is created first.
    fn check_queue_capacity(&self, batch: &[ParsedSubmission], plan: &mut BatchPlan) {
        let ended = plan.failed_at_submit();
        let mut queued: HashMap<&QueueName, u64> = HashMap::new();
        for (index, parsed) in batch.iter().enumerate() {
            let Ok(Submission { queue: name, .. }) = parsed else { continue };
            let Some(job) = plan.new_job_at(index).filter(|job| !job.held) else { continue };
            let max_queued = self.engine.queue(name).and_then(|queue| queue.admission.max_queued);
            let Some(max_queued) = max_queued.filter(|_| !job.policy.profile.fails_when_full()) else { continue };
            let queued = queued.entry(name).or_insert_with(|| self.engine.index.queued_count(name));
            if *queued >= max_queued {
                plan.errors.push((index, Refusal::QueueFull { max_queued }));
            } else if !ended.contains(&index) {
                *queued += 1;
            }
        }
    }

    /// Returns the job of an idempotency key whose window has not ended.
    fn find_by_idempotency_key(
        &mut self,
        key: &ScopedIdempotencyKey,
        queue: &Queue,
    ) -> Result<Option<Submitted>, CommandError<R::Error>> {
        let Some(entry) = self.records.key(key).map_err(CommandError::Storage)? else { return Ok(None) };
        let window = queue.admission.idempotency.window;
        if window.is_some_and(|window| entry.at + window <= self.now) {
            return Ok(None);
        }
        let state = self.with_job(entry.seq, Job::kind)?;
        if state.is_none() && window.is_none() {
            return Ok(None);
        }
        Ok(Some(Submitted { id: entry.id, seq: entry.seq, state, duplicate: true, membership: None }))
    }
}

fn scoped_key(new: &NewJob, queue: &Queue) -> Option<ScopedIdempotencyKey> {
    let key = Arc::clone(new.key()?);
    let key = IdempotencyKey { key, scope: queue.admission.idempotency.scope, job_type: new.job_type.clone() };
    ScopedIdempotencyKey::of(&key, &queue.name)
}
