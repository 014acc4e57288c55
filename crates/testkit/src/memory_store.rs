//! The simplest [`Store`]: the engine and its records behind one lock. For tests only, because
//! nothing is durable.
//!
//! The conformance suite runs on it first: a case that passes here is fair to other stores. Its
//! pages are short and sometimes empty, which the traits allow and callers tend to forget.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::rng::SeededRng;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_core::{ScheduleChange, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Command, Effect, Engine, EngineOptions, Heartbeat,
    JobRecords, Queue, Response, Settlement, SubmitRequest, Submitted, Subscriptions, SystemKind, Ticked,
};
use longshore_store::{
    ChangeFeed, ClaimedJob, Clock, Grant, JobQuery, JobRef, MemberQuery, Page, Park, ParkedClaims, QueuePosition,
    QueueStats, ReportedWorker, SeenWorker, SettledGrant, Store, StoreError, StoreFuture, StoreHealth, StoreReader,
    SystemChange, SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten, TakeBack, Ticket,
    WakeupsSender, WorkflowPage, WorkflowQuery, await_grant,
};
use tokio::sync::oneshot;

use crate::engine_subject::rebuild;
use crate::memory_records::MemoryRecords;

/// Records that one page reads. Few, so that pages end early.
const ROWS_PER_PAGE: usize = 40;

/// Unwraps the response of the engine, which is of the same kind as its command.
macro_rules! answer {
    ($response:expr, $kind:ident) => {
        match $response {
            Response::$kind(answer) => answer,
            other => panic!("another answer: {other:?}"),
        }
    };
}

#[derive(Debug)]
pub struct MemoryStore {
    disk: Disk,
    clock: Arc<dyn Clock>,
    wakeups: WakeupsSender,
    granting: Arc<Granting>,
}

type ClaimReply = oneshot::Sender<Result<Grant, Refusal>>;

/// Parked claims, and leases that were returned undelivered.
#[derive(Debug, Default)]
struct Granting {
    parked: Mutex<Parked>,
    returned: Mutex<Vec<Settlement>>,
}

#[derive(Debug, Default)]
struct Parked {
    claims: ParkedClaims<ClaimReply>,
    next_ticket: u64,
    held: bool,
}

impl TakeBack for Granting {
    /// The next call processes them.
    fn take_back(&self, undelivered: Vec<Settlement>) {
        self.returned.lock().unwrap().extend(undelivered);
    }
}

/// The data that outlives a closed store, like a disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    engine: Engine,
    records: MemoryRecords,
    rng: SeededRng,
    totals: Totals,
    directives: HashMap<WorkerName, WorkerDirective>,
    system_versions: HashMap<SystemKind, u64>,
}

