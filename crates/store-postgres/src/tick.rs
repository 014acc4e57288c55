//! What time brings, and the housekeeping that goes with it: any node may do it, in slices, beside all others.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::state::StateKind;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{Ticked, ordering};
use longshore_store::StoreError;
use tokio::sync::oneshot;

use crate::batcher::BatchWorker;
use crate::connection::{Connection, TxBoundary, get, stmt};
use crate::error::{TxError, error_chain};
use crate::node::Shared;
use crate::row::{IndexColumns, number_of};
use longshore_store::{Request, Response};

/// Ended jobs that are archived at once.
const ARCHIVED_MAX: i64 = 1_000;
/// Timers that are looked at to say which comes first: heartbeats may have moved some.
const TIMERS_MAX: i64 = 32;

pub(crate) async fn tick(lane: &mut BatchWorker, budget: NonZeroUsize) -> Result<Ticked, StoreError> {
    lane.shared.begin_tick();
    let ticked = whole(lane, budget).await;
    // Timers of before are in the tables; a tick that failed is followed by another.
    lane.shared.end_tick(ticked.as_ref().ok().and_then(|ticked| ticked.next));
    ticked.map_err(TxError::into_store_error)
}

async fn whole(lane: &mut BatchWorker, budget: NonZeroUsize) -> Result<Ticked, TxError> {
    let (reply, _) = oneshot::channel();
    let mut more = run_housekeeping(lane).await?;
    let done = lane.run_transaction(&[Request::Tick(budget, reply)]).await?;
    let Some(Response::Tick(ticked)) = done.answers.first() else {
        return Err(TxError::Damaged("the answer to a tick".to_owned()));
    };
    let (now, ticked) = (done.now, *ticked);
    lane.shared.announce(done.effects, None);
    if done.archivable {
        more = run_housekeeping(lane).await?.or(more);
    }
    let next = match next(lane, now).await {
        Ok(next) => next,
        Err(trouble) => {
            lane.reset_connection(&trouble).await;
            return Err(trouble);
        }
    };
    Ok(Ticked { done: ticked.done, next: next.into_iter().chain(more).min() })
}

/// Archives some of the jobs that have ended, and adds up counts. Says when to go on archiving, if there may be more.
async fn run_housekeeping(lane: &mut BatchWorker) -> Result<Option<Timestamp>, TxError> {
    let shared = Arc::clone(&lane.shared);
    let kept = archive_slice(lane.link().await?, &shared).await;
    match kept {
        Ok(more) => Ok(more),
        Err(trouble) => {
            lane.reset_connection(&trouble).await;
            match trouble {
                // Somebody else is at it.
                TxError::Conflict(_) => Ok(None),
                // Another node may have dropped a day that this one has made. Timers do not wait for the house to be in order.
                TxError::Refused(error) => {
                    shared.days.forget_made();
                    tracing::warn!(error = %error_chain(&error), "ended jobs could not be archived");
                    Ok(None)
                }
                TxError::ConnectionLost(_)
                | TxError::Unknown(_)
                | TxError::NeedsExclusive
                | TxError::TooLarge
                | TxError::Damaged(_)
                | TxError::NotStorable => Err(trouble),
            }
        }
    }
}

async fn archive_slice(link: &Connection, shared: &Shared) -> Result<Option<Timestamp>, TxError> {
    let sql = &shared.sql;
    let (state, queue, seq) = if shared.clock.is_virtual() { FIRST } else { shared.days.left_off(shared.clock.now()) };
    let orders = [stmt!(sql.fold_counts, shared.lock_key - 1), stmt!(sql.over, ARCHIVED_MAX, state, queue, seq)];
    let found = link.pipeline(&orders, TxBoundary::None).await?.pop().unwrap_or_default();
    if let Some(now) = shared.days.time_to_drop(shared.clock.now()) {
        link.pipeline(&[stmt!(sql.drop_days, now.as_millis())], TxBoundary::None).await?;
    }
    let mut days = Vec::new();
    for row in &found {
        days.push(get::<i32>(row, 0)?);
    }
    if days.is_empty() {
        return Ok(shared.days.next_full_pass());
    }
    if let Some(until) = shared.days.resting(shared.clock.now()) {
        return Ok(Some(until));
    }
    for day in &days {
        if shared.days.is_new(*day) {
            link.pipeline(&[stmt!(sql.make_day, *day)], TxBoundary::None).await?;
            shared.days.made(*day);
        }
    }
    let began = shared.clock.now();
    let archived =
        link.pipeline(&[stmt!(sql.archive, ARCHIVED_MAX, days, state, queue, seq)], TxBoundary::None).await?.pop();
    shared.days.archived(began, shared.clock.now());
    let rows = match archived.as_ref().and_then(|rows| rows.first()) {
        Some(row) => {
            if !shared.clock.is_virtual()
                && let (Some(state), Some(queue), Some(seq)) = (get(row, 2)?, get(row, 3)?, get(row, 4)?)
            {
                shared.days.leave_off((state, queue, seq));
            }
            get::<i64>(row, 0)?
        }
        None => 0,
    };
    Ok(if rows >= ARCHIVED_MAX {
        shared.days.resting(shared.clock.now()).or(Some(began))
    } else {
        shared.days.next_full_pass()
    })
}

