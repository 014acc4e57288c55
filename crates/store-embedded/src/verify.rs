//! Looks at every byte of a closed store and says what is wrong with it.

mod members;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::ScopedIdempotencyKey;
use longshore_store::StoreError;
use longshore_store::query::IndexedFields;
use rusqlite::Connection;

use crate::data_dir::{DataDir, store_dir};
use crate::error::sql;
use crate::finished_index::{Chunks, FilterKey, PruneQueue, chunk_of};
use crate::id_cipher::{IdSeal, id_seal};
use crate::moved;
use crate::records::payloads::read_payload;
use crate::records::{keys, state_number, workflows};
use crate::schema;
use crate::store::read_queues;
use crate::wal;
use longshore_codec::Dictionary;
use longshore_codec::codec;

use members::Members;

/// What a look at a whole store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub live_jobs: u64,
    pub ended_jobs: u64,
    pub payload_bytes: u64,
    /// Where the jobs were moved to; the directory is not served any more.
    pub moved_to: Option<String>,
    /// Nothing here: the store is whole.
    pub problems: Vec<String>,
}

/// Checks a store that nobody has open.
pub fn examine(directory: &Path) -> Result<VerifyReport, StoreError> {
    let home = DataDir::open_read_only(directory)?;
    let connection = home.look()?;
    schema::check(&connection)?;
    wal::check_wal_complete(&home.database, &connection)?;
    let moved_to = moved::target_of(&store_dir(directory)?)?;
    let mut diagnosis = VerifyReport { moved_to, ..VerifyReport::default() };
    check_pages(&connection, &mut diagnosis)?;
    if !diagnosis.problems.is_empty() {
        // Pages that lead nowhere would only give a flood of consequences.
        return Ok(diagnosis);
    }
    schema::totals(&connection)?;
    let names = crate::dictionary::load(&connection)?;
    let mut found = ExpectedIndexes::new(id_seal(schema::id_key(&connection)?));
    for table in ["live", "ended"] {
        check_records(&connection, table, &names, &mut diagnosis, &mut found)?;
    }
    if let Err(error) = schema::check_live_jobs(&connection, diagnosis.live_jobs) {
        diagnosis.problems.push(error.to_string());
    }
    check_counts(&connection, &found.ended, &mut diagnosis)?;
    // Reading the store's own notes is looking at their checksums.
    for note in ["next_number", "epoch"] {
        schema::meta(&connection, note)?;
    }
    schema::seen(&connection)?;
    let notes: Vec<String> = rows(&connection, "SELECT key FROM meta", |row| row.get(0))?;
    let strange = notes.into_iter().filter(|note| !schema::META_KEYS.contains(&note.as_str()));
    diagnosis.problems.extend(strange.map(|note| format!("there is a note \"{note}\" that nobody has written")));
    found.check(&connection, &mut diagnosis)?;
    // What else a start reads: an index that nothing refers to just now may be damaged unseen.
    let read = [
        read_queues(&connection).map(drop),
        workflows::with_active_operation(&connection).map(drop),
        Chunks::load(&connection).map(drop),
        PruneQueue::load(&connection).map(drop),
    ];
    diagnosis.problems.extend(read.into_iter().filter_map(Result::err).map(|error| error.to_string()));
    if let Err(trouble) = keys::next_purge(&connection) {
        diagnosis.problems.push(trouble.to_string());
    }
    found.members.check(&connection, &mut diagnosis)?;
    Ok(diagnosis)
}

fn check_pages(connection: &Connection, diagnosis: &mut VerifyReport) -> Result<(), StoreError> {
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
    names: &Dictionary,
    diagnosis: &mut VerifyReport,
    derived: &mut ExpectedIndexes,
) -> Result<(), StoreError> {
    let beside = if table == "ended" { ", queue, state, type, prune_at" } else { "" };
    let mut select = connection.prepare(&format!("SELECT seq, record{beside} FROM {table}")).map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let seq = Seq(row.get::<_, i64>(0).map_err(sql)?.cast_unsigned());
        let record: Vec<u8> = row.get(1).map_err(sql)?;
        let Ok(job) = codec::job::decode(seq, &record, names) else {
            diagnosis.problems.push(format!("the record of job {seq} is damaged"));
            continue;
        };
        if job.is_live() == (table == "ended") {
            diagnosis.problems.push(format!("job {seq} is {} and lies among the {table} ones", job.kind()));
        }
        if table == "live" {
            diagnosis.live_jobs += 1;
        } else {
            diagnosis.ended_jobs += 1;
            let features = FilterKey::of(&job, names);
            let own = (features.queue, features.state, features.job_type, job.prune_at().map(Timestamp::as_millis));
            let beside = (|| Ok((row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)))();
            if beside.map_err(sql)? != own {
                diagnosis.problems.push(format!("what is noted beside the record of job {seq} is not what it says"));
            }
        }
        check_payload(connection, &job, diagnosis);
        derived.expect(&job, names);
    }
    Ok(())
}

/// What the tables beside the records must say, as the records have it.
struct ExpectedIndexes {
    seal: IdSeal,
    tags: BTreeSet<(String, i64)>,
    external_ids: BTreeSet<(String, String, i64)>,
    chunks: BTreeSet<(i64, i64, i64, i64)>,
    /// Ended jobs by queue and state.
    ended: BTreeMap<(String, i64), i64>,
    /// When the first job of a chunk may go.
    prunes: BTreeMap<i64, i64>,
    /// (dependency, dependent), whether or not the dependency is still there.
    edges: BTreeSet<(i64, i64)>,
    keys: BTreeMap<Seq, Vec<u8>>,
    jobs: BTreeSet<Seq>,
    members: Members,
}

