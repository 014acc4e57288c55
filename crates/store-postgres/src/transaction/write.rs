//! The slow path's writes. All statements go in one round trip with the commit. Every statement
//! finds its rows as the transaction has read them, or the transaction aborts.

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::policy::{IdempotencyScope, SubmitMode};
use longshore_core::time::Timestamp;
use longshore_engine::{KeyEntry, PayloadSource, Queue};
use longshore_store::query::TermFields;
use tokio_postgres::types::{ToSql, Type};

use super::classify::{CommitSummary, RowChanges, first_position};
use super::job_columns::JobColumns;
use super::{Committed, Evaluation, Transaction, totals_of};
use crate::catalog::Catalog;
use crate::connection::{Blob, StatementCall, TxBoundary, stmt};
use crate::error::TxError;
use crate::node::TOTALS_QUEUE;
use crate::node_cache::{CommittedRows, FinishedScan};
use crate::read_set::ReadSet;
use crate::request::TxRequest;
use crate::row::kind_of;
use crate::statements::Statements;
use crate::working_set::WorkingSet;

/// From this many new jobs on, a COPY is faster in spite of its round trips.
pub(super) const COPY_THRESHOLD: usize = 100;

impl Transaction<'_> {
    pub(super) async fn write(
        self,
        requests: &[TxRequest],
        mut evaluation: Evaluation<'_>,
        read_set: &ReadSet,
    ) -> Result<Committed, TxError> {
        let sql = &self.node.sql;
        let mut catalog = std::sync::Arc::clone(&self.catalog);
        let mut statements = Vec::new();
        let changes_queues = !evaluation.working_set.queues.is_empty();
        if changes_queues {
            let names = std::mem::take(&mut evaluation.working_set.names);
            let queues = evaluation.engine.all_queues().clone();
            catalog = Catalog { names, queues, ..Catalog::clone(&self.catalog) }.into();
            self.write_queues(&evaluation.working_set, &catalog, &mut statements)?;
        }
        let changes = self.classify(&evaluation, &catalog, read_set)?;
        let cached = committed_rows(&changes);
        let (inserted, mut summary) = write_jobs(changes, &mut statements, sql);
        self.insert(inserted, &evaluation.working_set, &mut statements).await?;
        self.write_removals(&evaluation.working_set, &catalog, read_set, &mut statements, &mut summary);
        self.write_terms_and_edges(&evaluation.working_set, &catalog, &mut statements);
        self.write_keys(&evaluation.working_set, read_set, &mut statements);
        evaluation.working_set.system.write(&self.system, &mut statements, sql);
        self.write_workflows(&evaluation.working_set.workflows, read_set, &mut statements);
        for (queue_id, deltas) in std::mem::take(&mut summary.counts).into_changed() {
            statements.push(stmt!(sql.add_counts, queue_id, deltas.to_vec()));
        }
        if let Some(totals) = totals_of(&evaluation.effects) {
            statements.push(stmt!(sql.add_counts, TOTALS_QUEUE, totals));
        }
        let head_claim = self.head_claim(requests).filter(|_| self.connection.supports_copy());
        let first =
            head_claim.and_then(|(id, _)| Some((id, first_position(&evaluation, read_set, catalog.name_of(id)?)?)));
        let prefetch = head_claim.map_or(0, |(queue_id, jobs)| self.prefetch_size(queue_id, jobs, read_set));
        if let Some((queue_id, position)) = first.filter(|_| prefetch > 0) {
            statements.push(stmt!(sql.prefetch_head, queue_id, prefetch, position.0, position.1));
        }
        let mut rows = self.connection.pipeline(&statements, TxBoundary::Commit).await?;
        if changes_queues {
            let mut catalog = Catalog::clone(&catalog);
            catalog.names.committed();
            catalog.version += 1;
            self.node.publish_catalog(catalog);
        }
        let cache = &self.node.cache;
        cache.apply(cached);
        if let (Some((queue_id, first)), Some(ticket)) = (first, self.scan_ticket) {
            let head = if prefetch > 0 { rows.pop() } else { None };
            let (coverage, head) = (self.claims.coverage, head.as_deref());
            cache.finish_scan(&FinishedScan { queue_id, ticket, first, coverage, now: self.now, head });
        }
        if let Some(first_seq) = self.first_seq {
            cache.store_seq_block(first_seq, evaluation.engine.next_seq() - first_seq);
        }
        Ok(evaluation.into_committed(&summary, self.now))
    }

    /// How many of the next jobs of the queue to read for the next claim.
    fn prefetch_size(&self, queue_id: i32, jobs: usize, read_set: &ReadSet) -> i64 {
        // Claims that were not served in full have seen the end of the queue.
        let served = read_set.order.len() >= jobs;
        let bytes = read_set.payload_bytes();
        let prefetch = if served { self.node.cache.prefetch_size(queue_id, jobs, bytes) } else { 0 };
        i64::try_from(prefetch).unwrap_or(0)
    }

    fn write_queues<'o>(
        &'o self,
        working_set: &WorkingSet<'_>,
        catalog: &Catalog,
        statements: &mut Vec<StatementCall<'o>>,
    ) -> Result<(), TxError> {
        let sql = &self.node.sql;
        for (kind, number, value) in catalog.names.unsaved() {
            let (number, value) = (i32::try_from(number).unwrap_or(i32::MAX), value.ok_or(TxError::NotStorable)?);
            if kind == 0 {
                let name = String::from_utf8(value).map_err(|_| TxError::NotStorable)?;
                statements.push(stmt!(sql.add_queue_name, number, name));
            } else {
                statements.push(stmt!(sql.add_policy, number, value));
            }
        }
        for (name, queue) in &working_set.queues {
            let queue_id = catalog.queue_id(name).ok_or(TxError::NotStorable)?;
            match queue {
                Some(queue) => {
                    let record = codec::policy::encode_queue(queue).map_err(|_| TxError::NotStorable)?;
                    let policy = catalog.names.policy_number(&queue.policy).ok_or(TxError::NotStorable)?;
                    statements.push(stmt!(sql.put_queue, queue_id, record, admission_json(queue, policy)));
                }
                None => statements.push(stmt!(sql.remove_queue, queue_id)),
            }
        }
        statements.push(stmt!(sql.bump_catalog_version));
        Ok(())
    }

    /// Inserts new jobs and their payloads: few as part of the last round trip, many by COPY.
    async fn insert<'o>(
        &'o self,
        inserted: JobColumns,
        working_set: &WorkingSet<'_>,
        statements: &mut Vec<StatementCall<'o>>,
    ) -> Result<(), TxError> {
        let sql = &self.node.sql;
        if inserted.seq.len() < COPY_THRESHOLD || !self.connection.supports_copy() || !statements.is_empty() {
            inserted.insert(statements, sql);
            let (mut seqs, mut kinds, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
            for (seq, kind, bytes) in self.new_payloads(working_set, statements) {
                seqs.push(seq);
                kinds.push(kind);
                payloads.push(bytes);
            }
            if !seqs.is_empty() {
                statements.push(stmt!(sql.insert_payloads, seqs, kinds, payloads));
            }
            return Ok(());
        }
        inserted.copy(self.connection, sql).await?;
        let payloads = self.new_payloads(working_set, statements);
        let rows = payloads.iter().map(|(seq, kind, bytes)| vec![seq as &(dyn ToSql + Sync), kind, bytes]);
        self.connection.copy(&sql.copy_payloads, &[Type::INT8, Type::INT2, Type::BYTEA], rows).await
    }

    /// Returns the payloads that requests carry. Payloads of clones are copied by a statement.
    fn new_payloads<'o>(
        &'o self,
        working_set: &WorkingSet<'_>,
        statements: &mut Vec<StatementCall<'o>>,
    ) -> Vec<(i64, i16, Blob)> {
        let mut payloads = Vec::with_capacity(working_set.inserted.len());
        for (seq, source) in &working_set.inserted {
            let seq = seq.0.cast_signed();
            match source {
                PayloadSource::New(payload) => {
                    payloads.push((seq, kind_of(payload), Blob(payload.bytes().clone())));
                }
                PayloadSource::CopyOf(original) => {
                    statements.push(stmt!(self.node.sql.copy_payload, seq, original.0.cast_signed()));
                }
            }
        }
        payloads
    }

    fn write_removals<'o>(
        &'o self,
        working_set: &WorkingSet<'_>,
        catalog: &Catalog,
        read_set: &ReadSet,
        statements: &mut Vec<StatementCall<'o>>,
        summary: &mut CommitSummary,
    ) {
        let sql = &self.node.sql;
        let mut removed = Vec::new();
        let mut external: (Vec<i32>, Vec<String>, Vec<i64>) = Default::default();
        let (mut dependencies, mut dependents) = (Vec::new(), Vec::new());
        for (seq, job) in &working_set.removed {
            // A job that this transaction has created was never stored.
            let (Some(_), Some(original)) = (read_set.rows.get(seq), working_set.before.get(seq)) else { continue };
            let queue_id = catalog.queue_id(&job.queue).unwrap_or(-1);
            summary.counts.add(queue_id, original.state, original.held, -1);
            removed.push(seq.0.cast_signed());
            if let Some(external_id) = &job.external_id {
                external.0.push(queue_id);
                external.1.push(external_id.to_string());
                external.2.push(seq.0.cast_signed());
            }
            for dependency in job.dependencies.all() {
                dependencies.push(catalog.id_cipher.decrypt(dependency).0.cast_signed());
                dependents.push(seq.0.cast_signed());
            }
        }
        if removed.is_empty() {
            return;
        }
        let rows = row_count(&removed);
        statements.push(stmt!(sql.remove_jobs, removed, rows));
        if !external.0.is_empty() {
            statements.push(stmt!(sql.remove_external_ids, external.0, external.1, external.2));
        }
        if !dependents.is_empty() {
            statements.push(stmt!(sql.remove_edges, dependencies, dependents));
        }
    }

    /// Writes search terms, external ids and dependency edges.
    fn write_terms_and_edges<'o>(
        &'o self,
        working_set: &WorkingSet<'_>,
        catalog: &Catalog,
        statements: &mut Vec<StatementCall<'o>>,
    ) {
        let sql = &self.node.sql;
        let (mut removed, mut added) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut external: (Vec<i32>, Vec<String>, Vec<i64>) = Default::default();
        for seq in working_set.changed.iter().chain(working_set.removed.keys()) {
            let after = working_set.job(*seq);
            let before = working_set.before.get(seq).map(|original| &original.indexed);
            if after.is_some_and(|job| before.is_some_and(|before| before.are_those_of(job))) {
                continue;
            }
            let before = before.map(TermFields::terms).unwrap_or_default();
            let after = after.map(|job| TermFields::of(job).terms()).unwrap_or_default();
            for (of, without, (terms, seqs)) in [(&before, &after, &mut removed), (&after, &before, &mut added)] {
                for term in of.difference(without) {
                    terms.push(term.clone());
                    seqs.push(seq.0.cast_signed());
                }
            }
        }
        for seq in working_set.inserted.keys() {
            let Some(job) = working_set.job(*seq) else { continue };
            if let Some(external_id) = &job.external_id {
                external.0.push(catalog.queue_id(&job.queue).unwrap_or(-1));
                external.1.push(external_id.to_string());
                external.2.push(seq.0.cast_signed());
            }
        }
        if !removed.0.is_empty() {
            statements.push(stmt!(sql.remove_tags, removed.0, removed.1));
        }
        if !added.0.is_empty() {
            statements.push(stmt!(sql.insert_tags, added.0, added.1));
        }
        if !external.0.is_empty() {
            let rows = row_count(&external.0);
            statements.push(stmt!(sql.insert_external_ids, external.0, external.1, external.2, rows));
        }
        let signed = |(from, to): &(Seq, Seq)| (from.0.cast_signed(), to.0.cast_signed());
        if !working_set.removed_edges.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) = working_set.removed_edges.iter().map(signed).unzip();
            statements.push(stmt!(sql.remove_edges, from, to));
        }
        if !working_set.added_edges.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) = working_set.added_edges.iter().map(signed).unzip();
            statements.push(stmt!(sql.insert_edges, from, to));
        }
    }

    fn write_keys<'o>(
        &'o self,
        working_set: &WorkingSet<'_>,
        read_set: &ReadSet,
        statements: &mut Vec<StatementCall<'o>>,
    ) {
        let sql = &self.node.sql;
        let (mut inserted, mut updated, mut removed) = (KeyColumns::default(), KeyColumns::default(), Vec::new());
        for (key, entry) in &working_set.keys {
            let before = read_set.keys.get(key).copied().flatten();
            match (before, entry) {
                (None, Some(entry)) => inserted.push(codec::key::encode(key), entry, None),
                (Some(before), Some(entry)) => updated.push(codec::key::encode(key), entry, Some(before.seq)),
                (Some(_), None) => removed.push(codec::key::encode(key)),
                (None, None) => {}
            }
        }
        if !inserted.paths.is_empty() {
            let rows = row_count(&inserted.paths);
            let KeyColumns { paths, seqs, ids, ats, prune_ats, .. } = inserted;
            statements.push(stmt!(sql.insert_keys, paths, seqs, ids, ats, prune_ats, rows));
        }
        if !updated.paths.is_empty() {
            let rows = row_count(&updated.paths);
            let KeyColumns { paths, seqs, ids, ats, prune_ats, expected_seqs } = updated;
            statements.push(stmt!(sql.update_keys, paths, seqs, ids, ats, prune_ats, expected_seqs, rows));
        }
        if !removed.is_empty() {
            statements.push(stmt!(sql.remove_keys, removed));
        }
    }
}

