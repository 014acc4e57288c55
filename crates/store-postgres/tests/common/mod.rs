//! Schemas for tests on a PostgreSQL of their own.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![expect(clippy::expect_used, reason = "a test says no by panicking")]

pub mod load;

use std::sync::{Mutex, OnceLock};

pub use longshore_testkit::postgres::*;

/// A schema without jobs; given back when the value goes, and emptied for the next: making one takes longer.
#[derive(Debug)]
pub struct Schema {
    pub url: String,
    pub name: String,
}

/// Runs servers, and owns nothing.
const ROLE: &str = "longshore_app";

/// A new schema, made by its owner, for a role that may only use it.
fn made(url: &str) -> String {
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
        let name = free.unwrap_or_else(|| made(&url));
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
        "keys",
        "external_ids",
        "edges",
        "tags",
        "foreign_ids",
        "counts",
        "count_changes",
        "workflows",
        "members",
        "member_names",
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
