//! The view `jobs_readable` returns the same fields as the API.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use common::load;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::job::Job;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::Settlement;
use longshore_store::{Clock, JobFilter, JobQuery, Store, StoreReader, VirtualClock};
use longshore_store_postgres::{Connections, PostgresOptions, PostgresStore};
use longshore_testkit::conformance::{self, StoreFixture};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

const TEXTS: &str = "id, queue, type, state, priority, attempt, worker, error_category, error_code, error_message, seq";
const TIMES: [&str; 8] = [
    "created_at",
    "updated_at",
    "scheduled_at",
    "started_at",
    "last_heartbeat_at",
    "run_at",
    "lease_expires_at",
    "ended_at",
];

type Values = Vec<Option<String>>;

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Every row of the view, the newest first.
async fn rows(client: &Client, schema: &str) -> Vec<Values> {
    let times: String = TIMES.iter().map(|name| format!(", (extract(epoch FROM {name}) * 1000)::bigint")).collect();
    let text = format!("SELECT {TEXTS}{times} FROM {schema}.jobs_readable ORDER BY seq DESC");
    let mut rows = Vec::new();
    for message in client.simple_query(&text).await.expect("the view answers") {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect());
        }
    }
    rows
}

/// The same fields of a decoded job.
fn values(job: &Job) -> Values {
    let lease = job.state.lease();
    let text = |value: &dyn ToString| Some(value.to_string());
    let time = |at: Option<Timestamp>| at.map(|at| at.as_millis().to_string());
    let error = job.error.as_deref();
    vec![
        text(&job.id),
        text(&job.queue),
        text(&job.job_type),
        text(&job.kind().as_str()),
        text(&job.priority.as_str()),
        text(&job.counters.starts),
        lease.and_then(|lease| lease.worker.as_ref()).map(ToString::to_string),
        error.map(|error| error.category.as_str().to_owned()),
        error.and_then(|error| error.code.as_deref()).map(str::to_owned),
        error.map(|error| error.message.to_string()),
        text(&job.seq),
        time(Some(job.created_at)),
        time(Some(job.updated_at)),
        time(job.scheduled_at),
        time(job.started_at),
        time(job.last_heartbeat_at),
        time(job.state.run_at()),
        time(lease.and_then(|lease| lease.expires_at)),
        time(job.state.completed_at()),
    ]
}

async fn jobs(store: &PostgresStore) -> Vec<Arc<Job>> {
    let (mut jobs, mut before) = (Vec::new(), None);
    loop {
        let query = JobQuery { filter: JobFilter::default(), limit: 1_000, before };
        let page = store.list(query).await.expect("the store answers");
        jobs.extend(page.jobs);
        before = page.next;
        if before.is_none() {
            return jobs;
        }
    }
}

static STATES: Mutex<BTreeSet<StateKind>> = Mutex::new(BTreeSet::new());
static ARCHIVED: AtomicUsize = AtomicUsize::new(0);

/// Compares the view with the store on drop.
struct Comparison {
    store: Arc<PostgresStore>,
    schema: common::Schema,
}

impl Drop for Comparison {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        common::runtime().block_on(async {
            // By the role that runs servers: its grants cover the view.
            let client = connect(&self.schema.url).await;
            let (jobs, rows) = (jobs(&self.store).await, rows(&client, &self.schema.name).await);
            assert_eq!(rows, jobs.iter().map(|job| values(job)).collect::<Vec<_>>());
            STATES.lock().expect("the states").extend(jobs.iter().map(|job| job.kind()));
            let archived = format!("SELECT seq FROM {}.archive", self.schema.name);
            ARCHIVED.fetch_add(client.query(&archived, &[]).await.expect("an answer").len(), Ordering::Relaxed);
        });
    }
}

fn fixture() -> StoreFixture {
    static SHARED: OnceLock<Connections> = OnceLock::new();
    let (clock, schema) = (conformance::clock(), common::Schema::take());
    let connections =
        SHARED.get_or_init(|| Connections::new(&PostgresOptions::new(&*schema.url), 24).expect("an address"));
    let options = PostgresOptions {
        schema: schema.name.clone(),
        clock: Some(Arc::<VirtualClock>::clone(&clock) as Arc<dyn Clock>),
        auto_migrate: false,
        writers: 0,
        readers: 1,
        retention_slack: longshore_core::Duration::ZERO,
        runtime: Some(common::runtime().handle().clone()),
        connections: Some(connections.clone()),
        ..PostgresOptions::new(&*schema.url)
    };
    let store = Arc::new(PostgresStore::open(options).expect("the store opens"));
    StoreFixture::new(Arc::<PostgresStore>::clone(&store), clock).keeping(Comparison { store, schema })
}

#[test]
fn the_view_agrees_on_random_jobs() {
    conformance::histories(&fixture, 3_000_000..3_000_016);
    let (states, archived) = (STATES.lock().expect("the states").clone(), ARCHIVED.load(Ordering::Relaxed));
    assert_eq!(states.len(), StateKind::COUNT, "only {states:?} were seen");
    assert!(archived > 0, "no job was archived");
}

/// PostgreSQL text cannot contain a zero byte.
#[test]
fn a_message_with_a_zero_byte_is_escaped() {
    common::runtime().block_on(async {
        let (url, schema) = (common::shared_url(), common::new_schema());
        let store = load::open(&url, &schema).await;
        load::submit(&*store, "one").await.expect("it is stored");
        let job = load::claim(&*store, 1).await.expect("the store answers").remove(0);
        let report = ReportedFailure {
            category: ReportedCategory::Permanent,
            code: Some("E1".into()),
            message: "a\0b".into(),
            cause: None,
            retry_after: None,
            unrecoverable: false,
        };
        let outcome = Outcome::Fail(report);
        let settlement = Settlement { id: job.claimed.id, token: Some(job.claimed.token), outcome };
        store.settle(vec![settlement]).await.expect("the store answers").remove(0).expect("it has failed");
        let rows = rows(&connect(&url).await, &schema).await;
        let error: Vec<_> = rows[0][7..10].iter().map(|value| value.as_deref().expect("a value")).collect();
        assert_eq!(error, ["permanent", "E1", "a\\000b"]);
    });
}
