//! The commands of the engine and their responses.

use std::sync::Arc;

use longshore_core::cancel::{Cancelled, Force};
use longshore_core::edit::Edit;
use longshore_core::heartbeat::{HeartbeatData, LeaseRenewal};
use longshore_core::id::{JobId, LeaseToken, QueueName, WorkflowId};
use longshore_core::ocypod::status::StatusChange;
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::requeue::{Requeue, Reversal};
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

/// A change of jobs, queues or workflows.
#[derive(Clone, Debug)]
pub enum Command {
    Submit(SubmitRequest),
    Claim(ClaimRequest),
    Settle(Settlement),
    Heartbeat(Heartbeat),
    Admin(AdminCommand),
}

/// A worker ends its lease with an outcome.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub id: JobId,
    pub token: Option<LeaseToken>,
    pub outcome: Outcome,
}

/// A worker renews its lease and may report progress.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub id: JobId,
    pub token: Option<LeaseToken>,
    pub notes: HeartbeatData,
}

/// An operation of a user or administrator, in contrast to one of a worker.
#[derive(Clone, Debug)]
pub enum AdminCommand {
    PutQueue {
        queue: QueueName,
        profile: Option<Profile>,
        /// Replaces all earlier overrides if given.
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
    /// Takes a requeue back, unless the job has run since.
    TakeBack {
        id: JobId,
        how: Box<Reversal>,
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
    /// Creates an open workflow without jobs.
    OpenWorkflow {
        name: Option<Arc<str>>,
    },
    /// Ends the time in which jobs can join the workflow.
    CloseWorkflow {
        id: WorkflowId,
    },
    /// Cancels all unfinished members and closes the workflow.
    CancelWorkflow {
        id: WorkflowId,
        reason: Option<String>,
        force: Force,
    },
    /// Reruns the members that ended without success, and revives the members that depend on them.
    RetryWorkflow {
        id: WorkflowId,
    },
    /// An Ocypod client sets the status of a job.
    ChangeStatus {
        id: JobId,
        change: StatusChange,
    },
}

impl AdminCommand {
    /// Returns the queue that the command names.
    pub fn queue(&self) -> Option<&QueueName> {
        match self {
            Self::PutQueue { queue, .. }
            | Self::PauseQueue { queue }
            | Self::ResumeQueue { queue }
            | Self::DeleteQueue { queue, .. } => Some(queue),
            Self::SubmitHeld { .. }
            | Self::Cancel { .. }
            | Self::Requeue { .. }
            | Self::TakeBack { .. }
            | Self::DeadLetter { .. }
            | Self::RunNow { .. }
            | Self::Edit { .. }
            | Self::Delete { .. }
            | Self::OpenWorkflow { .. }
            | Self::CloseWorkflow { .. }
            | Self::CancelWorkflow { .. }
            | Self::RetryWorkflow { .. }
            | Self::ChangeStatus { .. } => None,
        }
    }

    /// Returns the job that the command names.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::SubmitHeld { id }
            | Self::Cancel { id, .. }
            | Self::Requeue { id, .. }
            | Self::TakeBack { id, .. }
            | Self::DeadLetter { id, .. }
            | Self::RunNow { id }
            | Self::Edit { id, .. }
            | Self::Delete { id }
            | Self::ChangeStatus { id, .. } => Some(*id),
            Self::PutQueue { .. }
            | Self::PauseQueue { .. }
            | Self::ResumeQueue { .. }
            | Self::DeleteQueue { .. }
            | Self::OpenWorkflow { .. }
            | Self::CloseWorkflow { .. }
            | Self::CancelWorkflow { .. }
            | Self::RetryWorkflow { .. } => None,
        }
    }
}

/// The response to a command: one variant per variant of [`Command`].
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    Submitted(Result<Vec<Submitted>, BatchRefusal>),
    Claimed(Result<Vec<Claimed>, Refusal>),
    Settled(Result<StateKind, Refusal>),
    LeaseRenewed(Result<LeaseRenewal, Refusal>),
    Admin(Result<AdminResponse, Refusal>),
}

