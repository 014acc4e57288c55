//! Claims that carry settlements: one round trip per job or batch.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::ServerClock;
use longshore_store::{Clock, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::common::client::lease;
use crate::common::delayed_store::Slow;
use crate::common::{Client, Setup};

fn completion(job: &Value) -> Value {
    let (id, token) = lease(job);
    json!({"id": id, "lease": token, "outcome": "complete"})
}

async fn claim(c: &mut Client, claim: Value) -> Value {
    timeout(Duration::from_secs(20), c.post("/v1/claims", &claim.to_string())).await.expect("it waited").ok(200)
}

/// The steady state of a worker: each call settles one job and gets the next.
#[tokio::test]
async fn each_claim_settles_the_job_before_it() {
    for setup in [Setup::memory(), Setup::memory().real_time()] {
        let server = setup.start().await;
        let mut c = server.client().await;
        let mut ids = Vec::new();
        for number in 0..10 {
            ids.push(c.submit("q", &format!(r#"{{"type":"t","payload":{number}}}"#)).await);
        }
        let mut job = c.claim("q").await;
        for number in 1..10 {
            let answer = claim(&mut c, json!({"queues": ["q"], "worker": "w1", "settle": [completion(&job)]})).await;
            assert_eq!(answer["results"], json!([{"id": ids[number - 1], "state": "completed"}]));
            job = answer["jobs"][0].clone();
            assert_eq!((&job["id"], &job["payload"]), (&json!(ids[number]), &json!(number)));
        }
        // The queue is empty, and the call does not wait for a job.
        let last = json!({"queues": ["q"], "worker": "w1", "wait": "60s", "settle": [completion(&job)]});
        let answer = claim(&mut c, last).await;
        assert_eq!((&answer["results"][0]["state"], &answer["jobs"]), (&json!("completed"), &json!([])));
        for id in &ids {
            assert_eq!(c.state(id).await, "completed");
        }
        server.stop().await;
    }
}

/// `results` is present exactly if `settle` was given, and has the verdicts of `/v1/settlements`.
#[tokio::test]
async fn results_have_one_verdict_per_settlement() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert!(claim(&mut c, json!({"queues": ["q"]})).await.get("results").is_none());
    assert_eq!(claim(&mut c, json!({"queues": ["q"], "settle": []})).await["results"], json!([]));
    for _ in 0..4 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    let jobs = claim(&mut c, json!({"queues": ["q"], "limit": 3})).await["jobs"].as_array().unwrap().clone();
    let [one, two, three] = [0, 1, 2].map(|place: usize| lease(&jobs[place]));
    let error = json!({"category": "permanent", "code": "E1"});
    let batch = json!([
        {"id": one.0, "lease": one.1, "outcome": "fail", "error": error},
        {"id": two.0, "lease": "no-token", "outcome": "complete"},
        {"id": two.0, "lease": two.1, "outcome": "explode"},
        {"id": two.0, "lease": two.1, "outcome": "snooze", "delay": "1h"},
        {"id": three.0, "lease": three.1, "outcome": "complete", "result": {"n": 1}},
        {"id": "nothing", "lease": three.1, "outcome": "complete"},
        7,
    ]);
    let settled = claim(&mut c, json!({"queues": ["q"], "limit": 5, "settle": batch})).await;
    let word = |result: &Value| result.get("state").or(result.get("code")).unwrap().as_str().unwrap().to_owned();
    let results = settled["results"].as_array().unwrap();
    let words: Vec<String> = results.iter().map(word).collect();
    let expected = ["failed", "stale_lease", "validation", "delayed", "completed", "job_not_found", "validation"];
    assert_eq!(words, expected, "{results:?}");
    assert_eq!((&results[2]["field"], &results[1]["id"]), (&json!("outcome"), &json!(two.0)));
    assert_eq!(settled["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(c.job(&three.0).await["result"], json!({"n": 1}));
    // Repeated after a lost answer: the same verdicts.
    let repeated = claim(&mut c, json!({"queues": ["q"], "settle": [completion(&jobs[2])]})).await;
    assert_eq!(repeated["results"], json!([{"id": three.0, "state": "completed"}]));
    server.stop().await;
}

/// If the claim is refused, no settlement is applied.
#[tokio::test]
async fn a_refused_claim_settles_nothing() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let job = c.claim("q").await;
    let settle = json!([completion(&job)]);
    let too_many: Vec<Value> = (0..1_001).map(|_| completion(&job)).collect();
    let refused = [
        (json!({"queues": [], "settle": settle}), "queues"),
        (json!({"queues": ["q"], "limit": 1_001, "settle": settle}), "limit"),
        (json!({"queues": ["q"], "wait": "61s", "settle": settle}), "wait"),
        (json!({"queues": ["q"], "lease": "0s", "settle": settle}), "lease"),
        (json!({"queues": ["q"], "types": [""], "settle": settle}), "types[0]"),
        (json!({"queues": ["q"], "settle": too_many}), "settle"),
        (json!({"queues": ["q"], "settle": 1}), "settle"),
        (json!({"queues": ["q"], "settled": settle}), "settled"),
    ];
    for (claim, field) in refused {
        let problem = c.post("/v1/claims", &claim.to_string()).await.problem(400, "validation");
        assert_eq!(problem["field"], field, "{problem}");
    }
    assert_eq!(c.state(&id).await, "running");
    server.stop().await;
}

/// A worker that disconnects before the response: the settlement stands, the claimed job returns.
#[tokio::test]
async fn jobs_for_a_lost_worker_return_and_its_settlements_stand() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(StoreOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let slow = Arc::new(Slow::new(Arc::new(store)));
    let server = Setup::memory().serve(slow.clone(), ServerClock::Real).await;
    let mut c = server.client().await;
    let ids = [c.submit("q", r#"{"type":"t"}"#).await, c.submit("q", r#"{"type":"t"}"#).await];
    let job = c.claim("q").await;
    slow.hold();
    let mut lost = server.client().await;
    lost.send("POST", "/v1/claims", &json!({"queues": ["q"], "settle": [completion(&job)]}).to_string()).await;
    slow.reached(1).await;
    drop(lost);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !c.get("/metrics").await.text().contains("longshore_connections 1\n") {
        assert!(Instant::now() < deadline, "the server never noticed the disconnect");
    }
    slow.let_go();
    while c.state(&ids[1]).await != "scheduled" {
        assert!(Instant::now() < deadline, "the job was never released");
    }
    assert_eq!(c.state(&ids[0]).await, "completed");
    assert_eq!(c.claim("q").await["attempt"], 1, "an undelivered job costs no attempt");
    server.stop().await;
}
