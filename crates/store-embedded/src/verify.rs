//! Full check of a closed store: every page, record, payload and index (`longshore doctor`).

mod members;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::ScopedIdempotencyKey;
use longshore_store::StoreError;
use longshore_store::query::TermFields;
use rusqlite::Connection;

use crate::data_dir::{DataDir, store_dir};
use crate::directives;
use crate::error::sql;
use crate::finished_index::{Chunks, FilterKey, PruneQueue, chunk_of};
use crate::id_cipher::{StoreIdCipher, store_id_cipher};
use crate::meta::{self, META_KEYS};
use crate::moved_marker;
use crate::records::payloads::read_payload;
use crate::records::{keys, state_number, workflows};
use crate::recovery::{check_wal_complete, read_queues};
use crate::schema;
use crate::system;
use longshore_codec as codec;
use longshore_codec::Dictionary;

use members::Members;

/// Result of a full check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub live_jobs: u64,
    pub finished_jobs: u64,
    pub payload_bytes: u64,
    /// Store that the jobs were moved to. A server refuses the directory.
    pub moved_to: Option<String>,
    /// Empty if the store is intact.
    pub problems: Vec<String>,
}

/// Checks a store that no process has open.
pub fn examine(directory: &Path) -> Result<VerifyReport, StoreError> {
    let data_dir = DataDir::open_read_only(directory)?;
    let connection = data_dir.open_for_read()?;
    schema::check(&connection)?;
    check_wal_complete(&data_dir.database, &connection)?;
    let moved_to = moved_marker::target_of(&store_dir(directory)?)?;
    let mut report = VerifyReport { moved_to, ..VerifyReport::default() };
    check_pages(&connection, &mut report)?;
    if !report.problems.is_empty() {
        // Corrupt pages would cause many follow-up problems.
        return Ok(report);
    }
    meta::totals(&connection)?;
    let dictionary = crate::dictionary::load(&connection)?;
    let mut expected = ExpectedIndexes::new(store_id_cipher(meta::id_key(&connection)?));
    for table in ["live_jobs", "finished_jobs"] {
        check_records(&connection, table, &dictionary, &mut report, &mut expected)?;
    }
    if let Err(error) = meta::check_live_jobs(&connection, report.live_jobs) {
        report.problems.push(error.to_string());
    }
    check_counts(&connection, &expected.finished, &mut report)?;
    // Each read verifies a checksum.
    for key in [meta::NEXT_SEQ, meta::EPOCH] {
        meta::integer(&connection, key)?;
    }
    meta::clock_floor(&connection)?;
    let keys: Vec<String> = rows(&connection, "SELECT key FROM meta", |row| row.get(0))?;
    let unknown = keys.into_iter().filter(|key| !META_KEYS.contains(&key.as_str()));
    report.problems.extend(unknown.map(|key| format!("unknown meta key \"{key}\"")));
    expected.check(&connection, &mut report)?;
    // Recovery also reads these. A corrupt entry without a job would go unnoticed otherwise.
    let read = [
        read_queues(&connection).map(drop),
        directives::load(&connection).map(drop),
        system::check_all(&connection),
        workflows::with_active_operation(&connection).map(drop),
        Chunks::load(&connection).map(drop),
        PruneQueue::load(&connection).map(drop),
    ];
    report.problems.extend(read.into_iter().filter_map(Result::err).map(|error| error.to_string()));
    if let Err(error) = keys::next_prune(&connection) {
        report.problems.push(error.to_string());
    }
    expected.members.check(&connection, &mut report)?;
    Ok(report)
}

fn check_pages(connection: &Connection, report: &mut VerifyReport) -> Result<(), StoreError> {
    let mut select = connection.prepare("PRAGMA integrity_check").map_err(sql)?;
    let rows = select.query_map([], |row| row.get::<_, String>(0)).map_err(sql)?;
    for row in rows {
        let line = row.map_err(sql)?;
        if line != "ok" {
            report.problems.push(line);
        }
    }
    Ok(())
}

