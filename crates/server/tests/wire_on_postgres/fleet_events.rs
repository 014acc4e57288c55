//! Two servers on one schema: the listeners of each get the events of both.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::common::EventStream;
use crate::common::client::lease;
use crate::common::event_stream::step;
use crate::fleet::start_two;

/// The watch takes effect before the response: a later commit of any server is an event.
#[tokio::test]
async fn listeners_get_the_events_of_all_servers() {
    let [one, other] = start_two().await;
    let (mut c, mut d) = (one.client().await, other.client().await);
    // The other server has cached the queue, and takes the fast path.
    for _ in 0..3 {
        d.submit("q", r#"{"type":"t"}"#).await;
        let (id, token) = lease(&d.claim("q").await);
        d.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
    }
    let mut events = one.events("?queue=q").await;
    let id = d.submit("q", r#"{"type":"t"}"#).await;
    let mut late = other.events("?queue=q").await;
    let first = events.expect("job").await.data;
    assert_eq!((&first["id"], step(&first).as_str()), (&json!(id), "->pending:create"));
    assert_eq!(events.step().await, "pending>scheduled:submit");
    let (id, token) = lease(&c.claim("q").await);
    d.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
    c.post("/v1/queues/q/pause", "").await.ok(200);
    for events in [&mut events, &mut late] {
        assert_eq!(events.step().await, "scheduled>running:claim");
        assert_eq!(events.step().await, "running>completed:complete");
        assert_eq!(events.expect("queue").await.data["change"], "paused");
    }
    one.stop().await;
    other.stop().await;
}

/// A cursor of another server is unknown.
#[tokio::test]
async fn a_cursor_of_another_server_is_a_gap() {
    let [one, other] = start_two().await;
    let (mut c, mut events) = (one.client().await, one.events("").await);
    c.submit("q", r#"{"type":"t"}"#).await;
    let cursor = events.expect("queue").await.id.unwrap();
    drop(events);
    let mut resumed = one.events(&format!("?after={cursor}")).await;
    assert_eq!(resumed.step().await, "->pending:create");
    other.events(&format!("?after={cursor}")).await.expect("gap").await;
    one.stop().await;
    other.stop().await;
}

/// Jobs move between the servers: each listener sees every transition once, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transitions_on_two_servers_arrive_once_and_in_order() {
    const JOBS: usize = 150;
    const LIFE: [&str; 4] =
        ["->pending:create", "pending>scheduled:submit", "scheduled>running:claim", "running>completed:complete"];
    let [one, other] = start_two().await;
    one.client().await.put("/v1/queues/q", "{}").await.ok(201);
    let listeners = [one.events("?queue=q").await, other.events("?queue=q").await];
    let submit = async {
        let mut clients = [one.client().await, other.client().await];
        for number in 0..JOBS {
            clients[number % 2].submit("q", r#"{"type":"t"}"#).await;
        }
    };
    let work = async {
        let (mut claims, mut settles) = (one.client().await, other.client().await);
        let mut done = 0;
        while done < JOBS {
            let body = r#"{"queues":["q"],"worker":"w","limit":5,"wait":"2s"}"#;
            for job in claims.post("/v1/claims", body).await.ok(200)["jobs"].as_array().unwrap() {
                let (id, token) = lease(job);
                settles.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
                done += 1;
            }
            std::mem::swap(&mut claims, &mut settles);
        }
    };
    let listen = async |mut events: EventStream| {
        let (mut jobs, mut ended): (HashMap<String, Vec<String>>, usize) = (HashMap::new(), 0);
        while ended < JOBS {
            let data = events.expect("job").await.data;
            let steps = jobs.entry(data["id"].as_str().unwrap().to_owned()).or_default();
            steps.push(step(&data));
            assert_eq!(*steps, LIFE[..steps.len().min(4)], "{}", data["id"]);
            ended += usize::from(steps.len() == 4);
        }
    };
    let [first, second] = listeners;
    let all = async { tokio::join!(submit, work, listen(first), listen(second)) };
    timeout(Duration::from_secs(120), all).await.expect("a transition is missing");
    one.stop().await;
    other.stop().await;
}
