//! Who asks this server for work, and what they hold. Kept in memory, from what was seen: a picture for people, nothing is decided by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_api::watch::Worker;
use longshore_core::Timestamp;
use longshore_core::id::{JobId, QueueName, WorkerName};
use longshore_store::clock::monotonic;

use crate::convert::time;

/// Workers that are remembered; of more, those not seen for longest are forgotten.
const WORKERS_MAX: usize = 10_000;
/// Running jobs whose worker is remembered.
const JOBS_MAX: usize = 200_000;
const QUEUES_MAX: usize = 10_000;
/// How long ago is still "lately".
const LATELY: Duration = Duration::from_secs(60);
/// After so long without a word a worker that holds nothing is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    workers: HashMap<WorkerName, Known>,
    jobs: HashMap<JobId, WorkerName>,
    queues: HashMap<QueueName, Asked>,
}

#[derive(Debug)]
struct Known {
    queues: Vec<QueueName>,
    /// By the store's clock, for people; by the stopwatch, for us.
    last_seen: (Timestamp, Duration),
    running: u64,
    waiting: u64,
}

#[derive(Debug, Default)]
struct Asked {
    last: Option<(Timestamp, Duration)>,
    waiting: u64,
}

/// A claim under way; counted as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct Claiming {
    workers: Arc<Workers>,
    worker: Option<WorkerName>,
    queues: Vec<QueueName>,
}

impl Workers {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks for work.
    pub(crate) fn asks(
        self: &Arc<Self>,
        worker: Option<&WorkerName>,
        queues: &[QueueName],
        now: Timestamp,
    ) -> Claiming {
        let at = (now, monotonic());
        let mut seen = self.seen();
        for queue in queues {
            if !seen.queues.contains_key(queue) {
                if seen.queues.len() >= QUEUES_MAX {
                    continue;
                }
                seen.queues.insert(queue.clone(), Asked::default());
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
        Claiming { workers: Arc::clone(self), worker: worker.cloned(), queues: queues.to_vec() }
    }

    /// A worker was given these jobs.
    pub(crate) fn given(&self, worker: Option<&WorkerName>, jobs: impl Iterator<Item = JobId>, now: Timestamp) {
        let Some(name) = worker else { return };
        let at = (now, monotonic());
        let mut seen = self.seen();
        for id in jobs {
            seen.take_from(id);
            if seen.jobs.len() < JOBS_MAX {
                seen.jobs.insert(id, name.clone());
                seen.known(name, at).running += 1;
            }
        }
    }

    /// The worker that holds this job is alive.
    pub(crate) fn heartbeat(&self, id: JobId, now: Timestamp) {
        let mut seen = self.seen();
        let Some(name) = seen.jobs.get(&id).cloned() else { return };
        seen.known(&name, (now, monotonic()));
    }

    /// These jobs are not running any more.
    pub(crate) fn done(&self, jobs: impl Iterator<Item = JobId>) {
        let mut seen = self.seen();
        jobs.for_each(|id| seen.take_from(id));
    }

    /// Whether anybody waits for work of this queue, or asked for it in the last minute.
    pub(crate) fn asked_lately(&self, queue: &QueueName) -> bool {
        let seen = self.seen();
        let Some(asked) = seen.queues.get(queue) else { return false };
        let recent = |(_, at): (Timestamp, Duration)| monotonic().saturating_sub(at) <= LATELY;
        asked.waiting > 0 || asked.last.is_some_and(recent)
    }

    pub(crate) fn last_asked(&self, queue: &QueueName) -> Option<Timestamp> {
        self.seen().queues.get(queue).and_then(|asked| asked.last).map(|(at, _)| at)
    }

    pub(crate) fn shown(&self) -> Vec<Worker> {
        let mut seen = self.seen();
        seen.forget_the_silent(monotonic());
        let shown = |(name, known): (&WorkerName, &Known)| Worker {
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
    fn known(&mut self, name: &WorkerName, at: (Timestamp, Duration)) -> &mut Known {
        if !self.workers.contains_key(name) {
            self.make_room(at.1);
        }
        let fresh = || Known { queues: Vec::new(), last_seen: at, running: 0, waiting: 0 };
        let known = self.workers.entry(name.clone()).or_insert_with(fresh);
        known.last_seen = at;
        known
    }

    fn take_from(&mut self, id: JobId) {
        let Some(name) = self.jobs.remove(&id) else { return };
        if let Some(known) = self.workers.get_mut(&name) {
            known.running = known.running.saturating_sub(1);
        }
    }

    fn forget_the_silent(&mut self, now: Duration) {
        let silent = |known: &Known| now.saturating_sub(known.last_seen.1) > FORGOTTEN_AFTER;
        self.workers.retain(|_, known| known.running > 0 || known.waiting > 0 || !silent(known));
    }

    /// Room for one more: a tenth of them goes at a time, so that this is rare.
    fn make_room(&mut self, now: Duration) {
        if self.workers.len() < WORKERS_MAX {
            return;
        }
        self.forget_the_silent(now);
        if self.workers.len() < WORKERS_MAX {
            return;
        }
        let mut times: Vec<Duration> = self.workers.values().map(|known| known.last_seen.1).collect();
        times.sort_unstable();
        let cut = times.get(WORKERS_MAX / 10).copied().unwrap_or_default();
        self.workers.retain(|_, known| known.last_seen.1 > cut);
    }
}

impl Drop for Claiming {
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
        assert!(!workers.asked_lately(&queue));
        let claiming = workers.asks(Some(&name("w")), std::slice::from_ref(&queue), at(5));
        assert_eq!((workers.shown()[0].waiting, workers.asked_lately(&queue)), (1, true));
        drop(claiming);
        workers.given(Some(&name("w")), [job].into_iter(), at(6));
        workers.heartbeat(job, at(9));
        let shown = workers.shown();
        assert_eq!((shown[0].running, shown[0].waiting, shown[0].last_seen_at.0), (1, 0, 9));
        workers.given(Some(&name("other")), [job].into_iter(), at(10));
        assert_eq!(workers.shown().iter().map(|worker| worker.running).collect::<Vec<_>>(), [1, 0]);
        workers.done([job, job].into_iter());
        assert_eq!(workers.shown().iter().map(|worker| worker.running).collect::<Vec<_>>(), [0, 0]);
    }

    #[test]
    fn many_workers_are_not_all_remembered() {
        let workers = Arc::new(Workers::default());
        for number in 0..WORKERS_MAX + 500 {
            drop(workers.asks(Some(&name(&format!("w{number}"))), &[], at(1)));
        }
        assert!(workers.shown().len() <= WORKERS_MAX);
        assert!(workers.shown().iter().any(|worker| worker.name == format!("w{}", WORKERS_MAX + 499)));
    }
}
