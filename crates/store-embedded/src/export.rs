//! Export of a stopped store to another store (`longshore migrate-store`).

use std::path::Path;
use std::sync::Arc;

use longshore_codec::checksum;
use longshore_codec::{self as codec, Dictionary};
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::policy::Policy;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_engine::{KeyEntry, Queue, ScopedIdempotencyKey, SystemKind};
use longshore_store::{StoreError, SystemQuery, SystemRecord};
use rusqlite::{Connection, Row, params};

use crate::data_dir::DataDir;
use crate::error::{corrupt, sql};
use crate::key_order::KeyOrderCheck;
use crate::meta;
use crate::moved_marker;
use crate::records::payloads::read_payload;
use crate::records::{keys, workflows};
use crate::recovery::check_wal_complete;
use crate::schema::{self, ClockMode};
use crate::sqlite::{Location, Role, map_open_error};

/// A stopped store, open for export. Holds the lock of the directory and verifies every checksum.
#[derive(Debug)]
pub struct Export {
    connection: Connection,
    dictionary: Dictionary,
    data_dir: DataDir,
}

/// Settings and counters of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMeta {
    pub time: ClockMode,
    /// Lease versions of this epoch start at `epoch * 2^12`.
    pub epoch: i64,
    /// Above every number that the store has used.
    pub next_seq: u64,
    pub totals: Totals,
}

/// A workflow with its members and their references.
#[derive(Clone, Debug)]
pub struct ExportedWorkflow {
    pub workflow: Workflow,
    pub members: Vec<Seq>,
    pub names: Vec<(String, Seq)>,
}

/// Position in the idempotency keys. The default is before the first key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCursor(Vec<u8>);

type KeyPage = (Vec<(ScopedIdempotencyKey, KeyEntry)>, Option<KeyCursor>);

fn number(row: &Row<'_>, column: usize) -> Result<Seq, StoreError> {
    Ok(Seq(row.get::<_, i64>(column).map_err(sql)?.cast_unsigned()))
}