fn check_records(
    connection: &Connection,
    table: &str,
    dictionary: &Dictionary,
    report: &mut VerifyReport,
    expected: &mut ExpectedIndexes,
) -> Result<(), StoreError> {
    let columns = if table == "finished_jobs" { ", queue, state, type, prune_at" } else { "" };
    let mut select = connection.prepare(&format!("SELECT seq, record{columns} FROM {table}")).map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let seq = Seq(row.get::<_, i64>(0).map_err(sql)?.cast_unsigned());
        let record: Vec<u8> = row.get(1).map_err(sql)?;
        let Ok(job) = codec::job::decode(seq, &record, dictionary) else {
            report.problems.push(format!("job {seq}: corrupt record"));
            continue;
        };
        if job.is_live() == (table == "finished_jobs") {
            report.problems.push(format!("job {seq} is {}, but is in table \"{table}\"", job.kind()));
        }
        if table == "live_jobs" {
            report.live_jobs += 1;
        } else {
            report.finished_jobs += 1;
            let key = FilterKey::of(&job, dictionary);
            let expected = (key.queue, key.state, key.job_type, job.prune_at().map(Timestamp::as_millis));
            let columns = (|| Ok((row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)))();
            if columns.map_err(sql)? != expected {
                report.problems.push(format!("job {seq}: index columns do not match its record"));
            }
        }
        check_payload(connection, &job, report);
        expected.add(&job, dictionary);
    }
    Ok(())
}

/// Contents of the index tables, derived from the records.
struct ExpectedIndexes {
    id_cipher: StoreIdCipher,
    tags: BTreeSet<(String, i64)>,
    external_ids: BTreeSet<(String, String, i64)>,
    chunks: BTreeSet<(i64, i64, i64, i64)>,
    /// Finished jobs by queue and state.
    finished: BTreeMap<(String, i64), i64>,
    /// Earliest prune time of each chunk.
    prunes: BTreeMap<i64, i64>,
    /// Pairs of dependency and dependent; the dependency may be deleted.
    edges: BTreeSet<(i64, i64)>,
    keys: BTreeMap<Seq, Vec<u8>>,
    jobs: BTreeSet<Seq>,
    members: Members,
}

impl ExpectedIndexes {
    fn new(id_cipher: StoreIdCipher) -> Self {
        Self {
            id_cipher,
            tags: BTreeSet::new(),
            external_ids: BTreeSet::new(),
            chunks: BTreeSet::new(),
            finished: BTreeMap::new(),
            prunes: BTreeMap::new(),
            edges: BTreeSet::new(),
            keys: BTreeMap::new(),
            jobs: BTreeSet::new(),
            members: Members::default(),
        }
    }

    fn add(&mut self, job: &Job, dictionary: &Dictionary) {
        let number = job.seq.0.cast_signed();
        self.jobs.insert(job.seq);
        if let Some(membership) = &job.membership {
            self.members.add(self.id_cipher.seq_of_workflow(membership.workflow), job);
        }
        self.tags.extend(TermFields::of(job).terms().into_iter().map(|term| (term, number)));
        if let Some(external_id) = &job.external_id {
            self.external_ids.insert((job.queue.to_string(), external_id.to_string(), number));
        }
        if let Some(path) = job.idempotency.as_ref().and_then(|key| ScopedIdempotencyKey::of(key, &job.queue)) {
            self.keys.insert(job.seq, codec::key::encode(&path));
        }
        let dependencies = job.dependencies.all();
        self.edges.extend(dependencies.iter().map(|id| (self.id_cipher.decrypt(*id).0.cast_signed(), number)));
        if !job.is_live() {
            let (chunk, key) = (chunk_of(job.seq).cast_signed(), FilterKey::of(job, dictionary));
            self.chunks.insert((chunk, key.queue, key.state, key.job_type));
            *self.finished.entry((job.queue.to_string(), key.state)).or_default() += 1;
            if let Some(at) = job.prune_at().map(Timestamp::as_millis) {
                self.prunes.entry(chunk).and_modify(|first| *first = at.min(*first)).or_insert(at);
            }
        }
    }

