//! Who asks this server for work, and what they hold. Kept in memory, from what was seen: a picture for people, nothing is decided by it.
//! Other servers may end these jobs unseen: `worker_check.rs` compares the picture with the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_api::system::Worker;
use longshore_core::Timestamp;
use longshore_core::id::{JobId, QueueName, WorkerName};
use longshore_store::clock::monotonic;

use crate::convert::time;

/// Workers that are remembered; of more, those not seen for longest are forgotten.
const WORKERS_MAX: usize = 10_000;
/// Running jobs whose worker is remembered.
const JOBS_MAX: usize = 200_000;
const QUEUES_MAX: usize = 10_000;
/// Heartbeats of jobs that this server does not remember: kept until the next check. Jobs of workers without a name are among them.
const STRANGERS_MAX: usize = 100;
/// How long ago is still "lately".
const RECENT: Duration = Duration::from_secs(60);
/// After so long without a word a worker that holds nothing is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    workers: HashMap<WorkerName, WorkerState>,
    jobs: HashMap<JobId, Held>,
    /// The same jobs; the one that was compared with the store longest ago comes first.
    unchecked: BTreeMap<u64, JobId>,
    /// Numbers for that order.
    next: u64,
    /// Jobs with a heartbeat here that were claimed elsewhere.
    strangers: HashSet<JobId>,
    queues: HashMap<QueueName, QueueDemand>,
}

/// A job that a worker holds.
#[derive(Debug)]
struct Held {
    worker: WorkerName,
    /// Its place in the order of checks; another one after each claim and each check.
    place: u64,
    /// Claimed or compared with the store, by the stopwatch.
    since: Duration,
}

/// A remembered job that is to be compared with the store; no place: it is not known yet who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) id: JobId,
    place: Option<u64>,
}

#[derive(Debug)]
struct WorkerState {
    queues: Vec<QueueName>,
    /// By the store's clock, for people; by the stopwatch, for us.
    last_seen: (Timestamp, Duration),
    running: u64,
    waiting: u64,
}

#[derive(Debug, Default)]
struct QueueDemand {
    last: Option<(Timestamp, Duration)>,
    waiting: u64,
}

/// A claim under way; counted as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct ClaimGuard {
    workers: Arc<Workers>,
    worker: Option<WorkerName>,
    queues: Vec<QueueName>,
}

impl Workers {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks for work.
    pub(crate) fn claim_started(
        self: &Arc<Self>,
        worker: Option<&WorkerName>,
        queues: &[QueueName],
        now: Timestamp,
    ) -> ClaimGuard {
        let at = (now, monotonic());
        let mut seen = self.seen();
        for queue in queues {
            if !seen.queues.contains_key(queue) {
                if seen.queues.len() >= QUEUES_MAX {
                    continue;
                }
                seen.queues.insert(queue.clone(), QueueDemand::default());
            }
            if let Some(asked) = seen.queues.get_mut(queue) {
                asked.last = Some(at);
                asked.waiting += 1;
            }
        }
        if let Some(name) = worker {
            let known = seen.known(name, at);
            known.waiting += 1;
            if known.queues != queues {
                known.queues = queues.to_vec();
            }
        }
        ClaimGuard { workers: Arc::clone(self), worker: worker.cloned(), queues: queues.to_vec() }
    }

    /// A worker was given these jobs.
    pub(crate) fn jobs_assigned(&self, worker: Option<&WorkerName>, jobs: impl Iterator<Item = JobId>, now: Timestamp) {
        let Some(name) = worker else { return };
        let at = (now, monotonic());
        let mut seen = self.seen();
        jobs.for_each(|id| seen.give(name, id, at));
    }

    /// The worker that holds this job is alive.
    pub(crate) fn heartbeat(&self, id: JobId, now: Timestamp) {
        let mut seen = self.seen();
        let Some(name) = seen.jobs.get(&id).map(|held| held.worker.clone()) else {
            if seen.strangers.len() < STRANGERS_MAX {
                seen.strangers.insert(id);
            }
            return;
        };
        seen.known(&name, (now, monotonic()));
    }

    /// Up to `limit` jobs that were not compared with the store for `age`. Other servers may have ended them, or given them to other workers.
    pub(crate) fn doubts(&self, limit: usize, age: Duration) -> Vec<Doubt> {
        let mut seen = self.seen();
        let (now, last) = (monotonic(), seen.next);
        let strangers: Vec<JobId> = seen.strangers.iter().copied().take(limit).collect();
        for id in &strangers {
            seen.strangers.remove(id);
        }
        let mut doubts: Vec<_> = strangers.into_iter().map(|id| Doubt { id, place: None }).collect();
        while doubts.len() < limit
            && let Some((place, id)) = seen.unchecked.first_key_value().map(|(place, id)| (*place, *id))
            && place <= last
            && seen.jobs.get(&id).is_none_or(|held| now.saturating_sub(held.since) >= age)
        {
            seen.unchecked.remove(&place);
            doubts.extend(seen.put_last(id, now));
        }
        doubts
    }

