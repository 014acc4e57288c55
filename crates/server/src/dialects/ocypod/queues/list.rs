//! `/queue`

use super::super::info::is_ours;
use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};

/// Names, sorted.
pub(crate) async fn list(call: OcypodRequest) -> Answer {
    let reports = call.app.call_store(call.app.store.queues()).await?;
    let names: Vec<&str> =
        reports.iter().filter(|report| is_ours(report)).map(|report| report.queue.name.as_str()).collect();
    ok(&names)
}