impl Export {
    /// Opens a directory. Refuses one that a server uses ([`crate::in_use`]).
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let data_dir = DataDir::open_existing(directory)?;
        let connection = data_dir.database.open(Role::Writer).map_err(map_open_error)?;
        schema::check(&connection)?;
        meta::refuse_backup(&connection)?;
        check_wal_complete(&data_dir.database, &connection)?;
        let dictionary = crate::dictionary::load(&connection)?;
        Ok(Self { connection, dictionary, data_dir })
    }

    /// Returns a text that identifies the store and its last commit.
    pub fn fingerprint(&self) -> Result<String, StoreError> {
        let store = checksum(0, &meta::id_key(&self.connection)?);
        Ok(format!("{store:08x}-{}", meta::commit_seq(&self.connection)?))
    }

    /// Marks the directory as moved; durable on return. The caller has committed the target before.
    pub fn mark_moved(&self, target: &str) -> Result<(), StoreError> {
        let Location::File(database) = &self.data_dir.database else { return Ok(()) };
        moved_marker::write(database.parent().unwrap_or(Path::new("")), target).map_err(StoreError::not_applied)
    }

    pub fn notes(&self) -> Result<StoreMeta, StoreError> {
        let last = |table: &str, column: &str| -> Result<i64, StoreError> {
            let text = format!("SELECT coalesce(max({column}), 0) FROM {table}");
            self.connection.query_row(&text, [], |row| row.get(0)).map_err(sql)
        };
        let mut next = meta::integer(&self.connection, meta::NEXT_SEQ)?;
        for last in [last("live_jobs", "seq")?, last("finished_jobs", "seq")?, last("workflow", "number")?] {
            next = next.max(last.saturating_add(1));
        }
        // A queue position may be above the number of every job.
        let mut select = self.connection.prepare("SELECT seq, record FROM live_jobs").map_err(sql)?;
        let mut rows = select.query([]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let job = self.decode(row)?;
            let place = longshore_engine::ordering(&job, true).place;
            next = next.max(place.map_or(0, |place| place.saturating_add(1).cast_signed()));
        }
        Ok(StoreMeta {
            time: meta::clock_mode(&self.connection)?,
            epoch: meta::integer(&self.connection, meta::EPOCH)?,
            next_seq: next.max(1).cast_unsigned(),
            totals: meta::totals(&self.connection)?,
        })
    }

    /// Returns the names of all queues, including deleted ones that finished jobs may refer to.
    pub fn queue_names(&self) -> Vec<QueueName> {
        (0..).map_while(|number| self.dictionary.queue(number).cloned()).collect()
    }

    /// Returns the policies that jobs share.
    pub fn policies(&self) -> Vec<Arc<Policy>> {
        (0..).map_while(|number| self.dictionary.policy(number).cloned()).collect()
    }

    pub fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        let mut select = self.connection.prepare("SELECT name, record FROM queue ORDER BY name").map_err(sql)?;
        let (mut rows, mut queues) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            let (name, record): (String, Vec<u8>) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
            let name = QueueName::new(&name).map_err(|_| corrupt("the name of a queue"))?;
            queues.push(codec::policy::decode_queue(name, &record).map_err(|_| corrupt("the record of a queue"))?);
        }
        Ok(queues)
    }

    /// Returns the number of jobs.
    pub fn count(&self) -> Result<u64, StoreError> {
        let text = "SELECT (SELECT count(*) FROM live_jobs) + (SELECT count(*) FROM finished_jobs)";
        let count: i64 = self.connection.query_row(text, [], |row| row.get(0)).map_err(sql)?;
        Ok(count.max(0).unsigned_abs())
    }

    /// Returns the stored counts of finished jobs by queue and state.
    pub fn finished_counts(&self) -> Result<Vec<(QueueName, StateKind, u64)>, StoreError> {
        let mut select = self.connection.prepare("SELECT queue, state, jobs FROM finished_counts").map_err(sql)?;
        let (mut rows, mut counts) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            let (queue, state, jobs): (String, u8, i64) =
                (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?, row.get(2).map_err(sql)?);
            let queue = QueueName::new(&queue).map_err(|_| corrupt("the name of a queue"))?;
            let state = StateKind::ALL.get(usize::from(state)).ok_or_else(|| corrupt("the counts of finished jobs"))?;
            counts.push((queue, *state, jobs.max(0).unsigned_abs()));
        }
        Ok(counts)
    }

    fn decode(&self, row: &Row<'_>) -> Result<Job, StoreError> {
        let seq = number(row, 0)?;
        let corrupt_record = || corrupt(&format!("the record of job {seq}"));
        let record = row.get_ref(1).map_err(sql)?.as_blob().map_err(|_| corrupt_record())?;
        codec::job::decode(seq, record, &self.dictionary).map_err(|_| corrupt_record())
    }

    /// Returns live and finished jobs after `after` with their payloads, in order.
    pub fn jobs(&self, after: Seq, limit: usize) -> Result<Vec<(Job, Payload)>, StoreError> {
        let text = "SELECT seq, record FROM (SELECT seq, record FROM live_jobs WHERE seq > ?1 UNION ALL \
                    SELECT seq, record FROM finished_jobs WHERE seq > ?1) ORDER BY seq LIMIT ?2";
        let mut select = self.connection.prepare_cached(text).map_err(sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = select.query(params![after.0.cast_signed(), limit]).map_err(sql)?;
        let (mut jobs, mut order) = (Vec::new(), KeyOrderCheck::after("live_jobs\" or \"finished_jobs", Some(after)));
        while let Some(row) = rows.next().map_err(sql)? {
            let job = self.decode(row)?;
            order.next(job.seq)?;
            let payload = read_payload(&self.connection, job.seq)?;
            let payload = payload.ok_or_else(|| corrupt(&format!("the payload of job {}", job.seq)))?;
            jobs.push((job, payload));
        }
        Ok(jobs)
    }

    /// Returns at most `limit` idempotency keys after the cursor, and the cursor of the next page.
    /// There is no cursor after the last key.
    pub fn keys(&self, after: &KeyCursor, limit: usize) -> Result<KeyPage, StoreError> {
        let keys = keys::after(&self.connection, &after.0, limit)?;
        let next = keys.last().map(|(key, _)| KeyCursor(longshore_codec::key::encode(key)));
        Ok((keys, next))
    }

    /// Returns at most `limit` system records of a kind from `start` on, in order of their keys.
    pub fn system_records(
        &self,
        kind: SystemKind,
        start: Vec<u8>,
        limit: usize,
    ) -> Result<Vec<SystemRecord>, StoreError> {
        let query = SystemQuery { kind, start, end: None, limit, descending: false };
        crate::system::read(&self.connection, &query)
    }

    pub fn external_ids(&self) -> Result<Vec<(QueueName, String, Seq)>, StoreError> {
        let mut select = self.connection.prepare("SELECT queue, external_id, seq FROM external_id").map_err(sql)?;
        let (mut rows, mut found) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            let queue: String = row.get(0).map_err(sql)?;
            let queue = QueueName::new(&queue).map_err(|_| corrupt("the name of a queue"))?;
            found.push((queue, row.get(1).map_err(sql)?, number(row, 2)?));
        }
        Ok(found)
    }

    /// Returns pairs of dependency and dependent.
    pub fn edges(&self) -> Result<Vec<(Seq, Seq)>, StoreError> {
        let mut select = self.connection.prepare("SELECT dependency, dependent FROM dependency_edge").map_err(sql)?;
        let (mut rows, mut found) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            found.push((number(row, 0)?, number(row, 1)?));
        }
        Ok(found)
    }

    /// Returns workflows after `after`, oldest first.
    pub fn workflows(&self, after: Seq, limit: usize) -> Result<Vec<ExportedWorkflow>, StoreError> {
        let mut select =
            self.connection.prepare_cached("SELECT number FROM workflow WHERE number > ?1 ORDER BY number LIMIT ?2");
        let select = select.as_mut().map_err(|_| corrupt("table \"workflow\""))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (mut rows, mut found) = (select.query(params![after.0.cast_signed(), limit]).map_err(sql)?, Vec::new());
        let mut order = KeyOrderCheck::after("workflow", Some(after));
        while let Some(row) = rows.next().map_err(sql)? {
            let number = number(row, 0)?;
            order.next(number)?;
            let workflow = workflows::read(&self.connection, number)?;
            let workflow = workflow.ok_or_else(|| corrupt(&format!("the record of workflow {number}")))?;
            let members = workflows::members(&self.connection, number, Seq(0), usize::MAX)?;
            let names = workflows::names(&self.connection, number)?;
            found.push(ExportedWorkflow { workflow, members, names });
        }
        Ok(found)
    }
}
