//! Submissions.

use serde_json::{Value, json};

use crate::common::{Client, Setup};

#[tokio::test]
async fn every_field_is_returned() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"external_ids":true}}"#).await.ok(201);
    let job = json!({
        "type": "email.send", "payload": {"to": "a"}, "priority": 1, "delay": "90s", "idempotency_key": "k",
        "external_id": "x-1", "tags": {"tenant": "acme", "bare": null}, "correlation_id": "c",
        "callback_url": "https://example.invalid/hook", "hold": false,
        "retry": {"limit": 7, "backoff": {"kind": "list", "delays": ["10s", 60]}, "jitter": {"kind": "none"}},
        "execution_timeout": "10s", "lease": 45, "lifetime": "1d", "retention": {"completed": "0s"}, "max_reclaims": 2
    });
    let response = c.post("/v1/queues/q/jobs", &job.to_string()).await.ok(201);
    assert!(response["seq"].as_u64().unwrap() >= 1);
    assert_eq!((&response["state"], &response["duplicate"]), (&"delayed".into(), &false.into()));
    let id = response["id"].as_str().unwrap();
    assert_eq!(id.len(), 36);
    let shown = c.job(id).await;
    let expected = [
        ("queue", json!("q")),
        ("type", json!("email.send")),
        ("state", json!("delayed")),
        ("priority", json!("high")),
        ("effective_priority", json!("high")),
        ("attempt", json!(0)),
        ("tags", json!({"tenant": "acme", "bare": null})),
        ("correlation_id", json!("c")),
        ("callback_url", json!("https://example.invalid/hook")),
        ("idempotency_key", json!("k")),
        ("external_id", json!("x-1")),
        ("created_at", json!("2026-11-15T00:00:00.000Z")),
        ("run_at", json!("2026-11-15T00:01:30.000Z")),
        ("scheduled_at", Value::Null),
        ("lease", Value::Null),
        ("error", Value::Null),
        ("after", json!([])),
        ("waiting_on", json!(0)),
        ("workflow", Value::Null),
        ("cancel_requested", json!(false)),
    ];
    for (field, value) in expected {
        assert_eq!(shown[field], value, "{field}");
    }
    let policy = &shown["policy"];
    assert_eq!(policy["retry"]["limit"], 7);
    assert_eq!(policy["retry"]["backoff"]["delays"], json!(["10s", "1m"]));
    assert_eq!(policy["retry"]["on_exhausted"], "dead_letter", "what is not given is inherited");
    assert_eq!((&policy["execution_timeout"], &policy["lease"]), (&json!("10s"), &json!("45s")));
    assert_eq!((&policy["lifetime"], &policy["max_reclaims"]), (&json!("24h"), &json!(2)));
    assert_eq!((&policy["retention"]["completed"], &policy["retention"]["failed"]), (&json!("0s"), &json!("7d")));
    assert!(shown.get("payload").is_none());
    server.stop().await;
}

#[tokio::test]
async fn list_tags_are_returned_as_a_map() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t","tags":["batch-7","alice"]}"#).await;
    assert_eq!(c.job(&id).await["tags"], json!({"batch-7": null, "alice": null}));
    server.stop().await;
}

