//! Workers that claim from this server, and the jobs that they run.
//!
//! The registry is in memory and only informs people: no rule depends on it. Other servers may end
//! these jobs, so `worker_check.rs` compares the registry with the store. `fleet.rs` exchanges it
//! with other servers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::id::{JobId, JobType, QueueName, WorkerName};
use longshore_store::SeenWorker;
use longshore_store::clock::monotonic;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::background::deploys::DeployLog;

/// Workers of the registry; above this, those not seen for longest are evicted.
const WORKERS_MAX: usize = 10_000;
/// Running jobs whose worker is registered.
const JOBS_MAX: usize = 200_000;
const QUEUES_MAX: usize = 10_000;
/// A queue has recent claims for this long.
const RECENT: Duration = Duration::from_secs(60);
/// An idle worker that sends no request for this long is evicted, and not found.
pub(crate) const EVICT_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// Types of a queue that are tracked.
const TYPES_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct WorkerRegistry {
    registry: Mutex<Registry>,
    /// A worker was seen for the first time.
    new_worker: Notify,
    deploys: DeployLog,
}

#[derive(Debug, Default)]
struct Registry {
    workers: HashMap<WorkerName, WorkerState>,
    jobs: HashMap<JobId, Assignment>,
    /// The same jobs by `check_seq`: the first was compared with the store longest ago.
    check_order: BTreeMap<u64, JobId>,
    last_check_seq: u64,
    queues: HashMap<QueueName, QueueDemand>,
}

/// A job that a worker runs.
#[derive(Debug)]
struct Assignment {
    worker: WorkerName,
    /// Claimed from this server, and not from another one of the fleet.
    is_own: bool,
    /// Position in the order of checks; changes with each claim and each check.
    check_seq: u64,
    /// Monotonic time of the claim or the last check.
    checked_at: Duration,
}

/// A job to compare with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaleAssignment {
    pub(crate) id: JobId,
    check_seq: u64,
}

#[derive(Debug)]
struct WorkerState {
    version: Option<String>,
    types: Vec<JobType>,
    queues: Vec<QueueName>,
    /// By the store's clock, which is shown, and by the monotonic clock, which decides evictions.
    last_seen: (Timestamp, Duration),
    running: u64,
    /// Those of `running` that were claimed from this server.
    own_running: u64,
    waiting: u64,
    /// What other servers know.
    reported: Option<SeenWorker>,
}

/// The claims on a queue.
#[derive(Debug, Default)]
struct QueueDemand {
    last: Option<(Timestamp, Duration)>,
    all_types: TypeDemand,
    types: HashMap<JobType, TypeDemand>,
}

#[derive(Debug, Default)]
struct TypeDemand {
    /// Monotonic time of the last claim.
    last: Option<Duration>,
    waiting: u64,
}

impl TypeDemand {
    fn is_recent(&self) -> bool {
        let is_recent = |at: Duration| monotonic().saturating_sub(at) <= RECENT;
        self.waiting > 0 || self.last.is_some_and(is_recent)
    }
}

impl QueueDemand {
    /// Returns the demand of a claim for these types, one for each type.
    fn of_types(&mut self, types: &[JobType]) -> Vec<&mut TypeDemand> {
        if types.is_empty() {
            return vec![&mut self.all_types];
        }
        for job_type in types {
            if self.types.len() < TYPES_MAX && !self.types.contains_key(job_type) {
                self.types.insert(job_type.clone(), TypeDemand::default());
            }
        }
        self.types.iter_mut().filter(|(job_type, _)| types.contains(job_type)).map(|(_, demand)| demand).collect()
    }
}

/// A claim as the registry sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimInfo<'a> {
    pub(crate) worker: Option<&'a WorkerName>,
    pub(crate) version: Option<&'a str>,
    pub(crate) queues: &'a [QueueName],
    pub(crate) types: &'a [JobType],
    /// Whether the worker may get jobs; a quiet worker serves no queue.
    pub(crate) can_claim: bool,
}

