//! What the checks of a batch have found out so far: who is new, who waits for whom, how deep and how urgent that makes them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longshore_core::dependency::DependencyStatus;
use longshore_core::id::{JobId, QueueName, Seq};
use longshore_core::limits::DEPENDENCY_DEPTH_MAX;
use longshore_core::policy::Policy;
use longshore_core::priority::Priority;
use longshore_core::refusal::Refusal;
use longshore_core::state::{StateKind, TerminalState};

use super::{BatchRefusal, ScopedIdempotencyKey, Submission, Submitted};

/// What a member of the batch turned out to be.
pub(super) enum BatchItem {
    New(Box<JobPlan>),
    /// Of a job that exists, or of the key that is left of it.
    Duplicate(Submitted),
    /// Of an earlier member of the same batch.
    DuplicateInBatch(usize),
}

/// A newcomer that passed its own checks.
pub(super) struct JobPlan {
    pub(super) policy: Arc<Policy>,
    pub(super) key: Option<ScopedIdempotencyKey>,
    pub(super) priority: Priority,
    pub(super) held: bool,
}

/// Whom a newcomer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DependencyTarget {
    Job(JobId),
    /// Another newcomer, by its place in the batch.
    Place(usize),
}

/// Each once.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) after: Vec<DependencyTarget>,
    pub(super) after_any: Vec<DependencyTarget>,
}

/// What a place gets from those it waits for.
#[derive(Clone, Copy)]
pub(super) struct InheritedProperties {
    pub(super) depth: u32,
    pub(super) inherited: Priority,
}

/// What is known of a job that newcomers wait for.
#[derive(Clone, Copy)]
pub(super) struct ExistingDependency {
    pub(super) standing: DependencyStatus,
    pub(super) priority: Priority,
    pub(super) depth: u32,
}

/// The state of the checks: what the batch itself has taken so far.
pub(super) struct BatchPlan {
    pub(super) members: Vec<Option<BatchItem>>,
    pub(super) errors: Vec<(usize, Refusal)>,
    pub(super) keys: HashMap<ScopedIdempotencyKey, usize>,
    pub(super) external_ids: HashSet<(QueueName, Arc<str>)>,
    pub(super) existing: HashMap<JobId, ExistingDependency>,
    /// Members of the same workflow that were named in earlier calls.
    pub(super) earlier: HashMap<Arc<str>, JobId>,
    /// Whom each place waits for; also of members that were refused: a cycle is the fault of all its members, and a chain is as
    /// long as it is, whatever else is wrong with one of its links.
    pub(super) sources: Vec<Sources>,
    pub(super) weights: Vec<InheritedProperties>,
}

/// Puts newcomers in an order in which each comes after those it waits for, and works out depth and inherited priority on the way.
pub(super) fn topological_order(planning: &mut BatchPlan, batch: &[Submission]) -> Vec<usize> {
    let places: BTreeSet<usize> = (0..planning.members.len()).collect();
    let (mut waits, mut followers): (BTreeMap<usize, BTreeSet<usize>>, BTreeMap<usize, BTreeSet<usize>>) =
        (BTreeMap::new(), BTreeMap::new());
    for (place, sources) in planning.sources.iter().enumerate() {
        for source in sources.all() {
            match source {
                DependencyTarget::Place(source) => {
                    waits.entry(place).or_default().insert(source);
                    followers.entry(source).or_default().insert(place);
                }
                DependencyTarget::Job(_) => {}
            }
        }
    }
    let order = kahn(&places, waits.clone(), &followers);
    for place in &order {
        planning.compute_inherited(*place);
    }
    let tangled: BTreeSet<usize> = places.difference(&order.iter().copied().collect()).copied().collect();
    // Those that only lead out of a cycle are not part of it.
    let leading_out: BTreeSet<usize> = kahn(&tangled, followers, &waits).into_iter().collect();
    for place in tangled.difference(&leading_out) {
        let reference = batch.get(*place).and_then(|submission| submission.job.reference.as_ref());
        let name = reference.map_or_else(|| format!("job {place}"), |reference| format!("#{reference}"));
        planning.errors.push((*place, Refusal::DependencyCycle(name)));
    }
    order
}

