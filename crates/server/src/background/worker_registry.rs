//! Workers that claim from this server, and the jobs that they run.
//!
//! The registry is in memory and only informs people: no rule depends on it. Other servers may end
//! these jobs, so `worker_check.rs` compares the registry with the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use longshore_api::system::Worker;
use longshore_core::Timestamp;
use longshore_core::id::{JobId, QueueName, WorkerName};
use longshore_store::clock::monotonic;
use parking_lot::{Mutex, MutexGuard};

use crate::convert::time;

/// Workers of the registry; above this, those not seen for longest are evicted.
const WORKERS_MAX: usize = 10_000;
/// Running jobs whose worker is registered.
const JOBS_MAX: usize = 200_000;
const QUEUES_MAX: usize = 10_000;
/// Jobs with a heartbeat that are not registered, which the next check looks up. Jobs of workers
/// without a name are among them.
const UNKNOWN_JOBS_MAX: usize = 100;
/// A queue has recent claims for this long.
const RECENT: Duration = Duration::from_secs(60);
/// An idle worker that sends no request for this long is evicted.
const EVICT_AFTER: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(crate) struct WorkerRegistry(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    workers: HashMap<WorkerName, WorkerState>,
    jobs: HashMap<JobId, Assignment>,
    /// The same jobs by `check_seq`: the first was compared with the store longest ago.
    check_order: BTreeMap<u64, JobId>,
    last_check_seq: u64,
    /// Jobs with a heartbeat here that were claimed elsewhere.
    unknown_jobs: HashSet<JobId>,
    queues: HashMap<QueueName, QueueDemand>,
}

/// A job that a worker runs.
#[derive(Debug)]
struct Assignment {
    worker: WorkerName,
    /// Position in the order of checks; changes with each claim and each check.
    check_seq: u64,
    /// Monotonic time of the claim or the last check.
    checked_at: Duration,
}

/// A job to compare with the store. Without `check_seq` its worker is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaleAssignment {
    pub(crate) id: JobId,
    check_seq: Option<u64>,
}

#[derive(Debug)]
struct WorkerState {
    queues: Vec<QueueName>,
    /// By the store's clock, which is shown, and by the monotonic clock, which decides evictions.
    last_seen: (Timestamp, Duration),
    running: u64,
    waiting: u64,
}

#[derive(Debug, Default)]
struct QueueDemand {
    last: Option<(Timestamp, Duration)>,
    waiting: u64,
}

/// A claim in flight; counted as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct ClaimGuard {
    workers: Arc<WorkerRegistry>,
    worker: Option<WorkerName>,
    queues: Vec<QueueName>,
}

