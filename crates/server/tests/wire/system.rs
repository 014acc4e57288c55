//! Health, info, stats, workers, metrics.

use std::sync::Arc;

use longshore_server::ServerClock;
use longshore_store::{Clock, StoreHealth, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use serde_json::{Value, json};

use crate::common::Setup;
use crate::common::client::lease;
use crate::common::delayed_store::Slow;

#[tokio::test]
async fn health_info_and_start_page_are_served() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert_eq!(c.get("/livez").await.ok(200), json!({"status": "ok"}));
    assert_eq!(c.get("/readyz").await.ok(200), json!({"status": "ready"}));
    let info = c.get("/v1/info").await.ok(200);
    assert_eq!(
        (&info["name"], &info["virtual_clock"], &info["store"]["kind"]),
        (&"longshore".into(), &true.into(), &"test".into())
    );
    assert!(info["version"].is_string() && info["store"]["durability"].is_string());
    assert_eq!((&info["store"]["writable"], &info["store"]["refusing"]), (&true.into(), &Value::Null));
    assert!(c.get("/metrics").await.text().contains("\nlongshore_store_writable 1\n"));
    let page = c.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(c.call("HEAD", "/", None).await.status, 200);
    assert_eq!(c.get("/ui/nothing.js").await.problem(404, "not_found")["status"], 404);
    assert_eq!(c.post("/", "{}").await.status, 405);
    assert_eq!(c.call("HEAD", "/v1/info", None).await.status, 200);
    server.stop().await;
}

