//! Lanes: each takes whatever waits, does all of it in one transaction, and answers everybody once it is durable.

use std::sync::Arc;
use std::time::Duration;

use longshore_store::StoreError;
use tokio::sync::{Mutex, mpsc};

use crate::error::{Failed, Trouble};
use crate::link::Link;
use crate::request::Request;
use crate::shared::Shared;
use crate::tick;
use crate::turn::Turn;

/// Jobs that share one transaction, at most.
const COMMANDS_MAX: usize = 1_000;
/// How often a transaction that somebody was in the way of is tried.
const ATTEMPTS_MAX: u32 = 12;
/// How often a connection that turns out to be dead is replaced.
const LINKS_MAX: u32 = 4;

pub(crate) type Waiting = Arc<Mutex<mpsc::Receiver<Request>>>;

/// Works until every sender is gone.
pub(crate) async fn run(shared: Arc<Shared>, waiting: Waiting) {
    let mut lane = Lane { shared, link: None };
    while let Some(batch) = next(&waiting).await {
        lane.serve(batch).await;
    }
}

async fn next(waiting: &Waiting) -> Option<Vec<Request>> {
    let mut waiting = waiting.lock().await;
    let first = waiting.recv().await?;
    let mut commands = first.commands();
    let mut batch = vec![first];
    while commands < COMMANDS_MAX
        && let Ok(next) = waiting.try_recv()
    {
        commands += next.commands();
        batch.push(next);
    }
    Some(batch)
}

pub(crate) struct Lane {
    pub shared: Arc<Shared>,
    pub link: Option<Link>,
}

impl Lane {
    pub(crate) async fn serve(&mut self, batch: Vec<Request>) {
        if let [Request::Tick(budget, _)] = batch.as_slice() {
            let ticked = tick::tick(self, *budget).await;
            for request in batch {
                match &ticked {
                    Ok(ticked) => request.answer(crate::request::Answered::Tick(*ticked)),
                    Err(error) => request.fail(error.clone()),
                }
            }
            return;
        }
        if batch.iter().any(|request| matches!(request, Request::Tick(..))) {
            // Each by itself: the next sees what the one before has left.
            for request in batch {
                Box::pin(self.serve(vec![request])).await;
            }
            return;
        }
        match self.transact(&batch).await {
            Ok(done) => {
                self.shared.announce(done.effects, done.deadline);
                batch.into_iter().zip(done.answers).for_each(|(request, answered)| request.answer(answered));
            }
            Err(trouble) => self.part_with(batch, trouble).await,
        }
    }

    /// Where one of many is the culprit, the others need not suffer.
    async fn part_with(&mut self, batch: Vec<Request>, trouble: Trouble) {
        let alone = batch.len() == 1;
        let one_is_to_blame = match trouble {
            Trouble::Refused(_) | Trouble::TooMuch | Trouble::Damaged(_) | Trouble::NotStorable => true,
            Trouble::Again(_) | Trouble::Lost(_) | Trouble::Unknown(_) | Trouble::NeedsToBeAlone => false,
        };
        if one_is_to_blame && !alone {
            for request in batch {
                Box::pin(self.serve(vec![request])).await;
            }
            return;
        }
        let error = trouble.into_store_error();
        batch.into_iter().for_each(|request| request.fail(error.clone()));
    }

    /// One transaction, again and again while others are in its way. Only what was certainly not committed is done again.
    pub(crate) async fn transact(&mut self, requests: &[Request]) -> Result<crate::turn::Done, Trouble> {
        let shared = Arc::clone(&self.shared);
        let (mut alone, mut links) = (false, 0);
        let mut attempt = 0;
        loop {
            let link = self.link().await?;
            let trouble = match Turn::new(&shared, link, alone).take(requests).await {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            self.leave(&trouble).await;
            if let Trouble::NeedsToBeAlone = trouble
                && !alone
            {
                alone = true;
            } else if let Trouble::Again(_) = trouble
                && attempt < ATTEMPTS_MAX
            {
                attempt += 1;
                pause(attempt).await;
            } else if let Trouble::Lost(_) = trouble
                && links < LINKS_MAX
            {
                links += 1;
            } else {
                return Err(trouble);
            }
        }
    }

    pub(crate) async fn link(&mut self) -> Result<&Link, Trouble> {
        if self.link.as_ref().is_none_or(Link::closed)
            && let Some(old) = self.link.replace(self.shared.link().await?)
        {
            old.discard();
        }
        self.link.as_ref().ok_or_else(|| Trouble::Lost(Failed("there is no connection".to_owned())))
    }

    /// After a transaction that failed: the connection is made good, or let go.
    pub(crate) async fn leave(&mut self, trouble: &Trouble) {
        let good = match &self.link {
            Some(link) if trouble.spares_the_connection() => link.roll_back().await,
            Some(_) | None => false,
        };
        if !good && let Some(link) = self.link.take() {
            link.discard();
        }
    }
}

/// Longer each time, and not the same for everybody.
async fn pause(attempt: u32) {
    let mut dice = longshore_records::SystemDice::default();
    let dice: &mut dyn longshore_core::dice::Dice = &mut dice;
    let longest = 2_u64.saturating_pow(attempt.min(7));
    tokio::time::sleep(Duration::from_millis(dice.up_to(longest))).await;
}

/// The writer was gone before it had begun.
pub(crate) fn closed() -> StoreError {
    StoreError::not_applied(Failed("the store is being closed".to_owned()))
}
