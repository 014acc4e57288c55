//! Two servers on one schema: one of them works on an operation, and the other one takes over.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common::Client;
use crate::fleet::start_two;

async fn until(c: &mut Client, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let operation = c.get(&format!("/v1/operations/{id}")).await.ok(200);
        if holds(&operation) {
            return operation;
        }
        assert!(Instant::now() < deadline, "{operation}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn another_server_goes_on_and_no_job_is_treated_twice() {
    let [one, other] = start_two().await;
    let (mut c, mut d) = (one.client().await, other.client().await);
    let jobs = vec![json!({"type": "t"}); 200];
    c.post("/v1/queues/q/jobs", &Value::from(jobs).to_string()).await.ok(201);
    let body = json!({"action": "cancel", "filter": {"queue": "q"}, "rate": 100}).to_string();
    let started = c.post("/v1/operations", &body).await.ok(202);
    assert_eq!(started["matched"], 200);
    let id = started["id"].as_str().unwrap();
    until(&mut d, id, |operation| operation["changed"].as_u64() >= Some(30)).await;
    one.stop().await;
    let done = until(&mut d, id, |operation| operation["state"] == "done").await;
    assert_eq!((&done["changed"], &done["refused"], &done["remaining"]), (&json!(200), &json!(0), &json!(0)));
    assert_eq!(d.get("/v1/queues/q").await.ok(200)["counts"]["cancelled"], 200);
    other.stop().await;
}

/// Both servers look at the operation; every slice belongs to one of them.
#[tokio::test]
async fn two_servers_share_an_operation_without_conflict() {
    let [one, other] = start_two().await;
    let (mut c, mut d) = (one.client().await, other.client().await);
    let jobs = vec![json!({"type": "t"}); 1_000];
    c.post("/v1/queues/q/jobs", &Value::from(jobs).to_string()).await.ok(201);
    let body = json!({"action": "cancel", "filter": {"queue": "q", "type": "t"}, "canary": 5}).to_string();
    let id = d.post("/v1/operations", &body).await.ok(202)["id"].as_str().unwrap().to_owned();
    until(&mut c, &id, |operation| operation["state"] == "waiting").await;
    c.post(&format!("/v1/operations/{id}/continue"), "").await.ok(200);
    let done = until(&mut d, &id, |operation| operation["state"] == "done").await;
    assert_eq!((&done["changed"], &done["refused"]), (&json!(1_000), &json!(0)));
    c.post(&format!("/v1/operations/{id}/undo"), "").await.ok(202);
    let undone = until(&mut d, &id, |operation| operation["undo"]["state"] == "done").await;
    assert_eq!((&undone["undo"]["undone"], &undone["undo"]["kept"]), (&json!(1_000), &json!(0)));
    assert_eq!(d.get("/v1/queues/q").await.ok(200)["counts"]["scheduled"], 1_000);
    one.stop().await;
    other.stop().await;
}
