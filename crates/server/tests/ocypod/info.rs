//! `/info`, `/info/version`, `/health`.

use serde_json::json;

use crate::harness::World;

#[tokio::test]
async fn info_of_an_empty_server() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.get("/health").await.is(200, r#"{"status":"healthy"}"#);
    c.get("/info/version").await.is(200, r#""0.8.0""#);
    let empty = r#"{"queues":{},"statistics":{"total_jobs_created":0,"total_jobs_completed":0,"total_jobs_retried":0,"total_jobs_failed":0,"total_jobs_timed_out":0,"total_jobs_cancelled":0}}"#;
    c.get("/info").await.is(200, empty);
    world.stop().await;
}

/// Proves O-11, O-28.
#[tokio::test]
async fn info_has_counts_and_totals() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("a", r#"{"retries":1}"#).await;
    c.make("b", r#"{"retries":1,"retry_delays":["1h"]}"#).await;
    for status in ["completed", "failed", "timed_out", "cancelled"] {
        for queue in ["a", "b"] {
            let id = c.started(queue, "{}").await;
            c.set(id, status).await;
            if status == "failed" && queue == "a" {
                // The retry is immediate; it fails again.
                c.take("a", id).await;
                c.set(id, "failed").await;
            }
            if status == "timed_out" && queue == "a" {
                c.take("a", id).await;
            }
        }
    }
    let back = c.started("b", "{}").await;
    c.set(back, "cancelled").await;
    c.set(back, "queued").await;
    c.add("b", "{}").await;
    let expected = json!({
        "queues": {
            "a": {"queued": 0, "running": 1, "failed": 1, "completed": 1, "cancelled": 1, "timed_out": 0},
            "b": {"queued": 2, "running": 0, "failed": 1, "completed": 1, "cancelled": 1, "timed_out": 1},
        },
        "statistics": {
            "total_jobs_created": 10, "total_jobs_completed": 2, "total_jobs_retried": 3,
            "total_jobs_failed": 3, "total_jobs_timed_out": 2, "total_jobs_cancelled": 3,
        },
    });
    assert_eq!(c.get("/info").await.json(), expected);
    // Totals include deleted jobs.
    c.delete("/queue/a").await.done();
    c.delete("/queue/b").await.done();
    world.advance_secs(3_600).await;
    let info = c.get("/info").await.json();
    assert_eq!(info["queues"], json!({}));
    assert_eq!(info["statistics"]["total_jobs_created"], 10);
    assert_eq!(info["statistics"]["total_jobs_timed_out"], 3, "the run that timed out");
    world.stop().await;
}

/// More failures than one page.
#[tokio::test]
async fn failures_and_timeouts_are_counted_separately() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    for number in 0..1_100 {
        let id = c.started("q", "{}").await;
        c.set(id, if number % 11 == 0 { "timed_out" } else { "failed" }).await;
    }
    let counts = &c.get("/info").await.json()["queues"]["q"];
    assert_eq!((&counts["failed"], &counts["timed_out"]), (&json!(1_000), &json!(100)));
    world.stop().await;
}
