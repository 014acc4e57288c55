//! The definition of a schedule: its checks, and its conversion to the wire.

use std::sync::Arc;

use longshore_api::enums::{Misfire, Overlap};
use longshore_api::job::NewJob as WireJob;
use longshore_api::schedule as wire;
use longshore_core::id::{QueueName, ScheduleName};
use longshore_core::limits::check_duration;
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::schedule::{DueTimes, Recurrence, Schedule, Tick, find_time_zone};
use longshore_core::submit::{self, NewJob, Start};
use longshore_core::{Duration, Timestamp};
use longshore_store::Store;

use super::storage::StoredSchedule;
use crate::convert::{self, time, times};
use crate::wire::problem::{ApiError, ItemError};

/// Due times that a schedule shows.
const NEXT_SHOWN: usize = 10;

/// Parses the stored job of a schedule.
pub(super) fn new_job(json: &str) -> Result<NewJob, ItemError> {
    convert::new_job::read(crate::wire::json::object(json)?)
}

/// Returns the job of a schedule for a submission by a client.
pub(crate) fn triggered_job(schedule: &Schedule) -> Result<NewJob, ApiError> {
    Ok(new_job(&schedule.job)?)
}

/// Checks a definition. Returns it as that of a new schedule.
pub(crate) async fn check(
    store: &dyn Store,
    default_profile: Profile,
    name: &ScheduleName,
    given: wire::PutSchedule,
) -> Result<Schedule, ApiError> {
    let now = store.now();
    let zone = find_time_zone(given.timezone.as_deref().unwrap_or("UTC"))?;
    let time_zone: Arc<str> = zone.iana_name().unwrap_or("UTC").into();
    let recurrence = match (given.cron, given.every) {
        (Some(cron), None) => {
            DueTimes::cron(&cron, zone, now)?;
            Recurrence::Cron(cron.into())
        }
        (None, Some(interval)) => {
            DueTimes::every(interval, now)?;
            Recurrence::Every(interval)
        }
        (None, None) => return Err(ApiError::validation("cron", "is required, or every")),
        (Some(_), Some(_)) => return Err(ApiError::validation("every", "cannot be combined with cron")),
    };
    let jitter = given.jitter.unwrap_or_default();
    check_duration("jitter", jitter)?;
    let queue = QueueName::new(&given.queue)?;
    check_job(store, default_profile, &queue, &given.job, jitter).await?;
    let job = serde_json::to_string(&given.job).map_err(|_| ApiError::validation("job", "cannot be stored"))?;
    let paused = given.paused.unwrap_or(false);
    Ok(Schedule {
        name: name.clone(),
        recurrence,
        time_zone,
        queue,
        job: job.into(),
        misfire: given.misfire.unwrap_or(Misfire::One),
        overlap: given.overlap.unwrap_or(Overlap::Allow),
        jitter,
        paused,
        pause_note: None,
        created_at: now,
        updated_at: now,
        counts_from: now,
    })
}

/// Checks a job as a submission to the queue, or to the queue that a submission would create.
async fn check_job(
    store: &dyn Store,
    default_profile: Profile,
    queue: &QueueName,
    given: &WireJob,
    jitter: Duration,
) -> Result<(), ApiError> {
    let refused = [
        ("queue", given.queue.is_some()),
        ("ref", given.reference.is_some()),
        ("after", given.after.is_some()),
        ("after_any", given.after_any.is_some()),
        ("run_at", given.run_at.is_some()),
        ("idempotency_key", given.idempotency_key.is_some()),
        ("external_id", given.external_id.is_some()),
        ("traceparent", given.traceparent.is_some()),
    ];
    if let Some((field, _)) = refused.iter().find(|(_, is_given)| *is_given) {
        return Err(ApiError::validation(&format!("job.{field}"), "is not allowed in the job of a schedule"));
    }
    let inside = |error: ApiError| error.inside("job");
    let job = convert::new_job::read(given.clone()).map_err(|error| inside(error.into()))?;
    let existing = store.queue(queue.clone()).await?;
    let (policy, admission) = match &existing {
        Some(stats) => (Arc::clone(&stats.queue.policy), stats.queue.admission.clone()),
        None => {
            let settings = SettingsPatch::default().resolve(default_profile).map_err(ApiError::from)?;
            (Arc::new(settings.policy), settings.admission)
        }
    };
    submit::check(&job, &policy, &admission).map_err(|refusal| inside(refusal.into()))?;
    let delayed = NewJob { start: Start::In(jitter), ..job };
    let checked = submit::check(&delayed, &policy, &admission);
    checked.map(drop).map_err(|refusal| {
        if let Refusal::Invalid(invalid) = refusal { invalid.at("jitter").into() } else { inside(refusal.into()) }
    })
}

pub(crate) fn to_wire(stored: &StoredSchedule, now: Timestamp) -> Result<wire::Schedule, ApiError> {
    let StoredSchedule { schedule, progress, .. } = stored;
    let (cron, every) = match &schedule.recurrence {
        Recurrence::Cron(cron) => (Some(cron.to_string()), None),
        Recurrence::Every(interval) => (None, Some(*interval)),
    };
    let due = schedule.due_times(schedule.updated_at).map(|due| due.next(now, NEXT_SHOWN)).unwrap_or_default();
    Ok(wire::Schedule {
        name: schedule.name.to_string(),
        cron,
        every,
        timezone: schedule.time_zone.to_string(),
        queue: schedule.queue.to_string(),
        job: crate::wire::json::object(&schedule.job)?,
        misfire: schedule.misfire,
        overlap: schedule.overlap,
        jitter: schedule.jitter,
        paused: schedule.paused,
        pause_note: schedule.pause_note.as_deref().map(str::to_owned),
        next: due.into_iter().map(time).collect(),
        last: progress.last.as_ref().map(tick),
        created_at: time(schedule.created_at),
        updated_at: time(schedule.updated_at),
    })
}

pub(crate) fn tick(tick: &Tick) -> wire::Tick {
    wire::Tick {
        due_at: time(tick.due_at),
        fired_at: times(tick.fired_at),
        outcome: tick.outcome,
        job: tick.job.map(|id| id.to_string()),
        detail: tick.detail.as_deref().map(str::to_owned),
    }
}