impl Disk {
    pub fn new(options: EngineOptions) -> Self {
        let held = Held {
            engine: Engine::new(options),
            records: MemoryRecords::default(),
            rng: SeededRng::new(0x10f5_0fe1),
            totals: Totals::default(),
            directives: HashMap::new(),
            system_versions: HashMap::new(),
        };
        Self(Arc::new(Mutex::new(held)))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap()
    }
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::open(Disk::new(EngineOptions::default()), clock)
    }

    /// Opens a store from the records alone. State of an earlier engine is lost.
    pub fn open(disk: Disk, clock: Arc<dyn Clock>) -> Self {
        {
            let mut held = disk.lock();
            held.engine = rebuild(&held.engine, &held.records);
            held.load_subscriptions();
        }
        Self { disk, clock, wakeups: WakeupsSender::default(), granting: Arc::default() }
    }

    /// Runs a call under the lock. Deadlines are published inside it, effects after it.
    fn turn<T>(&self, work: impl FnOnce(&mut Held, Timestamp, &mut Vec<Effect>) -> T) -> T {
        let mut effects = Vec::new();
        let mut held = self.disk.lock();
        let now = self.clock.now();
        for settlement in std::mem::take(&mut *self.granting.returned.lock().unwrap()) {
            drop(held.apply(Command::Settle(settlement), now, &mut effects));
        }
        self.grant(&mut held, now, &mut effects);
        let answer = work(&mut held, now, &mut effects);
        self.grant(&mut held, now, &mut effects);
        let Held { engine, records, rng, totals, .. } = &mut *held;
        totals.count(effects.iter().filter_map(Effect::transition));
        let Ok(Ticked { next, .. }) = engine.tick(records, now, 0, rng, &mut effects);
        // Inside the lock, so that deadlines are published in the order of commits.
        self.wakeups.publish_next_deadline(next);
        drop(held);
        self.wakeups.publish(&mut effects);
        answer
    }

    fn apply(&self, command: Command) -> Response {
        self.turn(|held, now, effects| held.apply(command, now, effects))
    }

    /// Grants ready jobs to parked claims, one after the other, in order.
    fn grant(&self, held: &mut Held, now: Timestamp, effects: &mut Vec<Effect>) {
        let mut parked = self.granting.parked.lock().unwrap();
        if parked.held {
            return;
        }
        parked.claims.notify_all();
        while let Some(ticket) = parked.claims.next_candidate(|queue, types| held.engine.has_ready(queue, types)) {
            let claim = parked.claims.take(ticket).expect("a candidate is parked");
            if !claim.caller.is_closed() {
                let answer = held.claim(claim.request, now, effects);
                drop(claim.caller.send(answer.map(|jobs| self.granted(jobs))));
            }
        }
    }

    fn granted(&self, jobs: Vec<ClaimedJob>) -> Grant {
        Grant::new(jobs, Arc::<Granting>::clone(&self.granting))
    }

    /// Serves a claim, or parks it.
    fn ask(&self, request: ClaimRequest, parks: bool) -> (Ticket, oneshot::Receiver<Result<Grant, Refusal>>) {
        let (reply, answer) = oneshot::channel();
        let ticket = self.turn(|held, now, effects| {
            let mut parked = self.granting.parked.lock().unwrap();
            parked.next_ticket += 1;
            let ticket = Ticket(parked.next_ticket);
            let unserved = parks && parked.held;
            let answer = if unserved { Ok(Vec::new()) } else { held.claim(request.clone(), now, effects) };
            let parks = parks && held.can_claim(request.terms.worker.as_ref());
            if parks && answer.as_ref().is_ok_and(Vec::is_empty) {
                parked.claims.park(ticket, request, reply);
            } else {
                drop(reply.send(answer.map(|jobs| self.granted(jobs))));
            }
            ticket
        });
        (ticket, answer)
    }
}

impl Held {
    fn write_system(
        &mut self,
        write: SystemWrite,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<SystemWritten, SystemRefusal> {
        let stored = |change: &SystemChange| self.records.system_revision_of(change.kind, &change.key);
        if let Some(index) = write.changes.iter().position(|change| !change.expected.is_met_by(stored(change))) {
            return Err(SystemRefusal::Conflict { index });
        }
        let revision = self.records.next_system_revision();
        for kind in write.announced_kinds() {
            *self.system_versions.entry(kind).or_default() += 1;
        }
        let submitted = match write.submit {
            None => Vec::new(),
            Some(request) => answer!(self.apply(Command::Submit(request), now, effects), Submitted)
                .map_err(SystemRefusal::Submission)?,
        };
        for change in &write.changes {
            match change.stored_value(submitted.iter().map(|job: &Submitted| job.id)) {
                Some(value) => {
                    let Ok(()) = self.records.put_system(change.kind, change.key.clone(), value);
                }
                None => self.records.delete_system(change.kind, &change.key),
            }
        }
        self.load_subscriptions();
        Ok(SystemWritten { revision, submitted })
    }

    fn load_subscriptions(&mut self) {
        let endpoints: Vec<_> = self.records.system(SystemKind::Webhook).map(|(key, _, value)| (key, value)).collect();
        self.engine.set_subscriptions(Arc::new(Subscriptions::of_records(endpoints).unwrap_or_default()));
    }

    fn apply(&mut self, command: Command, now: Timestamp, effects: &mut Vec<Effect>) -> Response {
        let Ok(answer) = self.engine.apply(&mut self.records, &command, now, &mut self.rng, effects);
        answer
    }

    fn can_claim(&self, worker: Option<&WorkerName>) -> bool {
        worker.is_none_or(|name| !self.directives.contains_key(name))
    }

    /// Claims jobs; none for a worker that does not run.
    fn claim(
        &mut self,
        request: ClaimRequest,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<Vec<ClaimedJob>, Refusal> {
        if !self.can_claim(request.terms.worker.as_ref()) {
            return self.engine.check_claim(&request).map(|()| Vec::new());
        }
        let claimed = answer!(self.apply(Command::Claim(request), now, effects), Claimed)?;
        let with_payload = claimed.into_iter().map(|claimed| {
            let payload = self.records.payload(claimed.seq).cloned().expect("every job has a payload");
            ClaimedJob { claimed, payload }
        });
        Ok(with_payload.collect())
    }

    fn find(&self, job: JobRef) -> Option<Arc<Job>> {
        let found = match job {
            JobRef::Id(id) => self.records.job_by_id(id),
            JobRef::Seq(seq) => self.records.job(seq),
        };
        found.cloned().map(Arc::new)
    }

    fn report(&self, queue: &Arc<Queue>) -> QueueStats {
        QueueStats {
            queue: Arc::clone(queue),
            counts: self.engine.counts(&queue.name),
            oldest_scheduled_at: self.engine.oldest_scheduled_at(&queue.name),
        }
    }
}

fn ready<'a, T: Send + 'a>(answer: T) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Ok(answer)))
}

