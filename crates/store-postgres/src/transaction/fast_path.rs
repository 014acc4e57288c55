//! The fast path: an optimistic transaction in one round trip.
//!
//! The rules run on cached rows (`node_cache.rs`). One SQL function then compares every row with
//! its cached version and applies the result, or changes nothing. A request uses the slow path if
//! it needs rows that are not cached, or if it leaves a cached row unchanged: only rows that are
//! written are validated.

use std::time::Duration;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use longshore_engine::PayloadSource;
use tokio_postgres::Row;

use super::claim_scan::Claims;
use super::classify::{CommitSummary, CountDeltas, first_position};
use super::job_columns::JobColumns;
use super::write::COPY_THRESHOLD;
use super::{Committed, Evaluation, Transaction, totals_of};
use crate::connection::{Blob, Connection, SqlValue, StatementCall, TxBoundary, get};
use crate::error::{ErrorMessage, TxError};
use crate::node::{Node, TOTALS_QUEUE};
use crate::node_cache::{CommittedRows, FinishedScan, ReadyPosition, START, ScanCoverage};
use crate::read_set::ReadSet;
use crate::request::{TxRequest, TxResponse};
use crate::row::kind_of;

/// What all requests of a batch have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchKind {
    Submit,
    /// Claims, settlements and heartbeats.
    Work,
}

/// Returns `None` if nothing was applied.
pub(crate) async fn execute(
    node: &Node,
    connection: &Connection,
    requests: &[TxRequest],
) -> Result<Option<Committed>, TxError> {
    let Some(kind) = kind_of_all(requests).filter(|_| connection.supports_copy()) else { return Ok(None) };
    let begin =
        || Transaction { now: node.clock.estimate(), ..Transaction::new(node, connection, false, Duration::ZERO) };
    match kind {
        BatchKind::Submit => {
            let block = node.cache.seq_block();
            if let Some(committed) = begin().fast_submit(requests).await? {
                return Ok(Some(committed));
            }
            if node.cache.seq_block() == block {
                return Ok(None);
            }
            // Another node had allocated a block. The first call has allocated a newer one.
            begin().fast_submit(requests).await
        }
        BatchKind::Work => begin().fast_work(requests).await,
    }
}

fn kind_of_all(requests: &[TxRequest]) -> Option<BatchKind> {
    let mut kinds = requests.iter().map(|request| match request {
        TxRequest::Submit(..) => Some(BatchKind::Submit),
        TxRequest::Claim(..) | TxRequest::Settle(..) | TxRequest::SettleAndClaim(..) | TxRequest::Heartbeat(..) => {
            Some(BatchKind::Work)
        }
        TxRequest::Admin(..) | TxRequest::Tick(..) | TxRequest::System(..) => None,
    });
    let first = kinds.next()??;
    kinds.all(|kind| kind == Some(first)).then_some(first)
}

/// What the rules made of cached rows.
struct FastWork {
    committed: Committed,
    claimed: JobColumns,
    finished: JobColumns,
    heartbeats: JobColumns,
    counts: CountDeltas,
    /// Position of the first claimed job.
    first: Option<ReadyPosition>,
}

