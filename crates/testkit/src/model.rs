//! The reference model: the rules of Longshore, implemented a second time and as simply as
//! possible.
//!
//! The model keeps its jobs in a list and searches all of them; it has no index, store or thread.
//! It shares no line with the engine and was written from api.md, requirements.md and
//! docs/rulings.md alone. A mistake that both share is unlikely.
//!
//! The model cannot know two things. Texts that the server makes up are [`ANY_TEXT`]. A delay with
//! jitter is a window until [`Model::adopt_run_at`] supplies the drawn value.

mod dependencies;
mod dialect;
mod fields;
mod job;
mod lease;
mod operate;
mod rules;
mod submit;
#[cfg(test)]
mod tests;
mod time;
mod views;
mod workflows;

use std::collections::{BTreeMap, VecDeque};

pub(crate) use job::State;
use job::{Error, ModelJob};
use lease::Claim;
use operate::DEFAULT_QUEUE;
pub(crate) use rules::{Profile, Rules, Scope};
use rules::{Refusal, profile_rules};
use workflows::Workflow;

use crate::target::{
    Answer, Command, Handle, JobSnapshot, Millis, QueueSnapshot, Settings, TestTarget, WorkflowSnapshot,
};

/// Matches any text: the specification does not fix it.
pub const ANY_TEXT: &str = "*";

/// The instant at which a model's clock starts.
pub const START: Millis = 1_700_000_000_000;

#[derive(Clone, Debug)]
struct Queue {
    profile: Profile,
    overrides: Settings,
    rules: Rules,
    paused: bool,
}

impl Queue {
    fn new(profile: Profile, rules: Rules) -> Self {
        Queue { profile, overrides: Settings::new(), rules, paused: false }
    }
}

/// An idempotency key and its job. It lives in the scope that its queue had at creation.
#[derive(Clone, Debug)]
struct Key {
    scope: Scope,
    queue: String,
    job_type: String,
    key: String,
    job: Handle,
    at: Millis,
    /// The end of the window, once the job was deleted.
    ends: Option<Millis>,
}

/// See the documentation of the module.
#[derive(Clone, Debug)]
pub struct Model {
    now: Millis,
    queues: BTreeMap<String, Queue>,
    /// By handle; a deleted job keeps its slot.
    jobs: Vec<ModelJob>,
    /// By handle.
    workflows: Vec<Workflow>,
    keys: Vec<Key>,
    /// The source of sequence numbers and of positions at the tail.
    last_number: u64,
    /// Jobs from this handle on were created by the current command.
    new_from: Handle,
    /// New jobs that were not started yet.
    unsent: std::collections::BTreeSet<Handle>,
    /// Ended jobs that were not propagated yet.
    ended: VecDeque<Handle>,
    /// Jobs that changed since the last query.
    touched: Vec<Handle>,
    /// Workers that may claim no jobs.
    held_back: std::collections::BTreeSet<String>,
}

impl Default for Model {
    fn default() -> Self {
        Model::new()
    }
}

/// Makes an error with an unspecified text.
fn server_error(category: &'static str, code: &str) -> Error {
    Error { category, code: Some(code.to_owned()), message: ANY_TEXT.to_owned() }
}

impl Model {
    pub fn new() -> Self {
        let default = Queue::new(Profile::Standard, profile_rules(Profile::Standard));
        Model {
            now: START,
            queues: BTreeMap::from([(DEFAULT_QUEUE.to_owned(), default)]),
            jobs: Vec::new(),
            workflows: Vec::new(),
            keys: Vec::new(),
            last_number: 0,
            new_from: usize::MAX,
            unsent: std::collections::BTreeSet::new(),
            ended: VecDeque::new(),
            touched: Vec::new(),
            held_back: std::collections::BTreeSet::new(),
        }
    }