impl ExpectedIndexes {
    fn new(seal: IdSeal) -> Self {
        Self {
            seal,
            tags: BTreeSet::new(),
            external_ids: BTreeSet::new(),
            chunks: BTreeSet::new(),
            ended: BTreeMap::new(),
            prunes: BTreeMap::new(),
            edges: BTreeSet::new(),
            keys: BTreeMap::new(),
            jobs: BTreeSet::new(),
            members: Members::default(),
        }
    }

    fn expect(&mut self, job: &Job, names: &Dictionary) {
        let number = job.seq.0.cast_signed();
        self.jobs.insert(job.seq);
        if let Some(membership) = &job.membership {
            self.members.expect(self.seal.seq_of_workflow(membership.workflow), job);
        }
        self.tags.extend(IndexedFields::of(job).words().into_iter().map(|word| (word, number)));
        if let Some(external_id) = &job.external_id {
            self.external_ids.insert((job.queue.to_string(), external_id.to_string(), number));
        }
        if let Some(path) = job.idempotency.as_ref().and_then(|key| ScopedIdempotencyKey::of(key, &job.queue)) {
            self.keys.insert(job.seq, codec::key::encode(&path));
        }
        let dependencies = job.dependencies.all();
        self.edges.extend(dependencies.iter().map(|id| (self.seal.decrypt(*id).0.cast_signed(), number)));
        if !job.is_live() {
            let (chunk, features) = (chunk_of(job.seq).cast_signed(), FilterKey::of(job, names));
            self.chunks.insert((chunk, features.queue, features.state, features.job_type));
            *self.ended.entry((job.queue.to_string(), features.state)).or_default() += 1;
            if let Some(at) = job.prune_at().map(Timestamp::as_millis) {
                self.prunes.entry(chunk).and_modify(|first| *first = at.min(*first)).or_insert(at);
            }
        }
    }

    fn check(&self, connection: &Connection, diagnosis: &mut VerifyReport) -> Result<(), StoreError> {
        let tags: BTreeSet<(String, i64)> =
            rows(connection, "SELECT word, seq FROM tag", |row| Ok((row.get(0)?, row.get(1)?)))?;
        let external_ids: BTreeSet<(String, String, i64)> =
            rows(connection, "SELECT queue, external_id, seq FROM external_id", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let chunks: BTreeSet<(i64, i64, i64, i64)> =
            rows(connection, "SELECT chunk, queue, state, type FROM ended_chunk", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        let (keys, damaged) = keys::all(connection).map_err(sql)?;
        if damaged > 0 {
            diagnosis.problems.push(format!("{damaged} idempotency keys are damaged"));
        }
        if tags != self.tags {
            diagnosis
                .problems
                .push("the index of tags, correlation ids and idempotency keys does not match the jobs".to_owned());
        }
        if external_ids != self.external_ids {
            diagnosis.problems.push("the external ids on file are not those of the jobs".to_owned());
        }
        if !chunks.is_superset(&self.chunks) {
            diagnosis.problems.push("the sums over ended jobs leave some of them out".to_owned());
        }
        // Either end of an edge takes it along when it goes.
        let there = |number: i64| self.jobs.contains(&Seq(number.cast_unsigned()));
        let expected: BTreeSet<(i64, i64)> = self.edges.iter().copied().filter(|edge| there(edge.0)).collect();
        let edges: BTreeSet<(i64, i64)> =
            rows(connection, "SELECT dependency, dependent FROM edge", |row| Ok((row.get(0)?, row.get(1)?)))?;
        if edges != expected {
            diagnosis.problems.push("the dependents on file are not those of the jobs".to_owned());
        }
        let prunes: BTreeMap<i64, i64> =
            rows(connection, "SELECT chunk, prune_at FROM prune_chunk", |row| Ok((row.get(0)?, row.get(1)?)))?;
        if self.prunes.iter().any(|(chunk, first)| prunes.get(chunk).is_none_or(|noted| noted > first)) {
            diagnosis.problems.push("some ended jobs would outstay their time".to_owned());
        }
        // A key may have outlived its job, or passed to a later one; it may not stand for a job that never had it.
        let strange = |(seq, path): &(&Seq, &Vec<u8>)| self.jobs.contains(*seq) && self.keys.get(*seq) != Some(*path);
        if keys.iter().any(|row| strange(&row)) {
            diagnosis.problems.push("an idempotency key on file is not that of its job".to_owned());
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

fn check_payload(connection: &Connection, job: &Job, diagnosis: &mut VerifyReport) {
    match read_payload(connection, job.seq) {
        Ok(Some(payload)) => diagnosis.payload_bytes += payload.bytes().len() as u64,
        Ok(None) => diagnosis.problems.push(format!("job {} has no payload", job.seq)),
        Err(_) => diagnosis.problems.push(format!("the payload of job {} is damaged", job.seq)),
    }
}

fn check_counts(
    connection: &Connection,
    counted: &BTreeMap<(String, i64), i64>,
    diagnosis: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut select = connection.prepare("SELECT queue, state, jobs FROM ended_count WHERE jobs <> 0").map_err(sql)?;
    let rows = select.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).map_err(sql)?;
    let kept: BTreeMap<(String, i64), i64> = rows.collect::<Result<_, _>>().map_err(sql)?;
    if kept != *counted {
        let word = |number: i64| StateKind::ALL.iter().find(|state| state_number(**state) == number);
        for ((queue, state), jobs) in counted.iter().chain(&kept) {
            let (counted, kept) = (counted.get(&(queue.clone(), *state)), kept.get(&(queue.clone(), *state)));
            if counted != kept {
                let state = word(*state).map_or("?", |state| state.as_str());
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
