//! Healthy long-polling workers: every job is delivered once, and the server releases none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_core::profile::Profile;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{Client, Setup, TestServer};

const JOBS_EACH: usize = 12;

struct Load {
    profile: Profile,
    workers: usize,
    submitters: usize,
    limit: usize,
}

impl Load {
    fn queue(&self) -> String {
        format!("{}-{}-{}-{}", self.profile, self.workers, self.submitters, self.limit)
    }

    fn jobs(&self) -> usize {
        JOBS_EACH * self.submitters
    }
}

/// Claims and completes until all jobs are done. Returns its jobs.
async fn work(mut c: Client, claim: String, done: Arc<AtomicUsize>, all: usize) -> Vec<Value> {
    let mut given = Vec::new();
    while done.load(Ordering::SeqCst) < all {
        let mut answer = c.post("/v1/claims", &claim).await.ok(200);
        let jobs = answer["jobs"].as_array_mut().unwrap();
        let settlement =
            |job: &Value| json!({"id": job["id"], "lease": job["lease"]["token"], "outcome": "complete", "result": 1});
        let settlements: Vec<Value> = jobs.iter().map(settlement).collect();
        if settlements.is_empty() {
            continue;
        }
        let results = c.post("/v1/settlements", &json!({"settlements": settlements}).to_string()).await.ok(200);
        for result in results["results"].as_array().unwrap() {
            assert_eq!(result["state"], "completed", "{result}");
        }
        done.fetch_add(jobs.len(), Ordering::SeqCst);
        given.append(jobs);
    }
    given
}

async fn play(server: &TestServer, load: &Load) {
    let (queue, mut c) = (load.queue(), server.client().await);
    c.put(&format!("/v1/queues/{queue}"), &format!(r#"{{"profile":"{}"}}"#, load.profile)).await.ok(201);
    let done = Arc::new(AtomicUsize::new(0));
    let (mut workers, mut submitters) = (JoinSet::new(), JoinSet::new());
    for number in 0..load.workers {
        let claim = json!({"queues": [queue], "worker": format!("w{number}"), "limit": load.limit, "wait": "300ms"});
        workers.spawn(work(server.client().await, claim.to_string(), Arc::clone(&done), load.jobs()));
    }
    for _ in 0..load.submitters {
        let (mut c, queue) = (server.client().await, queue.clone());
        submitters.spawn(async move {
            for _ in 0..JOBS_EACH {
                c.submit(&queue, r#"{"type":"t","hold":false}"#).await;
            }
        });
    }
    let waited = timeout(Duration::from_secs(120), async {
        submitters.join_all().await;
        workers.join_all().await
    });
    let given = waited.await.unwrap_or_else(|_| panic!("{queue}: a job never reached a worker"));
    check(&mut c, load, given).await;
}

async fn check(c: &mut Client, load: &Load, given: Vec<Vec<Value>>) {
    let queue = load.queue();
    let seqs = |jobs: &[Value]| -> Vec<u64> { jobs.iter().map(|job| job["seq"].as_u64().unwrap()).collect() };
    // Nodes may commit jobs of several submitters in another order than their numbers.
    let one_order = load.submitters == 1 || !crate::common::on_postgres();
    if let ([jobs], true) = (given.as_slice(), one_order) {
        assert!(seqs(jobs).is_sorted_by(|one, next| one < next), "{queue}: out of order: {:?}", seqs(jobs));
    }
    let mut all: Vec<u64> = given.iter().flat_map(|jobs| seqs(jobs)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), load.jobs(), "{queue}: every job once");
    for job in given.iter().flatten() {
        assert_eq!((&job["lease"]["version"], &job["attempt"]), (&1.into(), &1.into()), "{queue}: {job}");
        let history = c.get(&format!("/v1/jobs/{}/history", job["id"].as_str().unwrap())).await.ok(200);
        let causes: Vec<&str> =
            history["history"].as_array().unwrap().iter().map(|step| step["cause"].as_str().unwrap()).collect();
        assert_eq!(causes.as_slice(), ["create", "submit", "claim", "complete"], "{queue}");
    }
}

/// Issue 15.1: a submission used to claim for a waiting claim whose own request was in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_is_claimed_once_and_none_is_released() {
    let server = Setup::memory().real_time().start().await;
    let mut submitted = 0;
    for profile in Profile::ALL {
        for (workers, submitters) in [(1, 1), (1, 3), (2, 1), (2, 2), (4, 1), (4, 3)] {
            for limit in [1, 5] {
                let load = Load { profile: *profile, workers, submitters, limit };
                play(&server, &load).await;
                submitted += load.jobs();
            }
        }
    }
    let totals = server.client().await.get("/v1/stats").await.ok(200)["totals"]["since_start"].clone();
    let counted = ["submitted", "claimed", "completed"].map(|what| totals[what].as_u64());
    assert_eq!(counted, [Some(submitted as u64); 3], "{totals}");
    server.stop().await;
}