    /// Returns how many handles were assigned, deleted jobs included.
    pub fn handles(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the jobs in one of these states, oldest first.
    pub(crate) fn handles_in(&self, states: &[State]) -> Vec<Handle> {
        (0..self.jobs.len())
            .filter(|handle| !self.jobs[*handle].removed && states.contains(&self.jobs[*handle].state))
            .collect()
    }

    /// Returns the jobs that a worker may still settle.
    pub(crate) fn handles_of(&self, profile: Profile) -> Vec<Handle> {
        (0..self.jobs.len())
            .filter(|handle| !self.jobs[*handle].removed && self.jobs[*handle].profile == profile)
            .collect()
    }

    pub(crate) fn handles_at_work(&self) -> Vec<Handle> {
        (0..self.jobs.len()).filter(|handle| self.jobs[*handle].is_held_by_worker(self.now)).collect()
    }

    /// Returns the held jobs.
    pub(crate) fn handles_on_hold(&self) -> Vec<Handle> {
        let on_hold = |job: &ModelJob| job.is_live() && job.state == State::Pending && job.held;
        (0..self.jobs.len()).filter(|handle| on_hold(&self.jobs[*handle])).collect()
    }

    pub(crate) fn lease_version(&self, job: Handle) -> u64 {
        self.jobs.get(job).map_or(0, |job| job.lease_version)
    }

    pub(crate) fn rules_of_queue(&self, queue: &str) -> Option<(Profile, &Rules)> {
        self.queues.get(queue).map(|queue| (queue.profile, &queue.rules))
    }

    pub(crate) fn queue_of(&self, job: Handle) -> Option<&str> {
        self.jobs.get(job).map(|job| job.queue.as_str())
    }

    /// Returns the time, for readers.
    pub(crate) fn present(&self) -> Millis {
        self.now
    }

    /// Advances without a stop on the way, which a clock must not do. For faulty targets in tests.
    #[cfg(test)]
    pub(crate) fn jump(&mut self, by: Millis) {
        self.adopt_earliest();
        self.now += by;
        self.settle_due();
    }

    pub(crate) fn number_of_queues(&self) -> usize {
        self.queues.len()
    }

    /// Returns the jobs that may have changed since the last call, each once.
    pub fn take_touched(&mut self) -> Vec<Handle> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    fn job_mut(&mut self, handle: Handle) -> &mut ModelJob {
        self.touched.push(handle);
        &mut self.jobs[handle]
    }

    fn find(&self, handle: Handle) -> Result<&ModelJob, Refusal> {
        self.jobs.get(handle).filter(|job| !job.removed).ok_or("job_not_found")
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn is_new(&self, handle: Handle) -> bool {
        handle >= self.new_from
    }

    fn state_of(&self, handle: Handle) -> Answer {
        Answer::State { job: handle, state: self.jobs[handle].state.as_str().to_owned() }
    }

    fn dispatch(&mut self, command: &Command) -> Result<Answer, Refusal> {
        match command {
            Command::PutQueue { queue, profile, settings } => {
                self.put_queue(queue, profile.as_deref(), settings.as_ref())
            }
            Command::Pause { queue } => self.set_paused(queue, true),
            Command::Resume { queue } => self.set_paused(queue, false),
            Command::DeleteQueue { queue, force } => self.delete_queue(queue, *force),
            Command::Submit { queue, jobs } => self.submit(queue, jobs),
            Command::Claim { queues, worker, limit, types, lease, execution_timeout } => self.claim(&Claim {
                queues,
                worker,
                limit: *limit,
                types,
                lease: *lease,
                execution_timeout: *execution_timeout,
            }),
            Command::Settle { job, token, outcome } => self.settle(*job, token, outcome),
            Command::SettleAndClaim { settle, claim } => self.settle_and_claim(settle, claim),
            Command::Direct { worker, directive } => {
                self.held_back.remove(worker);
                if directive != "run" {
                    self.held_back.insert(worker.clone());
                }
                Ok(Answer::Done)
            }
            Command::Heartbeat { job, token, progress, checkpoint } => {
                self.heartbeat(*job, token, progress.as_ref(), checkpoint.as_ref())
            }
            Command::SubmitHeld { job } => self.submit_held(*job),
            Command::Cancel { job, reason, force } => self.cancel(*job, reason.as_ref(), *force),
            Command::Requeue { job, reset, run_at } => self.requeue(*job, *reset, *run_at),
            Command::DeadLetter { job, reason } => self.dead_letter(*job, reason.as_ref()),
            Command::RunNow { job } => self.run_now(*job),
            Command::Edit { job, edit } => self.edit(*job, edit),
            Command::Delete { job } => self.delete(*job),
            Command::ChangeStatus { job, status, output } => self.change_status(*job, status.as_ref(), output.as_ref()),
            Command::Children { job, token, jobs, finally } => self.children(*job, token, jobs, finally.as_ref()),
            Command::StartWorkflow { queue, jobs, open } => self.start_workflow(queue, jobs, *open),
            Command::GrowWorkflow { workflow, queue, jobs } => self.grow_workflow(*workflow, queue, jobs),
            Command::CloseWorkflow { workflow } => self.close_workflow(*workflow),
            Command::CancelWorkflow { workflow, reason, force } => {
                self.cancel_workflow(*workflow, reason.as_ref(), *force)
            }
            Command::RetryWorkflow { workflow } => self.retry_workflow(*workflow),
        }
    }
}

impl TestTarget for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn now(&mut self) -> Millis {
        self.now
    }

    fn apply(&mut self, command: &Command) -> Answer {
        self.adopt_earliest();
        let answer = self.dispatch(command).unwrap_or_else(|code| Answer::Refused { code: code.to_owned() });
        self.propagate();
        self.new_from = usize::MAX;
        self.settle_due();
        answer
    }

    fn advance(&mut self, by: Millis) {
        self.advance_to(self.now + by);
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        let job = self.find(job).ok()?;
        Some(job.snapshot(self.waiting_on(job)))
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        let known = self.queues.get(queue)?;
        let mut numbers = [0_u64; State::ALL.len()];
        for job in self.jobs.iter().filter(|job| !job.removed && job.queue == queue) {
            numbers[job.state as usize] += 1;
        }
        let counts = State::ALL.into_iter().map(|state| (state.as_str().to_owned(), numbers[state as usize]));
        Some(QueueSnapshot { profile: known.profile.name().to_owned(), paused: known.paused, counts: counts.collect() })
    }

    fn workflow(&mut self, workflow: Handle) -> Option<WorkflowSnapshot> {
        self.workflow_snapshot(workflow)
    }

    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
        let record = self.find(job).ok()?;
        views::view_of(job, record, view)
    }
}