pub(super) fn row_count<T>(rows: &[T]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}

/// Rows of the table `idempotency_keys`, column by column.
#[derive(Default)]
struct KeyColumns {
    paths: Vec<Vec<u8>>,
    seqs: Vec<i64>,
    ids: Vec<Vec<u8>>,
    ats: Vec<i64>,
    prune_ats: Vec<Option<i64>>,
    expected_seqs: Vec<i64>,
}

impl KeyColumns {
    fn push(&mut self, path: Vec<u8>, entry: &KeyEntry, expected_seq: Option<Seq>) {
        self.paths.push(path);
        self.seqs.push(entry.seq.0.cast_signed());
        self.ids.push(entry.id.as_bytes().to_vec());
        self.ats.push(entry.at.as_millis());
        self.prune_ats.push(entry.prune_at.map(Timestamp::as_millis));
        self.expected_seqs.extend(expected_seq.map(|seq| seq.0.cast_signed()));
    }
}

/// What the node cache learns from these rows once they are committed.
fn committed_rows(changes: &RowChanges) -> CommittedRows {
    let RowChanges { inserted, updated, heartbeats, claimed, finished, .. } = changes;
    CommittedRows {
        stopped: [updated, finished].into_iter().flat_map(|rows| rows.seq.clone()).collect(),
        running: [claimed, heartbeats].into_iter().flat_map(JobColumns::running_rows).collect(),
        ready: [updated, inserted].into_iter().flat_map(JobColumns::first_positions).collect(),
    }
}

