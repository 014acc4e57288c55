//! Hundreds of invalid inputs: always 4xx with a code, never stored, never 5xx.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};

/// A field of a request: its path and its JSON types.
type Field = (&'static str, &'static str);

const KINDS: [(&str, &str); 8] = [
    ("null", "null"),
    ("bool", "true"),
    ("whole", "7"),
    ("number", "1.5"),
    ("negative", "-1"),
    ("text", "\"\\u0001nonsense\""),
    ("list", "[[]]"),
    ("object", "{\"nonsense\":1}"),
];

const JOB: &[Field] = &[
    ("type", ""),
    ("payload_base64", "null"),
    ("priority", "null"),
    ("run_at", "null"),
    ("delay", "null whole number"),
    ("idempotency_key", "null text"),
    ("external_id", "null"),
    ("tags", "null"),
    ("correlation_id", "null text"),
    ("callback_url", "null text"),
    ("after", "null"),
    ("after_any", "null"),
    ("ref", "null"),
    ("hold", "null bool"),
    ("retry", "null"),
    ("retry.limit", "null whole"),
    ("retry.counts", "null"),
    ("retry.backoff", "null"),
    ("retry.backoff.kind", "null"),
    ("retry.backoff.base", "null whole number"),
    ("retry.backoff.multiplier", "null whole number"),
    ("retry.backoff.cap", "null whole number"),
    ("retry.backoff.delays", "null"),
    ("retry.jitter", "null"),
    ("retry.jitter.kind", "null"),
    ("retry.jitter.factor", "null"),
    ("retry.honour_retry_after", "null bool"),
    ("retry.on_permanent", "null"),
    ("retry.on_exhausted", "null"),
    ("retry.on_timeout", "null"),
    ("retry.on_system", "null"),
    ("execution_timeout", "null whole number"),
    ("lease", "null whole number"),
    ("lifetime", "null whole number"),
    ("retention", "null"),
    ("retention.completed", "null whole number"),
    ("retention.failed", "null whole number"),
    ("retention.dead_letter", "null whole number"),
    ("retention.cancelled", "null whole number"),
    ("max_reclaims", "null whole"),
];

const SETTINGS: &[Field] = &[
    ("profile", "null"),
    ("settings", "null"),
    ("settings.retry", "null"),
    ("settings.retry.limit", "null whole"),
    ("settings.retry.backoff", "null"),
    ("settings.execution_timeout", "null whole number"),
    ("settings.lease", "null whole number"),
    ("settings.on_lease_expiry", "null"),
    ("settings.max_reclaims", "null whole"),
    ("settings.reclaim", "null"),
    ("settings.fencing", "null"),
    ("settings.idempotency", "null"),
    ("settings.idempotency.scope", "null"),
    ("settings.idempotency.window", "null whole number"),
    ("settings.external_ids", "null bool"),
    ("settings.lifetime", "null whole number"),
    ("settings.retention", "null"),
    ("settings.payload_max", "null whole"),
    ("settings.priority_order", "null bool"),
    ("settings.requeue_order", "null"),
    ("settings.submit", "null"),
    ("settings.delayed_start", "null bool"),
    ("settings.manual_requeue", "null"),
    ("settings.cancel_running", "null"),
    ("settings.clear_error_on_success", "null bool"),
    ("settings.max_queued", "null whole"),
    ("settings.wait_target", "null whole number"),
];

const CLAIM: &[Field] = &[
    ("queues", ""),
    ("worker", "null"),
    ("limit", "null whole"),
    ("wait", "null whole number"),
    ("types", "null"),
    ("lease", "null whole number"),
    ("execution_timeout", "null whole number"),
];

const FAIL: &[Field] = &[
    ("lease", "null text"),
    ("error", ""),
    ("error.category", ""),
    ("error.message", "null text"),
    ("error.code", "null text"),
    ("error.cause", "null text"),
    ("error.retry_after", "null whole number"),
    ("error.final", "null bool"),
];

const PATCH: &[Field] = &[
    ("priority", "null"),
    ("type", "null"),
    ("tags", "null"),
    ("correlation_id", "null text"),
    ("callback_url", "null text"),
    ("retry", "null"),
    ("retry.limit", "null whole"),
];