    /// What the store says of a job: the worker that holds it, and when the worker was heard of. `None`: the job is not running.
    pub(crate) fn resolve(&self, doubt: Doubt, holder: Option<(Option<&WorkerName>, Timestamp)>) {
        let mut seen = self.seen();
        if seen.jobs.get(&doubt.id).map(|held| held.place) != doubt.place {
            // It was claimed here meanwhile, or has ended here.
            return;
        }
        let Some((Some(name), at)) = holder else {
            seen.take_from(doubt.id);
            return;
        };
        let known = seen.workers.get(name).map(|known| known.last_seen);
        let last_seen = known.filter(|(last, _)| *last >= at).unwrap_or((at, monotonic()));
        if seen.jobs.get(&doubt.id).is_some_and(|held| held.worker == *name) {
            seen.known(name, last_seen);
        } else {
            seen.give(name, doubt.id, last_seen);
        }
    }

    /// These jobs are not running any more.
    pub(crate) fn jobs_released(&self, jobs: impl Iterator<Item = JobId>) {
        let mut seen = self.seen();
        jobs.for_each(|id| seen.take_from(id));
    }

    /// Whether anybody waits for work of this queue, or asked for it in the last minute.
    pub(crate) fn has_recent_claims(&self, queue: &QueueName) -> bool {
        let seen = self.seen();
        let Some(asked) = seen.queues.get(queue) else { return false };
        let recent = |(_, at): (Timestamp, Duration)| monotonic().saturating_sub(at) <= RECENT;
        asked.waiting > 0 || asked.last.is_some_and(recent)
    }

    pub(crate) fn last_asked(&self, queue: &QueueName) -> Option<Timestamp> {
        self.seen().queues.get(queue).and_then(|asked| asked.last).map(|(at, _)| at)
    }

    pub(crate) fn shown(&self) -> Vec<Worker> {
        let mut seen = self.seen();
        seen.evict_idle(monotonic());
        let shown = |(name, known): (&WorkerName, &WorkerState)| Worker {
            name: name.to_string(),
            queues: known.queues.iter().map(ToString::to_string).collect(),
            last_seen_at: time(known.last_seen.0),
            running: known.running,
            waiting: known.waiting,
        };
        let mut workers: Vec<Worker> = seen.workers.iter().map(shown).collect();
        workers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        workers
    }
}

impl Seen {
    fn known(&mut self, name: &WorkerName, at: (Timestamp, Duration)) -> &mut WorkerState {
        if !self.workers.contains_key(name) {
            self.make_room(at.1);
        }
        let fresh = || WorkerState { queues: Vec::new(), last_seen: at, running: 0, waiting: 0 };
        let known = self.workers.entry(name.clone()).or_insert_with(fresh);
        known.last_seen = at;
        known
    }

    fn give(&mut self, name: &WorkerName, id: JobId, at: (Timestamp, Duration)) {
        self.take_from(id);
        if self.jobs.len() < JOBS_MAX {
            self.jobs.insert(id, Held { worker: name.clone(), place: 0, since: at.1 });
            self.put_last(id, monotonic());
            self.known(name, at).running += 1;
        }
    }

    fn take_from(&mut self, id: JobId) {
        self.strangers.remove(&id);
        let Some(held) = self.jobs.remove(&id) else { return };
        self.unchecked.remove(&held.place);
        if let Some(known) = self.workers.get_mut(&held.worker) {
            known.running = known.running.saturating_sub(1);
        }
    }

    /// Puts a job at the end of the order of checks.
    fn put_last(&mut self, id: JobId, now: Duration) -> Option<Doubt> {
        let held = self.jobs.get_mut(&id)?;
        self.next += 1;
        (held.place, held.since) = (self.next, now);
        self.unchecked.insert(self.next, id);
        Some(Doubt { id, place: Some(self.next) })
    }

    fn evict_idle(&mut self, now: Duration) {
        let silent = |known: &WorkerState| now.saturating_sub(known.last_seen.1) > FORGOTTEN_AFTER;
        self.workers.retain(|_, known| known.running > 0 || known.waiting > 0 || !silent(known));
    }