impl WorkerRegistry {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock()
    }

    /// Registers a claim of a worker on queues.
    pub(crate) fn claim_started(
        self: &Arc<Self>,
        worker: Option<&WorkerName>,
        queues: &[QueueName],
        now: Timestamp,
    ) -> ClaimGuard {
        let at = (now, monotonic());
        let mut registry = self.registry();
        for queue in queues {
            if !registry.queues.contains_key(queue) {
                if registry.queues.len() >= QUEUES_MAX {
                    continue;
                }
                registry.queues.insert(queue.clone(), QueueDemand::default());
            }
            if let Some(demand) = registry.queues.get_mut(queue) {
                demand.last = Some(at);
                demand.waiting += 1;
            }
        }
        if let Some(name) = worker {
            let state = registry.touch(name, at);
            state.waiting += 1;
            if state.queues != queues {
                state.queues = queues.to_vec();
            }
        }
        ClaimGuard { workers: Arc::clone(self), worker: worker.cloned(), queues: queues.to_vec() }
    }

    /// Registers jobs that were leased to a worker.
    pub(crate) fn jobs_assigned(&self, worker: Option<&WorkerName>, jobs: impl Iterator<Item = JobId>, now: Timestamp) {
        let Some(name) = worker else { return };
        let at = (now, monotonic());
        let mut registry = self.registry();
        jobs.for_each(|id| registry.assign(name, id, at));
    }

    /// Registers a heartbeat of the worker that runs a job.
    pub(crate) fn heartbeat(&self, id: JobId, now: Timestamp) {
        let mut registry = self.registry();
        let Some(name) = registry.jobs.get(&id).map(|assignment| assignment.worker.clone()) else {
            if registry.unknown_jobs.len() < UNKNOWN_JOBS_MAX {
                registry.unknown_jobs.insert(id);
            }
            return;
        };
        registry.touch(&name, (now, monotonic()));
    }

    /// Returns up to `limit` jobs that were not compared with the store for `age`.
    ///
    /// Other servers may have ended them, or leased them to other workers.
    pub(crate) fn stale_assignments(&self, limit: usize, age: Duration) -> Vec<StaleAssignment> {
        let mut registry = self.registry();
        let (now, last) = (monotonic(), registry.last_check_seq);
        let unknown_jobs: Vec<JobId> = registry.unknown_jobs.iter().copied().take(limit).collect();
        for id in &unknown_jobs {
            registry.unknown_jobs.remove(id);
        }
        let mut stale: Vec<_> = unknown_jobs.into_iter().map(|id| StaleAssignment { id, check_seq: None }).collect();
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
        if registry.jobs.get(&stale.id).map(|assignment| assignment.check_seq) != stale.check_seq {
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
            registry.assign(name, stale.id, last_seen);
        }
    }

    /// Removes jobs that stopped running.
    pub(crate) fn jobs_released(&self, jobs: impl Iterator<Item = JobId>) {
        let mut registry = self.registry();
        jobs.for_each(|id| registry.release(id));
    }

    /// Whether a claim waits on the queue, or was made in the last minute.
    pub(crate) fn has_recent_claims(&self, queue: &QueueName) -> bool {
        let registry = self.registry();
        let Some(demand) = registry.queues.get(queue) else { return false };
        let recent = |(_, at): (Timestamp, Duration)| monotonic().saturating_sub(at) <= RECENT;
        demand.waiting > 0 || demand.last.is_some_and(recent)
    }

    pub(crate) fn last_claim_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.registry().queues.get(queue).and_then(|demand| demand.last).map(|(at, _)| at)
    }

    pub(crate) fn to_wire(&self) -> Vec<Worker> {
        let mut registry = self.registry();
        registry.evict_idle(monotonic());
        let worker = |(name, state): (&WorkerName, &WorkerState)| Worker {
            name: name.to_string(),
            queues: state.queues.iter().map(ToString::to_string).collect(),
            last_seen_at: time(state.last_seen.0),
            running: state.running,
            waiting: state.waiting,
        };
        let mut workers: Vec<Worker> = registry.workers.iter().map(worker).collect();
        workers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        workers
    }
}

impl Registry {
    /// Returns the worker, seen now; adds it if it is new.
    fn touch(&mut self, name: &WorkerName, at: (Timestamp, Duration)) -> &mut WorkerState {
        if !self.workers.contains_key(name) {
            self.evict_for_one(at.1);
        }
        let new = || WorkerState { queues: Vec::new(), last_seen: at, running: 0, waiting: 0 };
        let state = self.workers.entry(name.clone()).or_insert_with(new);
        state.last_seen = at;
        state
    }

    fn assign(&mut self, name: &WorkerName, id: JobId, at: (Timestamp, Duration)) {
        self.release(id);
        if self.jobs.len() < JOBS_MAX {
            self.jobs.insert(id, Assignment { worker: name.clone(), check_seq: 0, checked_at: at.1 });
            self.check_last(id, monotonic());
            self.touch(name, at).running += 1;
        }
    }

    fn release(&mut self, id: JobId) {
        self.unknown_jobs.remove(&id);
        let Some(assignment) = self.jobs.remove(&id) else { return };
        self.check_order.remove(&assignment.check_seq);
        if let Some(state) = self.workers.get_mut(&assignment.worker) {
            state.running = state.running.saturating_sub(1);
        }
    }

