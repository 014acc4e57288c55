//! Helpers of the cases: short calls to a store, and the checks after each case.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::heartbeat::{HeartbeatData, LeaseRenewal};
use longshore_core::id::{JobId, JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Claimed, Heartbeat, Queue, Settlement, StateCounts,
    Submission, SubmitRequest, Submitted, Ticked, count_of,
};
use longshore_store::{
    ClaimedJob, Clock, JobFilter, JobQuery, JobRef, QueueStats, Store, StoreError, StoreFuture, VirtualClock,
};

use super::store_fixture::StoreFixture;
use crate::block_on::block_on;

/// Up to this many jobs, all listings by queue and state are checked after a case.
const LISTINGS_JOBS_MAX: usize = 300;

#[derive(Debug)]
pub struct Harness {
    world: StoreFixture,
}

pub(super) type Batch = Result<Vec<Submitted>, BatchRefusal>;

/// Everything that can be read from a store.
#[derive(Debug, PartialEq)]
pub(super) struct StoreSnapshot {
    pub jobs: Vec<Arc<Job>>,
    pub payloads: Vec<Option<Payload>>,
    pub queues: Vec<(Arc<Queue>, StateCounts, Option<Timestamp>)>,
}

pub(super) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(super) fn job_type(name: &str) -> JobType {
    JobType::new(name).unwrap()
}

/// Makes an ordinary job.
pub(super) fn work() -> NewJob {
    NewJob::new(job_type("work"), Payload::Binary(Bytes::from_static(b"work")))
}

pub(super) fn work_with(change: impl FnOnce(&mut NewJob)) -> NewJob {
    let mut job = work();
    change(&mut job);
    job
}

pub(super) fn keyed(key: &str) -> NewJob {
    work_with(|job| job.idempotency_key = Some(key.into()))
}

pub(super) fn after(ids: &[JobId]) -> NewJob {
    let dependency = |id: &JobId| longshore_core::submit::DependencyRef::Job(*id);
    work_with(|job| job.after = ids.iter().map(dependency).collect())
}

pub(super) fn delayed(by: Duration) -> NewJob {
    work_with(|job| job.start = longshore_core::submit::Start::In(by))
}

pub(super) fn complete() -> Outcome {
    Outcome::Complete { result: None, progress: None }
}

pub(super) fn fail(category: ReportedCategory) -> Outcome {
    Outcome::Fail(ReportedFailure::new(category, "it went wrong"))
}

pub(super) fn settlement(claimed: &Claimed, outcome: Outcome) -> Settlement {
    Settlement { id: claimed.id, token: Some(claimed.token), outcome }
}

pub(super) fn heartbeat(claimed: &Claimed) -> Heartbeat {
    Heartbeat { id: claimed.id, token: Some(claimed.token), notes: HeartbeatData::default() }
}

pub(super) fn request(name: &str, limit: usize) -> ClaimRequest {
    ClaimRequest { queues: vec![queue(name)], limit, types: Vec::new(), terms: ClaimOptions::default() }
}

pub(super) fn filter(queue_name: &str, state: StateKind) -> JobFilter {
    JobFilter { queue: Some(queue(queue_name)), states: state.into(), ..JobFilter::default() }
}

/// Unwraps a result: here the store itself does not fail.
pub(super) fn answered<T>(call: StoreFuture<'_, T>) -> T {
    block_on(call).unwrap_or_else(|error: StoreError| panic!("the store failed: {error}"))
}

/// Reads all pages of a listing. Checks that they are ordered, bounded and make progress.
pub(super) fn walk(store: &dyn Store, filter: &JobFilter, limit: usize) -> Vec<Arc<Job>> {
    let (mut jobs, mut before) = (Vec::<Arc<Job>>::new(), None);
    loop {
        let page = answered(store.list(JobQuery { filter: filter.clone(), limit, before }));
        assert!(page.jobs.len() <= limit, "a page of {} where {limit} were asked for", page.jobs.len());
        for job in page.jobs {
            let last = jobs.last().map(|last| last.seq).or(before);
            assert!(last.is_none_or(|last| job.seq < last), "{} after {last:?}", job.seq);
            assert!(before.is_none_or(|before: Seq| job.seq < before), "{} is not before {before:?}", job.seq);
            jobs.push(job);
        }
        let Some(next) = page.next else { return jobs };
        assert!(before.is_none_or(|before| next < before), "the cursor stands still at {next}");
        assert!(jobs.last().is_none_or(|last| next <= last.seq), "the cursor {next} would show a job twice");
        before = Some(next);
    }
}

impl Harness {
    pub fn new(world: StoreFixture) -> Self {
        let harness = Self { world };
        let queues = answered(harness.store().queues());
        let names: Vec<&str> = queues.iter().map(|report| report.queue.name.as_str()).collect();
        assert_eq!(names, [Queue::DEFAULT], "a fresh store has one queue");
        assert!(harness.jobs().is_empty(), "a fresh store has no jobs");
        harness
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.world.store()
    }

