//! Workers: what they advertise, and directives of operators.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::common::client::lease;
use crate::common::{Client, Setup};

async fn claim(c: &mut Client, claim: Value) -> Value {
    timeout(Duration::from_secs(20), c.post("/v1/claims", &claim.to_string())).await.expect("it waited").ok(200)
}

/// Rules Workers, small print.
#[tokio::test]
async fn a_worker_is_listed_with_what_it_advertises() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert_eq!(c.get("/v1/workers").await.ok(200)["workers"], json!([]));
    c.submit("q", r#"{"type":"a"}"#).await;
    let asked = json!({"queues": ["q", "r"], "worker": "w/1", "types": ["a", "b"], "version": "1.4.0"});
    let answer = claim(&mut c, asked).await;
    assert_eq!((&answer["directive"], answer["jobs"].as_array().unwrap().len()), (&json!("run"), 1));
    let expected = json!({
        "name": "w/1",
        "directive": "run",
        "version": "1.4.0",
        "types": ["a", "b"],
        "queues": ["q", "r"],
        "running": 1,
        "waiting": 0,
        "last_seen_at": "2026-11-15T00:00:00.000Z",
    });
    assert_eq!(c.get("/v1/workers").await.ok(200)["workers"], json!([expected]));
    // A claim without a version and types: all types.
    claim(&mut c, json!({"queues": ["q"], "worker": "w/1"})).await;
    let worker = c.get("/v1/workers").await.ok(200)["workers"][0].clone();
    assert_eq!((&worker["version"], &worker["types"]), (&json!(null), &json!([])));
    for (version, field) in [("", "version"), (&*"v".repeat(129), "version")] {
        let claim = json!({"queues": ["q"], "version": version}).to_string();
        assert_eq!(c.post("/v1/claims", &claim).await.problem(400, "validation")["field"], field);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_quiet_worker_settles_and_heartbeats_and_gets_no_jobs() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for _ in 0..3 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    let (id, token) = lease(&c.claim("q").await);
    let beat = format!(r#"{{"lease":"{token}"}}"#);
    let beats = format!(r#"{{"heartbeats":[{{"id":"{id}","lease":"{token}"}}]}}"#);
    for (verb, directive) in [("quiet", "quiet"), ("stop", "stop")] {
        let worker = c.post(&format!("/v1/workers/w1/{verb}"), "").await.ok(200);
        assert_eq!((&worker["name"], &worker["directive"]), (&json!("w1"), &json!(directive)));
        let answer = claim(&mut c, json!({"queues": ["q"], "worker": "w1", "wait": "60s"})).await;
        assert_eq!((&answer["jobs"], &answer["directive"]), (&json!([]), &json!(directive)));
        let extended = c.post(&format!("/v1/jobs/{id}/heartbeat"), &beat).await.ok(200);
        assert_eq!(extended["directive"], directive);
        let extended = c.post("/v1/heartbeats", &beats).await.ok(200);
        assert_eq!((&extended["directive"], extended.get("now").is_some()), (&json!(directive), true));
        assert!(extended["results"][0].get("directive").is_none(), "{extended}");
    }
    // Another worker, and a claim without a name, are not concerned.
    let other = claim(&mut c, json!({"queues": ["q"], "worker": "w2"})).await;
    assert_eq!((&other["directive"], other["jobs"].as_array().unwrap().len()), (&json!("run"), 1));
    assert_eq!(claim(&mut c, json!({"queues": ["q"], "limit": 1})).await["directive"], "run");
    let settle = json!([{"id": id, "lease": token, "outcome": "complete"}]);
    let answer = claim(&mut c, json!({"queues": ["q"], "worker": "w1", "settle": settle})).await;
    assert_eq!((&answer["results"][0]["state"], &answer["jobs"]), (&json!("completed"), &json!([])));
    assert_eq!(c.post("/v1/workers/w1/resume", "{}").await.ok(200)["directive"], "run");
    server.stop().await;
}

/// A parked claim of a worker that becomes quiet returns at once; later jobs are not for it.
#[tokio::test]
async fn a_directive_ends_the_waiting_claims_of_its_worker() {
    for setup in [Setup::memory(), Setup::memory().real_time()] {
        let server = setup.start().await;
        let mut c = server.client().await;
        let mut waiting = server.client().await;
        waiting.send("POST", "/v1/claims", r#"{"queues":["q"],"worker":"w","wait":"60s"}"#).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while !c.get("/metrics").await.text().contains("longshore_waiting_claims 1\n") {
            assert!(Instant::now() < deadline, "the claim never waits");
        }
        c.post("/v1/workers/w/quiet", "").await.ok(200);
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        let reply = timeout(Duration::from_secs(20), waiting.reply()).await.expect("the claim still waits");
        let answer = reply.unwrap().ok(200);
        assert_eq!((&answer["jobs"], &answer["directive"]), (&json!([]), &json!("quiet")));
        assert_eq!(c.job(&id).await["counters"]["starts"], 0);
        let history = c.get(&format!("/v1/jobs/{id}/history")).await.ok(200);
        assert_eq!(history["history"].as_array().unwrap().len(), 2, "{history}");
        server.stop().await;
    }
}

#[tokio::test]
async fn only_workers_seen_within_a_day_have_directives() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for verb in ["quiet", "stop", "resume"] {
        let problem = c.post(&format!("/v1/workers/unseen-1/{verb}"), "").await.problem(404, "worker_not_found");
        assert!(problem["detail"].as_str().unwrap().contains("unseen-1"), "{problem}");
    }
    c.post("/v1/workers/w/explode", "").await.problem(404, "not_found");
    claim(&mut c, json!({"queues": ["q"], "worker": "a b%"})).await;
    assert_eq!(c.post("/v1/workers/a%20b%25/quiet", "").await.ok(200)["name"], "a b%");
    c.advance("24h").await;
    c.post("/v1/workers/a%20b%25/stop", "").await.ok(200);
    c.advance("1ms").await;
    c.post("/v1/workers/a%20b%25/resume", "").await.problem(404, "worker_not_found");
    assert_eq!(c.get("/v1/workers").await.ok(200)["workers"], json!([]));
    // The directive stays.
    assert_eq!(claim(&mut c, json!({"queues": ["q"], "worker": "a b%"})).await["directive"], "stop");
    server.stop().await;
}

/// `why` names the type that no worker claims.
#[tokio::test]
async fn why_says_that_no_worker_claims_the_type() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"rare"}"#).await;
    let why = async |c: &mut Client| {
        let why = c.get(&format!("/v1/jobs/{id}/why")).await.ok(200);
        why["reasons"].as_array().unwrap().iter().find(|reason| reason["code"] == "no_worker").cloned()
    };
    assert_eq!(why(&mut c).await.unwrap()["types"], json!(["rare"]));
    claim(&mut c, json!({"queues": ["q"], "worker": "w", "types": ["common"]})).await;
    let reason = why(&mut c).await.unwrap();
    assert_eq!((&reason["types"], reason["last_seen_at"].is_string()), (&json!(["rare"]), true));
    claim(&mut c, json!({"queues": ["other"], "worker": "w"})).await;
    assert!(why(&mut c).await.is_some(), "another queue");
    c.post("/v1/workers/w/quiet", "").await.ok(200);
    claim(&mut c, json!({"queues": ["q"], "worker": "w", "types": ["rare"]})).await;
    assert!(why(&mut c).await.is_some(), "a quiet worker claims nothing");
    let mut waiting = server.client().await;
    c.post("/v1/queues/q/pause", "").await.ok(200);
    waiting.send("POST", "/v1/claims", r#"{"queues":["q"],"types":["rare"],"wait":"60s"}"#).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while why(&mut c).await.is_some() {
        assert!(Instant::now() < deadline, "the waiting claim is not seen");
    }
    server.stop().await;
}

