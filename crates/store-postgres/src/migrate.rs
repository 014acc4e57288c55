//! Migrations, forward only. All missing ones are applied in one transaction, by one node at a
//! time.

use longshore_core::time::Timestamp;
use longshore_store::{FormatError, StoreError};
use tokio_postgres::Client;

use crate::error::{ErrorMessage, not_applied};
use crate::node::lock_key;
use crate::pool;

struct Migration {
    number: i32,
    name: &'static str,
    text: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "schema", text: include_str!("../migrations/0001_schema.sql") },
    Migration { number: 2, name: "submit", text: include_str!("../migrations/0002_submit.sql") },
    Migration { number: 3, name: "fast_path", text: include_str!("../migrations/0003_fast_path.sql") },
    Migration { number: 4, name: "jobs_readable", text: include_str!("../migrations/0004_jobs_readable.sql") },
    Migration { number: 5, name: "workers", text: include_str!("../migrations/0005_workers.sql") },
    Migration { number: 6, name: "system_records", text: include_str!("../migrations/0006_system_records.sql") },
    Migration { number: 7, name: "events", text: include_str!("../migrations/0007_events.sql") },
];

/// A migration, and whether the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    pub number: i32,
    pub name: &'static str,
    pub applied: bool,
}

/// Returns all statements, for operators who run them by hand.
pub fn sql(schema: &str) -> Result<String, StoreError> {
    check_schema(schema)?;
    let mut all = format!("BEGIN;\n{}", preamble(schema));
    for migration in MIGRATIONS {
        all.push_str(&text_of(migration, schema));
    }
    all.push_str("COMMIT;\n");
    Ok(all)
}

/// Returns the grants of a role that runs servers and does not own the tables.
pub fn grants(schema: &str, role: &str) -> Result<String, StoreError> {
    check_schema(schema)?;
    check_name("role", role)?;
    Ok(format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};\n\
         GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role};\n\
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};\n"
    ))
}

/// The name is inserted into statements without quotes, so only plain names are valid.
pub(crate) fn check_schema(schema: &str) -> Result<(), StoreError> {
    check_name("schema", schema)
}

fn check_name(what: &str, name: &str) -> Result<(), StoreError> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let plain = bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && plain && name.len() <= 40 && !name.starts_with("pg_") {
        return Ok(());
    }
    let what = format!("invalid {what} name (use 1-40 characters of a-z 0-9 _, without a leading digit or pg_)");
    Err(StoreError::not_applied(ErrorMessage(what)))
}

fn preamble(schema: &str) -> String {
    format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};\n\
         CREATE TABLE IF NOT EXISTS {schema}.migrations \
         (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());\n"
    )
}

fn text_of(migration: &Migration, schema: &str) -> String {
    let Migration { number, name, text } = migration;
    let text = text.replace("@LOCK", &lock_key(schema).to_string()).replace('@', schema);
    // The row comes first, so that a concurrent migration collides with it before anything else.
    format!("INSERT INTO {schema}.migrations (number, name) VALUES ({number}, '{name}');\n{text}")
}

fn failed(error: &tokio_postgres::Error) -> StoreError {
    not_applied(error)
}

pub(crate) async fn connect(url: &str) -> Result<Client, StoreError> {
    let (client, connection) = pool::settings(url, false)?.connect().await.map_err(|error| failed(&error))?;
    tokio::spawn(async move {
        // The task ends with the client. Its error reaches the caller of the next query.
        drop(connection.await);
    });
    Ok(client)
}

