//! Reads. Each uses a connection of its own from the pool, beside the workers.

mod listing;
mod workflows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobId, QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::priority::Priority;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{StateCounts, SystemKind, count_of};
use longshore_store::{
    JobQuery, JobRef, MemberQuery, Page, QueuePosition, QueueStats, ReportedWorker, StoreError, StoreFuture,
    StoreHealth, StoreMetrics, StoreReader, SystemQuery, SystemRecord, WorkflowPage, WorkflowQuery,
};
use tokio::sync::SemaphorePermit;
use tokio_postgres::Row;

use crate::catalog::Catalog;
use crate::connection::{Connection, StatementCall, TxBoundary, get, stmt};
use crate::error::{ErrorMessage, TxError};
use crate::node::{Node, TOTALS_QUEUE};
use crate::row::{payload, seq};
use crate::store::PostgresStore;
use crate::system;
use crate::workers;

/// Rows that are examined for one page. The next page continues after them.
const EXAMINED_MAX: usize = 10_000;
/// Ready jobs that are counted exactly; more are reported as this many.
const COUNTED_MAX: i64 = 10_000;

struct ReadTransaction<'a> {
    node: &'a Node,
    connection: Connection,
    catalog: Arc<Catalog>,
    _slot: SemaphorePermit<'a>,
}

/// Runs a read in a transaction. Repeats it on another connection if the first one is lost.
macro_rules! read_store {
    ($store:expr, |$reads:ident| $read:expr) => {{
        let node = Arc::clone(&$store.node);
        let task = $store.handle.spawn(async move {
            let mut attempts = 3;
            loop {
                let mut opened = match ReadTransaction::open(&node).await {
                    Ok(reads) => reads,
                    Err(error) => return Err(error.into_store_error()),
                };
                let $reads = &mut opened;
                let result = $read.await;
                match result {
                    Ok(value) => {
                        return match opened.close().await {
                            Ok(()) => Ok(value),
                            Err(error) => Err(error.into_store_error()),
                        };
                    }
                    Err(TxError::ConnectionLost(_)) if attempts > 0 => {
                        attempts -= 1;
                        opened.connection.discard();
                    }
                    Err(error) => {
                        opened.connection.discard();
                        return Err(error.into_store_error());
                    }
                }
            }
        });
        Box::pin(async move {
            let closed = || StoreError::not_applied(ErrorMessage("store was closed".to_owned()));
            task.await.unwrap_or_else(|_| Err(closed()))
        })
    }};
}

impl<'a> ReadTransaction<'a> {
    async fn open(node: &'a Node) -> Result<Self, TxError> {
        let slot = node.read_slots.acquire().await;
        let slot = slot.map_err(|_| TxError::ConnectionLost(ErrorMessage("store was closed".to_owned())))?;
        Ok(Self { node, connection: node.read_connection().await?, catalog: node.catalog(), _slot: slot })
    }

    async fn close(self) -> Result<(), TxError> {
        self.connection.pipeline(&[], TxBoundary::Commit).await.map(drop)
    }

    /// Begins the transaction. All reads use one snapshot, and so does the catalog.
    async fn begin(&mut self, calls: Vec<StatementCall<'_>>) -> Result<Vec<Vec<Row>>, TxError> {
        let node = self.node;
        let mut all = vec![stmt!(node.sql.load_settings)];
        all.extend(calls);
        let mut rows = self.connection.pipeline(&all, TxBoundary::BeginReadOnly).await?;
        let settings = rows.remove(0);
        let version: Option<i64> = settings.first().map(|row| get(row, 0)).transpose()?;
        if version != Some(self.catalog.version) {
            self.catalog = self.node.refresh_catalog(&Catalog::empty(), &self.connection).await?;
        }
        Ok(rows)
    }

    fn decode(&self, seq: Seq, record: &[u8]) -> Result<Job, TxError> {
        codec::job::decode(seq, record, &self.catalog.names).map_err(|_| TxError::damaged(seq))
    }

    fn jobs(&self, rows: &[Row]) -> Result<HashMap<Seq, Arc<Job>>, TxError> {
        let read = |row: &Row| {
            let seq = seq(row)?;
            Ok((seq, Arc::new(self.decode(seq, &get::<Vec<u8>>(row, 1)?)?)))
        };
        rows.iter().map(read).collect()
    }

