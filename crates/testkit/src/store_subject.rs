//! Any [`Store`] in virtual time, as a [`Subject`]: all proofs that hold for the engine can be asked of it too.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_core::id::{JobId, LeaseToken, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_engine::{AdminCommand, AdminResponse, Command as Order, Response as Told, Submitted as Born};
use longshore_store::{ClaimedJob, Clock, JobRef, MemberQuery, Store, StoreError, VirtualClock};

use crate::block_on::block_on;
use crate::conformance::StoreFixture;
use crate::convert::{Machine, Names, name_in_workflow, queue_of_holder, queue_snapshot};
use crate::target::*;

/// Jobs touched by one tick: few, so that work is cut into slices now and then.
const TICK_BUDGET: NonZeroUsize = NonZeroUsize::new(50).unwrap();

/// Members of a workflow that are asked for at once.
const PAGE: usize = 100;

pub struct StoreSubject {
    names: Names,
    machine: StoreMachine,
    /// Closed and opened again after every so many commands; 0 is never.
    restart_every: usize,
    commands: usize,
}

struct StoreMachine {
    world: StoreFixture,
    next: Option<Timestamp>,
    /// What every job was given, to be found again in the hands of its workers.
    payloads: HashMap<JobId, Payload>,
}

impl std::fmt::Debug for StoreSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSubject").field("store", &self.machine.world.store()).finish_non_exhaustive()
    }
}

impl StoreSubject {
    /// The clock is the store's own.
    pub fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>) -> Self {
        Self::of(StoreFixture::new(store, clock))
    }

    pub fn of(world: StoreFixture) -> Self {
        let machine = StoreMachine { world, next: None, payloads: HashMap::new() };
        Self { names: Names::new(), machine, restart_every: 0, commands: 0 }
    }

    /// Closes the store and opens it again after every so many commands: nothing but what it made durable may matter.
    #[must_use]
    pub fn restarting_every(self, commands: usize) -> Self {
        assert!(self.machine.world.durable(), "this store cannot be opened again");
        Self { restart_every: commands, ..self }
    }

    fn restart_now_and_then(&mut self) {
        self.commands += 1;
        if self.restart_every > 0 && self.commands.is_multiple_of(self.restart_every) {
            self.machine.world.reopen();
            self.machine.settle_down();
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

    /// Ticks until nothing is due at this instant.
    fn settle_down(&mut self) {
        loop {
            let ticked = told(block_on(self.store().tick(TICK_BUDGET)));
            assert!(ticked.done <= TICK_BUDGET.get(), "a tick did {} of {TICK_BUDGET}", ticked.done);
            self.next = ticked.next;
            if ticked.next.is_none_or(|next| next > self.now()) {
                return;
            }
        }
    }

    fn find(&self, id: JobId) -> Option<Arc<Job>> {
        let found = told(block_on(self.store().get(vec![JobRef::Id(id)])));
        let [job] = <[_; 1]>::try_from(found).expect("one answer to one question");
        job
    }

    fn check_payload(&self, job: &ClaimedJob) {
        let ClaimedJob { claimed, payload } = job;
        assert_eq!(Some(payload.bytes()), self.payloads.get(&claimed.id).map(Payload::bytes), "payload of {claimed:?}");
    }

    fn keep_payloads(&mut self, given: Vec<Payload>, born: &[Born]) {
        assert_eq!(given.len(), born.len(), "one answer for each job of a batch");
        let new = born.iter().zip(given).filter(|(born, _)| !born.duplicate);
        self.payloads.extend(new.map(|(born, payload)| (born.id, payload)));
    }

    /// A clone has its original's payload.
    fn keep_copy(&mut self, original: Option<JobId>, answer: &AdminResponse) {
        let (Some(original), AdminResponse::State { id, .. }) = (original, answer) else { return };
        if let Some(payload) = self.payloads.get(&original).cloned() {
            self.payloads.insert(*id, payload);
        }
    }
}

/// In these proofs the store itself never fails.
fn told<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the store failed: {error}"))
}

fn one<T>(verdicts: Vec<T>) -> T {
    let [verdict] = <[T; 1]>::try_from(verdicts).unwrap_or_else(|all| panic!("{} verdicts for one item", all.len()));
    verdict
}

impl Machine for StoreMachine {
    fn order(&mut self, order: Order) -> Told {
        match order {
            Order::Submit(request) => {
                let jobs = request.batch.iter().chain(request.finally.as_deref());
                let given = jobs.map(|submission| submission.job.payload.clone()).collect();
                let answer = told(block_on(self.store().submit(request)));
                if let Ok(born) = &answer {
                    self.keep_payloads(given, born);
                }
                Told::Submitted(answer)
            }
            Order::Claim(request) => {
                let answer = told(block_on(self.store().claim(request)));
                answer.iter().flatten().for_each(|job| self.check_payload(job));
                Told::Claimed(answer.map(|jobs| jobs.into_iter().map(|job| job.claimed).collect()))
            }
            Order::Settle(settlement) => Told::Settled(one(told(block_on(self.store().settle(vec![settlement]))))),
            Order::Heartbeat(heartbeat) => {
                Told::LeaseRenewed(one(told(block_on(self.store().heartbeat(vec![heartbeat])))))
            }
            Order::Admin(command) => {
                let original = match &command {
                    AdminCommand::Requeue { id, .. } => Some(*id),
                    _ => None,
                };
                let answer = told(block_on(self.store().admin(command)));
                if let Ok(answer) = &answer {
                    self.keep_copy(original, answer);
                }
                Told::Admin(answer)
            }
        }
    }

    fn parent(&mut self, id: JobId, token: Option<LeaseToken>) -> Result<QueueName, Refusal> {
        queue_of_holder(self.find(id).as_deref(), token, self.now())
    }

    fn workflow(&mut self, id: WorkflowId) -> Option<Workflow> {
        told(block_on(self.store().workflow(id))).map(|found| Workflow::clone(&found))
    }

    fn members(&mut self, workflow: WorkflowId) -> Vec<(String, JobId)> {
        let (mut members, mut after) = (Vec::new(), Seq(0));
        loop {
            let page = told(block_on(self.store().members(MemberQuery { workflow, limit: PAGE, after })));
            members.extend(page.jobs.iter().map(|job| (name_in_workflow(job), job.id)));
            match page.next {
                Some(next) => after = next,
                None => return members,
            }
        }
    }

    fn note_clone(&mut self, id: JobId) {
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
        let answer = self.names.obey(&mut self.machine, command);
        self.machine.settle_down();
        self.restart_now_and_then();
        let answer = self.names.follow_up(&mut self.machine, answer);
        self.names.told(answer)
    }

    fn reason(&self) -> Option<String> {
        self.names.reason()
    }

    fn advance(&mut self, by: Millis) {
        let target = Timestamp::from_millis(self.machine.now().as_millis() + by);
        self.machine.settle_down();
        while let Some(next) = self.machine.next.filter(|next| *next <= target) {
            self.machine.world.clock().advance_to(next);
            self.machine.settle_down();
        }
        self.machine.world.clock().advance_to(target);
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        let job = self.machine.find(self.names.id_of(job)?)?;
        Some(self.names.snapshot(&job))
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        let name = QueueName::new(queue).ok()?;
        let report = told(block_on(self.machine.store().queue(name)))?;
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