/// The work happens when the future is polled. A call that is dropped unpolled has no effect.
macro_rules! later {
    ($work:expr) => {
        Box::pin(async move { Ok($work) })
    };
}

impl Store for MemoryStore {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        later!(answer!(self.apply(Command::Submit(request)), Submitted))
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        Box::pin(async move {
            let (ticket, answer) = self.ask(request, matches!(park, Park::Until(_)));
            let unpark = || {
                let claim = self.granting.parked.lock().unwrap().claims.take(ticket);
                claim.into_iter().for_each(|claim| drop(claim.caller.send(Ok(self.granted(Vec::new())))));
            };
            await_grant(answer, park, unpark).await.ok_or(StoreError::Poisoned)
        })
    }

    fn parked_claims(&self) -> usize {
        self.granting.parked.lock().unwrap().claims.len()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        later!({
            self.granting.parked.lock().unwrap().held = hold;
            self.turn(|_, _, _| ());
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        later!(self.turn(|held, now, effects| {
            let verdict = |one| answer!(held.apply(Command::Settle(one), now, effects), Settled);
            settlements.into_iter().map(verdict).collect()
        }))
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        later!(self.turn(|held, now, effects| -> Result<SettledGrant, Refusal> {
            held.engine.check_claim(&request)?;
            let verdict = |one| answer!(held.apply(Command::Settle(one), now, effects), Settled);
            let verdicts = settlements.into_iter().map(verdict).collect();
            self.grant(held, now, effects);
            let grant = self.granted(held.claim(request, now, effects)?);
            Ok(SettledGrant { verdicts, grant })
        }))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        later!(self.turn(|held, now, effects| {
            let verdict = |one| answer!(held.apply(Command::Heartbeat(one), now, effects), LeaseRenewed);
            heartbeats.into_iter().map(verdict).collect()
        }))
    }

    fn set_directive(&self, worker: WorkerName, directive: WorkerDirective) -> StoreFuture<'_, ()> {
        later!(self.turn(|held, _, _| {
            for claim in self.granting.parked.lock().unwrap().claims.take_of_worker(&worker) {
                drop(claim.caller.send(Ok(self.granted(Vec::new()))));
            }
            match directive {
                WorkerDirective::Run => drop(held.directives.remove(&worker)),
                WorkerDirective::Quiet | WorkerDirective::Stop => drop(held.directives.insert(worker, directive)),
            }
        }))
    }

    fn report_workers(&self, _: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
        ready(())
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        later!(answer!(self.apply(Command::Admin(command)), Admin))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        later!(self.turn(|held, now, effects| {
            let Held { engine, records, rng, .. } = held;
            let Ok(ticked) = engine.tick(records, now, budget.get(), rng, effects);
            ticked
        }))
    }

    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        ready(self.turn(|held, now, effects| held.write_system(write, now, effects)))
    }

    fn watch_events(&self) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(self.wakeups.mark())))
    }

    fn announce_schedule(
        &self,
        name: Arc<str>,
        queue: QueueName,
        change: ScheduleChange,
        at: Timestamp,
    ) -> StoreFuture<'_, ()> {
        self.wakeups.publish(&mut vec![Effect::Schedule { name, queue, change, at }]);
        Box::pin(std::future::ready(Ok(())))
    }

    fn wakeups(&self) -> ChangeFeed {
        self.wakeups.subscribe()
    }
}