const BULK: &[Field] = &[
    ("action", ""),
    ("filter", ""),
    ("filter.queue", "null"),
    ("filter.state", "null"),
    ("filter.type", "null"),
    ("filter.tag", "null text"),
    ("filter.error_code", "null text"),
    ("limit", "null whole"),
    ("dry_run", "null bool"),
];

/// Returns `base` with this value of the field, as text, so that it can be any bytes.
fn with(base: &Value, path: &str, value: &str) -> String {
    let mut changed = base.clone();
    let mut place = &mut changed;
    for name in path.split('.') {
        if !place.is_object() {
            *place = json!({});
        }
        place = place.as_object_mut().unwrap().entry(name).or_insert(Value::Null);
    }
    *place = json!("@here@");
    changed.to_string().replace("\"@here@\"", value)
}

/// Errors that apply to every body.
fn broken(body: &str) -> Vec<(String, &'static str)> {
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let first =
        body.find('"').map_or("x", |_| body.trim_start_matches('{').split(':').next().unwrap().trim_matches('"'));
    let unknown = if body.len() > 2 { "{\"unknown\":1," } else { "{\"unknown\":1" };
    let mut all: Vec<(String, &'static str)> = vec![
        (body[..body.len() - 1].to_owned(), "bad_request"),
        (format!("{body}x"), "bad_request"),
        (format!("{body}{body}"), "bad_request"),
        (format!("\u{feff}{body}"), "bad_request"),
        (body.replacen('{', &format!("{{\"deep\":{deep},"), 1), "bad_request"),
        (body.replacen('{', unknown, 1), "validation"),
        (body.replacen('{', "{'a':1,", 1), "bad_request"),
        (body.replacen('{', "{\"nan\":NaN,", 1), "bad_request"),
        (body.replacen('{', "{\"x\":1,\"x\":1,", 1), "bad_request"),
        ("null".to_owned(), "validation"),
        ("7".to_owned(), "validation"),
        ("\"text\"".to_owned(), "validation"),
        ("true".to_owned(), "validation"),
    ];
    if body.len() > 2 {
        all.push((body.replacen('{', &format!("{{\"{first}\":null,"), 1), "bad_request"));
    }
    all
}

async fn refused(c: &mut Client, method: &str, path: &str, body: &str, code: Option<&str>) -> Value {
    let reply = c.call(method, path, Some(body)).await;
    assert!((400..500).contains(&reply.status), "{method} {path} {body}: {} {}", reply.status, reply.text());
    let actual = reply.json()["code"].as_str().unwrap().to_owned();
    assert!(["bad_request", "validation"].contains(&actual.as_str()), "{method} {path} {body}: {actual}");
    if let Some(code) = code {
        assert_eq!(actual, code, "{method} {path} {body} {}", reply.text());
    }
    assert!(
        !reply.text().contains("nonsense\"") || actual == "validation",
        "values are not repeated: {}",
        reply.text()
    );
    reply.json()
}

