//! Claims scan a queue from its last known head. Jobs that become ready before it are not skipped.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::load::{self, claim, complete};
use longshore_core::Duration;
use longshore_core::id::{JobId, JobType};
use longshore_core::patch::SettingsPatch;
use longshore_core::policy::RequeueOrder;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{AdminCommand, Settlement, Submission, SubmitRequest};
use longshore_store::{Store, StoreReader};
use longshore_store_postgres::PostgresStore;
use tokio_postgres::NoTls;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn open_store() -> (Arc<PostgresStore>, String, String) {
    let (url, schema) = (common::shared_url(), common::new_schema());
    let store = load::open(&url, &schema).await;
    load::put_queue(&*store, Duration::from_secs(60)).await;
    (store, url, schema)
}

async fn submit(store: &PostgresStore, number: usize, priority: Priority) -> Vec<JobId> {
    let mut job = NewJob::new(JobType::new("work").expect("a name"), Payload::Json(Bytes::from_static(b"{}")));
    job.priority = priority;
    let batch = vec![Submission { queue: load::queue(), job }; number];
    let submitted = store.submit(SubmitRequest::new(batch)).await.expect("the store answers").expect("taken in");
    submitted.into_iter().map(|job| job.id).collect()
}

async fn next(store: &PostgresStore) -> Option<JobId> {
    let job = claim(store, 1).await.expect("the store answers").pop()?;
    complete(store, &job).await.expect("the store answers").expect("it is completed");
    Some(job.claimed.id)
}

/// The node has cached the head of the queue.
#[test]
fn urgent_jobs_overtake_and_others_keep_their_order() {
    runtime().block_on(async {
        let (store, ..) = open_store().await;
        let first = submit(&store, 20, Priority::Normal).await;
        for id in first.iter().take(10) {
            assert_eq!(next(&store).await, Some(*id));
        }
        let urgent = submit(&store, 2, Priority::Critical).await;
        let last = submit(&store, 1, Priority::Normal).await;
        for id in urgent.iter().chain(first.iter().skip(10)).chain(&last) {
            assert_eq!(next(&store).await, Some(*id));
        }
        assert_eq!(next(&store).await, None);
        let fast_path = store.fast_path();
        assert!(fast_path.hits > 20, "{fast_path:?}");
        let metrics = store.metrics().await.expect("the store answers");
        assert_eq!(metrics.fast_path, Some(fast_path));
        let commits = metrics.commit_seconds.expect("durations of commits");
        let batches = metrics.batch_commands.expect("sizes of batches");
        assert!(commits.count > fast_path.hits && commits.sum > 0.0, "{commits:?}");
        assert!(batches.count == commits.count && batches.sum >= 1.0, "{batches:?}");
    });
}

/// A released job returns to its position, before jobs that were claimed after it.
#[test]
fn a_released_job_returns_to_its_position() {
    runtime().block_on(async {
        let (store, ..) = open_store().await;
        let overrides = SettingsPatch { requeue_order: Some(RequeueOrder::Submission), ..SettingsPatch::default() };
        let overrides = Some(Box::new(overrides));
        let put = AdminCommand::PutQueue { queue: load::queue(), profile: Some(Profile::Standard), overrides };
        store.admin(put).await.expect("the store answers").expect("the queue is put");
        let all = submit(&store, 12, Priority::Normal).await;
        let early = claim(&*store, 1).await.expect("the store answers").remove(0);
        for id in all.iter().take(6).skip(1) {
            assert_eq!(next(&store).await, Some(*id));
        }
        let outcome = Outcome::Release;
        let release = Settlement { id: early.claimed.id, token: Some(early.claimed.token), outcome };
        store.settle(vec![release]).await.expect("the store answers").remove(0).expect("it is released");
        for id in all.iter().take(1).chain(all.iter().skip(6)) {
            assert_eq!(next(&store).await, Some(*id));
        }
        assert_eq!(next(&store).await, None);
    });
}

/// The job has a lower number than jobs that were claimed before its commit.
#[test]
fn a_job_that_commits_late_is_found_by_the_next_full_scan() {
    runtime().block_on(async {
        let (store, url, schema) = open_store().await;
        let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let transaction = client.transaction().await.expect("a transaction");
        let text = format!("SELECT ({schema}.submit('q', 'late', '{{}}'::jsonb))::text");
        let late: String = transaction.query_one(&text, &[]).await.expect("it is submitted").get(0);
        let late: JobId = late.parse().expect("an id");
        const OTHERS: usize = 3_000;
        for _ in 0..3 {
            submit(&store, OTHERS / 3, Priority::Normal).await;
        }
        for _ in 0..10 {
            assert_ne!(next(&store).await.expect("a job"), late);
        }
        transaction.commit().await.expect("it is committed");
        let mut before = 10;
        while next(&store).await.expect("a job") != late {
            before += 1;
        }
        assert!(before < OTHERS, "the late job came last");
    });
}
