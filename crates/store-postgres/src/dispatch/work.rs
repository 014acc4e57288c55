//! How much work a node knows of, for the queues that its claims wait for.
//!
//! Counts come from this node's commits and may be too high: other nodes claim too. They are never too low. A queue of which only a hint is known is
//! probed for each set of types: by one claim at first, by twice as many each time one comes back full.

use std::collections::{BTreeSet, HashMap};

use longshore_core::id::{JobType, QueueName};
use longshore_engine::ClaimRequest;
use longshore_store::ClaimedJob;

#[derive(Debug, Default)]
pub(crate) struct Work {
    queues: HashMap<QueueName, QueueWork>,
    /// Counts stirs, so that an answer is known to be older or younger than one.
    now: u64,
}

#[derive(Debug, Default)]
struct QueueWork {
    /// Claims that name the queue.
    watchers: usize,
    ready: HashMap<JobType, usize>,
    /// When jobs were last counted in.
    counted_at: u64,
    /// When a hint came last.
    stirred_at: u64,
    probes: HashMap<Vec<JobType>, Probe>,
}

/// What is known of jobs of some types after a hint.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// A claim that was sent then has found the queue empty.
    resolved_at: u64,
    sent_at: u64,
    /// Claims that may ask at once.
    width: usize,
    asking: usize,
}

/// What a claim in flight is expected to take.
#[derive(Debug)]
pub(crate) struct Reservation {
    jobs: Vec<(QueueName, JobType, usize)>,
    /// Sorted and without repetitions, as parked claims are grouped.
    types: Vec<JobType>,
    /// When it was sent.
    at: u64,
}

fn distinct(request: &ClaimRequest) -> BTreeSet<&QueueName> {
    request.queues.iter().collect()
}

fn wants(types: &[JobType], job_type: &JobType) -> bool {
    types.is_empty() || types.contains(job_type)
}

impl Work {
    /// A claim begins to wait for its queues.
    pub(crate) fn watch(&mut self, request: &ClaimRequest) {
        for queue in distinct(request) {
            self.queues.entry(queue.clone()).or_default().watchers += 1;
        }
    }

    pub(crate) fn unwatch(&mut self, request: &ClaimRequest) {
        for queue in distinct(request) {
            if let Some(work) = self.queues.get_mut(queue) {
                work.watchers = work.watchers.saturating_sub(1);
                if work.watchers == 0 {
                    self.queues.remove(queue);
                }
            }
        }
    }

    /// Counts jobs that became ready. Returns whether any claim names their queue.
    pub(crate) fn add(&mut self, queue: &QueueName, job_type: &JobType, jobs: usize) -> bool {
        self.now += 1;
        let Some(work) = self.queues.get_mut(queue) else { return false };
        *work.ready.entry(job_type.clone()).or_default() += jobs;
        work.counted_at = self.now;
        true
    }

    pub(crate) fn probe_queue(&mut self, queue: &QueueName) {
        self.now += 1;
        if let Some(work) = self.queues.get_mut(queue) {
            work.stir(self.now);
        }
    }

    pub(crate) fn probe_all(&mut self) {
        self.now += 1;
        for work in self.queues.values_mut() {
            work.stir(self.now);
        }
    }

    /// Whether another claim for these types should ask for jobs of this queue.
    pub(crate) fn has(&self, queue: &QueueName, types: &[JobType]) -> bool {
        self.queues.get(queue).is_some_and(|work| {
            work.to_be_probed(types) || work.ready.iter().any(|(job_type, jobs)| *jobs > 0 && wants(types, job_type))
        })
    }

    /// A claim is sent: what it is expected to take is not there for others.
    pub(crate) fn reserve(&mut self, request: &ClaimRequest) -> Reservation {
        let types: BTreeSet<&JobType> = request.types.iter().collect();
        let types: Vec<JobType> = types.into_iter().cloned().collect();
        for queue in distinct(request) {
            if let Some(work) = self.queues.get_mut(queue) {
                work.begin_probe(&types, self.now);
            }
        }
        let (mut missing, mut jobs) = (request.limit, Vec::new());
        for queue in &request.queues {
            let Some(work) = self.queues.get_mut(queue) else { continue };
            for (job_type, ready) in work.ready.iter_mut().filter(|(job_type, _)| wants(&types, job_type)) {
                let taken = missing.min(*ready);
                if taken > 0 {
                    *ready -= taken;
                    missing -= taken;
                    jobs.push((queue.clone(), job_type.clone(), taken));
                }
            }
        }
        Reservation { jobs, types, at: self.now }
    }

