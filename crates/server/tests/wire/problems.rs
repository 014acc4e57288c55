//! Problem documents: request id, invalid field, allowed values, and hints.

use serde_json::{Value, json};

use crate::common::client::{Reply, lease};
use crate::common::{Client, Setup};

async fn call_with(c: &mut Client, method: &str, path: &str, headers: &str, body: &str) -> Reply {
    c.send_bytes(method, path, headers, body.as_bytes()).await;
    c.reply().await.unwrap()
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let mut seen = std::collections::HashSet::new();
    for path in ["/v1/queues", "/livez", "/metrics", "/openapi.json", "/", "/queue", "/queue/none", "/v1/nothing"] {
        let id = c.get(path).await.header("x-request-id").unwrap().to_owned();
        assert!(!id.is_empty() && seen.insert(id), "{path}");
    }
    assert!(c.delete("/v1/queues/default").await.header("x-request-id").is_some());
    assert!(c.call("HEAD", "/v1/nothing", None).await.header("x-request-id").is_some());
    assert_eq!(c.get("/livez").await.status, 200, "nothing of the answer to HEAD was left on the connection");
    server.stop().await;
}

#[tokio::test]
async fn a_valid_request_id_of_the_client_is_kept() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let longest = "x".repeat(128);
    for own in ["a", "4bf92f35-77b3", "~!/=", longest.as_str()] {
        let reply = call_with(&mut c, "GET", "/v1/nothing", &format!("X-Request-ID: {own}\r\n"), "").await;
        assert_eq!(reply.header("x-request-id"), Some(own));
        assert_eq!(reply.problem(404, "not_found")["request_id"], own);
    }
    let too_long = format!("X-Request-Id: {}\r\n", "x".repeat(129));
    for headers in ["X-Request-Id: two words\r\n", "X-Request-Id: \r\n", too_long.as_str()] {
        let reply = call_with(&mut c, "GET", "/v1/nothing", headers, "").await;
        let id = reply.header("x-request-id").unwrap();
        assert!(!headers.contains(id), "{headers} {id}");
        reply.problem(404, "not_found");
    }
    server.stop().await;
}

/// Errors before routing, and errors of bodies, have the request id too.
#[tokio::test]
async fn errors_before_routing_have_a_request_id() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let own = "X-Request-Id: mine\r\n";
    let long = format!("/v1/jobs?type={}", "x".repeat(9_000));
    let reply = call_with(&mut c, "GET", &long, own, "").await;
    assert_eq!(reply.problem(400, "bad_request")["request_id"], "mine");
    let elsewhere = format!("{own}Origin: https://example.invalid\r\n");
    let reply = call_with(&mut c, "POST", "/v1/claims", &elsewhere, "").await;
    assert_eq!(reply.problem(403, "forbidden")["request_id"], "mine");
    let reply = call_with(&mut c, "POST", "/v1/claims", &format!("{own}Content-Type: text/plain\r\n"), "x").await;
    assert_eq!(reply.problem(415, "unsupported_media_type")["request_id"], "mine");
    let reply = call_with(&mut c, "PUT", "/v1/claims", own, "").await;
    assert_eq!(reply.problem(405, "method_not_allowed")["request_id"], "mine");
    assert_eq!(reply.header("allow"), Some("POST"));
    server.stop().await;
}

fn field(problem: &Value) -> &str {
    problem["field"].as_str().unwrap_or_else(|| panic!("no field: {problem}"))
}

