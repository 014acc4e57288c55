//! Claims that name many queues: up to 1,000, with a limit of up to 1,000.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use common::load;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobType, QueueName};
use longshore_core::patch::SettingsPatch;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{AdminCommand, ClaimRequest, Submission, SubmitRequest};
use longshore_store::{ClaimedJob, Store};
use longshore_store_postgres::PostgresStore;
use tokio_postgres::NoTls;

/// As many queues as a claim may name.
const QUEUES: usize = 1_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn queue(number: usize) -> QueueName {
    QueueName::new(&format!("q{number}")).expect("a name")
}

fn job_type(name: &str) -> JobType {
    JobType::new(name).expect("a type")
}

/// One job for each number, in the queue of that number.
async fn submit(store: &PostgresStore, name: &str, priority: Priority, queues: impl Iterator<Item = usize>) {
    let submission = |number| {
        let mut job = NewJob::new(job_type(name), Payload::Json(Bytes::from_static(b"{}")));
        job.priority = priority;
        Submission { queue: queue(number), job }
    };
    let batch: Vec<_> = queues.map(submission).collect();
    store.submit(SubmitRequest::new(batch)).await.expect("the store answers").expect("taken in");
}

fn request(queues: impl Iterator<Item = usize>, limit: usize, types: &[&str]) -> ClaimRequest {
    let types = types.iter().map(|name| job_type(name)).collect();
    ClaimRequest { queues: queues.map(queue).collect(), limit, types, terms: ClaimOptions::default() }
}

async fn claim(store: &PostgresStore, request: ClaimRequest) -> Vec<ClaimedJob> {
    store.claim(request).await.expect("the store answers").expect("nothing is wrong with it")
}

fn queues_of(jobs: &[ClaimedJob]) -> Vec<QueueName> {
    jobs.iter().map(|job| job.claimed.queue.clone()).collect()
}

async fn open_store() -> (Arc<PostgresStore>, String, String) {
    let (url, schema) = (common::shared_url(), common::new_schema());
    let store = load::open(&url, &schema).await;
    (store, url, schema)
}

#[test]
fn a_claim_over_a_thousand_queues_is_served_in_their_order() {
    runtime().block_on(async {
        let (store, ..) = open_store().await;
        submit(&store, "a", Priority::Normal, 0..QUEUES).await;
        let backwards = (0..QUEUES).rev();
        let all = claim(&store, request(backwards.clone(), QUEUES, &[])).await;
        assert_eq!(queues_of(&all), backwards.clone().map(queue).collect::<Vec<_>>());
        // The queues are empty.
        assert!(claim(&store, request(backwards.clone(), QUEUES, &[])).await.is_empty());
        // One job in the last queue that is named, then in others before it.
        submit(&store, "a", Priority::Normal, std::iter::once(0)).await;
        assert_eq!(queues_of(&claim(&store, request(backwards.clone(), 1, &[])).await), [queue(0)]);
        submit(&store, "a", Priority::Normal, [3, 800, 3, 1].into_iter()).await;
        let three = claim(&store, request(backwards, 3, &[])).await;
        assert_eq!(queues_of(&three), [queue(800), queue(3), queue(3)]);
    });
}

#[test]
fn claims_by_type_over_a_thousand_queues() {
    runtime().block_on(async {
        let (store, ..) = open_store().await;
        for name in ["a", "b"] {
            submit(&store, name, Priority::Normal, 0..QUEUES).await;
        }
        let of_b = claim(&store, request(0..QUEUES, QUEUES, &["b", "c"])).await;
        assert_eq!(queues_of(&of_b), (0..QUEUES).map(queue).collect::<Vec<_>>());
        assert!(of_b.iter().all(|job| job.claimed.job_type == job_type("b")));
        assert!(claim(&store, request(0..QUEUES, 1, &["b"])).await.is_empty());
        let of_any = claim(&store, request(0..QUEUES, QUEUES, &[])).await;
        assert_eq!((of_any.len(), of_any.iter().all(|job| job.claimed.job_type == job_type("a"))), (QUEUES, true));
    });
}

/// A FIFO queue is served in order of arrival, the others by priority.
#[test]
fn each_queue_keeps_its_own_order() {
    runtime().block_on(async {
        let (store, ..) = open_store().await;
        for (number, priority_order) in [(1, false), (2, true)] {
            let overrides = SettingsPatch { priority_order: Some(priority_order), ..SettingsPatch::default() };
            let (profile, overrides) = (Some(Profile::Standard), Some(Box::new(overrides)));
            let put = AdminCommand::PutQueue { queue: queue(number), profile, overrides };
            store.admin(put).await.expect("the store answers").expect("the queue is put");
        }
        submit(&store, "empty", Priority::Normal, std::iter::once(0)).await;
        claim(&store, request(std::iter::once(0), 1, &[])).await;
        for (name, priority) in [("slow", Priority::Bulk), ("quick", Priority::Critical), ("usual", Priority::Normal)] {
            submit(&store, name, priority, [1, 2].into_iter()).await;
        }
        for types in [&["slow", "quick", "usual"][..], &[]] {
            let jobs = claim(&store, request(0..3, 3, types)).await;
            let names: Vec<_> = jobs.iter().map(|job| job.claimed.job_type.as_str().to_owned()).collect();
            let expected = if types.is_empty() { ["quick", "usual", "slow"] } else { ["slow", "quick", "usual"] };
            assert_eq!(names, expected);
        }
    });
}

/// Claims of one transaction that name the same queues in other orders get a job each, and every
/// job once.
#[test]
fn overlapping_claims_get_each_job_once() {
    const CLAIMS: usize = 60;
    runtime().block_on(async {
        let (store, ..) = open_store().await;
        submit(&store, "a", Priority::Normal, (0..CLAIMS * 2).map(|number| 50 + number % 20)).await;
        let claims: Vec<_> = (0..CLAIMS)
            .map(|first| {
                let store = Arc::clone(&store);
                let order = (0..100).map(move |number| (number + first) % 100);
                tokio::spawn(async move { claim(&store, request(order, 2, &[])).await })
            })
            .collect();
        let mut ids = BTreeSet::new();
        for claim in claims {
            let jobs = claim.await.expect("it ends");
            assert_eq!(jobs.len(), 2);
            ids.extend(jobs.iter().map(|job| job.claimed.id));
        }
        assert_eq!(ids.len(), CLAIMS * 2);
    });
}

/// Other nodes see every job that a claim does not take.
#[test]
fn no_more_jobs_are_locked_than_are_claimed() {
    runtime().block_on(async {
        let (store, url, schema) = open_store().await;
        submit(&store, "a", Priority::Normal, (0..40).map(|number| number % 4)).await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
            tokio::spawn(connection);
            clients.push(client);
        }
        let text = format!(
            "BEGIN; SELECT count(*) FROM {schema}.claim_queues(ARRAY(SELECT number FROM {schema}.queue_names \
             WHERE name LIKE 'q_' ORDER BY name), '{{f,f,t,t}}', '{{1,1,2,2}}', '{{}}', '{{}}', '{{12,3}}', '{{}}', 256)"
        );
        clients[0].batch_execute(&text).await.expect("they are locked");
        let free = format!("SELECT 1 FROM {schema}.jobs FOR UPDATE SKIP LOCKED");
        assert_eq!(clients[1].query(&free, &[]).await.expect("an answer").len(), 40 - 12 - 3);
    });
}
