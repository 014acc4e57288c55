//! The outbox: a terminal transition writes exactly the deliveries that it records, in its commit.

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::JobId;
use longshore_core::patch::{PolicyPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::ManualRequeue;
use longshore_core::profile::Profile;
use longshore_core::submit::NewJob;
use longshore_core::webhook::{DeliveryState, WebhookEvent};
use longshore_engine::{
    AdminCommand, CALLBACKS, DeleteQueue, Delivery, DeliveryKey, EndpointRecord, QueueDeleteMode, QueuePattern,
    SystemKind,
};
use longshore_store::{Expected, SystemChange, SystemQuery, SystemRecord, SystemWrite};

use super::harness::*;

pub(super) const SECOND: Duration = Duration::from_secs(1);

fn write(h: &Harness, changes: Vec<SystemChange>) {
    answered(h.store().write_system(SystemWrite::new(changes))).unwrap();
}

pub(super) fn subscribe(h: &Harness, name: &str, events: &[WebhookEvent], queues: &[&str], enabled: bool) {
    let queues = queues.iter().map(|text| QueuePattern::new(text).unwrap()).collect();
    let events = events.iter().copied().collect();
    let record = EndpointRecord { enabled, events, queues, server_part: b"{}".to_vec() };
    write(h, vec![SystemChange::put(SystemKind::Webhook, name, Expected::Any, record.encode())]);
}

fn records(h: &Harness, kind: SystemKind) -> Vec<SystemRecord> {
    answered(h.store().system_records(SystemQuery::all(kind, 10_000)))
}

/// Returns all deliveries, oldest first, and checks that each has its two other entries.
pub(super) fn deliveries(h: &Harness) -> Vec<Delivery> {
    let stored = records(h, SystemKind::Delivery);
    let mut due: Vec<Vec<u8>> = Vec::new();
    let mut by_endpoint: Vec<Vec<u8>> = Vec::new();
    let mut deliveries = Vec::new();
    for record in &stored {
        let key = DeliveryKey::from_bytes(&record.key).unwrap();
        let delivery = Delivery::decode(&record.value).unwrap();
        due.push(key.due_key(delivery.at));
        by_endpoint.push(key.endpoint_key(&delivery.endpoint, delivery.at));
        deliveries.push(delivery);
    }
    for (kind, mut expected) in [(SystemKind::DueDelivery, due), (SystemKind::EndpointDelivery, by_endpoint)] {
        expected.sort();
        let found: Vec<Vec<u8>> = records(h, kind).into_iter().map(|record| record.key).collect();
        assert_eq!(found, expected, "{kind:?}");
    }
    deliveries.sort_by_key(|delivery| delivery.at);
    deliveries
}

/// Returns endpoint and event of the deliveries of a job.
pub(super) fn recorded(h: &Harness, id: JobId) -> Vec<(String, WebhookEvent)> {
    let of_job = deliveries(h).into_iter().filter(|delivery| delivery.job == Some(id));
    of_job.map(|delivery| (delivery.endpoint.to_string(), delivery.event)).collect()
}

fn with_callback(job: NewJob) -> NewJob {
    NewJob { callback_url: Some("https://example.org/done".into()), ..job }
}

pub(super) fn with_policy(policy: PolicyPatch) -> NewJob {
    work_with(|job| job.policy = policy)
}

pub(super) fn callback_is_pending_at_the_end_of_a_job(h: &mut Harness) {
    let job = h.submit("q", with_callback(work()));
    let claimed = h.claim_one("q");
    assert_eq!(deliveries(h), [], "nothing is recorded before the end");
    h.settle(&claimed, complete()).unwrap();
    let [delivery] = deliveries(h).try_into().unwrap();
    assert_eq!((&*delivery.endpoint, delivery.url.as_deref()), (CALLBACKS, Some("https://example.org/done")));
    assert_eq!((delivery.event, delivery.job, delivery.at), (WebhookEvent::Completed, Some(job.id), h.now()));
    assert_eq!((delivery.state, delivery.next_at), (DeliveryState::Pending, Some(h.now())));
    let snapshot = longshore_codec::snapshot::decode(&delivery.snapshot).unwrap();
    let now = h.job(job.id);
    assert_eq!((snapshot.seq, &snapshot.state, &snapshot.queue), (now.seq, &now.state, &now.queue));
    assert_eq!((&snapshot.policy, snapshot.counters), (&now.policy, now.counters));
    // A repeated settlement answers the same and records nothing.
    h.settle(&claimed, complete()).unwrap();
    assert_eq!(deliveries(h).len(), 1);
    h.run("q", work(), complete());
    assert_eq!(deliveries(h).len(), 1, "without endpoint and callback URL nothing is recorded");
}

pub(super) fn every_way_to_end_records_one_delivery(h: &mut Harness) {
    subscribe(h, "all", &WebhookEvent::OF_JOBS, &["*"], true);
    let once = RetryPatch { limit: Some(1), ..RetryPatch::default() };
    let once = || PolicyPatch { retry: once.clone(), ..PolicyPatch::default() };
    let completed = h.run("q", work(), complete()).id;
    let failed = h.run("q", work(), fail(ReportedCategory::Permanent)).id;
    let exhausted = h.run("q", with_policy(once()), fail(ReportedCategory::Temporary)).id;
    let cancelled = h.submit("q", work()).id;
    h.admin(AdminCommand::Cancel { id: cancelled, reason: None, force: Force::ByPolicy });
    let dead = h.submit("q", work()).id;
    h.admin(AdminCommand::DeadLetter { id: dead, reason: None });
    let dependency = h.submit("later", work()).id;
    let dependent = h.submit("later", after(&[dependency])).id;
    h.admin(AdminCommand::Cancel { id: dependency, reason: None, force: Force::ByPolicy });
    let outlived = h.submit("later", with_policy(PolicyPatch { lifetime: Some(SECOND), ..PolicyPatch::default() })).id;
    let timeout = PolicyPatch { execution_timeout: Some(SECOND), ..once() };
    let slow = h.submit("slow", with_policy(timeout)).id;
    h.claim_one("slow");
    h.submit("deleted", work());
    let how = DeleteQueue::Force(QueueDeleteMode::Cancel);
    h.admin(AdminCommand::DeleteQueue { queue: queue("deleted"), how });
    h.pass(SECOND);
    h.tick_until_idle();
    // A dependent of a job that has ended is created and ended in one commit.
    let stillborn = h.submit("later", after(&[dependency])).id;
    for id in [completed, failed, exhausted, cancelled, dead, dependency, dependent, outlived, slow, stillborn] {
        let event = WebhookEvent::of_state(h.state(id)).unwrap();
        assert_eq!(recorded(h, id), [("all".to_owned(), event)], "{event}");
    }
    assert_eq!(deliveries(h).len(), 11, "and one for the job of the deleted queue");
}

pub(super) fn full_queue_records_a_delivery(h: &mut Harness) {
    subscribe(h, "all", &WebhookEvent::OF_JOBS, &["*"], true);
    let limit = SettingsPatch { max_queued: Some(Some(1)), ..SettingsPatch::default() };
    h.put_queue_with("q", Profile::Document, limit);
    let now = work_with(|job| job.hold = Some(false));
    h.submit("q", now);
    let held = h.submit("q", work());
    h.admin(AdminCommand::SubmitHeld { id: held.id });
    assert_eq!(recorded(h, held.id), [("all".to_owned(), WebhookEvent::Failed)], "resource_exhausted");
}

pub(super) fn subscriptions_select_deliveries(h: &mut Harness) {
    subscribe(h, "completed", &[WebhookEvent::Completed], &["*"], true);
    subscribe(h, "mail", &WebhookEvent::OF_JOBS, &["mail", "reports.*"], true);
    subscribe(h, "off", &WebhookEvent::OF_JOBS, &["*"], false);
    let endpoints = |id| recorded(h, id).into_iter().map(|(endpoint, _)| endpoint).collect::<Vec<_>>();
    let sorted = |id| {
        let mut names = endpoints(id);
        names.sort();
        names
    };
    assert_eq!(sorted(h.run("mail", with_callback(work()), complete()).id), ["callbacks", "completed", "mail"]);
    assert_eq!(sorted(h.run("reports.a", work(), fail(ReportedCategory::Permanent)).id), ["mail"]);
    assert_eq!(sorted(h.run("reports", work(), complete()).id), ["completed"]);
    write(h, vec![SystemChange::delete(SystemKind::Webhook, "completed", Expected::Any)]);
    assert!(sorted(h.run("reports", work(), complete()).id).is_empty(), "the endpoint is deleted");
    subscribe(h, "off", &WebhookEvent::OF_JOBS, &["*"], true);
    assert_eq!(sorted(h.run("reports", work(), complete()).id), ["off"], "the endpoint is enabled");
}

pub(super) fn each_end_of_a_requeued_job_is_pending(h: &mut Harness) {
    let in_place = SettingsPatch { manual_requeue: Some(ManualRequeue::InPlace), ..SettingsPatch::default() };
    h.put_queue_with("q", Profile::Standard, in_place);
    let job = h.run("q", with_callback(work()), fail(ReportedCategory::Permanent));
    // The clock stands still: both ends happen at one instant.
    for _ in 0..2 {
        let reset = longshore_core::requeue::Reset::Zero;
        let how = longshore_core::requeue::Requeue { counters: reset, run_at: None };
        h.admin(AdminCommand::Requeue { id: job.id, how });
        h.admin(AdminCommand::Cancel { id: job.id, reason: None, force: Force::ByPolicy });
    }
    let events: Vec<WebhookEvent> = recorded(h, job.id).into_iter().map(|(_, event)| event).collect();
    assert_eq!(events.len(), 3);
    assert_eq!(events.iter().filter(|event| **event == WebhookEvent::Cancelled).count(), 2);
}

pub(super) fn refused_command_records_nothing(h: &mut Harness) {
    subscribe(h, "all", &WebhookEvent::OF_JOBS, &["*"], true);
    let job = h.submit("q", with_callback(work()));
    let claimed = h.claim_one("q");
    h.admin(AdminCommand::Cancel { id: job.id, reason: None, force: Force::Now });
    assert_eq!(deliveries(h).len(), 2);
    assert!(h.settle(&claimed, complete()).is_err(), "the lease is revoked");
    assert!(h.try_admin(AdminCommand::Cancel { id: job.id, reason: None, force: Force::ByPolicy }).is_err());
    let unknown = after(&[JobId::from_bytes([9; 16])]);
    assert!(h.try_submit("q", vec![with_callback(work()), unknown]).is_err());
    assert_eq!(deliveries(h).len(), 2);
}
