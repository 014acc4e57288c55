//! Submission: the checks of a batch, all or nothing, and the creation of its jobs.

mod links;

use std::collections::BTreeMap;

use self::links::reaches_itself;
use super::fields::{check_fields, is_name, priority_or_normal, usable_key};
use super::job::{Counters, ModelJob, State};
use super::rules::{Profile, Refusal, Rules, Scope, VALIDATION, job_rules, profile_rules};
use super::{Key, Model, Queue};
use crate::target::{Answer, Handle, Millis, NewJob, Token};

pub(super) const MOST_IN_BATCH: usize = 1_000;
const MOST_DEPENDENCIES: usize = 1_000;
const DEEPEST: u32 = 100;

/// The outcome of an item of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemOutcome {
    New,
    /// The key exists; its job may be deleted.
    Existing(Option<Handle>),
    /// An earlier item of the batch has the key.
    SameAs(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Job(Handle),
    Member(usize),
}

/// The length of an item's dependency chain, during the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Unknown,
    Underway,
    Known(Option<u32>),
}

#[derive(Clone, Debug, Default)]
struct Links {
    after: Vec<Link>,
    after_any: Vec<Link>,
}

impl Links {
    fn all(&self) -> impl Iterator<Item = Link> + '_ {
        self.after.iter().chain(&self.after_any).copied()
    }
}

/// The source of a submission.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubmitContext {
    pub most: usize,
    /// The last item depends on all others.
    pub last_is_finally: bool,
    pub parent: Option<Handle>,
    /// The workflow that grows. Its members can be named.
    pub workflow: Option<Handle>,
}

impl Default for SubmitContext {
    fn default() -> Self {
        SubmitContext { most: MOST_IN_BATCH, last_is_finally: false, parent: None, workflow: None }
    }
}

/// A batch during its checks.
pub(super) struct Batch<'a> {
    queue: &'a str,
    pub profile: Profile,
    pub rules: Rules,
    pub members: Vec<&'a NewJob>,
    fates: Vec<ItemOutcome>,
    links: Vec<Result<Links, Refusal>>,
    depths: Vec<Depth>,
    circumstances: SubmitContext,
}

impl Batch<'_> {
    /// Whether every item is a duplicate.
    pub(super) fn has_only_duplicates(&self) -> bool {
        !self.fates.contains(&ItemOutcome::New)
    }

    pub(super) fn known(&self) -> Vec<Option<Handle>> {
        let known = |fate: &ItemOutcome| match fate {
            ItemOutcome::Existing(job) => *job,
            ItemOutcome::New | ItemOutcome::SameAs(_) => None,
        };
        self.fates.iter().map(known).collect()
    }
}

impl Model {
    pub(crate) fn submit(&mut self, queue: &str, jobs: &[NewJob]) -> Result<Answer, Refusal> {
        if !is_name(queue) {
            return Err(VALIDATION);
        }
        let members: Vec<&NewJob> = jobs.iter().collect();
        let mut plan = self.plan_batch(queue, members, SubmitContext::default())?;
        let made = self.create_batch(&mut plan);
        Ok(Answer::Submitted(self.submitted(made)))
    }

    pub(crate) fn children(
        &mut self,
        parent: Handle,
        token: &Token,
        jobs: &[NewJob],
        finally: Option<&NewJob>,
    ) -> Result<Answer, Refusal> {
        self.find(parent)?;
        self.check_token(parent, token)?;
        if jobs.is_empty() || jobs.len() > MOST_IN_BATCH {
            return Err(VALIDATION);
        }
        let queue = self.jobs[parent].queue.clone();
        let members: Vec<&NewJob> = jobs.iter().chain(finally).collect();
        let circumstances = SubmitContext {
            most: MOST_IN_BATCH + usize::from(finally.is_some()),
            last_is_finally: finally.is_some(),
            parent: Some(parent),
            workflow: None,
        };
        let mut plan = self.plan_batch(&queue, members, circumstances)?;
        let mut made = self.create_batch(&mut plan);
        self.join_parent(parent, &made);
        let finally = if finally.is_some() { made.pop().and_then(|(job, _)| job) } else { None };
        Ok(Answer::FannedOut { jobs: made.into_iter().filter_map(|(job, _)| job).collect(), finally })
    }

