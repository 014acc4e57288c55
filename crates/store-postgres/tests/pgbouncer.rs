//! Nodes behind PgBouncer in transaction mode, and nodes without a free connection.

#![expect(clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod common;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::load::{self, claim, complete, submit};
use common::{Cluster, Durability, as_user, open_to_all, spare_port};
use longshore_core::state::StateKind;
use longshore_engine::Heartbeat;
use longshore_store::{JobFilter, JobQuery, Store, StoreError, StoreReader};
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::NoTls;

/// PgBouncer in front of a cluster. It is stopped on drop.
struct Pooler {
    child: Child,
    port: u16,
    /// File with its process id: the child may be the program that changes the user.
    pid: PathBuf,
}

impl Pooler {
    fn start(cluster: &Cluster, connections: usize) -> Self {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].map(Path::new).into_iter().find(|path| path.is_file());
        let program = program.expect("PgBouncer is not installed: apt-get install pgbouncer");
        let port = spare_port();
        let directory = cluster.directory.path().join(format!("pooler-{port}"));
        std::fs::create_dir(&directory).expect("a directory");
        open_to_all(&directory);
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n\
             pidfile = {}\n",
            cluster.port,
            directory.join("pid").display()
        );
        let file = directory.join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("the settings are written");
        let mut command = as_user(program);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the pooler starts");
        let pooler = Self { child, port, pid: directory.join("pid") };
        pooler.wait_for_it();
        pooler
    }

    #[expect(clippy::disallowed_methods, reason = "another process comes up in real time")]
    fn wait_for_it(&self) {
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the pooler does not answer");
    }

    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.pid) {
            drop(Command::new("kill").args(["-INT", pid.trim()]).status());
        }
        drop(self.child.wait());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn node(url: &str) -> Arc<PostgresStore> {
    let options = PostgresOptions::from_url(&format!("{url}?prepared=no")).expect("an address");
    let handle = tokio::runtime::Handle::current();
    Arc::new(PostgresStore::start(options, handle).await.expect("the store opens"))
}

async fn submit_all(store: &Arc<PostgresStore>, name: &'static str, jobs: usize) {
    let mut tasks = Vec::new();
    for number in 0..jobs {
        let store = Arc::clone(store);
        tasks
            .push(tokio::spawn(async move { submit(&*store, &format!("{name} {number}")).await.expect("it answers") }));
    }
    for task in tasks {
        task.await.expect("a submitter ends");
    }
}

async fn drain(store: Arc<PostgresStore>) -> usize {
    let mut done = 0;
    loop {
        let jobs = claim(&*store, 7).await.expect("the store answers");
        if jobs.is_empty() {
            return done;
        }
        for job in jobs {
            let notes = longshore_core::heartbeat::HeartbeatData::default();
            let beat = Heartbeat { id: job.claimed.id, token: Some(job.claimed.token), notes };
            store.heartbeat(vec![beat]).await.expect("the store answers").remove(0).expect("the lease holds");
            complete(&*store, &job).await.expect("the store answers").expect("the lease holds");
            done += 1;
        }
    }
}

/// F37: nodes with more connections than the pooler has leave nothing behind in its sessions.
#[test]
fn two_nodes_share_two_connections_of_a_pooler() {
    let cluster = Cluster::start(Durability::Off);
    let pooler = Pooler::start(&cluster, 2);
    runtime().block_on(async {
        let (one, two) = (node(&pooler.url()).await, node(&pooler.url()).await);
        load::put_queue(&*one, longshore_core::Duration::from_mins(5)).await;
        tokio::join!(submit_all(&one, "one", 150), submit_all(&two, "two", 150));
        let workers = [&one, &two, &one, &two].map(|store| tokio::spawn(drain(Arc::clone(store))));
        let mut done = 0;
        for worker in workers {
            done += worker.await.expect("a worker ends");
        }
        assert_eq!(done, 300);
        one.tick(std::num::NonZeroUsize::MIN.saturating_add(99)).await.expect("it ticks");
        let report = two.queue(load::queue()).await.expect("the store answers").expect("the queue is there");
        assert_eq!(report.counts.get(StateKind::Completed as usize), Some(&300));
        let query = JobQuery { filter: JobFilter::default(), limit: 400, before: None };
        assert_eq!(one.list(query).await.expect("the store answers").jobs.len(), 300);
        drop((one, two));
        let (client, connection) = tokio_postgres::connect(&pooler.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        for _ in 0..8 {
            let text = "SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()), \
                        current_setting('enable_seqscan'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')";
            let rows = client.query_typed(text, &[]).await.expect("an answer");
            let row = rows.first().expect("a row");
            let left: (i64, i64, String, i64) = (row.get(0), row.get(1), row.get(2), row.get(3));
            assert_eq!(left, (0, 0, "on".to_owned(), 0));
        }
    });
}

/// Takes every free connection. A session that has ended may still count.
async fn hold_all(cluster: &Cluster, held: &mut Vec<tokio_postgres::Client>) {
    let mut config: tokio_postgres::Config = cluster.url().parse().expect("an address");
    config.application_name("holder");
    let mut refused = 0;
    while refused < 5 {
        match config.connect(NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                held.push(client);
            }
            Err(_) => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// F35: without a free connection, requests fail at once and nothing is applied. The node resumes
/// when there is one.
#[test]
fn requests_fail_without_a_free_connection() {
    let cluster = Cluster::start_with(Durability::Off, "max_connections = 24\nsuperuser_reserved_connections = 0\n");
    runtime().block_on(async {
        let setup = load::open(&cluster.url(), "longshore").await;
        load::put_queue(&*setup, longshore_core::Duration::from_mins(5)).await;
        submit(&*setup, "before").await.expect("there is room");
        drop(setup);
        let store = load::open(&cluster.url(), "longshore").await;
        let mut held = Vec::new();
        hold_all(&cluster, &mut held).await;
        // The store's connections are closed, and all others are taken.
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'holder'";
        let holder = held.first().expect("one is held");
        for _ in 0..3 {
            holder.simple_query(cut).await.expect("its owner may");
        }
        hold_all(&cluster, &mut held).await;
        let refused = store.list(JobQuery { filter: JobFilter::default(), limit: 10, before: None }).await;
        let submitted = submit(&*store, "meanwhile").await;
        for error in [refused.err(), submitted.err()] {
            assert!(matches!(error, Some(StoreError::NotApplied(_))), "{error:?}");
        }
        drop(held);
        for _ in 0..200 {
            if submit(&*store, "meanwhile").await.is_ok() {
                let query = JobQuery { filter: JobFilter::default(), limit: 10, before: None };
                assert_eq!(store.list(query).await.expect("there is room again").jobs.len(), 2);
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the node does not recover");
    });
}
