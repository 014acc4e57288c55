//! `submit()` in SQL creates the same record as the Rust encoder, except for its id, and commits or
//! rolls back with the caller's transaction.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::load;
use longshore_core::Duration;
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::job::Job;
use longshore_core::patch::{PolicyPatch, SettingsPatch};
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::state::{State, StateKind};
use longshore_core::submit::{NewJob, Payload, Start};
use longshore_core::tags::Tags;
use longshore_engine::{AdminCommand, Submission, SubmitRequest};
use longshore_store::{JobFilter, JobQuery, JobRef, Store, StoreReader};
use longshore_store_postgres::{PostgresStore, SqlSubmission, submit_in_transaction};
use tokio_postgres::{Client, NoTls};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn open_store() -> (Arc<PostgresStore>, Client, String) {
    let (url, schema) = (common::shared_url(), common::new_schema());
    let store = load::open(&url, &schema).await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    (store, client, schema)
}

async fn put(store: &dyn Store, name: &str, profile: Profile, overrides: SettingsPatch) {
    let queue = QueueName::new(name).expect("a name");
    let command = AdminCommand::PutQueue { queue, profile: Some(profile), overrides: Some(Box::new(overrides)) };
    store.admin(command).await.expect("the store answers").expect("the queue is put");
}

async fn job(store: &dyn Store, id: JobId) -> Arc<Job> {
    store.get(vec![JobRef::Id(id)]).await.expect("the store answers").remove(0).expect("the job is there")
}

fn given<'a>(schema: &'a str, queue: &'a str, options: &'a str) -> SqlSubmission<'a> {
    SqlSubmission { schema, queue, job_type: "mail.größe", payload: "{\"to\":\"ada\"}", options }
}

/// The job without its unique fields.
fn picture(job: &Job, twin: &Job) -> Job {
    let mut job = job.clone();
    let shift = |at: longshore_core::Timestamp| {
        longshore_core::Timestamp::from_millis(
            at.as_millis() - job.created_at.as_millis() + twin.created_at.as_millis(),
        )
    };
    let moves = job
        .history
        .transitions()
        .iter()
        .map(|step| longshore_core::history::Transition { at: shift(step.at), ..*step })
        .collect();
    job.history = longshore_core::history::History::from_transitions(moves);
    job.scheduled_at = job.scheduled_at.map(shift);
    job.lifetime_ends_at = job.lifetime_ends_at.map(shift);
    job.updated_at = shift(job.updated_at);
    job.state = match &job.state {
        State::Delayed { until } => State::Delayed { until: shift(*until) },
        State::Scheduled { .. } => twin.state.clone(),
        State::Pending { held, run_at } => State::Pending { held: *held, run_at: run_at.map(shift) },
        other @ (State::Running(_)
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. }) => other.clone(),
    };
    (job.id, job.seq, job.created_at) = (twin.id, twin.seq, twin.created_at);
    job
}

type Change = fn(&mut NewJob);

/// Options in SQL, and the same fields in Rust.
fn variants() -> Vec<(&'static str, Change)> {
    vec![
        ("{}", |_| {}),
        ("{\"priority\":\"critical\"}", |job| job.priority = Priority::Critical),
        ("{\"priority\":\"bulk\",\"correlation_id\":\"c 1\"}", |job| {
            job.priority = Priority::Bulk;
            job.correlation_id = Some("c 1".into());
        }),
        ("{\"delay\":\"10 minutes\"}", |job| job.start = Start::In(Duration::from_mins(10))),
        ("{\"hold\":true}", |job| job.hold = Some(true)),
        ("{\"hold\":true,\"delay\":\"1.5 seconds\"}", |job| {
            job.hold = Some(true);
            job.start = Start::In(Duration::from_millis(1_500));
        }),
        ("{\"tags\":[\"alice\",\"a:b\"],\"callback_url\":\"http://h/x\"}", |job| {
            job.tags = Tags::List(vec!["alice".into(), "a:b".into()]);
            job.callback_url = Some("http://h/x".into());
        }),
        ("{\"tags\":{\"tenant\":\"acme\",\"alice\":null}}", |job| {
            job.tags = Tags::Map([("tenant".into(), Some("acme".into())), ("alice".into(), None)].into());
        }),
    ]
}

