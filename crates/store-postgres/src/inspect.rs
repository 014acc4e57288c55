//! Looking: each question gets a connection of its own from the pool, and nobody waits behind a lane.

mod listing;
mod workflows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::priority::Priority;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{StateCounts, count_of};
use longshore_store::{
    JobQuery, JobRef, MemberQuery, Page, QueuePosition, QueueStats, StoreError, StoreFuture, StoreHealth, StoreReader,
    WorkflowPage, WorkflowQuery,
};
use tokio_postgres::Row;

use crate::catalog::Catalog;
use crate::connection::{Connection, StatementCall, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::node::{Shared, TOTALS_QUEUE};
use crate::row::{payload, seq};
use crate::store::PostgresStore;
use longshore_store::ErrorMessage;

/// Rows that are looked at for one page; what is not found by then is found by the next one.
const EXAMINED_MAX: usize = 10_000;
/// Jobs in line that are counted one by one, from either end.
const COUNTED_MAX: i64 = 10_000;

struct ReadTransaction<'a> {
    shared: &'a Shared,
    link: Connection,
    known: Arc<Catalog>,
}

/// Goes once more with another connection where the first turned out to be dead: looking changes nothing.
macro_rules! read_store {
    ($store:expr, |$reads:ident| $look:expr) => {{
        let shared = Arc::clone(&$store.shared);
        let task = $store.handle.spawn(async move {
            let mut attempts = 3;
            loop {
                let mut opened = match ReadTransaction::open(&shared).await {
                    Ok(reads) => reads,
                    Err(error) => return Err(error.into_store_error()),
                };
                let $reads = &mut opened;
                let looked = $look.await;
                match looked {
                    Ok(answer) => {
                        return match opened.close().await {
                            Ok(()) => Ok(answer),
                            Err(error) => Err(error.into_store_error()),
                        };
                    }
                    Err(TxError::ConnectionLost(failed)) if attempts > 0 => {
                        drop(failed);
                        attempts -= 1;
                        opened.link.discard();
                    }
                    Err(error) => {
                        opened.link.discard();
                        return Err(error.into_store_error());
                    }
                }
            }
        });
        Box::pin(async move {
            let ended = || StoreError::not_applied(ErrorMessage("the store was closed".to_owned()));
            task.await.unwrap_or_else(|_| Err(ended()))
        })
    }};
}

impl<'a> ReadTransaction<'a> {
    async fn open(shared: &'a Shared) -> Result<Self, TxError> {
        Ok(Self { shared, link: shared.read_connection().await?, known: shared.known() })
    }

    async fn close(self) -> Result<(), TxError> {
        self.link.pipeline(&[], TxBoundary::Commit).await.map(drop)
    }

    /// The first look; all that follow see the same moment. What is known of queues is that moment's, too.
    async fn begin(&mut self, orders: Vec<StatementCall<'_>>) -> Result<Vec<Vec<Row>>, TxError> {
        let shared = self.shared;
        let mut all = vec![stmt!(shared.sql.load_settings)];
        all.extend(orders);
        let mut rows = self.link.pipeline(&all, TxBoundary::BeginReadOnly).await?;
        let settings = rows.remove(0);
        let version: Option<i64> = settings.first().map(|row| get(row, 0)).transpose()?;
        if version != Some(self.known.version) {
            self.known = self.shared.refresh_catalog(&Catalog::empty(), &self.link).await?;
        }
        Ok(rows)
    }

    fn decode(&self, seq: Seq, record: &[u8]) -> Result<Job, TxError> {
        codec::job::decode(seq, record, &self.known.names).map_err(|_| TxError::damaged(seq))
    }

    fn jobs(&self, rows: &[Row]) -> Result<HashMap<Seq, Arc<Job>>, TxError> {
        let read = |row: &Row| {
            let seq = seq(row)?;
            Ok((seq, Arc::new(self.decode(seq, &get::<Vec<u8>>(row, 1)?)?)))
        };
        rows.iter().map(read).collect()
    }

    async fn get(&mut self, refs: &[JobRef]) -> Result<Vec<Option<Arc<Job>>>, TxError> {
        let shared = self.shared;
        let numbers = |known: &Catalog| -> Vec<i64> {
            let number = |job: &JobRef| i64::try_from(seq_of(job, known).0).ok();
            refs.iter().filter_map(number).collect()
        };
        let before = Arc::clone(&self.known);
        let rows = self.begin(vec![stmt!(shared.sql.get, numbers(&before))]).await?.pop().unwrap_or_default();
        let rows = if self.known.version == before.version {
            rows
        } else {
            self.link.query(stmt!(shared.sql.get, numbers(&self.known))).await?
        };
        let jobs = self.jobs(&rows)?;
        let find = |job: &JobRef| {
            let found = jobs.get(&seq_of(job, &self.known));
            found.filter(|found| match job {
                JobRef::Id(id) => found.id == *id,
                JobRef::Seq(_) => true,
            })
        };
        let mut found: Vec<Option<Arc<Job>>> = refs.iter().map(|job| find(job).cloned()).collect();
        if self.known.has_imported_ids {
            self.get_foreign(refs, &mut found).await?;
        }
        Ok(found)
    }

