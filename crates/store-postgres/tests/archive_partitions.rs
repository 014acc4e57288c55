//! A partition of the archive is dropped once none of its jobs is needed.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::sync::Arc;

use common::load::{self, claim, complete};
use longshore_core::id::JobType;
use longshore_core::patch::{PolicyPatch, RetentionPatch, SettingsPatch};
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::tags::Tags;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{Submission, SubmitRequest};
use longshore_store::{Clock, Store, VirtualClock};
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::NoTls;

const HOUR: u64 = 3_600_000;

fn budget() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(999)
}

async fn run_one(store: &dyn Store, tags: Tags) {
    let mut job = NewJob::new(JobType::new("work").expect("a name"), Payload::Binary("x".into()));
    job.tags = tags;
    let request = SubmitRequest::new(vec![Submission { queue: load::queue(), job }]);
    store.submit(request).await.expect("the store answers").expect("it is taken in");
    let job = claim(store, 1).await.expect("the store answers").remove(0);
    complete(store, &job).await.expect("the store answers").expect("the lease holds");
}

async fn completed(store: &dyn Store) -> u64 {
    let report = store.queue(load::queue()).await.expect("the store answers").expect("the queue is there");
    report.counts.get(StateKind::Completed as usize).copied().unwrap_or(0)
}

/// Returns the number of partitions, and of archived jobs.
async fn archive_counts(schema: &str) -> (i64, i64) {
    let (client, connection) = tokio_postgres::connect(&common::shared_url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let text = format!(
        "SELECT (SELECT count(*) FROM pg_inherits WHERE inhparent = '{schema}.archive'::regclass), (SELECT count(*) FROM {schema}.archive)"
    );
    let rows = client.query_typed(&text, &[]).await.expect("an answer");
    let row = rows.first().expect("a row");
    (row.get(0), row.get(1))
}

/// Partitions of standalone jobs are dropped as a whole. A partition with tagged jobs waits until
/// these were pruned one by one.
#[test]
fn partitions_are_dropped_when_no_job_is_needed() {
    let schema = common::Schema::take();
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_794_700_800_000)));
    let options = PostgresOptions {
        schema: schema.name.clone(),
        clock: Some(Arc::<VirtualClock>::clone(&clock) as Arc<dyn Clock>),
        auto_migrate: false,
        ..PostgresOptions::new(&*schema.url)
    };
    let store = PostgresStore::open(options).expect("the store opens");
    common::runtime().block_on(async {
        let retention = RetentionPatch { completed: Some(Duration::from_millis(HOUR)), ..RetentionPatch::default() };
        let job = PolicyPatch { retention, ..PolicyPatch::default() };
        let overrides = Some(Box::new(SettingsPatch { job, ..SettingsPatch::default() }));
        let queue = load::queue();
        let put = longshore_engine::AdminCommand::PutQueue { queue, profile: Some(Profile::Standard), overrides };
        store.admin(put).await.expect("the store answers").expect("the queue is put");
        let first = archive_counts(&schema.name).await.0;
        for tags in [Tags::None, Tags::List(vec!["red".into()]), Tags::None] {
            for _ in 0..20 {
                run_one(&store, tags.clone()).await;
            }
            store.tick(budget()).await.expect("it ticks");
            clock.advance(Duration::from_millis(24 * HOUR));
        }
        // The tick of the third day dropped the first partition. Jobs of the second have tags.
        assert_eq!(archive_counts(&schema.name).await, (first + 2, 40));
        assert_eq!(completed(&store).await, 40);
        // The third partition is dropped, and the jobs of the second are pruned after the slack.
        store.tick(budget()).await.expect("it ticks");
        assert_eq!(archive_counts(&schema.name).await, (first + 1, 0));
        clock.advance(Duration::from_millis(HOUR));
        store.tick(budget()).await.expect("it ticks");
        assert_eq!(archive_counts(&schema.name).await, (first, 0), "an empty partition is dropped, too");
        assert_eq!(completed(&store).await, 0);
    });
}
