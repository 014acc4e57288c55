//! Failures of PostgreSQL: restarts, read-only mode, a frozen server, conflicts and locks.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::load::{self, claim, complete, submit};
use common::{Cluster, Durability};
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::priority::Priority;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob, Payload};
use longshore_core::time::Timestamp;
use longshore_engine::{AdminCommand, Submission, SubmitRequest};
use longshore_store::{ClaimedJob, Clock, JobFilter, JobQuery, JobRef, Store, StoreReader, VirtualClock};
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::NoTls;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
}

/// Waits until a condition holds, and fails after 30 s.
async fn until<F: Future<Output = bool>>(what: &str, mut there: impl FnMut() -> F) {
    let mut rounds = 0;
    while !there().await {
        rounds += 1;
        assert!(rounds < 600, "{what} did not come within 30 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs submitters that continue after errors. Returns keys and ids of acknowledged jobs.
async fn acknowledged(
    store: &Arc<PostgresStore>,
    stop: &Arc<AtomicBool>,
    answers: &Arc<AtomicUsize>,
    name: &'static str,
) -> BTreeMap<String, JobId> {
    let mut tasks = Vec::new();
    for submitter in 0..4 {
        let (store, stop, answers) = (Arc::clone(store), Arc::clone(stop), Arc::clone(answers));
        tasks.push(tokio::spawn(async move {
            let mut answered = BTreeMap::new();
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) {
                let key = format!("{name} {submitter} {number}");
                match submit(&*store, &key).await {
                    Ok(job) => {
                        answered.insert(key, job.id);
                        answers.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
                number += 1;
            }
            answered
        }));
    }
    let mut all = BTreeMap::new();
    for task in tasks {
        all.extend(task.await.expect("a submitter ends"));
    }
    all
}

/// F31: kill -9 and fast restarts under load lose nothing that was answered, and a key that was
/// asked twice has one job.
///
/// Proves I-5.
#[test]
fn postgresql_is_killed_and_restarted() {
    let cluster = Cluster::start(Durability::On);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let submitting = tokio::spawn({
            let (store, stop, answers) = (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&answers));
            async move { acknowledged(&store, &stop, &answers, "restart").await }
        });
        for kill in [true, false, true] {
            let enough = answers.load(Ordering::SeqCst) + 50;
            until("fifty more answers", || async { answers.load(Ordering::SeqCst) >= enough }).await;
            tokio::task::block_in_place(|| {
                if kill {
                    cluster.kill();
                    std::fs::remove_file(cluster.data().join("postmaster.pid")).expect("its file goes with it");
                } else {
                    cluster.down("fast");
                }
                cluster.up();
            });
            until("an answer after the restart", || async { submit(&*store, "after").await.is_ok() }).await;
        }
        stop.store(true, Ordering::SeqCst);
        let answered = submitting.await.expect("the submitters end");
        assert!(answered.len() > 100, "only {} were answered", answered.len());
        for (key, id) in &answered {
            assert!(load::state(&*store, *id).await.is_some(), "{key} was answered and is lost");
            let again = submit(&*store, key).await.expect("the store answers");
            assert_eq!((again.id, again.duplicate), (*id, true), "{key}");
        }
    });
}

/// F34: a node drops the connections to a read-only server, and resumes when it is writable.
#[test]
fn a_read_only_server_is_left() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        submit(&*store, "before").await.expect("it is writable");
        let set = |word: &str| {
            cluster.psql(&format!("ALTER SYSTEM SET default_transaction_read_only = {word}"));
            cluster.psql("SELECT pg_reload_conf()");
        };
        tokio::task::block_in_place(|| set("on"));
        until("a refusal", || async { submit(&*store, "meanwhile").await.is_err() }).await;
        let error = submit(&*store, "meanwhile").await.expect_err("nothing can be written");
        assert!(!error.may_have_applied(), "{error}");
        tokio::task::block_in_place(|| {
            cluster.psql("ALTER SYSTEM RESET default_transaction_read_only");
            cluster.psql("SELECT pg_reload_conf()");
        });
        until("a write", || async { submit(&*store, "after").await.is_ok() }).await;
    });
}

/// Requests to a server that accepts bytes and does not respond fail after the response timeout.
/// The node resumes when the server responds.
#[test]
fn requests_to_a_frozen_server_time_out() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let options =
            PostgresOptions { response_timeout: Duration::from_millis(500), ..PostgresOptions::new(cluster.url()) };
        let store = PostgresStore::start(options, tokio::runtime::Handle::current()).await.expect("the store opens");
        submit(&store, "before").await.expect("it is stored");
        let job = claim(&store, 1).await.expect("it is claimed").remove(0);
        let paused = tokio::task::block_in_place(|| cluster.silenced());
        let (submitted, claimed, completed, read) = tokio::join!(
            submit(&store, "meanwhile"),
            claim(&store, 1),
            complete(&store, &job),
            store.get(vec![JobRef::Id(job.claimed.id)])
        );
        let failed = [submitted.is_err(), claimed.is_err(), completed.is_err(), read.is_err()];
        assert_eq!(failed, [true; 4], "every request fails");
        tokio::task::block_in_place(|| drop(paused));
        // The server may have executed the requests. The same key never creates a second job.
        until("an answer", || async { submit(&store, "meanwhile").await.is_ok() }).await;
        until("the end of the job", || async {
            complete(&store, &job).await.is_ok_and(|verdict| verdict == Ok(StateKind::Completed))
        })
        .await;
        let query = JobQuery { filter: JobFilter::default(), limit: 10, before: None };
        assert_eq!(store.list(query).await.expect("the store answers").jobs.len(), 2);
    });
}