    async fn get(&mut self, refs: &[JobRef]) -> Result<Vec<Option<Arc<Job>>>, TxError> {
        let node = self.node;
        let numbers = |catalog: &Catalog| -> Vec<i64> {
            let number = |job: &JobRef| i64::try_from(seq_of(job, catalog).0).ok();
            refs.iter().filter_map(number).collect()
        };
        let before = Arc::clone(&self.catalog);
        let rows = self.begin(vec![stmt!(node.sql.get_jobs, numbers(&before))]).await?.pop().unwrap_or_default();
        let rows = if self.catalog.version == before.version {
            rows
        } else {
            self.connection.query(stmt!(node.sql.get_jobs, numbers(&self.catalog))).await?
        };
        let jobs = self.jobs(&rows)?;
        let find = |job: &JobRef| {
            let found = jobs.get(&seq_of(job, &self.catalog));
            found.filter(|found| match job {
                JobRef::Id(id) => found.id == *id,
                JobRef::Seq(_) => true,
            })
        };
        let mut found: Vec<Option<Arc<Job>>> = refs.iter().map(|job| find(job).cloned()).collect();
        if self.catalog.has_imported_ids {
            self.get_imported(refs, &mut found).await?;
        }
        Ok(found)
    }

    /// Adds jobs that have the ids of another store.
    async fn get_imported(&mut self, refs: &[JobRef], found: &mut [Option<Arc<Job>>]) -> Result<(), TxError> {
        let node = self.node;
        let missing = refs.iter().zip(&*found).filter(|(_, found)| found.is_none());
        let ids: Vec<Vec<u8>> = missing
            .filter_map(|(job, _)| match job {
                JobRef::Id(id) => Some(id.as_bytes().to_vec()),
                JobRef::Seq(_) => None,
            })
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let rows = self.connection.query(stmt!(node.sql.imported_ids, ids)).await?;
        let numbers = rows.iter().map(|row| get::<i64>(row, 1)).collect::<Result<Vec<_>, _>>()?;
        let rows = self.connection.query(stmt!(node.sql.get_jobs, numbers)).await?;
        let jobs: HashMap<JobId, Arc<Job>> = self.jobs(&rows)?.into_values().map(|job| (job.id, job)).collect();
        for (job, found) in refs.iter().zip(found) {
            if let JobRef::Id(id) = job
                && found.is_none()
            {
                *found = jobs.get(id).cloned();
            }
        }
        Ok(())
    }

    async fn payloads(&mut self, jobs: &[Seq]) -> Result<Vec<Option<Payload>>, TxError> {
        let node = self.node;
        let numbers: Vec<i64> = jobs.iter().filter_map(|seq| i64::try_from(seq.0).ok()).collect();
        let rows = self.begin(vec![stmt!(node.sql.payloads, numbers)]).await?.pop().unwrap_or_default();
        let mut found = HashMap::new();
        for row in &rows {
            let seq = seq(row)?;
            found.insert(seq, payload(get(row, 1)?, get(row, 2)?, seq)?);
        }
        Ok(jobs.iter().map(|seq| found.get(seq).cloned()).collect())
    }

    /// Counts the jobs before a position, up to [`COUNTED_MAX`] per priority range.
    async fn count_ahead(&mut self, position: &QueuePosition) -> Result<u64, TxError> {
        let node = self.node;
        self.begin(Vec::new()).await?;
        let Some(queue) = self.catalog.queue_id(&position.queue) else { return Ok(0) };
        let ready_position = i64::try_from(position.position).unwrap_or(i64::MAX);
        let levels = |fits: &dyn Fn(Priority) -> bool| -> Vec<i16> {
            Priority::ALL.iter().copied().filter(|level| fits(*level)).map(|level| i16::from(level.level())).collect()
        };
        let (urgent, equal) = match position.priority {
            None => (Vec::new(), levels(&|_| true)),
            Some(own) => (levels(&|level| level < own), levels(&|level| level == own)),
        };
        let count = |levels: Vec<i16>, below: i64| stmt!(node.sql.count_ahead, queue, levels, below, COUNTED_MAX);
        let rows = self
            .connection
            .pipeline(&[count(urgent, i64::MAX), count(equal, ready_position)], TxBoundary::Inside)
            .await?;
        let mut ahead = 0;
        for rows in &rows {
            let counted: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
            ahead += counted.max(0).unsigned_abs();
        }
        Ok(ahead)
    }