#[tokio::test]
async fn errors_list_the_allowed_values() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let states = json!([
        "pending",
        "scheduled",
        "delayed",
        "running",
        "retrying",
        "completed",
        "failed",
        "dead_letter",
        "cancelled"
    ]);
    let problem = c.get("/v1/jobs?state=dead").await.problem(400, "validation");
    assert_eq!((field(&problem), &problem["allowed"]), ("state", &states));
    assert!(problem["detail"].as_str().unwrap().contains("dead_letter"), "{problem}");
    let priorities = json!(["critical", "high", "normal", "low", "bulk"]);
    let problem = c.get("/v1/jobs?priority=urgent").await.problem(400, "validation");
    assert_eq!((field(&problem), &problem["allowed"]), ("priority", &priorities));
    let problem = c.get("/v1/workflows?state=done").await.problem(400, "validation");
    assert_eq!(problem["allowed"], json!(["running", "completed", "failed", "cancelled"]));
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let problem = c.get(&format!("/v1/jobs/{id}?view=mine")).await.problem(400, "validation");
    assert_eq!(problem["allowed"], json!(["gopherqueue", "taskharbor", "ocypod", "weave", "document"]));
    let problem = c.delete("/v1/queues/q?force=yes").await.problem(400, "validation");
    assert_eq!((field(&problem), &problem["allowed"]), ("force", &json!(["true", "false"])));
    let cases = [
        ("PUT", "/v1/queues/q", r#"{"profile":"gopher"}"#, "profile", 6),
        ("PUT", "/v1/queues/q", r#"{"settings":{"retry":{"counts":"x"}}}"#, "settings.retry.counts", 3),
        ("PUT", "/v1/queues/q", r#"{"settings":{"retry":{"backoff":{"kind":"x"}}}}"#, "settings.retry.backoff.kind", 4),
        ("POST", "/v1/queues/q/jobs", r#"{"type":"t","priority":"urgent"}"#, "priority", 5),
        ("POST", "/v1/queues/q/jobs", r#"[{"type":"t"},{"type":"t","priority":9}]"#, "jobs[1].priority", 5),
        ("POST", "/v1/jobs/bulk", r#"{"action":"retry","filter":{"state":"failed"}}"#, "action", 3),
        ("POST", "/v1/jobs/bulk", r#"{"action":"requeue","filter":{"state":"x"}}"#, "filter.state", 9),
    ];
    for (method, path, body, name, words) in cases {
        let problem = c.call(method, path, Some(body)).await.problem(400, "validation");
        assert_eq!((field(&problem), problem["allowed"].as_array().unwrap().len()), (name, words), "{problem}");
    }
    let fail = format!("/v1/jobs/{id}/fail");
    let problem = c.post(&fail, r#"{"error":{"category":"bad"}}"#).await.problem(400, "validation");
    assert_eq!(problem["allowed"], json!(["temporary", "permanent", "timeout", "system"]));
    let results = c.post("/v1/settlements", r#"{"settlements":[{"id":"x","outcome":"done"}]}"#).await.ok(200);
    let result = &results["results"][0];
    assert_eq!((field(result), &result["allowed"]), ("outcome", &json!(["complete", "fail", "snooze", "release"])));
    server.stop().await;
}

#[tokio::test]
async fn the_field_is_a_json_path() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/now", r#"{"profile":"document"}"#).await.ok(201);
    let jobs = "/v1/queues/q/jobs";
    let cases = [
        ("PUT", "/v1/queues/q", r#"{"settings":{"retry":{"limit":0}}}"#, "settings.retry.limit"),
        ("PUT", "/v1/queues/q", r#"{"profile":"document","settings":{"submit":"auto"}}"#, "settings.submit"),
        ("PUT", "/v1/queues/q", r#"{"profile":"document","settings":{"retry":{"limit":5}}}"#, "settings.retry.limit"),
        ("POST", "/v1/queues/now/jobs", r#"{"type":"t","delay":"1s"}"#, "delay"),
        ("POST", "/v1/queues/now/jobs", r#"{"type":"t","run_at":"2099-01-01T00:00:00Z"}"#, "run_at"),
        ("POST", jobs, r#"{"type":"t","retry":{"limit":0}}"#, "retry.limit"),
        ("POST", jobs, r#"{"type":"t","external_id":"x"}"#, "external_id"),
        ("POST", jobs, r#"[{"type":"t"},{"type":"t"},{"type":"t"},{"type":"t","delay":"soon"}]"#, "jobs[3].delay"),
        ("POST", jobs, r#"[{"type":"t","retry":{"jitter":{"factor":2}}}]"#, "jobs[0].retry.jitter.factor"),
        ("POST", jobs, "[]", "jobs"),
        ("POST", "/v1/claims", r#"{"queues":["q","no name"]}"#, "queues[1]"),
        ("POST", "/v1/claims", r#"{"queues":["q"],"limit":0}"#, "limit"),
        ("POST", "/v1/workflows", r#"{"jobs":[{"type":"t"}]}"#, "jobs[0].queue"),
        ("POST", "/v1/workflows", r#"{"queue":"q","chain":[{"type":"t"},{"type":""}]}"#, "chain[1].type"),
        ("POST", "/v1/workflows", r#"{"queue":"q","chain":[{"group":[{"typ":"t"}]}]}"#, "chain[0].group[0].typ"),
        ("POST", "/v1/workflows", r#"{"queue":"q","chain":[{"group":[],"x":1}]}"#, "chain[0].x"),
        (
            "POST",
            "/v1/workflows",
            r#"{"queue":"q","chord":{"group":[{"type":"t"}],"finally":{"type":5}}}"#,
            "chord.finally.type",
        ),
        ("GET", "/v1/jobs?limit=0", "", "limit"),
        ("GET", "/v1/jobs?cursor=x", "", "cursor"),
    ];
    for (method, path, body, name) in cases {
        let problem = c.call(method, path, (!body.is_empty()).then_some(body)).await.problem(400, "validation");
        assert_eq!(field(&problem), name, "{problem}");
        assert!(problem["errors"].is_null() || problem["errors"][0]["field"] == name, "{problem}");
    }
    c.submit("q", r#"{"type":"t"}"#).await;
    let (id, token) = lease(&c.claim("q").await);
    let children = format!(r#"{{"lease":"{token}","jobs":[{{"type":"t"}}],"finally":{{"type":"t","delay":-1}}}}"#);
    let problem = c.post(&format!("/v1/jobs/{id}/children"), &children).await.problem(400, "validation");
    assert_eq!(field(&problem), "finally.delay");
    let large = format!(r#"{{"lease":"{token}","progress":"{}"}}"#, "x".repeat(1 << 20));
    let problem = c.post(&format!("/v1/jobs/{id}/complete"), &large).await.problem(413, "payload_too_large");
    assert_eq!(field(&problem), "progress");
    assert!(c.get("/v1/queues/none").await.problem(404, "queue_not_found")["field"].is_null());
    server.stop().await;
}

#[tokio::test]
async fn a_misspelt_name_gets_a_suggestion() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let cases = [
        ("POST", "/v1/queues/q/jobs", r#"{"type":"t","prioirty":"high"}"#, "prioirty", "priority"),
        ("POST", "/v1/queues/q/jobs", r#"{"type":"t","retry":{"limits":3}}"#, "retry.limits", "limit"),
        ("PUT", "/v1/queues/q", r#"{"settings":{"leas":"1m"}}"#, "settings.leas", "lease"),
        ("POST", "/v1/claims", r#"{"queue":["q"]}"#, "queue", "queues"),
        ("GET", "/v1/jobs?stat=failed", "", "stat", "state"),
        ("DELETE", "/v1/queues/q?forced=true", "", "forced", "force"),
    ];
    for (method, path, body, name, meant) in cases {
        let problem = c.call(method, path, (!body.is_empty()).then_some(body)).await.problem(400, "validation");
        assert_eq!(field(&problem), name, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.ends_with(&format!("; did you mean \"{meant}\"?")), "{detail}");
    }
    let problem = c.get("/v1/queues?limit=3").await.problem(400, "validation");
    assert_eq!(problem["detail"], "\"limit\" is not a known parameter: this route has no parameters");
    let problem = c.get("/v1/jobs?colour=red").await.problem(400, "validation");
    assert_eq!(problem["detail"], "\"colour\" is not a known parameter");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_route_names_the_right_one() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let detail = |problem: Value| problem["detail"].as_str().unwrap().to_owned();
    let response = detail(c.post("/v1/jobs", r#"{"type":"t"}"#).await.problem(405, "method_not_allowed"));
    assert!(response.contains("POST /v1/queues/{queue}/jobs"), "{response}");
    for (method, path) in [("GET", "/v1/clock"), ("POST", "/v1/clock/advance")] {
        let response = detail(c.call(method, path, None).await.problem(404, "not_found"));
        assert!(response.contains("--virtual-clock"), "{response}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_cycle_is_reported_with_its_refs() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let cycle = r##"[{"type":"t","ref":"a","after":["#b"]},{"type":"t","ref":"b","after":["#a"]}]"##;
    let problem = c.post("/v1/queues/q/jobs", cycle).await.problem(400, "dependency_cycle");
    assert_eq!(problem["detail"], "job 0 of the batch: the dependencies of \"#a\" lead back to it");
    assert_eq!(problem["errors"][1]["detail"], "the dependencies of \"#b\" lead back to it");
    server.stop().await;
}