/// F40: the node retries serialization failures and deadlocks, and waits for locked rows.
///
/// Proves I-5.
#[test]
fn conflicts_are_retried_and_locks_awaited() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        load::put_queue(&*store, longshore_core::Duration::from_mins(5)).await;
        tokio::task::block_in_place(|| {
            // Two of three writes fail: a sequence is not rolled back.
            cluster.psql(
                "CREATE SEQUENCE public.bad; CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF nextval('public.bad') % 3 <> 0 THEN RAISE EXCEPTION 'injected' USING ERRCODE = \
                 (ARRAY['40001', '40P01'])[1 + currval('public.bad') % 2]; END IF; RETURN NULL; END $$; \
                 CREATE TRIGGER bad AFTER INSERT OR UPDATE ON longshore.jobs FOR EACH STATEMENT EXECUTE FUNCTION public.fail()",
            );
        });
        for number in 0..20 {
            submit(&*store, &format!("s {number}")).await.expect("it is tried again");
        }
        let jobs = claim(&*store, 20).await.expect("it is tried again");
        assert_eq!(jobs.len(), 20);
        tokio::task::block_in_place(|| cluster.psql("DROP TRIGGER bad ON longshore.jobs"));
        let (mut other, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let holding = other.transaction().await.expect("a transaction");
        holding.query("SELECT 1 FROM longshore.jobs FOR UPDATE", &[]).await.expect("the rows are held");
        let settling = tokio::spawn({
            let (store, job) = (Arc::clone(&store), jobs[0].clone());
            async move { complete(&*store, &job).await }
        });
        // Wait until a session waits for a lock.
        let (watching, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until("the wait", || async { !watching.query(waits, &[]).await.expect("an answer").is_empty() }).await;
        assert!(!settling.is_finished(), "it waits");
        holding.rollback().await.expect("the rows are let go");
        settling.await.expect("it ends").expect("the store answers").expect("the lease holds");
    });
}

/// F35: reads wait for a connection. Heartbeats have a connection of their own.
#[test]
fn more_reads_than_connections() {
    let cluster = Cluster::start_with(Durability::Off, "max_connections = 30\n");
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        let job = submit(&*store, "one").await.expect("it is stored");
        let claimed = claim(&*store, 1).await.expect("it is claimed").remove(0);
        let reads: Vec<_> = (0..400)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { load::state(&*store, job.id).await })
            })
            .collect();
        for _ in 0..20 {
            let heartbeat = longshore_engine::Heartbeat {
                id: claimed.claimed.id,
                token: Some(claimed.claimed.token),
                notes: longshore_core::heartbeat::HeartbeatData::default(),
            };
            store.heartbeat(vec![heartbeat]).await.expect("the store answers").remove(0).expect("the lease is kept");
        }
        for read in reads {
            assert!(read.await.expect("it is answered").is_some());
        }
    });
}

/// A heartbeat changes no index: PostgreSQL counts it as a HOT update.
#[test]
fn heartbeats_are_hot_updates() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        submit(&*store, "one").await.expect("it is stored");
        let claimed = claim(&*store, 1).await.expect("it is claimed").remove(0);
        for _ in 0..50 {
            let heartbeat = longshore_engine::Heartbeat {
                id: claimed.claimed.id,
                token: Some(claimed.claimed.token),
                notes: longshore_core::heartbeat::HeartbeatData::default(),
            };
            store.heartbeat(vec![heartbeat]).await.expect("the store answers").remove(0).expect("the lease is kept");
        }
        until("the statistics", || async {
            let hot = tokio::task::block_in_place(|| {
                cluster.psql(
                    "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'longshore' AND relname = 'jobs'",
                )
            });
            hot.parse::<u32>().is_ok_and(|hot| hot >= 45)
        })
        .await;
    });
}

/// Submits a job with two dependencies. Returns its id, and both dependencies, claimed.
async fn fork(store: &PostgresStore) -> (JobId, Vec<ClaimedJob>) {
    let new = |name: &str| {
        let mut new = NewJob::new(JobType::new(name).expect("a name"), Payload::Json(Bytes::from_static(b"1")));
        new.priority = if name == "child" { Priority::Bulk } else { Priority::High };
        new
    };
    let mut child = new("child");
    child.after = vec![DependencyRef::BatchIndex(0), DependencyRef::BatchIndex(1)];
    let batch = [new("one"), new("other"), child].map(|job| Submission { queue: load::queue(), job });
    let jobs = store.submit(SubmitRequest::new(batch.into())).await.expect("an answer").expect("they are taken in");
    let child = jobs.last().expect("three jobs").id;
    (child, claim(store, 2).await.expect("both are claimed"))
}

