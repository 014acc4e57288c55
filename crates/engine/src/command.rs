//! Everything that can be asked of the engine, and what it answers.

use std::sync::Arc;

use longshore_core::cancel::{Cancelled, Force};
use longshore_core::edit::Edit;
use longshore_core::heartbeat::{HeartbeatData, LeaseRenewal};
use longshore_core::id::{JobId, LeaseToken, QueueName, WorkflowId};
use longshore_core::ocypod::status::StatusChange;
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::requeue::Requeue;
use longshore_core::rng::Rng;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_core::workflow::WorkflowState;

use crate::claim::{ClaimRequest, Claimed};
use crate::context::{CommandContext, CommandError, split_refusal};
use crate::engine::{Effect, Engine};
use crate::queue::DeleteQueue;
use crate::records::JobRecords;
use crate::submit::{BatchRefusal, SubmitRequest, Submitted};
use crate::tick::Ticked;

#[derive(Clone, Debug)]
pub enum Command {
    Submit(SubmitRequest),
    Claim(ClaimRequest),
    Settle(Settlement),
    Heartbeat(Heartbeat),
    Admin(AdminCommand),
}

/// A worker ends its lease.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub id: JobId,
    pub token: Option<LeaseToken>,
    pub outcome: Outcome,
}

/// A worker's heartbeat.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub id: JobId,
    pub token: Option<LeaseToken>,
    pub notes: HeartbeatData,
}

/// What people do to queues and jobs.
#[derive(Clone, Debug)]
pub enum AdminCommand {
    PutQueue {
        queue: QueueName,
        profile: Option<Profile>,
        /// When given, replaces all earlier ones.
        overrides: Option<Box<SettingsPatch>>,
    },
    PauseQueue {
        queue: QueueName,
    },
    ResumeQueue {
        queue: QueueName,
    },
    DeleteQueue {
        queue: QueueName,
        how: DeleteQueue,
    },
    SubmitHeld {
        id: JobId,
    },
    Cancel {
        id: JobId,
        reason: Option<String>,
        force: Force,
    },
    Requeue {
        id: JobId,
        how: Requeue,
    },
    DeadLetter {
        id: JobId,
        reason: Option<String>,
    },
    RunNow {
        id: JobId,
    },
    Edit {
        id: JobId,
        edit: Edit,
    },
    Delete {
        id: JobId,
    },
    /// A workflow that has no jobs yet.
    OpenWorkflow {
        name: Option<Arc<str>>,
    },
    /// No more jobs will join it.
    CloseWorkflow {
        id: WorkflowId,
    },
    /// Of all members that have not ended. Closes it.
    CancelWorkflow {
        id: WorkflowId,
        reason: Option<String>,
        force: Force,
    },
    /// Runs again what ended without success, and returns what waited on it.
    RetryWorkflow {
        id: WorkflowId,
    },
    /// A client of the Ocypod dialect changes what its job is.
    ChangeStatus {
        id: JobId,
        change: StatusChange,
    },
}

/// One for each command, of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    Submitted(Result<Vec<Submitted>, BatchRefusal>),
    Claimed(Result<Vec<Claimed>, Refusal>),
    Settled(Result<StateKind, Refusal>),
    LeaseRenewed(Result<LeaseRenewal, Refusal>),
    Admin(Result<AdminResponse, Refusal>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminResponse {
    /// A queue was put: whether it is new.
    QueuePut {
        created: bool,
    },
    Done,
    /// The state that the job is in now. After a requeue `id` is the job that will run.
    State {
        id: JobId,
        state: StateKind,
    },
    /// The job runs on; its worker is told at the next heartbeat.
    CancelRequested,
    /// What the workflow is now.
    Workflow {
        id: WorkflowId,
        state: WorkflowState,
    },
}

/// What a command meets when it is applied.
#[expect(missing_debug_implementations, reason = "chance has no picture")]
pub struct ExecutionContext<'a, R: JobRecords> {
    pub records: &'a mut R,
    pub rng: &'a mut dyn Rng,
    pub now: Timestamp,
    /// What the outside may want to hear once the change is safe is added here.
    pub effects: &'a mut Vec<Effect>,
}

impl Engine {
    pub fn submit<R: JobRecords>(
        &mut self,
        request: &SubmitRequest,
        outside: ExecutionContext<'_, R>,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, R::Error> {
        self.execute(outside, |turn| turn.submit_request(request))
    }

    pub fn claim<R: JobRecords>(
        &mut self,
        request: &ClaimRequest,
        outside: ExecutionContext<'_, R>,
    ) -> Result<Result<Vec<Claimed>, Refusal>, R::Error> {
        self.execute(outside, |turn| split_refusal(turn.claim(request)))
    }

    pub fn settle<R: JobRecords>(
        &mut self,
        settlement: &Settlement,
        outside: ExecutionContext<'_, R>,
    ) -> Result<Result<StateKind, Refusal>, R::Error> {
        self.execute(outside, |turn| split_refusal(turn.settle(settlement)))
    }

