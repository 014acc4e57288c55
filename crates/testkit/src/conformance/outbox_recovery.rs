//! The outbox after a restart.

use longshore_core::Duration;
use longshore_core::patch::{PolicyPatch, RetentionPatch};
use longshore_core::webhook::WebhookEvent;
use longshore_store::JobRef;

use super::harness::*;
use super::outbox::{SECOND, deliveries, recorded, subscribe, with_policy};

pub(super) fn deliveries_survive_a_restart_and_the_job(h: &mut Harness) {
    subscribe(h, "all", &WebhookEvent::OF_JOBS, &["*"], true);
    let retention = RetentionPatch { completed: Some(SECOND), ..RetentionPatch::default() };
    let job = h.run("q", with_policy(PolicyPatch { retention, ..PolicyPatch::default() }), complete());
    let before = deliveries(h);
    h.reopen();
    assert_eq!(deliveries(h), before);
    h.pass(Duration::from_secs(5));
    h.tick_until_idle();
    assert!(h.find(JobRef::Id(job.id)).is_none(), "the job is pruned");
    assert_eq!(deliveries(h), before);
    let later = h.run("q", work(), complete());
    assert_eq!(recorded(h, later.id).len(), 1, "the subscription is loaded on open");
}
