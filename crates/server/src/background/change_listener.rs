//! Follows the effects of commits: rings for jobs that ended, counts, keeps the picture of workers.

use longshore_core::state::StateKind;
use longshore_engine::Effect;
use longshore_store::ChangeFeed;

use crate::app::AppState;

/// Runs until the server has drained.
pub(crate) async fn run(app: AppState, mut wakeups: ChangeFeed) {
    loop {
        let effects = tokio::select! {
            () = app.drained.cancelled() => return,
            effects = wakeups.changed() => effects,
        };
        match effects {
            Some(effects) => on_effects(&app, &effects),
            None => {
                app.endings.wake_all();
                app.tick_now.notify_one();
            }
        }
    }
}

fn on_effects(app: &AppState, effects: &[Effect]) {
    let (mut ends, mut left) = (false, Vec::new());
    for effect in effects {
        match effect {
            Effect::Moved { id, step, .. } => {
                if step.from == Some(StateKind::Running) && step.to != StateKind::Running {
                    left.push(*id);
                }
                if step.to.terminal() {
                    app.endings.ended(*id);
                }
                ends |= step.to.terminal() || step.from.is_some_and(StateKind::terminal);
            }
            Effect::Claimable(_) => {}
        }
    }
    app.workers.jobs_released(left.into_iter());
    app.tally.count(effects.iter().filter_map(|effect| match effect {
        Effect::Moved { queue, step, .. } => Some((queue, step)),
        Effect::Claimable(_) => None,
    }));
    if ends {
        // Dependents may still have to hear of it, and retention has a new date: neither is among the announced deadlines.
        app.tick_now.notify_one();
    }
}
