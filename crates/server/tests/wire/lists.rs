//! Lists of jobs and bulk commands.

use serde_json::{Value, json};

use crate::common::{Client, Setup};

fn ids(page: &Value) -> Vec<String> {
    page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

/// Reads all pages.
async fn all(c: &mut Client, filter: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = c.get(&format!("/v1/jobs?{filter}&limit={limit}{cursor}")).await.ok(200);
        assert!(page["jobs"].as_array().unwrap().len() <= limit);
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// Proves O-55.
/// Rules Lists.
#[tokio::test]
async fn every_filter_returns_newest_first() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let mut made = Vec::new();
    for number in 0..30 {
        let (queue, kind) = (["a", "b"][number % 2], ["x", "y", "z"][number % 3]);
        let priority = ["high", "bulk"][number / 15];
        let tags = [r#"{"tenant":"acme"}"#, r#"["alice"]"#, "{}"][number % 3];
        let delay = if number % 5 == 0 { r#","delay":"1h""# } else { "" };
        let job = format!(r#"{{"type":"{kind}","priority":"{priority}","tags":{tags}{delay}}}"#);
        made.push((c.submit(queue, &job).await, number));
    }
    made.reverse();
    let expected = |fits: &dyn Fn(usize) -> bool| -> Vec<String> {
        made.iter().filter(|(_, number)| fits(*number)).map(|(id, _)| id.clone()).collect()
    };
    let filters: [(&str, &dyn Fn(usize) -> bool); 12] = [
        ("", &|_| true),
        ("queue=a", &|n| n % 2 == 0),
        ("type=y", &|n| n % 3 == 1),
        ("state=delayed", &|n| n % 5 == 0),
        ("state=completed", &|_| false),
        ("priority=high", &|n| n < 15),
        ("priority=4", &|n| n >= 15),
        ("tag=tenant:acme", &|n| n % 3 == 0),
        ("tag=tenant", &|n| n % 3 == 0),
        ("tag=alice", &|n| n % 3 == 1),
        ("queue=b&type=z&state=scheduled&priority=bulk", &|n| n % 2 == 1 && n % 3 == 2 && n % 5 != 0 && n >= 15),
        ("queue=missing", &|_| false),
    ];
    for (filter, fits) in filters {
        for limit in [1, 7, 1_000] {
            assert_eq!(all(&mut c, filter, limit).await, expected(fits), "{filter} by {limit}");
        }
    }
    let rows = c.get("/v1/jobs?limit=1").await.ok(200);
    assert_eq!(rows["jobs"][0], c.job(&made[0].0).await, "rows are the record");
    server.stop().await;
}

#[tokio::test]
async fn the_default_limit_is_100() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let batch = format!("[{}]", vec![r#"{"type":"t"}"#; 150].join(","));
    c.post("/v1/queues/q/jobs", &batch).await.ok(201);
    assert_eq!(ids(&c.get("/v1/jobs").await.ok(200)).len(), 100);
    for bad in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "limit=",
        "state=gone",
        "priority=5",
        "cursor=x",
        "cursor=-1",
        "cursor=%2B1",
        "quue=a",
        "queue=a%20b",
        "limit=1&limit=2",
    ] {
        let reply = c.get(&format!("/v1/jobs?{bad}")).await;
        assert_eq!(reply.status, 400, "{bad}: {}", reply.text());
    }
    assert_eq!(ids(&c.get("/v1/jobs?workflow=w").await.ok(200)).len(), 0);
    server.stop().await;
}

#[tokio::test]
async fn jobs_filter_by_ids_keys_times_and_states() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/a", r#"{"settings":{"external_ids":true}}"#).await.ok(201);
    c.put("/v1/queues/b", r#"{"settings":{"external_ids":true}}"#).await.ok(201);
    let first = r#"{"type":"t","external_id":"order 1","idempotency_key":"k&1","correlation_id":"trace/1"}"#;
    let a = c.submit("a", first).await;
    let b = c.submit("b", first).await;
    let traced = c.submit("b", r#"{"type":"t","correlation_id":"trace/1"}"#).await;
    let bare = c.submit("b", r#"{"type":"t"}"#).await;
    c.post(&format!("/v1/jobs/{a}/cancel"), "").await.ok(200);
    c.post(&format!("/v1/jobs/{traced}/dead-letter"), "{}").await.ok(200);
    let created = c.job(&a).await["created_at"].as_str().unwrap().to_owned();
    let everything = [&bare, &traced, &b, &a].map(String::clone).to_vec();
    let filters: Vec<(String, Vec<&String>)> = vec![
        ("external_id=order+1".into(), vec![&b, &a]),
        ("external_id=order+1&queue=a".into(), vec![&a]),
        ("external_id=order+2".into(), vec![]),
        ("idempotency_key=k%261".into(), vec![&b, &a]),
        ("idempotency_key=k".into(), vec![]),
        ("correlation_id=trace/1".into(), vec![&traced, &b, &a]),
        ("correlation_id=trace/1&state=cancelled,scheduled".into(), vec![&b, &a]),
        ("error_code=cancelled".into(), vec![&a]),
        ("error_code=dead_letter&correlation_id=trace/1".into(), vec![&traced]),
        ("state=cancelled,dead_letter".into(), vec![&traced, &a]),
        (format!("created_after={created}"), everything.iter().collect()),
        (format!("created_before={created}"), vec![]),
        ("created_after=2001-01-01T00:00:00Z&created_before=9999-01-01T00:00:00Z".into(), everything.iter().collect()),
        ("created_after=9999-01-01T00:00:00Z".into(), vec![]),
    ];
    for (filter, expected) in &filters {
        for limit in [1, 1_000] {
            assert_eq!(all(&mut c, filter, limit).await.iter().collect::<Vec<_>>(), *expected, "{filter} by {limit}");
        }
    }
    let long = "x".repeat(257);
    for (bad, field, says) in [
        ("state=failed,gone", "state", "dead_letter"),
        ("state=", "state", "dead_letter"),
        ("state=failed,", "state", "dead_letter"),
        ("created_after=yesterday", "created_after", "2026-"),
        ("created_before=1763452800", "created_before", "2026-"),
        ("fields=id,secret", "fields", "correlation_id"),
        ("fields=", "fields", "correlation_id"),
        ("fields=payload", "fields", "correlation_id"),
        (&format!("external_id={long}"), "external_id", "256"),
        ("correlation_id=", "correlation_id", "256"),
        (&format!("idempotency_key={long}"), "idempotency_key", "256"),
        (&format!("correlation_id={long}"), "correlation_id", "256"),
        (&format!("error_code={long}"), "error_code", "256"),
    ] {
        let problem = c.get(&format!("/v1/jobs?{bad}")).await.problem(400, "validation");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("\"{field}\"")) && detail.contains(says), "{bad}: {detail}");
    }
    server.stop().await;
}

/// A selected field has the same bytes as in the record.
#[tokio::test]
async fn rows_have_the_selected_fields() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t","tags":{"tenant":"acme"}}"#).await;
    let job = c.claim("q").await;
    let (_, token) = crate::common::client::lease(&job);
    let result = r#"{ "big": 12345678901234567890.10 }"#;
    let body = format!(r#"{{"lease":"{token}","result":{result}}}"#);
    c.post(&format!("/v1/jobs/{id}/complete"), &body).await.ok(200);
    let record = c.job(&id).await;
    let page = c.get("/v1/jobs?fields=id,state").await.ok(200);
    assert_eq!(page, json!({"jobs": [{"id": id, "state": "completed"}], "next": null}));
    let reply = c.get("/v1/jobs?fields=result,result").await;
    assert!(reply.text().contains(result), "{}", reply.text());
    let names: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
    let page = c.get(&format!("/v1/jobs?fields={}", names.join(","))).await.ok(200);
    assert_eq!(page["jobs"][0], record, "every field of the record has a name");
    server.stop().await;
}

#[tokio::test]
async fn a_bulk_filter_accepts_several_states() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for end in ["cancel", "dead-letter", "dead-letter"] {
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        c.post(&format!("/v1/jobs/{id}/{end}"), "{}").await.ok(200);
    }
    c.submit("q", r#"{"type":"t"}"#).await;
    let bulk = |states: &str| format!(r#"{{"action":"delete","filter":{{"state":"{states}"}}}}"#);
    let done = c.post("/v1/jobs/bulk", &bulk("cancelled,dead_letter")).await.ok(200);
    assert_eq!(done, json!({"matched": 3, "changed": 3, "more": false}));
    c.post("/v1/jobs/bulk", &bulk("cancelled,gone")).await.problem(400, "validation");
    server.stop().await;
}

/// Rules Bulk.
#[tokio::test]
async fn bulk_changes_matching_jobs() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for number in 0..5 {
        let id = c.submit("q", &format!(r#"{{"type":"t{}"}}"#, number % 2)).await;
        c.post(&format!("/v1/jobs/{id}/dead-letter"), "{}").await.ok(200);
    }
    let live = c.submit("q", r#"{"type":"t0"}"#).await;
    let bulk = |action: &str, filter: &str, rest: &str| format!(r#"{{"action":"{action}","filter":{filter}{rest}}}"#);
    let dead = r#"{"queue":"q","state":"dead_letter"}"#;
    let dry = c.post("/v1/jobs/bulk", &bulk("requeue", dead, r#","dry_run":true"#)).await.ok(200);
    assert_eq!(dry, json!({"matched": 5, "changed": 0, "more": false}));
    let some = c.post("/v1/jobs/bulk", &bulk("requeue", dead, r#","limit":2"#)).await.ok(200);
    assert_eq!(some, json!({"matched": 2, "changed": 2, "more": true}));
    let typed =
        c.post("/v1/jobs/bulk", &bulk("requeue", r#"{"type":"t0","error_code":"dead_letter"}"#, "")).await.ok(200);
    assert_eq!(typed, json!({"matched": 2, "changed": 2, "more": false}));
    // Each job has its own verdict: a dead letter cannot be cancelled.
    let all = c.post("/v1/jobs/bulk", &bulk("cancel", r#"{"queue":"q"}"#, "")).await.ok(200);
    assert_eq!(all, json!({"matched": 6, "changed": 5, "more": false}));
    assert_eq!(c.state(&live).await, "cancelled");
    let gone = c.post("/v1/jobs/bulk", &bulk("delete", r#"{"state":"cancelled"}"#, "")).await.ok(200);
    assert_eq!(gone, json!({"matched": 5, "changed": 5, "more": false}));
    assert_eq!(ids(&c.get("/v1/jobs").await.ok(200)).len(), 1);
    for bad in [
        bulk("requeue", "{}", ""),
        bulk("explode", dead, ""),
        bulk("requeue", r#"{"queu":"q"}"#, ""),
        bulk("requeue", r#"{"priority":"high"}"#, ""),
        bulk("requeue", dead, r#","limit":0"#),
        bulk("requeue", dead, r#","limit":1001"#),
        bulk("requeue", "[]", ""),
        r#"{"action":"requeue"}"#.to_owned(),
    ] {
        c.post("/v1/jobs/bulk", &bad).await.problem(400, "validation");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_bulk_requeue_skips_jobs_with_a_clone() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"profile":"gopherqueue"}"#).await.ok(201);
    for _ in 0..3 {
        let id = c.submit("q", r#"{"type":"t"}"#).await;
        c.post(&format!("/v1/jobs/{id}/cancel"), "").await.ok(200);
    }
    let bulk = r#"{"action":"requeue","filter":{"state":"cancelled"}}"#;
    assert_eq!(c.post("/v1/jobs/bulk", bulk).await.ok(200), json!({"matched": 3, "changed": 3, "more": false}));
    assert_eq!(c.post("/v1/jobs/bulk", bulk).await.ok(200), json!({"matched": 0, "changed": 0, "more": false}));
    server.stop().await;
}

/// A page with large results ends early, and the next page continues.
#[tokio::test]
async fn a_page_is_bounded_in_bytes() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let result = "x".repeat(1_000_000);
    for _ in 0..20 {
        c.submit("q", r#"{"type":"t"}"#).await;
        let job = c.claim("q").await;
        let (id, token) = crate::common::client::lease(&job);
        let body = format!(r#"{{"lease":"{token}","result":"{result}"}}"#);
        c.post(&format!("/v1/jobs/{id}/complete"), &body).await.ok(200);
    }
    let first = c.get("/v1/jobs?queue=q&limit=1000").await.ok(200);
    let rows = first["jobs"].as_array().unwrap().len();
    assert_eq!(rows, 16);
    let next = first["next"].as_str().unwrap();
    let second = c.get(&format!("/v1/jobs?queue=q&limit=1000&cursor={next}")).await.ok(200);
    assert_eq!((second["jobs"].as_array().unwrap().len(), &second["next"]), (4, &Value::Null));
    server.stop().await;
}
