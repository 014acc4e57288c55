//! Stop and restart, also under load.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::common::client::lease;
use crate::common::{Client, Setup};

#[tokio::test]
async fn all_state_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::directory(directory.path()).start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"profile":"taskharbor","settings":{"lease":"2m"}}"#).await.ok(201);
    c.post("/v1/queues/q/pause", "").await.ok(200);
    c.post("/v1/queues/q/resume", "").await.ok(200);
    let waiting = c.submit("q", r#"{"type":"t","payload":{"n":1.0},"idempotency_key":"k"}"#).await;
    let running = c.submit("q", r#"{"type":"u","payload_base64":"AAE="}"#).await;
    let claimed = c.post("/v1/claims", r#"{"queues":["q"],"types":["u"],"worker":"w1"}"#).await.ok(200);
    let (_, token) = lease(&claimed["jobs"][0]);
    let (before, queue) = (c.job(&running).await, c.get("/v1/queues/q").await.ok(200));
    server.stop().await;
    let server = Setup::directory(directory.path()).start().await;
    let mut c = server.client().await;
    assert_eq!(c.job(&running).await, before);
    assert_eq!(c.get("/v1/queues/q").await.ok(200), queue);
    let workers = c.get("/v1/workers").await.ok(200);
    assert_eq!((&workers["workers"][0]["name"], &workers["workers"][0]["running"]), (&"w1".into(), &1.into()));
    assert_eq!(c.get(&format!("/v1/jobs/{waiting}/payload")).await.text(), r#"{"n":1.0}"#);
    let again = c.post("/v1/queues/q/jobs", r#"{"type":"t","idempotency_key":"k"}"#).await.ok(200);
    assert_eq!(again["id"], waiting.as_str());
    assert_eq!(
        c.post(&format!("/v1/jobs/{running}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200)["state"],
        "completed"
    );
    server.stop().await;
}

/// A directory with virtual time cannot be opened in real time.
#[tokio::test]
async fn a_store_keeps_its_clock_mode() {
    let directory = tempfile::tempdir().unwrap();
    Setup::directory(directory.path()).start().await.stop().await;
    let opening = tokio::spawn(Setup::directory(directory.path()).real_time().start());
    assert!(opening.await.is_err());
}

/// F48: a server that stops under load finishes requests in flight and loses no acknowledged job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_loses_no_acknowledged_job() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged: HashMap<String, &'static str> = HashMap::new();
    for _ in 0..5 {
        let mut server = Setup::directory(directory.path()).real_time().start().await;
        let known = Arc::new(Mutex::new(HashMap::new()));
        let stopping = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        for number in 0..8 {
            let (client, known, stopping) = (server.client().await, Arc::clone(&known), Arc::clone(&stopping));
            clients.push(tokio::spawn(async move {
                if number % 2 == 0 {
                    submitter(client, &known, &stopping).await;
                } else {
                    worker(client, &known, &stopping).await;
                }
            }));
        }
        let mut waiting = server.client().await;
        waiting.send("POST", "/v1/claims", r#"{"queues":["nothing"],"wait":"60s"}"#).await;
        while known.lock().await.len() < 300 {
            tokio::task::yield_now().await;
        }
        stopping.store(true, Ordering::SeqCst);
        server.request_stop();
        // A waiting claim ends empty at once.
        let reply = tokio::time::timeout(Duration::from_secs(10), waiting.reply()).await.unwrap();
        assert!(reply.unwrap().ok(200)["jobs"].as_array().unwrap().is_empty());
        server.stopped().await.unwrap();
        for client in clients {
            client.await.unwrap();
        }
        acknowledged.extend(known.lock().await.drain());
    }
    let server = Setup::directory(directory.path()).real_time().start().await;
    let mut c = server.client().await;
    let mut states = HashMap::new();
    let mut cursor = String::new();
    loop {
        let page = c.get(&format!("/v1/jobs?limit=1000{cursor}")).await.ok(200);
        for job in page["jobs"].as_array().unwrap() {
            states.insert(job["id"].as_str().unwrap().to_owned(), job["state"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    for (id, state) in &acknowledged {
        let now = states.get(id).unwrap_or_else(|| panic!("{id} was lost"));
        assert!(*state != "completed" || now == "completed", "{id} was completed and is {now}");
    }
    let completed: HashSet<_> = acknowledged.iter().filter(|(_, state)| **state == "completed").collect();
    assert!(acknowledged.len() >= 300 && !completed.is_empty());
    server.stop().await;
}

type Known = Mutex<HashMap<String, &'static str>>;

/// Submits until the server is gone. Before the stop request, every request must be answered.
async fn submitter(mut c: Client, known: &Known, stopping: &AtomicBool) {
    loop {
        c.send("POST", "/v1/queues/q/jobs", r#"{"type":"t"}"#).await;
        let Some(reply) = c.reply().await else {
            assert!(stopping.load(Ordering::SeqCst), "cut off before its time");
            return;
        };
        let id = reply.ok(201)["id"].as_str().unwrap().to_owned();
        known.lock().await.entry(id).or_insert("submitted");
    }
}

async fn worker(mut c: Client, known: &Known, stopping: &AtomicBool) {
    loop {
        c.send("POST", "/v1/claims", r#"{"queues":["q"],"wait":"10s"}"#).await;
        let Some(reply) = c.reply().await else {
            assert!(stopping.load(Ordering::SeqCst), "cut off before its time");
            return;
        };
        for job in reply.ok(200)["jobs"].as_array().unwrap() {
            let (id, token) = lease(job);
            c.send("POST", &format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await;
            let Some(reply) = c.reply().await else { return };
            reply.ok(200);
            known.lock().await.insert(id, "completed");
        }
    }
}
