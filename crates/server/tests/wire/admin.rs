//! Commands on jobs.

use serde_json::{Value, json};

use crate::common::Setup;
use crate::common::client::lease;

#[tokio::test]
async fn patch_changes_fields_of_a_job() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t","tags":{"a":"1"},"correlation_id":"c","callback_url":"http://u"}"#).await;
    let path = format!("/v1/jobs/{id}");
    let job = c
        .patch(&path, r#"{"priority":"critical","type":"u","tags":["x"],"correlation_id":null,"retry":{"limit":5}}"#)
        .await
        .ok(200);
    assert_eq!((&job["priority"], &job["type"], &job["tags"]), (&"critical".into(), &"u".into(), &json!({"x": null})));
    assert_eq!((&job["correlation_id"], &job["callback_url"]), (&Value::Null, &"http://u".into()));
    assert_eq!(job["policy"]["retry"]["limit"], 5);
    assert_eq!(c.patch(&path, "{}").await.ok(200), job);
    for bad in [
        r#"{"payload":1}"#,
        r#"{"retry":{"counts":"starts"}}"#,
        r#"{"tags":{"a b":"c"}}"#,
        r#"{"priority":7}"#,
        r#"{"retry":{"limit":0}}"#,
    ] {
        c.patch(&path, bad).await.problem(400, "validation");
    }
    c.claim("q").await;
    c.patch(&path, r#"{"priority":"low"}"#).await.problem(409, "illegal_transition");
    c.patch(&path, r#"{"correlation_id":"d"}"#).await.ok(200);
    c.post(&format!("{path}/cancel"), r#"{"force":true}"#).await.ok(200);
    c.patch(&path, r#"{"correlation_id":"e"}"#).await.problem(409, "illegal_transition");
    server.stop().await;
}

#[tokio::test]
async fn cancel_is_immediate_or_cooperative() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let waiting = c.submit("q", r#"{"type":"t"}"#).await;
    let response = c.post(&format!("/v1/jobs/{waiting}/cancel"), r#"{"reason":"not needed"}"#).await.ok(200);
    assert_eq!(response, json!({"id": waiting, "state": "cancelled"}));
    let job = c.job(&waiting).await;
    assert_eq!((&job["error"]["category"], &job["error"]["message"]), (&"cancelled".into(), &"not needed".into()));
    c.post(&format!("/v1/jobs/{waiting}/cancel"), "").await.problem(409, "illegal_transition");
    let running = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let asked = c.post(&format!("/v1/jobs/{running}/cancel"), "").await.ok(202);
    assert_eq!(asked, json!({"id": running, "state": "running", "cancel_requested": true}));
    assert_eq!(c.job(&running).await["cancel_requested"], true);
    let beat = c.post(&format!("/v1/jobs/{running}/heartbeat"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(beat["cancel_requested"], true);
    let failed = format!(r#"{{"lease":"{token}","error":{{"category":"temporary"}}}}"#);
    assert_eq!(c.post(&format!("/v1/jobs/{running}/fail"), &failed).await.ok(200)["state"], "cancelled");
    let forced = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    c.post(&format!("/v1/jobs/{forced}/cancel"), r#"{"force":true}"#).await.ok(200);
    c.post(&format!("/v1/jobs/{forced}/complete"), &format!(r#"{{"lease":"{token}"}}"#))
        .await
        .problem(409, "stale_lease");
    c.post(&format!("/v1/jobs/{forced}/cancel"), &format!(r#"{{"reason":"{}"}}"#, "x".repeat(1_025)))
        .await
        .problem(400, "validation");
    server.stop().await;
}

#[tokio::test]
async fn requeue_is_in_place_or_a_clone() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/clones", r#"{"profile":"gopherqueue"}"#).await.ok(201);
    let same = c.submit("q", r#"{"type":"t"}"#).await;
    c.post(&format!("/v1/jobs/{same}/requeue"), "").await.problem(409, "illegal_transition");
    c.post(&format!("/v1/jobs/{same}/dead-letter"), r#"{"reason":"no"}"#).await.ok(200);
    assert_eq!(
        c.post(&format!("/v1/jobs/{same}/requeue"), "").await.ok(200),
        json!({"id": same, "state": "scheduled"})
    );
    c.post(&format!("/v1/jobs/{same}/cancel"), "").await.ok(200);
    let later = c
        .post(&format!("/v1/jobs/{same}/requeue"), r#"{"reset":false,"run_at":"2026-11-15T02:00:00+01:00"}"#)
        .await
        .ok(200);
    assert_eq!(later["state"], "delayed");
    assert_eq!(c.job(&same).await["run_at"], "2026-11-15T01:00:00.000Z");
    assert_eq!(c.post(&format!("/v1/jobs/{same}/run-now"), "").await.ok(200)["state"], "scheduled");
    c.post(&format!("/v1/jobs/{same}/run-now"), "{}").await.problem(409, "illegal_transition");
    let first = c.submit("clones", r#"{"type":"t","payload":[1]}"#).await;
    c.post(&format!("/v1/jobs/{first}/cancel"), "").await.ok(200);
    let clone = c.post(&format!("/v1/jobs/{first}/requeue"), "{}").await.ok(200);
    let clone = clone["id"].as_str().unwrap();
    assert_ne!(clone, first);
    assert_eq!(c.job(clone).await["requeued_from"], first.as_str());
    assert_eq!(c.job(&first).await["requeued_as"], clone);
    assert_eq!(c.get(&format!("/v1/jobs/{clone}/payload")).await.text(), "[1]");
    c.post(&format!("/v1/jobs/{first}/requeue"), "").await.problem(409, "illegal_transition");
    server.stop().await;
}

#[tokio::test]
async fn a_held_job_waits_for_submission() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t","hold":true}"#).await;
    assert_eq!(c.state(&id).await, "pending");
    assert_eq!(c.post(&format!("/v1/jobs/{id}/submit"), "").await.ok(200), json!({"id": id, "state": "scheduled"}));
    c.post(&format!("/v1/jobs/{id}/submit"), "").await.problem(409, "illegal_transition");
    c.delete(&format!("/v1/jobs/{id}")).await.problem(409, "illegal_transition");
    c.post(&format!("/v1/jobs/{id}/cancel"), "").await.ok(200);
    assert_eq!(c.delete(&format!("/v1/jobs/{id}")).await.status, 204);
    c.get(&format!("/v1/jobs/{id}")).await.problem(404, "job_not_found");
    server.stop().await;
}

#[tokio::test]
async fn document_rejects_illegal_commands() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/d", r#"{"profile":"document"}"#).await.ok(201);
    let held = c.submit("d", r#"{"type":"t"}"#).await;
    assert_eq!(c.state(&held).await, "pending");
    c.post(&format!("/v1/jobs/{held}/dead-letter"), "").await.problem(409, "illegal_transition");
    c.post("/v1/queues/d/jobs", r#"{"type":"t","delay":"5s"}"#).await.problem(400, "validation");
    c.post("/v1/queues/d/jobs", r#"{"type":"t","retry":{"limit":1}}"#).await.problem(400, "validation");
    let id = c.submit("d", r#"{"type":"t","hold":false}"#).await;
    let (_, token) = lease(&c.claim("d").await);
    for verb in ["release", "snooze"] {
        let body = if verb == "snooze" {
            format!(r#"{{"lease":"{token}","delay":"1s"}}"#)
        } else {
            format!(r#"{{"lease":"{token}"}}"#)
        };
        c.post(&format!("/v1/jobs/{id}/{verb}"), &body).await.problem(409, "illegal_transition");
    }
    server.stop().await;
}
