//! Migrations: forward only, one after the other, all that are missing in one transaction, and never by two nodes at once.

use longshore_core::time::Timestamp;
use longshore_store::{FormatError, StoreError};
use tokio_postgres::{Client, NoTls};

use crate::error::{ErrorMessage, not_applied};
use crate::node::lock_key;
use crate::pool;

struct Migration {
    number: i32,
    name: &'static str,
    text: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "tables", text: include_str!("../migrations/0001_tables.sql") },
    Migration { number: 2, name: "submit", text: include_str!("../migrations/0002_submit.sql") },
    Migration { number: 3, name: "workflows", text: include_str!("../migrations/0003_workflows.sql") },
    Migration { number: 4, name: "quick", text: include_str!("../migrations/0004_quick.sql") },
    Migration { number: 5, name: "claims", text: include_str!("../migrations/0005_claims.sql") },
    Migration { number: 6, name: "readable", text: include_str!("../migrations/0006_readable.sql") },
];

/// One step, and whether the database has taken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub number: i32,
    pub name: &'static str,
    pub applied: bool,
}

/// Everything that is to be run, for people who would rather do it themselves.
pub fn sql(schema: &str) -> Result<String, StoreError> {
    check_schema(schema)?;
    let mut all = format!("BEGIN;\n{}", preamble(schema));
    for migration in MIGRATIONS {
        all.push_str(&text_of(migration, schema));
    }
    all.push_str("COMMIT;\n");
    Ok(all)
}

/// What a role needs that only runs servers: to use the tables, not to own them.
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

/// The schema's name goes into statements as it is: nothing but plain names.
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
    let what = format!("the {what} must be 1-40 characters of a-z 0-9 _ and not begin with a digit or pg_");
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
    // The row comes first: a rival collides with it before anything else.
    format!("INSERT INTO {schema}.migrations (number, name) VALUES ({number}, '{name}');\n{text}")
}

fn failed(error: &tokio_postgres::Error) -> StoreError {
    not_applied(error)
}

pub(crate) async fn connect(url: &str) -> Result<Client, StoreError> {
    let (client, connection) = pool::config(url, false)?.connect(NoTls).await.map_err(|error| failed(&error))?;
    tokio::spawn(async move {
        // It ends with the client; what goes wrong is told to whoever waits for an answer.
        drop(connection.await);
    });
    Ok(client)
}

async fn applied(client: &Client, schema: &str) -> Result<Vec<i32>, StoreError> {
    // Not to_regclass: a session remembers that there was no such schema, and hears of it too late when another node makes it.
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

/// What the database has, and what it lacks.
pub async fn status(url: &str, schema: &str) -> Result<Vec<Step>, StoreError> {
    check_schema(schema)?;
    let client = connect(url).await?;
    let applied = applied(&client, schema).await?;
    check_age(&applied)?;
    let step = |migration: &Migration| Step {
        number: migration.number,
        name: migration.name,
        applied: applied.contains(&migration.number),
    };
    Ok(MIGRATIONS.iter().map(step).collect())
}

/// A database that a newer program has changed is not touched.
fn check_age(applied: &[i32]) -> Result<(), StoreError> {
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    match applied.iter().max() {
        Some(found) if *found > newest => {
            let found = format!("a database with migration {found}");
            Err(StoreError::Format(FormatError::Version { found, supported: SUPPORTED.to_owned() }))
        }
        Some(_) | None => Ok(()),
    }
}

const SUPPORTED: &str = "databases with migrations up to 6";

/// Brings the database up to date; says what it did.
pub async fn up(url: &str, schema: &str) -> Result<Vec<Step>, StoreError> {
    check_schema(schema)?;
    bring_up(&connect(url).await?, schema).await
}

/// One transaction: all of it or nothing, by one node at a time, and through poolers as well.
async fn bring_up(client: &Client, schema: &str) -> Result<Vec<Step>, StoreError> {
    let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({})", lock_key(schema) - 2);
    client.batch_execute(&begin).await.map_err(|error| failed(&error))?;
    let known = applied(client, schema).await?;
    check_age(&known)?;
    let mut done = Vec::new();
    if known.is_empty() {
        client.batch_execute(&preamble(schema)).await.map_err(|error| failed(&error))?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| !known.contains(&migration.number)) {
        client.batch_execute(&text_of(migration, schema)).await.map_err(|error| failed(&error))?;
        done.push(Step { number: migration.number, name: migration.name, applied: true });
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

/// Before a store is opened: the tables are there, or are made, and go by the right clock.
pub(crate) async fn prepare(
    client: &Client,
    schema: &str,
    migrates: bool,
    virtual_now: Option<Timestamp>,
) -> Result<(), StoreError> {
    let known = applied(client, schema).await?;
    check_age(&known)?;
    let missing = MIGRATIONS.iter().find(|migration| !known.contains(&migration.number));
    match missing {
        None => {}
        Some(_) if migrates => drop(bring_up(client, schema).await?),
        Some(Migration { number, .. }) => {
            let what = format!("the schema {schema} lacks migration {number}: run `longshore migrate up`");
            return Err(StoreError::not_applied(ErrorMessage(what)));
        }
    }
    settle_time(client, schema, virtual_now).await
}

/// Jobs go by one clock for as long as they are there: says which, and refuses another.
async fn settle_time(client: &Client, schema: &str, now: Option<Timestamp>) -> Result<(), StoreError> {
    let wanted = now.map_or(0, |now| now.as_millis().max(1));
    let text = format!("UPDATE {schema}.settings SET virtual_now = {wanted} WHERE virtual_now IS NULL");
    client.batch_execute(&text).await.map_err(|error| failed(&error))?;
    let text = format!("SELECT virtual_now FROM {schema}.settings");
    let rows = client.query_typed(&text, &[]).await.map_err(|error| failed(&error))?;
    let found: i64 = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0);
    match (found == 0, wanted == 0) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err(StoreError::Format(FormatError::RealTime)),
        (false, true) => Err(StoreError::Format(FormatError::VirtualTime)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_in_order_and_the_last_is_named() {
        let numbers: Vec<i32> = MIGRATIONS.iter().map(|migration| migration.number).collect();
        assert_eq!(numbers, (1..).take(numbers.len()).collect::<Vec<_>>());
        let newest = MIGRATIONS.last().map(|migration| migration.number.to_string()).unwrap();
        assert!(SUPPORTED.ends_with(&format!(" {newest}")), "{SUPPORTED}, but the last is {newest}");
    }
}
