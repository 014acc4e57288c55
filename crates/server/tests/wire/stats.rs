//! Series of `GET /v1/stats`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common::client::lease;
use crate::common::{Client, Setup};

/// Reads until a condition holds: counters lag behind commits.
pub(crate) async fn until(c: &mut Client, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = c.get(path).await.ok(200);
        if holds(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Claims a job and reports a failure.
pub(crate) async fn fail_next(c: &mut Client, queue: &str, category: &str) {
    let (id, token) = lease(&c.claim(queue).await);
    let body = format!(r#"{{"lease":"{token}","error":{{"category":"{category}"}}}}"#);
    c.post(&format!("/v1/jobs/{id}/fail"), &body).await.ok(200);
}

fn numbers(point: &Value, names: [&str; 4]) -> [u64; 4] {
    names.map(|name| point[name].as_u64().unwrap())
}

const EVENTS: [&str; 4] = ["submitted", "completed", "failed", "slots"];
const JOBS: [&str; 4] = ["depth", "ready", "slots", "dead_letters"];

#[tokio::test]
async fn series_follow_virtual_time() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for _ in 0..3 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    c.submit("other", r#"{"type":"t","delay":"10m"}"#).await;
    c.advance("10s").await;
    let (id, token) = lease(&c.claim("q").await);
    c.advance("25s").await;
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    fail_next(&mut c, "q", "permanent").await;
    c.advance("55s").await;
    let path = "/v1/stats?window=1h&step=30s";
    let stats = until(&mut c, path, |stats| stats["totals"]["since_start"]["failed"] == 1).await;
    assert_eq!(
        stats["series"],
        json!({"window": "1h", "step": "30s", "since": "2026-11-15T00:00:00.000Z", "queues_left_off": 0})
    );
    let points = stats["queues"]["q"]["series"].as_array().unwrap();
    let starts: Vec<&str> = points.iter().map(|point| point["at"].as_str().unwrap()).collect();
    let expected = ["00:00:00", "00:00:30", "00:01:00", "00:01:30"].map(|at| format!("2026-11-15T{at}.000Z"));
    assert_eq!(starts, expected, "points begin with the server");
    assert_eq!(numbers(&points[0], EVENTS), [3, 0, 0, 1]);
    assert_eq!(numbers(&points[0], JOBS), [2, 2, 1, 0]);
    assert_eq!(numbers(&points[1], EVENTS), [0, 1, 1, 0]);
    assert_eq!(numbers(&points[3], JOBS), [1, 1, 0, 0]);
    let near = |value: &Value, exact: f64| {
        let found = value.as_f64().unwrap();
        assert!((found / exact - 1.0).abs() < 0.07, "{found} is not {exact}");
    };
    near(&points[0]["wait"]["p50"], 10.0);
    near(&points[1]["wait"]["p99"], 35.0);
    near(&points[1]["run"]["p95"], 25.0);
    assert_eq!((&points[0]["run"], &points[2]["wait"]), (&Value::Null, &Value::Null));
    let totals = stats["totals"]["series"].as_array().unwrap();
    assert_eq!((numbers(&totals[0], EVENTS), numbers(&totals[3], JOBS)), ([4, 0, 0, 1], [2, 1, 0, 0]));

    // At 1 s, of one queue.
    let fine = c.get("/v1/stats?window=1m&queue=q").await.ok(200);
    assert_eq!(fine["queues"].as_object().unwrap().keys().collect::<Vec<_>>(), ["q"]);
    let points = fine["queues"]["q"]["series"].as_array().unwrap();
    assert_eq!((points.len(), &points[0]["at"]), (60, &json!("2026-11-15T00:00:31.000Z")));
    assert_eq!((numbers(&points[4], EVENTS), numbers(&points[5], EVENTS)), ([0, 1, 1, 0], [0, 0, 0, 0]));
    assert_eq!(fine["totals"]["series"].as_array().unwrap().len(), 60);

    // A day later the points are gone, the jobs are not.
    c.advance("25h").await;
    let later = c.get("/v1/stats?window=24h&step=1h&queue=q").await.ok(200);
    let points = later["queues"]["q"]["series"].as_array().unwrap();
    assert_eq!((points.len(), numbers(&points[0], EVENTS)), (24, [0, 0, 0, 0]));
    assert_eq!(points[23]["depth"], 1);
    server.stop().await;
}

#[tokio::test]
async fn plain_stats_have_no_series_and_parameters_are_checked() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    let plain = c.get("/v1/stats").await.ok(200);
    assert!(plain.get("series").is_none() && plain["totals"].get("series").is_none(), "{plain}");
    assert!(plain["queues"]["q"].get("series").is_none(), "{plain}");
    let rows = [
        ("window=25h", "window"),
        ("window=0s", "window"),
        ("window=soon", "window"),
        ("window=1h&step=1s", "step"),
        ("window=1h&step=45s", "step"),
        ("window=1m&step=0s", "step"),
        ("window=1m&step=1500ms", "step"),
        ("window=30s&step=1m", "step"),
        ("queue=a%20b", "queue"),
        ("windows=1h", "windows"),
    ];
    for (query, field) in rows {
        assert_eq!(c.get(&format!("/v1/stats?{query}")).await.problem(400, "validation")["field"], field, "{query}");
    }
    c.get("/v1/stats?queue=missing").await.problem(404, "queue_not_found");
    let defaults = c.get("/v1/stats?queue=q").await.ok(200)["series"].clone();
    assert_eq!((&defaults["window"], &defaults["step"]), (&json!("1h"), &json!("30s")));
    assert_eq!(c.get("/v1/stats?window=5m").await.ok(200)["series"]["step"], "1s");
    server.stop().await;
}

/// The numbers of jobs of an earlier run are in the first point.
#[tokio::test]
async fn series_begin_with_the_jobs_of_the_store() {
    let home = tempfile::tempdir().unwrap();
    let server = Setup::directory(home.path()).start().await;
    server.client().await.submit("q", r#"{"type":"t"}"#).await;
    server.stop().await;
    let server = Setup::directory(home.path()).start().await;
    let mut c = server.client().await;
    let stats = c.get("/v1/stats?window=1h").await.ok(200);
    let point = &stats["queues"]["q"]["series"][0];
    assert_eq!((numbers(point, EVENTS), numbers(point, JOBS)), ([0, 0, 0, 0], [1, 1, 0, 0]));
    server.stop().await;
}
