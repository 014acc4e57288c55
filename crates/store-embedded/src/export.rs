//! A stopped store, read from one end to the other by whoever moves it elsewhere.

use std::path::Path;
use std::sync::Arc;

use longshore_codec::codec::checksum;
use longshore_codec::{Dictionary, codec};
use longshore_core::engine::{KeyEntry, Queue, ScopedIdempotencyKey};
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::policy::Policy;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::totals::Totals;
use longshore_core::workflow::Workflow;
use longshore_store::StoreError;
use rusqlite::{Connection, Row, params};

use crate::data_dir::DataDir;
use crate::error::{damaged, sql};
use crate::key_order::KeyOrderCheck;
use crate::moved;
use crate::records::payloads::read_payload;
use crate::records::{keys, workflows};
use crate::schema::{self, ClockMode, Location, Role, map_open_error};
use crate::wal;

/// Holds the lock of the directory: no server works in it meanwhile. Everything that is read is checked against its checksum.
#[derive(Debug)]
pub struct Export {
    connection: Connection,
    names: Dictionary,
    home: DataDir,
}

/// What a store knows besides its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMeta {
    pub time: ClockMode,
    /// Lease versions are above this many times 2^32, less one.
    pub epoch: i64,
    /// Past every number that was ever given.
    pub next_number: u64,
    pub totals: Totals,
}