/// A worker of the registry.
#[derive(Clone, Debug)]
pub(crate) struct LocalWorker {
    pub(crate) seen: SeenWorker,
    /// Jobs that it runs, claimed from any server.
    pub(crate) running: u64,
    pub(crate) waiting: u64,
}

/// A claim in flight; counted as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct ClaimGuard {
    workers: Arc<WorkerRegistry>,
    worker: Option<WorkerName>,
    queues: Vec<QueueName>,
    types: Vec<JobType>,
}

impl WorkerRegistry {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }

    /// Registers a claim of a worker on queues.
    pub(crate) fn claim_started(self: &Arc<Self>, claim: ClaimInfo<'_>, now: Timestamp) -> ClaimGuard {
        let ClaimInfo { worker, version, queues, types, can_claim } = claim;
        let at = (now, monotonic());
        let mut registry = self.registry();
        let served = if can_claim { queues } else { &[] };
        for queue in served {
            registry.demand(queue, types, |demand| {
                demand.last = Some(at.1);
                demand.waiting += 1;
            });
            if let Some(demand) = registry.queues.get_mut(queue) {
                demand.last = Some(at);
            }
        }
        if let Some(name) = worker {
            if !registry.workers.contains_key(name) {
                self.new_worker.notify_one();
            }
            let state = registry.touch(name, at);
            state.waiting += 1;
            if state.queues != queues {
                state.queues = queues.to_vec();
            }
            if state.types != types {
                state.types = types.to_vec();
            }
            if state.version.as_deref() != version {
                state.version = version.map(str::to_owned);
                version.iter().for_each(|version| self.deploys.observe(name, version, queues, now));
            }
        }
        let (queues, types) = (served.to_vec(), types.to_vec());
        ClaimGuard { workers: Arc::clone(self), worker: worker.cloned(), queues, types }
    }

    /// Registers jobs that were leased to a worker by this server.
    pub(crate) fn jobs_assigned(&self, worker: Option<&WorkerName>, jobs: impl Iterator<Item = JobId>, now: Timestamp) {
        self.assign_all(worker, jobs, now, true);
    }

    /// Registers jobs that a worker was already running when this server started.
    pub(crate) fn jobs_found(&self, worker: Option<&WorkerName>, jobs: impl Iterator<Item = JobId>, now: Timestamp) {
        self.assign_all(worker, jobs, now, false);
    }

    fn assign_all(&self, worker: Option<&WorkerName>, jobs: impl Iterator<Item = JobId>, now: Timestamp, is_own: bool) {
        let Some(name) = worker else { return };
        let at = (now, monotonic());
        let mut registry = self.registry();
        jobs.for_each(|id| registry.assign(name, id, at, is_own));
    }

    /// Registers a heartbeat of the worker that runs a job.
    pub(crate) fn heartbeat(&self, worker: Option<&WorkerName>, id: JobId, now: Timestamp) {
        let Some(name) = worker else { return };
        let at = (now, monotonic());
        let mut registry = self.registry();
        if registry.jobs.get(&id).is_none_or(|assignment| assignment.worker != *name) {
            // Claimed from another server.
            if !registry.workers.contains_key(name) {
                self.new_worker.notify_one();
            }
            registry.assign(name, id, at, false);
        }
        registry.touch(name, at);
    }

    /// Returns the new versions of workers.
    pub(crate) fn deploys(&self) -> &DeployLog {
        &self.deploys
    }

    /// Waits until a worker is seen for the first time.
    pub(crate) async fn new_worker(&self) {
        self.new_worker.notified().await;
    }

    /// Returns the workers whose last report to other servers is out of date, and counts them as
    /// reported. `last_seen_at` may lag by `lag`.
    pub(crate) fn take_reports(&self, lag: Duration) -> Vec<SeenWorker> {
        let mut registry = self.registry();
        let mut reports = Vec::new();
        let lag = i64::try_from(lag.as_millis()).unwrap_or(i64::MAX);
        for (name, state) in &mut registry.workers {
            let seen = state.seen(name);
            let is_current = state.reported.as_ref().is_some_and(|reported| {
                let age = seen.last_seen_at.as_millis().saturating_sub(reported.last_seen_at.as_millis());
                age < lag && SeenWorker { last_seen_at: seen.last_seen_at, ..reported.clone() } == seen
            });
            if !is_current {
                state.reported = Some(seen.clone());
                reports.push(seen);
            }
        }
        reports
    }

    /// Reports these workers again: the last report has failed.
    pub(crate) fn report_again(&self, workers: &[SeenWorker]) {
        let mut registry = self.registry();
        for worker in workers {
            if let Some(state) = registry.workers.get_mut(&worker.name) {
                state.reported = None;
            }
        }
    }

    /// Returns up to `limit` jobs that were not compared with the store for `age`.
    ///
    /// Other servers may have ended them, or leased them to other workers.
    pub(crate) fn stale_assignments(&self, limit: usize, age: Duration) -> Vec<StaleAssignment> {
        let mut registry = self.registry();
        let (now, last) = (monotonic(), registry.last_check_seq);
        let mut stale = Vec::new();
        while stale.len() < limit
            && let Some((check_seq, id)) = registry.check_order.first_key_value().map(|(seq, id)| (*seq, *id))
            && check_seq <= last
            && registry.jobs.get(&id).is_none_or(|assignment| now.saturating_sub(assignment.checked_at) >= age)
        {
            registry.check_order.remove(&check_seq);
            stale.extend(registry.check_last(id, now));
        }
        stale
    }

    /// Updates a job from the store: its worker and the time of its last heartbeat.
    ///
    /// `None` means that the job is not running.
    pub(crate) fn resolve(&self, stale: StaleAssignment, holder: Option<(Option<&WorkerName>, Timestamp)>) {
        let mut registry = self.registry();
        if registry.jobs.get(&stale.id).is_none_or(|assignment| assignment.check_seq != stale.check_seq) {
            // Claimed or ended on this server since the store was read.
            return;
        }
        let Some((Some(name), at)) = holder else {
            registry.release(stale.id);
            return;
        };
        let previous = registry.workers.get(name).map(|state| state.last_seen);
        let last_seen = previous.filter(|(last, _)| *last >= at).unwrap_or((at, monotonic()));
        if registry.jobs.get(&stale.id).is_some_and(|assignment| assignment.worker == *name) {
            registry.touch(name, last_seen);
        } else {
            registry.assign(name, stale.id, last_seen, false);
        }
    }

    /// Removes jobs that stopped running.
    pub(crate) fn jobs_released(&self, jobs: impl Iterator<Item = JobId>) {
        let mut registry = self.registry();
        jobs.for_each(|id| registry.release(id));
    }

    /// Whether a claim for this type waits on the queue, or was made in the last minute.
    pub(crate) fn has_recent_claims(&self, queue: &QueueName, job_type: &JobType) -> bool {
        let registry = self.registry();
        let Some(demand) = registry.queues.get(queue) else { return false };
        demand.all_types.is_recent() || demand.types.get(job_type).is_some_and(TypeDemand::is_recent)
    }

    /// Whether a claim waits on the queue, or was made in the last minute, for any type.
    pub(crate) fn is_served(&self, queue: &QueueName) -> bool {
        let registry = self.registry();
        let Some(demand) = registry.queues.get(queue) else { return false };
        demand.all_types.is_recent() || demand.types.values().any(TypeDemand::is_recent)
    }

    pub(crate) fn last_claim_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.registry().queues.get(queue).and_then(|demand| demand.last).map(|(at, _)| at)
    }

    /// Returns all workers of this server, by name.
    pub(crate) fn workers(&self) -> Vec<LocalWorker> {
        let mut registry = self.registry();
        registry.evict_idle(monotonic());
        let worker = |(name, state): (&WorkerName, &WorkerState)| LocalWorker {
            seen: state.seen(name),
            running: state.running,
            waiting: state.waiting,
        };
        let mut workers: Vec<LocalWorker> = registry.workers.iter().map(worker).collect();
        workers.sort_unstable_by(|a, b| a.seen.name.cmp(&b.seen.name));
        workers
    }
}

