//! Long-polling claims.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::ServerClock;
use longshore_store::{Clock, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use tokio::time::{Instant, timeout};

use crate::common::client::lease;
use crate::common::delayed_store::Slow;
use crate::common::{Client, Setup, TestServer};

const WAITING: &str = r#"{"queues":["q"],"worker":"w","wait":"60s"}"#;

async fn jobs(c: &mut Client) -> Vec<serde_json::Value> {
    let reply = timeout(Duration::from_secs(20), c.reply()).await.expect("no claim was answered");
    reply.unwrap().ok(200)["jobs"].as_array().unwrap().clone()
}

/// Waits until this many claims are parked.
async fn waiting(c: &mut Client, claims: usize) {
    let line = format!("longshore_waiting_claims {claims}\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !c.get("/metrics").await.text().contains(&line) {
        assert!(Instant::now() < deadline, "never {claims} waiting claims");
        tokio::task::yield_now().await;
    }
}

async fn waiters(server: &TestServer, c: &mut Client, count: usize, claim: &str) -> Vec<Client> {
    let mut all = Vec::new();
    for number in 0..count {
        let mut waiter = server.client().await;
        waiter.send("POST", "/v1/claims", claim).await;
        waiting(c, number + 1).await;
        all.push(waiter);
    }
    all
}

/// Ruling Limits of our own: the payloads of a claim are bounded, and what is not delivered is not
/// leased.
#[tokio::test]
async fn a_claim_is_bounded_in_bytes() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let payload = "x".repeat((1 << 20) - 2);
    let job = format!(r#"{{"type":"t","payload":"{payload}"}}"#);
    for _ in 0..2 {
        let jobs = [job.as_str(); 10].join(",");
        c.post("/v1/queues/q/jobs", &format!("[{jobs}]")).await.ok(201);
    }
    let counts = async |c: &mut Client| {
        let counts = c.get("/v1/queues/q").await.ok(200)["counts"].clone();
        (counts["running"].as_u64().unwrap(), counts["scheduled"].as_u64().unwrap())
    };
    let claim = r#"{"queues":["q"],"limit":1000}"#;
    let first = c.post("/v1/claims", claim).await.ok(200);
    assert_eq!(first["jobs"].as_array().unwrap().len(), 16);
    assert!(
        first["jobs"].as_array().unwrap().iter().all(|job| job["payload"].as_str().unwrap().len() == payload.len())
    );
    assert_eq!(counts(&mut c).await, (16, 4));
    // Settlements in the claim do not change its bound.
    let completion = |job: &serde_json::Value| serde_json::json!({"id": job["id"], "lease": job["lease"]["token"], "outcome": "complete"});
    let settled: Vec<_> = first["jobs"].as_array().unwrap().iter().take(2).map(completion).collect();
    let claim = serde_json::json!({"queues": ["empty", "q"], "limit": 1000, "settle": settled}).to_string();
    assert_eq!(c.post("/v1/claims", &claim).await.ok(200)["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(counts(&mut c).await, (18, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_submission_serves_a_waiting_claim() {
    for setup in [Setup::memory(), Setup::memory().real_time()] {
        let server = setup.start().await;
        let mut c = server.client().await;
        let mut all = waiters(&server, &mut c, 1, WAITING).await;
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        assert_eq!(jobs(&mut all[0]).await[0]["id"], id.as_str());
        server.stop().await;
    }
}

/// Claims are served in order of arrival, one job each, and no job is leased twice.
#[tokio::test]
async fn waiting_claims_are_served_in_order() {
    if crate::common::on_postgres() {
        // PostgreSQL does not guarantee the order (docs/postgresql.md).
        return;
    }
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let mut all = waiters(&server, &mut c, 20, WAITING).await;
    for (served, waiter) in all.iter_mut().enumerate() {
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        assert_eq!(jobs(waiter).await[0]["id"], id.as_str(), "waiter {served}");
    }
    server.stop().await;
}

#[tokio::test]
async fn every_transition_to_scheduled_serves_waiting_claims() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let typed = r#"{"queues":["a","q"],"types":["t","u"],"wait":"60s"}"#;
    // A delayed job is due.
    let id = c.submit("q", r#"{"type":"t","delay":"1h"}"#).await;
    let mut all = waiters(&server, &mut c, 1, typed).await;
    c.submit("q", r#"{"type":"other"}"#).await;
    c.advance("1h").await;
    let job = jobs(&mut all[0]).await.remove(0);
    assert_eq!(job["id"], id.as_str());
    // A worker releases the job.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let (_, token) = lease(&job);
    c.post(&format!("/v1/jobs/{id}/release"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let job = jobs(&mut all[0]).await.remove(0);
    // A retry without delay.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let (_, token) = lease(&job);
    let fail = format!(r#"{{"lease":"{token}","error":{{"category":"temporary","retry_after":"0s"}}}}"#);
    c.post(&format!("/v1/jobs/{id}/fail"), &fail).await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], id.as_str());
    // The lease expires.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    c.advance("30s").await;
    assert_eq!(jobs(&mut all[0]).await[0]["id"], id.as_str());
    // The queue is resumed.
    c.post("/v1/queues/q/pause", "").await.ok(200);
    let resumed = c.submit("q", r#"{"type":"u"}"#).await;
    let mut all = waiters(&server, &mut c, 1, typed).await;
    c.post("/v1/queues/q/resume", "").await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], resumed.as_str());
    // A job changes to a requested type.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let changed = c.submit("q", r#"{"type":"strange"}"#).await;
    c.patch(&format!("/v1/jobs/{changed}"), r#"{"type":"t"}"#).await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], changed.as_str());
    // The dependency completes.
    let first = c.submit("other", r#"{"type":"t"}"#).await;
    let second = c.submit("q", &format!(r#"{{"type":"t","after":["{first}"]}}"#)).await;
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let (_, token) = lease(&c.claim("other").await);
    c.post(&format!("/v1/jobs/{first}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], second.as_str());
    server.stop().await;
}

/// A batch serves as many waiting claims as it has jobs.
#[tokio::test]
async fn a_batch_serves_several_waiting_claims() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let mut all = waiters(&server, &mut c, 5, r#"{"queues":["q"],"limit":3,"wait":"60s"}"#).await;
    let batch = format!("[{}]", vec![r#"{"type":"t"}"#; 13].join(","));
    c.post("/v1/queues/q/jobs", &batch).await.ok(201);
    let mut seen = std::collections::HashSet::new();
    for waiter in &mut all {
        for job in jobs(waiter).await {
            assert!(seen.insert(job["id"].to_string()), "a job was given twice");
        }
    }
    assert_eq!(seen.len(), 13);
    server.stop().await;
}

#[tokio::test]
async fn a_claim_is_empty_after_its_wait() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.send("POST", "/v1/claims", r#"{"queues":["q"],"wait":"30ms"}"#).await;
    assert!(jobs(&mut c).await.is_empty());
    c.post("/v1/claims", r#"{"queues":["q"],"wait":"60001ms"}"#).await.problem(400, "validation");
    server.stop().await;
}

/// A worker that disconnects while it waits loses no job: the next worker gets it at once. If the
/// response was already written, the next worker gets it when the lease expires.
#[tokio::test]
async fn a_disconnected_client_loses_no_job() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let claim = r#"{"queues":["q"],"worker":"w","wait":"60s","lease":"200ms"}"#;
    for round in 0..30 {
        let mut all = waiters(&server, &mut c, 2, claim).await;
        let gone = all.remove(0);
        let id = match round % 3 {
            0 => {
                drop(gone);
                c.submit("q", r#"{"type":"t"}"#).await
            }
            1 => {
                let leaving = tokio::spawn(async move { drop(gone) });
                let id = c.submit("q", r#"{"type":"t"}"#).await;
                leaving.await.unwrap();
                id
            }
            _ => {
                let id = c.submit("q", r#"{"type":"t"}"#).await;
                drop(gone);
                id
            }
        };
        let job = jobs(&mut all[0]).await.remove(0);
        assert_eq!(job["id"], id.as_str());
        c.post(&format!("/v1/jobs/{id}/cancel"), r#"{"force":true}"#).await.ok(200);
    }
    server.stop().await;
}

/// The client is gone when the store grants the job: the lease is released, and nothing is counted.
#[tokio::test]
async fn an_undelivered_job_is_released() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(StoreOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let slow = Arc::new(Slow::new(Arc::new(store)));
    let server = Setup::memory().serve(slow.clone(), ServerClock::Real).await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    slow.hold();
    let mut gone = server.client().await;
    gone.send("POST", "/v1/claims", r#"{"queues":["q"]}"#).await;
    slow.reached(1).await;
    drop(gone);
    // The server detects the disconnect.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !c.get("/metrics").await.text().contains("longshore_connections 1\n") {
        assert!(Instant::now() < deadline, "it never noticed");
    }
    slow.let_go();
    loop {
        let history = c.get(&format!("/v1/jobs/{id}/history")).await.ok(200);
        // Only the lease version is used.
        let job = c.job(&id).await;
        if history["history"].as_array().unwrap().last().unwrap()["cause"] == "release" {
            assert_eq!((&job["counters"]["starts"], &job["state"]), (&0.into(), &"scheduled".into()));
            break;
        }
        assert!(Instant::now() < deadline, "it never went back: {history}");
    }
    assert_eq!(c.claim("q").await["lease"]["version"], 2);
    server.stop().await;
}

/// F24: one job, many waiting claims: one grant.
#[tokio::test]
async fn one_job_serves_one_of_a_thousand_claims() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let mut all = Vec::new();
    for _ in 0..1_000 {
        let mut waiter = server.client().await;
        waiter.send("POST", "/v1/claims", r#"{"queues":["q"],"wait":"8s"}"#).await;
        all.push(waiter);
    }
    waiting(&mut c, 1_000).await;
    c.submit("q", r#"{"type":"t"}"#).await;
    waiting(&mut c, 999).await;
    let mut given = 0;
    for waiter in &mut all {
        given += jobs(waiter).await.len();
    }
    assert_eq!(given, 1);
    server.stop().await;
}
