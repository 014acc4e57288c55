//! `GET /v1/attention`.

use std::sync::Arc;

use longshore_server::ServerClock;
use longshore_store::{Clock, StoreHealth, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use serde_json::{Value, json};

use crate::common::delayed_store::Slow;
use crate::common::{Client, Setup};
use crate::stats::{fail_next, until};

const PATH: &str = "/v1/attention";

async fn items(c: &mut Client) -> Vec<Value> {
    c.get(PATH).await.ok(200)["items"].as_array().unwrap().clone()
}

async fn codes(c: &mut Client) -> Vec<String> {
    items(c).await.iter().map(|item| item["code"].as_str().unwrap().to_owned()).collect()
}

fn has(answer: &Value, code: &str) -> bool {
    answer["items"].as_array().unwrap().iter().any(|item| item["code"] == code)
}

#[tokio::test]
async fn paused_work_and_missing_workers_are_listed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert_eq!(c.get(PATH).await.ok(200), json!({"items": []}));
    c.submit("q", r#"{"type":"t"}"#).await;
    assert_eq!(items(&mut c).await, [] as [Value; 0], "a worker may be starting");
    c.advance("10s").await;
    let since = "2026-11-15T00:00:00.000Z";
    let no_worker = json!({
        "code": "no_worker",
        "severity": "error",
        "since": since,
        "queue": "q",
        "type": null,
        "facts": {"ready": 1, "oldest_scheduled_at": since, "last_seen_at": null},
        "action": null,
    });
    assert_eq!(items(&mut c).await, [no_worker]);
    c.post("/v1/queues/q/pause", "").await.ok(200);
    let action = json!({"label": "resume the queue", "method": "POST", "path": "/v1/queues/q/resume", "body": {}});
    let paused = items(&mut c).await;
    assert_eq!(paused.len(), 1);
    assert_eq!((&paused[0]["code"], &paused[0]["action"]), (&json!("paused_with_work"), &action));
    assert_eq!(paused[0]["facts"], json!({"waiting": 1, "oldest_scheduled_at": since}));
    // The action is a request that works.
    c.call("POST", action["path"].as_str().unwrap(), Some(&action["body"].to_string())).await.ok(200);
    assert_eq!(codes(&mut c).await, ["no_worker"]);
    server.stop().await;
}

/// A worker of the queue that does not claim a type leaves its jobs.
#[tokio::test]
async fn a_type_without_a_worker_is_listed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"rare"}"#).await;
    c.submit("q", r#"{"type":"common"}"#).await;
    c.post("/v1/claims", r#"{"queues":["q"],"worker":"w","types":["common"]}"#).await.ok(200);
    c.advance("10s").await;
    let answer = until(&mut c, PATH, |answer| has(answer, "no_worker")).await;
    let item = &answer["items"][0];
    assert_eq!((&item["type"], &item["queue"], &item["since"]), (&json!("rare"), &json!("q"), &Value::Null));
    assert_eq!(item["facts"]["last_seen_at"], "2026-11-15T00:00:00.000Z");
    c.post("/v1/claims", r#"{"queues":["q"],"worker":"w","types":["rare"]}"#).await.ok(200);
    assert_eq!(codes(&mut c).await, [] as [String; 0]);
    server.stop().await;
}

#[tokio::test]
async fn the_wait_target_is_read_from_the_queue() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let queue = c.put("/v1/queues/q", r#"{"settings":{"wait_target":"30s"}}"#).await.ok(201);
    assert_eq!(queue["settings"]["wait_target"], "30s");
    c.submit("q", r#"{"type":"t"}"#).await;
    c.advance("30s").await;
    assert_eq!(codes(&mut c).await, ["no_worker"]);
    c.advance("5s").await;
    let found = items(&mut c).await;
    assert_eq!((&found[1]["code"], &found[1]["severity"]), (&json!("oldest_over_target"), &json!("warning")));
    assert_eq!(found[1]["since"], "2026-11-15T00:00:30.000Z");
    let since = "2026-11-15T00:00:00.000Z";
    let facts = json!({"oldest_scheduled_at": since, "wait_target": "30s", "age": "35s", "ready": 1});
    assert_eq!(found[1]["facts"], facts);
    let queue = c.put("/v1/queues/q", r#"{"settings":{"wait_target":null}}"#).await.ok(200);
    assert_eq!(queue["settings"]["wait_target"], Value::Null);
    assert_eq!(codes(&mut c).await, ["no_worker"]);
    c.put("/v1/queues/q", r#"{"settings":{"wait_target":"40000d"}}"#).await.problem(400, "validation");
    server.stop().await;
}

#[tokio::test]
async fn dead_letters_and_bursts_of_errors_end_by_themselves() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let settings = r#"{"settings":{"retry":{"on_permanent":"dead_letter"}}}"#;
    c.put("/v1/queues/q", settings).await.ok(201);
    for _ in 0..10 {
        c.submit("q", r#"{"type":"t"}"#).await;
        c.advance("1s").await;
        fail_next(&mut c, "q", "permanent").await;
    }
    let answer = until(&mut c, PATH, |answer| has(answer, "error_burst")).await;
    let found = answer["items"].as_array().unwrap();
    assert_eq!((&found[0]["code"], &found[1]["code"]), (&json!("error_burst"), &json!("dead_letters_growing")));
    let since = json!("2026-11-15T00:00:00.000Z");
    assert_eq!((&found[0]["since"], &found[1]["since"]), (&since, &since));
    assert_eq!(found[0]["facts"], json!({"failed": 10, "completed": 0, "share": 1.0, "window": "5m"}));
    assert_eq!(found[1]["facts"], json!({"count": 10, "growth": 10, "window": "15m"}));
    c.advance("6m").await;
    assert_eq!(codes(&mut c).await, ["dead_letters_growing"]);
    c.advance("10m").await;
    assert_eq!(codes(&mut c).await, [] as [String; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_tick_without_a_job_is_listed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/full", r#"{"settings":{"max_queued":1}}"#).await.ok(201);
    c.put("/v1/schedules/nightly", r#"{"every":"1m","queue":"full","job":{"type":"t"}}"#).await.ok(201);
    c.advance("1m").await;
    assert_eq!(codes(&mut c).await, [] as [String; 0]);
    c.advance("1m").await;
    let found = items(&mut c).await;
    let missed = found.iter().find(|item| item["code"] == "schedule_missed").unwrap();
    assert_eq!((&missed["queue"], &missed["since"]), (&json!("full"), &json!("2026-11-15T00:02:00.000Z")));
    assert_eq!((&missed["facts"]["schedule"], &missed["facts"]["outcome"]), (&json!("nightly"), &json!("refused")));
    assert_eq!(missed["action"]["path"], "/v1/schedules/nightly/trigger");
    c.post("/v1/schedules/nightly/pause", "").await.ok(200);
    c.advance("1m").await;
    assert!(!codes(&mut c).await.contains(&"schedule_missed".to_owned()));
    server.stop().await;
}

/// Private addresses are refused, so each delivery fails at once.
#[tokio::test]
async fn a_failing_endpoint_is_listed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let body = r#"{"url":"http://127.0.0.1:9/hook","events":["job.cancelled"]}"#;
    c.put("/v1/webhooks/crm", body).await.ok(201);
    for _ in 0..3 {
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        c.post(&format!("/v1/jobs/{id}/cancel"), "").await.ok(200);
    }
    let answer = until(&mut c, PATH, |answer| has(answer, "webhook_failing")).await;
    let item = &answer["items"][0];
    assert_eq!((&item["severity"], &item["queue"]), (&json!("warning"), &Value::Null));
    let facts = json!({"webhook": "crm", "failures": 3, "last_error": "address_not_allowed", "disabled": null});
    assert_eq!(item["facts"], facts);
    assert_eq!((&item["action"]["path"], &item["action"]["body"]), (&json!("/v1/webhooks/crm/test"), &Value::Null));
    c.post("/v1/webhooks/crm/test", "").await.ok(202);
    server.stop().await;
}

#[tokio::test]
async fn a_full_disk_is_listed() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(StoreOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let slow = Arc::new(Slow::new(Arc::new(store)));
    let server = Setup::memory().serve(slow.clone(), ServerClock::Real).await;
    let mut c = server.client().await;
    assert_eq!(codes(&mut c).await, [] as [String; 0], "the clock is its own");
    slow.set_health(StoreHealth { refusing: None, reserve_bytes: Some(1), free_bytes: Some(4_096) });
    assert_eq!(items(&mut c).await[0]["severity"], "warning");
    slow.set_health(StoreHealth { refusing: Some("full".to_owned()), reserve_bytes: Some(0), free_bytes: Some(0) });
    let full = items(&mut c).await[0].clone();
    assert_eq!((&full["code"], &full["severity"]), (&json!("disk_low"), &json!("error")));
    assert_eq!(full["facts"], json!({"free_bytes": 0, "reserve_bytes": 0, "refusing": "full"}));
    server.stop().await;
}
