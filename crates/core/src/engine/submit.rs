//! Submission of a batch: everything is checked first, then everything is stored, or nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::dependency::{After, Dependencies, Standing, weigh};
use crate::id::{JobId, LeaseToken, QueueName, Seq};
use crate::job::{IdempotencyKey, Job, Moment};
use crate::lease;
use crate::limits::{BATCH_ITEMS_MAX, DEPENDENCIES_MAX, DEPENDENCY_DEPTH_MAX};
use crate::policy::{Policy, SubmitMode};
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::state::{Ending, StateKind};
use crate::submit::{self, Birth, DependencyRef, NewJob, Places};

use super::operate::standing;
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
}

impl SubmitRequest {
    pub fn new(batch: Vec<Submission>) -> Self {
        Self { batch, parent: None, finally: None }
    }

    /// Children of a running job, and the job that runs once after all of them have completed.
    pub fn children(
        parent: JobId,
        token: Option<LeaseToken>,
        batch: Vec<Submission>,
        finally: Option<Submission>,
    ) -> Self {
        Self { batch, parent: Some((parent, token)), finally: finally.map(Box::new) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub id: JobId,
    pub seq: Seq,
    /// `None`: the key has outlived its job.
    pub state: Option<StateKind>,
    pub duplicate: bool,
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

/// What a member of the batch turned out to be.
enum Member {
    New(Box<Plan>),
    /// Of a job that exists, or of the key that is left of it.
    Duplicate(Submitted),
    /// Of an earlier member of the same batch.
    Repeats(usize),
}

/// A newcomer that passed its own checks.
struct Plan {
    policy: Arc<Policy>,
    key: Option<KeyPath>,
    after: Vec<Source>,
    after_any: Vec<Source>,
    priority: Priority,
    depth: u32,
    inherited: Priority,
}

/// Whom a newcomer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Job(JobId),
    /// Another newcomer, by its place in the batch.
    Place(usize),
}

/// `after` and `after_any`, each once.
type Sources = (Vec<Source>, Vec<Source>);

/// What is known of a job that newcomers wait for.
#[derive(Clone, Copy)]
struct Elder {
    standing: Standing,
    priority: Priority,
    depth: u32,
}

/// The state of the checks: what the batch itself has taken so far.
struct Planning {
    members: Vec<Option<Member>>,
    errors: Vec<(usize, Refusal)>,
    keys: HashMap<KeyPath, usize>,
    external_ids: HashSet<(QueueName, Arc<str>)>,
    queued: HashMap<QueueName, u64>,
    elders: HashMap<JobId, Elder>,
    /// Which places each place waits for; also of members that were refused, for a cycle is the fault of all its members.
    waits: BTreeMap<usize, BTreeSet<usize>>,
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
        let SubmitRequest { batch, parent, finally } = request;
        if let Some((parent, token)) = parent {
            let (seq, now) = (self.find(*parent)?, self.now);
            let held = self.look(seq, |job| lease::check(job, *token, now).map(|_| ()))?;
            held.ok_or(Refusal::JobNotFound)??;
        }
        if !(1..=BATCH_ITEMS_MAX).contains(&batch.len()) {
            return Err(Refusal::invalid("jobs", format!("must be 1-{BATCH_ITEMS_MAX} jobs")).into());
        }
        let parent = parent.map(|(parent, _)| parent);
        match finally {
            None => self.submit_batch(batch, parent),
            Some(finally) => {
                let mut last = Submission::clone(finally);
                last.job.after.extend((0..batch.len()).map(DependencyRef::Place));
                let whole: Vec<Submission> = batch.iter().cloned().chain([last]).collect();
                self.submit_batch(&whole, parent)
            }
        }
    }

    fn submit_batch(
        &mut self,
        batch: &[Submission],
        parent: Option<JobId>,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, Stop<R::Error>> {
        let mut planning = Planning {
            members: Vec::with_capacity(batch.len()),
            errors: Vec::new(),
            keys: HashMap::new(),
            external_ids: HashSet::new(),
            queued: HashMap::new(),
            elders: HashMap::new(),
            waits: BTreeMap::new(),
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
        self.find_sources(batch, &places, &mut planning)?;
        let order = arrange(&mut planning);
        if !planning.errors.is_empty() {
            return Ok(Err(planning.refusal()));
        }
        Ok(Ok(self.give_birth(batch, parent, &planning, &order)?))
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
        if !held {
            let queued = planning.queued.entry(name.clone()).or_insert_with(|| self.engine.index.queued(name));
            if let Some(max_queued) = queue.intake.max_queued.filter(|max| *queued >= *max) {
                return Err(Refusal::QueueFull { max_queued }.into());
            }
            *queued += 1;
        }
        Ok(Member::New(Box::new(Plan {
            policy,
            key,
            after: Vec::new(),
            after_any: Vec::new(),
            priority: new.priority,
            depth: 1,
            inherited: Priority::Bulk,
        })))
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
        Ok(Some(Submitted { id: entry.id, seq: entry.seq, state, duplicate: true }))
    }

    /// Resolves the dependencies of all newcomers to jobs or places.
    fn find_sources(
        &mut self,
        batch: &[Submission],
        places: &Places,
        planning: &mut Planning,
    ) -> Result<(), Stop<R::Error>> {
        for (place, Submission { job: new, .. }) in batch.iter().enumerate() {
            if matches!(planning.members.get(place), Some(Some(Member::Duplicate(_) | Member::Repeats(_)))) {
                continue;
            }
            match self.sources_of(new, places, planning) {
                Ok((after, after_any)) => planning.note_sources(place, after, after_any),
                Err(Stop::Refused(refusal)) => planning.errors.push((place, refusal)),
                Err(broken @ Stop::Broken(_)) => return Err(broken),
            }
        }
        Ok(())
    }

    fn sources_of(
        &mut self,
        new: &NewJob,
        places: &Places,
        planning: &mut Planning,
    ) -> Result<Sources, Stop<R::Error>> {
        let resolve = |refs: &[DependencyRef]| -> Result<Vec<Source>, Stop<R::Error>> {
            let (mut seen, mut sources) = (HashSet::new(), Vec::with_capacity(refs.len()));
            for reference in refs {
                let source = match reference {
                    DependencyRef::Job(id) => Source::Job(*id),
                    DependencyRef::Local(name) => {
                        let unknown = || Refusal::DependencyUnknown(format!("#{name}"));
                        planning.source_at(*places.get(name).ok_or_else(unknown)?)
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
        let (after, after_any) = (resolve(&new.after)?, resolve(&new.after_any)?);
        let given = after.len() + after_any.len();
        if given > DEPENDENCIES_MAX {
            return Err(Refusal::DependencyBreadth { given }.into());
        }
        for source in after.iter().chain(&after_any) {
            match source {
                Source::Job(id) => self.look_up_elder(*id, planning)?,
                Source::Place(_) => {}
            }
        }
        Ok((after, after_any))
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
            let Some(Some(Member::New(plan))) = planning.members.get(*place) else { continue };
            let name_of = |source: &Source| match source {
                Source::Job(id) => Some(*id),
                Source::Place(place) => names.get(*place).copied().flatten().map(|(id, _)| id),
            };
            let mut dependencies = Dependencies {
                after: plan.after.iter().filter_map(name_of).map(After::unmet).collect(),
                after_any: plan.after_any.iter().filter_map(name_of).collect(),
                depth: plan.depth,
                ..Dependencies::default()
            };
            let broken = weigh(&mut dependencies, |id| standing(&standings, id));
            let queue = self.intake(&submission.queue)?;
            let birth = Birth {
                id: *id,
                seq: *seq,
                queue: submission.queue.clone(),
                policy: Arc::clone(&plan.policy),
                dependencies,
                inherited_priority: plan.inherited,
                broken,
                parent,
            };
            let kind = self.bear(submission, birth, &queue, plan.key.clone(), &mut waiting)?;
            states.insert(*id, kind);
            let newborn = Ending::of(kind).map_or(Standing::Alive, |ending| Standing::Ended(ending, self.now));
            standings.insert(*id, newborn);
        }
        self.count_dependents(waiting, Life::Began)?;
        Ok(planning.answers(&names, &states))
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

/// Puts newcomers in an order in which each comes after those it waits for, and works out depth and inherited priority on the way.
fn arrange(planning: &mut Planning) -> Vec<usize> {
    let places: BTreeSet<usize> = (0..planning.members.len()).collect();
    let waits = std::mem::take(&mut planning.waits);
    let mut followers: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (place, sources) in &waits {
        for source in sources {
            followers.entry(*source).or_default().insert(*place);
        }
    }
    let order = peel(&places, waits.clone(), &followers);
    for place in &order {
        planning.weigh_newcomer(*place);
    }
    let tangled: BTreeSet<usize> = places.difference(&order.iter().copied().collect()).copied().collect();
    // Those that only lead out of a cycle are not part of it.
    let leading_out: BTreeSet<usize> = peel(&tangled, followers, &waits).into_iter().collect();
    for place in tangled.difference(&leading_out) {
        planning.errors.push((*place, Refusal::DependencyCycle(format!("job {place} of the batch"))));
    }
    order
}

/// Takes away, again and again, the first place that waits for nobody who is left.
fn peel(
    places: &BTreeSet<usize>,
    mut waits: BTreeMap<usize, BTreeSet<usize>>,
    followers: &BTreeMap<usize, BTreeSet<usize>>,
) -> Vec<usize> {
    for wait in waits.values_mut() {
        wait.retain(|place| places.contains(place));
    }
    let free =
        |place: &usize, waits: &BTreeMap<usize, BTreeSet<usize>>| waits.get(place).is_none_or(BTreeSet::is_empty);
    let mut ready: BTreeSet<usize> = places.iter().copied().filter(|place| free(place, &waits)).collect();
    let mut order = Vec::with_capacity(places.len());
    while let Some(place) = ready.pop_first() {
        order.push(place);
        for follower in followers.get(&place).into_iter().flatten().filter(|follower| places.contains(follower)) {
            if let Some(wait) = waits.get_mut(follower) {
                wait.remove(&place);
            }
            if free(follower, &waits) {
                ready.insert(*follower);
            }
        }
    }
    order
}

impl Plan {
    fn sources(&self) -> impl Iterator<Item = Source> {
        self.after.iter().chain(&self.after_any).copied()
    }
}

impl Planning {
    fn note_sources(&mut self, place: usize, after: Vec<Source>, after_any: Vec<Source>) {
        for source in after.iter().chain(&after_any) {
            match source {
                Source::Place(source) => {
                    self.waits.entry(place).or_default().insert(*source);
                }
                Source::Job(_) => {}
            }
        }
        if let Some(Some(Member::New(plan))) = self.members.get_mut(place) {
            plan.after = after;
            plan.after_any = after_any;
        }
    }

    fn newcomer(&self, place: usize) -> Option<&Plan> {
        match self.members.get(place)? {
            Some(Member::New(plan)) => Some(plan),
            Some(Member::Duplicate(_) | Member::Repeats(_)) | None => None,
        }
    }

    /// Whom a reference to this place means: the newcomer there, or the job that it repeats.
    fn source_at(&self, place: usize) -> Source {
        match self.members.get(place) {
            Some(Some(Member::Duplicate(known))) => Source::Job(known.id),
            Some(Some(Member::Repeats(earlier))) => Source::Place(*earlier),
            Some(Some(Member::New(_)) | None) | None => Source::Place(place),
        }
    }

    /// Depth and inherited priority follow from those it waits for, who were weighed before.
    fn weigh_newcomer(&mut self, place: usize) {
        let Some(plan) = self.newcomer(place) else { return };
        let (mut depth, mut inherited) = (1, Priority::Bulk);
        for source in plan.sources() {
            let (elder_depth, elder_priority) = match source {
                Source::Job(id) => {
                    self.elders.get(&id).map_or((0, Priority::Bulk), |elder| (elder.depth, elder.priority))
                }
                Source::Place(place) => self
                    .newcomer(place)
                    .map_or((0, Priority::Bulk), |plan| (plan.depth, plan.priority.more_urgent(plan.inherited))),
            };
            depth = depth.max(elder_depth.saturating_add(1));
            inherited = inherited.more_urgent(elder_priority);
        }
        if depth > DEPENDENCY_DEPTH_MAX {
            self.errors.push((place, Refusal::DependencyDepth));
        }
        if let Some(Some(Member::New(plan))) = self.members.get_mut(place) {
            plan.depth = depth;
            plan.inherited = inherited;
        }
    }

    /// One error a member, the lowest place first.
    fn refusal(mut self) -> BatchRefusal {
        // Stable: of several complaints about one member, the first one found stays.
        self.errors.sort_by_key(|(place, _)| *place);
        self.errors.dedup_by_key(|(place, _)| *place);
        let first = self.errors.first().map_or(Refusal::JobNotFound, |(_, refusal)| refusal.clone());
        BatchRefusal { first, errors: self.errors }
    }

    fn answers(&self, names: &[Option<(JobId, Seq)>], states: &HashMap<JobId, StateKind>) -> Vec<Submitted> {
        let born = |place: usize, duplicate: bool| {
            let (id, seq) = names.get(place).copied().flatten()?;
            Some(Submitted { id, seq, state: states.get(&id).copied(), duplicate })
        };
        let answer = |(place, member): (usize, &Option<Member>)| match member {
            Some(Member::New(_)) => born(place, false),
            Some(Member::Repeats(earlier)) => born(*earlier, true),
            Some(Member::Duplicate(known)) => Some(known.clone()),
            None => None,
        };
        self.members.iter().enumerate().filter_map(answer).collect()
    }
}
