//! Two servers on one schema in real time: each tick fires once, whichever server is there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_server::ServerClock;
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::postgres::{new_schema, shared_url};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::common::{Client, Setup, TestServer};

const SCHEDULES: usize = 12;
/// Ticks that each schedule has at least, before the test looks at all of them.
const TICKS: usize = 4;

async fn start(schema: &str) -> TestServer {
    let options = PostgresOptions { schema: schema.to_owned(), writers: 1, ..PostgresOptions::new(shared_url()) };
    let store = PostgresStore::start(options, tokio::runtime::Handle::current()).await.unwrap();
    Setup::memory().real_time().serve(Arc::new(store), ServerClock::Real).await
}

async fn ticks(c: &mut Client, schedule: usize) -> Vec<Value> {
    let answer = c.get(&format!("/v1/schedules/s{schedule}/ticks")).await.ok(200);
    answer["ticks"].as_array().unwrap().clone()
}

/// Waits until every schedule has so many ticks.
async fn until_ticks(c: &mut Client, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for schedule in 0..SCHEDULES {
        while ticks(c, schedule).await.len() < count {
            assert!(Instant::now() < deadline, "schedule {schedule} does not tick");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn millis(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millisecond()
}

/// One server stops and starts again meanwhile, and the schedules were created at either of them.
#[tokio::test]
async fn ticks_of_two_servers_fire_once() {
    let schema = new_schema();
    let (one, other) = (start(&schema).await, start(&schema).await);
    let (mut c, mut d) = (one.client().await, other.client().await);
    for schedule in 0..SCHEDULES {
        let body = json!({"every": "1s", "misfire": "all", "queue": "q", "job": {"type": "t"}}).to_string();
        let client = if schedule % 2 == 0 { &mut c } else { &mut d };
        client.put(&format!("/v1/schedules/s{schedule}"), &body).await.ok(201);
    }
    until_ticks(&mut c, 1).await;
    other.stop().await;
    until_ticks(&mut c, 2).await;
    let other = start(&schema).await;
    let mut d = other.client().await;
    until_ticks(&mut d, 3).await;
    one.stop().await;
    until_ticks(&mut d, TICKS).await;
    let (mut jobs, mut due) = (BTreeSet::new(), 0);
    for schedule in 0..SCHEDULES {
        d.post(&format!("/v1/schedules/s{schedule}/pause"), "{}").await.ok(200);
        let mut ticks = ticks(&mut d, schedule).await;
        ticks.reverse();
        for pair in ticks.windows(2) {
            assert_eq!(millis(&pair[1]["due_at"]) - millis(&pair[0]["due_at"]), 1_000, "{pair:?}");
        }
        for tick in &ticks {
            assert_eq!(tick["outcome"], "fired", "{tick}");
            let id = tick["job"].as_str().unwrap();
            let job = d.job(id).await;
            let expected = json!({"name": format!("s{schedule}"), "due_at": tick["due_at"]});
            assert_eq!(job["schedule"], expected);
            assert!(jobs.insert(id.to_owned()), "a job of two ticks: {id}");
            due += 1;
        }
    }
    let counts = d.get("/v1/queues/q").await.ok(200)["counts"].clone();
    assert_eq!((&counts["scheduled"], jobs.len()), (&json!(due), due), "jobs without a tick");
    other.stop().await;
}
