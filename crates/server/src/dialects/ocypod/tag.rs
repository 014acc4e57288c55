//! `GET /tag/{tag}`

use std::sync::Arc;

use longshore_core::tags::Tags;
use longshore_store::JobFilter;

use super::jobs::{each, is_ours};
use super::request::OcypodRequest;
use super::response::{Answer, ok};

/// Ids, oldest first.
pub(super) async fn tag(call: OcypodRequest) -> Answer {
    let tag: Arc<str> = call.param()?.into();
    let filter = JobFilter { tag: Some(Arc::clone(&tag)), ..JobFilter::default() };
    let mut ids = Vec::new();
    each(&call.app, filter, |job| {
        if is_ours(job) && carries(&job.tags, &tag) {
            ids.push(job.seq.0);
        }
    })
    .await?;
    ids.reverse();
    ok(&ids)
}

/// A word of our own listings may also be a key with its value.
fn carries(tags: &Tags, wanted: &str) -> bool {
    tags.pairs().any(|(key, _)| key == wanted)
}
