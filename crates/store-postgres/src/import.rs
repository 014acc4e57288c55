//! Imports another store in one transaction, and compares counts before the commit.

use std::collections::{BTreeMap, BTreeSet};

use longshore_codec::{self as codec, Dictionary};
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCounts, Workflow};
use longshore_engine::{KeyEntry, Queue, ScopedIdempotencyKey, StateCounts, SystemKind, ordering};
use longshore_store::query::TermFields;
use longshore_store::{StoreError, SystemRecord};
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use crate::connection::Blob;
use crate::error::{ErrorMessage, error_chain};
use crate::migrate;
use crate::node::{TOTALS_QUEUE, lock_key};
use crate::row::{IndexColumns, kind_of};
use crate::store::PostgresOptions;
use crate::transaction::job_columns::{JOB_TYPES, JobColumns};
use crate::transaction::write::admission_json;

const DAY_MS: i64 = 86_400_000;

/// Properties of the imported store.
#[derive(Clone, Debug)]
pub struct ImportMeta {
    pub epoch: i64,
    /// Above every sequence number in use.
    pub next_seq: u64,
    pub totals: Totals,
    /// The time of a store in virtual time.
    pub virtual_now: Option<Timestamp>,
    /// Identifies the store and its last commit. MailboxReceiver, digits and `-`.
    pub source: String,
}

/// Row counts of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub queues: u64,
    pub jobs: u64,
    pub payloads: u64,
    pub keys: u64,
    pub external_ids: u64,
    pub dependencies: u64,
    pub workflows: u64,
    pub members: u64,
    /// Schedules, ticks, webhook endpoints, deliveries, tokens, audit entries.
    pub system_records: u64,
}

#[derive(Debug)]
pub struct Import {
    client: Client,
    schema: String,
    names: Dictionary,
    counts: BTreeMap<QueueName, (StateCounts, u64)>,
    days: BTreeSet<i64>,
    sent: Imported,
}

/// Sequence number, day, columns, queue, record and payload of a finished job.
type ArchivedJob<'a> = (i64, i64, IndexColumns, i32, Vec<u8>, &'a Payload, Blob);
type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

fn failed(error: &tokio_postgres::Error) -> StoreError {
    StoreError::not_applied(ErrorMessage(error_chain(error)))
}

fn refused(what: impl Into<String>) -> StoreError {
    StoreError::not_applied(ErrorMessage(what.into()))
}

