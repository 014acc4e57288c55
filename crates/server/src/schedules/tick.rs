//! Processes the ticks of one schedule that are due.

use std::sync::Arc;

use longshore_api::enums::{Overlap, TickOutcome};
use longshore_core::schedule::ticks::{PlannedTick, TICKS_KEPT, jitter_of, overlaps, plan_ticks, run_at};
use longshore_core::schedule::{DueTimes, JobSchedule, Tick};
use longshore_core::submit::Start;
use longshore_core::{ScheduleChange, Timestamp};
use longshore_engine::{Submission, SubmitRequest};
use longshore_store::{JobRef, Store, StoreError, SystemRefusal};

use super::definition::new_job;
use super::storage::{ProcessedTick, StoredSchedule, is_conflict};

/// Jobs that one write submits.
const JOBS_MAX: usize = 20;

/// Result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is due; the next tick is due then.
    Idle(Option<Timestamp>),
    /// Ticks were processed: here with these outcomes, or by another node.
    Advanced(Vec<TickOutcome>),
}

/// Processes the first due ticks of a schedule, in one commit.
pub(super) async fn process(
    store: &dyn Store,
    stored: &StoredSchedule,
    times: &DueTimes,
    now: Timestamp,
) -> Result<Step, StoreError> {
    let StoredSchedule { schedule, progress, .. } = stored;
    let plan = plan_ticks(times, progress.processed_until, now, schedule.misfire).ticks;
    if plan.is_empty() {
        return Ok(Step::Idle(times.next_after(progress.processed_until.max(now))));
    }
    let last_job = match (schedule.overlap, progress.last_job) {
        (Overlap::Skip, Some(id)) => {
            let found = store.get(vec![JobRef::Id(id)]).await?.into_iter().next().flatten();
            found.map(|job| job.kind())
        }
        (Overlap::Skip, None) | (Overlap::Allow, _) => None,
    };
    let is_overlapping = overlaps(schedule.overlap, last_job);
    let jobs_max = if schedule.overlap == Overlap::Skip { 1 } else { JOBS_MAX };
    for jobs_max in [jobs_max, 1] {
        let batch = TickBatch::new(stored, &plan, is_overlapping, jobs_max, now);
        match batch.write(store, stored).await? {
            Ok(()) => {
                batch.announce(store, stored, now).await;
                return Ok(Step::Advanced(batch.outcomes()));
            }
            Err(refusal) if is_conflict(&refusal) => return Ok(Step::Advanced(Vec::new())),
            // Some of the jobs may be accepted: the ticks are processed one by one.
            Err(_) if batch.submissions.len() > 1 => {}
            Err(SystemRefusal::Submission(refusal)) => {
                let detail = format!("{}: {}", refusal.first.code(), refusal.first);
                let batch = batch.refused(&detail);
                if batch.write(store, stored).await?.is_ok() {
                    batch.announce(store, stored, now).await;
                    return Ok(Step::Advanced(batch.outcomes()));
                }
                return Ok(Step::Advanced(Vec::new()));
            }
            Err(SystemRefusal::Conflict { .. }) => return Ok(Step::Advanced(Vec::new())),
        }
    }
    Ok(Step::Advanced(Vec::new()))
}

/// Ticks of one commit, with the jobs of those that fire.
struct TickBatch {
    ticks: Vec<ProcessedTick>,
    submissions: Vec<Submission>,
}

