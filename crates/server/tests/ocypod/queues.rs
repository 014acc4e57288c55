//! Queues: create, change, read, claim from, delete.

use crate::harness::World;

/// Proves O-37, O-40, O-41, O-43 to O-47, O-49, O-50, O-53.
#[tokio::test]
async fn a_put_replaces_the_settings() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.get("/queue").await.is(200, "[]");
    let made = c.put("/queue/q1", "{}").await;
    assert_eq!((made.status, made.body.as_str()), (201, ""));
    assert_eq!((made.header("location"), made.header("content-length")), (Some("/queue/q1"), Some("0")));
    let defaults = r#"{"timeout":"5m","heartbeat_timeout":"0s","expires_after":"5m","retries":0,"retry_delays":[]}"#;
    c.get("/queue/q1").await.is(200, defaults);
    let full = r#"{"timeout":"1h15m5s","heartbeat_timeout":"1500ms","expires_after":"1w","retries":3,"retry_delays":["500ms","1500ms","1w2d7h","1y","1M"],"colour":"red"}"#;
    let changed = c.put("/queue/q1", full).await;
    changed.done();
    assert_eq!(changed.header("location"), Some("/queue/q1"));
    let shown = r#"{"timeout":"1h 15m 5s","heartbeat_timeout":"1s 500ms","expires_after":"7days","retries":3,"retry_delays":["500ms","1s 500ms","9days 7h","1year","1month"]}"#;
    c.get("/queue/q1").await.is(200, shown);
    // A missing field gets its default.
    c.put("/queue/q1", r#"{"retries":18446744073709551615}"#).await.done();
    let shown = r#"{"timeout":"5m","heartbeat_timeout":"0s","expires_after":"5m","retries":18446744073709551615,"retry_delays":[]}"#;
    c.get("/queue/q1").await.is(200, shown);
    c.make("Q2.a_b-c", "{}").await;
    c.get("/queue").await.is(200, r#"["Q2.a_b-c","q1"]"#);
    world.stop().await;
}

#[tokio::test]
async fn missing_queues_are_404() {
    let world = World::new().await;
    let mut c = world.client().await;
    for path in ["/queue/none", "/queue/none/size", "/queue/none/job"] {
        c.get(path).await.says(404, "Queue 'none' does not exist");
    }
    c.post("/queue/none/job", "{}").await.says(404, "Queue 'none' does not exist");
    c.delete("/queue/none").await.silent(404);
    let none = r#"{"queued":[],"running":[],"failed":[],"completed":[],"cancelled":[],"timed_out":[]}"#;
    c.get("/queue/none/job_ids").await.is(200, none);
    c.get("/queue").await.is(200, "[]");
    world.stop().await;
}

/// Proves O-1, O-4, O-5, O-39.
#[tokio::test]
async fn claims_are_first_in_first_out() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    c.get("/queue/q/job").await.done();
    c.get("/queue/q/size").await.is(200, "0");
    let mut ids = Vec::new();
    for input in ["0", r#""one""#, "[2]"] {
        ids.push(c.add("q", &format!(r#"{{"input":{input}}}"#)).await);
    }
    assert!(ids.is_sorted());
    c.get("/queue/q/size").await.is(200, "3");
    for (id, input) in ids.iter().zip(["0", r#""one""#, "[2]"]) {
        c.get("/queue/q/job").await.is(200, &format!(r#"{{"id":{id},"input":{input}}}"#));
    }
    c.get("/queue/q/job").await.done();
    c.get("/queue/q/size").await.is(200, "0");
    world.stop().await;
}

/// Proves O-39.
#[tokio::test]
async fn a_requeued_job_is_last() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let first = c.started("q", "{}").await;
    let second = c.add("q", "{}").await;
    c.set(first, "failed").await;
    c.set(first, "queued").await;
    c.take("q", second).await;
    c.take("q", first).await;
    world.stop().await;
}

#[tokio::test]
async fn job_ids_are_grouped_by_status() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"expires_after":"0s"}"#).await;
    let [failed, cancelled, running, done, last, late] = [
        c.started("q", "{}").await,
        c.started("q", "{}").await,
        c.started("q", "{}").await,
        c.started("q", "{}").await,
        c.started("q", "{}").await,
        c.started("q", "{}").await,
    ];
    let running_too = c.started("q", "{}").await;
    let [waiting, newest] = [c.add("q", "{}").await, c.add("q", "{}").await];
    for (id, status) in
        [(last, "completed"), (done, "completed"), (failed, "failed"), (cancelled, "cancelled"), (late, "timed_out")]
    {
        world.advance_secs(1).await;
        c.set(id, status).await;
    }
    let expected = format!(
        r#"{{"queued":[{newest},{waiting}],"running":[{running},{running_too}],"failed":[{failed}],"completed":[{done},{last}],"cancelled":[{cancelled}],"timed_out":[{late}]}}"#
    );
    c.get("/queue/q/job_ids").await.is(200, &expected);
    world.stop().await;
}

/// Deletes waiting jobs and ends waiting retries. Running jobs may finish, ended jobs stay.
#[tokio::test]
async fn deleting_a_queue_keeps_ended_jobs() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"retries":2,"retry_delays":["1h"]}"#).await;
    let running = c.started("q", "{}").await;
    let failing = c.started("q", "{}").await;
    let retrying = c.started("q", "{}").await;
    let completed = c.started("q", "{}").await;
    let waiting = c.add("q", r#"{"tags":["a"]}"#).await;
    c.set(retrying, "failed").await;
    c.set(completed, "completed").await;
    c.delete("/queue/q").await.done();
    c.delete("/queue/q").await.silent(404);
    c.get("/queue").await.is(200, "[]");
    c.get(&format!("/job/{waiting}")).await.says(404, &format!("Job with ID {waiting} does not exist"));
    c.get("/tag/a").await.is(200, "[]");
    let ended = c.job(retrying).await;
    assert_eq!((&ended["status"], &ended["ended"]), (&"failed".into(), &true.into()));
    let left = format!(
        r#"{{"queued":[],"running":[{running},{failing}],"failed":[{retrying}],"completed":[{completed}],"cancelled":[],"timed_out":[]}}"#
    );
    c.get("/queue/q/job_ids").await.is(200, &left);
    let info = c.get("/info").await.json();
    assert_eq!(info["queues"]["q"]["running"], 2);
    assert_eq!(info["queues"]["q"]["failed"], 1);
    // Running jobs continue; a failure cannot be retried.
    c.put(&format!("/job/{running}/heartbeat"), "").await.done();
    c.patch(&format!("/job/{running}"), r#"{"status":"completed","output":1}"#).await.done();
    c.set(failing, "failed").await;
    assert_eq!(c.job(failing).await["ended"], true);
    for id in [failing, retrying] {
        c.patch(&format!("/job/{id}"), r#"{"status":"queued"}"#).await.says(404, "Queue 'q' does not exist");
        assert_eq!(c.status(id).await, "failed");
    }
    // A new queue of the same name is empty; old jobs may be requeued into it.
    c.make("q", "{}").await;
    c.get("/queue/q/size").await.is(200, "0");
    c.set(failing, "queued").await;
    c.take("q", failing).await;
    c.delete("/queue/q").await.done();
    world.advance_secs(3_600).await;
    assert_eq!(c.get("/info").await.json()["queues"].as_object().unwrap().len(), 0, "nothing is left of it");
    world.stop().await;
}

/// A long queue is deleted in slices, invisible to clients.
#[tokio::test]
async fn a_long_queue_is_deleted_and_created_again() {
    for world in [World::new().await, World::in_real_time().await] {
        let mut c = world.client().await;
        c.make("q", "{}").await;
        for _ in 0..2_500 {
            c.add("q", "{}").await;
        }
        c.delete("/queue/q").await.done();
        c.get("/queue/q").await.says(404, "Queue 'q' does not exist");
        c.make("q", "{}").await;
        c.get("/queue/q/size").await.is(200, "0");
        let id = c.add("q", "{}").await;
        c.take("q", id).await;
        world.stop().await;
    }
}

/// Proves O-4, O-5.
#[tokio::test]
async fn concurrent_claims_share_no_job() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let mut expected = Vec::new();
    for _ in 0..200 {
        expected.push(c.add("q", "{}").await);
    }
    let mut pollers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut c = world.client().await;
        pollers.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let reply = c.get("/queue/q/job").await;
                if reply.status == 204 {
                    return taken;
                }
                let id = reply.json()["id"].as_u64().unwrap();
                c.set(id, "completed").await;
                taken.push(id);
            }
        });
    }
    let mut taken: Vec<u64> = pollers.join_all().await.into_iter().flatten().collect();
    taken.sort_unstable();
    assert_eq!(taken, expected);
    world.stop().await;
}
