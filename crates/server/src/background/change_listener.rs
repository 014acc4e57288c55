//! Follows the effects of commits: notifies waiters of ended jobs, counts, updates the workers.

use std::time::Duration;

use longshore_core::state::StateKind;
use longshore_engine::Effect;
use longshore_store::{Change, ChangeFeed};
use tokio::time::sleep;

use crate::state::AppState;

/// Runs until the server has drained.
pub(crate) async fn run(app: AppState, mut wakeups: ChangeFeed) {
    loop {
        let change = tokio::select! {
            () = app.drained.cancelled() => return,
            change = wakeups.next() => change,
        };
        match change {
            Change::Commit { effects, is_event_source } => {
                app.webhooks.on_effects(&effects);
                app.tracer.on_effects(&effects);
                on_effects(&app, &effects);
                app.dead_letters.on_effects(&effects, is_event_source);
                if is_event_source {
                    app.events.publish(&effects);
                }
            }
            Change::Events(events) => {
                app.dead_letters.on_effects(&events, false);
                app.events.publish(&events);
            }
            Change::EventsMissed => {
                app.dead_letters.on_missed();
                app.events.publish_gap();
            }
            Change::Mark(mark) => {
                app.dead_letters.on_mark(mark);
                app.events.set_mark(mark);
            }
            Change::Elsewhere => on_unknown_changes(&app),
            Change::Lagged => {
                on_unknown_changes(&app);
                app.dead_letters.on_missed();
                app.events.publish_gap();
            }
        }
    }
}

/// Time between two renewals; less than half of the time that a store reports events.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// Keeps the events of other servers coming while there are listeners.
pub(crate) async fn keep_watching(app: AppState) {
    loop {
        tokio::select! {
            () = app.drained.cancelled() => return,
            () = sleep(RENEW_INTERVAL) => {}
        }
        if app.events.listeners() > 0
            && let Err(error) = app.store.watch_events().await
        {
            tracing::debug!(%error, "events of other servers may be missing: trying again");
        }
    }
}

fn on_unknown_changes(app: &AppState) {
    app.completion_waiters.wake_all();
    app.tick_now.notify_one();
}

fn on_effects(app: &AppState, effects: &[Effect]) {
    let (mut needs_tick, mut released) = (false, Vec::new());
    for effect in effects {
        match effect {
            Effect::Moved { id, step, .. } => {
                if step.from == Some(StateKind::Running) && step.to != StateKind::Running {
                    released.push(*id);
                }
                if step.to.terminal() {
                    app.completion_waiters.notify(*id);
                }
                needs_tick |= step.to.terminal() || step.from.is_some_and(StateKind::terminal);
            }
            Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => {}
        }
    }
    app.workers.jobs_released(released.into_iter());
    app.series.count(effects);
    app.throughput.count(effects.iter().filter_map(|effect| match effect {
        Effect::Moved { queue, step, .. } => Some((queue, step)),
        Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => None,
    }));
    if needs_tick {
        // Propagation to dependents and retention have no announced deadline.
        app.tick_now.notify_one();
    }
}
