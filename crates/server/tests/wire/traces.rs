//! Traces that the server exports by OTLP, received by a collector of the test.

use std::collections::BTreeMap;

use longshore_server::OtlpConfig;
use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::json_receiver::JsonReceiver;
use crate::common::{Client, Setup};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn setup(collector: &str, more: &[(&str, &str)]) -> Setup {
    let mut variables = BTreeMap::from([("OTEL_EXPORTER_OTLP_ENDPOINT", collector), ("OTEL_BSP_SCHEDULE_DELAY", "1")]);
    variables.extend(more.iter().copied());
    let mut setup = Setup::memory();
    setup.otlp = OtlpConfig::from_variables(|name| variables.get(name).map(|text| (*text).to_owned())).unwrap();
    setup
}

/// Collects spans until there are this many, in the order of their start.
async fn spans(collector: &mut JsonReceiver, count: usize) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    while found.len() < count {
        let (head, body) = collector.next().await;
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(!body.to_string().contains("private"), "payloads and errors are not in traces: {body}");
        let resource = &body["resourceSpans"][0];
        let service = json!({"key": "service.name", "value": {"stringValue": "longshore"}});
        assert!(resource["resource"]["attributes"].as_array().unwrap().contains(&service), "{body}");
        found.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
    }
    found
        .sort_by_key(|span| (span["startTimeUnixNano"].as_str().unwrap().to_owned(), span["kind"].as_u64() == Some(5)));
    found
}

fn attribute(span: &Value, key: &str) -> Value {
    let found = span["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key);
    found.map(|attribute| attribute["value"].clone()).unwrap_or_default()
}

async fn claim(c: &mut Client) -> (String, String) {
    let claimed = c.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.ok(200);
    lease(&claimed["jobs"][0])
}

async fn settle(c: &mut Client, verb: &str, error: Value) -> String {
    let (id, token) = claim(c).await;
    let body = json!({"lease": token, "error": error});
    let body = if verb == "fail" { body } else { json!({"lease": token, "result": "private"}) };
    c.post(&format!("/v1/jobs/{id}/{verb}"), &body.to_string()).await.ok(200);
    id
}

#[tokio::test]
async fn first_attempt_is_a_child_and_a_retry_is_a_new_trace_with_a_link() {
    let mut collector = JsonReceiver::start(200).await;
    let server = setup(&collector.url, &[]).start().await;
    let mut c = server.client().await;
    let job = json!({"type": "mail", "payload": "private", "traceparent": format!("00-{TRACE}-{SPAN}-01")});
    let id = c.submit("q", &job.to_string()).await;
    c.advance("1s").await;
    settle(&mut c, "fail", json!({"category": "temporary", "message": "private"})).await;
    c.advance("1h").await;
    assert_eq!(settle(&mut c, "complete", Value::Null).await, id);
    let spans = spans(&mut collector, 3).await;
    let [send, first, retry] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((&send["name"], &send["kind"]), (&json!("send q"), &json!(4)));
    assert_eq!((&send["traceId"], &send["parentSpanId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!((&first["name"], &first["kind"], &first["status"]["code"]), (&json!("process q"), &json!(5), &json!(2)));
    assert_eq!((&first["traceId"], &first["parentSpanId"], &first["links"]), (&json!(TRACE), &json!(SPAN), &json!([])));
    assert_ne!(retry["traceId"], TRACE);
    assert_eq!((&retry["parentSpanId"], &retry["status"]), (&json!(""), &json!({})));
    assert_eq!(retry["links"], json!([{"traceId": TRACE, "spanId": SPAN}]));
    assert_eq!(retry["startTimeUnixNano"], "1794704401000000000", "the time of the job");
    for (span, attempt, outcome) in [(first, "1", "failed"), (retry, "2", "completed")] {
        assert_eq!(attribute(span, "messaging.destination.name")["stringValue"], "q");
        assert_eq!(attribute(span, "messaging.message.id")["stringValue"], id.as_str());
        assert_eq!(attribute(span, "longshore.job.type")["stringValue"], "mail");
        assert_eq!(attribute(span, "longshore.attempt")["intValue"], attempt);
        assert_eq!(attribute(span, "longshore.outcome")["stringValue"], outcome);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_job_without_trace_context_has_a_trace_of_its_own() {
    let mut collector = JsonReceiver::start(200).await;
    let server = setup(&collector.url, &[]).start().await;
    let mut c = server.client().await;
    // The submitter does not record this one.
    let unsampled = json!({"type": "quiet", "traceparent": format!("00-{TRACE}-{SPAN}-00")}).to_string();
    c.submit("q", &unsampled).await;
    settle(&mut c, "complete", Value::Null).await;
    c.advance("1s").await;
    c.submit("q", r#"{"type":"t"}"#).await;
    c.advance("1s").await;
    settle(&mut c, "complete", Value::Null).await;
    let spans = spans(&mut collector, 2).await;
    let [send, process] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((&send["kind"], &send["parentSpanId"]), (&json!(4), &json!("")));
    assert_eq!((&process["traceId"], &process["parentSpanId"]), (&send["traceId"], &send["spanId"]));
    assert_eq!(attribute(send, "longshore.job.type")["stringValue"], "t");
    server.stop().await;
}

/// A stopping server sends what it has collected.
#[tokio::test]
async fn the_last_spans_are_sent_at_the_end() {
    let mut collector = JsonReceiver::start(200).await;
    let server = setup(&collector.url, &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]).start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    drop(c);
    server.stop().await;
    assert_eq!(spans(&mut collector, 1).await.len(), 1);
}

#[tokio::test]
async fn lost_spans_are_counted_and_delay_no_job() {
    let mut collector = JsonReceiver::start(400).await;
    let server = setup(&collector.url, &[]).start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    collector.next().await;
    while !c.get("/metrics").await.text().contains("longshore_trace_spans_dropped_total 1\n") {
        tokio::task::yield_now().await;
    }
    assert!(c.get("/metrics").await.text().contains("longshore_trace_spans_exported_total 0\n"));
    server.stop().await;
    // A queue of one span, and a collector that is not there.
    let more = [("OTEL_BSP_MAX_QUEUE_SIZE", "1"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")];
    let server = setup("http://127.0.0.1:1", &more).start().await;
    let mut c = server.client().await;
    let batch: Vec<Value> = (0..100).map(|_| json!({"type": "t"})).collect();
    c.post("/v1/queues/q/jobs", &json!(batch).to_string()).await.ok(201);
    let text = c.get("/metrics").await.text().to_owned();
    let dropped = text.lines().find_map(|line| line.strip_prefix("longshore_trace_spans_dropped_total ")).unwrap();
    assert!(dropped.parse::<u64>().unwrap() >= 97, "{dropped}");
    assert_eq!(settle(&mut c, "complete", Value::Null).await.len(), 36);
    server.stop().await;
}
