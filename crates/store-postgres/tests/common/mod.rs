//! Schemas for tests.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![expect(clippy::expect_used, reason = "a test says no by panicking")]

pub mod load;

use std::sync::{Mutex, OnceLock};

pub use longshore_testkit::postgres::*;

/// An empty schema. Dropped values are emptied and reused, which is faster than a new schema.
#[derive(Debug)]
pub struct Schema {
    pub url: String,
    pub name: String,
}

/// Role of the servers: it owns no tables.
const ROLE: &str = "longshore_app";

/// Creates a schema, and grants the role its use.
fn create(url: &str) -> String {
    use longshore_store_postgres::migrate;
    let name = new_schema();
    runtime().block_on(async {
        migrate::up(url, &name).await.expect("the schema is made");
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let role = format!(
            "DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;"
        );
        client.batch_execute(&role).await.expect("the role is there");
        client.batch_execute(&migrate::grants(&name, ROLE).expect("names")).await.expect("the role may use it");
    });
    name
}

pub fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    })
}

static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Schema {
    pub fn take() -> Self {
        let url = shared_url();
        let free = FREE.lock().expect("the list").pop();
        if let Some(name) = &free {
            empty(&url, name);
        }
        let name = free.unwrap_or_else(|| create(&url));
        Self { url: url.replace("postgres@", &format!("{ROLE}@")), name }
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        FREE.lock().expect("the list").push(std::mem::take(&mut self.name));
    }
}

fn empty(url: &str, schema: &str) {
    let tables = [
        "queue_names",
        "queues",
        "policies",
        "jobs",
        "payloads",
        "archive",
        "idempotency_keys",
        "external_ids",
        "dependency_edges",
        "tags",
        "imported_ids",
        "queue_counts",
        "queue_count_deltas",
        "workflows",
        "workflow_members",
        "workflow_member_refs",
    ];
    let deletes: String = tables.iter().map(|table| format!("DELETE FROM {schema}.{table};")).collect();
    let text = format!("BEGIN; {deletes} UPDATE {schema}.settings SET version = version + 1; COMMIT;");
    static CLIENT: tokio::sync::OnceCell<tokio_postgres::Client> = tokio::sync::OnceCell::const_new();
    runtime().block_on(async {
        let connect = || async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
            tokio::spawn(connection);
            client
        };
        CLIENT.get_or_init(connect).await.batch_execute(&text).await.expect("the schema is emptied");
    });
}