/// When something falls due next: not later than that, and exactly then unless very many heartbeats have moved timers.
async fn next(lane: &mut BatchWorker, now: Timestamp) -> Result<Option<Timestamp>, TxError> {
    let shared = Arc::clone(&lane.shared);
    let (sql, known) = (&shared.sql, shared.known());
    if known.queues.values().any(|queue| queue.deleting.is_some()) {
        return Ok(Some(now));
    }
    let orders = [stmt!(sql.next_due, TIMERS_MAX), stmt!(sql.next_prune, shared.slack_ms()), stmt!(sql.any_errand)];
    let mut found = lane.link().await?.pipeline(&orders, TxBoundary::None).await?.into_iter();
    let timers = found.next().unwrap_or_default();
    let prune = found.next().unwrap_or_default();
    let errands = found.next().unwrap_or_default();
    if errands.first().map(|row| get(row, 0)).transpose()? == Some(true) {
        return Ok(Some(now));
    }
    let mut first: Option<i64> = match prune.first() {
        Some(row) => get(row, 0)?,
        None => None,
    };
    for row in &timers {
        let (due_at, place): (i64, Option<i64>) = (get(row, 1)?, get(row, 3)?);
        let seq = Seq(get::<i64>(row, 0)?.cast_unsigned());
        let job = codec::job::decode(seq, &get::<Vec<u8>>(row, 4)?, &known.names);
        let due = job.map(|job| {
            let offered = place.is_some() && number_of(job.kind()) == number_of(StateKind::Running);
            IndexColumns::of(&job, ordering(&job, offered)).due.map(|(at, _)| at)
        });
        // Of a job that cannot be read the tick will say more.
        first = first.into_iter().chain(due.unwrap_or(Some(due_at))).min();
    }
    if i64::try_from(timers.len()).unwrap_or(i64::MAX) >= TIMERS_MAX
        && let Some(row) = timers.last()
    {
        first = first.into_iter().chain([get::<i64>(row, 1)?]).min();
    }
    Ok(first.map(Timestamp::from_millis))
}

/// How often a node looks for days that may go.
const DROP_EVERY: Duration = Duration::from_mins(10);

/// Days that have their partition, and when days were last dropped.
#[derive(Debug, Default)]
pub(crate) struct ArchiveState {
    made: Mutex<BTreeSet<i32>>,
    dropped: Mutex<Option<Timestamp>>,
    /// From when to when archiving rests.
    rest: Mutex<Option<(Timestamp, Timestamp)>>,
    left_off: Mutex<ArchiveCursor>,
}

/// State, queue, and number: how ended jobs are gone through.
type Ended = (i16, i32, i64);

/// Before all of them: behind whoever has not ended.
const FIRST: Ended = (StateKind::Retrying as i16, i32::MAX, i64::MAX);

/// How far archiving has come: what lies before are remains of those who were archived, until a vacuum comes by, and a few who ended late.
#[derive(Debug)]
struct ArchiveCursor {
    at: Ended,
    began: Option<Timestamp>,
}

impl Default for ArchiveCursor {
    fn default() -> Self {
        Self { at: FIRST, began: None }
    }
}

/// How often it is gone through from the beginning.
const FULL_PASS_INTERVAL: Duration = Duration::from_secs(5);

/// Archiving can wait, others cannot: after each slice it rests for so many times as long as that took.
const REST: i64 = 2;

impl ArchiveState {
    fn is_new(&self, day: i32) -> bool {
        !self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&day)
    }

    fn made(&self, day: i32) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(day);
    }

    fn forget_made(&self) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Where to go on; from the beginning now and then.
    fn left_off(&self, now: Timestamp) -> Ended {
        let mut left = self.left_off.lock().unwrap_or_else(PoisonError::into_inner);
        if left.began.is_none_or(|began| now < began || now >= began + FULL_PASS_INTERVAL) {
            *left = ArchiveCursor { at: FIRST, began: Some(now) };
        }
        left.at
    }

    /// When to look for those who ended behind it.
    fn next_full_pass(&self) -> Option<Timestamp> {
        let left = self.left_off.lock().unwrap_or_else(PoisonError::into_inner);
        left.began.filter(|_| left.at != FIRST).map(|began| began + FULL_PASS_INTERVAL)
    }

    fn leave_off(&self, at: Ended) {
        self.left_off.lock().unwrap_or_else(PoisonError::into_inner).at = at;
    }

    fn archived(&self, began: Timestamp, ended: Timestamp) {
        let took = (ended.as_millis() - began.as_millis()).max(0);
        let rest = Timestamp::from_millis(ended.as_millis() + REST * took);
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some((ended, rest));
    }

    /// Until when archiving rests.
    fn resting(&self, now: Timestamp) -> Option<Timestamp> {
        let rest = *self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.filter(|(from, until)| (*from..*until).contains(&now)).map(|(_, until)| until)
    }

    /// The present, if it is time to look for days that may go.
    fn time_to_drop(&self, now: Timestamp) -> Option<Timestamp> {
        let mut last = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now < last + DROP_EVERY) {
            return None;
        }
        // A day that was dropped may be needed again.
        self.forget_made();
        *last = Some(now);
        Some(now)
    }
}
