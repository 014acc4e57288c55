//! Queues.

use serde_json::json;

use crate::common::Setup;

#[tokio::test]
async fn a_queue_is_created_changed_and_deleted() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let made = c.put("/v1/queues/mail", r#"{"profile":"gopherqueue","settings":{"lease":"1m30s"}}"#).await.ok(201);
    assert_eq!((&made["name"], &made["profile"]), (&"mail".into(), &"gopherqueue".into()));
    assert_eq!(made["settings"]["lease"], "1m30s");
    assert_eq!(made["settings"]["lifetime"], "7d");
    assert_eq!(made["settings"]["retry"]["limit"], 3);
    assert_eq!(made["counts"].as_object().unwrap().len(), 9);
    assert!(made["oldest_scheduled_at"].is_null());
    // Settings replace all earlier overrides; a request without settings keeps them.
    let kept = c.put("/v1/queues/mail", "{}").await.ok(200);
    assert_eq!(kept["settings"]["lease"], "1m30s");
    let replaced = c.put("/v1/queues/mail", r#"{"settings":{"retry":{"backoff":{"base":5}}}}"#).await.ok(200);
    assert_eq!(replaced["settings"]["lease"], "5m");
    assert_eq!(replaced["settings"]["retry"]["backoff"]["base"], "5s");
    assert_eq!(replaced["settings"]["retry"]["backoff"]["kind"], "exponential");
    // A new profile removes overrides that are not repeated.
    let other = c.put("/v1/queues/mail", r#"{"profile":"weave"}"#).await.ok(200);
    assert_eq!(other["settings"]["retry"]["backoff"]["base"], "500ms");
    let all = c.get("/v1/queues").await.ok(200);
    let names: Vec<_> = all["queues"].as_array().unwrap().iter().map(|queue| queue["name"].clone()).collect();
    assert_eq!(names, ["default", "mail"]);
    assert_eq!(c.get("/v1/queues/mail").await.ok(200), other);
    assert_eq!(c.delete("/v1/queues/mail").await.status, 204);
    c.get("/v1/queues/mail").await.problem(404, "queue_not_found");
    c.delete("/v1/queues/mail").await.problem(404, "queue_not_found");
    c.delete("/v1/queues/default").await.problem(409, "illegal_transition");
    server.stop().await;
}

#[tokio::test]
async fn an_empty_body_is_an_empty_object() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.call("PUT", "/v1/queues/a", None).await.ok(201);
    c.call("POST", "/v1/queues/a/pause", None).await.ok(200);
    c.post("/v1/queues/a/resume", "{}").await.ok(200);
    c.post("/v1/queues/a/pause", r#"{"force":true}"#).await.problem(400, "validation");
    server.stop().await;
}

/// For every profile, also with locked settings.
#[tokio::test]
async fn settings_of_a_response_are_valid_in_a_request() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for profile in ["standard", "gopherqueue", "taskharbor", "ocypod", "weave", "document"] {
        let path = format!("/v1/queues/q-{profile}");
        let mut made = c.put(&path, &format!(r#"{{"profile":"{profile}"}}"#)).await.ok(201);
        let mut again = c.put(&path, &format!(r#"{{"settings":{}}}"#, made["settings"])).await.ok(200);
        // The queue has the same settings, now as overrides.
        assert_ne!(made["overrides"].take(), again["overrides"].take());
        assert_eq!(made, again);
    }
    c.put("/v1/queues/q-document", r#"{"settings":{"retry":{"limit":9}}}"#).await.problem(400, "validation");
    c.put("/v1/queues/q-document", r#"{"settings":{"fencing":"optional"}}"#).await.problem(400, "validation");
    server.stop().await;
}

#[tokio::test]
async fn pausing_stops_only_claims() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", "{}").await.ok(201);
    assert_eq!(c.post("/v1/queues/q/pause", "").await.ok(200)["paused"], true);
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let none = c.post("/v1/claims", r#"{"queues":["q"]}"#).await.ok(200);
    assert_eq!(none["jobs"].as_array().unwrap().len(), 0);
    assert_eq!(c.post("/v1/queues/q/resume", "").await.ok(200)["paused"], false);
    assert_eq!(c.claim("q").await["id"], id.as_str());
    c.post("/v1/queues/missing/pause", "").await.problem(404, "queue_not_found");
    server.stop().await;
}

#[tokio::test]
async fn deleting_a_queue_with_jobs_needs_force() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let problem = c.delete("/v1/queues/q").await.problem(409, "illegal_transition");
    assert_eq!(problem["detail"], "the queue holds 1 job that has not ended; set force=true to cancel and delete");
    c.submit("q", r#"{"type":"t","hold":true}"#).await;
    c.delete("/v1/queues/q?force=false").await.problem(409, "illegal_transition");
    c.delete("/v1/queues/q?force=yes").await.problem(400, "validation");
    c.delete("/v1/queues/q?forced=true").await.problem(400, "validation");
    assert_eq!(c.delete("/v1/queues/q?force=true").await.status, 204);
    let job = c.job(&id).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&"cancelled".into(), &"queue_deleted".into()));
    server.stop().await;
}

#[tokio::test]
async fn without_auto_queues_unknown_queues_are_rejected() {
    let mut setup = Setup::memory();
    setup.auto_queues = false;
    let server = setup.start().await;
    let mut c = server.client().await;
    c.post("/v1/queues/new/jobs", r#"{"type":"t"}"#).await.problem(404, "queue_not_found");
    c.post("/v1/claims", r#"{"queues":["default","new"]}"#).await.problem(404, "queue_not_found");
    c.post("/v1/claims", r#"{"queues":["new"],"wait":"10s"}"#).await.problem(404, "queue_not_found");
    c.submit("default", r#"{"type":"t"}"#).await;
    server.stop().await;
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert_eq!(c.post("/v1/claims", r#"{"queues":["new"]}"#).await.ok(200)["jobs"].as_array().unwrap().len(), 0);
    c.get("/v1/queues/new").await.problem(404, "queue_not_found");
    server.stop().await;
}

#[tokio::test]
async fn a_queue_shows_its_own_settings_and_the_locks_of_its_profile() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let settings = json!({"retry": {"backoff": {"cap": "1m"}}, "lease": "0s", "max_queued": null});
    let put = json!({"settings": settings}).to_string();
    let queue = c.put("/v1/queues/q", &put).await.ok(201);
    assert_eq!((&queue["overrides"], &queue["locked"]), (&settings, &json!([])));
    assert_eq!(c.put("/v1/queues/q", "{}").await.ok(200)["overrides"], settings, "absent settings stay");
    // A change of one setting: the overrides with that change.
    let mut changed = queue["overrides"].clone();
    changed["lifetime"] = json!("1h");
    assert_eq!(c.put("/v1/queues/q", &json!({"settings": changed}).to_string()).await.ok(200)["overrides"], changed);
    assert_eq!(c.get("/v1/queues/default").await.ok(200)["overrides"], json!({}));
    let locked = json!(["retry", "on_lease_expiry", "fencing", "manual_requeue", "submit", "delayed_start"]);
    let document = c.put("/v1/queues/q", r#"{"profile":"document"}"#).await.ok(200);
    assert_eq!((&document["overrides"], &document["locked"]), (&json!({}), &locked), "a new profile drops overrides");
    server.stop().await;
}