#[test]
fn submit_creates_the_same_job_as_the_rules() {
    runtime().block_on(async {
        let (store, client, schema) = open_store().await;
        let lifetime = PolicyPatch { lifetime: Some(Duration::from_days(2)), ..PolicyPatch::default() };
        put(&*store, "q", Profile::Standard, SettingsPatch::default()).await;
        put(&*store, "mortal", Profile::Taskharbor, SettingsPatch { job: lifetime, ..SettingsPatch::default() }).await;
        for queue in ["q", "mortal"] {
            for (options, change) in variants() {
                let id = submit_in_transaction(&client, &given(&schema, queue, options)).await.expect("it is taken in");
                let mut new = NewJob::new(
                    JobType::new("mail.größe").expect("a name"),
                    Payload::Json(Bytes::from_static(b"{\"to\": \"ada\"}")),
                );
                change(&mut new);
                let submission = Submission { queue: QueueName::new(queue).expect("a name"), job: new };
                let twin = store.submit(SubmitRequest::new(vec![submission])).await.expect("the store answers");
                let twin = job(&*store, twin.expect("it is taken in").remove(0).id).await;
                let made = job(&*store, id).await;
                assert_eq!(picture(&made, &twin), *twin, "{queue} {options}");
                let payloads = store.payloads(vec![made.seq, twin.seq]).await.expect("the store answers");
                assert!(payloads[0].is_some() && payloads[0] == payloads[1], "{options}");
            }
        }
        let claimed = load::claim(&*store, 100).await.expect("the store answers");
        assert!(claimed.len() >= 8, "jobs of both kinds are ready");
        let report =
            store.queue(QueueName::new("q").expect("a name")).await.expect("the store answers").expect("it is there");
        assert_eq!(report.counts.iter().sum::<u64>(), 16, "all are counted");
    });
}

#[test]
fn the_job_commits_or_rolls_back_with_the_transaction() {
    runtime().block_on(async {
        let (store, mut client, schema) = open_store().await;
        let transaction = client.transaction().await.expect("a transaction");
        let lost = submit_in_transaction(&transaction, &given(&schema, "default", "{}")).await.expect("it is taken in");
        transaction.rollback().await.expect("it never was");
        let transaction = client.transaction().await.expect("a transaction");
        let kept = submit_in_transaction(&transaction, &given(&schema, "default", "{\"idempotency_key\":\"k\"}"))
            .await
            .expect("it is taken in");
        assert_eq!(load::state(&*store, kept).await, None, "not yet");
        transaction.commit().await.expect("it is there");
        assert_eq!(
            (load::state(&*store, lost).await, load::state(&*store, kept).await),
            (None, Some(StateKind::Scheduled))
        );
        let again = submit_in_transaction(&client, &given(&schema, "default", "{\"idempotency_key\":\"k\"}"))
            .await
            .expect("it is known");
        assert_eq!(again, kept, "one key, one job");
        let mut new = NewJob::new(JobType::new("mail.größe").expect("a name"), Payload::Json(Bytes::from_static(b"1")));
        new.idempotency_key = Some("k".into());
        let submission = Submission { queue: QueueName::new("default").expect("a name"), job: new };
        let answer =
            store.submit(SubmitRequest::new(vec![submission])).await.expect("the store answers").expect("it is known");
        assert_eq!((answer[0].id, answer[0].duplicate), (kept, true), "also to the program");
    });
}

#[test]
fn errors_name_the_invalid_field() {
    runtime().block_on(async {
        let (store, mut client, schema) = open_store().await;
        put(
            &*store,
            "small",
            Profile::Standard,
            SettingsPatch { payload_max: Some(5), max_queued: Some(Some(0)), ..SettingsPatch::default() },
        )
        .await;
        for (queue, options, word) in [
            ("no such", "{}", "queue"),
            ("nowhere", "{}", "queue"),
            ("small", "{}", "payload"),
            ("default", "[]", "options"),
            ("default", "{\"prio\":\"high\"}", "prio"),
            ("default", "{\"priority\":\"best\"}", "priority"),
            ("default", "{\"priority\":7}", "priority"),
            ("default", "{\"delay\":\"soon\"}", "delay"),
            ("default", "{\"delay\":\"-5 seconds\"}", "delay"),
            ("default", "{\"delay\":\"400000 years\"}", "delay"),
            ("default", "{\"run_at\":\"soon\"}", "run_at"),
            ("default", "{\"run_at\":\"infinity\"}", "run_at"),
            ("default", "{\"run_at\":\"-infinity\"}", "run_at"),
            ("default", "{\"run_at\":\"10000-01-01T00:00:00Z\"}", "run_at"),
            ("default", "{\"tags\":[\"a b\"]}", "tags"),
            ("default", "{\"tags\":{\"a b\":null}}", "tags"),
            ("default", "{\"tags\":7}", "tags"),
            ("default", "{\"external_id\":\"x\"}", "external_id"),
        ] {
            let refused =
                submit_in_transaction(&client, &given(&schema, queue, options)).await.expect_err("it is refused");
            assert!(refused.to_string().contains(&format!("{word}: ")), "{queue} {options}: {refused}");
        }
        for (levels, taken) in [(64, true), (65, false)] {
            let text = format!(
                "SELECT {schema}.submit('default', 't', (repeat('[', {levels}) || repeat(']', {levels}))::jsonb)"
            );
            let transaction = client.transaction().await.expect("a transaction");
            assert_eq!(transaction.query(&text, &[]).await.is_ok(), taken, "{levels} levels");
        }
        let page = store.list(JobQuery { filter: Default::default(), limit: 10, before: None }).await;
        assert!(page.expect("the store answers").jobs.is_empty(), "nothing is stored");
    });
}