impl WorkerState {
    fn seen(&self, name: &WorkerName) -> SeenWorker {
        SeenWorker {
            name: name.clone(),
            version: self.version.clone(),
            types: self.types.clone(),
            queues: self.queues.clone(),
            running: self.own_running,
            last_seen_at: self.last_seen.0,
        }
    }
}

impl Registry {
    /// Returns the worker, seen now; adds it if it is new.
    fn touch(&mut self, name: &WorkerName, at: (Timestamp, Duration)) -> &mut WorkerState {
        if !self.workers.contains_key(name) {
            self.evict_for_one(at.1);
        }
        let new = || WorkerState {
            version: None,
            types: Vec::new(),
            queues: Vec::new(),
            last_seen: at,
            running: 0,
            own_running: 0,
            waiting: 0,
            reported: None,
        };
        let state = self.workers.entry(name.clone()).or_insert_with(new);
        state.last_seen = at;
        state
    }

    /// Updates the demand of a queue for each of these types.
    fn demand(&mut self, queue: &QueueName, types: &[JobType], update: impl Fn(&mut TypeDemand)) {
        if !self.queues.contains_key(queue) {
            if self.queues.len() >= QUEUES_MAX {
                return;
            }
            self.queues.insert(queue.clone(), QueueDemand::default());
        }
        if let Some(demand) = self.queues.get_mut(queue) {
            demand.of_types(types).into_iter().for_each(update);
        }
    }

