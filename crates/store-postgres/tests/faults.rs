//! What PostgreSQL may do to a node, and what the node makes of it.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::load::{self, claim, complete, submit};
use common::{Cluster, Durability};
use longshore_core::id::JobId;
use longshore_core::state::StateKind;
use longshore_store::{Inspect, JobFilter, JobQuery, JobRef, Store};
use longshore_store_postgres::{Options, PostgresStore};
use tokio_postgres::NoTls;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
}

/// Waits for something that has to come; says so if it does not.
async fn until<F: Future<Output = bool>>(what: &str, mut there: impl FnMut() -> F) {
    let mut rounds = 0;
    while !there().await {
        rounds += 1;
        assert!(rounds < 600, "{what} did not come within 30 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Keys and ids that were answered, while submitters go on whatever happens.
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

/// F31: kill -9 and fast restarts under load lose nothing that was answered, and a key that was asked twice has one job.
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

/// F34: a server that has become read-only loses its connections, and work goes on when it is writable again.
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

/// A server that takes bytes and answers nothing is given up: everybody hears, nobody waits for ever, and work goes on when it speaks again.
#[test]
fn a_silent_server_is_given_up() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let options = Options { patience: Duration::from_millis(500), ..Options::new(cluster.url()) };
        let store = PostgresStore::start(options, tokio::runtime::Handle::current()).await.expect("the store opens");
        submit(&store, "before").await.expect("it is stored");
        let job = claim(&store, 1).await.expect("it is claimed").remove(0);
        let silenced = tokio::task::block_in_place(|| cluster.silenced());
        let (submitted, claimed, completed, looked) = tokio::join!(
            submit(&store, "meanwhile"),
            claim(&store, 1),
            complete(&store, &job),
            store.get(vec![JobRef::Id(job.claimed.id)])
        );
        let unheard = [submitted.is_err(), claimed.is_err(), completed.is_err(), looked.is_err()];
        assert_eq!(unheard, [true; 4], "nobody was answered");
        tokio::task::block_in_place(|| drop(silenced));
        // What had been sent may be done now; the same key never makes a second job.
        until("an answer", || async { submit(&store, "meanwhile").await.is_ok() }).await;
        until("the end of the job", || async {
            complete(&store, &job).await.is_ok_and(|verdict| verdict == Ok(StateKind::Completed))
        })
        .await;
        let query = JobQuery { filter: JobFilter::default(), limit: 10, before: None };
        assert_eq!(store.list(query).await.expect("the store answers").jobs.len(), 2);
    });
}

/// F40: serialization failures and deadlocks are retried inside; rows that others hold are waited for.
#[test]
fn whoever_is_in_the_way_is_waited_for() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        load::put_queue(&*store, longshore_core::Duration::from_mins(5)).await;
        tokio::task::block_in_place(|| {
            // Two of three writes fail; sequences go on although transactions do not.
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
        // The database says that somebody waits for a lock.
        let (watching, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until("the wait", || async { !watching.query(waits, &[]).await.expect("an answer").is_empty() }).await;
        assert!(!settling.is_finished(), "it waits");
        holding.rollback().await.expect("the rows are let go");
        settling.await.expect("it ends").expect("the store answers").expect("the lease holds");
    });
}

/// F35: more questions than connections are answered one after the other, and heartbeats have a connection of their own.
#[test]
fn more_questions_than_connections() {
    let cluster = Cluster::start_with(Durability::Off, "max_connections = 30\n");
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        let job = submit(&*store, "one").await.expect("it is stored");
        let claimed = claim(&*store, 1).await.expect("it is claimed").remove(0);
        let questions: Vec<_> = (0..400)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { load::state(&*store, job.id).await })
            })
            .collect();
        for _ in 0..20 {
            let beat = longshore_core::engine::Extension {
                id: claimed.claimed.id,
                token: Some(claimed.claimed.token),
                notes: longshore_core::extend::Notes::default(),
            };
            store.extend(vec![beat]).await.expect("the store answers").remove(0).expect("the lease is kept");
        }
        for question in questions {
            assert!(question.await.expect("it is answered").is_some());
        }
    });
}

/// A heartbeat writes no index: PostgreSQL counts it as an update in place.
#[test]
fn heartbeats_stay_in_their_page() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store = load::open(&cluster.url(), "longshore").await;
        submit(&*store, "one").await.expect("it is stored");
        let claimed = claim(&*store, 1).await.expect("it is claimed").remove(0);
        for _ in 0..50 {
            let beat = longshore_core::engine::Extension {
                id: claimed.claimed.id,
                token: Some(claimed.claimed.token),
                notes: longshore_core::extend::Notes::default(),
            };
            store.extend(vec![beat]).await.expect("the store answers").remove(0).expect("the lease is kept");
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