/// F40: two completions with a common dependent wait for each other without a deadlock.
#[test]
fn completions_with_a_common_dependent_do_not_deadlock() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let one = load::open(&cluster.url(), "longshore").await;
        let other = load::open(&cluster.url(), "longshore").await;
        load::put_queue(&*one, longshore_core::Duration::from_mins(5)).await;
        for _ in 0..30 {
            let (child, both) = fork(&one).await;
            assert_eq!(both.len(), 2);
            let (first, second) = tokio::join!(complete(&*one, &both[0]), complete(&*other, &both[1]));
            let verdicts = [first, second].map(|verdict| verdict.expect("the store answers"));
            assert_eq!(verdicts, [Ok(StateKind::Completed), Ok(StateKind::Completed)]);
            assert_eq!(load::state(&*one, child).await, Some(StateKind::Scheduled));
            let last = claim(&*one, 1).await.expect("it is claimed").remove(0);
            complete(&*one, &last).await.expect("the store answers").expect("the lease holds");
        }
        let text = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
        // Sessions report their statistics when they end.
        drop((one, other));
        until("the end of the sessions", || async {
            let text = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'longshore'";
            tokio::task::block_in_place(|| cluster.psql(text)) == "0"
        })
        .await;
        assert_eq!(tokio::task::block_in_place(|| cluster.psql(text)), "0", "deadlocks");
    });
}

/// An open transaction that has called `submit` delays only changes of queues, and submissions with
/// the same key.
#[test]
fn an_open_transaction_delays_only_its_own_keys_and_queue_changes() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        load::put_queue(&*store, longshore_core::Duration::from_mins(5)).await;
        submit(&*store, "before").await.expect("it is stored");
        let mut sessions = Vec::new();
        for number in 0..6 {
            let (session, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await.expect("a connection");
            tokio::spawn(connection);
            let text = format!(
                "BEGIN; SELECT longshore.submit('q', 'work', '\"k{number}\"', '{{\"idempotency_key\": \"k{number}\"}}')"
            );
            session.batch_execute(&text).await.expect("it is taken in");
            sessions.push(session);
        }
        // These wait: one submission per key, and one change of a queue.
        let mut waiting: Vec<tokio::task::JoinHandle<bool>> = Vec::new();
        for number in 0..6 {
            let store = Arc::clone(&store);
            let same_key = async move { submit(&*store, &format!("k{number}")).await.is_ok_and(|job| job.duplicate) };
            waiting.push(tokio::spawn(same_key));
        }
        let change = {
            let store = Arc::clone(&store);
            async move {
                let command = AdminCommand::PauseQueue { queue: QueueName::new("default").expect("a name") };
                store.admin(command).await.is_ok_and(|answer| answer.is_ok())
            }
        };
        waiting.push(tokio::spawn(change));
        // Other requests are served meanwhile.
        for number in 0..20 {
            submit(&*store, &format!("other {number}")).await.expect("it is stored");
            let job = claim(&*store, 1).await.expect("the store answers").remove(0);
            complete(&*store, &job).await.expect("the store answers").expect("the lease holds");
        }
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "they wait");
        for session in &sessions {
            session.batch_execute("COMMIT").await.expect("it is there");
        }
        for waiting in waiting {
            assert!(waiting.await.expect("it ends"), "they go on");
        }
    });
}

/// Virtual time allows one node. Submissions in SQL use the virtual clock.
#[test]
fn one_node_in_virtual_time() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(4_000_000_000_000)));
        let open = || {
            let clock = Some(Arc::<VirtualClock>::clone(&clock) as Arc<dyn Clock>);
            let options = PostgresOptions { clock, exclusive: true, ..PostgresOptions::new(cluster.url()) };
            PostgresStore::start(options, tokio::runtime::Handle::current())
        };
        let store = open().await.expect("the first one opens");
        let refused = open().await.map(drop).expect_err("the second one does not");
        assert!(refused.to_string().contains("virtual time allows only one"), "{refused}");
        let id = tokio::task::block_in_place(|| {
            cluster.psql("SELECT longshore.submit('default', 't', '1', '{\"delay\": \"10 min\"}')")
        });
        let id = id.parse::<JobId>().expect("an id");
        let job = store.get(vec![JobRef::Id(id)]).await.expect("an answer").remove(0).expect("it is there");
        assert_eq!(job.created_at, clock.now());
        assert_eq!(job.state.run_at(), Some(clock.now() + longshore_core::Duration::from_mins(10)));
        drop(store);
        until("the lock", || async { open().await.is_ok() }).await;
    });
}
