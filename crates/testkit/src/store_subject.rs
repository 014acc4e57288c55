//! Any [`Store`] in virtual time, as a [`TestTarget`], so that all proofs of the engine run on it.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobId, LeaseToken, QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_engine::{AdminCommand, AdminResponse, ClaimRequest, Command as Order, Response, Settlement, Submitted};
use longshore_store::{ClaimedJob, Clock, JobRef, MemberQuery, Store, StoreError, VirtualClock};

use crate::block_on::block_on;
use crate::conformance::StoreFixture;
use crate::convert::{Machine, Names, SettledClaim, name_in_workflow, queue_of_holder, queue_snapshot};
use crate::target::*;

/// Jobs per tick. Few, so that work is split into slices.
const TICK_BUDGET: NonZeroUsize = NonZeroUsize::new(50).unwrap();

/// Members of a workflow per page.
const PAGE: usize = 100;

pub struct StoreSubject {
    names: Names,
    machine: StoreMachine,
    /// The store is reopened after this many commands; 0 means never.
    restart_every: usize,
    commands: usize,
}

struct StoreMachine {
    world: StoreFixture,
    next: Option<Timestamp>,
    /// The payload of every job, to compare with the payloads that workers receive.
    payloads: HashMap<JobId, Payload>,
}

impl std::fmt::Debug for StoreSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSubject").field("store", &self.machine.world.store()).finish_non_exhaustive()
    }
}

impl StoreSubject {
    /// `clock` is the clock of the store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>) -> Self {
        Self::of(StoreFixture::new(store, clock))
    }

    pub fn of(world: StoreFixture) -> Self {
        let machine = StoreMachine { world, next: None, payloads: HashMap::new() };
        Self { names: Names::new(), machine, restart_every: 0, commands: 0 }
    }

    /// Reopens the store after this many commands, so that only durable state can matter.
    #[must_use]
    pub fn restarting_every(self, commands: usize) -> Self {
        assert!(self.machine.world.durable(), "this store cannot be opened again");
        Self { restart_every: commands, ..self }
    }

    fn restart_now_and_then(&mut self) {
        self.commands += 1;
        if self.restart_every > 0 && self.commands.is_multiple_of(self.restart_every) {
            self.machine.world.reopen();
            self.machine.tick_until_idle();
        }
    }
}

impl StoreMachine {
    fn store(&self) -> &Arc<dyn Store> {
        self.world.store()
    }

    fn now(&self) -> Timestamp {
        self.world.clock().now()
    }

    /// Ticks until no job is due.
    fn tick_until_idle(&mut self) {
        loop {
            let ticked = unwrap(block_on(self.store().tick(TICK_BUDGET)));
            assert!(ticked.done <= TICK_BUDGET.get(), "a tick did {} of {TICK_BUDGET}", ticked.done);
            self.next = ticked.next;
            if ticked.next.is_none_or(|next| next > self.now()) {
                return;
            }
        }
    }

    fn find(&self, id: JobId) -> Option<Arc<Job>> {
        let found = unwrap(block_on(self.store().get(vec![JobRef::Id(id)])));
        let [job] = <[_; 1]>::try_from(found).expect("one answer to one question");
        job
    }

    fn check_payload(&self, job: &ClaimedJob) {
        let ClaimedJob { claimed, payload } = job;
        assert_eq!(Some(payload.bytes()), self.payloads.get(&claimed.id).map(Payload::bytes), "payload of {claimed:?}");
    }

    fn keep_payloads(&mut self, given: Vec<Payload>, born: &[Submitted]) {
        assert_eq!(given.len(), born.len(), "one answer for each job of a batch");
        let new = born.iter().zip(given).filter(|(born, _)| !born.duplicate);
        self.payloads.extend(new.map(|(born, payload)| (born.id, payload)));
    }

    /// Records that a clone has the payload of its original.
    fn keep_copy(&mut self, original: Option<JobId>, answer: &AdminResponse) {
        let (Some(original), AdminResponse::State { id, .. }) = (original, answer) else { return };
        if let Some(payload) = self.payloads.get(&original).cloned() {
            self.payloads.insert(*id, payload);
        }
    }
}

/// Unwraps a result: in these proofs the store itself never fails.
fn unwrap<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the store failed: {error}"))
}

fn one<T>(verdicts: Vec<T>) -> T {
    let [verdict] = <[T; 1]>::try_from(verdicts).unwrap_or_else(|all| panic!("{} verdicts for one item", all.len()));
    verdict
}

