//! Timeouts, retries, expiry.

use longshore_core::Duration;
use serde_json::json;

use crate::harness::World;

/// Proves O-8, O-20, O-33, O-41.
#[tokio::test]
async fn a_long_run_times_out() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"timeout":"1500ms"}"#).await;
    let id = c.started("q", "{}").await;
    let endless = c.started("q", r#"{"timeout":"0s"}"#).await;
    world.advance(Duration::from_millis(1_499)).await;
    assert_eq!(c.status(id).await, "running");
    world.advance(Duration::from_millis(1)).await;
    let job = c.job(id).await;
    assert_eq!((&job["status"], &job["ended"]), (&json!("timed_out"), &json!(true)));
    assert_eq!(job["ended_at"], "2026-11-15T00:00:01.500Z");
    c.patch(&format!("/job/{id}"), r#"{"status":"completed"}"#)
        .await
        .says(409, "Cannot change status from timed_out to completed");
    c.call("PUT", &format!("/job/{id}/heartbeat"), None)
        .await
        .says(409, &format!("Cannot heartbeat job {id}, job is not running"));
    world.advance(Duration::from_days(400)).await;
    assert_eq!(c.status(endless).await, "running");
    world.stop().await;
}

/// Proves O-8, O-17, O-21, O-42, O-44.
#[tokio::test]
async fn a_missed_heartbeat_times_out() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"timeout":"1h","heartbeat_timeout":"10s"}"#).await;
    let id = c.started("q", "{}").await;
    for _ in 0..5 {
        world.advance_secs(9).await;
        c.call("PUT", &format!("/job/{id}/heartbeat"), None).await.done();
    }
    world.advance_secs(9).await;
    // Output is not a heartbeat, as in Ocypod.
    c.put(&format!("/job/{id}/output"), "1").await.done();
    world.advance_secs(1).await;
    let job = c.job(id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("timed_out"), &json!(1)));
    let id = c.started("q", r#"{"heartbeat_timeout":"0s"}"#).await;
    world.advance_secs(3_599).await;
    assert_eq!(c.status(id).await, "running");
    world.stop().await;
}

/// Proves O-9, O-23 to O-25, O-36, O-47, O-48, O-50 to O-52.
#[tokio::test]
async fn retries_use_their_delays() {
    let world = World::new().await;
    let mut c = world.client().await;
    // The job inherits the delays of its queue.
    c.make("q", r#"{"retries":4,"retry_delays":["10s","1m","5m"]}"#).await;
    let id = c.started("q", "{}").await;
    for (attempted, wait) in [10, 60, 300, 300].into_iter().enumerate() {
        c.set(id, if attempted == 1 { "timed_out" } else { "failed" }).await;
        world.advance(Duration::from_millis(wait * 1_000 - 1)).await;
        let job = c.job(id).await;
        assert_eq!((&job["ended"], &job["retries_attempted"]), (&json!(false), &json!(attempted)));
        c.get("/queue/q/job").await.done();
        world.advance(Duration::from_millis(1)).await;
        assert_eq!(c.job(id).await["retries_attempted"], attempted + 1);
        c.take("q", id).await;
    }
    c.set(id, "failed").await;
    assert_eq!(c.job(id).await["ended"], true);
    world.advance_secs(200).await;
    c.get("/queue/q/job").await.done();
    world.stop().await;
}

/// Requeuing counts nothing and keeps the retry.
#[tokio::test]
async fn a_waiting_retry_can_be_requeued() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"retries":1,"retry_delays":["10s"]}"#).await;
    let id = c.started("q", "{}").await;
    c.set(id, "failed").await;
    c.set(id, "queued").await;
    assert_eq!(c.job(id).await["retries_attempted"], 0);
    c.take("q", id).await;
    world.advance_secs(10).await;
    assert_eq!(c.status(id).await, "running", "the old plan is off");
    c.set(id, "failed").await;
    assert_eq!(c.job(id).await["ended"], false);
    world.advance_secs(10).await;
    let job = c.job(id).await;
    assert_eq!((&job["status"], &job["retries_attempted"]), (&json!("queued"), &json!(1)));
    c.take("q", id).await;
    c.set(id, "failed").await;
    assert_eq!(c.job(id).await["ended"], true);
    // After the end the counters stay, so that the next failure is final again.
    c.set(id, "queued").await;
    c.take("q", id).await;
    c.set(id, "failed").await;
    let job = c.job(id).await;
    assert_eq!((&job["ended"], &job["retries_attempted"]), (&json!(true), &json!(1)));
    world.stop().await;
}

