//! Follows the effects of commits: notifies waiters of ended jobs, counts, updates the workers.

use longshore_core::state::StateKind;
use longshore_engine::Effect;
use longshore_store::ChangeFeed;

use crate::state::AppState;

/// Runs until the server has drained.
pub(crate) async fn run(app: AppState, mut wakeups: ChangeFeed) {
    loop {
        let effects = tokio::select! {
            () = app.drained.cancelled() => return,
            effects = wakeups.changed() => effects,
        };
        match effects {
            Some(effects) => {
                app.webhooks.on_effects(&effects);
                on_effects(&app, &effects);
            }
            // The feed has lost changes.
            None => {
                app.completion_waiters.wake_all();
                app.tick_now.notify_one();
            }
        }
    }
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
            Effect::Claimable(_) => {}
        }
    }
    app.workers.jobs_released(released.into_iter());
    app.throughput.count(effects.iter().filter_map(|effect| match effect {
        Effect::Moved { queue, step, .. } => Some((queue, step)),
        Effect::Claimable(_) => None,
    }));
    if needs_tick {
        // Propagation to dependents and retention have no announced deadline.
        app.tick_now.notify_one();
    }
}
