//! A node that freezes inside a transaction delays other nodes for a short time, and resumes when
//! it thaws.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::load::{self, claim, complete, submit};
use common::{Cluster, Durability};
use longshore_core::id::QueueName;
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_engine::AdminCommand;
use longshore_store::Store;
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).expect("the test listens");
}

/// The frozen node: the test starts this program again. Does nothing without the address.
#[test]
fn node() {
    let Ok(url) = std::env::var("LONGSHORE_TEST_FROZEN_NODE") else { return };
    runtime().block_on(async {
        let options = PostgresOptions::from_url(&url).expect("an address");
        let store = PostgresStore::start(options, tokio::runtime::Handle::current()).await.expect("the store opens");
        submit(&store, "one").await.expect("it is stored");
        let job = claim(&store, 1).await.expect("the store answers").remove(0);
        say("claimed");
        std::io::stdin().lock().read_line(&mut String::new()).expect("the test says when");
        let mut completed = complete(&store, &job).await;
        while let Err(error) = &completed {
            say(&format!("again after: {error}"));
            completed = complete(&store, &job).await;
        }
        say(&format!("done {:?}", completed.expect("an answer")));
    });
}

/// The process of a node. It is killed on drop, frozen or not.
struct NodeProcess {
    child: Child,
    commands: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl NodeProcess {
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "node", "--nocapture"])
            .env("LONGSHORE_TEST_FROZEN_NODE", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a node starts");
        let (commands, lines) = (child.stdin.take().expect("its input"), child.stdout.take().expect("its words"));
        Self { child, commands, lines: BufReader::new(lines) }
    }

    /// The first line that begins so.
    fn wait_for(&mut self, word: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(word) {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("its words") > 0, "the node ended without \"{word}\"");
        }
        line.trim().to_owned()
    }

    fn signal(&self, which: &str) {
        let sent = Command::new("kill").arg(which).arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(sent.success(), "kill {which}");
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Waits for a session of a node that meets the condition.
async fn session(client: &Client, condition: &str) -> i32 {
    let text =
        format!("SELECT pid FROM pg_stat_activity WHERE application_name = 'longshore' AND ({condition}) LIMIT 1");
    let mut rounds = 0;
    loop {
        if let Some(row) = client.query(&text, &[]).await.expect("an answer").first() {
            return row.get(0);
        }
        rounds += 1;
        assert!(rounds < 600, "no session with {condition} within 30 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn put_queue(store: &PostgresStore) {
    let queue = QueueName::new("new").expect("a name");
    let command = AdminCommand::PutQueue { queue, profile: Some(Profile::Standard), overrides: None };
    store.admin(command).await.expect("the store answers").expect("the queue is put");
}

fn freeze_inside_a_transaction(parameters: &str) {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store: Arc<PostgresStore> = load::open(&cluster.url(), "longshore").await;
        load::put_queue(&*store, longshore_core::Duration::from_mins(5)).await;
        let mut node = NodeProcess::start(&format!("{}{parameters}", cluster.url()));
        tokio::task::block_in_place(|| node.wait_for("claimed"));
        // The node's transaction waits for the row that is locked here.
        let (holding, watching) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
        holding.batch_execute("BEGIN; SELECT 1 FROM longshore.jobs FOR UPDATE").await.expect("the row is held");
        node.commands.write_all(b"go\n").expect("the node listens");
        // Only a lock waiter waits that long.
        let waits = "wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '1 s'";
        let frozen = session(&watching, waits).await;
        node.signal("-STOP");
        holding.batch_execute("ROLLBACK").await.expect("the row is let go");
        session(&watching, &format!("pid = {frozen} AND state = 'idle in transaction'")).await;
        put_queue(&store).await;
        node.signal("-CONT");
        let done = tokio::task::block_in_place(|| node.wait_for("done"));
        assert_eq!(done, format!("done {:?}", Ok::<_, ()>(StateKind::Completed)));
    });
}

#[test]
fn a_frozen_node_delays_queue_changes_only_briefly() {
    freeze_inside_a_transaction("");
}

/// As behind PgBouncer: settings are sent with each transaction.
#[test]
fn a_frozen_node_without_prepared_statements_delays_queue_changes_only_briefly() {
    freeze_inside_a_transaction("?prepared=no");
}

/// PostgreSQL does not end a session that waits for the rest of a `COPY`.
#[test]
fn a_node_frozen_inside_a_copy_delays_queue_changes_only_briefly() {
    let cluster = Cluster::start(Durability::Off);
    runtime().block_on(async {
        let store: Arc<PostgresStore> = load::open(&cluster.url(), "longshore").await;
        let frozen = connect(&cluster.url()).await;
        let lock_key = longshore_codec::type_hash("longshore") & !0xffff_ffff;
        let begin =
            format!("SET application_name = 'longshore'; BEGIN; SELECT pg_advisory_xact_lock_shared({lock_key})");
        frozen.batch_execute(&begin).await.expect("the lock is held");
        let copy = frozen.copy_in::<_, bytes::Bytes>("COPY longshore.jobs FROM STDIN").await.expect("the copy starts");
        put_queue(&store).await;
        drop(copy);
        assert!(frozen.batch_execute("COMMIT").await.is_err(), "the session was ended");
    });
}