/// Proves O-22, O-45, O-46.
#[tokio::test]
async fn ended_jobs_expire() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"expires_after":"1500ms","retries":1,"retry_delays":["10s"]}"#).await;
    let mut ids = Vec::new();
    for status in ["completed", "cancelled", "failed", "timed_out"] {
        let retries = if status == "timed_out" { 1 } else { 0 };
        let id = c.started("q", &format!(r#"{{"retries":{retries},"tags":["t\"",""]}}"#)).await;
        c.set(id, status).await;
        ids.push(id);
    }
    let kept = c.started("q", r#"{"expires_after":"0s"}"#).await;
    c.set(kept, "completed").await;
    world.advance(Duration::from_millis(1_499)).await;
    for id in &ids {
        assert_eq!(c.get(&format!("/job/{id}")).await.status, 200);
    }
    world.advance(Duration::from_millis(1)).await;
    for id in &ids[..3] {
        assert_eq!(c.get(&format!("/job/{id}")).await.status, 404);
    }
    assert_eq!(c.status(ids[3]).await, "timed_out", "it will be retried: it has not ended");
    c.get("/tag/t%22").await.is(200, &format!("[{}]", ids[3]));
    world.advance(Duration::from_days(4_000)).await;
    assert_eq!(c.status(kept).await, "completed");
    world.stop().await;
}

/// The same in real time.
#[tokio::test]
async fn timeouts_apply_in_real_time() {
    let world = World::in_real_time().await;
    let mut c = world.client().await;
    c.make("q", r#"{"timeout":"20ms","retries":1,"retry_delays":["20ms"],"expires_after":"20ms"}"#).await;
    let id = c.started("q", "{}").await;
    // The job times out, is retried, claimed again, times out finally, and expires.
    let again = loop {
        let reply = c.get("/queue/q/job").await;
        if reply.status == 200 {
            break reply.json();
        }
    };
    assert_eq!(again["id"], id);
    while c.get(&format!("/job/{id}")).await.status == 200 {}
    let statistics = &c.get("/info").await.json()["statistics"];
    assert_eq!((&statistics["total_jobs_timed_out"], &statistics["total_jobs_retried"]), (&json!(2), &json!(1)));
    world.stop().await;
}

/// A restart keeps all jobs, counters included.
#[tokio::test]
async fn jobs_survive_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let world = World::on_disk(home.path()).await;
    let mut c = world.client().await;
    c.make("q", r#"{"timeout":"1m","retries":3,"retry_delays":["1h"]}"#).await;
    let running = c.started("q", r#"{"input":{"b": 1.0},"tags":["x",""]}"#).await;
    let failed = c.started("q", "{}").await;
    let waiting = c.add("q", r#"{"tags":[]}"#).await;
    c.put(&format!("/job/{running}/output"), r#"{"half": true}"#).await.done();
    c.set(failed, "failed").await;
    let mut before = Vec::new();
    for path in [
        "/queue",
        "/queue/q",
        "/queue/q/job_ids",
        "/info",
        "/tag/x",
        &format!("/job/{running}"),
        &format!("/job/{failed}"),
        &format!("/job/{waiting}"),
    ] {
        before.push((path.to_owned(), c.get(path).await.body));
    }
    drop(c);
    world.stop().await;
    let world = World::on_disk(home.path()).await;
    let mut c = world.client().await;
    for (path, body) in before {
        c.get(&path).await.is(200, &body);
    }
    let newer = c.add("q", "{}").await;
    assert!(newer > waiting);
    world.advance_secs(60).await;
    assert_eq!(c.status(running).await, "timed_out");
    c.take("q", waiting).await;
    drop(c);
    world.stop().await;
}