    /// Moves a job to the end of the order of checks.
    fn check_last(&mut self, id: JobId, now: Duration) -> Option<StaleAssignment> {
        let assignment = self.jobs.get_mut(&id)?;
        self.last_check_seq += 1;
        (assignment.check_seq, assignment.checked_at) = (self.last_check_seq, now);
        self.check_order.insert(self.last_check_seq, id);
        Some(StaleAssignment { id, check_seq: Some(self.last_check_seq) })
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
            if let Some(demand) = registry.queues.get_mut(queue) {
                demand.waiting = demand.waiting.saturating_sub(1);
            }
        }
        if let Some(state) = self.worker.as_ref().and_then(|name| registry.workers.get_mut(name)) {
            state.waiting = state.waiting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> WorkerName {
        WorkerName::new(text).unwrap()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_worker_is_shown_while_it_claims_and_runs_jobs() {
        let workers = Arc::new(WorkerRegistry::default());
        let (queue, job) = (QueueName::new("q").unwrap(), JobId::from_bytes([1; 16]));
        assert!(!workers.has_recent_claims(&queue));
        let claim = workers.claim_started(Some(&name("w")), std::slice::from_ref(&queue), at(5));
        assert_eq!((workers.to_wire()[0].waiting, workers.has_recent_claims(&queue)), (1, true));
        drop(claim);
        workers.jobs_assigned(Some(&name("w")), [job].into_iter(), at(6));
        workers.heartbeat(job, at(9));
        let listed = workers.to_wire();
        assert_eq!((listed[0].running, listed[0].waiting, listed[0].last_seen_at.0), (1, 0, 9));
        workers.jobs_assigned(Some(&name("other")), [job].into_iter(), at(10));
        assert_eq!(workers.to_wire().iter().map(|worker| worker.running).collect::<Vec<_>>(), [1, 0]);
        workers.jobs_released([job, job].into_iter());
        assert_eq!(workers.to_wire().iter().map(|worker| worker.running).collect::<Vec<_>>(), [0, 0]);
    }

    /// (name, running, last seen) of every worker.
    fn summary(workers: &WorkerRegistry) -> Vec<(String, u64, i64)> {
        let one = |worker: Worker| (worker.name, worker.running, worker.last_seen_at.0);
        workers.to_wire().into_iter().map(one).collect()
    }

    fn expected(one: &[(&str, u64, i64)]) -> Vec<(String, u64, i64)> {
        one.iter().map(|(name, running, at)| ((*name).to_owned(), *running, *at)).collect()
    }

    #[test]
    fn the_store_corrects_the_registry() {
        let workers = Arc::new(WorkerRegistry::default());
        let job = |number| JobId::from_bytes([number; 16]);
        workers.jobs_assigned(Some(&name("w")), (1..=4).map(job), at(6));
        assert_eq!(workers.stale_assignments(10, Duration::from_secs(3_600)), []);
        let stale = workers.stale_assignments(3, Duration::ZERO);
        assert_eq!(stale.iter().map(|assignment| assignment.id).collect::<Vec<_>>(), [job(1), job(2), job(3)]);
        workers.resolve(stale[0], None);
        workers.resolve(stale[1], Some((Some(&name("w")), at(20))));
        workers.resolve(stale[2], Some((Some(&name("other")), at(15))));
        assert_eq!(summary(&workers), expected(&[("other", 1, 15), ("w", 2, 20)]));
        // The unchecked job first, then those that were checked.
        let stale = workers.stale_assignments(10, Duration::ZERO);
        assert_eq!(stale.iter().map(|assignment| assignment.id).collect::<Vec<_>>(), [job(4), job(2), job(3)]);
        // Claimed again, or ended, since the store was read.
        workers.jobs_assigned(Some(&name("w")), [job(4)].into_iter(), at(30));
        workers.jobs_released([job(2)].into_iter());
        stale.into_iter().for_each(|assignment| workers.resolve(assignment, None));
        assert_eq!(summary(&workers), expected(&[("other", 0, 15), ("w", 1, 30)]));
        // A heartbeat of a job that was claimed on another server.
        workers.heartbeat(job(9), at(31));
        let stale = workers.stale_assignments(1, Duration::from_secs(3_600));
        workers.resolve(stale[0], Some((Some(&name("far")), at(31))));
        assert_eq!(summary(&workers), expected(&[("far", 1, 31), ("other", 0, 15), ("w", 1, 30)]));
    }

    #[test]
    fn the_registry_is_bounded() {
        let workers = Arc::new(WorkerRegistry::default());
        for number in 0..WORKERS_MAX + 500 {
            drop(workers.claim_started(Some(&name(&format!("w{number}"))), &[], at(1)));
        }
        assert!(workers.to_wire().len() <= WORKERS_MAX);
        assert!(workers.to_wire().iter().any(|worker| worker.name == format!("w{}", WORKERS_MAX + 499)));
    }
}
