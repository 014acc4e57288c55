//! Everything that can be asked of the engine, and what it answers.

use crate::cancel::{Cancelled, Force};
use crate::dice::Dice;
use crate::edit::Edit;
use crate::extend::{Extended, Notes};
use crate::id::{JobId, LeaseToken, QueueName};
use crate::patch::SettingsPatch;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::requeue::Requeue;
use crate::settle::Outcome;
use crate::state::StateKind;
use crate::submit::NewJob;
use crate::time::Timestamp;

use super::claim::{ClaimRequest, Claimed};
use super::queue::DeleteQueue;
use super::records::Records;
use super::submit::{BatchRefusal, Submission, Submitted};
use super::tick::Ticked;
use super::{Effect, Engine, Stop, Turn, split};

#[derive(Clone, Debug)]
pub enum Command {
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
    Submit {
        batch: Vec<Submission>,
    },
    FanOut(Box<FanOut>),
    Claim(ClaimRequest),
    Settle {
        id: JobId,
        token: Option<LeaseToken>,
        outcome: Outcome,
    },
    Extend {
        id: JobId,
        token: Option<LeaseToken>,
        notes: Notes,
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
}

/// Children of a running job, and the job that follows them.
#[derive(Clone, Debug)]
pub struct FanOut {
    pub parent: JobId,
    pub token: Option<LeaseToken>,
    pub jobs: Vec<Submission>,
    pub finally: Option<(QueueName, NewJob)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A queue was put: whether it is new.
    QueuePut {
        created: bool,
    },
    Done,
    Submitted(Vec<Submitted>),
    Claimed(Vec<Claimed>),
    Extended(Extended),
    Cancel(Cancelled),
    /// The state that the job is in now. After a requeue `id` is the job that will run.
    State {
        id: JobId,
        state: StateKind,
    },
    Refused(Refusal),
    BatchRefused(BatchRefusal),
}

impl Engine {
    /// Applies one command at `now`. What the outside may want to hear is added to `effects`.
    pub fn apply<R: Records>(
        &mut self,
        records: &mut R,
        command: Command,
        now: Timestamp,
        dice: &mut dyn Dice,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, R::Error> {
        let cascade_max = self.options.cascade_jobs_max;
        let mut turn = Turn::new(self, records, dice, now, effects);
        let answer = split(turn.obey(command))?.unwrap_or_else(Answer::Refused);
        turn.tell_dependents(cascade_max)?;
        Ok(answer)
    }

    /// Does what is due at `now`, at most `budget` jobs of it.
    pub fn tick<R: Records>(
        &mut self,
        records: &mut R,
        now: Timestamp,
        budget: usize,
        dice: &mut dyn Dice,
        effects: &mut Vec<Effect>,
    ) -> Result<Ticked, R::Error> {
        Turn::new(self, records, dice, now, effects).tick(budget)
    }
}

impl<R: Records> Turn<'_, R> {
    fn obey(&mut self, command: Command) -> Result<Answer, Stop<R::Error>> {
        Ok(match command {
            Command::PutQueue { queue, profile, overrides } => {
                Answer::QueuePut { created: self.put_queue(&queue, profile, overrides.map(|overrides| *overrides))? }
            }
            Command::PauseQueue { queue } => done(self.set_paused(&queue, true)?),
            Command::ResumeQueue { queue } => done(self.set_paused(&queue, false)?),
            Command::DeleteQueue { queue, how } => done(self.delete_queue(&queue, how)?),
            Command::Submit { batch } => submitted(self.submit(&batch, None)?),
            Command::FanOut(fan_out) => submitted(self.fan_out(*fan_out)?),
            Command::Claim(request) => Answer::Claimed(self.claim(&request)?),
            Command::Settle { id, token, outcome } => Answer::State { id, state: self.settle(id, token, &outcome)? },
            Command::Extend { id, token, notes } => Answer::Extended(self.extend(id, token, &notes)?),
            Command::SubmitHeld { id } => Answer::State { id, state: self.submit_held(id)? },
            Command::Cancel { id, reason, force } => Answer::Cancel(self.cancel(id, reason.as_deref(), force)?),
            Command::Requeue { id, how } => {
                let (id, state) = self.requeue(id, &how)?;
                Answer::State { id, state }
            }
            Command::DeadLetter { id, reason } => Answer::State { id, state: self.dead_letter(id, reason.as_deref())? },
            Command::RunNow { id } => Answer::State { id, state: self.run_now(id)? },
            Command::Edit { id, edit } => Answer::State { id, state: self.edit(id, &edit)? },
            Command::Delete { id } => done(self.delete(id)?),
        })
    }
}

fn done((): ()) -> Answer {
    Answer::Done
}

fn submitted(result: Result<Vec<Submitted>, BatchRefusal>) -> Answer {
    result.map_or_else(Answer::BatchRefused, Answer::Submitted)
}