/// Every report of health shows a store that rejects new jobs.
#[tokio::test]
async fn a_store_that_rejects_jobs_is_visible() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(StoreOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let slow = Arc::new(Slow::new(Arc::new(store)));
    let server = Setup::memory().serve(slow.clone(), ServerClock::Real).await;
    let mut c = server.client().await;
    let full = Some("no space is left on the disk".to_owned());
    slow.set_health(StoreHealth { refusing: full, reserve_bytes: Some(0), free_bytes: Some(4_096) });
    let problem = c.get("/readyz").await.problem(503, "store_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("no space is left on the disk"), "{problem}");
    assert_eq!(c.get("/livez").await.ok(200), json!({"status": "ok"}));
    let store = c.get("/v1/info").await.ok(200)["store"].clone();
    assert_eq!((&store["writable"], &store["refusing"]), (&false.into(), &"no space is left on the disk".into()));
    assert_eq!((&store["reserve_bytes"], &store["free_bytes"]), (&0.into(), &4_096.into()));
    let metrics = c.get("/metrics").await.text().to_owned();
    for line in ["longshore_store_writable 0", "longshore_store_reserve_bytes 0", "longshore_store_free_bytes 4096"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    slow.set_health(StoreHealth::default());
    assert_eq!(c.get("/readyz").await.ok(200), json!({"status": "ready"}));
    server.stop().await;
}

#[tokio::test]
async fn stats_have_counts_and_rates() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    for _ in 0..3 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    let (id, token) = lease(&c.claim("q").await);
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let (id, token) = lease(&c.claim("q").await);
    c.post(&format!("/v1/jobs/{id}/fail"), &format!(r#"{{"lease":"{token}","error":{{"category":"permanent"}}}}"#))
        .await
        .ok(200);
    // Counters lag behind commits.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    let stats = loop {
        let stats = c.get("/v1/stats").await.ok(200);
        if stats["totals"]["since_start"]["failed"] == 1 {
            break stats;
        }
        assert!(tokio::time::Instant::now() < deadline, "{stats}");
    };
    let queue = &stats["queues"]["q"];
    assert_eq!(queue["since_start"], json!({"submitted": 3, "claimed": 2, "completed": 1, "failed": 1}));
    assert_eq!(
        (&queue["counts"]["scheduled"], &queue["counts"]["completed"], &queue["counts"]["failed"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert!(queue["rates"]["submitted"].as_f64().unwrap() > 0.0);
    assert_eq!(stats["totals"]["counts"]["scheduled"], 1);
    server.stop().await;
}

#[tokio::test]
async fn workers_are_listed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert_eq!(c.get("/v1/workers").await.ok(200), json!({"workers": []}));
    c.submit("q", r#"{"type":"t"}"#).await;
    let (id, token) = lease(&c.claim("q").await);
    let worker = c.get("/v1/workers").await.ok(200)["workers"][0].clone();
    assert_eq!(
        worker,
        json!({
            "name": "w1",
            "directive": "run",
            "version": null,
            "types": [],
            "queues": ["q"],
            "last_seen_at": "2026-11-15T00:00:00.000Z",
            "running": 1,
            "waiting": 0,
        })
    );
    c.advance("5s").await;
    c.post(&format!("/v1/jobs/{id}/heartbeat"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(c.get("/v1/workers").await.ok(200)["workers"][0]["last_seen_at"], "2026-11-15T00:00:05.000Z");
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while c.get("/v1/workers").await.ok(200)["workers"][0]["running"] != 0 {
        assert!(tokio::time::Instant::now() < deadline, "never let go");
    }
    server.stop().await;
}

/// `docs/metrics.md` lists each metric with its type and its help.
#[tokio::test]
async fn every_metric_is_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let home = tempfile::tempdir().unwrap();
    let on_postgres = crate::common::on_postgres();
    let setup = if on_postgres { Setup::memory() } else { Setup::directory(home.path()) };
    let server = setup.start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    let text = c.get("/metrics").await.text().to_owned();
    let kinds: std::collections::BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let mut names = Vec::new();
    for (name, help) in helps {
        let row = format!("| `{name}` | {} | {help} |", kinds[name]);
        assert!(page.lines().any(|line| line == row), "missing in docs/metrics.md: {row}");
        names.push(name);
    }
    assert!(page.contains("`longshore_store_reserve_bytes`"), "the server of this test has no reserve");
    let common = ["commit_duration_seconds", "commit_batch_size", "poisoned", "writable"];
    let embedded = ["wal_bytes", "watermark_age_seconds", "cache_total", "free_bytes"];
    let own: &[&str] = if on_postgres { &["fast_path_total"] } else { &embedded };
    for name in common.iter().chain(own) {
        assert!(names.contains(&format!("longshore_store_{name}").as_str()), "{name} is missing");
    }
    assert!(!text.contains("longshore_store_commit_duration_seconds_count 0\n"), "the submission is a commit");
    server.stop().await;
}

#[tokio::test]
async fn metrics_are_bounded_and_valid() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for number in 0..250 {
        c.submit(&format!("q{number:03}"), r#"{"type":"t"}"#).await;
    }
    c.get("/v1/jobs/missing").await.problem(404, "job_not_found");
    c.get("/some/random/path").await.problem(404, "not_found");
    c.call("BREW", "/v1/jobs", None).await.problem(405, "method_not_allowed");
    let reply = c.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = reply.text();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("longshore_") && value.parse::<f64>().is_ok(), "{line}");
    }
    let queues =
        text.lines().filter(|line| line.starts_with("longshore_jobs{") && line.contains("state=\"scheduled\"")).count();
    assert_eq!(queues, 201, "200 apart and the others together");
    assert!(text.contains("longshore_jobs{queue=\"_other\",state=\"scheduled\"} 51"));
    assert!(text.contains(r#"longshore_http_requests_total{method="GET",route="/v1/jobs/{id}",status="4xx"} 1"#));
    assert!(text.contains(r#"route="unknown",status="4xx""#) && !text.contains("random"));
    assert!(text.contains(r#"method="other""#) && !text.contains("BREW"));
    server.stop().await;
}

/// Every described operation has a route.
#[tokio::test]
async fn every_described_operation_is_served() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let document = c.get("/openapi.json").await.ok(200);
    let mut seen = 0;
    // The response of /v1/events has no end; wire/events.rs reads it.
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| *path != "/v1/events");
    for (path, item) in paths {
        for method in item.as_object().unwrap().keys() {
            let concrete = path.replace("{queue}", "q").replace("{id}", "0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10");
            let reply = c.call(&method.to_uppercase(), &concrete, None).await;
            let code = if reply.status >= 400 { reply.json()["code"].clone() } else { Value::Null };
            // An unknown delivery or operation has the code of an unknown path.
            let has_own_code = !path.starts_with("/v1/deliveries/") && !path.starts_with("/v1/operations/{id}");
            assert!(reply.status != 405 && !(has_own_code && code == "not_found"), "{method} {path}: {}", reply.text());
            assert!(reply.status < 500, "{method} {path}: {}", reply.text());
            seen += 1;
        }
    }
    assert!(seen >= 40, "only {seen}");
    assert_eq!(document["openapi"].as_str().unwrap().split('.').next(), Some("3"));
    server.stop().await;
}