/// A workflow with its members, and the names that some of these have.
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
    /// Refuses a directory in which a server works ([`crate::in_use`]).
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let home = DataDir::open_existing(directory)?;
        let connection = home.database.open(Role::Writer).map_err(map_open_error)?;
        schema::check(&connection)?;
        schema::refuse_backup(&connection)?;
        wal::check_wal_complete(&home.database, &connection)?;
        let names = crate::dictionary::load(&connection)?;
        Ok(Self { connection, names, home })
    }

    /// Which store this is, and how far it has come: the same text as long as nothing was committed.
    pub fn fingerprint(&self) -> Result<String, StoreError> {
        let store = checksum(0, &schema::id_key(&self.connection)?);
        Ok(format!("{store:08x}-{}", schema::mark(&self.connection)?))
    }

    /// Marks the directory as moved, durably: nothing but `doctor` works in it any more. For after the target has committed.
    pub fn mark_moved(&self, target: &str) -> Result<(), StoreError> {
        let Location::File(database) = &self.home.database else { return Ok(()) };
        moved::mark(database.parent().unwrap_or(Path::new("")), target).map_err(StoreError::not_applied)
    }

    pub fn notes(&self) -> Result<StoreMeta, StoreError> {
        let last = |table: &str, column: &str| -> Result<i64, StoreError> {
            let text = format!("SELECT coalesce(max({column}), 0) FROM {table}");
            self.connection.query_row(&text, [], |row| row.get(0)).map_err(sql)
        };
        let mut next = schema::meta(&self.connection, "next_number")?;
        for last in [last("live", "seq")?, last("ended", "seq")?, last("workflow", "number")?] {
            next = next.max(last.saturating_add(1));
        }
        // A place in line may be later than any number of a job.
        let mut rest = self.connection.prepare("SELECT seq, record FROM live").map_err(sql)?;
        let mut rows = rest.query([]).map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let job = self.decode(row)?;
            let place = longshore_core::engine::ordering(&job, true).place;
            next = next.max(place.map_or(0, |place| place.saturating_add(1).cast_signed()));
        }
        Ok(StoreMeta {
            time: schema::time(&self.connection)?,
            epoch: schema::meta(&self.connection, "epoch")?,
            next_number: next.max(1).cast_unsigned(),
            totals: schema::totals(&self.connection)?,
        })
    }

    /// Names of queues, those of queues that are gone included: ended jobs may still have them.
    pub fn queue_names(&self) -> Vec<QueueName> {
        (0..).map_while(|number| self.names.queue(number).cloned()).collect()
    }

    /// Policies that many jobs share.
    pub fn policies(&self) -> Vec<Arc<Policy>> {
        (0..).map_while(|number| self.names.policy(number).cloned()).collect()
    }

    pub fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        let mut select = self.connection.prepare("SELECT name, record FROM queue ORDER BY name").map_err(sql)?;
        let (mut rows, mut queues) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            let (name, record): (String, Vec<u8>) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
            let name = QueueName::new(&name).map_err(|_| damaged("the name of a queue"))?;
            queues.push(codec::policy::decode_queue(name, &record).map_err(|_| damaged("the record of a queue"))?);
        }
        Ok(queues)
    }

    /// How many jobs there are.
    pub fn count(&self) -> Result<u64, StoreError> {
        let text = "SELECT (SELECT count(*) FROM live) + (SELECT count(*) FROM ended)";
        let count: i64 = self.connection.query_row(text, [], |row| row.get(0)).map_err(sql)?;
        Ok(count.max(0).unsigned_abs())
    }

    /// Ended jobs of each queue and state, as the store has counted them.
    pub fn ended_counts(&self) -> Result<Vec<(QueueName, StateKind, u64)>, StoreError> {
        let mut select = self.connection.prepare("SELECT queue, state, jobs FROM ended_count").map_err(sql)?;
        let (mut rows, mut counts) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            let (queue, state, jobs): (String, u8, i64) =
                (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?, row.get(2).map_err(sql)?);
            let queue = QueueName::new(&queue).map_err(|_| damaged("the name of a queue"))?;
            let state = StateKind::ALL.get(usize::from(state)).ok_or_else(|| damaged("the counts of ended jobs"))?;
            counts.push((queue, *state, jobs.max(0).unsigned_abs()));
        }
        Ok(counts)
    }

    fn decode(&self, row: &Row<'_>) -> Result<Job, StoreError> {
        let seq = number(row, 0)?;
        let broken = || damaged(&format!("the record of job {seq}"));
        let record = row.get_ref(1).map_err(sql)?.as_blob().map_err(|_| broken())?;
        codec::job::decode(seq, record, &self.names).map_err(|_| broken())
    }

    /// Jobs behind this one with their payloads, in order, live and ended.
    pub fn jobs(&self, after: Seq, limit: usize) -> Result<Vec<(Job, Payload)>, StoreError> {
        let text = "SELECT seq, record FROM (SELECT seq, record FROM live WHERE seq > ?1 UNION ALL \
                    SELECT seq, record FROM ended WHERE seq > ?1) ORDER BY seq LIMIT ?2";
        let mut select = self.connection.prepare_cached(text).map_err(sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = select.query(params![after.0.cast_signed(), limit]).map_err(sql)?;
        let (mut jobs, mut order) = (Vec::new(), KeyOrderCheck::behind("live\" or \"ended", Some(after)));
        while let Some(row) = rows.next().map_err(sql)? {
            let job = self.decode(row)?;
            order.next(job.seq)?;
            let payload = read_payload(&self.connection, job.seq)?;
            let payload = payload.ok_or_else(|| damaged(&format!("the payload of job {}", job.seq)))?;
            jobs.push((job, payload));
        }
        Ok(jobs)
    }

    /// Returns at most `limit` idempotency keys after the cursor, and the cursor of the next page.
    /// There is no cursor after the last key.
    pub fn keys(&self, after: &KeyCursor, limit: usize) -> Result<KeyPage, StoreError> {
        let keys = keys::behind(&self.connection, &after.0, limit)?;
        let next = keys.last().map(|(key, _)| KeyCursor(codec::key::encode(key)));
        Ok((keys, next))
    }

    pub fn external_ids(&self) -> Result<Vec<(QueueName, String, Seq)>, StoreError> {
        let mut select = self.connection.prepare("SELECT queue, external_id, seq FROM external_id").map_err(sql)?;
        let (mut rows, mut found) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            let queue: String = row.get(0).map_err(sql)?;
            let queue = QueueName::new(&queue).map_err(|_| damaged("the name of a queue"))?;
            found.push((queue, row.get(1).map_err(sql)?, number(row, 2)?));
        }
        Ok(found)
    }

    /// (dependency, dependent)
    pub fn edges(&self) -> Result<Vec<(Seq, Seq)>, StoreError> {
        let mut select = self.connection.prepare("SELECT dependency, dependent FROM edge").map_err(sql)?;
        let (mut rows, mut found) = (select.query([]).map_err(sql)?, Vec::new());
        while let Some(row) = rows.next().map_err(sql)? {
            found.push((number(row, 0)?, number(row, 1)?));
        }
        Ok(found)
    }

    /// Workflows behind this one, oldest first.
    pub fn workflows(&self, after: Seq, limit: usize) -> Result<Vec<ExportedWorkflow>, StoreError> {
        let mut select =
            self.connection.prepare_cached("SELECT number FROM workflow WHERE number > ?1 ORDER BY number LIMIT ?2");
        let select = select.as_mut().map_err(|_| damaged("the table of workflows"))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (mut rows, mut found) = (select.query(params![after.0.cast_signed(), limit]).map_err(sql)?, Vec::new());
        let mut order = KeyOrderCheck::behind("workflow", Some(after));
        while let Some(row) = rows.next().map_err(sql)? {
            let number = number(row, 0)?;
            order.next(number)?;
            let workflow = workflows::read(&self.connection, number)?;
            let workflow = workflow.ok_or_else(|| damaged(&format!("the record of workflow {number}")))?;
            let members = workflows::members(&self.connection, number, Seq(0), usize::MAX)?;
            let names = workflows::names(&self.connection, number)?;
            found.push(ExportedWorkflow { workflow, members, names });
        }
        Ok(found)
    }
}
