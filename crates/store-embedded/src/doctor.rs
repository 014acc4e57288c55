//! Looks at every byte of a closed store and says what is wrong with it.

use std::collections::BTreeMap;
use std::path::Path;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_store::StoreError;
use rusqlite::Connection;

use crate::codec;
use crate::error::sql;
use crate::names::Names;
use crate::records::{read_payload, state_number};
use crate::schema::{self, Home, Role};

/// What a look at a whole store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    pub live_jobs: u64,
    pub ended_jobs: u64,
    pub payload_bytes: u64,
    /// Nothing here: the store is whole.
    pub problems: Vec<String>,
}

/// Checks a store that nobody has open.
pub fn examine(directory: &Path) -> Result<Diagnosis, StoreError> {
    let home = Home::existing(directory)?;
    let connection = home.database.open(Role::Writer).map_err(sql)?;
    schema::check(&connection)?;
    let mut diagnosis = Diagnosis::default();
    check_pages(&connection, &mut diagnosis)?;
    if !diagnosis.problems.is_empty() {
        // Pages that lead nowhere would only give a flood of consequences.
        return Ok(diagnosis);
    }
    let names = Names::load(&connection)?;
    let mut ended = BTreeMap::new();
    for table in ["live", "ended"] {
        check_records(&connection, table, &names, &mut diagnosis, &mut ended)?;
    }
    check_counts(&connection, &ended, &mut diagnosis)?;
    Ok(diagnosis)
}

fn check_pages(connection: &Connection, diagnosis: &mut Diagnosis) -> Result<(), StoreError> {
    let mut select = connection.prepare("PRAGMA integrity_check").map_err(sql)?;
    let rows = select.query_map([], |row| row.get::<_, String>(0)).map_err(sql)?;
    for row in rows {
        let line = row.map_err(sql)?;
        if line != "ok" {
            diagnosis.problems.push(line);
        }
    }
    Ok(())
}

fn check_records(
    connection: &Connection,
    table: &str,
    names: &Names,
    diagnosis: &mut Diagnosis,
    ended: &mut BTreeMap<(String, i64), i64>,
) -> Result<(), StoreError> {
    let mut select = connection.prepare(&format!("SELECT seq, record FROM {table}")).map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let seq = Seq(row.get::<_, i64>(0).map_err(sql)?.cast_unsigned());
        let record: Vec<u8> = row.get(1).map_err(sql)?;
        let Ok(job) = codec::job::decode(seq, &record, names) else {
            diagnosis.problems.push(format!("the record of job {seq} is damaged"));
            continue;
        };
        if job.live() == (table == "ended") {
            diagnosis.problems.push(format!("job {seq} is {} and lies among the {table} ones", job.kind()));
        }
        if table == "live" {
            diagnosis.live_jobs += 1;
        } else {
            diagnosis.ended_jobs += 1;
            *ended.entry((job.queue.to_string(), state_number(job.kind()))).or_default() += 1;
        }
        check_payload(connection, &job, diagnosis);
    }
    Ok(())
}

fn check_payload(connection: &Connection, job: &Job, diagnosis: &mut Diagnosis) {
    match read_payload(connection, job.seq) {
        Ok(Some(payload)) => diagnosis.payload_bytes += payload.bytes().len() as u64,
        Ok(None) => diagnosis.problems.push(format!("job {} has no payload", job.seq)),
        Err(_) => diagnosis.problems.push(format!("the payload of job {} is damaged", job.seq)),
    }
}

fn check_counts(
    connection: &Connection,
    counted: &BTreeMap<(String, i64), i64>,
    diagnosis: &mut Diagnosis,
) -> Result<(), StoreError> {
    let mut select = connection.prepare("SELECT queue, state, jobs FROM ended_count WHERE jobs <> 0").map_err(sql)?;
    let rows = select.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).map_err(sql)?;
    let kept: BTreeMap<(String, i64), i64> = rows.collect::<Result<_, _>>().map_err(sql)?;
    if kept != *counted {
        let word = |number: i64| StateKind::ALL.iter().find(|state| state_number(**state) == number);
        for ((queue, state), jobs) in counted.iter().chain(&kept) {
            let (counted, kept) = (counted.get(&(queue.clone(), *state)), kept.get(&(queue.clone(), *state)));
            if counted != kept {
                let state = word(*state).map_or("?", |state| state.word());
                diagnosis.problems.push(format!(
                    "queue \"{queue}\" holds {} {state} jobs and its count says {} ({jobs})",
                    counted.copied().unwrap_or(0),
                    kept.copied().unwrap_or(0),
                ));
            }
        }
    }
    Ok(())
}
