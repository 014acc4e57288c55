//! An engine on records in memory with a virtual clock, for tests that inspect the engine itself.

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::id::{JobId, JobType, QueueName, Seq};
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::rng::SeededRng;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, ClaimRequest, Claimed, Command, Effect, Engine, EngineOptions, Response, Settlement,
    Submission, SubmitRequest, Submitted, Ticked,
};

use crate::memory_records::MemoryRecords;

#[derive(Debug)]
pub struct EngineFixture {
    pub engine: Engine,
    pub records: MemoryRecords,
    rng: SeededRng,
    pub now: Timestamp,
    pub effects: Vec<Effect>,
}

impl Default for EngineFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl EngineFixture {
    pub fn new() -> Self {
        Self::with(EngineOptions::default())
    }

    pub fn with(options: EngineOptions) -> Self {
        Self {
            engine: Engine::new(options),
            records: MemoryRecords::default(),
            rng: SeededRng::new(11),
            now: Timestamp::from_millis(1_000_000),
            effects: Vec::new(),
        }
    }

    pub fn apply(&mut self, command: Command) -> Response {
        let Ok(answer) = self.engine.apply(&mut self.records, &command, self.now, &mut self.rng, &mut self.effects);
        answer
    }

    pub fn admin(&mut self, command: AdminCommand) -> AdminResponse {
        match self.apply(Command::Admin(command)) {
            Response::Admin(Ok(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub fn pass(&mut self, length: Duration) {
        self.now = self.now + length;
        let Ok(ticked) = self.engine.tick(&mut self.records, self.now, usize::MAX, &mut self.rng, &mut self.effects);
        assert!(ticked.next.is_none_or(|next| next > self.now));
    }

    pub fn tick(&mut self, budget: usize) -> Ticked {
        let Ok(ticked) = self.engine.tick(&mut self.records, self.now, budget, &mut self.rng, &mut self.effects);
        ticked
    }

    pub fn put_queue(&mut self, name: &str, profile: Profile, overrides: SettingsPatch) {
        let overrides = Some(Box::new(overrides));
        self.admin(AdminCommand::PutQueue { queue: queue(name), profile: Some(profile), overrides });
    }

    pub fn submit(&mut self, name: &str, job: NewJob) -> Submitted {
        match self.apply(Command::Submit(SubmitRequest::new(vec![Submission { queue: queue(name), job }]))) {
            Response::Submitted(Ok(mut jobs)) => jobs.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub fn claim(&mut self, name: &str) -> Claimed {
        self.claim_many(name, 1).remove(0)
    }

    pub fn claim_many(&mut self, name: &str, limit: usize) -> Vec<Claimed> {
        let request =
            ClaimRequest { queues: vec![queue(name)], limit, types: Vec::new(), terms: ClaimOptions::default() };
        match self.apply(Command::Claim(request)) {
            Response::Claimed(Ok(jobs)) => jobs,
            other => panic!("{other:?}"),
        }
    }

    pub fn settle(&mut self, claimed: &Claimed, outcome: Outcome) -> Response {
        self.apply(Command::Settle(Settlement { id: claimed.id, token: Some(claimed.token), outcome }))
    }

    pub fn payload(&self, seq: Seq) -> Option<Bytes> {
        self.records.payload(seq).map(|payload| payload.bytes().clone())
    }

    pub fn state(&self, id: JobId) -> Option<StateKind> {
        self.records.job_by_id(id).map(|job| job.kind())
    }
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub fn job(bytes: &[u8]) -> NewJob {
    NewJob::new(JobType::new("work").unwrap(), Payload::Binary(Bytes::copy_from_slice(bytes)))
}

pub fn fail() -> Outcome {
    Outcome::Fail(ReportedFailure::new(ReportedCategory::Temporary, "no"))
}

pub fn clone_requeue() -> Requeue {
    Requeue { counters: Reset::Zero, run_at: None }
}
