//! The stored form of schedules: a version byte, then JSON, then the ids of submitted jobs.

use std::sync::Arc;

use longshore_api::enums::{Misfire, Overlap, TickOutcome};
use longshore_core::id::{JobId, QueueName, ScheduleName};
use longshore_core::schedule::{Progress, Recurrence, Schedule, Tick};
use longshore_core::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;

/// The value has another version or is corrupt.
#[derive(Debug)]
pub(super) struct InvalidRecord;

#[derive(Serialize, Deserialize)]
struct ScheduleEnvelope {
    cron: Option<String>,
    every_ms: Option<u64>,
    timezone: String,
    queue: String,
    job: String,
    misfire: Misfire,
    overlap: Overlap,
    jitter_ms: u64,
    paused: bool,
    pause_note: Option<String>,
    created_at: i64,
    updated_at: i64,
    counts_from: i64,
}

#[derive(Serialize, Deserialize)]
struct StoredProgress {
    processed_until: i64,
    ticks: u64,
    last: Option<StoredTick>,
    last_job: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredTick {
    due_at: i64,
    fired_at: Option<i64>,
    outcome: TickOutcome,
    job: Option<String>,
    /// The index of its job among the ids behind the JSON.
    index: Option<usize>,
    detail: Option<String>,
}

pub(super) fn encode_schedule(schedule: &Schedule) -> Vec<u8> {
    let (cron, every_ms) = match &schedule.recurrence {
        Recurrence::Cron(cron) => (Some(cron.to_string()), None),
        Recurrence::Every(interval) => (None, Some(interval.as_millis())),
    };
    encode(&ScheduleEnvelope {
        cron,
        every_ms,
        timezone: schedule.time_zone.to_string(),
        queue: schedule.queue.to_string(),
        job: schedule.job.to_string(),
        misfire: schedule.misfire,
        overlap: schedule.overlap,
        jitter_ms: schedule.jitter.as_millis(),
        paused: schedule.paused,
        pause_note: schedule.pause_note.as_deref().map(str::to_owned),
        created_at: schedule.created_at.as_millis(),
        updated_at: schedule.updated_at.as_millis(),
        counts_from: schedule.counts_from.as_millis(),
    })
}

pub(super) fn decode_schedule(name: &ScheduleName, value: &[u8]) -> Result<Schedule, InvalidRecord> {
    let (stored, _): (ScheduleEnvelope, _) = decode(value)?;
    let recurrence = match (stored.cron, stored.every_ms) {
        (Some(cron), None) => Recurrence::Cron(cron.into()),
        (None, Some(millis)) => Recurrence::Every(Duration::from_millis(millis)),
        (Some(_), Some(_)) | (None, None) => return Err(InvalidRecord),
    };
    Ok(Schedule {
        name: name.clone(),
        recurrence,
        time_zone: stored.timezone.into(),
        queue: QueueName::new(&stored.queue).map_err(|_| InvalidRecord)?,
        job: stored.job.into(),
        misfire: stored.misfire,
        overlap: stored.overlap,
        jitter: Duration::from_millis(stored.jitter_ms),
        paused: stored.paused,
        pause_note: stored.pause_note.map(Arc::from),
        created_at: Timestamp::from_millis(stored.created_at),
        updated_at: Timestamp::from_millis(stored.updated_at),
        counts_from: Timestamp::from_millis(stored.counts_from),
    })
}

/// Encodes a progress. The store may append the ids of submitted jobs: the last one is the last
/// job.
pub(super) fn encode_progress(progress: &Progress) -> Vec<u8> {
    encode(&StoredProgress {
        processed_until: progress.processed_until.as_millis(),
        ticks: progress.ticks,
        last: progress.last.as_ref().map(|tick| stored_tick(tick, None)),
        last_job: progress.last_job.map(|id| id.to_string()),
    })
}

pub(super) fn decode_progress(value: &[u8]) -> Result<Progress, InvalidRecord> {
    let (stored, jobs): (StoredProgress, _) = decode(value)?;
    let mut last = stored.last.map(|tick| tick_of(tick, &jobs)).transpose()?;
    let submitted = jobs.last().copied();
    if let Some(last) = last.as_mut().filter(|tick| tick.outcome == TickOutcome::Fired) {
        last.job = submitted.or(last.job);
    }
    Ok(Progress {
        processed_until: Timestamp::from_millis(stored.processed_until),
        ticks: stored.ticks,
        last,
        last_job: submitted.or(parse_id(stored.last_job)?),
    })
}

/// Encodes a tick. `index` is that of its job among the ids that the store appends.
pub(super) fn encode_tick(tick: &Tick, index: Option<usize>) -> Vec<u8> {
    encode(&stored_tick(tick, index))
}

pub(super) fn decode_tick(value: &[u8]) -> Result<Tick, InvalidRecord> {
    let (stored, jobs): (StoredTick, _) = decode(value)?;
    tick_of(stored, &jobs)
}

fn stored_tick(tick: &Tick, index: Option<usize>) -> StoredTick {
    StoredTick {
        due_at: tick.due_at.as_millis(),
        fired_at: tick.fired_at.map(Timestamp::as_millis),
        outcome: tick.outcome,
        job: tick.job.map(|id| id.to_string()),
        index,
        detail: tick.detail.as_deref().map(str::to_owned),
    }
}

fn tick_of(stored: StoredTick, jobs: &[JobId]) -> Result<Tick, InvalidRecord> {
    let submitted = stored.index.and_then(|index| jobs.get(index).copied());
    Ok(Tick {
        due_at: Timestamp::from_millis(stored.due_at),
        fired_at: stored.fired_at.map(Timestamp::from_millis),
        outcome: stored.outcome,
        job: submitted.or(parse_id(stored.job)?),
        detail: stored.detail.map(Arc::from),
    })
}

fn parse_id(id: Option<String>) -> Result<Option<JobId>, InvalidRecord> {
    id.map(|id| id.parse()).transpose().map_err(|_| InvalidRecord)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // The types have texts and numbers only: serializing them cannot fail.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    [&[VERSION][..], &length.to_le_bytes(), &json].concat()
}

/// Returns the JSON, and the ids behind it.
fn decode<T: for<'de> Deserialize<'de>>(value: &[u8]) -> Result<(T, Vec<JobId>), InvalidRecord> {
    let (version, rest) = value.split_first().ok_or(InvalidRecord)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or(InvalidRecord)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| InvalidRecord)?;
    let (json, ids) = rest.split_at_checked(length).ok_or(InvalidRecord)?;
    let (ids, []) = ids.as_chunks::<16>() else { return Err(InvalidRecord) };
    if *version != VERSION {
        return Err(InvalidRecord);
    }
    let value = serde_json::from_slice(json).map_err(|_| InvalidRecord)?;
    Ok((value, ids.iter().copied().map(JobId::from_bytes).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_ids_are_the_jobs_of_ticks() {
        let at = Timestamp::from_millis(60_000);
        let (first, second) = (JobId::from_bytes([1; 16]), JobId::from_bytes([2; 16]));
        let fired = Tick { due_at: at, fired_at: Some(at), outcome: TickOutcome::Fired, job: None, detail: None };
        let append = |value: Vec<u8>| [value.as_slice(), first.as_bytes(), second.as_bytes()].concat();
        assert_eq!(decode_tick(&append(encode_tick(&fired, Some(0)))).unwrap().job, Some(first));
        assert_eq!(decode_tick(&append(encode_tick(&fired, None))).unwrap().job, None);
        let progress = Progress { processed_until: at, ticks: 2, last: Some(fired), last_job: None };
        let decoded = decode_progress(&append(encode_progress(&progress))).unwrap();
        assert_eq!((decoded.last_job, decoded.last.as_ref().unwrap().job), (Some(second), Some(second)));
        // Written again without submitted jobs, it stays the same.
        assert_eq!(decode_progress(&encode_progress(&decoded)).unwrap(), decoded);
    }

    #[test]
    fn other_bytes_are_refused() {
        for value in [&[][..], &[2], &[1, 0, 0, 0, 0], &[1, 2, 0, 0, 0, b'{', b'}', 7]] {
            assert!(decode_tick(value).is_err() && decode_progress(value).is_err());
        }
    }
}
