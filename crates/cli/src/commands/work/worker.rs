//! Claims, slots, draining.

use std::sync::Arc;

use longshore_api::Duration;
use longshore_api::work::{Claim, Claimed};
use longshore_client::{Client, Error};
use longshore_store::clock::monotonic;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::Work;
use super::attempt::{Attempt, Outcome};
use super::connectivity::Connectivity;
use super::paused::{paused, paused_with_work};
use crate::commands::parse::counted;
use crate::signals::Signals;
use crate::terminal::error::{CliError, ExitKind};
use crate::terminal::output::Output;

/// What running programs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Working,
    /// End now, and give the jobs back.
    Abandoning,
}

/// Until programs are to end.
pub(super) async fn abandoning(phase: &watch::Receiver<Phase>) {
    if phase.clone().wait_for(|phase| *phase == Phase::Abandoning).await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub(super) struct Worker {
    work: Arc<Work>,
    name: String,
    client: Client,
    screen: Output,
    running: JoinSet<Outcome>,
    taken: u64,
    phase: watch::Sender<Phase>,
    connectivity: Arc<Connectivity>,
}

/// What follows a claim.
enum Step {
    Start(Claimed),
    /// No jobs are left.
    Empty,
    /// This queue is paused and holds jobs.
    Paused(String),
}

const BACKOFF_FIRST: std::time::Duration = std::time::Duration::from_millis(250);
const BACKOFF_MOST: std::time::Duration = std::time::Duration::from_secs(10);

impl Worker {
    pub(super) fn new(work: Work, name: String, client: Client, screen: Output) -> Self {
        let phase = watch::Sender::new(Phase::Working);
        let connectivity = Arc::new(Connectivity::new(screen));
        Self { work: Arc::new(work), name, client, screen, running: JoinSet::new(), taken: 0, phase, connectivity }
    }

    pub(super) async fn run(mut self) -> Result<(), CliError> {
        let signals = Signals::listen()?;
        // A wrong address is told at once; a server that goes away later is waited for.
        self.client.info().await?;
        let queues = self.work.queues.join(", ");
        self.screen.info(&format!("worker \"{}\" serves {queues} at {}", self.name, self.client.url()));
        let claimed = self.claim_and_run(&signals).await;
        self.drain(&signals).await;
        claimed
    }

    /// Until told to stop, or there is nothing left to do.
    async fn claim_and_run(&mut self, signals: &Signals) -> Result<(), CliError> {
        let mut backoff = BACKOFF_FIRST;
        let slots = usize::from(self.work.concurrency);
        while signals.times() == 0 {
            if self.running.len() >= slots {
                tokio::select! {
                    Some(outcome) = self.running.join_next() => self.tell(outcome),
                    () = signals.received(1) => {}
                }
                continue;
            }
            let left = self.work.max_jobs.map_or(u64::MAX, |most| most.saturating_sub(self.taken));
            if left == 0 {
                return Ok(());
            }
            let free = (slots - self.running.len()) as u64;
            let asked_at = monotonic();
            let Some(answer) = self.claim(free.min(left), signals).await else { return Ok(()) };
            let answer = self.judge(answer).await;
            self.connectivity.observe(&answer);
            match answer {
                Ok(Step::Start(claimed)) => {
                    backoff = BACKOFF_FIRST;
                    self.start(claimed, asked_at);
                }
                Ok(Step::Empty) => return Ok(()),
                Ok(Step::Paused(queue)) => return Err(paused(&queue)),
                Err(error) => {
                    let failure = CliError::from(error);
                    if failure.ending == ExitKind::Refused {
                        return Err(failure.context("claim"));
                    }
                    tokio::select! {
                        () = sleep(backoff) => {}
                        () = signals.received(1) => {}
                    }
                    backoff = (backoff * 2).min(BACKOFF_MOST);
                }
            }
        }
        Ok(())
    }

    /// With `--until-empty`, an empty answer ends the worker, unless a paused queue is the reason for it.
    async fn judge(&self, answer: Result<Claimed, Error>) -> Result<Step, Error> {
        let claimed = answer?;
        if !claimed.jobs.is_empty() || !self.work.until_empty || !self.running.is_empty() {
            return Ok(Step::Start(claimed));
        }
        let paused = paused_with_work(&self.client, &self.work.queues, &self.work.types).await?;
        Ok(paused.map_or(Step::Empty, Step::Paused))
    }

    /// One claim, reporting what ends meanwhile; `None` when told to stop. A claim that is dropped gives its jobs back.
    async fn claim(&mut self, limit: u64, signals: &Signals) -> Option<Result<Claimed, Error>> {
        let types = self.work.types.clone();
        // To see whether there is nothing left one must not wait for it; while something runs, something may still come of it.
        let wait = if self.work.until_empty { Duration(500) } else { self.work.wait };
        let wait = if self.work.until_empty && self.running.is_empty() { Duration(0) } else { wait };
        // A server that was away answers at once: the line that it is back must not wait for a job.
        let wait = if self.connectivity.is_lost() { Duration(0) } else { wait };
        let claim = Claim {
            queues: self.work.queues.clone(),
            worker: Some(self.name.clone()),
            limit: Some(limit),
            wait: (wait.0 > 0).then_some(wait),
            types: (!types.is_empty()).then_some(types),
            lease: self.work.lease,
            execution_timeout: self.work.execution_timeout,
        };
        let client = self.client.clone();
        let answer = client.claim(&claim);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Some(answer),
                () = signals.received(1) => return None,
                Some(outcome) = self.running.join_next() => self.tell(outcome),
            }
        }
    }

    fn start(&mut self, claimed: Claimed, asked_at: std::time::Duration) {
        for job in claimed.jobs {
            self.taken += 1;
            let attempt = Attempt {
                work: Arc::clone(&self.work),
                client: self.client.clone(),
                screen: self.screen,
                asked_at,
                phase: self.phase.subscribe(),
                connectivity: Arc::clone(&self.connectivity),
            };
            self.running.spawn(attempt.run(job));
        }
    }

    /// Lets programs finish, or ends them when there is no more time.
    async fn drain(&mut self, signals: &Signals) {
        let mut told = false;
        let patience = sleep(self.work.drain_timeout.as_std());
        tokio::pin!(patience);
        loop {
            let working = *self.phase.borrow() == Phase::Working;
            tokio::select! {
                biased;
                finished = self.running.join_next() => match finished {
                    Some(outcome) => self.tell(outcome),
                    None => return,
                },
                () = signals.received(1), if !told => {
                    told = true;
                    patience.as_mut().reset(Instant::now() + self.work.drain_timeout.as_std());
                    let jobs = counted(self.running.len(), "running job");
                    self.screen.info(&format!("draining: finishing {jobs}; a second signal releases the rest"));
                }
                () = signals.received(2), if working => self.abandon(),
                () = &mut patience, if working && told => self.abandon(),
            }
        }
    }

    fn abandon(&self) {
        self.screen.info("ending programs; their jobs are given back");
        self.phase.send_replace(Phase::Abandoning);
    }

    /// A worker whose output nobody reads works all the same.
    fn tell(&self, outcome: Result<Outcome, JoinError>) {
        let told = match outcome {
            Ok(outcome) if self.screen.json => self.screen.json_line(&outcome),
            Ok(outcome) => self.screen.line(&outcome.to_string()),
            Err(error) => {
                self.screen.info(&format!("a job was dropped, its lease will end: {error}"));
                Ok(())
            }
        };
        drop(told);
    }
}
