//! Queues.

use std::collections::BTreeMap;

use longshore_api::enums::State;
use longshore_api::queue as wire;
use longshore_core::patch::locked_settings;
use longshore_engine::{StateCounts, count_of};
use longshore_store::QueueStats;

use super::{settings, times};

pub(crate) fn to_wire(report: &QueueStats) -> wire::Queue {
    let QueueStats { queue, counts: states, oldest_scheduled_at } = report;
    wire::Queue {
        name: queue.name.to_string(),
        profile: queue.profile,
        settings: settings::of_queue(&queue.policy, &queue.admission),
        overrides: settings::of_overrides(&queue.overrides),
        locked: locked_settings(queue.profile).iter().map(ToString::to_string).collect(),
        paused: queue.paused,
        counts: counts(states),
        oldest_scheduled_at: times(*oldest_scheduled_at),
    }
}

pub(crate) fn counts(counts: &StateCounts) -> BTreeMap<State, u64> {
    State::ALL.iter().map(|state| (*state, count_of(counts, *state))).collect()
}
