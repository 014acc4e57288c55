//! The engine of `longshore-core` on records in memory, as a [`TestTarget`].

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::Timestamp;
use longshore_core::actions::{JobAction, allowed_actions};
use longshore_core::dependency::DependencyStatus;
use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobId, LeaseToken, QueueName, WorkerName, WorkflowId};
use longshore_core::refusal::Refusal;
use longshore_core::rng::SeededRng;
use longshore_core::state::StateKind;
use longshore_core::workflow::Workflow;
use longshore_engine::{ClaimRequest, Command as Order, Effect, Engine, EngineOptions, Response, Settlement};

use crate::convert::{Machine, Names, SettledClaim, name_in_workflow, queue_of_holder, queue_snapshot};
use crate::memory_records::MemoryRecords;
use crate::target::*;

/// The start of the model's clock.
pub const START: Millis = 1_700_000_000_000;

#[derive(Debug, Clone)]
pub struct EngineSubject {
    names: Names,
    core: Core,
}

#[derive(Debug, Clone)]
struct Core {
    engine: Engine,
    records: MemoryRecords,
    rng: SeededRng,
    now: Timestamp,
    next: Option<Timestamp>,
    effects: Vec<Effect>,
    /// Jobs per tick. Tests use a small number, so that work is split into slices.
    tick_budget: usize,
    /// Workers that may claim no jobs.
    held_back: BTreeSet<WorkerName>,
}

impl Default for EngineSubject {
    fn default() -> Self {
        Self::new()
    }
}

impl EngineSubject {
    pub fn new() -> Self {
        Self::with_slices(EngineOptions::default().cascade_jobs_max, 1_000)
    }

    /// Makes an engine that splits bounded work into slices of these sizes.
    pub fn with_slices(cascade_jobs_max: usize, tick_budget: usize) -> Self {
        let options = EngineOptions { cascade_jobs_max, ..EngineOptions::default() };
        let core = Core {
            engine: Engine::new(options),
            records: MemoryRecords::default(),
            rng: SeededRng::new(0x10f5_0fe0),
            now: Timestamp::from_millis(START),
            next: None,
            effects: Vec::new(),
            tick_budget,
            held_back: BTreeSet::new(),
        };
        Self { names: Names::new(), core }
    }

    /// Returns an engine that is rebuilt from the records at the current time.
    pub fn rebuilt(&self) -> Engine {
        let Core { engine, records, rng, now, .. } = &self.core;
        let mut engine = rebuild(engine, records);
        let (mut records, mut rng, mut effects) = (records.clone(), rng.clone(), Vec::new());
        let Ok(ticked) = engine.tick(&mut records, *now, usize::MAX, &mut rng, &mut effects);
        assert!(ticked.next.is_none_or(|next| next > *now), "a tick without bound leaves nothing undone");
        engine
    }

    pub fn engine(&self) -> &Engine {
        &self.core.engine
    }

    pub fn records(&self) -> &MemoryRecords {
        &self.core.records
    }

    /// Returns the effects since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.core.effects)
    }
}

/// Rebuilds an engine from its records.
pub(crate) fn rebuild(engine: &Engine, records: &MemoryRecords) -> Engine {
    let live = records.jobs().filter(|job| job.is_live());
    let mut ended: BTreeMap<(QueueName, StateKind), u64> = BTreeMap::new();
    for job in records.jobs().filter(|job| !job.is_live()) {
        *ended.entry((job.queue.clone(), job.kind())).or_default() += 1;
    }
    let ended = ended.into_iter().map(|((queue, state), jobs)| (queue, state, jobs));
    let mut rebuilt = Engine::rebuild(engine.options(), records.queues().cloned(), live, ended, engine.next_seq());
    records
        .workflows()
        .filter(|workflow| workflow.operation.is_some())
        .for_each(|workflow| rebuilt.resume_operation(workflow.id));
    rebuilt
}

impl Core {
    /// Ticks until no job is due.
    fn tick_until_idle(&mut self) {
        loop {
            let Ok(ticked) =
                self.engine.tick(&mut self.records, self.now, self.tick_budget, &mut self.rng, &mut self.effects);
            self.next = ticked.next;
            if ticked.next.is_none_or(|next| next > self.now) {
                return;
            }
        }
    }
}