impl StoreReader for MemoryStore {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn directive(&self, worker: Option<&WorkerName>) -> WorkerDirective {
        let held = self.disk.lock();
        worker.and_then(|name| held.directives.get(name)).copied().unwrap_or(WorkerDirective::Run)
    }

    fn reported_workers(&self, _: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>> {
        ready(Vec::new())
    }

    fn system_records(&self, query: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>> {
        let held = self.disk.lock();
        let SystemQuery { kind, start, end, limit, descending } = query;
        let is_inside = |key: &[u8]| key >= start.as_slice() && end.as_deref().is_none_or(|end| key < end);
        let mut found: Vec<SystemRecord> = held
            .records
            .system(kind)
            .filter(|(key, ..)| is_inside(key))
            .map(|(key, revision, value)| SystemRecord { key: key.to_vec(), revision, value: value.to_vec() })
            .collect();
        if descending {
            found.reverse();
        }
        found.truncate(limit);
        ready(found)
    }

    fn system_version(&self, kind: SystemKind) -> StoreFuture<'_, u64> {
        ready(self.disk.lock().system_versions.get(&kind).copied().unwrap_or(0))
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        ready(StoreHealth::default())
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        let held = self.disk.lock();
        ready(jobs.into_iter().map(|job| held.find(job)).collect())
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        let held = self.disk.lock();
        ready(jobs.into_iter().map(|seq| held.records.payload(seq).cloned()).collect())
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        let JobQuery { filter, limit, before } = query;
        let held = self.disk.lock();
        let mut rows: Vec<&Job> = held.records.jobs().filter(|job| before.is_none_or(|seq| job.seq < seq)).collect();
        rows.sort_unstable_by_key(|job| Reverse(job.seq));
        let (mut jobs, mut seen, mut rest) = (Vec::new(), None, rows.into_iter().peekable());
        for job in rest.by_ref().take(ROWS_PER_PAGE) {
            seen = Some(job.seq);
            if filter.matches(job) {
                jobs.push(Arc::new(job.clone()));
            }
            if jobs.len() >= limit {
                break;
            }
        }
        let next = rest.peek().and(seen);
        ready(Page { jobs, next })
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        let held = self.disk.lock();
        let before = held.records.jobs().filter(|job| place.is_after(job)).count();
        ready(u64::try_from(before).unwrap())
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        ready(self.disk.lock().totals)
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        ready(self.disk.lock().records.workflow_by_id(id).cloned().map(Arc::new))
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        let WorkflowQuery { state, limit, before } = query;
        let held = self.disk.lock();
        let mut rows: Vec<&Workflow> = held.records.workflows().collect();
        rows.retain(|workflow| before.is_none_or(|number| workflow.number < number));
        rows.sort_unstable_by_key(|workflow| Reverse(workflow.number));
        let (mut workflows, mut seen, mut rest) = (Vec::new(), None, rows.into_iter().peekable());
        for workflow in rest.by_ref().take(ROWS_PER_PAGE) {
            seen = Some(workflow.number);
            if state.is_none_or(|state| state == workflow.state()) {
                workflows.push(Arc::new(workflow.clone()));
            }
            if workflows.len() >= limit {
                break;
            }
        }
        let next = rest.peek().and(seen);
        ready(WorkflowPage { workflows, next })
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        let MemberQuery { workflow, limit, after } = query;
        let held = self.disk.lock();
        let (mut jobs, mut seen) = (Vec::new(), None);
        let mut rest = held.records.members_of(workflow).filter(|job| job.seq > after).peekable();
        for job in rest.by_ref().take(ROWS_PER_PAGE) {
            seen = Some(job.seq);
            if job.requeued_as.is_none() {
                jobs.push(Arc::new(job.clone()));
            }
            if jobs.len() >= limit {
                break;
            }
        }
        let next = rest.peek().and(seen);
        ready(Page { jobs, next })
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        let held = self.disk.lock();
        ready(held.engine.queue(&name).map(|queue| held.report(queue)))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        let held = self.disk.lock();
        ready(held.engine.queues().map(|queue| held.report(queue)).collect())
    }
}