    async fn queue_stats(&mut self, only: Option<&QueueName>) -> Result<Vec<QueueStats>, TxError> {
        let node = self.node;
        let rows = self.begin(vec![stmt!(node.sql.queue_counts)]).await?.pop().unwrap_or_default();
        let catalog = Arc::clone(&self.catalog);
        let is_included = |name: &QueueName| only.is_none_or(|only| only == name);
        let queues = catalog.queues.values().filter(|queue| queue.deleting.is_none() && is_included(&queue.name));
        let mut stats_by_id: BTreeMap<i32, QueueStats> = BTreeMap::new();
        for queue in queues {
            let Some(number) = catalog.queue_id(&queue.name) else { continue };
            let counts: StateCounts = Default::default();
            stats_by_id.insert(number, QueueStats { queue: Arc::clone(queue), counts, oldest_scheduled_at: None });
        }
        for row in &rows {
            let (queue, state, jobs): (i32, i16, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            let Some(stats) = stats_by_id.get_mut(&queue) else { continue };
            if let Some(count) = usize::try_from(state).ok().and_then(|state| stats.counts.get_mut(state)) {
                *count = jobs.max(0).unsigned_abs();
            }
        }
        let waiting = stats_by_id.iter().filter(|(_, stats)| count_of(&stats.counts, StateKind::Scheduled) > 0);
        let waiting: Vec<i32> = waiting.map(|(number, _)| *number).collect();
        if !waiting.is_empty() {
            for row in &self.connection.query(stmt!(node.sql.oldest_ready, waiting)).await? {
                let (queue, enqueued_at): (i32, Option<i64>) = (get(row, 0)?, get(row, 1)?);
                let unmoved: Option<i64> = get(row, 2)?;
                let scheduled_at = match unmoved {
                    Some(number) => {
                        let job = self.decode(Seq(number.cast_unsigned()), &get::<Vec<u8>>(row, 3)?)?;
                        job.scheduled_at
                    }
                    None => None,
                };
                if let Some(stats) = stats_by_id.get_mut(&queue) {
                    let candidates = enqueued_at.map(Timestamp::from_millis).into_iter().chain(scheduled_at);
                    stats.oldest_scheduled_at = stats.oldest_scheduled_at.into_iter().chain(candidates).min();
                }
            }
        }
        let mut stats_by_id: Vec<QueueStats> = stats_by_id.into_values().collect();
        stats_by_id.sort_by(|a, b| a.queue.name.cmp(&b.queue.name));
        Ok(stats_by_id)
    }

    /// A standby and a read-only database accept no jobs.
    async fn health(&mut self) -> Result<StoreHealth, TxError> {
        let node = self.node;
        let rows = self.begin(vec![stmt!(node.sql.is_writable)]).await?.pop().unwrap_or_default();
        let writable: Option<bool> = rows.first().map(|row| get(row, 0)).transpose()?;
        let refusing = (writable != Some(true)).then(|| {
            "PostgreSQL is a standby, or default_transaction_read_only is on (connect to the primary)".to_owned()
        });
        Ok(StoreHealth { refusing, ..StoreHealth::default() })
    }

    async fn ocypod_totals(&mut self) -> Result<Totals, TxError> {
        let node = self.node;
        let call = stmt!(node.sql.queue_counts_of, vec![TOTALS_QUEUE]);
        let rows = self.begin(vec![call]).await?.pop().unwrap_or_default();
        let mut totals = Totals::default();
        for row in &rows {
            let (field, number): (i16, i64) = (get(row, 1)?, get(row, 2)?);
            let field = match field {
                0 => &mut totals.created,
                1 => &mut totals.completed,
                2 => &mut totals.retried,
                3 => &mut totals.failed,
                4 => &mut totals.timed_out,
                5 => &mut totals.cancelled,
                _ => continue,
            };
            *field = number.max(0).unsigned_abs();
        }
        Ok(totals)
    }
}

fn seq_of(job: &JobRef, catalog: &Catalog) -> Seq {
    match job {
        JobRef::Id(id) => catalog.id_cipher.decrypt(*id),
        JobRef::Seq(seq) => *seq,
    }
}

impl StoreReader for PostgresStore {
    fn directive(&self, worker: Option<&WorkerName>) -> WorkerDirective {
        self.node.directives.get(worker)
    }

    fn reported_workers(&self, since: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>> {
        let node = Arc::clone(&self.node);
        self.run(async move { workers::reported(&node, since).await })
    }

    fn system_records(&self, query: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>> {
        let node = Arc::clone(&self.node);
        self.run(async move { system::records(&node, query).await })
    }

    fn system_version(&self, kind: SystemKind) -> StoreFuture<'_, u64> {
        let node = Arc::clone(&self.node);
        self.run(async move { system::version(&node, kind).await })
    }

    fn now(&self) -> Timestamp {
        self.node.clock.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        read_store!(self, |reads| reads.health())
    }

    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        let metrics = self.node.stats.metrics();
        Box::pin(async move { Ok(metrics) })
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        read_store!(self, |reads| reads.get(&jobs))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        read_store!(self, |reads| reads.payloads(&jobs))
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        read_store!(self, |reads| reads.list(&query))
    }

    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64> {
        read_store!(self, |reads| reads.count_ahead(&position))
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        read_store!(self, |reads| async { Ok(reads.queue_stats(Some(&name)).await?.pop()) })
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        read_store!(self, |reads| reads.ocypod_totals())
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        read_store!(self, |reads| reads.workflow(id))
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        read_store!(self, |reads| reads.workflows(&query))
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        read_store!(self, |reads| reads.members(&query))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        read_store!(self, |reads| reads.queue_stats(None))
    }
}
