//! Submission of a batch: everything is checked first, then everything is stored, or nothing.

mod plan;
mod workflow_membership;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::dependency::{After, Dependencies, Standing, weigh};
use crate::id::{JobId, LeaseToken, QueueName, Seq, WorkflowId};
use crate::job::{IdempotencyKey, Job, Moment};
use crate::lease;
use crate::policy::SubmitMode;
use crate::priority::Priority;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::state::{Ending, StateKind};
use crate::submit::{self, Birth, DependencyRef, NewJob, Places};
use crate::workflow::Membership;

use plan::{Elder, Member, Plan, Planning, Source, Sources, Weight, arrange};
use workflow_membership::{Joins, Memberships, check_length};

use super::admin::standing;
use super::queue::Queue;
use super::records::{KeyEntry, KeyPath, PayloadSource, Records};
use super::{Life, Stop, Turn};

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
    pub only_into: Option<Profile>,
    /// The workflow whose members these become. Children are members of their parent's.
    pub joining: Option<Joining>,
}

/// Which workflow a batch becomes, or joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    New { name: Option<Arc<str>>, open: bool },
    Open(WorkflowId),
}

impl SubmitRequest {
    pub fn new(batch: Vec<Submission>) -> Self {
        Self { batch, parent: None, finally: None, only_into: None, joining: None }
    }

