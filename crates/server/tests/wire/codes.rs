//! Every error code of the contract, with its status and retry advice.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::Timestamp;
use longshore_engine::EngineOptions;
use longshore_server::ServerClock;
use longshore_store::{Clock, SystemClock, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::faulty_store::{Fault, Faults, FaultyStore};
use longshore_testkit::memory_store::{Disk, MemoryStore};

use crate::common::Setup;
use crate::common::client::lease;
use crate::common::delayed_store::Slow;

#[tokio::test]
async fn every_error_code_is_reachable() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/w", r#"{"profile":"weave","settings":{"max_queued":1}}"#).await.ok(201);
    let first = c.submit("w", r#"{"type":"t","external_id":"x"}"#).await;
    let jobs = "/v1/queues/q/jobs";
    let cycle = r##"[{"type":"t","ref":"a","after":["#a"]}]"##;
    let chain: Vec<String> = (0..101)
        .map(|n| {
            if n == 0 {
                r#"{"type":"t","ref":"r0"}"#.to_owned()
            } else {
                format!(r##"{{"type":"t","ref":"r{n}","after":["#r{}"]}}"##, n - 1)
            }
        })
        .collect();
    let chain = format!("[{}]", chain.join(","));
    let wide: Vec<String> = (0..1_001).map(|n| format!("\"#r{n}\"")).collect();
    let members: Vec<String> = (0..999).map(|n| format!(r#"{{"type":"t","ref":"r{n}"}}"#)).collect();
    let broad = format!(r#"[{},{{"type":"t","after":[{}]}}]"#, members.join(","), wide.join(","));
    let cases: Vec<(&str, &str, &str, u16, &str)> = vec![
        ("POST", jobs, "{", 400, "bad_request"),
        ("POST", jobs, "{}", 400, "validation"),
        ("POST", jobs, cycle, 400, "dependency_cycle"),
        ("POST", jobs, r#"{"type":"t","after":["x"]}"#, 400, "dependency_unknown"),
        ("POST", jobs, &chain, 400, "dependency_depth"),
        ("GET", "/v1/queues/missing", "", 404, "queue_not_found"),
        ("GET", "/v1/jobs/missing", "", 404, "job_not_found"),
        ("GET", "/v1/nothing", "", 404, "not_found"),
        ("GET", "/v1/jobs/", "", 404, "not_found"),
        ("POST", "/v1/workflows/missing", "{}", 405, "method_not_allowed"),
        ("GET", "/v1/workflows/missing", "", 404, "workflow_not_found"),
        ("POST", "/v1/workers/missing/quiet", "{}", 404, "worker_not_found"),
        ("PUT", "/v1/claims", "{}", 405, "method_not_allowed"),
        ("POST", "/v1/queues/w/jobs", r#"{"type":"t","external_id":"x","hold":true}"#, 409, "duplicate_id"),
        ("POST", "/v1/queues/w/jobs", r#"{"type":"t"}"#, 429, "queue_full"),
        ("DELETE", "/v1/queues/w", "", 409, "illegal_transition"),
    ];
    for (method, path, body, status, code) in cases {
        let problem = c.call(method, path, (!body.is_empty()).then_some(body)).await.problem(status, code);
        let advice = if status == 429 { "safe" } else { "never" };
        assert_eq!(problem["retry"], advice, "{code}");
    }
    let reply = c.post(jobs, &broad).await;
    // Unknown dependencies are reported before the limit of their number.
    assert_eq!(reply.status, 400);
    let (_, token) = lease(&c.claim("w").await);
    c.post(&format!("/v1/jobs/{first}/complete"), r#"{"lease":"x"}"#).await.problem(409, "stale_lease");
    let large = format!(r#"{{"lease":"{token}","result":"{}"}}"#, "x".repeat(1 << 20));
    c.post(&format!("/v1/jobs/{first}/complete"), &large).await.problem(413, "payload_too_large");
    server.stop().await;
}

#[tokio::test]
async fn dependency_breadth_is_limited() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let batch = |jobs: usize| format!("[{}]", vec![r#"{"type":"t"}"#; jobs].join(","));
    let mut ids = Vec::new();
    for jobs in [1_000, 1] {
        let response = c.post("/v1/queues/q/jobs", &batch(jobs)).await.ok(201);
        ids.extend(response["jobs"].as_array().unwrap().iter().map(|job| job["id"].to_string()));
    }
    let dependent = |ids: &[String]| format!(r#"{{"type":"t","after":[{}]}}"#, ids.join(","));
    c.post("/v1/queues/q/jobs", &dependent(&ids)).await.problem(400, "dependency_breadth");
    c.post("/v1/queues/q/jobs", &dependent(&ids[1..])).await.ok(201);
    server.stop().await;
}

#[tokio::test]
async fn an_unsupported_method_gets_the_allowed_ones() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let reply = c.call("POST", "/v1/jobs/x", None).await;
    reply.problem(405, "method_not_allowed");
    let mut allowed: Vec<&str> = reply.header("allow").unwrap().split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["DELETE", "GET", "HEAD", "PATCH"]);
    let reply = c.call("OPTIONS", "/v1/claims", None).await;
    reply.problem(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("POST"));
    server.stop().await;
}

#[tokio::test]
async fn bodies_need_a_content_type() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let job = br#"{"type":"t"}"#;
    let refused = [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/jsonx\r\n",
        "Content-Type: application/problem+json\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
    ];
    for headers in refused {
        c.send_bytes("POST", "/v1/queues/q/jobs", headers, job).await;
        c.reply().await.unwrap().problem(415, "unsupported_media_type");
        c = server.client().await;
    }
    let accepted = [
        "Content-Type: application/json\r\n",
        "content-type: Application/JSON; charset=utf-8\r\n",
        "Content-Type: application/json ;x\r\n",
    ];
    for headers in accepted {
        c.send_bytes("POST", "/v1/queues/q/jobs", headers, job).await;
        c.reply().await.unwrap().ok(201);
    }
    // A request without a body needs no content type; any body needs one.
    c.send_bytes("POST", "/v1/queues/q/pause", "", b"").await;
    c.reply().await.unwrap().ok(200);
    c.send_bytes("POST", "/v1/queues/q/resume", "", b"{}").await;
    c.reply().await.unwrap().problem(415, "unsupported_media_type");
    server.stop().await;
}

#[tokio::test]
async fn a_full_queue_has_retry_after() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"max_queued":1}}"#).await.ok(201);
    c.submit("q", r#"{"type":"t"}"#).await;
    let reply = c.post("/v1/queues/q/jobs", r#"{"type":"t"}"#).await;
    reply.problem(429, "queue_full");
    assert!(reply.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    server.stop().await;
}

fn unreliable(faults: Faults) -> (Arc<FaultyStore>, ServerClock) {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(0)));
    let inner: Arc<dyn Clock> = clock.clone();
    let store = MemoryStore::open(Disk::new(EngineOptions::default()), inner);
    (Arc::new(FaultyStore::new(Arc::new(store), faults)), ServerClock::Virtual { clock, save: None })
}

/// The retry advice says whether the failed write may have been applied.
#[tokio::test]
async fn store_errors_have_their_retry_advice() {
    let (store, time) = unreliable(Faults::none());
    let server = Setup::memory().serve(store.clone(), time).await;
    let mut c = server.client().await;
    let job = r#"{"type":"t","idempotency_key":"k"}"#;
    for (fault, advice) in
        [(Fault::NotApplied, "safe"), (Fault::AnswerLost, "unknown"), (Fault::RequestLost, "unknown")]
    {
        store.set(Faults::scripted([fault]));
        let reply = c.post("/v1/queues/q/jobs", job).await;
        assert_eq!(reply.problem(503, "store_unavailable")["retry"], advice, "{fault:?}");
        assert!(reply.header("retry-after").is_some());
    }
    store.set(Faults::none());
    c.post("/v1/queues/q/jobs", job).await.ok(200);
    store.set(Faults::scripted([Fault::NotApplied]).including_reads());
    c.get("/v1/jobs").await.problem(503, "store_unavailable");
    c.get("/readyz").await.ok(200);
    store.set(Faults::scripted([Fault::NotApplied]).including_reads());
    c.get("/readyz").await.problem(503, "store_unavailable");
    store.set(Faults::scripted([Fault::NotApplied]).including_reads());
    assert_eq!(c.get("/v1/info").await.ok(200)["store"]["writable"], false);
    server.stop().await;
}

/// P14: a poisoned store stops the server, after all requests got their error.
#[tokio::test]
async fn a_poisoned_store_stops_the_server() {
    let (store, time) = unreliable(Faults::none());
    let server = Setup::memory().serve(store.clone(), time).await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    store.set(Faults::poison_after(0, false));
    // The first request gets "unknown", the second "not applied".
    for advice in ["unknown", "safe"] {
        let reply = c.post("/v1/queues/q/jobs", r#"{"type":"t"}"#).await;
        assert_eq!(reply.problem(503, "store_unavailable")["retry"], advice);
    }
    let ended = tokio::time::timeout(Duration::from_secs(5), server.stopped()).await.expect("within 5 s");
    assert!(ended.is_err(), "not as if all were well");
}

/// Proves G-4.3.
#[tokio::test]
async fn a_late_acknowledgement_is_a_submission_timeout() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(StoreOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let slow = Arc::new(Slow::new(Arc::new(store)));
    let mut setup = Setup::memory();
    setup.limits.submission_timeout = Duration::from_millis(50);
    let server = setup.serve(slow.clone(), ServerClock::Real).await;
    let mut c = server.client().await;
    slow.hold();
    let problem = c.post("/v1/queues/q/jobs", r#"{"type":"t"}"#).await.problem(504, "submission_timeout");
    assert_eq!(problem["retry"], "unknown");
    slow.let_go();
    c.submit("q", r#"{"type":"t"}"#).await;
    server.stop().await;
}
