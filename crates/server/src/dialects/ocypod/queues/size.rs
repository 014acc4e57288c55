//! `/queue/{name}/size`

use longshore_core::state::StateKind;
use longshore_engine::count_of;

use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};

/// Jobs that wait.
pub(crate) async fn size(call: OcypodRequest) -> Answer {
    let counts = call.known_queue().await?.counts;
    let waiting = [StateKind::Pending, StateKind::Scheduled, StateKind::Delayed];
    ok(&waiting.into_iter().map(|state| count_of(&counts, state)).sum::<u64>())
}
