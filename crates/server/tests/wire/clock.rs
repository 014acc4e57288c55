//! Virtual time.

use serde_json::json;

use crate::common::Setup;
use crate::common::client::lease;

#[tokio::test]
async fn virtual_time_stands_still_until_an_advance() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert_eq!(c.get("/v1/clock").await.ok(200), json!({"now": "2026-11-15T00:00:00.000Z"}));
    assert_eq!(c.advance("1d500ms").await, json!({"now": "2026-11-16T00:00:00.500Z"}));
    assert_eq!(c.post("/v1/clock/advance", r#"{"by":1.5}"#).await.ok(200), json!({"now": "2026-11-16T00:00:02.000Z"}));
    assert_eq!(c.advance("0s").await, json!({"now": "2026-11-16T00:00:02.000Z"}));
    for bad in ["{}", r#"{"by":"-1s"}"#, r#"{"by":null}"#, r#"{"by":"1s","to":1}"#, r#"{"by":"36501d"}"#] {
        c.post("/v1/clock/advance", bad).await.problem(400, "validation");
    }
    c.post("/v1/clock/advance", "").await.problem(400, "bad_request");
    for _ in 0..100 {
        c.advance("36500d").await;
    }
    assert_eq!(c.get("/v1/clock").await.ok(200), json!({"now": "9999-12-30T22:00:00.999Z"}), "the end of the calendar");
    server.stop().await;
}

#[tokio::test]
async fn real_time_cannot_be_advanced() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    c.get("/v1/clock").await.problem(404, "not_found");
    c.post("/v1/clock/advance", r#"{"by":"1s"}"#).await.problem(404, "not_found");
    // The routes exist: another method gets the list of those that they have.
    for (path, allow) in [("/v1/clock", "GET,HEAD"), ("/v1/clock/advance", "POST")] {
        let refused = c.call("TRACE", path, None).await;
        assert_eq!(refused.header("allow"), Some(allow), "{path}");
        refused.problem(405, "method_not_allowed");
    }
    server.stop().await;
}

/// An advance processes all deadlines in order, each at its own time.
#[tokio::test]
async fn an_advance_ticks_at_each_deadline() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"retention":{"dead_letter":"1h"},"lifetime":"50m"}}"#).await.ok(201);
    let id = c.submit("q", r#"{"type":"t","delay":"10m"}"#).await;
    c.advance("12m").await;
    let job = c.claim("q").await;
    assert_eq!(job["lease"]["expires_at"], "2026-11-15T00:12:30.000Z");
    c.advance("97m").await;
    c.get(&format!("/v1/jobs/{id}")).await.ok(200);
    let history = c.get(&format!("/v1/jobs/{id}/history")).await.ok(200);
    let steps: Vec<String> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| format!("{} {}", &step["at"].as_str().unwrap()[11..19], step["cause"].as_str().unwrap()))
        .collect();
    assert_eq!(
        steps,
        [
            "00:00:00 create",
            "00:00:00 submit",
            "00:10:00 due",
            "00:12:00 claim",
            "00:12:30 lease_expired",
            "00:50:00 lifetime"
        ]
    );
    // Retention is last.
    c.advance("1m").await;
    c.get(&format!("/v1/jobs/{id}")).await.problem(404, "job_not_found");
    server.stop().await;
}

/// A parked claim is served after an advance, never during it, when its lease could expire.
#[tokio::test]
async fn claims_are_served_after_an_advance() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for minutes in 1..=20 {
        c.submit("q", &format!(r#"{{"type":"t","delay":"{minutes}m"}}"#)).await;
    }
    let mut waiter = server.client().await;
    waiter.send("POST", "/v1/claims", r#"{"queues":["q"],"limit":1000,"wait":"60s"}"#).await;
    c.advance("20m").await;
    let jobs = waiter.reply().await.unwrap().ok(200)["jobs"].as_array().unwrap().clone();
    assert_eq!(jobs.len(), 20, "none was given on the way");
    assert!(jobs.iter().all(|job| job["lease"]["expires_at"] == "2026-11-15T00:20:30.000Z"));
    server.stop().await;
}

/// Work that a command makes due is done before the response.
#[tokio::test]
async fn a_retry_without_delay_is_scheduled_before_the_response() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"retry":{"backoff":{"kind":"constant","base":"0s"}}}}"#).await.ok(201);
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let fail = format!(r#"{{"lease":"{token}","error":{{"category":"temporary"}}}}"#);
    assert_eq!(c.post(&format!("/v1/jobs/{id}/fail"), &fail).await.ok(200)["state"], "retrying");
    assert_eq!(c.state(&id).await, "scheduled");
    server.stop().await;
}

/// A cascade that exceeds the limit of one command is done before the response too.
#[tokio::test]
async fn long_cascades_finish_before_the_response() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let first = c.submit("q", r#"{"type":"first"}"#).await;
    let batch = format!("[{}]", vec![format!(r#"{{"type":"t","after":["{first}"]}}"#); 1_000].join(","));
    for _ in 0..3 {
        c.post("/v1/queues/q/jobs", &batch).await.ok(201);
    }
    c.post(&format!("/v1/jobs/{first}/cancel"), "").await.ok(200);
    let queue = c.get("/v1/queues/q").await.ok(200);
    assert_eq!((&queue["counts"]["cancelled"], &queue["counts"]["pending"]), (&3_001.into(), &0.into()));
    server.stop().await;
}

/// The same in real time, by ticks.
#[tokio::test]
async fn in_real_time_ticks_finish_a_cascade() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let first = c.submit("q", r#"{"type":"first"}"#).await;
    let batch = format!("[{}]", vec![format!(r#"{{"type":"t","after":["{first}"]}}"#); 1_000].join(","));
    for _ in 0..3 {
        c.post("/v1/queues/q/jobs", &batch).await.ok(201);
    }
    let newest = c.get("/v1/jobs?limit=1").await.ok(200)["jobs"][0]["id"].as_str().unwrap().to_owned();
    c.post(&format!("/v1/jobs/{first}/cancel"), "").await.ok(200);
    assert_eq!(c.get(&format!("/v1/jobs/{newest}/wait?timeout=60s")).await.ok(200)["state"], "cancelled");
    server.stop().await;
}

/// In real time the ticker promotes delayed jobs.
#[tokio::test]
async fn in_real_time_delayed_jobs_are_promoted() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"lease":"60ms","retention":{"cancelled":"50ms"}}}"#).await.ok(201);
    let id = c.submit("q", r#"{"type":"t","delay":"50ms"}"#).await;
    let claim = r#"{"queues":["q"],"wait":"20s"}"#;
    assert_eq!(c.post("/v1/claims", claim).await.ok(200)["jobs"][0]["lease"]["version"], 1);
    assert_eq!(c.post("/v1/claims", claim).await.ok(200)["jobs"][0]["lease"]["version"], 2, "its lease ran out");
    c.post(&format!("/v1/jobs/{id}/cancel"), r#"{"force":true}"#).await.ok(200);
    // Retention has no announced deadline, but is applied.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while c.get(&format!("/v1/jobs/{id}")).await.status != 404 {
        assert!(tokio::time::Instant::now() < deadline, "never pruned");
    }
    server.stop().await;
}
