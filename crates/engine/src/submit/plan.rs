//! The plan of a batch: which items are new, their dependencies, and the order of creation.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longshore_core::dependency::DependencyStatus;
use longshore_core::id::{JobId, QueueName, Seq};
use longshore_core::limits::DEPENDENCY_DEPTH_MAX;
use longshore_core::policy::Policy;
use longshore_core::priority::Priority;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;

use super::request::ItemRefs;
use super::{BatchRefusal, Submitted};
use crate::records::ScopedIdempotencyKey;

/// What an item of the batch turned out to be.
pub(super) enum BatchItem {
    New(Box<JobPlan>),
    /// Its idempotency key belongs to an existing job, or to one whose record was removed.
    Duplicate(Submitted),
    /// Its idempotency key belongs to an earlier item of the batch.
    DuplicateInBatch(usize),
}

/// A new job that passed its own checks.
pub(super) struct JobPlan {
    pub(super) policy: Arc<Policy>,
    pub(super) key: Option<ScopedIdempotencyKey>,
    pub(super) priority: Priority,
    pub(super) held: bool,
}

/// What a new job depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DependencyTarget {
    Job(JobId),
    /// Another new job, by its index in the batch.
    Item(usize),
}

/// The dependencies of one item, without duplicates.
#[derive(Default)]
pub(super) struct ItemDependencies {
    pub(super) after: Vec<DependencyTarget>,
    pub(super) after_any: Vec<DependencyTarget>,
}

/// What an item inherits from its dependencies.
#[derive(Clone, Copy)]
pub(super) struct InheritedProperties {
    pub(super) depth: u32,
    pub(super) priority: Priority,
}

impl InheritedProperties {
    /// The properties of a job without dependencies.
    const ROOT: Self = Self { depth: 1, priority: Priority::Bulk };
}

/// An existing job that new jobs depend on.
#[derive(Clone, Copy)]
pub(super) struct ExistingDependency {
    pub(super) status: DependencyStatus,
    pub(super) priority: Priority,
    pub(super) depth: u32,
}

/// The results of the checks so far.
pub(super) struct BatchPlan {
    /// `None` for an item that was refused.
    pub(super) items: Vec<Option<BatchItem>>,
    pub(super) errors: Vec<(usize, Refusal)>,
    pub(super) keys: HashMap<ScopedIdempotencyKey, usize>,
    pub(super) external_ids: HashSet<(QueueName, Arc<str>)>,
    pub(super) existing: HashMap<JobId, ExistingDependency>,
    /// Members of the same workflow from earlier requests, by reference.
    pub(super) earlier_members: HashMap<Arc<str>, JobId>,
    /// The dependencies of each item, also of refused ones: a cycle or a chain that is too long is
    /// an error of all its items, whatever else is wrong with one of them.
    pub(super) dependencies: Vec<ItemDependencies>,
    inherited: Vec<InheritedProperties>,
}

/// Returns the items in an order in which each follows its dependencies. Also computes what they
/// inherit, and adds an error for each item of a cycle.
pub(super) fn topological_order(plan: &mut BatchPlan, items: &[ItemRefs<'_>]) -> Vec<usize> {
    let indexes: BTreeSet<usize> = (0..plan.items.len()).collect();
    let (mut dependencies, mut dependents): (BTreeMap<usize, BTreeSet<usize>>, BTreeMap<usize, BTreeSet<usize>>) =
        (BTreeMap::new(), BTreeMap::new());
    for (index, targets) in plan.dependencies.iter().enumerate() {
        for target in targets.all() {
            match target {
                DependencyTarget::Item(target) => {
                    dependencies.entry(index).or_default().insert(target);
                    dependents.entry(target).or_default().insert(index);
                }
                DependencyTarget::Job(_) => {}
            }
        }
    }
    let order = kahn(&indexes, dependencies.clone(), &dependents);
    for index in &order {
        plan.compute_inherited(*index);
    }
    let unordered: BTreeSet<usize> = indexes.difference(&order.iter().copied().collect()).copied().collect();
    // Items that only depend on a cycle are not part of it.
    let behind_cycles: BTreeSet<usize> = kahn(&unordered, dependents, &dependencies).into_iter().collect();
    for index in unordered.difference(&behind_cycles) {
        let reference = items.get(*index).and_then(|item| item.reference);
        let name = reference.map_or_else(|| format!("job {index}"), |reference| format!("#{reference}"));
        plan.errors.push((*index, Refusal::DependencyCycle(name)));
    }
    order
}

/// Kahn's algorithm: repeatedly removes the first node without remaining dependencies.
/// Returns the removed nodes in order; the nodes of cycles, and those behind them, remain.
fn kahn(
    nodes: &BTreeSet<usize>,
    mut dependencies: BTreeMap<usize, BTreeSet<usize>>,
    dependents: &BTreeMap<usize, BTreeSet<usize>>,
) -> Vec<usize> {
    for targets in dependencies.values_mut() {
        targets.retain(|target| nodes.contains(target));
    }
    let is_free = |node: &usize, dependencies: &BTreeMap<usize, BTreeSet<usize>>| {
        dependencies.get(node).is_none_or(BTreeSet::is_empty)
    };
    let mut ready: BTreeSet<usize> = nodes.iter().copied().filter(|node| is_free(node, &dependencies)).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for dependent in dependents.get(&node).into_iter().flatten().filter(|dependent| nodes.contains(dependent)) {
            if let Some(targets) = dependencies.get_mut(dependent) {
                targets.remove(&node);
            }
            if is_free(dependent, &dependencies) {
                ready.insert(*dependent);
            }
        }
    }
    order
}