    /// Jobs that kept the ids of another store.
    async fn get_foreign(&mut self, refs: &[JobRef], found: &mut [Option<Arc<Job>>]) -> Result<(), TxError> {
        let shared = self.shared;
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
        let rows = self.link.query(stmt!(shared.sql.foreign_ids, ids)).await?;
        let numbers = rows.iter().map(|row| get::<i64>(row, 1)).collect::<Result<Vec<_>, _>>()?;
        let rows = self.link.query(stmt!(shared.sql.get, numbers)).await?;
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
        let shared = self.shared;
        let numbers: Vec<i64> = jobs.iter().filter_map(|seq| i64::try_from(seq.0).ok()).collect();
        let rows = self.begin(vec![stmt!(shared.sql.payloads, numbers)]).await?.pop().unwrap_or_default();
        let mut found = HashMap::new();
        for row in &rows {
            let seq = seq(row)?;
            found.insert(seq, payload(get(row, 1)?, get(row, 2)?, seq)?);
        }
        Ok(jobs.iter().map(|seq| found.get(seq).cloned()).collect())
    }

    /// Counted from the nearer end of the line; of a very long line the middle is estimated.
    async fn ahead(&mut self, place: &QueuePosition) -> Result<u64, TxError> {
        let shared = self.shared;
        self.begin(Vec::new()).await?;
        let Some(queue) = self.known.queue_id(&place.queue) else { return Ok(0) };
        let position = i64::try_from(place.position).unwrap_or(i64::MAX);
        let levels = |fits: &dyn Fn(Priority) -> bool| -> Vec<i16> {
            Priority::ALL.iter().copied().filter(|level| fits(*level)).map(|level| i16::from(level.level())).collect()
        };
        let (urgent, equal) = match place.priority {
            None => (Vec::new(), levels(&|_| true)),
            Some(own) => (levels(&|level| level < own), levels(&|level| level == own)),
        };
        let count = |levels: Vec<i16>, below: i64| stmt!(shared.sql.ahead, queue, levels, below, COUNTED_MAX);
        let rows = self.link.pipeline(&[count(urgent, i64::MAX), count(equal, position)], TxBoundary::Inside).await?;
        let mut ahead = 0;
        for rows in &rows {
            let counted: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
            ahead += counted.max(0).unsigned_abs();
        }
        Ok(ahead)
    }

    async fn reports(&mut self, only: Option<&QueueName>) -> Result<Vec<QueueStats>, TxError> {
        let shared = self.shared;
        let rows = self.begin(vec![stmt!(shared.sql.counts)]).await?.pop().unwrap_or_default();
        let known = Arc::clone(&self.known);
        let wanted = |name: &QueueName| only.is_none_or(|only| only == name);
        let queues = known.queues.values().filter(|queue| queue.deleting.is_none() && wanted(&queue.name));
        let mut reports: BTreeMap<i32, QueueStats> = BTreeMap::new();
        for queue in queues {
            let Some(number) = known.queue_id(&queue.name) else { continue };
            let counts: StateCounts = Default::default();
            reports.insert(number, QueueStats { queue: Arc::clone(queue), counts, oldest_scheduled_at: None });
        }
        for row in &rows {
            let (queue, state, jobs): (i32, i16, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            let Some(report) = reports.get_mut(&queue) else { continue };
            if let Some(count) = usize::try_from(state).ok().and_then(|state| report.counts.get_mut(state)) {
                *count = jobs.max(0).unsigned_abs();
            }
        }
        let waiting = reports.iter().filter(|(_, report)| count_of(&report.counts, StateKind::Scheduled) > 0);
        let waiting: Vec<i32> = waiting.map(|(number, _)| *number).collect();
        if !waiting.is_empty() {
            for row in &self.link.query(stmt!(shared.sql.oldest, waiting)).await? {
                let (queue, came): (i32, Option<i64>) = (get(row, 0)?, get(row, 1)?);
                let fresh: Option<i64> = get(row, 2)?;
                let born = match fresh {
                    Some(number) => {
                        let job = self.decode(Seq(number.cast_unsigned()), &get::<Vec<u8>>(row, 3)?)?;
                        job.scheduled_at
                    }
                    None => None,
                };
                if let Some(report) = reports.get_mut(&queue) {
                    let candidates = came.map(Timestamp::from_millis).into_iter().chain(born);
                    report.oldest_scheduled_at = report.oldest_scheduled_at.into_iter().chain(candidates).min();
                }
            }
        }
        let mut reports: Vec<QueueStats> = reports.into_values().collect();
        reports.sort_by(|a, b| a.queue.name.cmp(&b.queue.name));
        Ok(reports)
    }

    /// A standby, and a database that is set to read only, take no jobs.
    async fn health(&mut self) -> Result<StoreHealth, TxError> {
        let shared = self.shared;
        let rows = self.begin(vec![stmt!(shared.sql.writable)]).await?.pop().unwrap_or_default();
        let writable: Option<bool> = rows.first().map(|row| get(row, 0)).transpose()?;
        let refusing = (writable != Some(true)).then(|| {
            "PostgreSQL is a standby, or default_transaction_read_only is on: connect to a server that takes writes"
                .to_owned()
        });
        Ok(StoreHealth { refusing, ..StoreHealth::default() })
    }

    async fn ocypod_totals(&mut self) -> Result<Totals, TxError> {
        let shared = self.shared;
        let order = stmt!(shared.sql.counts_of, vec![TOTALS_QUEUE]);
        let rows = self.begin(vec![order]).await?.pop().unwrap_or_default();
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

fn seq_of(job: &JobRef, known: &Catalog) -> Seq {
    match job {
        JobRef::Id(id) => known.seal.decrypt(*id),
        JobRef::Seq(seq) => *seq,
    }
}

impl StoreReader for PostgresStore {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        read_store!(self, |reads| reads.health())
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

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        read_store!(self, |reads| reads.ahead(&place))
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        read_store!(self, |reads| async { Ok(reads.reports(Some(&name)).await?.pop()) })
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
        read_store!(self, |reads| reads.reports(None))
    }
}