impl TickBatch {
    fn new(
        stored: &StoredSchedule,
        plan: &[PlannedTick],
        is_overlapping: bool,
        jobs_max: usize,
        now: Timestamp,
    ) -> Self {
        let mut batch = Self { ticks: Vec::new(), submissions: Vec::new() };
        for planned in plan.iter().take(TICKS_KEPT) {
            let (due_at, outcome) = match planned {
                PlannedTick::SkipMissed(due_at) => (*due_at, TickOutcome::SkippedMisfire),
                PlannedTick::Fire(due_at) if is_overlapping => (*due_at, TickOutcome::SkippedOverlap),
                PlannedTick::Fire(due_at) => (*due_at, TickOutcome::Fired),
            };
            let mut tick = Tick { due_at, fired_at: None, outcome, job: None, detail: None };
            if outcome == TickOutcome::SkippedOverlap {
                let job = stored.progress.last_job.map(|id| id.to_string()).unwrap_or_default();
                tick.detail = Some(format!("job {job} has not ended").into());
            }
            if outcome != TickOutcome::Fired {
                batch.ticks.push(ProcessedTick { tick, job: None });
                continue;
            }
            if batch.submissions.len() == jobs_max {
                break;
            }
            match submission(stored, due_at, now) {
                Ok(submission) => {
                    tick.fired_at = Some(now);
                    batch.ticks.push(ProcessedTick { tick, job: Some(batch.submissions.len()) });
                    batch.submissions.push(submission);
                }
                Err(detail) => {
                    let tick = Tick { outcome: TickOutcome::Refused, detail: Some(detail), ..tick };
                    batch.ticks.push(ProcessedTick { tick, job: None });
                }
            }
        }
        batch
    }

    fn outcomes(&self) -> Vec<TickOutcome> {
        self.ticks.iter().map(|processed| processed.tick.outcome).collect()
    }

    /// Publishes the ticks to the event streams. A failure is logged only: the ticks are stored.
    async fn announce(&self, store: &dyn Store, stored: &StoredSchedule, now: Timestamp) {
        for processed in &self.ticks {
            let change = match processed.tick.outcome {
                TickOutcome::Fired => ScheduleChange::Fired,
                TickOutcome::SkippedOverlap | TickOutcome::SkippedMisfire | TickOutcome::Refused => {
                    ScheduleChange::Skipped
                }
            };
            let (name, queue) = (Arc::from(stored.schedule.name.as_str()), stored.schedule.queue.clone());
            if let Err(error) = store.announce_schedule(name, queue, change, now).await {
                tracing::debug!(%error, "a tick was not announced to the event streams");
            }
        }
    }

    /// Records the ticks that would have fired as refused.
    fn refused(mut self, detail: &str) -> Self {
        for processed in self.ticks.iter_mut().filter(|processed| processed.job.is_some()) {
            processed.job = None;
            let (outcome, detail) = (TickOutcome::Refused, Some(Arc::from(detail)));
            processed.tick = Tick { outcome, fired_at: None, detail, ..processed.tick.clone() };
        }
        self.submissions.clear();
        self
    }

    async fn write(&self, store: &dyn Store, stored: &StoredSchedule) -> Result<Result<(), SystemRefusal>, StoreError> {
        let mut write = stored.record_ticks(&self.ticks);
        if !self.submissions.is_empty() {
            write.submit = Some(SubmitRequest::new(self.submissions.clone()));
        }
        Ok(store.write_system(write).await?.map(drop))
    }
}

/// Returns the job of a tick; an error is the detail of the refusal.
fn submission(stored: &StoredSchedule, due_at: Timestamp, now: Timestamp) -> Result<Submission, Arc<str>> {
    let schedule = &stored.schedule;
    let mut job =
        new_job(&schedule.job).map_err(|error| Arc::from(format!("{}: {}", error.code.code(), error.detail)))?;
    let delay = match job.start {
        Start::Now | Start::At(_) => longshore_core::Duration::ZERO,
        Start::In(delay) => delay,
    };
    let jitter = jitter_of(schedule.name.as_str(), due_at, schedule.jitter);
    job.start = run_at(due_at, jitter, delay, now).map_or(Start::Now, Start::At);
    job.schedule = Some(Box::new(JobSchedule { name: schedule.name.clone(), due_at: Some(due_at) }));
    Ok(Submission { queue: schedule.queue.clone(), job })
}
