//! Two servers on one schema: each shows the changes of the other.

use std::sync::Arc;

use longshore_server::ServerClock;
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::postgres::{new_schema, shared_url};
use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup, TestServer};

async fn start_two() -> [TestServer; 2] {
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
    assert_eq!(worker(&mut d).await, json!(null));
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
