//! Clock floor: the store's time never runs backwards over restarts.
//!
//! In real time each commit records its time, and the watermark file records a later one
//! (`watermark.rs`). After a start the clock continues from the later of the two.
//!
//! A forward jump of the wall clock looks like downtime. In both cases workers could not send
//! heartbeats, so live leases keep the time that was left. After an unclean stop that excludes
//! leases that ended so soon that a lost commit may have replaced them. Delays, lifetimes,
//! retention and idempotency windows follow the clock.

use std::sync::Arc;

use longshore_core::time::Timestamp;
use longshore_engine::ExecutionContext;
use longshore_store::{Clock, StoreError};
use rusqlite::Connection;

use crate::error::{DiskErrorKind, classify};
use crate::meta::{self, CommitRecord};
use crate::records::RecordsError;
use crate::recovery::LastStop;
use crate::schema::ClockMode;
use crate::sqlite::Location;
use crate::watermark;
use crate::writer::StoreWriter;

/// Lag of the wall clock that causes a warning.
const WARN_BEHIND_MS: u64 = 1_000;

/// Where the time of a store continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockFloor {
    /// Last recorded time.
    pub last_seen: Timestamp,
    /// Latest time of a commit, lost or not. A lost commit may have given jobs whose leases ended
    /// by then to another worker.
    pub ended_by: Timestamp,
}

/// Advances the clock to the last recorded time and returns that time.
///
/// After an unclean stop the clock advances beyond it, past every commit that may be lost. A lease
/// that a lost commit has ended is then over, and the clock of the commits does not run backwards.
/// The same holds if the start after such a stop was interrupted. Returns `None` in virtual time
/// and for a new store.
pub(crate) fn apply(
    location: &Location,
    connection: &Connection,
    clock_mode: ClockMode,
    clock: &dyn Clock,
    stop: LastStop,
) -> Result<Option<ClockFloor>, StoreError> {
    if clock_mode == ClockMode::Virtual {
        return Ok(None);
    }
    let recorded = watermark::read_time(location, meta::id_key(connection)?);
    let Some(last_seen) = meta::clock_floor(connection)?.max(recorded) else { return Ok(None) };
    let last_instant = stop.last_instant(last_seen);
    let ended_by = meta::lost_until(connection)?.map_or(last_instant, |lost_until| lost_until.max(last_instant));
    let behind_ms = last_seen.since(clock.now()).as_millis();
    clock.advance_to(ended_by);
    if behind_ms > WARN_BEHIND_MS {
        tracing::warn!(
            behind_ms,
            "wall clock is behind the store: time continues from the store's last time and runs up to 5 % slower until both agree (check the clock)"
        );
    }
    Ok(Some(ClockFloor { last_seen, ended_by }))
}

impl StoreWriter {
    /// Records the time of a commit.
    pub(crate) fn raise_clock_floor(&self, now: Timestamp) -> rusqlite::Result<()> {
        match self.clock_mode {
            ClockMode::Real => meta::set_clock_floor(self.records.connection(), now),
            ClockMode::Virtual => Ok(()),
        }
    }

    /// Extends live leases by the downtime, before the first request. From then on the watermark
    /// file records the time.
    ///
    /// A crash before that leaves the clock floor as it was, so the next start repeats the work.
    pub(crate) fn extend_leases(&mut self, floor: Option<ClockFloor>) -> Result<(), StoreError> {
        if let Some(floor) = floor {
            let mut extended = self.try_extend_leases(floor);
            if let Err(RecordsError::Sql(error)) = &extended
                && classify(&self.location, error) == DiskErrorKind::Full
                && self.roll_back()
                && self.reserve.release()
            {
                extended = self.try_extend_leases(floor);
            }
            extended?;
        }
        if self.clock_mode == ClockMode::Real {
            let mut watermark = self.shared.watermark.lock();
            watermark.follow_clock(Arc::clone(&self.clock));
        }
        Ok(())
    }

    /// Extends all leases in one commit: a second one would add the downtime twice.
    fn try_extend_leases(&mut self, floor: ClockFloor) -> Result<(), RecordsError> {
        let ClockFloor { last_seen, ended_by } = floor;
        let now = self.clock.now();
        self.records.connection().execute_batch("BEGIN IMMEDIATE")?;
        self.engine.begin();
        let Self { engine, records, rng, effects, .. } = self;
        let leases = engine.keep_remainders(last_seen, ended_by, ExecutionContext { records, rng, now, effects })?;
        self.effects.clear();
        self.records.flush()?;
        let mut commit_seq = self.commit_seq;
        if leases > 0 {
            commit_seq += 1;
            let (live_jobs, synced_seq) = (self.records.live_jobs(), self.syncs.synced_seq());
            meta::set_commit_record(self.records.connection(), CommitRecord { commit_seq, live_jobs, synced_seq })?;
            self.raise_clock_floor(now)?;
        }
        self.records.connection().execute_batch("COMMIT")?;
        self.commit_seq = commit_seq;
        self.syncs.mark_synced(commit_seq);
        self.engine.commit();
        self.records.committed();
        if leases > 0 {
            let downtime_ms = now.since(last_seen).as_millis();
            tracing::info!(leases, downtime_ms, "live leases extended by the downtime");
        }
        Ok(())
    }
}
