//! Which jobs the long-poll claims of a node can expect, per queue.
//!
//! Counts come from commits of this node. They may be too high, because other nodes claim too, but
//! never too low. A queue with only a hint is probed per set of types: by one claim first, then by
//! twice as many each time a probe returns full.

use std::collections::{BTreeSet, HashMap};

use longshore_core::id::{JobType, QueueName};
use longshore_engine::ClaimRequest;
use longshore_store::ClaimedJob;

#[derive(Debug, Default)]
pub(crate) struct ExpectedWork {
    queues: HashMap<QueueName, QueueWork>,
    /// Logical clock that orders hints and answers.
    now: u64,
}

#[derive(Debug, Default)]
struct QueueWork {
    /// Claims that name the queue.
    watchers: usize,
    ready: HashMap<JobType, usize>,
    /// When jobs were last added.
    counted_at: u64,
    /// When the last hint arrived.
    hinted_at: u64,
    probes: HashMap<Vec<JobType>, Probe>,
}

/// Claims that check a hint, for one set of types.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// When the last claim was sent that found the queue empty.
    resolved_at: u64,
    sent_at: u64,
    /// Claims that may be in flight at the same time.
    width: usize,
    in_flight: usize,
}

/// Jobs that a claim in flight is expected to take.
#[derive(Debug)]
pub(crate) struct Reservation {
    jobs: Vec<(QueueName, JobType, usize)>,
    /// Sorted and distinct, as parked claims are grouped.
    types: Vec<JobType>,
    /// When it was sent.
    at: u64,
}

fn distinct(request: &ClaimRequest) -> BTreeSet<&QueueName> {
    request.queues.iter().collect()
}

fn accepts(types: &[JobType], job_type: &JobType) -> bool {
    types.is_empty() || types.contains(job_type)
}

impl ExpectedWork {
    /// Counts the queues of a claim.
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
            work.on_hint(self.now);
        }
    }

    pub(crate) fn probe_all(&mut self) {
        self.now += 1;
        for work in self.queues.values_mut() {
            work.on_hint(self.now);
        }
    }

    /// Whether another claim for these types should be sent.
    pub(crate) fn has(&self, queue: &QueueName, types: &[JobType]) -> bool {
        self.queues.get(queue).is_some_and(|work| {
            work.needs_probe(types) || work.ready.iter().any(|(job_type, jobs)| *jobs > 0 && accepts(types, job_type))
        })
    }

    /// Reserves the jobs that a claim is expected to take.
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
            for (job_type, ready) in work.ready.iter_mut().filter(|(job_type, _)| accepts(&types, job_type)) {
                let reserved = missing.min(*ready);
                if reserved > 0 {
                    *ready -= reserved;
                    missing -= reserved;
                    jobs.push((queue.clone(), job_type.clone(), reserved));
                }
            }
        }
        Reservation { jobs, types, at: self.now }
    }

    /// Ends the reservation of a claim that has returned these jobs (`None`: it failed). Returns
    /// whether there may be more.
    pub(crate) fn finish(
        &mut self,
        request: &ClaimRequest,
        reserved: Reservation,
        jobs: Option<&[ClaimedJob]>,
    ) -> bool {
        let Reservation { jobs: expected, types, at } = reserved;
        for (queue, job_type, count) in expected {
            if let Some(work) = self.queues.get_mut(&queue) {
                *work.ready.entry(job_type).or_default() += count;
            }
        }
        for job in jobs.into_iter().flatten() {
            let work = self.queues.get_mut(&job.claimed.queue);
            if let Some(ready) = work.and_then(|work| work.ready.get_mut(&job.claimed.job_type)) {
                *ready = ready.saturating_sub(1);
            }
        }
        let full =
            jobs.is_none_or(|jobs| request.is_met(jobs.len(), jobs.iter().map(ClaimedJob::delivered_bytes).sum()));
        let mut more = false;
        for queue in distinct(request) {
            let Some(work) = self.queues.get_mut(queue) else { continue };
            work.end_probe(&types, full, at);
            if !full && work.counted_at <= at {
                // The claim has found no more jobs of its types.
                work.ready.retain(|job_type, _| !accepts(&types, job_type));
            }
            work.ready.retain(|_, jobs| *jobs > 0);
            more |= work.needs_probe(&types) || !work.ready.is_empty();
        }
        more
    }
}

