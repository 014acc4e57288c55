//! Table of the directives of workers.

use std::collections::HashMap;

use longshore_codec::{append_checksum, verify_checksum};
use longshore_core::directive::WorkerDirective;
use longshore_core::hash::fnv1a;
use longshore_core::id::WorkerName;
use longshore_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::{corrupt, sql};
use crate::key_order::KeyOrderCheck;

const CORRUPT_TABLE: &str = "the directives of workers";

/// Binds a record to its key: the checksum fails if records are swapped.
fn checksum_seed(name: &str) -> u64 {
    fnv1a(name)
}

pub(crate) fn load(connection: &Connection) -> Result<HashMap<WorkerName, WorkerDirective>, StoreError> {
    let text = "SELECT count(*) FROM sqlite_schema WHERE name = 'worker_directive'";
    let tables: i64 = connection.query_row(text, [], |row| row.get(0)).map_err(sql)?;
    if tables == 0 {
        // The store was created before workers had directives.
        return Ok(HashMap::new());
    }
    let mut select = connection.prepare("SELECT name, record FROM worker_directive ORDER BY name").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("worker_directive"));
    let mut directives = HashMap::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let (name, record): (String, Vec<u8>) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        let stored = verify_checksum(checksum_seed(&name), &record).map_err(|_| corrupt(CORRUPT_TABLE))?;
        let directive = std::str::from_utf8(stored).ok().and_then(WorkerDirective::parse);
        let worker = WorkerName::new(&name).map_err(|_| corrupt(CORRUPT_TABLE))?;
        directives.insert(worker, directive.ok_or_else(|| corrupt(CORRUPT_TABLE))?);
        order.next(name)?;
    }
    Ok(directives)
}

/// Writes a directive in the caller's transaction.
pub(crate) fn save(connection: &Connection, worker: &WorkerName, directive: WorkerDirective) -> rusqlite::Result<()> {
    let name = worker.as_str();
    match directive {
        WorkerDirective::Run => {
            connection.prepare_cached("DELETE FROM worker_directive WHERE name = ?1")?.execute([name])?;
        }
        WorkerDirective::Quiet | WorkerDirective::Stop => {
            let record = append_checksum(checksum_seed(name), directive.as_str().into());
            let text = "INSERT OR REPLACE INTO worker_directive(name, record) VALUES (?1, ?2)";
            connection.prepare_cached(text)?.execute(params![name, record])?;
        }
    }
    Ok(())
}
