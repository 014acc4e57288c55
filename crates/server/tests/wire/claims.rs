//! Claims that wait.

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
    let reply = timeout(Duration::from_secs(20), c.reply()).await.expect("nobody was called");
    reply.unwrap().ok(200)["jobs"].as_array().unwrap().clone()
}

/// Waits until so many claims wait.
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

#[tokio::test]
async fn a_waiting_claim_is_woken_by_a_submission() {
    for setup in [Setup::memory(), Setup::memory().real_time()] {
        let server = setup.start().await;
        let mut c = server.client().await;
        let mut all = waiters(&server, &mut c, 1, WAITING).await;
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        assert_eq!(jobs(&mut all[0]).await[0]["id"], id.as_str());
        server.stop().await;
    }
}

/// Who waits longest is served first, one job calls one waiter, and nobody gets the same job.
#[tokio::test]
async fn waiting_claims_are_served_in_their_order() {
    if crate::common::on_postgres() {
        // Not promised there: a look of the node's own may let a later claim ask first (docs/postgresql.md).
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
async fn every_way_into_the_line_wakes() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let typed = r#"{"queues":["a","q"],"types":["t","u"],"wait":"60s"}"#;
    // Delayed, then due.
    let id = c.submit("q", r#"{"type":"t","delay":"1h"}"#).await;
    let mut all = waiters(&server, &mut c, 1, typed).await;
    c.submit("q", r#"{"type":"other"}"#).await;
    c.advance("1h").await;
    let job = jobs(&mut all[0]).await.remove(0);
    assert_eq!(job["id"], id.as_str());
    // Released by its worker.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let (_, token) = lease(&job);
    c.post(&format!("/v1/jobs/{id}/release"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let job = jobs(&mut all[0]).await.remove(0);
    // A retry without a wait.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let (_, token) = lease(&job);
    let fail = format!(r#"{{"lease":"{token}","error":{{"category":"temporary","retry_after":"0s"}}}}"#);
    c.post(&format!("/v1/jobs/{id}/fail"), &fail).await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], id.as_str());
    // Its lease runs out.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    c.advance("30s").await;
    assert_eq!(jobs(&mut all[0]).await[0]["id"], id.as_str());
    // Its queue is resumed.
    c.post("/v1/queues/q/pause", "").await.ok(200);
    let resumed = c.submit("q", r#"{"type":"u"}"#).await;
    let mut all = waiters(&server, &mut c, 1, typed).await;
    c.post("/v1/queues/q/resume", "").await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], resumed.as_str());
    // A job becomes one of the wanted type.
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let changed = c.submit("q", r#"{"type":"strange"}"#).await;
    c.patch(&format!("/v1/jobs/{changed}"), r#"{"type":"t"}"#).await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], changed.as_str());
    // Its dependency completes.
    let first = c.submit("other", r#"{"type":"t"}"#).await;
    let second = c.submit("q", &format!(r#"{{"type":"t","after":["{first}"]}}"#)).await;
    let mut all = waiters(&server, &mut c, 1, typed).await;
    let (_, token) = lease(&c.claim("other").await);
    c.post(&format!("/v1/jobs/{first}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(jobs(&mut all[0]).await[0]["id"], second.as_str());
    server.stop().await;
}

/// A batch wakes as many as it has work for, and the last of them calls on.
#[tokio::test]
async fn a_batch_is_shared_out() {
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
async fn nothing_came() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.send("POST", "/v1/claims", r#"{"queues":["q"],"wait":"30ms"}"#).await;
    assert!(jobs(&mut c).await.is_empty());
    c.post("/v1/claims", r#"{"queues":["q"],"wait":"60001ms"}"#).await.problem(400, "validation");
    server.stop().await;
}

/// A worker that hangs up while it waits takes no job with it: the job goes to the next worker at once. Where the answer was already on its way,
/// it does when the lease runs out.
#[tokio::test]
async fn a_job_is_not_lost_with_a_client_that_left() {
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

/// The store has already given the job when it turns out that nobody is there: it goes back, and nothing is counted.
#[tokio::test]
async fn a_job_that_nobody_takes_goes_back() {
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
    // The server notices by itself.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !c.get("/metrics").await.text().contains("longshore_connections 1\n") {
        assert!(Instant::now() < deadline, "it never noticed");
    }
    slow.let_go();
    loop {
        let history = c.get(&format!("/v1/jobs/{id}/history")).await.ok(200);
        // Its lease version is spent, and only that.
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
async fn one_job_and_a_thousand_waiters() {
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