impl Machine for Core {
    fn execute(&mut self, order: Order) -> Response {
        if let Order::Claim(claim) = &order
            && claim.terms.worker.as_ref().is_some_and(|worker| self.held_back.contains(worker))
        {
            return Response::Claimed(self.engine.check_claim(claim).map(|()| Vec::new()));
        }
        let Ok(response) = self.engine.apply(&mut self.records, &order, self.now, &mut self.rng, &mut self.effects);
        response
    }

    fn settle_and_claim(&mut self, settle: Vec<Settlement>, claim: ClaimRequest) -> Result<SettledClaim, Refusal> {
        self.engine.check_claim(&claim)?;
        let settled = settle.into_iter().map(|settlement| match self.execute(Order::Settle(settlement)) {
            Response::Settled(verdict) => verdict,
            other => panic!("another answer: {other:?}"),
        });
        let verdicts = settled.collect();
        match self.execute(Order::Claim(claim)) {
            Response::Claimed(claimed) => Ok((verdicts, claimed?)),
            other => panic!("another answer: {other:?}"),
        }
    }

    /// The engine knows no workers: the stores enforce directives.
    fn direct(&mut self, worker: WorkerName, directive: WorkerDirective) {
        match directive {
            WorkerDirective::Run => drop(self.held_back.remove(&worker)),
            WorkerDirective::Quiet | WorkerDirective::Stop => drop(self.held_back.insert(worker)),
        }
    }

    fn parent(&mut self, id: JobId, token: Option<LeaseToken>) -> Result<QueueName, Refusal> {
        queue_of_holder(self.records.job_by_id(id), token, self.now)
    }

    fn workflow(&mut self, id: WorkflowId) -> Option<Workflow> {
        self.records.workflow_by_id(id).cloned()
    }

    fn members(&mut self, id: WorkflowId) -> Vec<(String, JobId)> {
        let members = self.records.members_of(id).filter(|job| job.requeued_as.is_none());
        members.map(|job| (name_in_workflow(job), job.id)).collect()
    }
}

impl TestTarget for EngineSubject {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn now(&mut self) -> Millis {
        self.core.now.as_millis()
    }

    fn apply(&mut self, command: &Command) -> Answer {
        let answer = self.names.execute(&mut self.core, command);
        self.core.tick_until_idle();
        let answer = self.names.follow_up(&mut self.core, answer);
        self.names.record_answer(answer)
    }

    fn reason(&self) -> Option<String> {
        self.names.reason()
    }

    fn advance(&mut self, by: Millis) {
        let target = Timestamp::from_millis(self.core.now.as_millis() + by);
        self.core.tick_until_idle();
        while let Some(next) = self.core.next.filter(|next| *next <= target) {
            self.core.now = next;
            self.core.tick_until_idle();
        }
        self.core.now = target;
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        let job = self.core.records.job_by_id(self.names.id_of(job)?)?;
        Some(self.names.snapshot(job))
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        let queue = self.core.engine.queue(&QueueName::new(queue).ok()?)?;
        Some(queue_snapshot(queue, &self.core.engine.counts(&queue.name)))
    }

    fn workflow(&mut self, workflow: Handle) -> Option<WorkflowSnapshot> {
        self.names.workflow(&mut self.core, workflow)
    }

    fn actions(&mut self, job: Handle) -> Option<Vec<&'static str>> {
        let records = &self.core.records;
        let job = records.job_by_id(self.names.id_of(job)?)?;
        let admission = self.core.engine.queue(&job.queue).map(|queue| &queue.admission);
        let status = |id| records.job_by_id(id).map_or(DependencyStatus::Gone, DependencyStatus::of);
        Some(allowed_actions(job, admission, status).into_iter().map(JobAction::as_str).collect())
    }

    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
        let job = self.core.records.job_by_id(self.names.id_of(job)?)?;
        Some(self.names.view(job, view, self.core.now))
    }
}