    /// Runs all checks of a batch. Creates nothing.
    pub(super) fn plan_batch<'a>(
        &self,
        queue: &'a str,
        members: Vec<&'a NewJob>,
        circumstances: SubmitContext,
    ) -> Result<Batch<'a>, Refusal> {
        if members.is_empty() || members.len() > circumstances.most {
            return Err(VALIDATION);
        }
        let (profile, rules) = match self.queues.get(queue) {
            Some(known) => (known.profile, known.rules.clone()),
            None => (Profile::Standard, profile_rules(Profile::Standard)),
        };
        let depths = vec![Depth::Unknown; members.len()];
        let (fates, links) = (Vec::new(), Vec::new());
        let mut batch = Batch { queue, profile, rules, members, fates, links, depths, circumstances };
        for index in 0..batch.members.len() {
            let fate = self.fate(&batch, index);
            batch.fates.push(fate);
        }
        for index in 0..batch.members.len() {
            let links = self.resolve_links(&batch, index);
            batch.links.push(links);
        }
        let mut depths = std::mem::take(&mut batch.depths);
        for index in 0..batch.members.len() {
            self.check_member(&batch, index, &mut depths)?;
        }
        Ok(Batch { depths, ..batch })
    }

    /// Looks up the key of an item. The checks of the fields report an invalid key.
    fn fate(&self, batch: &Batch, index: usize) -> ItemOutcome {
        let member = batch.members[index];
        if check_fields(batch, index).is_err() {
            // An invalid item is refused by itself and is not a duplicate.
            return ItemOutcome::New;
        }
        let Some(key) = usable_key(member) else { return ItemOutcome::New };
        let scope = batch.rules.scope;
        if scope == Scope::Off {
            return ItemOutcome::New;
        }
        let same_scope = |queue: &str, job_type: &str| match scope {
            Scope::Type => queue == batch.queue && job_type == member.job_type,
            Scope::Queue => queue == batch.queue,
            Scope::Global | Scope::Off => true,
        };
        for (earlier, other) in batch.members[..index].iter().enumerate() {
            let same = usable_key(other) == Some(key) && same_scope(batch.queue, &other.job_type);
            if same && batch.fates[earlier] == ItemOutcome::New {
                return ItemOutcome::SameAs(earlier);
            }
        }
        // The newest entry counts: an older one had lapsed before.
        let found = self
            .keys
            .iter()
            .rev()
            .find(|known| known.scope == scope && known.key == key && same_scope(&known.queue, &known.job_type));
        let Some(known) = found else { return ItemOutcome::New };
        let gone = self.jobs[known.job].removed;
        let window = batch.rules.window;
        let lasts = known.ends.is_none_or(|end| self.now < end);
        let binds = lasts && if window == 0 { !gone } else { self.now < known.at + window };
        if !binds {
            return ItemOutcome::New;
        }
        let growing = batch.circumstances.workflow;
        if !gone && growing.is_some() && self.jobs[known.job].workflow == growing {
            // The name of a member refers to its latest clone.
            return ItemOutcome::Existing(self.current_clones(&[known.job]).first().copied());
        }
        ItemOutcome::Existing((!gone).then_some(known.job))
    }

    /// Runs all checks of an item, in the order of docs/rulings.md.
    fn check_member(&self, batch: &Batch, index: usize, depths: &mut [Depth]) -> Result<(), Refusal> {
        let member = batch.members[index];
        check_fields(batch, index)?;
        if member.external_id.is_some() && batch.fates[index] == ItemOutcome::New {
            let stored = self
                .jobs
                .iter()
                .any(|job| !job.removed && job.queue == batch.queue && job.external_id == member.external_id);
            let earlier = (0..index).any(|other| {
                batch.fates[other] == ItemOutcome::New && batch.members[other].external_id == member.external_id
            });
            if stored || earlier {
                return Err("duplicate_id");
            }
        }
        let namesake = member.reference.as_ref().and_then(|name| self.member_named(batch.circumstances.workflow, name));
        if let Some(namesake) = namesake {
            // Only the member itself may repeat its name.
            let same =
                matches!(batch.fates[index], ItemOutcome::Existing(Some(job)) if self.is_in_place_of(job, namesake));
            if !same {
                return Err(VALIDATION);
            }
        }
        if batch.fates[index] != ItemOutcome::New {
            return Ok(());
        }
        if let Some(most) = batch.rules.most_queued()
            && batch.profile != Profile::Document
            && !is_held(batch, index)
        {
            let waits = |other: &usize| {
                batch.fates[*other] == ItemOutcome::New
                    && !is_held(batch, *other)
                    && !self.ends_at_creation(batch, *other)
            };
            if self.waiting_in(batch.queue) + (0..index).filter(waits).count() >= most {
                return Err("queue_full");
            }
        }
        if let Err(refusal) = &batch.links[index] {
            return Err(refusal);
        }
        if reaches_itself(batch, index) {
            return Err("dependency_cycle");
        }
        if self.depth(batch, index, depths).is_some_and(|depth| depth > DEEPEST) {
            return Err("dependency_depth");
        }
        Ok(())
    }

    /// Counts the jobs that `max_queued` bounds.
    pub(crate) fn waiting_in(&self, queue: &str) -> usize {
        let waits = |handle: &Handle| {
            let job = &self.jobs[*handle];
            // A job that was not started yet has no position.
            !job.removed
                && job.queue == queue
                && !self.unsent.contains(handle)
                && match job.state {
                    State::Pending => !job.held,
                    State::Scheduled | State::Delayed | State::Retrying => true,
                    State::Running | State::Completed | State::Failed | State::DeadLetter | State::Cancelled => false,
                }
        };
        (0..self.jobs.len()).filter(waits).count()
    }

    /// Whether an item ends at its creation, because a dependency has ended without success.
    fn ends_at_creation(&self, batch: &Batch, index: usize) -> bool {
        let mut seen = vec![false; batch.members.len()];
        let mut open = vec![index];
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let Ok(links) = &batch.links[index] else { continue };
            for link in &links.after {
                match link {
                    Link::Job(handle) if self.ended_without_success(*handle) => return true,
                    Link::Job(_) => {}
                    Link::Member(other) => open.push(*other),
                }
            }
        }
        false
    }

    /// Returns the length of the longest chain up to this item, or none if a cycle is on the way.
    fn depth(&self, batch: &Batch, index: usize, depths: &mut [Depth]) -> Option<u32> {
        match depths[index] {
            Depth::Unknown => {}
            Depth::Underway => return None,
            Depth::Known(depth) => return depth,
        }
        depths[index] = Depth::Underway;
        let mut deepest = Some(0);
        if let Ok(links) = &batch.links[index] {
            for link in links.all() {
                let below = match link {
                    Link::Job(handle) => Some(self.jobs[handle].depth),
                    Link::Member(other) => self.depth(batch, other, depths),
                };
                deepest = deepest.zip(below).map(|(one, other)| one.max(other));
            }
        }
        let depth = deepest.map(|deepest| deepest + 1);
        depths[index] = Depth::Known(depth);
        depth
    }

    /// Returns the most urgent effective priority among the dependencies of an item.
    fn inherited(&self, batch: &Batch, index: usize, known: &mut [Option<Option<u8>>]) -> Option<u8> {
        if let Some(inherited) = known[index] {
            return inherited;
        }
        let mut most_urgent: Option<u8> = None;
        if let Ok(links) = &batch.links[index] {
            for link in links.all() {
                let priority = match link {
                    Link::Job(handle) => self.jobs[handle].effective_priority(),
                    Link::Member(other) => {
                        let own = priority_or_normal(batch.members[other].priority);
                        self.inherited(batch, other, known).map_or(own, |inherited| inherited.min(own))
                    }
                };
                most_urgent = Some(most_urgent.map_or(priority, |present| present.min(priority)));
            }
        }
        known[index] = Some(most_urgent);
        most_urgent
    }

    /// Creates the jobs. Returns handle and duplicate flag of each item.
    pub(super) fn create_batch(&mut self, batch: &mut Batch) -> Vec<(Option<Handle>, bool)> {
        let mut depths = std::mem::take(&mut batch.depths);
        let batch = &*batch;
        // A duplicate does not create its queue.
        if batch.fates.contains(&ItemOutcome::New) && !self.queues.contains_key(batch.queue) {
            self.queues.insert(batch.queue.to_owned(), Queue::new(batch.profile, batch.rules.clone()));
        }
        let first = self.jobs.len();
        self.new_from = first;
        let mut handles: Vec<Option<Handle>> = Vec::new();
        let mut next = first;
        for fate in &batch.fates {
            handles.push(match fate {
                ItemOutcome::New => {
                    next += 1;
                    Some(next - 1)
                }
                ItemOutcome::Existing(job) => *job,
                ItemOutcome::SameAs(other) => handles[*other],
            });
        }
        let mut inherited = vec![None; batch.members.len()];
        for index in 0..batch.members.len() {
            if batch.fates[index] == ItemOutcome::New {
                let depth = self.depth(batch, index, &mut depths).unwrap_or(1);
                let from_dependencies = self.inherited(batch, index, &mut inherited);
                self.create_member(batch, index, &handles, depth, from_dependencies);
            }
        }
        // In the given order, but each item after its dependencies, so that they are final.
        self.unsent = (first..self.jobs.len()).collect();
        let free = |model: &Model, handle: &Handle| {
            let job = &model.jobs[*handle];
            !job.after.iter().chain(&job.after_any).any(|other| model.unsent.contains(other))
        };
        while let Some(handle) = self.unsent.iter().copied().find(|handle| free(self, handle)) {
            self.admit(handle);
        }
        let duplicates = batch.fates.iter().map(|fate| *fate != ItemOutcome::New);
        handles.into_iter().zip(duplicates).collect()
    }

    fn create_member(
        &mut self,
        batch: &Batch,
        index: usize,
        handles: &[Option<Handle>],
        depth: u32,
        inherited_priority: Option<u8>,
    ) {
        let member = batch.members[index];
        let now = self.now;
        let links = batch.links[index].clone().unwrap_or_default();
        let to_handles = |links: Vec<Link>| {
            let handle = |link: Link| match link {
                Link::Job(handle) => Some(handle),
                Link::Member(other) => handles[other],
            };
            links.into_iter().filter_map(handle).collect()
        };
        let rules = job_rules(&batch.rules, batch.profile, &member.settings).unwrap_or_else(|_| batch.rules.clone());
        let wished = member.run_at.or(member.delay.map(|delay| now + delay));
        let key = usable_key(member);
        let handle = self.add(ModelJob {
            held: is_held(batch, index),
            priority: priority_or_normal(member.priority),
            inherited_priority,
            // A start time in the past is no delay.
            run_at: wished.filter(|instant| *instant > now),
            after: to_handles(links.after),
            after_any: to_handles(links.after_any),
            depth,
            parent: batch.circumstances.parent,
            tags: member.tags.clone(),
            correlation_id: member.correlation_id.clone(),
            callback_url: member.callback_url.clone(),
            traceparent: member.traceparent.clone(),
            idempotency_key: key.map(str::to_owned),
            external_id: member.external_id.clone(),
            ..blank_job(batch.queue, batch.profile, rules, &member.job_type, now)
        });
        if let Some(key) = key {
            self.keys.push(Key {
                scope: batch.rules.scope,
                queue: batch.queue.to_owned(),
                job_type: member.job_type.clone(),
                key: key.to_owned(),
                job: handle,
                at: now,
                ends: None,
            });
        }
    }

    /// Assigns handle and sequence number to a job.
    pub(crate) fn add(&mut self, job: ModelJob) -> Handle {
        let handle = self.jobs.len();
        let sequence = self.next_number();
        let now = self.now;
        self.jobs.push(ModelJob { sequence, position: sequence, ..job });
        self.job_mut(handle).record(None, State::Pending, now, "create");
        handle
    }

    /// Starts a new job, or applies the ends of its dependencies.
    pub(crate) fn admit(&mut self, handle: Handle) {
        self.unsent.remove(&handle);
        self.record_any_met(handle);
        let job = &self.jobs[handle];
        if job.state != State::Pending {
            return;
        }
        if let Some(broken) = self.broken_dependency(job) {
            self.end_by_dependency(handle, broken);
        } else if !job.held && self.dependencies_hold(job) {
            self.start_new_job(handle);
        }
        self.propagate();
    }
}