/// Every listed action succeeds; see the transition table for every state and profile.
#[tokio::test]
async fn a_job_lists_its_legal_actions() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let actions = async |c: &mut Client, id: &str| c.job(id).await["actions"].clone();
    let held = c.submit("q", r#"{"type":"t","hold":true}"#).await;
    assert_eq!(actions(&mut c, &held).await, json!(["submit", "cancel", "dead_letter", "edit"]));
    let delayed = c.submit("q", r#"{"type":"t","delay":"1h"}"#).await;
    assert_eq!(actions(&mut c, &delayed).await, json!(["cancel", "run_now", "dead_letter", "edit"]));
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    assert_eq!(actions(&mut c, &id).await, json!(["cancel", "dead_letter", "edit"]));
    let dependent = c.submit("q", &format!(r#"{{"type":"t","after":["{id}"]}}"#)).await;
    c.claim("q").await;
    assert_eq!(actions(&mut c, &id).await, json!(["cancel", "force_cancel", "dead_letter", "edit"]));
    c.post(&format!("/v1/jobs/{id}/cancel"), r#"{"force":true}"#).await.ok(200);
    assert_eq!(actions(&mut c, &id).await, json!(["requeue", "delete"]));
    // Its dependency must be requeued first.
    assert_eq!(actions(&mut c, &dependent).await, json!(["delete"]));
    c.post(&format!("/v1/jobs/{dependent}/requeue"), "").await.problem(409, "illegal_transition");
    let listed = c.get("/v1/jobs?fields=id,actions&state=cancelled").await.ok(200);
    assert_eq!(
        listed["jobs"],
        json!([
            {"id": dependent, "actions": ["delete"]},
            {"id": id, "actions": ["requeue", "delete"]},
        ])
    );
    c.post(&format!("/v1/jobs/{id}/requeue"), "").await.ok(200);
    server.stop().await;
}