    fn check(&self, connection: &Connection, report: &mut VerifyReport) -> Result<(), StoreError> {
        let tags: BTreeSet<(String, i64)> =
            rows(connection, "SELECT term, seq FROM tag", |row| Ok((row.get(0)?, row.get(1)?)))?;
        let external_ids: BTreeSet<(String, String, i64)> =
            rows(connection, "SELECT queue, external_id, seq FROM external_id", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let chunks: BTreeSet<(i64, i64, i64, i64)> =
            rows(connection, "SELECT chunk, queue, state, type FROM finished_chunks", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        let (keys, corrupt) = keys::all(connection).map_err(sql)?;
        if corrupt > 0 {
            report.problems.push(format!("{corrupt} idempotency keys are corrupt"));
        }
        if tags != self.tags {
            report
                .problems
                .push("the index of tags, correlation ids and idempotency keys does not match the jobs".to_owned());
        }
        if external_ids != self.external_ids {
            report.problems.push("table \"external_id\" does not match the jobs".to_owned());
        }
        if !chunks.is_superset(&self.chunks) {
            report.problems.push("table \"finished_chunks\" does not cover all finished jobs".to_owned());
        }
        // Deleting either job deletes the edge.
        let exists = |number: i64| self.jobs.contains(&Seq(number.cast_unsigned()));
        let expected: BTreeSet<(i64, i64)> = self.edges.iter().copied().filter(|edge| exists(edge.0)).collect();
        let edges: BTreeSet<(i64, i64)> =
            rows(connection, "SELECT dependency, dependent FROM dependency_edge", |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        if edges != expected {
            report.problems.push("table \"dependency_edge\" does not match the jobs".to_owned());
        }
        let prunes: BTreeMap<i64, i64> =
            rows(connection, "SELECT chunk, prune_at FROM chunk_prune_at", |row| Ok((row.get(0)?, row.get(1)?)))?;
        if self.prunes.iter().any(|(chunk, first)| prunes.get(chunk).is_none_or(|stored| stored > first)) {
            report.problems.push("table \"chunk_prune_at\": some finished jobs would be pruned too late".to_owned());
        }
        // A key may outlive its job or pass to a later one. A key of another job is corruption.
        let is_wrong = |(seq, path): &(&Seq, &Vec<u8>)| self.jobs.contains(*seq) && self.keys.get(*seq) != Some(*path);
        if keys.iter().any(|row| is_wrong(&row)) {
            report.problems.push("table \"idempotency_key\": a key does not match its job".to_owned());
        }
        Ok(())
    }
}

fn rows<T, C: FromIterator<T>>(
    connection: &Connection,
    statement: &str,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<C, StoreError> {
    let mut select = connection.prepare(statement).map_err(sql)?;
    let rows = select.query_map([], read).map_err(sql)?;
    rows.collect::<Result<C, _>>().map_err(sql)
}

fn check_payload(connection: &Connection, job: &Job, report: &mut VerifyReport) {
    match read_payload(connection, job.seq) {
        Ok(Some(payload)) => report.payload_bytes += payload.bytes().len() as u64,
        Ok(None) => report.problems.push(format!("job {} has no payload", job.seq)),
        Err(_) => report.problems.push(format!("job {}: corrupt payload", job.seq)),
    }
}

fn check_counts(
    connection: &Connection,
    counted: &BTreeMap<(String, i64), i64>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut select =
        connection.prepare("SELECT queue, state, jobs FROM finished_counts WHERE jobs <> 0").map_err(sql)?;
    let rows = select.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).map_err(sql)?;
    let stored: BTreeMap<(String, i64), i64> = rows.collect::<Result<_, _>>().map_err(sql)?;
    if stored != *counted {
        let state_of = |number: i64| StateKind::ALL.iter().find(|state| state_number(**state) == number);
        for ((queue, state), jobs) in counted.iter().chain(&stored) {
            let (counted, stored) = (counted.get(&(queue.clone(), *state)), stored.get(&(queue.clone(), *state)));
            if counted != stored {
                let state = state_of(*state).map_or("?", |state| state.as_str());
                report.problems.push(format!(
                    "queue \"{queue}\" has {} {state} jobs, but its count is {} ({jobs})",
                    counted.copied().unwrap_or(0),
                    stored.copied().unwrap_or(0),
                ));
            }
        }
    }
    Ok(())
}
