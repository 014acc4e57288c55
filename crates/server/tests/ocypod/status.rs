//! The table of status changes, and their effect on the fields.

use serde_json::{Value, json};

use crate::harness::{Client, World};

const STATUSES: [&str; 6] = ["queued", "running", "failed", "completed", "cancelled", "timed_out"];

/// 1 is 204, 0 is 409.
const TABLE: [(&str, [u8; 6]); 6] = [
    ("queued", [0, 0, 0, 0, 1, 0]),
    ("running", [0, 0, 1, 1, 1, 1]),
    ("failed", [1, 0, 0, 0, 1, 0]),
    ("completed", [0, 0, 0, 0, 0, 0]),
    ("cancelled", [1, 0, 0, 0, 0, 0]),
    ("timed_out", [1, 0, 0, 0, 0, 0]),
];

/// The way into a status and a pending retry make no difference.
#[derive(Clone, Copy, Debug)]
enum Way {
    Ended,
    WaitsForRetry,
    ByTheClock,
}

async fn bring(world: &World, c: &mut Client, status: &str, way: Way) -> Option<u64> {
    let job = match way {
        Way::Ended => r#"{"retries":0}"#,
        Way::WaitsForRetry => r#"{"retries":5,"retry_delays":["1day"]}"#,
        Way::ByTheClock => r#"{"retries":5,"retry_delays":["1day"],"timeout":"1s"}"#,
    };
    match (status, way) {
        ("timed_out", Way::ByTheClock) => {
            let id = c.started("q", job).await;
            world.advance_secs(1).await;
            Some(id)
        }
        (_, Way::ByTheClock) => None,
        ("queued", _) => Some(c.add("q", job).await),
        ("running", _) => Some(c.started("q", job).await),
        (status, _) => {
            let id = c.started("q", job).await;
            c.set(id, status).await;
            Some(id)
        }
    }
}

