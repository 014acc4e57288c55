//! Webhooks over real sockets: endpoints, deliveries, and receivers that misbehave.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_webhooks::sign::{Secret, signatures};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::common::client::lease;
use crate::common::{Client, Setup, TestServer};

/// A message that a receiver got.
#[derive(Clone, Debug)]
struct Received {
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Received {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    /// Whether one of the signatures is by this secret.
    fn is_signed_by(&self, secret: &str) -> bool {
        let timestamp = self.headers["webhook-timestamp"].parse().unwrap();
        let expected = signatures([&Secret::parse(secret).unwrap()], self.id(), timestamp, &self.body);
        self.headers["webhook-signature"].split(' ').any(|signature| signature == expected)
    }
}

/// A receiver on loopback that answers with the next of its scripted responses, then with 200.
struct Receiver {
    url: String,
    messages: mpsc::UnboundedReceiver<Received>,
    responses: Arc<Mutex<Vec<&'static str>>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, messages) = mpsc::unbounded_channel();
        let responses: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let script = Arc::clone(&responses);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, sender.clone(), Arc::clone(&script)));
            }
        });
        Self { url, messages, responses }
    }

    /// Sets the heads of the next responses; `hang` never answers.
    fn script(&self, responses: &[&'static str]) {
        *self.responses.lock().unwrap() = responses.iter().rev().copied().collect();
    }

    async fn next(&mut self) -> Received {
        tokio::time::timeout(Duration::from_secs(20), self.messages.recv()).await.expect("no message came").unwrap()
    }
}

async fn answer(mut stream: TcpStream, sender: mpsc::UnboundedSender<Received>, script: Arc<Mutex<Vec<&'static str>>>) {
    let Some(received) = read(&mut stream).await else { return };
    let head = script.lock().unwrap().pop().unwrap_or("200 OK");
    drop(sender.send(received));
    if head == "hang" {
        // Until the client gives up.
        drop(stream.read(&mut [0; 1]).await);
        return;
    }
    drop(stream.write_all(format!("HTTP/1.1 {head}\r\ncontent-length: 2\r\n\r\nok").as_bytes()).await);
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let headers: BTreeMap<String, String> = lines.filter_map(pair).collect();
        let length: usize = headers["content-length"].parse().unwrap();
        if bytes.len() >= end + 4 + length {
            return Some(Received { path, headers, body: bytes[end + 4..end + 4 + length].to_vec() });
        }
    }
}

fn setup() -> Setup {
    let mut setup = Setup::memory();
    setup.webhook_allow = vec!["127.0.0.0/8".parse().unwrap()];
    setup
}

async fn start() -> (TestServer, Client, Receiver) {
    let server = setup().start().await;
    let client = server.client().await;
    (server, client, Receiver::start().await)
}

async fn put(c: &mut Client, name: &str, url: &str) -> String {
    let created = c.put(&format!("/v1/webhooks/{name}"), &json!({ "url": url }).to_string()).await.ok(201);
    created["secret"].as_str().unwrap().to_owned()
}

/// Runs a job to its end.
async fn complete(c: &mut Client, queue: &str, job: &str) -> String {
    let id = c.submit(queue, job).await;
    let claimed = c.post("/v1/claims", &json!({ "queues": [queue], "worker": "w" }).to_string()).await.ok(200);
    let (claimed_id, token) = lease(&claimed["jobs"][0]);
    assert_eq!(claimed_id, id);
    let body = json!({ "lease": token, "result": {"n": 1} }).to_string();
    c.post(&format!("/v1/jobs/{id}/complete"), &body).await.ok(200);
    id
}

