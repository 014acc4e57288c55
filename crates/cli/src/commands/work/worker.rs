//! Claims jobs, limits concurrency, drains.

use std::sync::Arc;

use longshore::monotonic;
use longshore::{Client, Error};
use longshore_api::Duration;
use longshore_api::work::{Claim, Claimed};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::WorkOptions;
use super::attempt::{AttemptReport, AttemptRunner};
use super::connectivity::Connectivity;
use super::paused::{paused_error, paused_with_work};
use crate::commands::parse::counted;
use crate::signals::Signals;
use crate::terminal::error::{CliError, ExitKind};
use crate::terminal::output::Output;

/// Phase of the worker; all attempts watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkerPhase {
    Working,
    /// Attempts stop their programs and release their jobs.
    Abandoning,
}

/// Waits for [`WorkerPhase::Abandoning`].
pub(super) async fn abandoning(phase: &watch::Receiver<WorkerPhase>) {
    if phase.clone().wait_for(|phase| *phase == WorkerPhase::Abandoning).await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub(super) struct ExecWorker {
    options: Arc<WorkOptions>,
    name: String,
    client: Client,
    output: Output,
    running: JoinSet<AttemptReport>,
    claimed_jobs: u64,
    phase: watch::Sender<WorkerPhase>,
    connectivity: Arc<Connectivity>,
}

/// What follows the response to a claim.
enum ClaimStep {
    Start(Claimed),
    /// No job is ready.
    Empty,
    /// This queue is paused and has ready jobs.
    Paused(String),
}

const BACKOFF_FIRST: std::time::Duration = std::time::Duration::from_millis(250);
const BACKOFF_MAX: std::time::Duration = std::time::Duration::from_secs(10);

impl ExecWorker {
    pub(super) fn new(options: WorkOptions, name: String, client: Client, output: Output) -> Self {
        let phase = watch::Sender::new(WorkerPhase::Working);
        let connectivity = Arc::new(Connectivity::new(output));
        Self {
            options: Arc::new(options),
            name,
            client,
            output,
            running: JoinSet::new(),
            claimed_jobs: 0,
            phase,
            connectivity,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), CliError> {
        let signals = Signals::listen()?;
        // An unreachable server is an error at the start, and an outage later.
        self.client.info().await?;
        let queues = self.options.queues.join(", ");
        self.output.info(&format!("worker \"{}\" claims from {queues} at {}", self.name, self.client.url()));
        let claimed = self.claim_and_run(&signals).await;
        self.drain(&signals).await;
        claimed
    }

    /// Claims and starts jobs until a signal arrives or there is nothing left to do.
    async fn claim_and_run(&mut self, signals: &Signals) -> Result<(), CliError> {
        let mut backoff = BACKOFF_FIRST;
        let slots = usize::from(self.options.concurrency);
        while signals.count() == 0 {
            if self.running.len() >= slots {
                tokio::select! {
                    Some(outcome) = self.running.join_next() => self.print_report(outcome),
                    () = signals.received(1) => {}
                }
                continue;
            }
            let left = self.options.max_jobs.map_or(u64::MAX, |most| most.saturating_sub(self.claimed_jobs));
            if left == 0 {
                return Ok(());
            }
            let free = (slots - self.running.len()) as u64;
            let claimed_at = monotonic();
            let Some(response) = self.claim(free.min(left), signals).await else { return Ok(()) };
            let step = self.next_step(response).await;
            self.connectivity.observe(&step);
            match step {
                Ok(ClaimStep::Start(claimed)) => {
                    backoff = BACKOFF_FIRST;
                    self.start(claimed, claimed_at);
                }
                Ok(ClaimStep::Empty) => return Ok(()),
                Ok(ClaimStep::Paused(queue)) => return Err(paused_error(&queue)),
                Err(error) => {
                    let failure = CliError::from(error);
                    if failure.exit_kind == ExitKind::Refused {
                        return Err(failure.context("claim"));
                    }
                    tokio::select! {
                        () = sleep(backoff) => {}
                        () = signals.received(1) => {}
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
        Ok(())
    }

    /// With `--until-empty` an empty response ends the worker. A paused queue with jobs is an
    /// error.
    async fn next_step(&self, response: Result<Claimed, Error>) -> Result<ClaimStep, Error> {
        let claimed = response?;
        if !claimed.jobs.is_empty() || !self.options.until_empty || !self.running.is_empty() {
            return Ok(ClaimStep::Start(claimed));
        }
        let paused = paused_with_work(&self.client, &self.options.queues, &self.options.types).await?;
        Ok(paused.map_or(ClaimStep::Empty, ClaimStep::Paused))
    }

    /// Sends one claim, and prints attempts that end meanwhile. Returns `None` on a signal: the
    /// server releases the jobs of a dropped request.
    async fn claim(&mut self, limit: u64, signals: &Signals) -> Option<Result<Claimed, Error>> {
        let types = self.options.types.clone();
        // With `--until-empty` an idle worker does not wait. A busy one waits a little: a running
        // job may submit others.
        let wait = if self.options.until_empty { Duration(500) } else { self.options.wait };
        let wait = if self.options.until_empty && self.running.is_empty() { Duration(0) } else { wait };
        // During an outage the claim does not wait, so that its end is reported at once.
        let wait = if self.connectivity.is_lost() { Duration(0) } else { wait };
        let claim = Claim {
            queues: self.options.queues.clone(),
            worker: Some(self.name.clone()),
            limit: Some(limit),
            wait: (wait.0 > 0).then_some(wait),
            types: (!types.is_empty()).then_some(types),
            lease: self.options.lease,
            execution_timeout: self.options.execution_timeout,
            ..Claim::default()
        };
        let client = self.client.clone();
        let response = client.claim(&claim);
        tokio::pin!(response);
        loop {
            tokio::select! {
                biased;
                response = &mut response => return Some(response),
                () = signals.received(1) => return None,
                Some(outcome) = self.running.join_next() => self.print_report(outcome),
            }
        }
    }

    fn start(&mut self, claimed: Claimed, claimed_at: std::time::Duration) {
        for job in claimed.jobs {
            self.claimed_jobs += 1;
            let attempt = AttemptRunner {
                options: Arc::clone(&self.options),
                client: self.client.clone(),
                output: self.output,
                claimed_at,
                phase: self.phase.subscribe(),
                connectivity: Arc::clone(&self.connectivity),
            };
            self.running.spawn(attempt.run(job));
        }
    }

    /// Waits for running programs, and stops them on a second signal or after the drain timeout.
    async fn drain(&mut self, signals: &Signals) {
        let mut draining = false;
        let drain_deadline = sleep(self.options.drain_timeout.as_std());
        tokio::pin!(drain_deadline);
        loop {
            let working = *self.phase.borrow() == WorkerPhase::Working;
            tokio::select! {
                biased;
                finished = self.running.join_next() => match finished {
                    Some(outcome) => self.print_report(outcome),
                    None => return,
                },
                () = signals.received(1), if !draining => {
                    draining = true;
                    drain_deadline.as_mut().reset(Instant::now() + self.options.drain_timeout.as_std());
                    let jobs = counted(self.running.len(), "running job");
                    self.output.info(&format!("draining: finishing {jobs}; a second signal releases them"));
                }
                () = signals.received(2), if working => self.abandon(),
                () = &mut drain_deadline, if working && draining => self.abandon(),
            }
        }
    }

    fn abandon(&self) {
        self.output.info("stopping programs and releasing their jobs");
        self.phase.send_replace(WorkerPhase::Abandoning);
    }

    /// Prints the result of an attempt. A closed standard output does not stop the worker.
    fn print_report(&self, outcome: Result<AttemptReport, JoinError>) {
        let printed = match outcome {
            Ok(outcome) if self.output.json => self.output.json_line(&outcome),
            Ok(outcome) => self.output.line(&outcome.to_string()),
            Err(error) => {
                self.output.info(&format!("an attempt failed, and its lease will expire: {error}"));
                Ok(())
            }
        };
        drop(printed);
    }
}
