//! Two servers on one schema: each shows the changes of the other.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::ServerClock;
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::postgres::{new_schema, shared_url};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common::client::lease;
use crate::common::{Client, Setup, TestServer};

pub(crate) async fn start_two() -> [TestServer; 2] {
    let schema = new_schema();
    let start = async || {
        let options = PostgresOptions { schema: schema.clone(), writers: 1, ..PostgresOptions::new(shared_url()) };
        let store = PostgresStore::start(options, tokio::runtime::Handle::current()).await.unwrap();
        Setup::memory().real_time().serve(Arc::new(store), ServerClock::Real).await
    };
    [start().await, start().await]
}

async fn worker(client: &mut Client) -> Value {
    client.get("/v1/workers").await.ok(200)["workers"][0].clone()
}

#[tokio::test]
async fn a_job_that_another_server_completes_is_not_running() {
    let [one, other] = start_two().await;
    let (mut c, mut d) = (one.client().await, other.client().await);
    c.submit("q", r#"{"type":"t"}"#).await;
    let (id, token) = lease(&c.claim("q").await);
    assert_eq!(worker(&mut c).await["running"], 1);
    d.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(worker(&mut c).await["running"], 0);
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_heartbeat_at_another_server_is_seen_by_both() {
    let [one, other] = start_two().await;
    let (mut c, mut d) = (one.client().await, other.client().await);
    c.submit("q", r#"{"type":"t"}"#).await;
    let (id, token) = lease(&c.claim("q").await);
    d.post(&format!("/v1/jobs/{id}/heartbeat"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let heartbeat = c.job(&id).await["last_heartbeat_at"].clone();
    for client in [&mut c, &mut d] {
        let worker = worker(client).await;
        assert_eq!((&worker["name"], &worker["running"]), (&json!("w1"), &json!(1)));
        assert!(worker["last_seen_at"].as_str() >= heartbeat.as_str(), "{worker} was seen at {heartbeat}");
    }
    one.stop().await;
    other.stop().await;
}

/// Waits until a condition on the answer of a request holds.
async fn until(c: &mut Client, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = c.get(path).await.ok(200);
        if holds(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Each server lists the workers of both, and a directive reaches a worker through any of them.
#[tokio::test]
async fn workers_and_directives_are_shared() {
    let [one, other] = start_two().await;
    let (mut c, mut d) = (one.client().await, other.client().await);
    let mut waiting = one.client().await;
    let parked = r#"{"queues":["q"],"worker":"w","version":"7","types":["t"],"wait":"60s"}"#;
    waiting.send("POST", "/v1/claims", parked).await;
    let seen = until(&mut d, "/v1/workers", |answer| answer["workers"][0]["name"] == "w").await;
    let worker = &seen["workers"][0];
    assert_eq!((&worker["version"], &worker["types"], &worker["queues"]), (&json!("7"), &json!(["t"]), &json!(["q"])));
    let set = d.post("/v1/workers/w/stop", "").await.ok(200);
    assert_eq!((&set["name"], &set["directive"]), (&json!("w"), &json!("stop")));
    let reply = tokio::time::timeout(Duration::from_secs(20), waiting.reply()).await.expect("the claim still waits");
    let answer = reply.unwrap().ok(200);
    assert_eq!((&answer["jobs"], &answer["directive"]), (&json!([]), &json!("stop")));
    c.submit("q", r#"{"type":"t"}"#).await;
    for client in [&mut c, &mut d] {
        let answer = client.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.ok(200);
        assert_eq!((&answer["jobs"], &answer["directive"]), (&json!([]), &json!("stop")));
    }
    c.post("/v1/workers/w/resume", "").await.ok(200);
    until(&mut d, "/v1/workers", |answer| answer["workers"][0]["directive"] == "run").await;
    let answer = d.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.ok(200);
    assert_eq!(answer["jobs"].as_array().unwrap().len(), 1);
    let counted = |answer: &Value| answer["workers"][0]["running"] == 1;
    until(&mut c, "/v1/workers", counted).await;
    until(&mut d, "/v1/workers", counted).await;
    one.stop().await;
    other.stop().await;
}