impl QueueWork {
    fn on_hint(&mut self, now: u64) {
        self.hinted_at = now;
        self.probes.retain(|_, probe| probe.in_flight > 0);
    }

    fn needs_probe(&self, types: &[JobType]) -> bool {
        match self.probes.get(types) {
            None => self.hinted_at > 0,
            Some(probe) => {
                // A claim in flight may have an older snapshot than the hint.
                let due = probe.in_flight < probe.width || probe.sent_at < self.hinted_at;
                self.hinted_at > probe.resolved_at && due
            }
        }
    }

    fn begin_probe(&mut self, types: &[JobType], now: u64) {
        match self.probes.get_mut(types) {
            Some(probe) => {
                probe.in_flight += 1;
                probe.sent_at = now;
            }
            None => {
                let probe = Probe { resolved_at: 0, sent_at: now, width: 1, in_flight: 1 };
                self.probes.insert(types.to_vec(), probe);
            }
        }
    }

    fn end_probe(&mut self, types: &[JobType], full: bool, sent_at: u64) {
        let Some(probe) = self.probes.get_mut(types) else { return };
        probe.in_flight = probe.in_flight.saturating_sub(1);
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
        let (mut work, both) = (ExpectedWork::default(), claim(&["b", "a"], &[]));
        work.watch(&both);
        assert!(work.add(&queue("a"), &job_type("t"), 1) && work.add(&queue("b"), &job_type("t"), 1));
        assert!(!work.add(&queue("other"), &job_type("t"), 1), "no claim names it");
        let reserved = work.reserve(&both);
        assert!(work.has(&queue("a"), &[]) && !work.has(&queue("b"), &[]), "the first queue comes first");
        assert!(work.finish(&both, reserved, None), "a failed claim has taken no jobs");
        assert!(work.has(&queue("b"), &[]));
        let reserved = work.reserve(&both);
        assert!(!work.finish(&both, reserved, Some(&[])), "empty: other nodes have claimed all jobs");
        assert!(!work.has(&queue("a"), &[]) && !work.has(&queue("b"), &[]));
    }

    #[test]
    fn an_empty_result_keeps_jobs_that_were_added_later() {
        let (mut work, one) = (ExpectedWork::default(), claim(&["q"], &["t"]));
        work.watch(&one);
        let reserved = work.reserve(&one);
        work.add(&queue("q"), &job_type("t"), 1);
        assert!(work.finish(&one, reserved, Some(&[])));
        assert!(work.has(&queue("q"), &one.types));
        work.unwatch(&one);
        assert!(!work.has(&queue("q"), &one.types) && work.queues.is_empty());
    }

    /// A hint has no types, so each set of types is probed.
    #[test]
    fn a_hint_is_probed_once_per_set_of_types() {
        let (mut work, x, y) = (ExpectedWork::default(), claim(&["q"], &["x"]), claim(&["q"], &["y"]));
        work.watch(&x);
        work.watch(&y);
        assert!(!work.has(&queue("q"), &x.types));
        work.probe_queue(&queue("q"));
        let reserved = work.reserve(&x);
        assert!(!work.has(&queue("q"), &x.types) && work.has(&queue("q"), &y.types));
        assert!(!work.finish(&x, reserved, Some(&[])));
        assert!(!work.has(&queue("q"), &x.types) && work.has(&queue("q"), &y.types));
        let reserved = work.reserve(&y);
        work.probe_all();
        assert!(work.has(&queue("q"), &y.types), "the claim in flight may have an older snapshot");
        assert!(work.finish(&y, reserved, Some(&[])));
    }
}