impl ItemDependencies {
    pub(super) fn all(&self) -> impl Iterator<Item = DependencyTarget> {
        self.after.iter().chain(&self.after_any).copied()
    }
}

impl ExistingDependency {
    fn ended_without_success(&self) -> bool {
        match self.status {
            DependencyStatus::Ended(ending, _) => !ending.is_success(),
            DependencyStatus::Alive | DependencyStatus::Gone => false,
        }
    }
}

impl BatchPlan {
    /// Creates an empty plan for a batch of `len` items.
    pub(super) fn new(len: usize) -> Self {
        Self {
            items: Vec::with_capacity(len),
            errors: Vec::new(),
            keys: HashMap::new(),
            external_ids: HashSet::new(),
            existing: HashMap::new(),
            earlier_members: HashMap::new(),
            dependencies: Vec::with_capacity(len),
            inherited: vec![InheritedProperties::ROOT; len],
        }
    }

    /// Returns the items that end at their creation: a dependency has ended without success, or is
    /// such an item itself.
    pub(super) fn failed_at_submit(&self) -> HashSet<usize> {
        let (mut open, mut dependents): (Vec<usize>, HashMap<usize, Vec<usize>>) = (Vec::new(), HashMap::new());
        for (index, targets) in self.dependencies.iter().enumerate() {
            for target in &targets.after {
                match target {
                    DependencyTarget::Job(id)
                        if self.existing.get(id).is_some_and(ExistingDependency::ended_without_success) =>
                    {
                        open.push(index);
                    }
                    DependencyTarget::Job(_) => {}
                    DependencyTarget::Item(target) => dependents.entry(*target).or_default().push(index),
                }
            }
        }
        let mut failed = HashSet::new();
        while let Some(index) = open.pop() {
            if failed.insert(index) {
                open.extend(dependents.get(&index).into_iter().flatten());
            }
        }
        failed
    }

    pub(super) fn new_job_at(&self, index: usize) -> Option<&JobPlan> {
        match self.items.get(index)? {
            Some(BatchItem::New(job)) => Some(job),
            Some(BatchItem::Duplicate(_) | BatchItem::DuplicateInBatch(_)) | None => None,
        }
    }

    pub(super) fn inherited_at(&self, index: usize) -> InheritedProperties {
        self.inherited.get(index).copied().unwrap_or(InheritedProperties::ROOT)
    }

    /// Returns the job that a reference to this item means: the new job, or the one that the item
    /// duplicates.
    pub(super) fn target_at(&self, index: usize) -> DependencyTarget {
        match self.items.get(index) {
            Some(Some(BatchItem::Duplicate(existing))) => DependencyTarget::Job(existing.id),
            Some(Some(BatchItem::DuplicateInBatch(first))) => DependencyTarget::Item(*first),
            Some(Some(BatchItem::New(_)) | None) | None => DependencyTarget::Item(index),
        }
    }

    /// Computes depth and inherited priority of an item. Precondition: those of its dependencies
    /// are computed.
    fn compute_inherited(&mut self, index: usize) {
        let mut inherited = InheritedProperties::ROOT;
        for target in self.dependencies.get(index).into_iter().flat_map(ItemDependencies::all) {
            let (depth, priority) = match target {
                DependencyTarget::Job(id) => {
                    self.existing.get(&id).map_or((0, Priority::Bulk), |job| (job.depth, job.priority))
                }
                DependencyTarget::Item(target) => {
                    let own = self.new_job_at(target).map_or(Priority::Bulk, |job| job.priority);
                    let InheritedProperties { depth, priority } = self.inherited_at(target);
                    (depth, own.more_urgent(priority))
                }
            };
            inherited.depth = inherited.depth.max(depth.saturating_add(1));
            inherited.priority = inherited.priority.more_urgent(priority);
        }
        if inherited.depth > DEPENDENCY_DEPTH_MAX {
            self.errors.push((index, Refusal::DependencyDepth));
        }
        if let Some(slot) = self.inherited.get_mut(index) {
            *slot = inherited;
        }
    }

    /// Returns one error per refused item, in the order of the batch.
    pub(super) fn into_refusal(mut self) -> BatchRefusal {
        // A stable sort: of several errors of one item, the first one found stays.
        self.errors.sort_by_key(|(index, _)| *index);
        self.errors.dedup_by_key(|(index, _)| *index);
        let first = self.errors.first().map_or(Refusal::JobNotFound, |(_, refusal)| refusal.clone());
        BatchRefusal { first, errors: self.errors }
    }

    /// Returns the result of each item, given the ids and states of the new jobs.
    pub(super) fn results(&self, ids: &[Option<(JobId, Seq)>], states: &HashMap<JobId, StateKind>) -> Vec<Submitted> {
        let created = |index: usize, duplicate: bool| {
            let (id, seq) = ids.get(index).copied().flatten()?;
            Some(Submitted { id, seq, state: states.get(&id).copied(), duplicate, membership: None })
        };
        let result = |(index, item): (usize, &Option<BatchItem>)| match item {
            Some(BatchItem::New(_)) => created(index, false),
            Some(BatchItem::DuplicateInBatch(first)) => created(*first, true),
            Some(BatchItem::Duplicate(existing)) => Some(existing.clone()),
            None => None,
        };
        self.items.iter().enumerate().filter_map(result).collect()
    }
}