/// The response to an [`AdminCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminResponse {
    /// The queue was created or changed.
    QueuePut {
        created: bool,
    },
    Done,
    /// The new state of the job. After a requeue, `id` is the job that will run.
    State {
        id: JobId,
        state: StateKind,
    },
    /// The job still runs; the response to its next heartbeat requests the cancel.
    CancelRequested,
    /// The new state of the workflow.
    Workflow {
        id: WorkflowId,
        state: WorkflowState,
    },
}

/// The environment of a command: records, randomness and time.
#[expect(missing_debug_implementations, reason = "`dyn Rng` is not Debug")]
pub struct ExecutionContext<'a, R: JobRecords> {
    pub records: &'a mut R,
    pub rng: &'a mut dyn Rng,
    pub now: Timestamp,
    /// The engine appends the effects of the command.
    pub effects: &'a mut Vec<Effect>,
}

impl Engine {
    pub fn submit<R: JobRecords>(
        &mut self,
        request: &SubmitRequest,
        context: ExecutionContext<'_, R>,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, R::Error> {
        self.execute(context, |context| context.submit_request(request))
    }

    pub fn claim<R: JobRecords>(
        &mut self,
        request: &ClaimRequest,
        context: ExecutionContext<'_, R>,
    ) -> Result<Result<Vec<Claimed>, Refusal>, R::Error> {
        self.execute(context, |context| split_refusal(context.claim(request)))
    }

    pub fn settle<R: JobRecords>(
        &mut self,
        settlement: &Settlement,
        context: ExecutionContext<'_, R>,
    ) -> Result<Result<StateKind, Refusal>, R::Error> {
        self.execute(context, |context| split_refusal(context.settle(settlement)))
    }

    pub fn heartbeat<R: JobRecords>(
        &mut self,
        heartbeat: &Heartbeat,
        context: ExecutionContext<'_, R>,
    ) -> Result<Result<LeaseRenewal, Refusal>, R::Error> {
        self.execute(context, |context| split_refusal(context.heartbeat(heartbeat)))
    }

    pub fn admin<R: JobRecords>(
        &mut self,
        command: &AdminCommand,
        context: ExecutionContext<'_, R>,
    ) -> Result<Result<AdminResponse, Refusal>, R::Error> {
        self.execute(context, |context| split_refusal(context.apply_admin(command)))
    }

    /// Runs one verb, then propagates the ends that it caused to the dependents.
    fn execute<R: JobRecords, T>(
        &mut self,
        context: ExecutionContext<'_, R>,
        verb: impl FnOnce(&mut CommandContext<'_, R>) -> Result<T, R::Error>,
    ) -> Result<T, R::Error> {
        let cascade_jobs_max = self.options.cascade_jobs_max;
        let ExecutionContext { records, rng, now, effects } = context;
        let mut context = CommandContext::new(self, records, rng, now, effects);
        let response = verb(&mut context)?;
        context.propagate(cascade_jobs_max)?;
        Ok(response)
    }

    /// Applies a command of any kind.
    pub fn apply<R: JobRecords>(
        &mut self,
        records: &mut R,
        command: &Command,
        now: Timestamp,
        rng: &mut dyn Rng,
        effects: &mut Vec<Effect>,
    ) -> Result<Response, R::Error> {
        let context = ExecutionContext { records, rng, now, effects };
        Ok(match command {
            Command::Submit(request) => Response::Submitted(self.submit(request, context)?),
            Command::Claim(request) => Response::Claimed(self.claim(request, context)?),
            Command::Settle(settlement) => Response::Settled(self.settle(settlement, context)?),
            Command::Heartbeat(heartbeat) => Response::LeaseRenewed(self.heartbeat(heartbeat, context)?),
            Command::Admin(command) => Response::Admin(self.admin(command, context)?),
        })
    }

    /// Handles timers, retention and pending work that are due at `now`, for at most `budget` jobs.
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
            AdminCommand::TakeBack { id, how } => state(*id, self.take_back(*id, how)?),
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