/// Jobs from SQL have the same search terms as jobs from the API.
#[test]
fn a_job_from_sql_is_listed_by_its_ids() {
    runtime().block_on(async {
        let (store, client, schema) = open_store().await;
        let settings = SettingsPatch { external_ids: Some(true), ..SettingsPatch::default() };
        put(&*store, "named", Profile::Standard, settings).await;
        let options =
            "{\"correlation_id\":\"trace ü\",\"idempotency_key\":\"k\",\"external_id\":\"x\",\"tags\":[\"alice\"]}";
        let id = submit_in_transaction(&client, &given(&schema, "named", options)).await.expect("it is submitted");
        submit_in_transaction(&client, &given(&schema, "named", "{}")).await.expect("it is submitted");
        let all = JobFilter::default;
        for filter in [
            JobFilter { correlation_id: Some("trace ü".into()), ..all() },
            JobFilter { idempotency_key: Some("k".into()), ..all() },
            JobFilter { external_id: Some("x".into()), ..all() },
            JobFilter { tag: Some("alice".into()), ..all() },
        ] {
            let query = JobQuery { filter: filter.clone(), limit: 10, before: None };
            let page = store.list(query).await.expect("the store answers");
            assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id], "{filter:?}");
        }
        let text = format!("SELECT count(*) FROM {schema}.jobs WHERE standalone");
        let plain: i64 = client.query_one(&text, &[]).await.expect("a count").get(0);
        assert_eq!(plain, 1, "a job that the index lists is removed by itself, not with its day");
    });
}

#[derive(serde::Serialize, serde::Deserialize, longshore::Job)]
#[job(type = "order.confirm", queue = "default")]
struct OrderConfirmation {
    order: u32,
}

/// The SDK's typed submission uses the same function.
#[test]
fn a_typed_job_of_the_sdk_commits_with_the_transaction() {
    runtime().block_on(async {
        let (store, mut client, schema) = open_store().await;
        let request =
            || longshore::JobRequest::new(&OrderConfirmation { order: 7 }).key("order 7").tag("tenant", "acme");
        let transaction = client.transaction().await.expect("a transaction");
        let id = longshore::submit_in_schema(&transaction, &schema, request()).await.expect("the job is accepted");
        let id: JobId = id.parse().expect("a job id");
        assert_eq!(load::state(&*store, id).await, None, "the transaction is open");
        transaction.commit().await.expect("the transaction commits");
        assert_eq!(load::state(&*store, id).await, Some(StateKind::Scheduled));
        let again = longshore::submit_in_schema(&client, &schema, request()).await.expect("the key is known");
        assert_eq!(again.parse(), Ok(id));
        let delayed = request().key("later").delay(std::time::Duration::from_secs(90));
        let id = longshore::submit_in_schema(&client, &schema, delayed).await.expect("the job is accepted");
        assert_eq!(load::state(&*store, id.parse().expect("a job id")).await, Some(StateKind::Delayed));
        let error = longshore::submit_in_schema(&client, "x; drop", request()).await.expect_err("not a schema");
        assert!(matches!(error, longshore::SubmitInError::Schema), "{error}");
    });
}

#[test]
fn sqlx_submits_inside_a_transaction() {
    use sqlx::Connection;
    runtime().block_on(async {
        let (store, _client, schema) = open_store().await;
        let mut connection = sqlx::PgConnection::connect(&common::shared_url()).await.expect("a connection");
        let request = || longshore::JobRequest::new(&OrderConfirmation { order: 8 }).key("order 8");
        let mut transaction = connection.begin().await.expect("a transaction");
        let submitted = longshore::submit_in_sqlx_schema(&mut *transaction, &schema, request()).await;
        drop(transaction.rollback().await);
        let rolled_back: JobId = submitted.expect("the job is accepted").parse().expect("a job id");
        assert_eq!(load::state(&*store, rolled_back).await, None, "the transaction was rolled back");
        let mut transaction = connection.begin().await.expect("a transaction");
        let id = longshore::submit_in_sqlx_schema(&mut *transaction, &schema, request()).await;
        transaction.commit().await.expect("the transaction commits");
        let id: JobId = id.expect("the job is accepted").parse().expect("a job id");
        assert_eq!(load::state(&*store, id).await, Some(StateKind::Scheduled));
        let again = longshore::submit_in_sqlx_schema(&mut connection, &schema, request()).await;
        assert_eq!(again.expect("the key is known").parse(), Ok(id));
        let error = longshore::submit_in_sqlx_schema(&mut connection, "absent", request()).await;
        let error = error.expect_err("no such schema");
        assert!(matches!(error, longshore::SubmitInError::Sqlx(_)), "{error}");
    });
}
