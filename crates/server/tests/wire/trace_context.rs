//! The W3C trace context of a submitter: header, field, record, claim.

use serde_json::{Value, json};

use crate::common::{Client, Setup};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-00";

fn headers(extra: &str) -> String {
    format!("content-type: application/json\r\n{extra}")
}

async fn submit_with_headers(c: &mut Client, extra: &str, body: &str) -> Value {
    c.send_bytes("POST", "/v1/queues/q/jobs", &headers(extra), body.as_bytes()).await;
    let id = c.reply().await.unwrap().ok(201)["id"].as_str().unwrap().to_owned();
    c.job(&id).await["traceparent"].clone()
}

/// Rules Trace context.
#[tokio::test]
async fn the_header_of_a_single_submission_is_stored_if_it_is_valid() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let plain = r#"{"type":"t"}"#;
    let header = |value: &str| format!("traceparent: {value}\r\n");
    assert_eq!(submit_with_headers(&mut c, &header(PARENT), plain).await, PARENT);
    assert_eq!(submit_with_headers(&mut c, "", plain).await, Value::Null);
    let long = PARENT.replacen("00", "01", 1) + "-more";
    assert_eq!(submit_with_headers(&mut c, &header(&long), plain).await, PARENT, "a later version");
    for invalid in [&PARENT.to_uppercase(), &PARENT[..54], "x", "", &PARENT.replacen("00", "ff", 1)] {
        assert_eq!(submit_with_headers(&mut c, &header(invalid), plain).await, Value::Null, "{invalid}");
    }
    let twice = format!("{}{}", header(PARENT), header(OTHER));
    assert_eq!(submit_with_headers(&mut c, &twice, plain).await, Value::Null);
    let both = json!({"type": "t", "traceparent": OTHER}).to_string();
    assert_eq!(submit_with_headers(&mut c, &header(PARENT), &both).await, OTHER, "the field wins");
    let keyed = format!("{}Idempotency-Key: k\r\n", header(PARENT));
    assert_eq!(submit_with_headers(&mut c, &keyed, plain).await, PARENT);
    server.stop().await;
}

/// Rules Trace context.
#[tokio::test]
async fn the_field_travels_from_batches_and_workflows_to_claims() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let batch = json!([{"type": "a", "traceparent": PARENT}, {"type": "b"}]).to_string();
    let extra = headers(&format!("traceparent: {OTHER}\r\n"));
    c.send_bytes("POST", "/v1/queues/q/jobs", &extra, batch.as_bytes()).await;
    c.reply().await.unwrap().ok(201);
    let flow = json!({"jobs": [{"ref": "a", "queue": "flow", "type": "t", "traceparent": PARENT}]}).to_string();
    c.post("/v1/workflows", &flow).await.ok(201);
    let claim = json!({"queues": ["q", "flow"], "worker": "w", "limit": 9}).to_string();
    let claimed = c.post("/v1/claims", &claim).await.ok(200);
    let parents: Vec<&Value> = (0..3).map(|n| &claimed["jobs"][n]["traceparent"]).collect();
    assert_eq!(parents, [&json!(PARENT), &Value::Null, &json!(PARENT)], "the header is for a single job");
    assert!(claimed["jobs"][1].get("traceparent").is_none());
    let invalid = json!([{"type": "a"}, {"type": "b", "traceparent": "x"}]).to_string();
    let problem = c.post("/v1/queues/q/jobs", &invalid).await.problem(400, "validation");
    assert_eq!(problem["field"], "jobs[1].traceparent", "{problem}");
    let schedule = json!({"every": "1h", "queue": "q", "job": {"type": "t", "traceparent": PARENT}}).to_string();
    let problem = c.put("/v1/schedules/s", &schedule).await.problem(400, "validation");
    assert_eq!(problem["field"], "job.traceparent", "{problem}");
    server.stop().await;
}