    /// A claim came back with these jobs (`None`: it failed). Returns whether there may be more for it, or for others.
    pub(crate) fn settle(
        &mut self,
        request: &ClaimRequest,
        reserved: Reservation,
        jobs: Option<&[ClaimedJob]>,
    ) -> bool {
        let Reservation { jobs: expected, types, at } = reserved;
        for (queue, job_type, taken) in expected {
            if let Some(work) = self.queues.get_mut(&queue) {
                *work.ready.entry(job_type).or_default() += taken;
            }
        }
        for job in jobs.into_iter().flatten() {
            let work = self.queues.get_mut(&job.claimed.queue);
            if let Some(ready) = work.and_then(|work| work.ready.get_mut(&job.claimed.job_type)) {
                *ready = ready.saturating_sub(1);
            }
        }
        let full = jobs.is_none_or(|jobs| jobs.len() >= request.limit);
        let mut more = false;
        for queue in distinct(request) {
            let Some(work) = self.queues.get_mut(queue) else { continue };
            work.end_probe(&types, full, at);
            if !full && work.counted_at <= at {
                // The claim has seen that there is nothing left of what it wants.
                work.ready.retain(|job_type, _| !wants(&types, job_type));
            }
            work.ready.retain(|_, jobs| *jobs > 0);
            more |= work.to_be_probed(&types) || !work.ready.is_empty();
        }
        more
    }
}

impl QueueWork {
    fn stir(&mut self, now: u64) {
        self.stirred_at = now;
        self.probes.retain(|_, probe| probe.asking > 0);
    }

    fn to_be_probed(&self, types: &[JobType]) -> bool {
        match self.probes.get(types) {
            None => self.stirred_at > 0,
            Some(probe) => {
                // A claim that is asking already may have looked before the hint.
                let due = probe.asking < probe.width || probe.sent_at < self.stirred_at;
                self.stirred_at > probe.resolved_at && due
            }
        }
    }

    fn begin_probe(&mut self, types: &[JobType], now: u64) {
        match self.probes.get_mut(types) {
            Some(probe) => {
                probe.asking += 1;
                probe.sent_at = now;
            }
            None => {
                let probe = Probe { resolved_at: 0, sent_at: now, width: 1, asking: 1 };
                self.probes.insert(types.to_vec(), probe);
            }
        }
    }

    fn end_probe(&mut self, types: &[JobType], full: bool, sent_at: u64) {
        let Some(probe) = self.probes.get_mut(types) else { return };
        probe.asking = probe.asking.saturating_sub(1);
        if full {
            probe.width = probe.width.saturating_mul(2);
        } else {
            probe.resolved_at = probe.resolved_at.max(sent_at);
            probe.width = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::claim::ClaimOptions;

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn job_type(name: &str) -> JobType {
        JobType::new(name).unwrap()
    }

    fn claim(queues: &[&str], types: &[&str]) -> ClaimRequest {
        let queues = queues.iter().map(|name| queue(name)).collect();
        let types = types.iter().map(|name| job_type(name)).collect();
        ClaimRequest { queues, types, limit: 1, terms: ClaimOptions::default() }
    }

    #[test]
    fn a_claim_reserves_what_it_is_expected_to_take() {
        let (mut work, both) = (Work::default(), claim(&["b", "a"], &[]));
        work.watch(&both);
        assert!(work.add(&queue("a"), &job_type("t"), 1) && work.add(&queue("b"), &job_type("t"), 1));
        assert!(!work.add(&queue("other"), &job_type("t"), 1), "no claim names it");
        let reserved = work.reserve(&both);
        assert!(work.has(&queue("a"), &[]) && !work.has(&queue("b"), &[]), "the first queue comes first");
        assert!(work.settle(&both, reserved, None), "a claim that failed has taken nothing");
        assert!(work.has(&queue("b"), &[]));
        let reserved = work.reserve(&both);
        assert!(!work.settle(&both, reserved, Some(&[])), "empty: other nodes have taken all");
        assert!(!work.has(&queue("a"), &[]) && !work.has(&queue("b"), &[]));
    }

    #[test]
    fn an_empty_answer_says_nothing_about_what_came_later() {
        let (mut work, one) = (Work::default(), claim(&["q"], &["t"]));
        work.watch(&one);
        let reserved = work.reserve(&one);
        work.add(&queue("q"), &job_type("t"), 1);
        assert!(work.settle(&one, reserved, Some(&[])));
        assert!(work.has(&queue("q"), &one.types));
        work.unwatch(&one);
        assert!(!work.has(&queue("q"), &one.types) && work.queues.is_empty());
    }

    /// A hint says nothing about types: each set of types asks for itself.
    #[test]
    fn a_hint_is_followed_once_for_each_set_of_types() {
        let (mut work, x, y) = (Work::default(), claim(&["q"], &["x"]), claim(&["q"], &["y"]));
        work.watch(&x);
        work.watch(&y);
        assert!(!work.has(&queue("q"), &x.types));
        work.probe_queue(&queue("q"));
        let reserved = work.reserve(&x);
        assert!(!work.has(&queue("q"), &x.types) && work.has(&queue("q"), &y.types));
        assert!(!work.settle(&x, reserved, Some(&[])));
        assert!(!work.has(&queue("q"), &x.types) && work.has(&queue("q"), &y.types));
        let reserved = work.reserve(&y);
        work.probe_all();
        assert!(work.has(&queue("q"), &y.types), "the claim in flight may have looked before");
        assert!(work.settle(&y, reserved, Some(&[])));
    }
}