/// Adds the statements of stored jobs. Returns the new jobs, which may need a COPY.
fn write_jobs<'o>(
    changes: RowChanges,
    statements: &mut Vec<StatementCall<'o>>,
    sql: &'o Statements,
) -> (JobColumns, CommitSummary) {
    let RowChanges { inserted, updated, heartbeats, claimed, finished, restored, summary } = changes;
    if !restored.is_empty() {
        let rows = row_count(&restored);
        statements.push(stmt!(sql.restore_from_archive, restored, rows));
    }
    updated.update(statements, sql);
    claimed.mark_claimed(statements, sql);
    finished.mark_finished(statements, sql);
    heartbeats.mark_heartbeat(statements, sql);
    (inserted, summary)
}

/// The settings of a queue that `submit()` in SQL needs, as JSON.
pub(crate) fn admission_json(queue: &Queue, policy: u32) -> String {
    let Queue { admission, deleting, .. } = queue;
    let option = |number: Option<u64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
    let scope = match admission.idempotency.scope {
        IdempotencyScope::Off => None,
        scope @ (IdempotencyScope::Type | IdempotencyScope::Queue | IdempotencyScope::Global) => {
            IdempotencyScope::ALL.iter().position(|one| *one == scope).and_then(|index| u64::try_from(index).ok())
        }
    };
    format!(
        "{{\"open\":{},\"policy\":{policy},\"payload_max\":{},\"external_ids\":{},\"delayed_start\":{},\"held\":{},\"scope\":{},\
         \"window\":{},\"max_queued\":{},\"lifetime\":{}}}",
        deleting.is_none(),
        admission.payload_max,
        admission.external_ids,
        admission.delayed_start,
        admission.submit == SubmitMode::Explicit,
        option(scope),
        option(admission.idempotency.window.map(|window| window.as_millis())),
        option(admission.max_queued),
        option(queue.policy.lifetime.map(|lifetime| lifetime.as_millis())),
    )
}