impl Transaction<'_> {
    async fn fast_submit(&mut self, requests: &[TxRequest]) -> Result<Option<Committed>, TxError> {
        let jobs: usize = requests.iter().map(TxRequest::commands).sum();
        let needs_reads = !self.job_seqs_of(requests).is_empty() || !self.capacity_limited_queues(requests).is_empty();
        if jobs >= COPY_THRESHOLD || needs_reads || !self.is_catalog_loaded() {
            return Ok(None);
        }
        let count = u64::try_from(jobs).unwrap_or(u64::MAX);
        // Without a block, the call only allocates one.
        let (block, first_seq) = self.node.cache.allocate_seqs(count).unwrap_or((0, 0));
        self.first_seq = Some(first_seq);
        let read_set = ReadSet::default();
        // The slow path reports errors of the rules.
        let Ok((evaluation, missing)) = self.evaluate(requests, &read_set) else { return Ok(None) };
        let allocated = evaluation.engine.next_seq() - first_seq;
        if missing.is_some() || allocated > count || !evaluation.working_set.only_job_rows() {
            return Ok(None);
        }
        let mut changes = self.classify(&evaluation, &self.catalog, &read_set)?;
        let inserted = std::mem::take(&mut changes.inserted);
        if !changes.is_empty() {
            return Ok(None);
        }
        let (mut kinds, mut payloads) = (Vec::with_capacity(jobs), Vec::with_capacity(jobs));
        for source in evaluation.working_set.inserted.values() {
            let PayloadSource::New(payload) = source else { return Ok(None) };
            kinds.push(kind_of(payload));
            payloads.push(Blob(payload.bytes().clone()));
        }
        let (committed, counts) = finish(evaluation, changes.summary, self.now);
        let ready = inserted.first_positions();
        let Some(inserted) = inserted.into_new_job_values() else { return Ok(None) };
        let mut values = self.preconditions();
        values.push(Box::new(block.cast_signed()));
        values.extend(inserted);
        values.extend([Box::new(kinds) as SqlValue, Box::new(payloads)]);
        values.extend(counts.into_values());
        let call = StatementCall { sql: &self.node.sql.fast_submit, values };
        let rows = self.connection.pipeline(&[call], TxBoundary::SingleStatement).await?.pop().unwrap_or_default();
        let response = rows.first().ok_or_else(no_response)?;
        if self.is_applied(response, 0)? {
            self.node.cache.apply(CommittedRows { ready, ..CommittedRows::default() });
            return Ok(Some(committed));
        }
        if let Some(block) = get::<Option<i64>>(response, 2)? {
            self.node.cache.store_seq_block(block.cast_unsigned(), 0);
        }
        Ok(None)
    }

    async fn fast_work(&mut self, requests: &[TxRequest]) -> Result<Option<Committed>, TxError> {
        let cache = &self.node.cache;
        let seqs: Vec<Seq> = self.job_seqs_of(requests).into_iter().map(|seq| Seq(seq.cast_unsigned())).collect();
        self.claims.first_scans(requests, &self.catalog);
        let head_claim = self.head_claim(requests);
        if (!self.claims.is_empty() && head_claim.is_none()) || !cache.has_running(&seqs) {
            return Ok(None);
        }
        let queue_id = head_claim.map(|(queue_id, _)| queue_id);
        let ticket = cache.begin_scan(queue_id.into_iter());
        let scan_start = queue_id.and_then(|queue_id| self.scan_start(queue_id));
        let mut read_set = ReadSet::default();
        if let Some((queue_id, length)) = head_claim {
            // The slow path makes the full scans.
            if scan_start.is_none() && !self.node.clock.is_virtual() {
                return Ok(None);
            }
            let Some(head) = cache.take_head(queue_id, length) else { return Ok(None) };
            head.into_iter().for_each(|(seq, row)| read_set.add(seq, row));
        }
        let head = read_set.order.clone();
        cache.take_running(&seqs).into_iter().for_each(|(seq, row)| read_set.add(seq, row));
        let Some(work) = self.evaluate_work(requests, &read_set, head_claim)? else { return Ok(None) };
        let prefetch =
            head_claim.map_or(0, |(queue_id, length)| cache.prefetch_size(queue_id, length, read_set.payload_bytes()));
        let Some(claimed) = work.claimed.in_order(&head) else { return Ok(None) };
        let running = claimed.running_rows().into_iter().chain(work.heartbeats.running_rows()).collect();
        let from = scan_start.unwrap_or(START);
        let [finished_records, heartbeat_records, claimed_records] =
            [&work.finished, &work.heartbeats, &claimed].map(|rows| expected_records(rows, &read_set));
        let mut values = self.preconditions();
        values.extend(work.finished.into_finished_values());
        values.push(finished_records);
        values.extend(work.heartbeats.into_heartbeat_values());
        values.push(heartbeat_records);
        values.extend([Box::new(queue_id) as SqlValue, Box::new(from.0), Box::new(from.1)]);
        values.extend(claimed.into_claimed_values());
        values.push(claimed_records);
        values.extend(work.counts.into_values());
        values.push(Box::new(i64::try_from(prefetch).unwrap_or(i64::MAX)));
        let on_mispredict = || queue_id.into_iter().for_each(|queue_id| cache.on_mispredict(queue_id));
        let call = StatementCall { sql: &self.node.sql.fast_work, values };
        let rows = self.connection.pipeline(&[call], TxBoundary::SingleStatement).await;
        let rows = rows.inspect_err(|_| on_mispredict())?.pop().unwrap_or_default();
        let (response, next) = rows.split_first().ok_or_else(no_response)?;
        if !self.is_applied(response, 10)? {
            on_mispredict();
            return Ok(None);
        }
        cache.apply(CommittedRows { running, ..CommittedRows::default() });
        if let (Some(queue_id), Some(first)) = (queue_id, work.first) {
            let (coverage, head) = (ScanCoverage { full: false, partial: true }, (prefetch > 0).then_some(next));
            cache.finish_scan(&FinishedScan { queue_id, ticket, first, coverage, now: self.now, head });
        }
        Ok(Some(work.committed))
    }

    /// Runs the rules on cached rows. Returns `None` unless the result is only claims, finished
    /// jobs and heartbeats, and writes every cached row.
    fn evaluate_work(
        &self,
        requests: &[TxRequest],
        read_set: &ReadSet,
        head_claim: Option<(i32, usize)>,
    ) -> Result<Option<FastWork>, TxError> {
        let Ok((evaluation, missing)) = self.evaluate(requests, read_set) else { return Ok(None) };
        let length = head_claim.map_or(0, |(_, length)| length);
        let claimed = evaluation.answers.iter().filter_map(TxResponse::claimed);
        let claimed_all = claimed.map(<[_]>::len).sum::<usize>() == length;
        let allocates_seqs = evaluation.engine.next_seq() > 0;
        if missing.is_some() || !claimed_all || allocates_seqs || !evaluation.working_set.only_job_rows() {
            return Ok(None);
        }
        let mut changes = self.classify(&evaluation, &self.catalog, read_set)?;
        let [claimed, finished, heartbeats] =
            [&mut changes.claimed, &mut changes.finished, &mut changes.heartbeats].map(std::mem::take);
        if !changes.is_empty() {
            return Ok(None);
        }
        // A row that is not written is not validated: a refusal because of it might be wrong.
        if claimed.seq.len() + finished.seq.len() + heartbeats.seq.len() < read_set.rows.len() {
            return Ok(None);
        }
        let queue = head_claim.and_then(|(queue_id, _)| self.catalog.name_of(queue_id));
        let first = queue.and_then(|queue| first_position(&evaluation, read_set, queue));
        let (committed, counts) = finish(evaluation, changes.summary, self.now);
        Ok(Some(FastWork { committed, claimed, finished, heartbeats, counts, first }))
    }

    /// The queue whose first jobs all claims want, and how many. `None` if claims differ.
    pub(super) fn head_claim(&self, requests: &[TxRequest]) -> Option<(i32, usize)> {
        let scans = Claims::default().first_scans(requests, &self.catalog);
        let jobs: usize = requests.iter().filter_map(TxRequest::claim).map(|claim| claim.limit).sum();
        match scans.as_slice() {
            [scan] => scan.is_head_of(jobs).then_some((scan.queue_id(), jobs)),
            [] | [_, ..] => None,
        }
    }

    fn is_catalog_loaded(&self) -> bool {
        self.catalog.version > 0
    }

    /// Values that every call compares first.
    fn preconditions(&self) -> Vec<SqlValue> {
        let assumed_now = (!self.node.clock.is_virtual()).then(|| self.now.as_millis());
        vec![Box::new(self.node.lock_key), Box::new(self.catalog.version), Box::new(assumed_now)]
    }

    /// Reads `applied` and the database clock, which follows it.
    fn is_applied(&self, response: &Row, column: usize) -> Result<bool, TxError> {
        // The statement may have been applied.
        let unknown = |_: TxError| TxError::Unknown(ErrorMessage("unreadable response of the fast path".to_owned()));
        self.node.sync_clock(get(response, column + 1).map_err(unknown)?);
        get(response, column).map_err(unknown)
    }
}

fn no_response() -> TxError {
    TxError::Unknown(ErrorMessage("empty response of the fast path".to_owned()))
}

/// Returns what is published after the commit, and the count deltas.
fn finish(evaluation: Evaluation<'_>, mut summary: CommitSummary, now: Timestamp) -> (Committed, CountDeltas) {
    let mut counts = std::mem::take(&mut summary.counts);
    if let Some(totals) = totals_of(&evaluation.effects) {
        counts.add_all(TOTALS_QUEUE, &totals);
    }
    (evaluation.into_committed(&summary, now), counts)
}

/// The cached records, in the order of the rows.
fn expected_records(rows: &JobColumns, read_set: &ReadSet) -> SqlValue {
    let record = |seq: &i64| read_set.rows.get(&Seq(seq.cast_unsigned())).map(|row| row.record.clone());
    let records: Vec<Vec<u8>> = rows.seq.iter().map(|seq| record(seq).unwrap_or_default()).collect();
    Box::new(records)
}