    /// A batch as a workflow, or as a part of one.
    pub fn workflow(batch: Vec<Submission>, joining: Joining) -> Self {
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

impl<R: Records> Turn<'_, R> {
    pub(crate) fn submit_request(
        &mut self,
        request: &SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, R::Error> {
        match self.submit(request) {
            Ok(result) => Ok(result),
            Err(Stop::Refused(refusal)) => Ok(Err(refusal.into())),
            Err(Stop::Broken(error)) => Err(error),
        }
    }

    fn submit(&mut self, request: &SubmitRequest) -> Result<Result<Vec<Submitted>, BatchRefusal>, Stop<R::Error>> {
        let SubmitRequest { batch, parent, finally, only_into, joining } = request;
        let mut joins = Joins::Nothing;
        if let Some((parent, token)) = parent {
            let (seq, now) = (self.find(*parent)?, self.now);
            let held = self.look(seq, |job| lease::check(job, *token, now).map(|_| job.membership.clone()))?;
            if let Some(Membership { workflow, .. }) = held.ok_or(Refusal::JobNotFound)?? {
                joins = Joins::Unnamed(workflow);
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
                last.job.after.extend((0..batch.len()).map(DependencyRef::Place));
                let whole: Vec<Submission> = batch.iter().cloned().chain([last]).collect();
                self.submit_batch(&whole, parent, &joins)
            }
        }
    }

    fn submit_batch(
        &mut self,
        batch: &[Submission],
        parent: Option<JobId>,
        joins: &Joins,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, Stop<R::Error>> {
        let mut planning = Planning {
            members: Vec::with_capacity(batch.len()),
            errors: Vec::new(),
            keys: HashMap::new(),
            external_ids: HashSet::new(),
            elders: HashMap::new(),
            earlier: HashMap::new(),
            sources: Vec::with_capacity(batch.len()),
            weights: vec![Weight { depth: 1, inherited: Priority::Bulk }; batch.len()],
        };
        let (places, repeated) = submit::references(batch.iter().map(|submission| &submission.job));
        let refused: HashSet<usize> = repeated.iter().map(|(place, _)| *place).collect();
        planning.errors.extend(repeated);
        for (place, submission) in batch.iter().enumerate() {
            if refused.contains(&place) {
                planning.members.push(None);
                continue;
            }
            let member = match self.plan(place, submission, &mut planning) {
                Ok(member) => Some(member),
                Err(Stop::Refused(refusal)) => {
                    planning.errors.push((place, refusal));
                    None
                }
                Err(broken @ Stop::Broken(_)) => return Err(broken),
            };
            planning.members.push(member);
        }
        if let Joins::Open(workflow) = joins {
            self.meet_members(*workflow, batch, &places, &mut planning)?;
        }
        let unfit = self.find_sources(batch, &places, &mut planning)?;
        self.check_room(batch, &mut planning);
        planning.errors.extend(unfit);
        let order = arrange(&mut planning, batch);
        if !planning.errors.is_empty() {
            return Ok(Err(planning.refusal()));
        }
        let memberships = match self.join(batch, joins, &planning)? {
            Ok(memberships) => memberships,
            Err(known) => return Ok(Ok(known)),
        };
        Ok(Ok(self.give_birth(batch, parent, &planning, &order, &memberships)?))
    }

    /// Checks of one member that need no other member's dependencies.
    fn plan(
        &mut self,
        place: usize,
        submission: &Submission,
        planning: &mut Planning,
    ) -> Result<Member, Stop<R::Error>> {
        let Submission { queue: name, job: new } = submission;
        let queue = self.intake(name)?;
        let policy = submit::check(new, &queue.policy, &queue.intake)?;
        let key = self.key_path(new, &queue);
        if let Some(path) = &key {
            if let Some(earlier) = planning.keys.get(path) {
                return Ok(Member::Repeats(*earlier));
            }
            if let Some(known) = self.known_by_key(path, &queue)? {
                return Ok(Member::Duplicate(known));
            }
            planning.keys.insert(path.clone(), place);
        }
        if let Some(external_id) = &new.external_id {
            let in_batch = !planning.external_ids.insert((name.clone(), Arc::clone(external_id)));
            let taken = self.records.external_id(name, external_id).map_err(Stop::Broken)?.is_some();
            if in_batch || taken {
                return Err(Refusal::DuplicateId.into());
            }
        }
        let held = new.hold.unwrap_or(queue.intake.submit == SubmitMode::Explicit);
        Ok(Member::New(Box::new(Plan { policy, key, priority: new.priority, held })))
    }

    /// Whether each queue has room for its newcomers. One that is born ended takes nobody's place; where the profile fails a job
    /// in a full queue, it is taken in first.
    fn check_room(&self, batch: &[Submission], planning: &mut Planning) {
        let ended = planning.born_ended();
        let mut queued: HashMap<&QueueName, u64> = HashMap::new();
        for (place, Submission { queue: name, .. }) in batch.iter().enumerate() {
            let Some(plan) = planning.newcomer(place).filter(|plan| !plan.held) else { continue };
            let max_queued = self.engine.queue(name).and_then(|queue| queue.intake.max_queued);
            let Some(max_queued) = max_queued.filter(|_| !plan.policy.profile.fails_when_full()) else { continue };
            let queued = queued.entry(name).or_insert_with(|| self.engine.index.queued(name));
            if *queued >= max_queued {
                planning.errors.push((place, Refusal::QueueFull { max_queued }));
            } else if !ended.contains(&place) {
                *queued += 1;
            }
        }
    }

    fn key_path(&self, new: &NewJob, queue: &Queue) -> Option<KeyPath> {
        let key = Arc::clone(new.key()?);
        let key = IdempotencyKey { key, scope: queue.intake.idempotency.scope, job_type: new.job_type.clone() };
        KeyPath::of(&key, &queue.name)
    }

    /// The job that this key stands for, while its window lasts.
    fn known_by_key(&mut self, path: &KeyPath, queue: &Queue) -> Result<Option<Submitted>, Stop<R::Error>> {
        let Some(entry) = self.records.key(path).map_err(Stop::Broken)? else { return Ok(None) };
        let window = queue.intake.idempotency.window;
        if window.is_some_and(|window| entry.at + window <= self.now) {
            return Ok(None);
        }
        let state = self.look(entry.seq, Job::kind)?;
        if state.is_none() && window.is_none() {
            return Ok(None);
        }
        Ok(Some(Submitted { id: entry.id, seq: entry.seq, state, duplicate: true, membership: None }))
    }

    /// Resolves the dependencies of all newcomers to jobs or places; says which places name some that will not do.
    fn find_sources(
        &mut self,
        batch: &[Submission],
        places: &Places,
        planning: &mut Planning,
    ) -> Result<Vec<(usize, Refusal)>, Stop<R::Error>> {
        let mut unfit = Vec::new();
        for (place, Submission { job: new, .. }) in batch.iter().enumerate() {
            let repeats = matches!(planning.members.get(place), Some(Some(Member::Duplicate(_) | Member::Repeats(_))));
            let found = if repeats { Ok(Sources::default()) } else { self.sources_of(new, places, planning) };
            let sources = match found {
                Ok(sources) => sources,
                Err(Stop::Refused(refusal)) => {
                    unfit.push((place, refusal));
                    Sources::default()
                }
                Err(broken @ Stop::Broken(_)) => return Err(broken),
            };
            planning.sources.push(sources);
        }
        Ok(unfit)
    }

    fn sources_of(
        &mut self,
        new: &NewJob,
        places: &Places,
        planning: &mut Planning,
    ) -> Result<Sources, Stop<R::Error>> {
        submit::check_breadth(new)?;
        let resolve = |refs: &[DependencyRef]| -> Result<Vec<Source>, Stop<R::Error>> {
            let (mut seen, mut sources) = (HashSet::new(), Vec::with_capacity(refs.len()));
            for reference in refs {
                let source = match reference {
                    DependencyRef::Job(id) => Source::Job(*id),
                    DependencyRef::Local(name) => {
                        let unknown = || Refusal::DependencyUnknown(format!("#{name}"));
                        let earlier = || planning.earlier.get(name).map(|id| Source::Job(*id));
                        let here = places.get(name).map(|place| planning.source_at(*place));
                        here.or_else(earlier).ok_or_else(unknown)?
                    }
                    DependencyRef::Place(place) if *place < planning.members.len() => planning.source_at(*place),
                    DependencyRef::Place(place) => {
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
                Source::Job(id) => self.look_up_elder(id, planning)?,
                Source::Place(_) => {}
            }
        }
        Ok(sources)
    }

    fn look_up_elder(&mut self, id: JobId, planning: &mut Planning) -> Result<(), Stop<R::Error>> {
        if planning.elders.contains_key(&id) {
            return Ok(());
        }
        let unknown = || Refusal::DependencyUnknown(id.to_string());
        let seq = self.records.seq_of(id).map_err(Stop::Broken)?.ok_or_else(unknown)?;
        let elder = self.look(seq, |job| Elder {
            standing: Standing::of(job),
            priority: job.effective_priority(),
            depth: job.dependencies.depth,
        })?;
        planning.elders.insert(id, elder.ok_or_else(unknown)?);
        Ok(())
    }

    /// Stores the batch: numbers in the order given, births in the order of dependencies.
    fn give_birth(
        &mut self,
        batch: &[Submission],
        parent: Option<JobId>,
        planning: &Planning,
        order: &[usize],
        memberships: &Memberships,
    ) -> Result<Vec<Submitted>, Stop<R::Error>> {
        // A duplicate changes nothing: it brings no queue into being.
        for (Submission { queue, .. }, member) in batch.iter().zip(&planning.members) {
            if matches!(member, Some(Member::New(_))) && self.engine.queue(queue).is_none() {
                self.save_queue(self.intake(queue)?)?;
            }
        }
        let names: Vec<Option<(JobId, Seq)>> = planning
            .members
            .iter()
            .map(|member| matches!(member, Some(Member::New(_))).then(|| self.name_newcomer()))
            .collect();
        let mut standings: HashMap<JobId, Standing> =
            planning.elders.iter().map(|(id, elder)| (*id, elder.standing)).collect();
        let mut states: HashMap<JobId, StateKind> = HashMap::new();
        // How many newcomers wait for each job: those hear of them all at once.
        let mut waiting = BTreeMap::new();
        for place in order {
            let (Some(Some((id, seq))), Some(submission)) = (names.get(*place), batch.get(*place)) else { continue };
            let Some(plan) = planning.newcomer(*place) else { continue };
            let (Some(sources), Some(weight)) = (planning.sources.get(*place), planning.weights.get(*place)) else {
                continue;
            };
            let name_of = |source: &Source| match source {
                Source::Job(id) => Some(*id),
                Source::Place(place) => names.get(*place).copied().flatten().map(|(id, _)| id),
            };
            let mut dependencies = Dependencies {
                after: sources.after.iter().filter_map(name_of).map(After::unmet).collect(),
                after_any: sources.after_any.iter().filter_map(name_of).collect(),
                depth: weight.depth,
                ..Dependencies::default()
            };
            let broken = weigh(&mut dependencies, |id| standing(&standings, id));
            let queue = self.intake(&submission.queue)?;
            let max_queued = queue.intake.max_queued.filter(|_| plan.policy.profile.fails_when_full());
            let birth = Birth {
                id: *id,
                seq: *seq,
                queue: submission.queue.clone(),
                policy: Arc::clone(&plan.policy),
                dependencies,
                inherited_priority: weight.inherited,
                broken,
                fails_for_room: max_queued.is_some_and(|max| self.engine.index.queued(&submission.queue) >= max),
                parent,
                membership: memberships.by_place.get(*place).cloned().flatten(),
            };
            if let Some(Membership { workflow, reference }) = birth.membership.as_ref().filter(|_| memberships.named)
                && submission.job.reference.is_some()
            {
                self.records.name_member(*workflow, reference, *seq).map_err(Stop::Broken)?;
            }
            let kind = self.bear(submission, birth, &queue, plan.key.clone(), &mut waiting)?;
            states.insert(*id, kind);
            let newborn = Ending::of(kind).map_or(Standing::Alive, |ending| Standing::Ended(ending, self.now));
            standings.insert(*id, newborn);
        }
        self.count_dependents(waiting, Life::Began)?;
        let mut answers = planning.answers(&names, &states);
        for (answer, membership) in answers.iter_mut().zip(&memberships.by_place) {
            answer.membership = membership.clone();
        }
        Ok(answers)
    }

    fn name_newcomer(&mut self) -> (JobId, Seq) {
        let seq = Seq(self.engine.next_number);
        self.engine.next_number += 1;
        (self.records.new_id(seq, self.dice), seq)
    }

    fn bear(
        &mut self,
        submission: &Submission,
        birth: Birth,
        queue: &Queue,
        key: Option<KeyPath>,
        waiting: &mut BTreeMap<JobId, u32>,
    ) -> Result<StateKind, Stop<R::Error>> {
        let mut moment = Moment {
            now: self.now,
            dice: self.dice,
            next_number: &mut self.engine.next_number,
            lease_floor: self.engine.options.lease_floor,
            moves: &mut self.moves,
        };
        let job = submit::create(&submission.job, birth, &queue.intake, &mut moment);
        let (id, seq, kind) = (job.id, job.seq, job.kind());
        let dependencies = job.dependencies.all();
        self.add(Box::new(job), PayloadSource::Given(submission.job.payload.clone()))?;
        if let Some(path) = key {
            let entry = KeyEntry { id, seq, at: self.now, purge_at: None };
            self.records.put_key(path, entry).map_err(Stop::Broken)?;
        }
        for dependency in &dependencies {
            if let Some(elder) = self.records.seq_of(*dependency).map_err(Stop::Broken)? {
                self.records.link(elder, seq).map_err(Stop::Broken)?;
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