impl Import {
    /// Finds an earlier import of the same source: the process may have ended before it received
    /// the response to its commit.
    pub async fn find(options: &PostgresOptions, source: &str) -> Result<Option<Imported>, StoreError> {
        migrate::up(&options.url, &options.schema).await?;
        let import = Self::over(migrate::connect(&options.url).await?, options);
        let text = "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
            WHERE n.nspname = $1 AND c.relname = 'settings' AND pg_catalog.obj_description(c.oid, 'pg_class') = $2";
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&import.schema, Type::TEXT), (&comment_of(source), Type::TEXT)];
        let rows = import.client.query_typed(text, &values).await.map_err(|error| failed(&error))?;
        let found: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
        if found == Some(1) { import.counted().await.map(Some) } else { Ok(None) }
    }

    fn over(client: Client, options: &PostgresOptions) -> Self {
        Self {
            client,
            schema: options.schema.clone(),
            names: Dictionary::default(),
            counts: BTreeMap::new(),
            days: BTreeSet::new(),
            sent: Imported::default(),
        }
    }

    /// Begins an import. Creates missing tables, and refuses a schema with jobs or queues besides
    /// `default`. Servers wait until the import ends.
    pub async fn begin(options: &PostgresOptions) -> Result<Self, StoreError> {
        migrate::up(&options.url, &options.schema).await?;
        let client = migrate::connect(&options.url).await?;
        let import = Self::over(client, options);
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({})", lock_key(&import.schema));
        import.client.batch_execute(&begin).await.map_err(|error| failed(&error))?;
        let stored = import.counted().await?;
        if stored != (Imported { queues: stored.queues, ..Imported::default() }) {
            let Imported { jobs, system_records, .. } = stored;
            let schema = &import.schema;
            let what = format!("schema {schema} is not empty: it has {jobs} jobs, {system_records} system records");
            return Err(StoreError::NotEmpty { what });
        }
        let others = "SELECT count(*) FROM @.queues q JOIN @.queue_names n USING (number) WHERE n.name <> 'default'";
        if import.number(others).await? > 0 {
            let what = format!("schema {} is not empty: it has queues", import.schema);
            return Err(StoreError::NotEmpty { what });
        }
        import
            .run(
                "DELETE FROM @.queues; DELETE FROM @.queue_names; DELETE FROM @.policies; \
             DELETE FROM @.queue_counts; DELETE FROM @.queue_count_deltas",
            )
            .await?;
        Ok(import)
    }

    async fn run(&self, text: &str) -> Result<(), StoreError> {
        self.client.batch_execute(&text.replace('@', &self.schema)).await.map_err(|error| failed(&error))
    }

    async fn number(&self, text: &str) -> Result<u64, StoreError> {
        let rows = self.client.query_typed(&text.replace('@', &self.schema), &[]).await;
        let rows = rows.map_err(|error| failed(&error))?;
        let number: i64 = match rows.first() {
            Some(row) => row.try_get(0).map_err(|error| failed(&error))?,
            None => 0,
        };
        Ok(number.max(0).unsigned_abs())
    }

    async fn copy<'r>(
        &self,
        into: &str,
        types: &[Type],
        rows: impl Iterator<Item = Values<'r>>,
    ) -> Result<(), StoreError> {
        let text = format!("COPY {}.{into} FROM STDIN (FORMAT binary)", self.schema);
        let sink = self.client.copy_in(&text).await.map_err(|error| failed(&error))?;
        let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, types));
        for row in rows {
            writer.as_mut().write(&row).await.map_err(|error| failed(&error))?;
        }
        writer.as_mut().finish().await.map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Imports names, policies and queues. It comes first, because records refer to them by number.
    /// `names` includes those of deleted queues.
    pub async fn queues(
        &mut self,
        names: &[QueueName],
        policies: &[std::sync::Arc<longshore_core::policy::Policy>],
        queues: &[Queue],
    ) -> Result<(), StoreError> {
        for name in names.iter().chain(queues.iter().map(|queue| &queue.name)) {
            self.names.learn_queue(name);
        }
        policies
            .iter()
            .chain(queues.iter().map(|queue| &queue.policy))
            .for_each(|policy| self.names.learn_policy(policy));
        let not_storable = || refused("a custom backoff cannot be stored");
        let (mut name_rows, mut policy_rows) = (Vec::new(), Vec::new());
        for (kind, number, value) in self.names.unsaved() {
            let number = i32::try_from(number).map_err(|_| refused("too many queue names"))?;
            let value = value.ok_or_else(not_storable)?;
            if kind == 0 { name_rows.push((number, value)) } else { policy_rows.push((number, value)) }
        }
        self.names.committed();
        let (int, text, bytes) = (Type::INT4, Type::TEXT, Type::BYTEA);
        let name_rows: Vec<(i32, String)> = name_rows
            .into_iter()
            .map(|(number, name)| {
                Ok((number, String::from_utf8(name).map_err(|_| refused("a queue name is not UTF-8"))?))
            })
            .collect::<Result<_, StoreError>>()?;
        let rows = name_rows.iter().map(|(number, name)| vec![number as &(dyn ToSql + Sync), name]);
        self.copy("queue_names (number, name)", &[int.clone(), text.clone()], rows).await?;
        let rows = policy_rows.iter().map(|(number, value)| vec![number as &(dyn ToSql + Sync), value]);
        self.copy("policies (number, value)", &[int.clone(), bytes.clone()], rows).await?;
        for queue in queues {
            let number = self.queue_number(&queue.name)?;
            let policy = self.names.policy_number(&queue.policy).ok_or_else(not_storable)?;
            let record = codec::policy::encode_queue(queue).map_err(|_| not_storable())?;
            let insert = "INSERT INTO @.queues (number, record, admission) VALUES ($1, $2, $3::text::jsonb)";
            let values: [(&(dyn ToSql + Sync), Type); 3] =
                [(&number, int.clone()), (&record, bytes.clone()), (&admission_json(queue, policy), text.clone())];
            let done = self.client.query_typed(&insert.replace('@', &self.schema), &values).await;
            done.map_err(|error| failed(&error))?;
        }
        self.sent.queues += queues.len() as u64;
        Ok(())
    }

    fn queue_number(&self, name: &QueueName) -> Result<i32, StoreError> {
        let number = self.names.queue_number(name).and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| refused(format!("queue {name} is unknown")))
    }

    /// Imports jobs with their payloads. Finished jobs go to the archive.
    pub async fn jobs(&mut self, jobs: &[(Job, Payload)]) -> Result<(), StoreError> {
        let (mut live, mut payloads, mut archived) = (JobColumns::default(), Vec::new(), Vec::new());
        let (mut ids, mut tags) = (Vec::new(), Vec::new());
        for (job, payload) in jobs {
            let queue = self.queue_number(&job.queue)?;
            let columns = IndexColumns::of(job, ordering(job, false));
            let encoded = codec::job::encode_unpadded(job, &self.names);
            let record = encoded.ok_or_else(|| refused(format!("cannot store job {}", job.id)))?;
            let number = job.seq.0.cast_signed();
            let bytes = Blob(payload.bytes().clone());
            match columns.ended_at.filter(|_| columns.archivable) {
                Some(ended_at) => {
                    archived.push((number, ended_at.div_euclid(DAY_MS), columns, queue, record, payload, bytes));
                }
                None => {
                    live.push((job.seq, queue), &columns, None, record, None);
                    payloads.push((number, kind_of(payload), bytes));
                }
            }
            ids.push((job.id.as_bytes().to_vec(), number));
            tags.extend(TermFields::of(job).terms().into_iter().map(|term| (term, number)));
            self.count(job);
        }
        let rows = (0..live.seq.len()).filter_map(|index| live.row(index));
        let columns = "jobs (seq, ready_position, due_at, type_hash, lease_version, enqueued_at, ended_at, prune_at, queue, \
            state, effective_priority, priority, timer_kind, archivable, standalone, record, propagation_cursor)";
        self.copy(columns, &JOB_TYPES, rows).await?;
        let rows = payloads.iter().map(|(seq, kind, bytes)| vec![seq as &(dyn ToSql + Sync), kind, bytes]);
        self.copy("payloads (seq, kind, bytes)", &[Type::INT8, Type::INT2, Type::BYTEA], rows).await?;
        self.archive(&archived).await?;
        let rows = ids.iter().map(|(id, seq)| vec![id as &(dyn ToSql + Sync), seq]);
        self.copy("imported_ids (id, seq)", &[Type::BYTEA, Type::INT8], rows).await?;
        let rows = tags.iter().map(|(term, seq)| vec![term as &(dyn ToSql + Sync), seq]);
        self.copy("tags (term, seq)", &[Type::TEXT, Type::INT8], rows).await?;
        self.sent.jobs += jobs.len() as u64;
        self.sent.payloads += jobs.len() as u64;
        Ok(())
    }

    async fn archive(&mut self, jobs: &[ArchivedJob<'_>]) -> Result<(), StoreError> {
        for (_, day, ..) in jobs {
            if self.days.insert(*day) {
                self.run(&format!("SELECT @.create_archive_partition({day})")).await?;
            }
        }
        let days_and_kinds: Vec<(i32, i16)> = jobs
            .iter()
            .map(|(_, day, .., payload, _)| (i32::try_from(*day).unwrap_or(i32::MAX), kind_of(payload)))
            .collect();
        let rows = jobs.iter().zip(&days_and_kinds).map(|((seq, _, columns, queue, record, _, bytes), (day, kind))| {
            let values: Values<'_> = vec![
                seq,
                day,
                &columns.type_hash,
                &columns.lease_version,
                &columns.prune_at,
                queue,
                &columns.state,
                &columns.priority,
                &columns.standalone,
                kind,
                record,
                bytes,
            ];
            values
        });
        let (int8, int4, int2, bytea) = (Type::INT8, Type::INT4, Type::INT2, Type::BYTEA);
        let types = [
            int8.clone(),
            int4.clone(),
            int8.clone(),
            int8.clone(),
            int8,
            int4,
            int2.clone(),
            int2.clone(),
            Type::BOOL,
            int2,
            bytea.clone(),
            bytea,
        ];
        let columns = "archive (seq, day, type_hash, lease_version, prune_at, queue, state, priority, standalone, kind, record, bytes)";
        self.copy(columns, &types, rows).await
    }

    fn count(&mut self, job: &Job) {
        let (counts, held) = self.counts.entry(job.queue.clone()).or_default();
        if let Some(count) = counts.get_mut(job.kind() as usize) {
            *count += 1;
        }
        *held += u64::from(job.state.held());
    }

    /// Jobs that were sent so far, by queue and state.
    pub fn counts(&self) -> impl Iterator<Item = (&QueueName, &StateCounts)> {
        self.counts.iter().map(|(queue, (counts, _))| (queue, counts))
    }

    pub async fn keys(&mut self, keys: &[(ScopedIdempotencyKey, KeyEntry)]) -> Result<(), StoreError> {
        let rows: Vec<_> = keys
            .iter()
            .map(|(path, entry)| {
                let prune_at = entry.prune_at.map(Timestamp::as_millis);
                let id = entry.id.as_bytes().to_vec();
                (codec::key::encode(path), entry.seq.0.cast_signed(), id, entry.at.as_millis(), prune_at)
            })
            .collect();
        let types = [Type::BYTEA, Type::INT8, Type::BYTEA, Type::INT8, Type::INT8];
        let rows = rows.iter().map(|(path, seq, id, at, prune_at)| {
            let values: Values<'_> = vec![path, seq, id, at, prune_at];
            values
        });
        self.copy("idempotency_keys (path, seq, id, at, prune_at)", &types, rows).await?;
        self.sent.keys += keys.len() as u64;
        Ok(())
    }

    pub async fn external_ids(&mut self, ids: &[(QueueName, String, Seq)]) -> Result<(), StoreError> {
        let rows = ids
            .iter()
            .map(|(queue, id, seq)| Ok((self.queue_number(queue)?, id, seq.0.cast_signed())))
            .collect::<Result<Vec<_>, StoreError>>()?;
        let rows = rows.iter().map(|(queue, id, seq)| {
            let values: Values<'_> = vec![queue, *id, seq];
            values
        });
        self.copy("external_ids (queue, external_id, seq)", &[Type::INT4, Type::TEXT, Type::INT8], rows).await?;
        self.sent.external_ids += ids.len() as u64;
        Ok(())
    }

    /// (dependency, dependent)
    pub async fn dependencies(&mut self, edges: &[(Seq, Seq)]) -> Result<(), StoreError> {
        self.pairs("dependency_edges (dependency, dependent)", edges).await?;
        self.sent.dependencies += edges.len() as u64;
        Ok(())
    }

    /// Imports system records with their revisions.
    pub async fn system_records(&mut self, kind: SystemKind, records: &[SystemRecord]) -> Result<(), StoreError> {
        let number = i16::from(kind.number());
        let revisions: Vec<i64> = records.iter().map(|record| record.revision.cast_signed()).collect();
        let rows = records.iter().zip(&revisions).map(|(record, revision)| {
            let values: Values<'_> = vec![&number, &record.key, revision, &record.value];
            values
        });
        let types = [Type::INT2, Type::BYTEA, Type::INT8, Type::BYTEA];
        self.copy("system_records (kind, key, revision, value)", &types, rows).await?;
        self.sent.system_records += records.len() as u64;
        Ok(())
    }

    async fn pairs(&self, into: &str, pairs: &[(Seq, Seq)]) -> Result<(), StoreError> {
        let rows: Vec<(i64, i64)> = pairs.iter().map(|(one, two)| (one.0.cast_signed(), two.0.cast_signed())).collect();
        let rows = rows.iter().map(|(one, two)| vec![one as &(dyn ToSql + Sync), two]);
        self.copy(into, &[Type::INT8, Type::INT8], rows).await
    }

    /// Imports a workflow, its members, and the references of some of them.
    pub async fn workflow(
        &mut self,
        workflow: &Workflow,
        members: &[Seq],
        refs: &[(String, Seq)],
    ) -> Result<(), StoreError> {
        let number = workflow.number.0.cast_signed();
        let stored = Workflow { tally: MemberCounts::default(), ..workflow.clone() };
        let counts = workflow.tally.counts.iter().chain([&workflow.tally.records]).map(|count| count.cast_signed());
        let (counts, record): (Vec<i64>, _) = (counts.collect(), codec::workflow::encode(&stored));
        let (open, operation_active) = (workflow.open, workflow.operation.is_some());
        let row: Values<'_> = vec![&number, &open, &operation_active, &counts, &record];
        let types = [Type::INT8, Type::BOOL, Type::BOOL, Type::INT8_ARRAY, Type::BYTEA];
        self.copy("workflows (number, open, operation_active, counts, record)", &types, std::iter::once(row)).await?;
        let id = workflow.id.as_bytes().to_vec();
        let row: Values<'_> = vec![&id, &number];
        self.copy("imported_ids (id, seq)", &[Type::BYTEA, Type::INT8], std::iter::once(row)).await?;
        let pairs: Vec<(Seq, Seq)> = members.iter().map(|member| (workflow.number, *member)).collect();
        self.pairs("workflow_members (workflow, seq)", &pairs).await?;
        let refs: Vec<(&String, i64)> = refs.iter().map(|(name, seq)| (name, seq.0.cast_signed())).collect();
        let rows = refs.iter().map(|(name, seq)| {
            let values: Values<'_> = vec![&number, *name, seq];
            values
        });
        self.copy("workflow_member_refs (workflow, name, seq)", &[Type::INT8, Type::TEXT, Type::INT8], rows).await?;
        self.sent.workflows += 1;
        self.sent.members += members.len() as u64;
        Ok(())
    }

    async fn counted(&self) -> Result<Imported, StoreError> {
        Ok(Imported {
            queues: self.number("SELECT count(*) FROM @.queues").await?,
            jobs: self.number("SELECT (SELECT count(*) FROM @.jobs) + (SELECT count(*) FROM @.archive)").await?,
            payloads: self
                .number("SELECT (SELECT count(*) FROM @.payloads) + (SELECT count(*) FROM @.archive)")
                .await?,
            keys: self.number("SELECT count(*) FROM @.idempotency_keys").await?,
            external_ids: self.number("SELECT count(*) FROM @.external_ids").await?,
            dependencies: self.number("SELECT count(*) FROM @.dependency_edges").await?,
            workflows: self.number("SELECT count(*) FROM @.workflows").await?,
            members: self.number("SELECT count(*) FROM @.workflow_members").await?,
            system_records: self.number("SELECT count(*) FROM @.system_records").await?,
        })
    }

    /// Compares the stored rows per queue and state with the jobs that were sent.
    async fn check_counts(&self) -> Result<(), StoreError> {
        let text = "SELECT queue, state, count(*) FROM (SELECT queue, state FROM @.jobs UNION ALL SELECT queue, state FROM @.archive) t GROUP BY 1, 2";
        let rows = self.client.query_typed(&text.replace('@', &self.schema), &[]).await;
        let mut found = BTreeMap::new();
        for row in rows.map_err(|error| failed(&error))? {
            let read = |error: tokio_postgres::Error| failed(&error);
            let key: (i32, i16) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
            found.insert(key, row.try_get::<_, i64>(2).map_err(read)?.max(0).unsigned_abs());
        }
        let mut sent = BTreeMap::new();
        for (queue, (counts, _)) in &self.counts {
            let number = self.queue_number(queue)?;
            for (state, count) in StateKind::ALL.iter().zip(counts).filter(|(_, count)| **count > 0) {
                sent.insert((number, *state as i16), *count);
            }
        }
        if sent == found {
            Ok(())
        } else {
            Err(refused("job counts per queue and state differ from those that were sent"))
        }
    }

    /// Compares all counts, and commits. On an error nothing is imported.
    pub async fn finish(self, meta: &ImportMeta) -> Result<Imported, StoreError> {
        let found = self.counted().await?;
        if found != self.sent {
            return Err(refused(format!("the database has {found:?}, but {:?} were sent", self.sent)));
        }
        self.check_counts().await?;
        for (queue, (counts, held)) in &self.counts {
            let number = self.queue_number(queue)?;
            for (state, count) in counts.iter().chain([held]).enumerate().filter(|(_, count)| **count > 0) {
                let insert =
                    format!("INSERT INTO @.queue_counts (queue, state, jobs) VALUES ({number}, {state}, {count})");
                self.run(&insert).await?;
            }
        }
        let Totals { created, completed, retried, failed: lost, timed_out, cancelled } = meta.totals;
        let totals = [created, completed, retried, lost, timed_out, cancelled].map(|count| count.to_string()).join(",");
        self.run(&format!("INSERT INTO @.queue_count_deltas (queue, deltas) VALUES ({TOTALS_QUEUE}, '{{{totals}}}')"))
            .await?;
        // New blocks start above all numbers in use.
        let (block, last) = (crate::transaction::SEQ_BLOCK_SIZE, meta.next_seq);
        let next = last.div_ceil(block).max(1) * block;
        self.run(&format!("SELECT setval('@.seq_blocks', {next}, false)")).await?;
        // New revisions are above those of imported records: a compare-and-set never confuses them.
        self.run("SELECT setval('@.system_revisions', (SELECT coalesce(max(revision), 0) + 1 FROM @.system_records))")
            .await?;
        let now = meta.virtual_now.map_or(0, |now| now.as_millis().max(1));
        let epoch = meta.epoch.max(1);
        let update = format!(
            "UPDATE @.settings SET version = version + 1, imported_ids = true, epoch = {epoch}, virtual_now = {now} \
             WHERE virtual_now IS NULL OR (virtual_now = 0) = ({now} = 0)"
        );
        self.run(&update).await?;
        if self.number("SELECT count(*) FROM @.settings WHERE imported_ids").await? != 1 {
            return Err(refused(format!("schema {} uses another clock", self.schema)));
        }
        self.run(&format!("COMMENT ON TABLE @.settings IS '{}'", comment_of(&meta.source))).await?;
        let committed = self.client.batch_execute("COMMIT").await;
        committed.map_err(|error| StoreError::unknown(ErrorMessage(error_chain(&error))))?;
        Ok(found)
    }
}

/// The comment that marks an imported schema, written in the same transaction.
fn comment_of(source: &str) -> String {
    let is_valid = |character: &char| character.is_ascii_alphanumeric() || *character == '-';
    format!("imported from {}", source.chars().filter(is_valid).collect::<String>())
}
