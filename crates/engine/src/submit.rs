//! Submission of a batch: everything is checked first, then everything is stored, or nothing.

mod plan;
mod workflow_membership;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use longshore_core::dependency::{Dependencies, DependencyStatus, RequiredDependency, recompute};
use longshore_core::id::{JobId, LeaseToken, QueueName, Seq, WorkflowId};
use longshore_core::job::{IdempotencyKey, Job, TransitionContext};
use longshore_core::lease;
use longshore_core::policy::SubmitMode;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::state::{StateKind, TerminalState};
use longshore_core::submit::{self, DependencyRef, NewJob, RefIndex, ResolvedSubmission};
use longshore_core::workflow::Membership;

use plan::{
    BatchItem, BatchPlan, DependencyTarget, ExistingDependency, InheritedProperties, JobPlan, Sources,
    topological_order,
};
use workflow_membership::{Memberships, WorkflowBinding, check_length};

use crate::admin::standing;
use crate::context::{CommandContext, CommandError, DependentChange};
use crate::queue::Queue;
use crate::records::{JobRecords, KeyEntry, PayloadSource, ScopedIdempotencyKey};

/// One job for one queue.
#[derive(Clone, Debug)]
pub struct Submission {
    pub queue: QueueName,
    pub job: NewJob,
}

/// A batch: all of it is stored, or nothing.
#[derive(Clone, Debug)]
pub struct SubmitRequest {
    pub batch: Vec<Submission>,
    /// The running job that fans out into these, and the proof of its lease.
    pub parent: Option<(JobId, Option<LeaseToken>)>,
    /// Runs once, after all of the batch have completed.
    pub finally: Option<Box<Submission>>,
    /// Only into queues that exist and have this profile.
    pub require_profile: Option<Profile>,
    /// The workflow whose members these become. Children are members of their parent's.
    pub joining: Option<WorkflowTarget>,
}

/// Which workflow a batch becomes, or joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowTarget {
    New { name: Option<Arc<str>>, open: bool },
    Open(WorkflowId),
}

impl SubmitRequest {
    pub fn new(batch: Vec<Submission>) -> Self {
        Self { batch, parent: None, finally: None, require_profile: None, joining: None }
    }

    /// A batch as a workflow, or as a part of one.
    pub fn workflow(batch: Vec<Submission>, joining: WorkflowTarget) -> Self {
        Self { joining: Some(joining), ..Self::new(batch) }
    }