    /// Room for one more: a tenth of them goes at a time, so that this is rare.
    fn make_room(&mut self, now: Duration) {
        if self.workers.len() < WORKERS_MAX {
            return;
        }
        self.evict_idle(now);
        if self.workers.len() < WORKERS_MAX {
            return;
        }
        let mut times: Vec<Duration> = self.workers.values().map(|known| known.last_seen.1).collect();
        times.sort_unstable();
        let cut = times.get(WORKERS_MAX / 10).copied().unwrap_or_default();
        self.workers.retain(|_, known| known.last_seen.1 > cut);
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let mut seen = self.workers.seen();
        for queue in &self.queues {
            if let Some(asked) = seen.queues.get_mut(queue) {
                asked.waiting = asked.waiting.saturating_sub(1);
            }
        }
        if let Some(known) = self.worker.as_ref().and_then(|name| seen.workers.get_mut(name)) {
            known.waiting = known.waiting.saturating_sub(1);
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
    fn a_worker_is_seen_asking_holding_and_letting_go() {
        let workers = Arc::new(Workers::default());
        let (queue, job) = (QueueName::new("q").unwrap(), JobId::from_bytes([1; 16]));
        assert!(!workers.has_recent_claims(&queue));
        let claiming = workers.claim_started(Some(&name("w")), std::slice::from_ref(&queue), at(5));
        assert_eq!((workers.shown()[0].waiting, workers.has_recent_claims(&queue)), (1, true));
        drop(claiming);
        workers.jobs_assigned(Some(&name("w")), [job].into_iter(), at(6));
        workers.heartbeat(job, at(9));
        let shown = workers.shown();
        assert_eq!((shown[0].running, shown[0].waiting, shown[0].last_seen_at.0), (1, 0, 9));
        workers.jobs_assigned(Some(&name("other")), [job].into_iter(), at(10));
        assert_eq!(workers.shown().iter().map(|worker| worker.running).collect::<Vec<_>>(), [1, 0]);
        workers.jobs_released([job, job].into_iter());
        assert_eq!(workers.shown().iter().map(|worker| worker.running).collect::<Vec<_>>(), [0, 0]);
    }

    /// (name, running, last seen) of every worker.
    fn picture(workers: &Workers) -> Vec<(String, u64, i64)> {
        let one = |worker: Worker| (worker.name, worker.running, worker.last_seen_at.0);
        workers.shown().into_iter().map(one).collect()
    }

    fn picture_of(one: &[(&str, u64, i64)]) -> Vec<(String, u64, i64)> {
        one.iter().map(|(name, running, at)| ((*name).to_owned(), *running, *at)).collect()
    }

    #[test]
    fn what_the_store_says_replaces_what_was_seen() {
        let workers = Arc::new(Workers::default());
        let job = |number| JobId::from_bytes([number; 16]);
        workers.jobs_assigned(Some(&name("w")), (1..=4).map(job), at(6));
        assert_eq!(workers.doubts(10, Duration::from_secs(3_600)), []);
        let doubts = workers.doubts(3, Duration::ZERO);
        assert_eq!(doubts.iter().map(|doubt| doubt.id).collect::<Vec<_>>(), [job(1), job(2), job(3)]);
        workers.resolve(doubts[0], None);
        workers.resolve(doubts[1], Some((Some(&name("w")), at(20))));
        workers.resolve(doubts[2], Some((Some(&name("other")), at(15))));
        assert_eq!(picture(&workers), picture_of(&[("other", 1, 15), ("w", 2, 20)]));
        // The next one first, then those that were checked.
        let doubts = workers.doubts(10, Duration::ZERO);
        assert_eq!(doubts.iter().map(|doubt| doubt.id).collect::<Vec<_>>(), [job(4), job(2), job(3)]);
        // Claimed again, or ended, since the store was asked.
        workers.jobs_assigned(Some(&name("w")), [job(4)].into_iter(), at(30));
        workers.jobs_released([job(2)].into_iter());
        doubts.into_iter().for_each(|doubt| workers.resolve(doubt, None));
        assert_eq!(picture(&workers), picture_of(&[("other", 0, 15), ("w", 1, 30)]));
        // A heartbeat of a job that was claimed on another server.
        workers.heartbeat(job(9), at(31));
        let doubts = workers.doubts(1, Duration::from_secs(3_600));
        workers.resolve(doubts[0], Some((Some(&name("far")), at(31))));
        assert_eq!(picture(&workers), picture_of(&[("far", 1, 31), ("other", 0, 15), ("w", 1, 30)]));
    }

    #[test]
    fn many_workers_are_not_all_remembered() {
        let workers = Arc::new(Workers::default());
        for number in 0..WORKERS_MAX + 500 {
            drop(workers.claim_started(Some(&name(&format!("w{number}"))), &[], at(1)));
        }
        assert!(workers.shown().len() <= WORKERS_MAX);
        assert!(workers.shown().iter().any(|worker| worker.name == format!("w{}", WORKERS_MAX + 499)));
    }
}
