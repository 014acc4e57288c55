//! Follows the effects of commits: calls waiting claims, rings for jobs that ended, counts.

use std::collections::{BTreeMap, HashMap};

use longshore_core::engine::Effect;
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::state::StateKind;
use longshore_store::Wakeups;

use crate::app::AppState;

/// Runs until the server has drained.
pub(crate) async fn follow(app: AppState, mut wakeups: Wakeups) {
    loop {
        let effects = tokio::select! {
            () = app.drained.cancelled() => return,
            effects = wakeups.changed() => effects,
        };
        match effects {
            Some(effects) => hear(&app, &effects),
            None => {
                app.lobby.anything_may_have_come();
                app.endings.any_may_have_ended();
                app.look.notify_one();
            }
        }
    }
}

fn hear(app: &AppState, effects: &[Effect]) {
    let mut came: HashMap<JobId, (&QueueName, &JobType)> = HashMap::new();
    let (mut ends, mut left) = (false, Vec::new());
    for effect in effects {
        match effect {
            Effect::Moved { id, queue, job_type, step, .. } => {
                if step.from == Some(StateKind::Running) && step.to != StateKind::Running {
                    left.push(*id);
                }
                if step.to == StateKind::Scheduled {
                    came.insert(*id, (queue, job_type));
                } else if step.from == Some(StateKind::Scheduled) {
                    // If it came and went in one commit, somebody who waited has it already.
                    came.remove(id);
                }
                if step.to.terminal() {
                    app.endings.ended(*id);
                }
                ends |= step.to.terminal() || step.from.is_some_and(StateKind::terminal);
            }
            Effect::Claimable(queue) => app.lobby.may_have_work(queue),
        }
    }
    let mut lines: BTreeMap<(&QueueName, &JobType), usize> = BTreeMap::new();
    for line in came.into_values() {
        *lines.entry(line).or_default() += 1;
    }
    for ((queue, job_type), jobs) in lines {
        app.lobby.work_came(queue, job_type, jobs);
    }
    app.workers.done(left.into_iter());
    app.tally.count(effects.iter().filter_map(|effect| match effect {
        Effect::Moved { queue, step, .. } => Some((queue, step)),
        Effect::Claimable(_) => None,
    }));
    if ends {
        // Dependents may still have to hear of it, and retention has a new date: neither is among the announced deadlines.
        app.look.notify_one();
    }
}