/// Takes away, again and again, the first place that waits for nobody who is left.
fn kahn(
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

impl Sources {
    pub(super) fn all(&self) -> impl Iterator<Item = DependencyTarget> {
        self.after.iter().chain(&self.after_any).copied()
    }
}

impl ExistingDependency {
    fn ended_without_success(&self) -> bool {
        match self.standing {
            DependencyStatus::Ended(
                TerminalState::Failed | TerminalState::DeadLetter | TerminalState::Cancelled,
                _,
            ) => true,
            DependencyStatus::Ended(TerminalState::Completed, _) | DependencyStatus::Alive | DependencyStatus::Gone => {
                false
            }
        }
    }
}

impl BatchPlan {
    /// Those that end with their creation: somebody they wait for has ended without success, or is such a newcomer too.
    pub(super) fn failed_at_submit(&self) -> HashSet<usize> {
        let (mut open, mut followers): (Vec<usize>, HashMap<usize, Vec<usize>>) = (Vec::new(), HashMap::new());
        for (place, sources) in self.sources.iter().enumerate() {
            for source in &sources.after {
                match source {
                    DependencyTarget::Job(id)
                        if self.existing.get(id).is_some_and(ExistingDependency::ended_without_success) =>
                    {
                        open.push(place);
                    }
                    DependencyTarget::Job(_) => {}
                    DependencyTarget::Place(source) => followers.entry(*source).or_default().push(place),
                }
            }
        }
        let mut ended = HashSet::new();
        while let Some(place) = open.pop() {
            if ended.insert(place) {
                open.extend(followers.get(&place).into_iter().flatten());
            }
        }
        ended
    }

    pub(super) fn new_job_at(&self, place: usize) -> Option<&JobPlan> {
        match self.members.get(place)? {
            Some(BatchItem::New(plan)) => Some(plan),
            Some(BatchItem::Duplicate(_) | BatchItem::DuplicateInBatch(_)) | None => None,
        }
    }

    /// Whom a reference to this place means: the newcomer there, or the job that it repeats.
    pub(super) fn source_at(&self, place: usize) -> DependencyTarget {
        match self.members.get(place) {
            Some(Some(BatchItem::Duplicate(known))) => DependencyTarget::Job(known.id),
            Some(Some(BatchItem::DuplicateInBatch(earlier))) => DependencyTarget::Place(*earlier),
            Some(Some(BatchItem::New(_)) | None) | None => DependencyTarget::Place(place),
        }
    }

    /// Depth and inherited priority follow from those it waits for, who were weighed before.
    fn compute_inherited(&mut self, place: usize) {
        let mut weight = InheritedProperties { depth: 1, inherited: Priority::Bulk };
        for source in self.sources.get(place).into_iter().flat_map(Sources::all) {
            let (depth, priority) = match source {
                DependencyTarget::Job(id) => {
                    self.existing.get(&id).map_or((0, Priority::Bulk), |elder| (elder.depth, elder.priority))
                }
                DependencyTarget::Place(place) => {
                    let own = self.new_job_at(place).map_or(Priority::Bulk, |plan| plan.priority);
                    let weight = self.weights.get(place);
                    weight.map_or((0, own), |weight| (weight.depth, own.more_urgent(weight.inherited)))
                }
            };
            weight.depth = weight.depth.max(depth.saturating_add(1));
            weight.inherited = weight.inherited.more_urgent(priority);
        }
        if weight.depth > DEPENDENCY_DEPTH_MAX {
            self.errors.push((place, Refusal::DependencyDepth));
        }
        if let Some(slot) = self.weights.get_mut(place) {
            *slot = weight;
        }
    }

    /// One error a member, the lowest place first.
    pub(super) fn refusal(mut self) -> BatchRefusal {
        // Stable: of several complaints about one member, the first one found stays.
        self.errors.sort_by_key(|(place, _)| *place);
        self.errors.dedup_by_key(|(place, _)| *place);
        let first = self.errors.first().map_or(Refusal::JobNotFound, |(_, refusal)| refusal.clone());
        BatchRefusal { first, errors: self.errors }
    }

    pub(super) fn answers(&self, names: &[Option<(JobId, Seq)>], states: &HashMap<JobId, StateKind>) -> Vec<Submitted> {
        let born = |place: usize, duplicate: bool| {
            let (id, seq) = names.get(place).copied().flatten()?;
            Some(Submitted { id, seq, state: states.get(&id).copied(), duplicate, membership: None })
        };
        let answer = |(place, member): (usize, &Option<BatchItem>)| match member {
            Some(BatchItem::New(_)) => born(place, false),
            Some(BatchItem::DuplicateInBatch(earlier)) => born(*earlier, true),
            Some(BatchItem::Duplicate(known)) => Some(known.clone()),
            None => None,
        };
        self.members.iter().enumerate().filter_map(answer).collect()
    }
}
