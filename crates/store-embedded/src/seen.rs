//! The store's time over restarts.
//!
//! A store in real time keeps the last instant that it has seen: each commit carries its own, and the file of the mark has a later one
//! (see [`crate::noted`]). After a start time goes on from there at the earliest, so that it never runs backwards.
//!
//! A jump forward of the wall clock looks like a pause of the server. In either case the workers could not be heard, so the gap is not charged to live
//! leases: they keep what was left of them. Delays, lifetimes, retention and idempotency windows go by the clock.

use std::sync::{Arc, PoisonError};

use longshore_core::time::Timestamp;
use longshore_engine::ExecutionContext;
use longshore_store::{Clock, StoreError};
use rusqlite::Connection;

use crate::error::{DiskErrorKind, classify};
use crate::records::RecordsError;
use crate::schema::{self, ClockMode, Location};
use crate::watermark;
use crate::writer::Writer;

/// A wall clock that is so far behind the store is worth a warning.
const WORTH_A_WARNING: u64 = 1_000;

/// Lets the clock go on from the last instant that this store has seen, and returns that instant. `None`: there is none yet, or time is virtual.
pub(crate) fn go_on(
    location: &Location,
    connection: &Connection,
    time: ClockMode,
    clock: &dyn Clock,
) -> Result<Option<Timestamp>, StoreError> {
    if time == ClockMode::Virtual {
        return Ok(None);
    }
    let noted = watermark::seen(location, schema::id_key(connection)?);
    let Some(seen) = schema::seen(connection)?.max(noted) else { return Ok(None) };
    let behind_ms = seen.since(clock.now()).as_millis();
    clock.advance_to(seen);
    if behind_ms > WORTH_A_WARNING {
        tracing::warn!(
            behind_ms,
            "the clock of this machine is behind the last instant of the store: time goes on from that instant, and slows down by 5 % at most until both agree; check the clock"
        );
    }
    Ok(Some(seen))
}

impl Writer {
    /// Writes the time of a commit.
    pub(crate) fn see(&self, now: Timestamp) -> rusqlite::Result<()> {
        match self.time {
            ClockMode::Real => schema::set_seen(self.records.connection(), now),
            ClockMode::Virtual => Ok(()),
        }
    }

    /// Makes the new ends of live leases durable, before anything is served; from then on the time is noted. Until then a crash leaves `seen` as it was, so that the
    /// next start does the same again.
    pub(crate) fn keep_leases(&mut self, seen: Option<Timestamp>) -> Result<(), StoreError> {
        if let Some(seen) = seen {
            let mut kept = self.try_keep_leases(seen);
            if let Err(RecordsError::Sql(error)) = &kept
                && classify(&self.location, error) == DiskErrorKind::Full
                && self.roll_back()
                && self.reserve.release()
            {
                kept = self.try_keep_leases(seen);
            }
            kept?;
        }
        if self.time == ClockMode::Real {
            let mut noted = self.shared.noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.follow(Arc::clone(&self.clock));
        }
        Ok(())
    }

    /// One commit for all of them: done twice, it would add the gap twice.
    fn try_keep_leases(&mut self, seen: Timestamp) -> Result<(), RecordsError> {
        let now = self.clock.now();
        self.records.connection().execute_batch("BEGIN IMMEDIATE")?;
        self.engine.begin();
        let Self { engine, records, rng, effects, .. } = self;
        let leases = engine.keep_remainders(seen, ExecutionContext { records, rng, now, effects })?;
        self.effects.clear();
        self.records.flush()?;
        let mut mark = self.commit_seq;
        if leases > 0 {
            mark += 1;
            schema::set_commit_seq(self.records.connection(), mark, self.records.live_jobs())?;
            self.see(now)?;
        }
        self.records.connection().execute_batch("COMMIT")?;
        self.commit_seq = mark;
        self.engine.commit();
        self.records.committed();
        if leases > 0 {
            let closed_ms = now.since(seen).as_millis();
            tracing::info!(leases, closed_ms, "live leases keep the time that was left of them when the store stopped");
        }
        Ok(())
    }
}
