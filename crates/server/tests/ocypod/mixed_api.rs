//! The Ocypod API and `/v1` on the same jobs.

use serde_json::json;

use crate::harness::World;

#[tokio::test]
async fn only_queues_of_the_profile_are_visible() {
    let world = World::new().await;
    let mut c = world.client().await;
    assert_eq!(c.put("/v1/queues/s", r#"{"profile":"standard"}"#).await.status, 201);
    assert_eq!(c.put("/v1/queues/o:p", r#"{"profile":"ocypod"}"#).await.status, 201);
    let job = c.post("/v1/queues/s/jobs", r#"{"type":"ocypod","tags":["t"]}"#).await;
    let seq = serde_json::from_str::<serde_json::Value>(&job.body).unwrap()["seq"].as_u64().unwrap();
    c.get("/queue").await.is(200, "[]");
    for path in ["/queue/s", "/queue/s/size", "/queue/s/job", "/queue/default"] {
        assert_eq!(c.get(path).await.status, 404);
    }
    c.post("/queue/s/job", "{}").await.says(404, "Queue 's' does not exist");
    c.delete("/queue/s").await.silent(404);
    c.put("/queue/s", "{}").await.says(400, "Queue 's' is not an Ocypod queue: its profile is standard");
    c.get("/tag/t").await.is(200, "[]");
    for (method, path) in [("GET", ""), ("GET", "/status"), ("GET", "/output"), ("PUT", "/heartbeat")] {
        c.call(method, &format!("/job/{seq}{path}"), None)
            .await
            .says(404, &format!("Job with ID {seq} does not exist"));
    }
    c.patch(&format!("/job/{seq}"), r#"{"status":"cancelled"}"#)
        .await
        .says(404, &format!("Job with ID {seq} does not exist"));
    c.delete(&format!("/job/{seq}")).await.silent(404);
    let none = r#"{"queued":[],"running":[],"failed":[],"completed":[],"cancelled":[],"timed_out":[]}"#;
    c.get("/queue/s/job_ids").await.is(200, none);
    assert_eq!(c.get("/info").await.json()["queues"], json!({}));
    world.stop().await;
}

#[tokio::test]
async fn both_apis_show_the_same_job() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make(
        "q",
        r#"{"timeout":"1m","heartbeat_timeout":"30s","retries":2,"retry_delays":["10s"],"expires_after":"1h"}"#,
    )
    .await;
    let queue = c.get("/v1/queues/q").await.json();
    assert_eq!((&queue["profile"], &queue["settings"]["execution_timeout"]), (&json!("ocypod"), &json!("1m")));
    assert_eq!(queue["settings"]["lease"], "30s");
    assert_eq!(queue["settings"]["retry"]["backoff"]["delays"], json!(["10s"]));
    assert_eq!(queue["settings"]["retention"]["cancelled"], "1h");
    // Submitted with Ocypod, run with `/v1`.
    let job = c.post("/v1/queues/q/jobs", r#"{"type":"mail","payload":{"to": 1},"tags":{"tenant":"acme"}}"#).await;
    let job: serde_json::Value = serde_json::from_str(&job.body).unwrap();
    let (id, seq) = (job["id"].as_str().unwrap(), job["seq"].as_u64().unwrap());
    c.get("/queue/q/job").await.is(200, &format!(r#"{{"id":{seq},"input":{{"to": 1}}}}"#));
    assert_eq!(c.job(seq).await["tags"], json!(["tenant"]));
    c.get("/tag/tenant").await.is(200, &format!("[{seq}]"));
    c.get("/tag/tenant:acme").await.is(200, "[]");
    c.patch(&format!("/job/{seq}"), r#"{"status":"completed","output":"sent"}"#).await.done();
    let shown = c.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!((&shown["state"], &shown["result"]), (&json!("completed"), &json!("sent")));
    // Submitted with `/v1`, run with Ocypod.
    let seq = c.add("q", r#"{"input":[1],"tags":["a b"]}"#).await;
    let claim = c.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.json();
    let claimed = &claim["jobs"][0];
    assert_eq!((&claimed["seq"], &claimed["type"], &claimed["payload"]), (&json!(seq), &json!("ocypod"), &json!([1])));
    assert_eq!(c.status(seq).await, "running");
    let (id, token) = (claimed["id"].as_str().unwrap(), claimed["lease"]["token"].as_str().unwrap());
    let view = c.get(&format!("/v1/jobs/{id}?view=ocypod")).await.json();
    assert_eq!((&view["status"], &view["id"]), (&json!("running"), &json!(seq)));
    let fail = format!(r#"{{"lease":"{token}","error":{{"category":"temporary","message":"no"}}}}"#);
    assert_eq!(c.post(&format!("/v1/jobs/{id}/fail"), &fail).await.status, 200);
    let job = c.job(seq).await;
    assert_eq!((&job["status"], &job["ended"]), (&json!("failed"), &json!(false)));
    c.set(seq, "queued").await;
    assert_eq!(c.get(&format!("/v1/jobs/{id}?view=ocypod")).await.json()["status"], "created");
    // Ocypod has no binary payloads.
    let job = c.post("/v1/queues/q/jobs", r#"{"type":"blob","payload_base64":"AAEC"}"#).await;
    let seq: serde_json::Value = serde_json::from_str(&job.body).unwrap();
    c.get(&format!("/job/{}?fields=input", seq["seq"])).await.is(200, r#"{"input":null}"#);
    world.stop().await;
}

/// With required fencing, Ocypod requests, which have no token, still apply to the current lease.
#[tokio::test]
async fn other_settings_apply_to_ocypod_jobs() {
    let world = World::new().await;
    let mut c = world.client().await;
    let settings = r#"{"profile":"ocypod","settings":{"fencing":"required","payload_max":100,"max_queued":2,"manual_requeue":"clone"}}"#;
    assert_eq!(c.put("/v1/queues/q", settings).await.status, 201);
    c.put("/queue/q", r#"{"timeout":"1m"}"#).await.done();
    let shown = c.get("/v1/queues/q").await.json()["settings"].clone();
    assert_eq!((&shown["payload_max"], &shown["execution_timeout"]), (&json!(100), &json!("1m")));
    let long = "x".repeat(99);
    c.post("/queue/q/job", &format!(r#"{{"input":"{long}"}}"#)).await.refuses(413, "limit: 100 bytes");
    let id = c.started("q", "{}").await;
    c.call("PUT", &format!("/job/{id}/heartbeat"), None).await.done();
    c.put(&format!("/job/{id}/output"), &format!("\"{long}\"")).await.refuses(413, "limit: 100 bytes");
    c.put(&format!("/job/{id}/output"), "1").await.done();
    c.set(id, "failed").await;
    c.set(id, "queued").await;
    assert_eq!(c.status(id).await, "queued", "the same job, not a clone");
    c.add("q", "{}").await;
    c.post("/queue/q/job", "{}").await.refuses(429, "2 waiting jobs");
    // Paused: no job can be claimed.
    assert_eq!(c.post("/v1/queues/q/pause", "{}").await.status, 200);
    c.get("/queue/q/job").await.done();
    world.stop().await;
}

/// Jobs of other queues may depend on Ocypod jobs.
#[tokio::test]
async fn an_ocypod_job_completes_its_dependents() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let first = c.started("q", "{}").await;
    let ids = c.get("/v1/jobs?queue=q").await.json();
    let id = ids["jobs"][0]["id"].as_str().unwrap().to_owned();
    let job = c.post("/v1/queues/s/jobs", &format!(r#"{{"type":"t","after":["{id}"]}}"#)).await;
    let dependent: serde_json::Value = serde_json::from_str(&job.body).unwrap();
    let path = format!("/v1/jobs/{}", dependent["id"].as_str().unwrap());
    c.set(first, "failed").await;
    assert_eq!(c.get(&path).await.json()["state"], "failed");
    c.set(first, "queued").await;
    assert_eq!(c.get(&path).await.json()["state"], "pending", "it comes back with the job it hangs on");
    c.delete(&format!("/job/{first}")).await.done();
    assert_eq!(c.get(&path).await.json()["state"], "cancelled");
    world.stop().await;
}
