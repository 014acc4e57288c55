//! Reads and changes of one schedule.
//!
//! A schedule has a definition (kind `Schedule`), a progress and at most 100 ticks (kind `Tick`).
//! Every change of the definition also writes the progress, by compare-and-set. A node that fires a
//! tick by an outdated definition therefore gets a conflict.

use longshore_core::Timestamp;
use longshore_core::id::ScheduleName;
use longshore_core::schedule::ticks::TICKS_KEPT;
use longshore_core::schedule::{DefinitionChange, Progress, Schedule, Tick};
use longshore_engine::SystemKind;
use longshore_store::{
    Expected, Store, StoreError, SystemChange, SystemQuery, SystemRecord, SystemRefusal, SystemWrite,
};

use super::record::{
    InvalidRecord, decode_progress, decode_schedule, decode_tick, encode_progress, encode_schedule, encode_tick,
};

/// A schedule with its progress, as read from the store.
#[derive(Clone, Debug)]
pub(crate) struct StoredSchedule {
    pub(crate) schedule: Schedule,
    pub(crate) progress: Progress,
    pub(super) revision: u64,
    progress_expected: Expected,
}

/// Changes that another node may make in between, before the request fails.
const CONFLICTS_MAX: usize = 100;

fn progress_key(name: &ScheduleName) -> Vec<u8> {
    [name.as_str().as_bytes(), b"\0p"].concat()
}

/// Ticks are stored in a ring: a new tick replaces the one that is 100 ticks older.
fn tick_key(name: &ScheduleName, number: u64) -> Vec<u8> {
    let slot = u8::try_from(number % TICKS_KEPT as u64).unwrap_or_default();
    [name.as_str().as_bytes(), b"\0t", &[slot]].concat()
}

fn corrupt(name: &str) -> impl FnOnce(InvalidRecord) -> StoreError {
    move |_| StoreError::corrupt(format!("the record of the schedule {name} is invalid"))
}

/// Reads a schedule; `None` if there is none.
pub(crate) async fn read(store: &dyn Store, name: &ScheduleName) -> Result<Option<StoredSchedule>, StoreError> {
    let key = name.as_str().as_bytes();
    let found = store.system_records(SystemQuery::one(SystemKind::Schedule, key)).await?;
    let Some(record) = found.first() else { return Ok(None) };
    let schedule = decode_schedule(name, &record.value).map_err(corrupt(name.as_str()))?;
    read_progress(store, schedule, record.revision).await.map(Some)
}

async fn read_progress(store: &dyn Store, schedule: Schedule, revision: u64) -> Result<StoredSchedule, StoreError> {
    let name = &schedule.name;
    let found = store.system_records(SystemQuery::one(SystemKind::Tick, progress_key(name))).await?;
    let (progress, progress_expected) = match found.first() {
        Some(found) => {
            (decode_progress(&found.value).map_err(corrupt(name.as_str()))?, Expected::Revision(found.revision))
        }
        None => (Progress::starting(schedule.created_at), Expected::Absent),
    };
    Ok(StoredSchedule { schedule, progress, revision, progress_expected })
}

/// A page ends early when its definitions have this many bytes.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Definitions of a page that are read at once.
const PAGE_STEP: usize = 8;

/// Lists at most `limit` visible schedules by name, after a name. Returns whether more may follow.
///
/// A page ends with a visible schedule: its name is the cursor of the next page.
pub(crate) async fn list(
    store: &dyn Store,
    after: Option<&ScheduleName>,
    limit: usize,
    is_visible: impl Fn(&Schedule) -> bool,
) -> Result<(Vec<StoredSchedule>, bool), StoreError> {
    let (mut all, mut bytes, mut after) = (Vec::new(), 0, after.cloned());
    loop {
        // One more tells whether there is another page.
        let step = PAGE_STEP.min(limit + 1 - all.len());
        let found = definitions(store, after.as_ref(), step).await?;
        let is_last = found.len() < step;
        for (name, record) in found {
            let schedule = decode_schedule(&name, &record.value).map_err(corrupt(name.as_str()))?;
            after = Some(name);
            if !is_visible(&schedule) {
                continue;
            }
            if all.len() == limit || bytes >= PAGE_BYTES_MAX {
                return Ok((all, true));
            }
            bytes += record.value.len();
            all.push(read_progress(store, schedule, record.revision).await?);
        }
        if is_last {
            return Ok((all, false));
        }
    }
}

/// Lists the definitions by name, after a name.
pub(super) async fn definitions(
    store: &dyn Store,
    after: Option<&ScheduleName>,
    limit: usize,
) -> Result<Vec<(ScheduleName, SystemRecord)>, StoreError> {
    let query = SystemQuery::all(SystemKind::Schedule, limit);
    let query = match after {
        Some(name) => query.after(name.as_str().as_bytes()),
        None => query,
    };
    let named = |record: SystemRecord| {
        let name = std::str::from_utf8(&record.key).ok().and_then(|name| ScheduleName::new(name).ok());
        name.map(|name| (name, record)).ok_or_else(|| StoreError::corrupt("a schedule has an invalid name"))
    };
    store.system_records(query).await?.into_iter().map(named).collect()
}