    pub fn clock(&self) -> &VirtualClock {
        self.world.clock()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    pub(super) fn reopen(&mut self) {
        self.world.reopen();
    }

    pub(super) fn reopen_after(&mut self, closed_for: Duration) {
        self.world.reopen_after(|clock| {
            clock.advance(closed_for);
        });
    }

    pub(super) fn tick(&self, budget: usize) -> Ticked {
        answered(self.store().tick(NonZeroUsize::new(budget).unwrap()))
    }

    /// Ticks until no job is due. Returns the next deadline.
    pub(super) fn tick_until_idle(&self) -> Option<Timestamp> {
        loop {
            let next = self.tick(100).next;
            if next.is_none_or(|next| next > self.now()) {
                return next;
            }
        }
    }

    /// Advances the clock, stopping at every deadline.
    pub(super) fn pass(&self, length: Duration) {
        let target = self.now() + length;
        while let Some(next) = self.tick_until_idle().filter(|next| *next <= target) {
            self.clock().advance_to(next);
        }
        self.clock().advance_to(target);
    }

    pub(super) fn try_admin(&self, command: AdminCommand) -> Result<AdminResponse, Refusal> {
        answered(self.store().admin(command))
    }

    pub(super) fn admin(&self, command: AdminCommand) -> AdminResponse {
        self.try_admin(command).unwrap_or_else(|refusal| panic!("refused: {refusal}"))
    }

    pub(super) fn put_queue(&self, name: &str, profile: Profile) {
        self.put_queue_with(name, profile, SettingsPatch::default());
    }

    pub(super) fn put_queue_with(&self, name: &str, profile: Profile, overrides: SettingsPatch) {
        let overrides = Some(Box::new(overrides));
        self.admin(AdminCommand::PutQueue { queue: queue(name), profile: Some(profile), overrides });
    }

    pub(super) fn pause(&self, name: &str) {
        self.admin(AdminCommand::PauseQueue { queue: queue(name) });
    }

    pub(super) fn try_submit(&self, name: &str, jobs: Vec<NewJob>) -> Batch {
        let batch = jobs.into_iter().map(|job| Submission { queue: queue(name), job }).collect();
        answered(self.store().submit(SubmitRequest::new(batch)))
    }

    pub(super) fn submit_all(&self, name: &str, jobs: Vec<NewJob>) -> Vec<Submitted> {
        self.try_submit(name, jobs).unwrap_or_else(|refused| panic!("refused: {}", refused.first))
    }

    pub(super) fn submit(&self, name: &str, job: NewJob) -> Submitted {
        self.submit_all(name, vec![job]).remove(0)
    }

    pub(super) fn try_claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedJob>, Refusal> {
        answered(self.store().claim(request))
    }

    pub(super) fn claim(&self, name: &str, limit: usize) -> Vec<Claimed> {
        let jobs = self.try_claim(request(name, limit)).unwrap_or_else(|refusal| panic!("refused: {refusal}"));
        jobs.into_iter().map(|job| job.claimed).collect()
    }

    /// Claims all ready jobs, in several calls: a store may return fewer than the limit.
    pub(super) fn claim_all(&self, name: &str) -> Vec<Claimed> {
        let mut all = Vec::new();
        loop {
            let some = self.claim(name, 1_000);
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }

    pub(super) fn claim_one(&self, name: &str) -> Claimed {
        let mut jobs = self.claim(name, 1);
        assert_eq!(jobs.len(), 1, "the queue {name} has a ready job");
        jobs.remove(0)
    }

    pub(super) fn settle(&self, claimed: &Claimed, outcome: Outcome) -> Result<StateKind, Refusal> {
        let mut verdicts = answered(self.store().settle(vec![settlement(claimed, outcome)]));
        assert_eq!(verdicts.len(), 1);
        verdicts.remove(0)
    }

    pub(super) fn heartbeat(&self, heartbeat: Heartbeat) -> Result<LeaseRenewal, Refusal> {
        let mut verdicts = answered(self.store().heartbeat(vec![heartbeat]));
        assert_eq!(verdicts.len(), 1);
        verdicts.remove(0)
    }

    /// Submits, claims and settles a job.
    pub(super) fn run(&self, name: &str, job: NewJob, outcome: Outcome) -> Submitted {
        let submitted = self.submit(name, job);
        let claimed = self.claim_one(name);
        assert_eq!(claimed.id, submitted.id, "no other job is ready");
        self.settle(&claimed, outcome).unwrap();
        submitted
    }

    pub(super) fn find(&self, job: JobRef) -> Option<Arc<Job>> {
        let mut found = answered(self.store().get(vec![job]));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    pub(super) fn job(&self, id: JobId) -> Arc<Job> {
        self.find(JobRef::Id(id)).unwrap_or_else(|| panic!("job {id} is gone"))
    }

    pub(super) fn state(&self, id: JobId) -> StateKind {
        self.job(id).kind()
    }

    pub(super) fn payload(&self, seq: Seq) -> Option<Payload> {
        let mut found = answered(self.store().payloads(vec![seq]));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    /// Returns all jobs, newest first.
    pub(super) fn jobs(&self) -> Vec<Arc<Job>> {
        self.list(&JobFilter::default())
    }

    pub(super) fn list(&self, filter: &JobFilter) -> Vec<Arc<Job>> {
        walk(&**self.store(), filter, 1_000)
    }

    pub(super) fn report(&self, name: &str) -> QueueStats {
        answered(self.store().queue(queue(name))).unwrap_or_else(|| panic!("there is no queue {name}"))
    }

    pub(super) fn count(&self, name: &str, state: StateKind) -> u64 {
        count_of(&self.report(name).counts, state)
    }

    pub(super) fn picture(&self) -> StoreSnapshot {
        let jobs = self.jobs();
        let payloads = answered(self.store().payloads(jobs.iter().map(|job| job.seq).collect()));
        let reports = answered(self.store().queues()).into_iter();
        let queues = reports.map(|report| (report.queue, report.counts, report.oldest_scheduled_at)).collect();
        StoreSnapshot { jobs, payloads, queues }
    }

    /// Checks that a refused command changes nothing.
    pub(super) fn refused<T: std::fmt::Debug>(
        &self,
        code: &str,
        what: &str,
        attempt: impl FnOnce(&Self) -> Result<T, Refusal>,
    ) {
        let before = self.picture();
        let answer = attempt(self);
        assert_eq!(answer.map_err(|refusal| refusal.code()).unwrap_err(), code, "{what}");
        assert!(self.picture() == before, "{what}: the refusal changed something");
    }

    /// Checks after every case: counts equal a recount, every job is found by id and by number and
    /// has its payload, and listings agree.
    pub fn check(&self) {
        let jobs = self.jobs();
        let mut recount: BTreeMap<(&str, StateKind), u64> = BTreeMap::new();
        for job in &jobs {
            *recount.entry((job.queue.as_str(), job.kind())).or_default() += 1;
        }
        let reports = answered(self.store().queues());
        assert!(reports.is_sorted_by(|one, next| one.queue.name < next.queue.name), "queues come by name, each once");
        for report in &reports {
            self.check_report(report, &recount, &jobs);
        }
        self.check_workflows(&jobs);
        for some in jobs.chunks(1_000) {
            self.check_names(some);
        }
        if jobs.len() <= LISTINGS_JOBS_MAX {
            self.check_listings(&reports, &jobs);
        }
    }

    fn check_report(&self, report: &QueueStats, recount: &BTreeMap<(&str, StateKind), u64>, jobs: &[Arc<Job>]) {
        let name = report.queue.name.as_str();
        for state in StateKind::ALL {
            let found = recount.get(&(name, *state)).copied().unwrap_or(0);
            assert_eq!(count_of(&report.counts, *state), found, "{state} jobs of {name}: counted, found");
        }
        let alone = self.report(name);
        assert_eq!(alone.queue, report.queue, "the queue {name} by itself and among all");
        assert_eq!(alone.counts, report.counts, "counts of {name} by itself and among all");
        assert_eq!(alone.oldest_scheduled_at, report.oldest_scheduled_at, "of {name} by itself and among all");
        let scheduled = jobs.iter().filter(|job| job.queue.as_str() == name && job.kind() == StateKind::Scheduled);
        let oldest = scheduled.filter_map(|job| job.scheduled_at).min();
        assert_eq!(report.oldest_scheduled_at, oldest, "the oldest in the line of {name}");
    }

    fn check_names(&self, jobs: &[Arc<Job>]) {
        let by_id = answered(self.store().get(jobs.iter().map(|job| JobRef::Id(job.id)).collect()));
        let by_seq = answered(self.store().get(jobs.iter().map(|job| JobRef::Seq(job.seq)).collect()));
        let payloads = answered(self.store().payloads(jobs.iter().map(|job| job.seq).collect()));
        assert_eq!((by_id.len(), by_seq.len(), payloads.len()), (jobs.len(), jobs.len(), jobs.len()));
        for (place, job) in jobs.iter().enumerate() {
            assert_eq!(by_id[place].as_ref(), Some(job), "listed and found by id");
            assert_eq!(by_seq[place].as_ref(), Some(job), "listed and found by number");
            assert!(payloads[place].is_some(), "job {} has lost its payload", job.seq);
        }
    }

    fn check_listings(&self, reports: &[QueueStats], jobs: &[Arc<Job>]) {
        for report in reports {
            for state in StateKind::ALL {
                let filter = filter(report.queue.name.as_str(), *state);
                let fits = |job: &&Arc<Job>| job.queue == report.queue.name && job.kind() == *state;
                let expected: Vec<Seq> = jobs.iter().filter(fits).map(|job| job.seq).collect();
                let listed: Vec<Seq> = self.list(&filter).iter().map(|job| job.seq).collect();
                assert_eq!(listed, expected, "{state} jobs of {}", report.queue.name);
            }
        }
    }
}