#[tokio::test]
async fn wrong_types_unknown_fields_and_invalid_json_are_rejected() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("held", r#"{"type":"t","hold":true}"#).await;
    c.submit("work", r#"{"type":"t"}"#).await;
    let (running, token) = lease(&c.claim("work").await);
    let (of_id, of_running) =
        (|verb: &str| format!("/v1/jobs/{id}{verb}"), |verb: &str| format!("/v1/jobs/{running}{verb}"));
    let leased = json!({"lease": token});
    let calls: Vec<(&str, String, Value, &[Field])> = vec![
        ("POST", "/v1/queues/q/jobs".to_owned(), json!({"type": "t"}), JOB),
        ("PUT", "/v1/queues/q".to_owned(), json!({"settings": {}}), SETTINGS),
        ("POST", "/v1/claims".to_owned(), json!({"queues": ["q"]}), CLAIM),
        ("POST", of_running("/complete"), leased.clone(), &[("lease", "null text")]),
        ("POST", of_running("/fail"), json!({"lease": token, "error": {"category": "temporary"}}), FAIL),
        ("POST", of_running("/heartbeat"), leased.clone(), &[("lease", "null text")]),
        (
            "POST",
            of_running("/snooze"),
            json!({"lease": token, "delay": "1s"}),
            &[("lease", "null text"), ("delay", "whole number")],
        ),
        ("POST", of_running("/release"), leased.clone(), &[("lease", "null text")]),
        (
            "POST",
            of_running("/children"),
            json!({"lease": token, "jobs": [{"type": "t"}]}),
            &[("lease", "null text"), ("jobs", "")],
        ),
        ("PATCH", of_id(""), json!({"priority": "low"}), PATCH),
        ("POST", of_id("/cancel"), json!({"reason": "r"}), &[("reason", "null text"), ("force", "null bool")]),
        ("POST", of_id("/requeue"), json!({"reset": true}), &[("reset", "null bool"), ("run_at", "null")]),
        ("POST", of_id("/dead-letter"), json!({"reason": "r"}), &[("reason", "null text")]),
        ("POST", "/v1/jobs/bulk".to_owned(), json!({"action": "delete", "filter": {"state": "failed"}}), BULK),
        ("POST", "/v1/settlements".to_owned(), json!({"settlements": []}), &[("settlements", "list")]),
        ("POST", "/v1/heartbeats".to_owned(), json!({"heartbeats": []}), &[("heartbeats", "list")]),
        ("POST", "/v1/clock/advance".to_owned(), json!({"by": "1s"}), &[("by", "whole number")]),
        ("POST", of_id("/submit"), json!({}), &[]),
        ("POST", of_id("/run-now"), json!({}), &[]),
        ("POST", "/v1/queues/held/pause".to_owned(), json!({}), &[]),
    ];
    let (queues, jobs) = (c.get("/v1/queues").await.ok(200), c.get("/v1/jobs").await.ok(200));
    let mut tried = 0;
    for (method, path, base, fields) in &calls {
        for (field, takes) in *fields {
            for (kind, value) in KINDS {
                if !takes.split(' ').any(|taken| taken == kind) {
                    let rejected = refused(&mut c, method, path, &with(base, field, value), Some("validation")).await;
                    let named = rejected["field"].as_str().unwrap_or_default();
                    assert!(named.starts_with(field), "{method} {path} {field} {value}: {rejected}");
                    tried += 1;
                }
            }
        }
        for (body, code) in broken(&base.to_string()) {
            refused(&mut c, method, path, &body, Some(code)).await;
            tried += 1;
        }
        // An array of field values is not an object.
        if *path != "/v1/queues/q/jobs" {
            refused(&mut c, method, path, "[]", Some("validation")).await;
            tried += 1;
        }
    }
    assert!(tried > 900, "only {tried}");
    assert_eq!(c.get("/v1/queues").await.ok(200), queues, "nothing was stored or changed");
    assert_eq!(c.get("/v1/jobs").await.ok(200), jobs);
    server.stop().await;
}

/// Values of the right type that are out of range.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn values_out_of_range_are_rejected() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let long = |chars: usize| format!("\"{}\"", "ä".repeat(chars));
    let tags: Vec<String> = (0..65).map(|n| format!("\"t{n}\"")).collect();
    let delays = format!("[{}]", vec!["1"; 101].join(","));
    let jobs = [
        ("type", "\"\"".to_owned()),
        ("type", long(257)),
        ("type", "\"a\\u0000b\"".to_owned()),
        ("priority", "\"urgent\"".to_owned()),
        ("priority", "5".to_owned()),
        ("run_at", "\"tomorrow\"".to_owned()),
        ("run_at", "\"2026-11-15\"".to_owned()),
        ("run_at", "1794700800".to_owned()),
        ("delay", "\"5 parsecs\"".to_owned()),
        ("delay", "\"\"".to_owned()),
        ("delay", "\"36501d\"".to_owned()),
        ("delay", "1e300".to_owned()),
        ("idempotency_key", long(257)),
        ("external_id", "\"x\"".to_owned()),
        ("tags", "{\"a b\":\"c\"}".to_owned()),
        ("tags", "{\"\":\"c\"}".to_owned()),
        ("tags", "{\"a\":5}".to_owned()),
        ("tags", "[\"a/b\"]".to_owned()),
        ("tags", format!("[{}]", tags.join(","))),
        ("tags", format!("{{\"a\":{}}}", long(257))),
        ("correlation_id", long(257)),
        ("callback_url", format!("\"http://h/{}\"", "x".repeat(2_040))),
        ("callback_url", "\"\"".to_owned()),
        ("callback_url", "\"ftp://h/x\"".to_owned()),
        ("callback_url", "\"http://user@h/x\"".to_owned()),
        ("callback_url", "\"http://h/x#f\"".to_owned()),
        ("ref", "\"a b\"".to_owned()),
        ("after", "[5]".to_owned()),
        ("after", "\"x\"".to_owned()),
        ("retry", "{\"limit\":0}".to_owned()),
        ("retry", "{\"limit\":1000001}".to_owned()),
        ("retry", "{\"limit\":99999999999}".to_owned()),
        ("retry", "{\"limit\":1.5}".to_owned()),
        ("retry", "{\"backoff\":{\"kind\":\"custom\"}}".to_owned()),
        ("retry", "{\"backoff\":{\"multiplier\":0.5}}".to_owned()),
        ("retry", "{\"backoff\":{\"multiplier\":1001}}".to_owned()),
        ("retry", format!("{{\"backoff\":{{\"delays\":{delays}}}}}")),
        ("retry", "{\"jitter\":{\"factor\":1.1}}".to_owned()),
        ("retry", "{\"jitter\":{\"factor\":-0.1}}".to_owned()),
        ("execution_timeout", "\"31m\"".to_owned()),
        ("execution_timeout", "\"0s\"".to_owned()),
        ("max_reclaims", "-1".to_owned()),
        ("delay", "\"1s\",\"run_at\":\"2026-11-15T00:00:00Z\"".to_owned()),
    ];
    for (field, value) in &jobs {
        let job = if *field == "type" {
            format!("{{\"type\":{value}}}")
        } else {
            format!("{{\"type\":\"t\",\"{field}\":{value}}}")
        };
        let rejected = refused(&mut c, "POST", "/v1/queues/q/jobs", &job, Some("validation")).await;
        assert!(rejected["field"].as_str().unwrap_or_default().starts_with(field), "{field}: {rejected}");
        let problem = c.post("/v1/queues/q/jobs", &format!("[{job}]")).await.problem(400, "validation");
        assert_eq!(problem["errors"][0]["index"], 0);
        assert_eq!(problem["field"], format!("jobs[0].{}", rejected["field"].as_str().unwrap()));
    }
    let queue = "q".repeat(129);
    for name in ["a%20b", "%C3%A4", "a%2Fb", queue.as_str(), "%00", "a%0Ab", "q%FF"] {
        for (method, rest, body) in
            [("POST", "/jobs", r#"{"type":"t"}"#), ("PUT", "", "{}"), ("POST", "/pause", "{}"), ("DELETE", "", "")]
        {
            let reply = c.call(method, &format!("/v1/queues/{name}{rest}"), (!body.is_empty()).then_some(body)).await;
            assert_eq!(reply.status, 400, "{method} {name}");
        }
    }
    let many = |name: &str, count: usize| format!("[{}]", vec![format!("\"{name}\""); count].join(","));
    let claims = [
        r#"{"queues":[]}"#.to_owned(),
        r#"{"queues":[""]}"#.to_owned(),
        r#"{"queues":["a b"]}"#.to_owned(),
        format!(r#"{{"queues":{}}}"#, many("q", 1_001)),
        r#"{"queues":["q"],"limit":0}"#.to_owned(),
        r#"{"queues":["q"],"limit":1001}"#.to_owned(),
        r#"{"queues":["q"],"wait":"61s"}"#.to_owned(),
        r#"{"queues":["q"],"lease":"0s"}"#.to_owned(),
        r#"{"queues":["q"],"worker":""}"#.to_owned(),
        format!(r#"{{"queues":["q"],"worker":{}}}"#, long(257)),
        r#"{"queues":["q"],"types":[""]}"#.to_owned(),
        format!(r#"{{"queues":["q"],"types":{}}}"#, many("t", 101)),
        "{}".to_owned(),
    ];
    for claim in &claims {
        refused(&mut c, "POST", "/v1/claims", claim, Some("validation")).await;
    }
    crate::submit::assert_nothing_stored(&mut c).await;
    assert_eq!(c.get("/v1/queues").await.ok(200)["queues"].as_array().unwrap().len(), 1, "not even a queue");
    server.stop().await;
}

/// S11: hostile JSON is rejected quickly, or is an opaque value of a user.
///
/// Proves G-9.3.
#[tokio::test]
async fn hostile_json_is_rejected() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let nested = |levels: usize| format!(r#"{{"type":"t","payload":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    c.submit("q", &nested(63)).await;
    refused(&mut c, "POST", "/v1/queues/q/jobs", &nested(64), Some("bad_request")).await;
    refused(&mut c, "POST", "/v1/queues/q/jobs", &nested(1_000_000), Some("bad_request")).await;
    refused(&mut c, "POST", "/v1/queues/q/jobs", &"[".repeat(1_000_000), Some("bad_request")).await;
    refused(&mut c, "POST", "/v1/queues/q/jobs", &"{\"a\":".repeat(1_000_000), Some("bad_request")).await;
    let keys: Vec<String> = (0..100_000).map(|n| format!("\"k{n}\":1")).collect();
    refused(&mut c, "POST", "/v1/queues/q/jobs", &format!("{{{}}}", keys.join(",")), Some("validation")).await;
    c.submit("q", &format!(r#"{{"type":"t","payload":{{{}}}}}"#, keys[..50_000].join(","))).await;
    for bad in ["\"\\ud800\"", "\"\\x\"", "\"a\nb\"", "01", "1.", ".5", "+1", "Infinity", "tru"] {
        refused(&mut c, "POST", "/v1/queues/q/jobs", &format!(r#"{{"type":{bad}}}"#), Some("bad_request")).await;
    }
    for bad in ["\"\\x\"", "\"a\nb\"", "01", "1.", "NaN", "[1,]", "{\"a\"}", "\"\u{1}\""] {
        refused(
            &mut c,
            "POST",
            "/v1/queues/q/jobs",
            &format!(r#"{{"type":"t","payload":{bad}}}"#),
            Some("bad_request"),
        )
        .await;
    }
    for bad in [b"{\"type\":\"\xff\xfe\"}".as_slice(), b"{\"type\":\"t\",\"payload\":\"\xc3\x28\"}"] {
        c.send_bytes("POST", "/v1/queues/q/jobs", "Content-Type: application/json\r\n", bad).await;
        c.reply().await.unwrap().problem(400, "bad_request");
    }
    // Huge numbers in fields are out of range; in values of users they keep their digits.
    refused(&mut c, "POST", "/v1/queues/q/jobs", &format!(r#"{{"type":"t","delay":1{}}}"#, "0".repeat(400)), None)
        .await;
    c.submit("q", &format!(r#"{{"type":"t","payload":1{}}}"#, "0".repeat(400))).await;
    server.stop().await;
}

#[tokio::test]
async fn invalid_parameters_are_rejected() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    for path in [
        "/v1/queues",
        "/v1/queues/q",
        "/v1/jobs",
        "/v1/stats",
        "/v1/workers",
        "/v1/info",
        "/v1/clock",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
    ] {
        c.get(&format!("{path}?unknown=1")).await.problem(400, "validation");
        c.get(&format!("{path}?x=1&x=2")).await.problem(400, "bad_request");
    }
    for path in ["", "/payload", "/attempts", "/history", "/why", "/wait"] {
        c.get(&format!("/v1/jobs/{id}{path}?typo=1")).await.problem(400, "validation");
    }
    for (path, body) in
        [("/v1/claims", r#"{"queues":["q"]}"#), ("/v1/queues/q/jobs", r#"{"type":"t"}"#), ("/v1/queues/q/pause", "{}")]
    {
        c.post(&format!("{path}?wait=1s"), body).await.problem(400, "validation");
    }
    server.stop().await;
}