impl Machine for StoreMachine {
    fn execute(&mut self, order: Order) -> Response {
        match order {
            Order::Submit(request) => {
                let given = request.submissions().map(|submission| submission.job.payload.clone()).collect();
                let answer = unwrap(block_on(self.store().submit(request)));
                if let Ok(born) = &answer {
                    self.keep_payloads(given, born);
                }
                Response::Submitted(answer)
            }
            Order::Claim(request) => {
                let answer = unwrap(block_on(self.store().claim(request)));
                answer.iter().flatten().for_each(|job| self.check_payload(job));
                Response::Claimed(answer.map(|jobs| jobs.into_iter().map(|job| job.claimed).collect()))
            }
            Order::Settle(settlement) => {
                Response::Settled(one(unwrap(block_on(self.store().settle(vec![settlement])))))
            }
            Order::Heartbeat(heartbeat) => {
                Response::LeaseRenewed(one(unwrap(block_on(self.store().heartbeat(vec![heartbeat])))))
            }
            Order::Admin(command) => {
                let original = match &command {
                    AdminCommand::Requeue { id, .. } => Some(*id),
                    _ => None,
                };
                let answer = unwrap(block_on(self.store().admin(command)));
                if let Ok(answer) = &answer {
                    self.keep_copy(original, answer);
                }
                Response::Admin(answer)
            }
        }
    }

    fn settle_and_claim(&mut self, settle: Vec<Settlement>, claim: ClaimRequest) -> Result<SettledClaim, Refusal> {
        let settled = unwrap(block_on(self.store().settle_and_claim(settle, claim)))?;
        let jobs = settled.grant.deliver();
        jobs.iter().for_each(|job| self.check_payload(job));
        Ok((settled.verdicts, jobs.into_iter().map(|job| job.claimed).collect()))
    }

    fn direct(&mut self, worker: WorkerName, directive: WorkerDirective) {
        unwrap(block_on(self.store().set_directive(worker, directive)));
    }

    fn parent(&mut self, id: JobId, token: Option<LeaseToken>) -> Result<QueueName, Refusal> {
        queue_of_holder(self.find(id).as_deref(), token, self.now())
    }

    fn workflow(&mut self, id: WorkflowId) -> Option<Workflow> {
        unwrap(block_on(self.store().workflow(id))).map(|found| Workflow::clone(&found))
    }

    fn members(&mut self, workflow: WorkflowId) -> Vec<(String, JobId)> {
        let (mut members, mut after) = (Vec::new(), Seq(0));
        loop {
            let page = unwrap(block_on(self.store().members(MemberQuery { workflow, limit: PAGE, after })));
            members.extend(page.jobs.iter().map(|job| (name_in_workflow(job), job.id)));
            match page.next {
                Some(next) => after = next,
                None => return members,
            }
        }
    }

    fn record_clone(&mut self, id: JobId) {
        let original = self.find(id).and_then(|clone| clone.requeued_from);
        if let Some(payload) = original.and_then(|original| self.payloads.get(&original).cloned()) {
            self.payloads.insert(id, payload);
        }
    }
}

impl TestTarget for StoreSubject {
    fn name(&self) -> &'static str {
        "store"
    }

    fn now(&mut self) -> Millis {
        self.machine.store().now().as_millis()
    }

    fn apply(&mut self, command: &Command) -> Answer {
        let answer = self.names.execute(&mut self.machine, command);
        self.machine.tick_until_idle();
        self.restart_now_and_then();
        let answer = self.names.follow_up(&mut self.machine, answer);
        self.names.record_answer(answer)
    }

    fn reason(&self) -> Option<String> {
        self.names.reason()
    }

    fn advance(&mut self, by: Millis) {
        let target = Timestamp::from_millis(self.machine.now().as_millis() + by);
        self.machine.tick_until_idle();
        while let Some(next) = self.machine.next.filter(|next| *next <= target) {
            self.machine.world.clock().advance_to(next);
            self.machine.tick_until_idle();
        }
        self.machine.world.clock().advance_to(target);
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        let job = self.machine.find(self.names.id_of(job)?)?;
        Some(self.names.snapshot(&job))
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        let name = QueueName::new(queue).ok()?;
        let report = unwrap(block_on(self.machine.store().queue(name)))?;
        Some(queue_snapshot(&report.queue, &report.counts))
    }

    fn workflow(&mut self, workflow: Handle) -> Option<WorkflowSnapshot> {
        self.names.workflow(&mut self.machine, workflow)
    }

    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
        let job = self.machine.find(self.names.id_of(job)?)?;
        Some(self.names.view(&job, view, self.machine.now()))
    }
}