/// Waits until the last delivery of a job satisfies a condition.
async fn delivery(c: &mut Client, job: &str, condition: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2_000 {
        let listed = c.get(&format!("/v1/jobs/{job}/deliveries")).await.ok(200);
        if let Some(last) = listed["deliveries"].as_array().unwrap().last()
            && condition(last)
        {
            return last.clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the delivery did not get there: {}", c.get(&format!("/v1/jobs/{job}/deliveries")).await.text());
}

fn has_attempts(number: usize) -> impl Fn(&Value) -> bool {
    move |delivery| delivery["attempts"].as_array().unwrap().len() >= number
}

/// Proves G-10.13.
#[tokio::test]
async fn callback_url_receives_the_end_of_the_job() {
    let (server, mut c, mut receiver) = start().await;
    let secret = c.post("/v1/webhooks/callbacks/rotate", "").await.ok(200)["secret"].as_str().unwrap().to_owned();
    let job = json!({ "type": "t", "payload": {"private": true}, "callback_url": receiver.url, "tags": {"a": "b"} });
    let id = complete(&mut c, "q", &job.to_string()).await;
    let message = receiver.next().await;
    let (body, shown) = (message.json(), c.job(&id).await);
    assert_eq!((&body["type"], &body["timestamp"]), (&"job.completed".into(), &shown["completed_at"]));
    assert_eq!(body["data"], shown, "the job as GET shows it, without payload");
    assert!(message.is_signed_by(&secret) && message.path == "/hook");
    let sent_at: i64 = message.headers["webhook-timestamp"].parse().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    assert!((now - 60..=now).contains(&sent_at), "the real time, although the clock is virtual");
    let delivered = delivery(&mut c, &id, |delivery| delivery["state"] == "delivered").await;
    assert_eq!((&delivered["id"], &delivered["job"]), (&message.id().into(), &id.as_str().into()));
    assert_eq!((&delivered["url"], &delivered["event"]), (&receiver.url.as_str().into(), &"job.completed".into()));
    assert_eq!((&delivered["attempts"][0]["status"], &delivered["attempts"][0]["error"]), (&200.into(), &Value::Null));
    assert_eq!(delivered["next_at"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn endpoint_is_created_replaced_and_deleted() {
    let (server, mut c, _) = start().await;
    let body = r#"{"url":"https://example.org/x","events":["job.failed"],"queues":["mail","reports.*"]}"#;
    let created = c.put("/v1/webhooks/billing", body).await.ok(201);
    assert!(Secret::parse(created["secret"].as_str().unwrap()).is_some());
    assert_eq!(created["events"], json!(["job.failed"]));
    assert_eq!((&created["queues"], &created["enabled"]), (&json!(["mail", "reports.*"]), &true.into()));
    let shown = c.get("/v1/webhooks/billing").await.ok(200);
    assert!(shown.get("secret").is_none(), "shown once");
    assert_eq!(c.get("/v1/webhooks").await.ok(200), json!({ "webhooks": [shown] }));
    let replaced = c.put("/v1/webhooks/billing", r#"{"url":"http://h/y","enabled":false}"#).await.ok(200);
    assert!(replaced.get("secret").is_none());
    assert_eq!((&replaced["queues"], &replaced["enabled"]), (&json!(["*"]), &false.into()));
    let all = ["job.completed", "job.failed", "job.dead_letter", "job.cancelled"];
    assert_eq!(replaced["events"], json!(all));
    let kept = c.put("/v1/webhooks/billing", r#"{"url":"http://h/y"}"#).await.ok(200);
    assert_eq!(kept["enabled"], false, "an absent `enabled` keeps the present one");
    c.post("/v1/webhooks/billing/test", "").await.problem(409, "illegal_transition");
    c.delete("/v1/webhooks/billing").await.ok(204);
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/rotate"), ("POST", "/test"), ("GET", "/deliveries")]
    {
        c.call(method, &format!("/v1/webhooks/billing{path}"), None).await.problem(404, "webhook_not_found");
    }
    c.delete("/v1/webhooks/callbacks").await.problem(409, "illegal_transition");
    c.post("/v1/deliveries/msg_x/redeliver", "").await.problem(404, "not_found");
    let unknown = format!("/v1/deliveries/msg_{}/redeliver", "0".repeat(48));
    c.post(&unknown, "").await.problem(404, "not_found");
    server.stop().await;
}

#[tokio::test]
async fn invalid_endpoints_are_refused_with_the_field() {
    let (server, mut c, _) = start().await;
    for (body, field) in [
        (r#"{"events":["job.failed"]}"#, "url"),
        (r#"{"url":"ftp://h/"}"#, "url"),
        (r#"{"url":"http://u:p@h/"}"#, "url"),
        (r#"{"url":"http://h/#f"}"#, "url"),
        (r#"{"url":"http://1.2.3.4.5/"}"#, "url"),
        (r#"{"url":5}"#, "url"),
        (r#"{"url":"http://h/","events":[]}"#, "events"),
        (r#"{"url":"http://h/","events":["job.failed","webhook.test"]}"#, "events[1]"),
        (r#"{"url":"http://h/","queues":[]}"#, "queues"),
        (r#"{"url":"http://h/","queues":["a*b"]}"#, "queues[0]"),
        (r#"{"url":"http://h/","enabled":"yes"}"#, "enabled"),
        (r#"{"url":"http://h/","secret":"x"}"#, "secret"),
    ] {
        assert_eq!(c.put("/v1/webhooks/a", body).await.problem(400, "validation")["field"], field, "{body}");
    }
    let body = r#"{"url":"http://h/"}"#;
    assert_eq!(c.put("/v1/webhooks/callbacks", body).await.problem(400, "validation")["field"], "name");
    assert_eq!(c.put("/v1/webhooks/a%20b", body).await.problem(400, "validation")["field"], "name");
    server.stop().await;
}

#[tokio::test]
async fn failed_attempts_follow_the_plan_on_the_virtual_clock() {
    let (server, mut c, mut receiver) = start().await;
    let secret = put(&mut c, "all", &receiver.url).await;
    receiver.script(&[
        "500 Oops",
        "302 Found\r\nlocation: http://127.0.0.1:1/",
        "429 Busy\r\nretry-after: 3600",
        "503 x",
    ]);
    let id = complete(&mut c, "q", r#"{"type":"t"}"#).await;
    let first = receiver.next().await;
    let pending = delivery(&mut c, &id, has_attempts(1)).await;
    assert_eq!((&pending["state"], &pending["attempts"][0]["status"]), (&"pending".into(), &500.into()));
    for (attempts, by) in [(2, "5500ms"), (3, "33s"), (4, "3601s"), (5, "11m")] {
        c.post("/v1/clock/advance", &json!({ "by": by }).to_string()).await.ok(200);
        let again = receiver.next().await;
        assert_eq!((again.id(), &again.body), (first.id(), &first.body), "the same message");
        assert!(again.is_signed_by(&secret));
        delivery(&mut c, &id, has_attempts(attempts)).await;
    }
    let delivered = delivery(&mut c, &id, |delivery| delivery["state"] == "delivered").await;
    let statuses: Vec<&Value> =
        delivered["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["status"]).collect();
    assert_eq!(statuses, [500, 302, 429, 503, 200]);
    assert_eq!(delivered["attempts"][1]["error"], "redirect");
    server.stop().await;
}

#[tokio::test]
async fn plan_ends_after_nine_attempts_and_redelivery_starts_another() {
    let (server, mut c, mut receiver) = start().await;
    put(&mut c, "all", &receiver.url).await;
    receiver.script(&["500 x"; 9]);
    // The plan takes longer than the default retention of the job.
    let id = complete(&mut c, "q", r#"{"type":"t","retention":{"completed":"60d"}}"#).await;
    let first = receiver.next().await;
    for attempts in 1..9 {
        delivery(&mut c, &id, has_attempts(attempts)).await;
        c.post("/v1/clock/advance", r#"{"by":"27h"}"#).await.ok(200);
        receiver.next().await;
    }
    let failed = delivery(&mut c, &id, |delivery| delivery["state"] == "failed").await;
    assert_eq!((failed["attempts"].as_array().unwrap().len(), &failed["next_at"]), (9, &Value::Null));
    let path = format!("/v1/deliveries/{}/redeliver", failed["id"].as_str().unwrap());
    assert_eq!(c.post(&path, "").await.ok(202)["state"], "pending");
    assert_eq!(receiver.next().await.id(), first.id());
    let delivered = delivery(&mut c, &id, |delivery| delivery["state"] == "delivered").await;
    assert_eq!(delivered["attempts"].as_array().unwrap().len(), 10);
    c.post(&path, "").await.ok(202);
    receiver.next().await;
    // Finished deliveries are pruned after seven days.
    delivery(&mut c, &id, |delivery| delivery["state"] == "delivered").await;
    let mut listed = c.get("/v1/webhooks/all/deliveries").await.ok(200);
    assert_eq!(listed["deliveries"].as_array().unwrap().len(), 1);
    c.post("/v1/clock/advance", r#"{"by":"8d"}"#).await.ok(200);
    for _ in 0..2_000 {
        listed = c.get("/v1/webhooks/all/deliveries").await.ok(200);
        if listed["deliveries"].as_array().unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(listed["deliveries"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn gone_disables_an_endpoint_and_ends_a_callback_only() {
    let (server, mut c, mut receiver) = start().await;
    receiver.script(&["410 Gone"]);
    let job = json!({ "type": "t", "callback_url": receiver.url }).to_string();
    let id = complete(&mut c, "q", &job).await;
    receiver.next().await;
    let failed = delivery(&mut c, &id, |delivery| delivery["state"] == "failed").await;
    assert_eq!(failed["attempts"][0]["status"], 410);
    complete(&mut c, "q", &job).await;
    receiver.next().await;
    put(&mut c, "all", &receiver.url).await;
    receiver.script(&["410 Gone"]);
    let id = complete(&mut c, "q", r#"{"type":"t"}"#).await;
    receiver.next().await;
    delivery(&mut c, &id, |delivery| delivery["state"] == "failed").await;
    let disabled = c.get("/v1/webhooks/all").await.ok(200);
    assert_eq!((&disabled["enabled"], &disabled["disabled_reason"]), (&false.into(), &"gone".into()));
    let silent = complete(&mut c, "q", r#"{"type":"t"}"#).await;
    assert_eq!(c.get(&format!("/v1/jobs/{silent}/deliveries")).await.ok(200)["deliveries"], json!([]));
    let body = json!({ "url": receiver.url, "enabled": true }).to_string();
    assert_eq!(c.put("/v1/webhooks/all", &body).await.ok(200)["disabled_reason"], Value::Null);
    complete(&mut c, "q", r#"{"type":"t"}"#).await;
    receiver.next().await;
    server.stop().await;
}

#[tokio::test]
async fn both_secrets_sign_for_a_day_after_a_rotation() {
    let (server, mut c, mut receiver) = start().await;
    let old = put(&mut c, "all", &receiver.url).await;
    let rotated = c.post("/v1/webhooks/all/rotate", "").await.ok(200);
    let new = rotated["secret"].as_str().unwrap().to_owned();
    assert!(new != old && rotated["previous_secret_until"].is_string());
    c.post("/v1/webhooks/all/test", "").await.ok(202);
    let message = receiver.next().await;
    assert_eq!(message.json()["type"], "webhook.test");
    assert!(message.is_signed_by(&old) && message.is_signed_by(&new));
    c.post("/v1/clock/advance", r#"{"by":"24h"}"#).await.ok(200);
    let sent = c.post("/v1/webhooks/all/test", "").await.ok(202);
    assert_eq!((&sent["job"], &sent["event"]), (&Value::Null, &"webhook.test".into()));
    let message = receiver.next().await;
    assert!(!message.is_signed_by(&old) && message.is_signed_by(&new));
    server.stop().await;
}

#[tokio::test]
async fn private_addresses_are_refused_at_once_unless_allowed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let receiver = Receiver::start().await;
    let id = complete(&mut c, "q", &json!({ "type": "t", "callback_url": receiver.url }).to_string()).await;
    let failed = delivery(&mut c, &id, |delivery| delivery["state"] == "failed").await;
    assert_eq!(failed["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(failed["attempts"][0]["error"], "address_not_allowed");
    assert_eq!((&failed["attempts"][0]["status"], &failed["next_at"]), (&Value::Null, &Value::Null));
    assert!(receiver.messages.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn four_attempts_to_a_host_are_in_flight_at_most() {
    let (server, mut c, mut receiver) = start().await;
    put(&mut c, "all", &receiver.url).await;
    receiver.script(&["hang"; 4]);
    let jobs: Vec<String> = vec![r#"{"type":"t"}"#.to_owned(); 10];
    let submitted = c.post("/v1/queues/q/jobs", &format!("[{}]", jobs.join(","))).await.ok(201);
    for job in submitted["jobs"].as_array().unwrap() {
        c.post(&format!("/v1/jobs/{}/cancel", job["id"].as_str().unwrap()), "{}").await.ok(200);
    }
    for _ in 0..4 {
        receiver.next().await;
    }
    let fifth = tokio::time::timeout(Duration::from_millis(300), receiver.messages.recv()).await;
    assert!(fifth.is_err(), "the other six wait");
    // The attempts time out after 15 s, and the others follow.
    for _ in 0..6 {
        receiver.next().await;
    }
    server.stop().await;
}

/// The server stops in the middle of attempts several times. Every end of a job is delivered, with
/// a valid signature, and nothing else is.
#[tokio::test]
async fn every_end_is_delivered_over_restarts_and_failing_receivers() {
    let directory = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    receiver.script(&[
        "500 x",
        "200 OK",
        "hang",
        "301 x\r\nlocation: http://127.0.0.1:1/",
        "429 x\r\nretry-after: 1",
        "503 x",
        "hang",
        "200 OK",
        "500 x",
        "429 x\r\nretry-after: 0",
        "hang",
        "404 x",
    ]);
    let (mut ended, mut secret, mut start) = (HashMap::new(), String::new(), 1_794_700_800_000);
    for round in 0..5 {
        let mut setup = Setup::directory(directory.path()).starting_at(start);
        setup.webhook_allow = vec!["127.0.0.1".parse().unwrap()];
        let server = setup.start().await;
        let mut c = server.client().await;
        if round == 0 {
            secret = put(&mut c, "all", &receiver.url).await;
        }
        for _ in 0..6 {
            ended.insert(complete(&mut c, "q", r#"{"type":"t"}"#).await, "job.completed");
            let id = c.submit("q", r#"{"type":"t"}"#).await;
            c.post(&format!("/v1/jobs/{id}/cancel"), "{}").await.ok(200);
            ended.insert(id, "job.cancelled");
        }
        c.post("/v1/clock/advance", r#"{"by":"1m"}"#).await.ok(200);
        start += 60_000;
        server.stop().await;
    }
    let mut setup = Setup::directory(directory.path()).starting_at(start);
    setup.webhook_allow = vec!["127.0.0.1".parse().unwrap()];
    let server = setup.start().await;
    let mut c = server.client().await;
    let mut missing: HashSet<String> = ended.keys().cloned().collect();
    while !missing.is_empty() {
        c.post("/v1/clock/advance", r#"{"by":"15m"}"#).await.ok(200);
        let message = receiver.next().await;
        let body = message.json();
        let id = body["data"]["id"].as_str().unwrap();
        assert_eq!(ended.get(id).copied(), body["type"].as_str(), "nothing from nowhere");
        assert!(message.is_signed_by(&secret));
        missing.remove(id);
    }
    server.stop().await;
}