/// Makes a job without any data.
pub(crate) fn blank_job(queue: &str, profile: Profile, rules: Rules, job_type: &str, now: Millis) -> ModelJob {
    ModelJob {
        removed: false,
        queue: queue.to_owned(),
        profile,
        rules,
        job_type: job_type.to_owned(),
        state: State::Pending,
        held: false,
        priority: 2,
        inherited_priority: None,
        sequence: 0,
        position: 0,
        counters: Counters::default(),
        lease_version: 0,
        lease: None,
        cancel_requested: false,
        cancel_message: String::new(),
        created_at: now,
        updated_at: now,
        lifetime_from: now,
        run_at: None,
        run_at_window: None,
        scheduled_at: None,
        started_at: None,
        first_started_at: None,
        last_heartbeat_at: None,
        attempt_ended_at: None,
        completed_at: None,
        progress: None,
        checkpoint: None,
        result: None,
        error: None,
        after: Vec::new(),
        after_any: Vec::new(),
        any_met: false,
        depth: 1,
        ended_by: None,
        parent: None,
        requeued_from: None,
        requeued_as: None,
        workflow: None,
        tags: BTreeMap::new(),
        correlation_id: None,
        callback_url: None,
        traceparent: None,
        idempotency_key: None,
        external_id: None,
        settled: None,
        attempts: Vec::new(),
        history: Vec::new(),
    }
}

fn is_held(batch: &Batch, index: usize) -> bool {
    batch.members[index].hold.unwrap_or(batch.rules.submit_explicit)
}