    pub fn heartbeat<R: JobRecords>(
        &mut self,
        heartbeat: &Heartbeat,
        outside: ExecutionContext<'_, R>,
    ) -> Result<Result<LeaseRenewal, Refusal>, R::Error> {
        self.execute(outside, |turn| split_refusal(turn.heartbeat(heartbeat)))
    }

    pub fn admin<R: JobRecords>(
        &mut self,
        command: &AdminCommand,
        outside: ExecutionContext<'_, R>,
    ) -> Result<Result<AdminResponse, Refusal>, R::Error> {
        self.execute(outside, |turn| split_refusal(turn.apply_admin(command)))
    }

    /// One verb, then word to those who wait for what it ended.
    fn execute<R: JobRecords, T>(
        &mut self,
        outside: ExecutionContext<'_, R>,
        verb: impl FnOnce(&mut CommandContext<'_, R>) -> Result<T, R::Error>,
    ) -> Result<T, R::Error> {
        let cascade_max = self.options.cascade_jobs_max;
        let ExecutionContext { records, rng, now, effects } = outside;
        let mut turn = CommandContext::new(self, records, rng, now, effects);
        let answer = verb(&mut turn)?;
        turn.propagate(cascade_max)?;
        Ok(answer)
    }

    /// Applies any command.
    pub fn apply<R: JobRecords>(
        &mut self,
        records: &mut R,
        command: &Command,
        now: Timestamp,
        rng: &mut dyn Rng,
        effects: &mut Vec<Effect>,
    ) -> Result<Response, R::Error> {
        let outside = ExecutionContext { records, rng, now, effects };
        Ok(match command {
            Command::Submit(request) => Response::Submitted(self.submit(request, outside)?),
            Command::Claim(request) => Response::Claimed(self.claim(request, outside)?),
            Command::Settle(settlement) => Response::Settled(self.settle(settlement, outside)?),
            Command::Heartbeat(heartbeat) => Response::LeaseRenewed(self.heartbeat(heartbeat, outside)?),
            Command::Admin(command) => Response::Admin(self.admin(command, outside)?),
        })
    }

    /// Does what is due at `now`, at most `budget` jobs of it.
    pub fn tick<R: JobRecords>(
        &mut self,
        records: &mut R,
        now: Timestamp,
        budget: usize,
        rng: &mut dyn Rng,
        effects: &mut Vec<Effect>,
    ) -> Result<Ticked, R::Error> {
        CommandContext::new(self, records, rng, now, effects).tick(budget)
    }
}

impl<R: JobRecords> CommandContext<'_, R> {
    fn apply_admin(&mut self, command: &AdminCommand) -> Result<AdminResponse, CommandError<R::Error>> {
        let state = |id, state| AdminResponse::State { id, state };
        Ok(match command {
            AdminCommand::PutQueue { queue, profile, overrides } => {
                let created = self.put_queue(queue, *profile, overrides.as_deref().cloned())?;
                AdminResponse::QueuePut { created }
            }
            AdminCommand::PauseQueue { queue } => done(self.set_paused(queue, true)?),
            AdminCommand::ResumeQueue { queue } => done(self.set_paused(queue, false)?),
            AdminCommand::DeleteQueue { queue, how } => done(self.delete_queue(queue, *how)?),
            AdminCommand::SubmitHeld { id } => state(*id, self.submit_held(*id)?),
            AdminCommand::Cancel { id, reason, force } => match self.cancel(*id, reason.as_deref(), *force)? {
                Cancelled::Done => state(*id, StateKind::Cancelled),
                Cancelled::Requested => AdminResponse::CancelRequested,
            },
            AdminCommand::Requeue { id, how } => {
                let (id, kind) = self.requeue(*id, how)?;
                state(id, kind)
            }
            AdminCommand::DeadLetter { id, reason } => state(*id, self.dead_letter(*id, reason.as_deref())?),
            AdminCommand::RunNow { id } => state(*id, self.run_now(*id)?),
            AdminCommand::Edit { id, edit } => state(*id, self.edit(*id, edit)?),
            AdminCommand::Delete { id } => done(self.delete(*id)?),
            AdminCommand::OpenWorkflow { name } => self.open_workflow(name.as_ref())?,
            AdminCommand::CloseWorkflow { id } => self.close_workflow(*id)?,
            AdminCommand::CancelWorkflow { id, reason, force } => {
                self.cancel_workflow(*id, reason.as_deref(), *force)?
            }
            AdminCommand::RetryWorkflow { id } => self.retry_workflow(*id)?,
            AdminCommand::ChangeStatus { id, change } => state(*id, self.change_status(*id, change)?),
        })
    }
}

fn done((): ()) -> AdminResponse {
    AdminResponse::Done
}
