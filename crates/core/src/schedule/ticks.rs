//! Which ticks of a schedule are processed now, and how.

use std::collections::VecDeque;

use longshore_types::{Misfire, Overlap, StateKind};

use super::due_times::DueTimes;
use crate::hash::fnv1a;
use crate::time::{Duration, Timestamp};

/// A tick that is processed later than this after its due time was missed.
pub const MISFIRE_AFTER: Duration = Duration::from_secs(60);
/// Missed ticks that `misfire: all` fires, the latest ones.
pub const MISSED_FIRED_MAX: usize = 1_000;
/// Ticks that a schedule keeps.
pub const TICKS_KEPT: usize = 100;
/// Schedules of a store.
pub const SCHEDULES_MAX: usize = 10_000;

/// What happens to a tick, before overlap and admission are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedTick {
    Fire(Timestamp),
    SkipMissed(Timestamp),
}

/// The ticks to process, oldest first. Older ones than these are dropped without a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickPlan {
    pub ticks: Vec<PlannedTick>,
    /// All ticks up to here are processed; `None` if none is due.
    pub processed_until: Option<Timestamp>,
}

/// Returns the ticks after `processed_until` that are due at `now`.
///
/// The work is bounded: of many missed ticks only the latest are visited.
pub fn plan_ticks(times: &DueTimes, processed_until: Timestamp, now: Timestamp, misfire: Misfire) -> TickPlan {
    let mut due = latest_due(times, processed_until, now, MISSED_FIRED_MAX + TICKS_KEPT);
    let Some(last) = due.last().copied() else { return TickPlan::default() };
    let is_missed = |at: &Timestamp| *at + MISFIRE_AFTER < now;
    let missed = due.iter().filter(|at| is_missed(at)).count();
    let fired = match misfire {
        Misfire::Skip => 0,
        Misfire::One => 1,
        Misfire::All => MISSED_FIRED_MAX,
    };
    let skipped = missed.saturating_sub(fired);
    // Only the last skipped ones can be in the record.
    let dropped = skipped.saturating_sub(TICKS_KEPT);
    let kept = due.split_off(dropped);
    let plan = |(index, at): (usize, Timestamp)| {
        if index + dropped < skipped { PlannedTick::SkipMissed(at) } else { PlannedTick::Fire(at) }
    };
    TickPlan { ticks: kept.into_iter().enumerate().map(plan).collect(), processed_until: Some(last) }
}

/// Returns the latest due times in (after, now], oldest first, at most `count`.
///
/// The search starts close to `now`: the distance doubles until enough are found.
fn latest_due(times: &DueTimes, after: Timestamp, now: Timestamp, count: usize) -> Vec<Timestamp> {
    let span = now.as_millis().saturating_sub(after.as_millis());
    let mut distance = 60_000_i64;
    loop {
        let is_whole = distance >= span;
        let start = if is_whole { after } else { Timestamp::from_millis(now.as_millis() - distance) };
        let (mut found, mut last) = (VecDeque::new(), start);
        while let Some(next) = times.next_after(last).filter(|next| *next <= now) {
            found.push_back(next);
            last = next;
            if found.len() > count {
                found.pop_front();
            }
        }
        if is_whole || found.len() >= count {
            return found.into();
        }
        distance = distance.saturating_mul(8);
    }
}

/// Whether a tick is skipped, because the job of the last fired tick has not ended.
///
/// `last_job` is the state of that job; `None` if there is none, or if it was removed.
pub fn overlaps(overlap: Overlap, last_job: Option<StateKind>) -> bool {
    match overlap {
        Overlap::Allow => false,
        Overlap::Skip => last_job.is_some_and(|state| !state.terminal()),
    }
}

/// Returns when the job of a tick may run; `None`: at once.
///
/// The jitter counts from the due time, so that it is the same whenever the tick is processed. The
/// delay of the job counts from its creation, as in any submission.
pub fn run_at(due_at: Timestamp, jitter: Duration, delay: Duration, now: Timestamp) -> Option<Timestamp> {
    let at = (due_at + jitter).max(now) + delay;
    (at > now).then_some(at)
}

/// Returns the delay of a tick's job: below `jitter`, derived from the schedule and the due time.
pub fn jitter_of(schedule: &str, due_at: Timestamp, jitter: Duration) -> Duration {
    let millis = jitter.as_millis();
    if millis == 0 {
        return Duration::ZERO;
    }
    let hash = fnv1a(&format!("{schedule}@{}", due_at.as_millis()));
    // FNV-1a spreads its low bits badly for similar keys.
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Duration::from_millis((mixed ^ (mixed >> 32)) % millis)
}

#[cfg(test)]
mod tests;