async fn applied(client: &Client, schema: &str) -> Result<Vec<i32>, StoreError> {
    // Not to_regclass: a session caches that the schema does not exist, even after another node has
    // created it.
    let text = "SELECT true FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'migrations'";
    let there = client.query_typed(text, &[(&schema, tokio_postgres::types::Type::TEXT)]).await;
    if there.map_err(|error| failed(&error))?.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!("SELECT number FROM {schema}.migrations ORDER BY number");
    let rows = client.query_typed(&text, &[]).await.map_err(|error| failed(&error))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Returns all migrations, applied and missing.
pub async fn status(url: &str, schema: &str) -> Result<Vec<MigrationStatus>, StoreError> {
    check_schema(schema)?;
    let client = connect(url).await?;
    let applied = applied(&client, schema).await?;
    check_age(&applied)?;
    let step = |migration: &Migration| MigrationStatus {
        number: migration.number,
        name: migration.name,
        applied: applied.contains(&migration.number),
    };
    Ok(MIGRATIONS.iter().map(step).collect())
}

/// Refuses a database that a newer version has migrated.
fn check_age(applied: &[i32]) -> Result<(), StoreError> {
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    match applied.iter().max() {
        Some(found) if *found > newest => {
            let found = format!("database with migration {found}");
            Err(StoreError::Format(FormatError::Version { found, supported: SUPPORTED.to_owned() }))
        }
        Some(_) | None => Ok(()),
    }
}

const SUPPORTED: &str = "databases with migrations up to 7";

/// Applies missing migrations. Returns them.
pub async fn up(url: &str, schema: &str) -> Result<Vec<MigrationStatus>, StoreError> {
    check_schema(schema)?;
    apply_missing(&connect(url).await?, schema).await
}

/// Runs in one transaction, so that it works through poolers.
async fn apply_missing(client: &Client, schema: &str) -> Result<Vec<MigrationStatus>, StoreError> {
    let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({})", lock_key(schema) - 2);
    client.batch_execute(&begin).await.map_err(|error| failed(&error))?;
    let applied = applied(client, schema).await?;
    check_age(&applied)?;
    let mut done = Vec::new();
    if applied.is_empty() {
        client.batch_execute(&preamble(schema)).await.map_err(|error| failed(&error))?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.number)) {
        client.batch_execute(&text_of(migration, schema)).await.map_err(|error| failed(&error))?;
        done.push(MigrationStatus { number: migration.number, name: migration.name, applied: true });
    }
    client.batch_execute("COMMIT").await.map_err(|error| failed(&error))?;
    Ok(done)
}

/// Where virtual time stands: `None` in a database without jobs, or without a schema.
pub async fn virtual_now(url: &str, schema: &str) -> Result<Option<Timestamp>, StoreError> {
    check_schema(schema)?;
    let client = connect(url).await?;
    if applied(&client, schema).await?.is_empty() {
        return Ok(None);
    }
    let text = format!("SELECT virtual_now FROM {schema}.settings");
    let rows = client.query_typed(&text, &[]).await.map_err(|error| failed(&error))?;
    Ok(rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).filter(|at| *at != 0).map(Timestamp::from_millis))
}

/// Checks the schema before a store opens: applies missing migrations, and checks the clock.
pub(crate) async fn prepare(
    client: &Client,
    schema: &str,
    auto_migrate: bool,
    virtual_now: Option<Timestamp>,
) -> Result<(), StoreError> {
    let applied = applied(client, schema).await?;
    check_age(&applied)?;
    let missing = MIGRATIONS.iter().find(|migration| !applied.contains(&migration.number));
    match missing {
        None => {}
        Some(_) if auto_migrate => drop(apply_missing(client, schema).await?),
        Some(Migration { number, .. }) => {
            let what = format!("schema {schema} lacks migration {number} (run `longshore migrate up`)");
            return Err(StoreError::not_applied(ErrorMessage(what)));
        }
    }
    check_clock(client, schema, virtual_now).await
}

/// Stores which clock the schema uses, and refuses another. A schema keeps its clock.
async fn check_clock(client: &Client, schema: &str, now: Option<Timestamp>) -> Result<(), StoreError> {
    let virtual_now = now.map_or(0, |now| now.as_millis().max(1));
    let text = format!("UPDATE {schema}.settings SET virtual_now = {virtual_now} WHERE virtual_now IS NULL");
    client.batch_execute(&text).await.map_err(|error| failed(&error))?;
    let text = format!("SELECT virtual_now FROM {schema}.settings");
    let rows = client.query_typed(&text, &[]).await.map_err(|error| failed(&error))?;
    let found: i64 = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0);
    match (found == 0, virtual_now == 0) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err(StoreError::Format(FormatError::RealTime)),
        (false, true) => Err(StoreError::Format(FormatError::VirtualTime)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_in_order_and_supported_names_the_last() {
        let numbers: Vec<i32> = MIGRATIONS.iter().map(|migration| migration.number).collect();
        assert_eq!(numbers, (1..).take(numbers.len()).collect::<Vec<_>>());
        let newest = MIGRATIONS.last().map(|migration| migration.number.to_string()).unwrap();
        assert!(SUPPORTED.ends_with(&format!(" {newest}")), "{SUPPORTED}, but the last is {newest}");
    }
}
