//! Overload: requests are refused by class while calls wait for the store.
//!
//! The store of these tests stands still, so that no test depends on time.

use std::sync::Arc;

use longshore_server::ServerClock;
use longshore_store::SystemClock;
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};

use crate::common::client::lease;
use crate::common::delayed_store::Slow;
use crate::common::{Client, Setup, TestServer};

const IN_FLIGHT_MAX: usize = 8;

async fn start() -> (TestServer, Arc<Slow>) {
    let clock = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(EmbeddedOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let slow = Arc::new(Slow::new(Arc::new(store)));
    let mut setup = Setup::memory();
    setup.limits.in_flight_max = IN_FLIGHT_MAX;
    (setup.serve(slow.clone(), ServerClock::Real).await, slow)
}

/// Sends submissions that wait for the store.
async fn submit_many(server: &TestServer, slow: &Slow, count: usize) -> Vec<Client> {
    let mut waiting = Vec::new();
    for _ in 0..count {
        let mut c = server.client().await;
        c.send("POST", "/v1/queues/q/jobs", r#"{"type":"t"}"#).await;
        waiting.push(c);
        slow.reached(waiting.len()).await;
    }
    waiting
}

fn value_of(exposition: &str, name: &str) -> u64 {
    let line = exposition.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} is missing"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn reads_give_way_first_then_submissions_and_workers_go_on() {
    let (server, slow) = start().await;
    let mut c = server.client().await;
    c.submit("work", r#"{"type":"t"}"#).await;
    let (id, token) = lease(&c.claim("work").await);
    slow.hold();
    let mut waiting = submit_many(&server, &slow, IN_FLIGHT_MAX / 2).await;
    let refused = c.get("/v1/jobs").await;
    let problem = refused.problem(503, "store_unavailable");
    assert_eq!(problem["retry"], "safe");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&seconds));
    assert_eq!(c.get("/queue").await.status, 503);

    let mut more = server.client().await;
    for number in waiting.len()..IN_FLIGHT_MAX {
        let mut c = server.client().await;
        c.send("POST", "/v1/queues/q/jobs", r#"{"type":"t"}"#).await;
        waiting.push(c);
        slow.reached(number + 1).await;
    }
    for (path, body) in [
        ("/v1/queues/q/jobs", r#"{"type":"t"}"#),
        ("/v1/queues/q/jobs", r#"[{"type":"t"}]"#),
        ("/v1/workflows", r#"{"jobs":[{"type":"t"}]}"#),
        ("/v1/queues/q/jobs", "is refused before it is parsed"),
    ] {
        more.post(path, body).await.problem(503, "store_unavailable");
    }
    // A large body is read to its end, so that the connection goes on.
    more.post("/v1/queues/q/jobs", &" ".repeat(300_000)).await.problem(503, "store_unavailable");

    // Workers, operators, probes and metrics are served.
    let body = format!(r#"{{"lease":"{token}"}}"#);
    c.post(&format!("/v1/jobs/{id}/heartbeat"), &body).await.ok(200);
    c.post(&format!("/v1/jobs/{id}/complete"), &body).await.ok(200);
    c.post("/v1/queues/work/pause", "{}").await.ok(200);
    c.get("/livez").await.ok(200);
    let metrics = c.get("/metrics").await;
    assert_eq!(value_of(metrics.text(), "longshore_store_calls_in_flight"), IN_FLIGHT_MAX as u64);
    let name = "longshore_http_requests_overload_refused_total";
    assert_eq!(value_of(metrics.text(), &format!("{name}{{class=\"read\"}}")), 2);
    assert_eq!(value_of(metrics.text(), &format!("{name}{{class=\"submit\"}}")), 5);
    assert_eq!(value_of(metrics.text(), &format!("{name}{{class=\"work\"}}")), 0);

    // What was admitted is stored, and everything is served again.
    slow.let_go();
    for c in &mut waiting {
        c.reply().await.unwrap().ok(201);
    }
    let listed = c.get("/v1/jobs?queue=q").await.ok(200);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), IN_FLIGHT_MAX, "a refused submission is not stored");
    more.submit("q", r#"{"type":"t"}"#).await;
    server.stop().await;
}

#[tokio::test]
async fn workers_are_refused_last() {
    let (server, slow) = start().await;
    slow.hold();
    let mut waiting = Vec::new();
    for number in 0..4 * IN_FLIGHT_MAX {
        let mut c = server.client().await;
        c.send("POST", "/v1/claims", r#"{"queues":["q"]}"#).await;
        waiting.push(c);
        slow.reached(number + 1).await;
    }
    let mut c = server.client().await;
    c.post("/v1/claims", r#"{"queues":["q"]}"#).await.problem(503, "store_unavailable");
    c.get("/livez").await.ok(200);
    slow.let_go();
    for c in &mut waiting {
        c.reply().await.unwrap().ok(200);
    }
    c.post("/v1/claims", r#"{"queues":["q"]}"#).await.ok(200);
    server.stop().await;
}

/// Claims that wait for jobs are no load: there may be as many as connections.
#[tokio::test]
async fn waiting_claims_are_no_load() {
    let (server, _slow) = start().await;
    let mut waiting = Vec::new();
    for number in 0..5 * IN_FLIGHT_MAX {
        let mut c = server.client().await;
        c.send("POST", "/v1/claims", &format!(r#"{{"queues":["q"],"worker":"w{number}","wait":"60s"}}"#)).await;
        waiting.push(c);
    }
    let mut c = server.client().await;
    loop {
        let metrics = c.get("/metrics").await;
        if value_of(metrics.text(), "longshore_waiting_claims") == waiting.len() as u64 {
            assert_eq!(value_of(metrics.text(), "longshore_store_calls_in_flight"), 0);
            break;
        }
    }
    let jobs = vec![r#"{"type":"t"}"#; waiting.len()].join(",");
    c.post("/v1/queues/q/jobs", &format!("[{jobs}]")).await.ok(201);
    for c in &mut waiting {
        assert_eq!(c.reply().await.unwrap().ok(200)["jobs"].as_array().unwrap().len(), 1);
    }
    server.stop().await;
}