    /// Children of a running job, and the job that runs once after all of them have completed.
    pub fn children(
        parent: JobId,
        token: Option<LeaseToken>,
        batch: Vec<Submission>,
        finally: Option<Submission>,
    ) -> Self {
        let (parent, finally) = (Some((parent, token)), finally.map(Box::new));
        Self { parent, finally, ..Self::new(batch) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub id: JobId,
    pub seq: Seq,
    /// `None`: the key has outlived its job.
    pub state: Option<StateKind>,
    pub duplicate: bool,
    /// The workflow that this submission made or joined, and what the job is called there.
    pub membership: Option<Membership>,
}

/// Which members of a batch were refused, and why; the first one speaks for the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRefusal {
    pub first: Refusal,
    pub errors: Vec<(usize, Refusal)>,
}

impl From<Refusal> for BatchRefusal {
    /// A refusal of the batch as a whole.
    fn from(refusal: Refusal) -> Self {
        Self { first: refusal, errors: Vec::new() }
    }
}

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn submit_request(
        &mut self,
        request: &SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, R::Error> {
        match self.submit(request) {
            Ok(result) => Ok(result),
            Err(CommandError::Refused(refusal)) => Ok(Err(refusal.into())),
            Err(CommandError::Broken(error)) => Err(error),
        }
    }

    fn submit(
        &mut self,
        request: &SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, CommandError<R::Error>> {
        let SubmitRequest { batch, parent, finally, require_profile: only_into, joining } = request;
        let mut joins = WorkflowBinding::Nothing;
        if let Some((parent, token)) = parent {
            let (seq, now) = (self.find(*parent)?, self.now);
            let held = self.with_job(seq, |job| lease::check(job, *token, now).map(|_| job.membership.clone()))?;
            if let Some(Membership { workflow, .. }) = held.ok_or(Refusal::JobNotFound)?? {
                joins = WorkflowBinding::Unnamed(workflow);
            }
        }
        if let Some(joining) = joining {
            joins = self.check_joining(joining)?;
        }
        check_length(batch, joining.as_ref())?;
        let there =
            |name: &QueueName, wanted: &Profile| self.engine.queue(name).is_some_and(|queue| queue.profile == *wanted);
        if only_into.as_ref().is_some_and(|wanted| !batch.iter().all(|submission| there(&submission.queue, wanted))) {
            return Err(Refusal::QueueNotFound.into());
        }
        let parent = parent.map(|(parent, _)| parent);
        match finally {
            None => self.submit_batch(batch, parent, &joins),
            Some(finally) => {
                let mut last = Submission::clone(finally);
                last.job.after.extend((0..batch.len()).map(DependencyRef::BatchIndex));
                let whole: Vec<Submission> = batch.iter().cloned().chain([last]).collect();
                self.submit_batch(&whole, parent, &joins)
            }
        }
    }

    fn submit_batch(
        &mut self,
        batch: &[Submission],
        parent: Option<JobId>,
        joins: &WorkflowBinding,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, CommandError<R::Error>> {
        let mut planning = BatchPlan {
            members: Vec::with_capacity(batch.len()),
            errors: Vec::new(),
            keys: HashMap::new(),
            external_ids: HashSet::new(),
            existing: HashMap::new(),
            earlier: HashMap::new(),
            sources: Vec::with_capacity(batch.len()),
            weights: vec![InheritedProperties { depth: 1, inherited: Priority::Bulk }; batch.len()],
        };
        let (places, repeated) = submit::index_refs(batch.iter().map(|submission| &submission.job));
        let refused: HashSet<usize> = repeated.iter().map(|(place, _)| *place).collect();
        planning.errors.extend(repeated);
        for (place, submission) in batch.iter().enumerate() {
            if refused.contains(&place) {
                planning.members.push(None);
                continue;
            }
            let member = match self.plan(place, submission, &mut planning) {
                Ok(member) => Some(member),
                Err(CommandError::Refused(refusal)) => {
                    planning.errors.push((place, refusal));
                    None
                }
                Err(broken @ CommandError::Broken(_)) => return Err(broken),
            };
            planning.members.push(member);
        }
        if let WorkflowBinding::Open(workflow) = joins {
            self.resolve_member_refs(*workflow, batch, &places, &mut planning)?;
        }
        let unfit = self.resolve_dependencies(batch, &places, &mut planning)?;
        self.check_queue_capacity(batch, &mut planning);
        planning.errors.extend(unfit);
        let order = topological_order(&mut planning, batch);
        if !planning.errors.is_empty() {
            return Ok(Err(planning.refusal()));
        }
        let memberships = match self.join(batch, joins, &planning)? {
            Ok(memberships) => memberships,
            Err(known) => return Ok(Ok(known)),
        };
        Ok(Ok(self.create_jobs(batch, parent, &planning, &order, &memberships)?))
    }

    /// Checks of one member that need no other member's dependencies.
    fn plan(
        &mut self,
        place: usize,
        submission: &Submission,
        planning: &mut BatchPlan,
    ) -> Result<BatchItem, CommandError<R::Error>> {
        let Submission { queue: name, job: new } = submission;
        let queue = self.queue_for_submit(name)?;
        let policy = submit::check(new, &queue.policy, &queue.intake)?;
        let key = self.key_path(new, &queue);
        if let Some(path) = &key {
            if let Some(earlier) = planning.keys.get(path) {
                return Ok(BatchItem::DuplicateInBatch(*earlier));
            }
            if let Some(known) = self.find_by_idempotency_key(path, &queue)? {
                return Ok(BatchItem::Duplicate(known));
            }
            planning.keys.insert(path.clone(), place);
        }
        if let Some(external_id) = &new.external_id {
            let in_batch = !planning.external_ids.insert((name.clone(), Arc::clone(external_id)));
            let taken = self.records.external_id(name, external_id).map_err(CommandError::Broken)?.is_some();
            if in_batch || taken {
                return Err(Refusal::DuplicateId.into());
            }
        }
        let held = new.hold.unwrap_or(queue.intake.submit == SubmitMode::Explicit);
        Ok(BatchItem::New(Box::new(JobPlan { policy, key, priority: new.priority, held })))
    }

    /// Whether each queue has room for its newcomers. One that is born ended takes nobody's place; where the profile fails a job
    /// in a full queue, it is taken in first.
    fn check_queue_capacity(&self, batch: &[Submission], planning: &mut BatchPlan) {
        let ended = planning.failed_at_submit();
        let mut queued: HashMap<&QueueName, u64> = HashMap::new();
        for (place, Submission { queue: name, .. }) in batch.iter().enumerate() {
            let Some(plan) = planning.new_job_at(place).filter(|plan| !plan.held) else { continue };
            let max_queued = self.engine.queue(name).and_then(|queue| queue.intake.max_queued);
            let Some(max_queued) = max_queued.filter(|_| !plan.policy.profile.fails_when_full()) else { continue };
            let queued = queued.entry(name).or_insert_with(|| self.engine.index.queued_count(name));
            if *queued >= max_queued {
                planning.errors.push((place, Refusal::QueueFull { max_queued }));
            } else if !ended.contains(&place) {
                *queued += 1;
            }
        }
    }

    fn key_path(&self, new: &NewJob, queue: &Queue) -> Option<ScopedIdempotencyKey> {
        let key = Arc::clone(new.key()?);
        let key = IdempotencyKey { key, scope: queue.intake.idempotency.scope, job_type: new.job_type.clone() };
        ScopedIdempotencyKey::of(&key, &queue.name)
    }

    /// The job that this key stands for, while its window lasts.
    fn find_by_idempotency_key(
        &mut self,
        path: &ScopedIdempotencyKey,
        queue: &Queue,
    ) -> Result<Option<Submitted>, CommandError<R::Error>> {
        let Some(entry) = self.records.key(path).map_err(CommandError::Broken)? else { return Ok(None) };
        let window = queue.intake.idempotency.window;
        if window.is_some_and(|window| entry.at + window <= self.now) {
            return Ok(None);
        }
        let state = self.with_job(entry.seq, Job::kind)?;
        if state.is_none() && window.is_none() {
            return Ok(None);
        }
        Ok(Some(Submitted { id: entry.id, seq: entry.seq, state, duplicate: true, membership: None }))
    }

    /// Resolves the dependencies of all newcomers to jobs or places; says which places name some that will not do.
    fn resolve_dependencies(
        &mut self,
        batch: &[Submission],
        places: &RefIndex,
        planning: &mut BatchPlan,
    ) -> Result<Vec<(usize, Refusal)>, CommandError<R::Error>> {
        let mut unfit = Vec::new();
        for (place, Submission { job: new, .. }) in batch.iter().enumerate() {
            let repeats = matches!(
                planning.members.get(place),
                Some(Some(BatchItem::Duplicate(_) | BatchItem::DuplicateInBatch(_)))
            );
            let found =
                if repeats { Ok(Sources::default()) } else { self.resolve_dependencies_of(new, places, planning) };
            let sources = match found {
                Ok(sources) => sources,
                Err(CommandError::Refused(refusal)) => {
                    unfit.push((place, refusal));
                    Sources::default()
                }
                Err(broken @ CommandError::Broken(_)) => return Err(broken),
            };
            planning.sources.push(sources);
        }
        Ok(unfit)
    }

    fn resolve_dependencies_of(
        &mut self,
        new: &NewJob,
        places: &RefIndex,
        planning: &mut BatchPlan,
    ) -> Result<Sources, CommandError<R::Error>> {
        submit::check_breadth(new)?;
        let resolve = |refs: &[DependencyRef]| -> Result<Vec<DependencyTarget>, CommandError<R::Error>> {
            let (mut seen, mut sources) = (HashSet::new(), Vec::with_capacity(refs.len()));
            for reference in refs {
                let source = match reference {
                    DependencyRef::Job(id) => DependencyTarget::Job(*id),
                    DependencyRef::Local(name) => {
                        let unknown = || Refusal::DependencyUnknown(format!("#{name}"));
                        let earlier = || planning.earlier.get(name).map(|id| DependencyTarget::Job(*id));
                        let here = places.get(name).map(|place| planning.source_at(*place));
                        here.or_else(earlier).ok_or_else(unknown)?
                    }
                    DependencyRef::BatchIndex(place) if *place < planning.members.len() => planning.source_at(*place),
                    DependencyRef::BatchIndex(place) => {
                        return Err(Refusal::DependencyUnknown(format!("job {place} of the batch")).into());
                    }
                };
                if seen.insert(source) {
                    sources.push(source);
                }
            }
            Ok(sources)
        };
        let sources = Sources { after: resolve(&new.after)?, after_any: resolve(&new.after_any)? };
        for source in sources.all() {
            match source {
                DependencyTarget::Job(id) => self.load_dependency(id, planning)?,
                DependencyTarget::Place(_) => {}
            }
        }
        Ok(sources)
    }

    fn load_dependency(&mut self, id: JobId, planning: &mut BatchPlan) -> Result<(), CommandError<R::Error>> {
        if planning.existing.contains_key(&id) {
            return Ok(());
        }
        let unknown = || Refusal::DependencyUnknown(id.to_string());
        let seq = self.records.seq_of(id).map_err(CommandError::Broken)?.ok_or_else(unknown)?;
        let elder = self.with_job(seq, |job| ExistingDependency {
            standing: DependencyStatus::of(job),
            priority: job.effective_priority(),
            depth: job.dependencies.depth,
        })?;
        planning.existing.insert(id, elder.ok_or_else(unknown)?);
        Ok(())
    }

    /// Stores the batch: numbers in the order given, births in the order of dependencies.
    fn create_jobs(
        &mut self,
        batch: &[Submission],
        parent: Option<JobId>,
        planning: &BatchPlan,
        order: &[usize],
        memberships: &Memberships,
    ) -> Result<Vec<Submitted>, CommandError<R::Error>> {
        // A duplicate changes nothing: it brings no queue into being.
        for (Submission { queue, .. }, member) in batch.iter().zip(&planning.members) {
            if matches!(member, Some(BatchItem::New(_))) && self.engine.queue(queue).is_none() {
                self.save_queue(self.queue_for_submit(queue)?)?;
            }
        }
        let names: Vec<Option<(JobId, Seq)>> = planning
            .members
            .iter()
            .map(|member| matches!(member, Some(BatchItem::New(_))).then(|| self.allocate_id()))
            .collect();
        let mut standings: HashMap<JobId, DependencyStatus> =
            planning.existing.iter().map(|(id, elder)| (*id, elder.standing)).collect();
        let mut states: HashMap<JobId, StateKind> = HashMap::new();
        // How many newcomers wait for each job: those hear of them all at once.
        let mut waiting = BTreeMap::new();
        for place in order {
            let (Some(Some((id, seq))), Some(submission)) = (names.get(*place), batch.get(*place)) else { continue };
            let Some(plan) = planning.new_job_at(*place) else { continue };
            let (Some(sources), Some(weight)) = (planning.sources.get(*place), planning.weights.get(*place)) else {
                continue;
            };
            let name_of = |source: &DependencyTarget| match source {
                DependencyTarget::Job(id) => Some(*id),
                DependencyTarget::Place(place) => names.get(*place).copied().flatten().map(|(id, _)| id),
            };
            let mut dependencies = Dependencies {
                after: sources.after.iter().filter_map(name_of).map(RequiredDependency::unmet).collect(),
                after_any: sources.after_any.iter().filter_map(name_of).collect(),
                depth: weight.depth,
                ..Dependencies::default()
            };
            let broken = recompute(&mut dependencies, |id| standing(&standings, id));
            let queue = self.queue_for_submit(&submission.queue)?;
            let max_queued = queue.intake.max_queued.filter(|_| plan.policy.profile.fails_when_full());
            let birth = ResolvedSubmission {
                id: *id,
                seq: *seq,
                queue: submission.queue.clone(),
                policy: Arc::clone(&plan.policy),
                dependencies,
                inherited_priority: weight.inherited,
                broken,
                fails_queue_full: max_queued
                    .is_some_and(|max| self.engine.index.queued_count(&submission.queue) >= max),
                parent,
                membership: memberships.by_place.get(*place).cloned().flatten(),
            };
            if let Some(Membership { workflow, reference }) = birth.membership.as_ref().filter(|_| memberships.named)
                && submission.job.reference.is_some()
            {
                self.records.set_member_ref(*workflow, reference, *seq).map_err(CommandError::Broken)?;
            }
            let kind = self.create_job(submission, birth, &queue, plan.key.clone(), &mut waiting)?;
            states.insert(*id, kind);
            let newborn = TerminalState::of(kind)
                .map_or(DependencyStatus::Alive, |ending| DependencyStatus::Ended(ending, self.now));
            standings.insert(*id, newborn);
        }
        self.adjust_dependent_counts(waiting, DependentChange::Began)?;
        let mut answers = planning.answers(&names, &states);
        for (answer, membership) in answers.iter_mut().zip(&memberships.by_place) {
            answer.membership = membership.clone();
        }
        Ok(answers)
    }

    fn allocate_id(&mut self) -> (JobId, Seq) {
        let seq = Seq(self.engine.next_number);
        self.engine.next_number += 1;
        (self.records.new_id(seq, self.rng), seq)
    }

    fn create_job(
        &mut self,
        submission: &Submission,
        birth: ResolvedSubmission,
        queue: &Queue,
        key: Option<ScopedIdempotencyKey>,
        waiting: &mut BTreeMap<JobId, u32>,
    ) -> Result<StateKind, CommandError<R::Error>> {
        let mut moment = TransitionContext {
            now: self.now,
            rng: self.rng,
            next_seq: &mut self.engine.next_number,
            lease_floor: self.engine.options.lease_floor,
            transitions: &mut self.moves,
        };
        let job = submit::create(&submission.job, birth, &queue.intake, &mut moment);
        let (id, seq, kind) = (job.id, job.seq, job.kind());
        let dependencies = job.dependencies.all();
        self.add(Box::new(job), PayloadSource::Given(submission.job.payload.clone()))?;
        if let Some(path) = key {
            let entry = KeyEntry { id, seq, at: self.now, prune_at: None };
            self.records.put_key(path, entry).map_err(CommandError::Broken)?;
        }
        for dependency in &dependencies {
            if let Some(elder) = self.records.seq_of(*dependency).map_err(CommandError::Broken)? {
                self.records.link(elder, seq).map_err(CommandError::Broken)?;
            }
        }
        if !kind.terminal() {
            for dependency in dependencies {
                *waiting.entry(dependency).or_default() += 1;
            }
        }
        Ok(kind)
    }
}