/// Returns the recorded ticks, newest first.
pub(crate) async fn ticks(store: &dyn Store, name: &ScheduleName) -> Result<Vec<Tick>, StoreError> {
    let mut ticks = Vec::new();
    for record in tick_records(store, name).await? {
        ticks.push(decode_tick(&record.value).map_err(corrupt(name.as_str()))?);
    }
    ticks.sort_by_key(|tick: &Tick| std::cmp::Reverse(tick.due_at));
    Ok(ticks)
}

async fn tick_records(store: &dyn Store, name: &ScheduleName) -> Result<Vec<SystemRecord>, StoreError> {
    let prefix = [name.as_str().as_bytes(), b"\0t"].concat();
    store.system_records(SystemQuery::prefix(SystemKind::Tick, prefix, TICKS_KEPT)).await
}

/// What a change of a schedule has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Created,
    Changed,
    /// The schedule was so already.
    Nothing,
}

/// Changes a schedule, or creates it. `change` gets the present one and returns the new definition,
/// or an error. Returns the stored schedule, and what was written.
pub(crate) async fn change<E: From<StoreError>>(
    store: &dyn Store,
    name: &ScheduleName,
    mut change: impl FnMut(Option<&Schedule>, Timestamp) -> Result<(Schedule, DefinitionChange), E>,
) -> Result<(StoredSchedule, Written), E> {
    for _ in 0..CONFLICTS_MAX {
        let (present, now) = (read(store, name).await?, store.now());
        let (schedule, what) = change(present.as_ref().map(|present| &present.schedule), now)?;
        let (progress, expected, progress_expected) = match present {
            Some(present) if what == DefinitionChange::Nothing => return Ok((present, Written::Nothing)),
            Some(StoredSchedule { progress, revision, progress_expected, .. }) => {
                (progress.after(what, now), Expected::Revision(revision), progress_expected)
            }
            None => (Progress::starting(now), Expected::Absent, Expected::Any),
        };
        let result = if expected == Expected::Absent { Written::Created } else { Written::Changed };
        let definition = encode_schedule(&schedule);
        let write = SystemWrite::new(vec![
            SystemChange::put(SystemKind::Schedule, name.as_str(), expected, definition),
            SystemChange::put(SystemKind::Tick, progress_key(name), progress_expected, encode_progress(&progress)),
        ]);
        if let Ok(written) = store.write_system(write).await? {
            let progress_expected = Expected::Revision(written.revision);
            return Ok((StoredSchedule { schedule, progress, revision: written.revision, progress_expected }, result));
        }
    }
    Err(too_many_conflicts().into())
}

fn too_many_conflicts() -> StoreError {
    StoreError::not_applied(std::io::Error::other("other servers keep changing the schedule"))
}

/// Deletes a schedule with its ticks. Returns whether there was one.
pub(crate) async fn delete(store: &dyn Store, name: &ScheduleName) -> Result<bool, StoreError> {
    for _ in 0..CONFLICTS_MAX {
        let Some(present) = read(store, name).await? else { return Ok(false) };
        let expected = Expected::Revision(present.revision);
        let mut changes = vec![
            SystemChange::delete(SystemKind::Schedule, name.as_str(), expected),
            SystemChange::delete(SystemKind::Tick, progress_key(name), present.progress_expected),
        ];
        let ticks = tick_records(store, name).await?.into_iter();
        changes.extend(ticks.map(|tick| SystemChange::delete(SystemKind::Tick, tick.key, Expected::Any)));
        if store.write_system(SystemWrite::new(changes)).await?.is_ok() {
            return Ok(true);
        }
    }
    Err(too_many_conflicts())
}

/// A processed tick, and the index of its job in the submission.
#[derive(Clone, Debug)]
pub(super) struct ProcessedTick {
    pub(super) tick: Tick,
    pub(super) job: Option<usize>,
}

impl StoredSchedule {
    /// Returns the write that records ticks, oldest first. Each tick is processed by one such
    /// write:
    /// the progress must be as read.
    pub(super) fn record_ticks(&self, ticks: &[ProcessedTick]) -> SystemWrite {
        let (name, mut progress) = (&self.schedule.name, self.progress.clone());
        let mut changes = Vec::with_capacity(ticks.len() + 1);
        // Only the newest ticks are kept.
        let dropped = ticks.len().saturating_sub(TICKS_KEPT);
        for (index, ProcessedTick { tick, job }) in ticks.iter().enumerate() {
            if index >= dropped {
                let value = encode_tick(tick, *job);
                let change = SystemChange::put(SystemKind::Tick, tick_key(name, progress.ticks), Expected::Any, value);
                changes.push(SystemChange { append_job_ids: job.is_some(), ..change });
            }
            progress.ticks += 1;
            progress.processed_until = progress.processed_until.max(tick.due_at);
            progress.last = Some(tick.clone());
        }
        let submits = ticks.iter().any(|tick| tick.job.is_some());
        let value = encode_progress(&progress);
        let change = SystemChange::put(SystemKind::Tick, progress_key(name), self.progress_expected, value);
        changes.insert(0, SystemChange { append_job_ids: submits, ..change });
        SystemWrite::unannounced(changes)
    }
}

/// Whether a refused write met a record that another node has changed.
pub(super) fn is_conflict(refusal: &SystemRefusal) -> bool {
    matches!(refusal, SystemRefusal::Conflict { .. })
}