/// Proves O-6, O-7, O-12, O-28, O-31, O-32, O-34.
/// Rules Ocypod routes.
#[tokio::test]
async fn all_36_pairs() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let mut played = 0;
    for way in [Way::Ended, Way::WaitsForRetry, Way::ByTheClock] {
        for (from, row) in TABLE {
            for (to, allowed) in STATUSES.into_iter().zip(row) {
                let Some(id) = bring(&world, &mut c, from, way).await else { continue };
                assert_eq!(c.status(id).await, from);
                let before = c.job(id).await;
                let reply = c.patch(&format!("/job/{id}"), &format!(r#"{{"status":"{to}"}}"#)).await;
                if allowed == 1 {
                    reply.done();
                    assert_eq!(c.status(id).await, to);
                } else {
                    reply.says(409, &format!("Cannot change status from {from} to {to}"));
                    assert_eq!(c.job(id).await, before, "a refusal changes nothing");
                }
                c.delete(&format!("/job/{id}")).await.done();
                played += 1;
            }
        }
    }
    assert_eq!(played, 36 + 36 + 6);
    world.stop().await;
}

#[tokio::test]
async fn created_is_an_alias_of_queued() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.started("q", "{}").await;
    c.set(id, "failed").await;
    c.patch(&format!("/job/{id}"), r#"{"status":"created"}"#).await.done();
    assert_eq!(c.status(id).await, "queued");
    world.stop().await;
}

/// Returns the seconds of a job's four timestamps; empty for a missing one.
fn times(job: &Value) -> [String; 4] {
    ["created_at", "started_at", "ended_at", "last_heartbeat"].map(|name| {
        let time = job[name].as_str().unwrap_or_default();
        time.trim_start_matches("2026-11-15T00:00:").trim_end_matches(".000Z").to_owned()
    })
}

/// Proves O-2, O-14 to O-17, O-19, O-24, O-26, O-27, O-29, O-30, O-35, O-48.
#[tokio::test]
async fn status_changes_set_their_fields() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"retries":1}"#).await;
    let id = c.add("q", "{}").await;
    assert_eq!(times(&c.job(id).await), ["00", "", "", ""]);
    world.advance_secs(1).await;
    c.take("q", id).await;
    let job = c.job(id).await;
    assert_eq!(times(&job), ["00", "01", "", ""]);
    assert_eq!((&job["status"], &job["ended"], &job["output"]), (&json!("running"), &json!(false), &Value::Null));
    world.advance_secs(1).await;
    c.call("PUT", &format!("/job/{id}/heartbeat"), None).await.done();
    assert_eq!(times(&c.job(id).await), ["00", "01", "", "02"]);
    world.advance_secs(1).await;
    // Output is not a heartbeat.
    c.put(&format!("/job/{id}/output"), r#""half""#).await.done();
    assert_eq!(times(&c.job(id).await), ["00", "01", "", "02"]);
    c.set(id, "failed").await;
    world.advance_secs(1).await;
    // The only retry is immediate: it resets the fields of the run and is counted.
    let job = c.job(id).await;
    assert_eq!(times(&job), ["00", "", "", ""]);
    assert_eq!(
        (&job["status"], &job["output"], &job["retries_attempted"]),
        (&json!("queued"), &Value::Null, &json!(1))
    );
    c.take("q", id).await;
    c.patch(&format!("/job/{id}"), r#"{"output":"bad","status":"failed"}"#).await.done();
    let job = c.job(id).await;
    assert_eq!(times(&job), ["00", "04", "04", ""]);
    assert_eq!((&job["status"], &job["output"], &job["ended"]), (&json!("failed"), &json!("bad"), &json!(true)));
    world.advance_secs(1).await;
    c.set(id, "cancelled").await;
    let job = c.job(id).await;
    assert_eq!(times(&job), ["00", "04", "05", ""]);
    assert_eq!((&job["status"], &job["output"], &job["ended"]), (&json!("cancelled"), &json!("bad"), &json!(true)));
    // A requeue resets the fields of the run and keeps the counters.
    c.set(id, "queued").await;
    let job = c.job(id).await;
    assert_eq!(times(&job), ["00", "", "", ""]);
    assert_eq!((&job["output"], &job["retries_attempted"], &job["ended"]), (&Value::Null, &json!(1), &json!(false)));
    c.set(id, "cancelled").await;
    let job = c.job(id).await;
    assert_eq!((times(&job), &job["output"]), (["00", "", "05", ""].map(str::to_owned), &Value::Null));
    world.stop().await;
}

#[tokio::test]
async fn output_is_set_before_the_status() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let refusal = "Can only set output for running jobs";
    let id = c.add("q", "{}").await;
    let path = format!("/job/{id}");
    c.put(&format!("{path}/output"), "1").await.says(409, refusal);
    c.patch(&path, r#"{"output":1}"#).await.says(409, refusal);
    // The status alone is valid.
    c.patch(&path, r#"{"output":1,"status":"cancelled"}"#).await.says(409, refusal);
    assert_eq!(c.status(id).await, "queued");
    c.take("q", id).await;
    // The output alone is valid.
    c.patch(&path, r#"{"output":1,"status":"queued"}"#).await.says(409, "Cannot change status from running to queued");
    c.get(&format!("{path}/output")).await.is(200, "null");
    c.patch(&path, r#"{"output":{"a":1}}"#).await.done();
    c.get(&format!("{path}/output")).await.is(200, r#"{"a":1}"#);
    // In a PATCH null means no output; in a PUT it is a value.
    c.patch(&path, r#"{"output":null}"#).await.done();
    c.get(&format!("{path}/output")).await.is(200, r#"{"a":1}"#);
    c.put(&format!("{path}/output"), "null").await.done();
    c.get(&format!("{path}/output")).await.is(200, "null");
    c.put(&format!("{path}/output"), " [1, 2] ").await.done();
    c.patch(&path, r#"{"status":"completed","output":null}"#).await.done();
    c.get(&format!("{path}/output")).await.is(200, "[1, 2]");
    assert_eq!(c.job(id).await["ended"], true);
    c.put(&format!("{path}/output"), "1").await.says(409, refusal);
    world.stop().await;
}

#[tokio::test]
async fn an_empty_patch_changes_nothing() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.add("q", "{}").await;
    for body in ["{}", r#"{"status":null,"output":null}"#, r#"{"colour":"red"}"#] {
        c.patch(&format!("/job/{id}"), body).await.done();
        c.patch("/job/999999999", body).await.done();
    }
    let gone = "Job with ID 999999999 does not exist";
    c.patch("/job/999999999", r#"{"status":"failed"}"#).await.says(404, gone);
    c.patch("/job/999999999", r#"{"output":1}"#).await.says(404, gone);
    c.put("/job/999999999/output", "1").await.says(404, gone);
    c.call("PUT", "/job/999999999/heartbeat", None).await.says(404, gone);
    world.stop().await;
}

/// Of concurrent requests that end a run, exactly one succeeds.
#[tokio::test]
async fn concurrent_ends_have_one_winner() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    for _ in 0..20 {
        let id = c.started("q", "{}").await;
        let mut ends = tokio::task::JoinSet::new();
        for status in ["completed", "completed", "failed", "timed_out"] {
            let mut c = world.client().await;
            ends.spawn(
                async move { c.patch(&format!("/job/{id}"), &format!(r#"{{"status":"{status}"}}"#)).await.status },
            );
        }
        let mut statuses = ends.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 409, 409, 409]);
    }
    world.stop().await;
}