/// Proves G-9.1, G-9.4, G-9.5.
#[tokio::test]
async fn json_payloads_are_kept_byte_for_byte() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let payloads = [
        r#"{"a":1.000,  "a":1e400,"b":[ ],"n":123456789012345678901234567890.10}"#,
        "null",
        "\"\\u00e4\\ud83d\\ude00 \\/ \u{1F980}\"",
        "\"\\ud800 a lone half\"",
        "0.1e-5",
        "[[],{}, true]",
        "\"\"",
    ];
    for payload in payloads {
        let id = c.submit("q", &format!(r#"{{"type":"t","payload": {payload} }}"#)).await;
        let reply = c.get(&format!("/v1/jobs/{id}/payload")).await;
        assert_eq!((reply.status, reply.text()), (200, payload));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let reply = c.get(&format!("/v1/jobs/{id}?include=payload")).await;
        assert!(reply.text().contains(&format!(r#""payload":{payload}"#)), "{}", reply.text());
        let reply = c.post("/v1/claims", r#"{"queues":["q"]}"#).await;
        assert!(reply.text().contains(&format!(r#""payload":{payload}"#)), "{}", reply.text());
    }
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    assert_eq!(c.get(&format!("/v1/jobs/{id}/payload")).await.text(), "null", "none given");
    server.stop().await;
}

#[tokio::test]
async fn binary_payloads_are_kept_byte_for_byte() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t","payload_base64":"AP/+ew=="}"#).await;
    let reply = c.get(&format!("/v1/jobs/{id}/payload")).await;
    assert_eq!(
        (reply.body.as_slice(), reply.header("content-type")),
        ([0, 255, 254, 123].as_slice(), Some("application/octet-stream"))
    );
    let shown = c.get(&format!("/v1/jobs/{id}?include=payload")).await.ok(200);
    assert_eq!((shown["payload_base64"].as_str(), shown.get("payload")), (Some("AP/+ew=="), None));
    assert_eq!(c.claim("q").await["payload_base64"], "AP/+ew==");
    for bad in [r#""payload_base64":"AP/+ew""#, r#""payload_base64":"***""#, r#""payload_base64":"AA==","payload":1"#] {
        c.post("/v1/queues/q/jobs", &format!(r#"{{"type":"t",{bad}}}"#)).await.problem(400, "validation");
    }
    server.stop().await;
}

/// Proves G-9.2.
#[tokio::test]
async fn the_payload_limit_is_exact() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let job = |bytes: usize| format!(r#"{{"type":"t","payload":"{}"}}"#, "x".repeat(bytes - 2));
    c.submit("q", &job(1_048_576)).await;
    c.post("/v1/queues/q/jobs", &job(1_048_577)).await.problem(413, "payload_too_large");
    c.put("/v1/queues/large", r#"{"settings":{"payload_max":16777216}}"#).await.ok(201);
    c.submit("large", &job(16_777_216)).await;
    c.post("/v1/queues/large/jobs", &job(16_777_217)).await.problem(413, "payload_too_large");
    c.put("/v1/queues/large", r#"{"settings":{"payload_max":16777217}}"#).await.problem(400, "validation");
    server.stop().await;
}

#[tokio::test]
async fn a_batch_keeps_order_and_resolves_refs() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let batch =
        r##"[{"type":"last","after":["#a","#b"]},{"type":"t","ref":"a"},{"type":"t","ref":"b","after_any":["#a"]}]"##;
    let response = c.post("/v1/queues/q/jobs", batch).await.ok(201);
    let jobs = response["jobs"].as_array().unwrap();
    let states: Vec<_> = jobs.iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["pending", "scheduled", "pending"]);
    let last = c.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(last["after"], json!([jobs[1]["id"], jobs[2]["id"]]));
    assert_eq!(last["waiting_on"], 2);
    // A dependency by id, across requests.
    let dependent = format!(r#"{{"type":"t","after":[{}]}}"#, jobs[0]["id"]);
    assert_eq!(c.post("/v1/queues/q/jobs", &dependent).await.ok(201)["state"], "pending");
    server.stop().await;
}

/// Proves G-1.10.
#[tokio::test]
async fn a_duplicate_key_returns_the_existing_job() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let keyed = r#"{"type":"t","idempotency_key":"k"}"#;
    let first = c.post("/v1/queues/q/jobs", keyed).await.ok(201);
    let again = c.post("/v1/queues/q/jobs", keyed).await.ok(200);
    assert_eq!((&again["id"], &again["duplicate"], &again["state"]), (&first["id"], &true.into(), &"scheduled".into()));
    let all_known = c.post("/v1/queues/q/jobs", &format!("[{keyed},{keyed}]")).await.ok(200);
    assert_eq!(all_known["jobs"][1]["duplicate"], true);
    let one_new = c.post("/v1/queues/q/jobs", &format!(r#"[{keyed},{{"type":"t"}}]"#)).await.ok(201);
    let duplicates: Vec<_> = one_new["jobs"].as_array().unwrap().iter().map(|job| job["duplicate"].clone()).collect();
    assert_eq!(duplicates, [true, false]);
    // The key outlives its job until the window ends: then the state is null.
    let id = c.claim("q").await;
    let (id, token) = crate::common::client::lease(&id);
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(c.delete(&format!("/v1/jobs/{id}")).await.status, 204);
    let gone = c.post("/v1/queues/q/jobs", keyed).await.ok(200);
    assert_eq!(
        (&gone["state"], &gone["duplicate"], gone["id"].as_str()),
        (&Value::Null, &true.into(), Some(id.as_str()))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_duplicate_has_same_payload() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let jobs = "/v1/queues/q/jobs";
    let job = |key: &str, payload: &str| format!(r#"{{"type":"t","idempotency_key":"{key}",{payload}}}"#);
    let first = c.post(jobs, &job("k", r#""payload":{"a":1}"#)).await.ok(201);
    assert!(first.get("same_payload").is_none(), "{first}");
    let same = c.post(jobs, &job("k", r#""payload":{"a":1}"#)).await.ok(200);
    assert_eq!((&same["id"], &same["same_payload"]), (&first["id"], &true.into()));
    for other in
        [r#""payload":{"a":2}"#, r#""payload":{"a": 1}"#, r#""payload_base64":"eyJhIjoxfQ==""#, r#""hold":true"#]
    {
        assert_eq!(c.post(jobs, &job("k", other)).await.ok(200)["same_payload"], false, "{other}");
    }
    // Each duplicate of a batch is compared, also with a job of the same batch.
    let batch = [
        job("k", r#""payload":{"a":1}"#),
        job("new", r#""payload":[1]"#),
        job("new", r#""payload":[1]"#),
        job("new", r#""payload":[2]"#),
        r#"{"type":"t","payload":{"a":1}}"#.to_owned(),
    ];
    let response = c.post(jobs, &format!("[{}]", batch.join(","))).await.ok(201);
    let same: Vec<Value> = response["jobs"].as_array().unwrap().iter().map(|job| job["same_payload"].clone()).collect();
    assert_eq!(same, [json!(true), Value::Null, json!(true), json!(false), Value::Null]);
    // An ended job can be compared, a deleted job cannot.
    let (id, token) = crate::common::client::lease(&c.claim("q").await);
    assert_eq!(json!(id), first["id"]);
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(c.post(jobs, &job("k", r#""payload":{"a":1}"#)).await.ok(200)["same_payload"], true);
    assert_eq!(c.delete(&format!("/v1/jobs/{id}")).await.status, 204);
    let gone = c.post(jobs, &job("k", r#""payload":{"a":1}"#)).await.ok(200);
    assert!(gone["duplicate"] == true && gone.get("same_payload").is_none(), "{gone}");
    server.stop().await;
}

#[tokio::test]
async fn the_idempotency_key_may_be_a_header() {
    async fn post(c: &mut Client, headers: &str, body: &str) -> crate::common::client::Reply {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        c.send_bytes("POST", "/v1/queues/q/jobs", &headers, body.as_bytes()).await;
        c.reply().await.unwrap()
    }
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let (key, plain) = ("Idempotency-Key: order 7/ä\r\n", r#"{"type":"t"}"#);
    let first = post(&mut c, key, plain).await.ok(201);
    assert_eq!(c.job(first["id"].as_str().unwrap()).await["idempotency_key"], "order 7/ä");
    let again = post(&mut c, key, plain).await.ok(200);
    assert_eq!((&again["id"], &again["duplicate"], &again["same_payload"]), (&first["id"], &true.into(), &true.into()));
    let both = r#"{"type":"t","idempotency_key":"order 7/ä"}"#;
    assert_eq!(post(&mut c, key, both).await.ok(200)["id"], first["id"]);
    assert_eq!(post(&mut c, "", both).await.ok(200)["id"], first["id"]);
    let different = r#"{"type":"t","idempotency_key":"order 8"}"#;
    let problem = post(&mut c, key, different).await.problem(400, "validation");
    assert_eq!(problem["field"], "idempotency_key");
    for (headers, body) in
        [(key, "[]"), (key, r#"[{"type":"t"}]"#), ("Idempotency-Key: a\r\nIdempotency-Key: a\r\n", plain)]
    {
        let problem = post(&mut c, headers, body).await.problem(400, "validation");
        assert_eq!(problem["field"], "Idempotency-Key");
    }
    let long = format!("Idempotency-Key: {}\r\n", "k".repeat(257));
    assert_eq!(post(&mut c, &long, plain).await.problem(400, "validation")["field"], "idempotency_key");
    assert_eq!(c.get("/v1/queues/q").await.ok(200)["counts"]["scheduled"], 1, "nothing else was stored");
    server.stop().await;
}

/// The problem has the first error and the list of all errors; nothing is stored.
#[tokio::test]
async fn a_refused_batch_lists_its_items() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let refused = [
        (r#"[{"type":"t"},{"typ":"t"},{"type":"t","after":["missing"]}]"#, 400, "validation", vec![1, 2]),
        (
            r#"[{"type":"t","after":["0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10"]},{"type":""}]"#,
            400,
            "dependency_unknown",
            vec![0, 1],
        ),
        (
            r##"[{"type":"a","ref":"a","after":["#b"]},{"type":"b","ref":"b","after":["#a"]},7]"##,
            400,
            "dependency_cycle",
            vec![0, 1, 2],
        ),
        (r#"[{"type":"t","type":"t"},{"type":5}]"#, 400, "bad_request", vec![0, 1]),
        (r#"[{"type":"t"},{"type":"t","ref":"x"},{"type":"t","ref":"x"}]"#, 400, "validation", vec![2]),
        (r#"[{"type":"t"},{"type":"t","external_id":"x"}]"#, 400, "validation", vec![1]),
        (r##"[{"type":"t","priority":9,"ref":"r"},{"type":"t","after":["#r"]}]"##, 400, "validation", vec![0]),
        (r##"[{"type":"t","after":["#r"]}]"##, 400, "dependency_unknown", vec![0]),
        ("[]", 400, "validation", vec![]),
    ];
    for (batch, status, code, members) in refused {
        let problem = c.post("/v1/queues/q/jobs", batch).await.problem(status, code);
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let indices: Vec<_> = errors.iter().map(|error| error["index"].as_u64().unwrap()).collect();
        assert_eq!(indices, members, "{batch}: {problem}");
        assert!(errors.first().is_none_or(|first| first["code"] == code));
    }
    let odd =
        c.post("/v1/queues/q/jobs", r#"[{"type":"t","after":["missing"]}]"#).await.problem(400, "dependency_unknown");
    assert_eq!(odd["errors"][0]["detail"], "dependency \"missing\" does not exist");
    assert_eq!((&odd["field"], &odd["errors"][0]["field"]), (&json!("jobs[0].after[0]"), &json!("jobs[0].after[0]")));
    let one =
        c.post("/v1/queues/q/jobs", r#"{"type":"t","after":["missing"]}"#).await.problem(400, "dependency_unknown");
    assert!(one.get("errors").is_none(), "one job is no batch: {one}");
    assert_eq!(one["field"], "after[0]");
    assert_nothing_stored(&mut c).await;
    server.stop().await;
}

#[tokio::test]
async fn a_batch_has_at_most_1000_jobs() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let batch = |jobs: usize| format!("[{}]", vec![r#"{"type":"t"}"#; jobs].join(","));
    c.post("/v1/queues/q/jobs", &batch(1_001)).await.problem(400, "validation");
    assert_nothing_stored(&mut c).await;
    let response = c.post("/v1/queues/q/jobs", &batch(1_000)).await.ok(201);
    assert_eq!(response["jobs"].as_array().unwrap().len(), 1_000);
    server.stop().await;
}

pub(crate) async fn assert_nothing_stored(c: &mut Client) {
    let jobs = c.get("/v1/jobs").await.ok(200);
    assert_eq!(jobs, json!({"jobs": [], "next": null}));
}
