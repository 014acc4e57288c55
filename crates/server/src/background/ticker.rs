//! Does what time brings, in real time: sleeps until the store's next deadline, or until it moves.

use std::num::NonZeroUsize;
use std::time::Duration as Wait;

use longshore_core::{Duration, Timestamp};
use longshore_store::ChangeFeed;
use tokio::time::sleep;

use crate::app::AppState;

/// Jobs that one tick may touch.
const TICK_JOBS_MAX: NonZeroUsize = NonZeroUsize::new(128).unwrap();
/// The longest sleep: clocks drift.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// After a tick that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Between a hint and the look that follows it; many hints share one look.
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
                tracing::warn!(%error, "a tick failed");
                app.on_store_error(&error);
                (Some(app.now() + PAUSE_AFTER_FAILURE), true)
            }
        };
        if !wait(&app, &mut wakeups, next, failed).await {
            return;
        }
    }
}

/// Waits until it is time to tick. Says whether to go on.
async fn wait(app: &AppState, wakeups: &mut ChangeFeed, mut next: Option<Timestamp>, failed: bool) -> bool {
    loop {
        let now = app.now();
        // After a failure even what is overdue has to wait.
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