    fn assign(&mut self, name: &WorkerName, id: JobId, at: (Timestamp, Duration), is_own: bool) {
        self.release(id);
        if self.jobs.len() < JOBS_MAX {
            self.jobs.insert(id, Assignment { worker: name.clone(), is_own, check_seq: 0, checked_at: at.1 });
            self.check_last(id, monotonic());
            let state = self.touch(name, at);
            state.running += 1;
            state.own_running += u64::from(is_own);
        }
    }

    fn release(&mut self, id: JobId) {
        let Some(assignment) = self.jobs.remove(&id) else { return };
        self.check_order.remove(&assignment.check_seq);
        if let Some(state) = self.workers.get_mut(&assignment.worker) {
            state.running = state.running.saturating_sub(1);
            state.own_running = state.own_running.saturating_sub(u64::from(assignment.is_own));
        }
    }

    /// Moves a job to the end of the order of checks.
    fn check_last(&mut self, id: JobId, now: Duration) -> Option<StaleAssignment> {
        let assignment = self.jobs.get_mut(&id)?;
        self.last_check_seq += 1;
        (assignment.check_seq, assignment.checked_at) = (self.last_check_seq, now);
        self.check_order.insert(self.last_check_seq, id);
        Some(StaleAssignment { id, check_seq: self.last_check_seq })
    }

    fn evict_idle(&mut self, now: Duration) {
        let is_silent = |state: &WorkerState| now.saturating_sub(state.last_seen.1) > EVICT_AFTER;
        self.workers.retain(|_, state| state.running > 0 || state.waiting > 0 || !is_silent(state));
    }

    /// Makes room for one worker. Evicts a tenth of a full registry, so that this is rare.
    fn evict_for_one(&mut self, now: Duration) {
        if self.workers.len() < WORKERS_MAX {
            return;
        }
        self.evict_idle(now);
        if self.workers.len() < WORKERS_MAX {
            return;
        }
        let mut times: Vec<Duration> = self.workers.values().map(|state| state.last_seen.1).collect();
        times.sort_unstable();
        let cutoff = times.get(WORKERS_MAX / 10).copied().unwrap_or_default();
        self.workers.retain(|_, state| state.last_seen.1 > cutoff);
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let mut registry = self.workers.registry();
        for queue in &self.queues {
            registry.demand(queue, &self.types, |demand| demand.waiting = demand.waiting.saturating_sub(1));
        }
        if let Some(state) = self.worker.as_ref().and_then(|name| registry.workers.get_mut(name)) {
            state.waiting = state.waiting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
