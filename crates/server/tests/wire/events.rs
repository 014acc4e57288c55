//! `GET /v1/events`.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::common::client::lease;
use crate::common::event_stream::step;
use crate::common::{Client, EPOCH, EventStream, Setup, TestServer};

async fn complete(c: &mut Client, queue: &str) -> String {
    let (id, token) = lease(&c.claim(queue).await);
    c.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
    id
}

/// Rules Events.
#[tokio::test]
async fn transitions_arrive_with_all_fields() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", "{}").await.ok(201);
    let mut events = server.events("").await;
    assert!(events.head.to_lowercase().contains("content-type: text/event-stream"), "{}", events.head);
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let first = events.expect("job").await;
    let expected = json!({"id": id, "queue": "q", "type": "t", "workflow": null, "from": null, "to": "pending", "at": EPOCH, "cause": "create"});
    assert_eq!(first.data, expected);
    assert_eq!(events.step().await, "pending>scheduled:submit");
    complete(&mut c, "q").await;
    assert_eq!(events.step().await, "scheduled>running:claim");
    assert_eq!(events.step().await, "running>completed:complete");
    server.stop().await;
}

/// Rules Events.
#[tokio::test]
async fn changes_of_queues_are_events() {
    let server = Setup::memory().start().await;
    let (mut c, mut events) = (server.client().await, server.events("?queue=q").await);
    let mut all = server.events("").await;
    c.put("/v1/queues/other", "{}").await.ok(201);
    c.put("/v1/queues/q", "{}").await.ok(201);
    // Nothing changes.
    c.put("/v1/queues/q", "{}").await.ok(200);
    c.put("/v1/queues/q", r#"{"settings":{"max_queued":5}}"#).await.ok(200);
    c.post("/v1/queues/q/pause", "").await.ok(200);
    c.post("/v1/queues/q/pause", "").await.ok(200);
    c.post("/v1/queues/q/resume", "").await.ok(200);
    c.delete("/v1/queues/q").await.ok(204);
    for change in ["created", "changed", "paused", "resumed", "deleted"] {
        assert_eq!(events.expect("queue").await.data, json!({"name": "q", "change": change, "at": EPOCH}));
    }
    assert_eq!(all.expect("queue").await.data["name"], "other");
    // A submission creates its queue.
    c.submit("q", r#"{"type":"t"}"#).await;
    assert_eq!(events.expect("queue").await.data["change"], "created");
    assert_eq!(events.step().await, "->pending:create");
    server.stop().await;
}

#[tokio::test]
async fn filters_select_events() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/a", "{}").await.ok(201);
    c.put("/v1/queues/b", "{}").await.ok(201);
    let mut by_queue = server.events("?queue=a").await;
    let mut by_type = server.events("?type=y").await;
    let mut by_state = server.events("?state=completed,cancelled").await;
    let mut by_both = server.events("?queue=b&state=scheduled").await;
    let body = r#"{"jobs":[{"ref":"one","queue":"b","type":"w"}]}"#;
    let held = c.submit("a", r#"{"type":"x","delay":"1h"}"#).await;
    let mut by_job = server.events(&format!("?job={held}")).await;
    let workflow = c.post("/v1/workflows", body).await.ok(201);
    let workflow_id = workflow["id"].as_str().unwrap().to_owned();
    let mut by_workflow = server.events(&format!("?workflow={workflow_id}")).await;
    c.submit("b", r#"{"type":"y"}"#).await;
    complete(&mut c, "b").await;
    c.post(&format!("/v1/jobs/{held}/cancel"), "{}").await.ok(200);
    assert_eq!(by_queue.step().await, "->pending:create");
    assert_eq!(by_queue.step().await, "pending>delayed:submit");
    assert_eq!(by_queue.step().await, "delayed>cancelled:cancel");
    assert_eq!(by_job.step().await, "delayed>cancelled:cancel");
    assert_eq!(by_type.step().await, "->pending:create");
    assert_eq!(by_type.step().await, "pending>scheduled:submit");
    assert_eq!(by_state.step().await, "running>completed:complete");
    assert_eq!(by_state.step().await, "delayed>cancelled:cancel");
    assert_eq!(by_both.step().await, "pending>scheduled:submit");
    assert_eq!(by_both.step().await, "pending>scheduled:submit");
    let member = by_workflow.expect("job").await.data;
    assert_eq!((step(&member).as_str(), &member["workflow"]), ("scheduled>running:claim", &json!(workflow_id)));
    server.stop().await;
}

/// Rules Events.
#[tokio::test]
async fn bad_parameters_are_refused() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let cases = [
        ("after=", "after"),
        ("after=12", "after"),
        ("after=zz-1", "after"),
        ("after=0123456789abcdef-x", "after"),
        ("state=gone", "state"),
        ("job=x", "job"),
        ("workflow=x", "workflow"),
        ("queue=%20", "queue"),
        ("type=", "type"),
        ("quue=a", "quue"),
    ];
    for (query, field) in cases {
        let problem = c.get(&format!("/v1/events?{query}")).await.problem(400, "validation");
        assert_eq!(problem["field"], field, "{problem}");
    }
    c.send_bytes("GET", "/v1/events", "Last-Event-ID: 17\r\n", b"").await;
    let problem = c.reply().await.unwrap().problem(400, "validation");
    assert_eq!(problem["field"], "Last-Event-ID", "{problem}");
    c.get("/v1/events?queue=a&queue=b").await.problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn a_cursor_resumes_without_loss() {
    let server = Setup::memory().start().await;
    let (mut c, mut events) = (server.client().await, server.events("?type=t").await);
    let first = c.submit("q", r#"{"type":"t"}"#).await;
    let seen = events.expect("job").await.id.unwrap();
    // Before any event, the cursor of the comment is the position.
    let at_start = events.cursor.clone();
    drop(events);
    let second = c.submit("q", r#"{"type":"t"}"#).await;
    let mut by_query = server.events(&format!("?type=t&after={seen}")).await;
    let path = format!("/v1/events?type=t&after={at_start}");
    let mut by_header = EventStream::open(server.address, &path, Some(&seen)).await;
    let mut from_start = server.events(&format!("?type=t&after={at_start}")).await;
    assert_eq!(from_start.step().await, "->pending:create");
    for events in [&mut by_query, &mut by_header, &mut from_start] {
        let expected = [
            (&first, "pending>scheduled:submit"),
            (&second, "->pending:create"),
            (&second, "pending>scheduled:submit"),
        ];
        for (id, transition) in expected {
            let data = events.expect("job").await.data;
            assert_eq!((&data["id"], step(&data).as_str()), (&json!(id), transition));
        }
    }
    server.stop().await;
}

/// Rules Events, small print.
#[tokio::test]
async fn an_unknown_cursor_is_a_gap() {
    let server = Setup::memory().start().await;
    let (mut c, mut events) = (server.client().await, server.events("").await);
    c.put("/v1/queues/q", "{}").await.ok(201);
    let known = events.expect("queue").await.id.unwrap();
    let later = format!("{}-999", known.split_once('-').unwrap().0);
    for cursor in ["0123456789abcdef-1", later.as_str()] {
        let mut resumed = server.events(&format!("?queue=q&after={cursor}")).await;
        let gap = resumed.expect("gap").await;
        assert_eq!(gap.data, json!({}));
        c.submit("q", r#"{"type":"t"}"#).await;
        assert_eq!(resumed.step().await, "->pending:create");
        // The gap has a position of its own.
        let mut again = server.events(&format!("?queue=q&after={}", gap.id.unwrap())).await;
        assert_eq!(again.step().await, "->pending:create");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_restart_is_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::directory(directory.path()).start().await;
    let (mut c, mut events) = (server.client().await, server.events("").await);
    c.submit("q", r#"{"type":"t"}"#).await;
    let seen = events.expect("queue").await.id.unwrap();
    server.stop().await;
    let server = Setup::directory(directory.path()).start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    let mut resumed = server.events(&format!("?after={seen}")).await;
    resumed.expect("gap").await;
    complete(&mut c, "q").await;
    assert_eq!(resumed.step().await, "scheduled>running:claim");
    server.stop().await;
}

/// Submits jobs in batches. Each job has two events.
async fn submit_many(c: &mut Client, queue: &str, jobs: usize) {
    for _ in 0..jobs.div_ceil(1_000) {
        let batch = json!(vec![json!({"type": "t"}); 1_000]).to_string();
        c.post(&format!("/v1/queues/{queue}/jobs"), &batch).await.ok(201);
    }
}

#[tokio::test]
async fn the_last_ten_thousand_events_are_kept() {
    let server = Setup::memory().start().await;
    let (mut c, mut events) = (server.client().await, server.events("").await);
    c.put("/v1/queues/q", "{}").await.ok(201);
    let oldest = events.expect("queue").await.id.unwrap();
    drop(events);
    submit_many(&mut c, "q", 5_000).await;
    let mut resumed = server.events(&format!("?after={oldest}")).await;
    for _ in 0..5_000 {
        assert_eq!(resumed.step().await, "->pending:create");
        assert_eq!(resumed.step().await, "pending>scheduled:submit");
    }
    c.post("/v1/queues/q/pause", "").await.ok(200);
    server.events(&format!("?after={oldest}")).await.expect("gap").await;
    server.stop().await;
}

#[tokio::test]
async fn a_listener_that_does_not_read_is_cut_off_and_others_go_on() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", "{}").await.ok(201);
    c.put("/v1/queues/r", "{}").await.ok(201);
    let (mut slow, mut good) = (server.events("").await, server.events("?queue=r").await);
    submit_many(&mut c, "q", 60_000).await;
    c.submit("r", r#"{"type":"t"}"#).await;
    assert_eq!(good.step().await, "->pending:create");
    let mut count = 0;
    let closed = loop {
        let event = slow.next().await.expect("the stream ended without a reason");
        if event.name == "closed" {
            break event;
        }
        count += 1;
    };
    assert_eq!(closed.data, json!({"reason": "slow"}));
    assert!(count < 120_000, "the listener was not too slow");
    assert_eq!(slow.next().await, None, "the stream goes on");
    complete(&mut c, "r").await;
    assert_eq!(good.step().await, "pending>scheduled:submit");
    assert_eq!(good.step().await, "scheduled>running:claim");
    let metrics = c.get("/metrics").await;
    assert!(metrics.text().contains("longshore_event_listeners_cut_off_total 1\n"), "{}", metrics.text());
    server.stop().await;
}

/// Reads until a listener has seen the whole life of so many jobs.
async fn follow(mut events: EventStream, jobs: usize) {
    let (mut checker, mut ended) = (Checker::default(), 0);
    while ended < jobs {
        ended += usize::from(checker.add(&events.expect("job").await.data));
    }
}

/// A tenth of the listeners never reads. They are cut off with a reason; the others miss nothing.
///
/// `LISTENERS` is the number of all: 50 by default, 1,000 in `make soak-events`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_that_never_read_are_cut_off_and_the_others_miss_nothing() {
    const JOBS: usize = 40;
    let listeners: usize = std::env::var("LISTENERS").map_or(50, |text| text.parse().unwrap());
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", "{}").await.ok(201);
    let (mut reading, mut silent) = (tokio::task::JoinSet::new(), Vec::new());
    for number in 0..listeners {
        if number % 10 == 0 {
            silent.push(server.events("").await);
        } else {
            reading.spawn(follow(server.events("?queue=q").await, JOBS));
        }
    }
    tokio::join!(submit_many(&mut c, "flood", 60_000), work(&server, JOBS));
    while let Some(followed) = reading.join_next().await {
        followed.unwrap();
    }
    let count = silent.len();
    for mut events in silent {
        let closed = loop {
            let event = events.next().await.expect("the stream ended without a reason");
            if event.name == "closed" {
                break event;
            }
        };
        assert_eq!(closed.data, json!({"reason": "slow"}));
        assert_eq!(events.next().await, None, "the stream goes on");
    }
    let metrics = c.get("/metrics").await;
    let cut_off = format!("longshore_event_listeners_cut_off_total {count}\n");
    assert!(metrics.text().contains(&cut_off), "{}", metrics.text());
    server.stop().await;
}

#[tokio::test]
async fn streams_end_with_the_server() {
    let mut server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", "{}").await.ok(201);
    let (mut reading, mut silent) = (server.events("").await, server.events("").await);
    // The sockets of the second stream are full.
    submit_many(&mut c, "q", 40_000).await;
    server.request_stop();
    timeout(Duration::from_secs(10), server.stopped()).await.expect("a stream holds the shutdown").unwrap();
    while reading.next().await.is_some() {}
    while silent.next().await.is_some() {}
}

/// Checks the transitions of one listener: each job has all of them once, in order.
#[derive(Default)]
struct Checker(HashMap<String, Vec<String>>);

impl Checker {
    const LIFE: [&str; 4] =
        ["->pending:create", "pending>scheduled:submit", "scheduled>running:claim", "running>completed:complete"];

    /// Returns whether the transition ends its job.
    fn add(&mut self, data: &Value) -> bool {
        let steps = self.0.entry(data["id"].as_str().unwrap().to_owned()).or_default();
        steps.push(step(data));
        let expected = &Self::LIFE[..steps.len().min(4)];
        assert_eq!(steps, expected, "{}", data["id"]);
        steps.len() == 4
    }
}

async fn work(server: &TestServer, jobs: usize) {
    let submit = async {
        let mut c = server.client().await;
        for _ in 0..jobs {
            c.submit("q", r#"{"type":"t"}"#).await;
        }
    };
    let run = async {
        let mut c = server.client().await;
        let mut done = 0;
        while done < jobs {
            let claimed = c.post("/v1/claims", r#"{"queues":["q"],"worker":"w","limit":7,"wait":"5s"}"#).await.ok(200);
            for job in claimed["jobs"].as_array().unwrap() {
                let (id, token) = lease(job);
                c.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
                done += 1;
            }
        }
    };
    tokio::join!(submit, run);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_reconnects_all_the_time_sees_every_transition_once() {
    const JOBS: usize = 300;
    let server = Setup::memory().real_time().start().await;
    server.client().await.put("/v1/queues/q", "{}").await.ok(201);
    let first = server.events("?queue=q").await;
    let listen = async {
        let (mut events, mut checker, mut ended, mut count) = (first, Checker::default(), 0, 0);
        let mut cursor = events.cursor.clone();
        while ended < JOBS {
            let event = events.expect("job").await;
            ended += usize::from(checker.add(&event.data));
            cursor = event.id.unwrap();
            count += 1;
            if count % 17 == 0 {
                drop(events);
                events = EventStream::open(server.address, "/v1/events?queue=q", Some(&cursor)).await;
            }
        }
        assert_eq!(checker.0.len(), JOBS);
        cursor
    };
    let (_, cursor) = tokio::join!(work(&server, JOBS), listen);
    assert!(!cursor.is_empty());
    server.stop().await;
}
