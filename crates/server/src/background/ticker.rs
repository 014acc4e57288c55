//! Ticks the store in real time: sleeps until its next deadline, or until that deadline changes.

use std::num::NonZeroUsize;
use std::time::Duration as Wait;

use longshore_core::{Duration, Timestamp};
use longshore_store::ChangeFeed;
use tokio::time::sleep;

use crate::state::AppState;

/// Jobs that one tick may change.
const TICK_JOBS_MAX: NonZeroUsize = NonZeroUsize::new(128).unwrap();
/// Longest sleep, because clocks drift.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Pause after a failed tick.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Delay of a requested tick, so that many requests share one.
const TICK_DEBOUNCE: Duration = Duration::from_millis(10);

pub(crate) async fn run_ticker(app: AppState, mut wakeups: ChangeFeed) {
    loop {
        let ticked = tokio::select! {
            () = app.drained.cancelled() => return,
            ticked = app.store.tick(TICK_JOBS_MAX) => ticked,
        };
        let (next, failed) = match ticked {
            Ok(ticked) => (ticked.next, false),
            Err(error) => {
                tracing::warn!(%error, "tick failed; retrying");
                app.on_store_error(&error);
                (Some(app.now() + PAUSE_AFTER_FAILURE), true)
            }
        };
        if !wait(&app, &mut wakeups, next, failed).await {
            return;
        }
    }
}

/// Waits until the next tick is due. Returns `false` when the server has drained.
async fn wait(app: &AppState, wakeups: &mut ChangeFeed, mut next: Option<Timestamp>, failed: bool) -> bool {
    loop {
        let now = app.now();
        // After a failure, overdue work waits for the pause too.
        let announced = wakeups.deadline().filter(|_| !failed);
        let due = next.into_iter().chain(announced).min();
        if due.is_some_and(|due| due <= now) {
            return true;
        }
        let pause = due.map_or(SLEEP_MAX, |due| due.since(now).min(SLEEP_MAX));
        tokio::select! {
            () = app.drained.cancelled() => return false,
            () = sleep(Wait::from_millis(pause.as_millis())) => {}
            _ = wakeups.deadline_moved() => {}
            () = app.tick_now.notified() => {
                let soon = app.now() + TICK_DEBOUNCE;
                next = Some(next.map_or(soon, |next| next.min(soon)));
            }
        }
    }
}
