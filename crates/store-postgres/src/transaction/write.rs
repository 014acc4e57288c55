//! Writing what the rules have changed, in one trip with the commit. Every write finds its rows as they were read, or the transaction fails.

use std::collections::BTreeMap;

use longshore_codec as codec;
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::policy::{IdempotencyScope, SubmitMode};
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::{KeyEntry, PayloadSource, Queue, ordering};
use longshore_store::query::TermFields;
use tokio_postgres::types::{ToSql, Type};

use super::claim_scan::ScanCoverage;
use super::job_columns::JobColumns;
use super::{Committed, Evaluation, Transaction, totals_of};
use crate::catalog::Catalog;
use crate::connection::{Blob, StatementCall, TxBoundary, Value, stmt};
use crate::error::TxError;
use crate::node::TOTALS_QUEUE;
use crate::node_cache::ReadyPosition;
use crate::read_set::ReadSet;
use crate::row::{IndexColumns, JobRow, Origin, kind_of, number_of, remains_reclaimable};
use crate::statements::Statements;
use crate::working_set::WorkingSet;
use longshore_store::Request;

/// Places of the counts: one for each state, and the held ones.
const COUNTS: usize = StateKind::COUNT + 1;

/// From so many new jobs on a COPY is quicker than its round trips.
pub(super) const COPY_FROM: usize = 100;

/// Sums of what changed, by queue.
#[derive(Default)]
pub(super) struct CountDeltas(BTreeMap<i32, [i64; COUNTS]>);

impl CountDeltas {
    fn add(&mut self, queue: i32, state: StateKind, held: bool, sign: i64) {
        let of_queue = self.0.entry(queue).or_insert([0; COUNTS]);
        if let Some(count) = of_queue.get_mut(state as usize) {
            *count += sign;
        }
        if held && let Some(count) = of_queue.last_mut() {
            *count += sign;
        }
    }

    /// Numbers that are counted like those of a queue.
    pub(super) fn put(&mut self, queue: i32, numbers: &[i64]) {
        let of_queue = self.0.entry(queue).or_insert([0; COUNTS]);
        of_queue.iter_mut().zip(numbers).for_each(|(count, number)| *count += number);
    }

    /// Queues, and all their numbers one after the other.
    pub(super) fn values(self) -> [Value; 2] {
        let changed: Vec<_> = self.0.into_iter().filter(|(_, of)| of.iter().any(|change| *change != 0)).collect();
        let queues: Vec<i32> = changed.iter().map(|(queue, _)| *queue).collect();
        let changes: Vec<i64> = changed.into_iter().flat_map(|(_, of)| of).collect();
        [Box::new(queues), Box::new(changes)]
    }
}

/// The rows that a transaction writes, by what is done to them.
#[derive(Default)]
pub(super) struct RowChanges {
    pub inserted: JobColumns,
    pub updated: JobColumns,
    pub heartbeats: JobColumns,
    pub claimed: JobColumns,
    pub ended: JobColumns,
    unarchived: Vec<i64>,
    pub written: Written,
}

impl RowChanges {
    /// No rows are written.
    pub(super) fn is_nothing(&self) -> bool {
        let Self { inserted, updated, heartbeats: beaten, claimed: begun, ended, unarchived, written: _ } = self;
        unarchived.is_empty() && [inserted, updated, beaten, begun, ended].iter().all(|table| table.seq.is_empty())
    }
}

impl Transaction<'_> {
    pub(super) async fn write(
        self,
        requests: &[Request],
        mut run: Evaluation<'_>,
        fetched: &ReadSet,
    ) -> Result<Committed, TxError> {
        let mut known = std::sync::Arc::clone(&self.known);
        let mut statements = Vec::new();
        let changes_queues = !run.draft.queues.is_empty();
        if changes_queues {
            let names = std::mem::take(&mut run.draft.names);
            known = Catalog { names, queues: run.engine.all_queues().clone(), ..Catalog::clone(&self.known) }.into();
            self.write_queues(&run.draft, &known, &mut statements)?;
        }
        let sorted = self.sort(&run, &known, fetched)?;
        let newcomers: Vec<_> =
            [&sorted.updated, &sorted.inserted].into_iter().flat_map(JobColumns::first_in_lines).collect();
        let over: Vec<i64> = [&sorted.updated, &sorted.ended].into_iter().flat_map(|table| table.seq.clone()).collect();
        let runs: Vec<_> = [&sorted.claimed, &sorted.heartbeats].into_iter().flat_map(JobColumns::runs).collect();
        let (inserted, mut written) = write_jobs(sorted, &mut statements, &self.shared.sql);
        self.insert(inserted, &run.draft, &mut statements).await?;
        self.write_removals(&run.draft, &known, fetched, &mut statements, &mut written);
        self.write_tags_and_links(&run.draft, &known, &mut statements);
        self.write_keys(&run.draft, fetched, &mut statements);
        self.write_workflows(&run.draft.workflows, fetched, &mut statements);
        let sql = &self.shared.sql;
        for (queue, changes) in std::mem::take(&mut written.counts.0) {
            if changes.iter().any(|change| *change != 0) {
                statements.push(stmt!(sql.add_counts, queue, changes.to_vec()));
            }
        }
        if let Some(totals) = totals_of(&run.effects) {
            statements.push(stmt!(sql.add_counts, TOTALS_QUEUE, totals));
        }
        let line = self.single_queue(requests).filter(|_| self.link.supports_copy());
        let first = line.and_then(|(line, _)| Some((line, first_in_line(&run, fetched, known.name_of(line)?)?)));
        let ahead = line.map_or(0, |(line, wanted)| self.prefetch_size(line, wanted, fetched));
        if let Some((line, place)) = first.filter(|_| ahead > 0) {
            statements.push(stmt!(sql.look, line, ahead, place.0, place.1));
        }
        let mut answers = self.link.pipeline(&statements, TxBoundary::Commit).await?;
        if changes_queues {
            let mut known = Catalog::clone(&known);
            known.names.committed();
            known.version += 1;
            self.shared.publish_known(known);
        }
        let believed = &self.shared.believed;
        believed.evict_running(&over);
        believed.store_running(runs);
        newcomers.into_iter().for_each(|(line, place)| believed.invalidate_if_before(line, place));
        if let Some((line, place)) = first {
            match self.claims.looks {
                ScanCoverage { whole: true, partial: false } => believed.set_scan_start(line, place, Some(self.now)),
                ScanCoverage { whole: false, .. } => believed.set_scan_start(line, place, None),
                // There was somebody before the place from which the line was looked at first.
                ScanCoverage { whole: true, partial: true } => believed.invalidate_queue(line),
            }
            if ahead > 0
                && let Some(rows) = answers.pop()
            {
                believed.store_head(line, &rows);
            }
        }
        if let Some(first) = self.first_seq {
            believed.remember_block(first, run.engine.next_number() - first);
        }
        Ok(run.done(&written, self.now))
    }

    /// How much of what comes next in the line is looked at, so that the next claim knows it.
    fn prefetch_size(&self, line: i32, wanted: usize, fetched: &ReadSet) -> i64 {
        // Who was not served in full has seen the end of the line.
        let all = fetched.order.len() >= wanted;
        let ahead = if all { self.shared.believed.prefetch_size(line, wanted, fetched.payload_bytes()) } else { 0 };
        i64::try_from(ahead).unwrap_or(0)
    }

    fn write_queues<'o>(
        &'o self,
        draft: &WorkingSet<'_>,
        known: &Catalog,
        statements: &mut Vec<StatementCall<'o>>,
    ) -> Result<(), TxError> {
        let sql = &self.shared.sql;
        for (kind, number, value) in known.names.unsaved() {
            let (number, value) = (i32::try_from(number).unwrap_or(i32::MAX), value.ok_or(TxError::NotStorable)?);
            if kind == 0 {
                let name = String::from_utf8(value).map_err(|_| TxError::NotStorable)?;
                statements.push(stmt!(sql.add_name, number, name));
            } else {
                statements.push(stmt!(sql.add_policy, number, value));
            }
        }
        for (name, queue) in &draft.queues {
            let number = known.queue_id(name).ok_or(TxError::NotStorable)?;
            match queue {
                Some(queue) => {
                    let record = codec::policy::encode_queue(queue).map_err(|_| TxError::NotStorable)?;
                    let policy = known.names.policy_number(&queue.policy).ok_or(TxError::NotStorable)?;
                    statements.push(stmt!(sql.put_queue, number, record, admission_json(queue, policy)));
                }
                None => statements.push(stmt!(sql.remove_queue, number)),
            }
        }
        statements.push(stmt!(sql.bump_version));
        Ok(())
    }

    pub(super) fn sort(&self, run: &Evaluation<'_>, known: &Catalog, fetched: &ReadSet) -> Result<RowChanges, TxError> {
        let mut sorted = RowChanges::default();
        let RowChanges { inserted, updated, heartbeats: beaten, claimed: begun, ended, unarchived, written } =
            &mut sorted;
        let told_more = |(seq, found): (&Seq, &JobRow)| (propagation_cursor(run, *seq) != found.told).then_some(*seq);
        let mut changed = run.draft.changed.clone();
        changed.extend(fetched.rows.iter().filter(|(seq, _)| run.draft.job(**seq).is_some()).filter_map(told_more));
        for seq in &changed {
            let Some(job) = run.draft.job(*seq) else { continue };
            let (found, told) = (fetched.rows.get(seq), propagation_cursor(run, *seq));
            let offered = run.engine.is_reclaimable(job)
                || found.is_some_and(|found| found.is_reclaimable() && remains_reclaimable(job, self.now));
            let columns = IndexColumns::of(job, ordering(job, offered));
            let record = codec::job::encode_unpadded(job, &known.names).ok_or(TxError::NotStorable)?;
            let queue = known.queue_id(&job.queue).ok_or(TxError::NotStorable)?;
            written.count(queue, job, run.draft.before.get(seq));
            written.note(&columns);
            match found {
                None => inserted.push((*seq, queue), &columns, told, record, None),
                Some(found) if found.origin == Origin::Archive => {
                    unarchived.push(seq.0.cast_signed());
                    inserted.push((*seq, queue), &columns, told, record, None);
                }
                Some(found) if is_heartbeat(job, found, &columns) && same_words(&run.draft, job) => {
                    beaten.push((*seq, queue), &columns, told, record, Some(found));
                }
                Some(found) if is_claim(found, &columns) => {
                    begun.push((*seq, queue), &columns, told, record, Some(found));
                }
                Some(found) if is_finish(found, &columns) && told.is_none() => {
                    ended.push((*seq, queue), &columns, told, record, Some(found));
                }
                Some(found) => updated.push((*seq, queue), &columns, told, record, Some(found)),
            }
        }
        self.fix_stale_timers(run, known, fetched, updated)?;
        Ok(sorted)
    }

    /// New jobs and their payloads: few go with the rest, many before it.
    async fn insert<'o>(
        &'o self,
        inserted: JobColumns,
        draft: &WorkingSet<'_>,
        statements: &mut Vec<StatementCall<'o>>,
    ) -> Result<(), TxError> {
        let sql = &self.shared.sql;
        if inserted.seq.len() < COPY_FROM || !self.link.supports_copy() || !statements.is_empty() {
            inserted.insert(statements, sql);
            self.write_payloads(draft, statements);
            return Ok(());
        }
        inserted.copy(self.link, sql).await?;
        let mut payloads = Vec::with_capacity(draft.inserted.len());
        for (seq, source) in &draft.inserted {
            match source {
                PayloadSource::Given(payload) => {
                    payloads.push((seq.0.cast_signed(), kind_of(payload), Blob(payload.bytes().clone())));
                }
                PayloadSource::CopyOf(original) => {
                    statements.push(stmt!(sql.copy_payload, seq.0.cast_signed(), original.0.cast_signed()));
                }
            }
        }
        let rows = payloads.iter().map(|(seq, kind, bytes)| vec![seq as &(dyn ToSql + Sync), kind, bytes]);
        self.link.copy(&sql.copy_payloads, &[Type::INT8, Type::INT2, Type::BYTEA], rows).await
    }

    /// Rows that a tick has found too early: heartbeats have moved their timers.
    fn fix_stale_timers(
        &self,
        run: &Evaluation<'_>,
        known: &Catalog,
        fetched: &ReadSet,
        updated: &mut JobColumns,
    ) -> Result<(), TxError> {
        for (seq, found) in &fetched.rows {
            let (Some(job), Some((due_at, _))) = (run.draft.job(*seq), found.due) else { continue };
            let unchanged = found.origin == Origin::Jobs
                && !run.draft.changed.contains(seq)
                && propagation_cursor(run, *seq) == found.told;
            if !unchanged || due_at > self.now.as_millis() {
                continue;
            }
            let offered = found.is_reclaimable() && remains_reclaimable(job, self.now);
            let columns = IndexColumns::of(job, ordering(job, offered));
            if columns.due != found.due {
                let queue = known.queue_id(&job.queue).ok_or(TxError::NotStorable)?;
                updated.push((*seq, queue), &columns, found.told, found.record.clone(), Some(found));
            }
        }
        Ok(())
    }

    fn write_payloads<'o>(&'o self, draft: &WorkingSet<'_>, statements: &mut Vec<StatementCall<'o>>) {
        let sql = &self.shared.sql;
        let (mut seqs, mut kinds, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (seq, source) in &draft.inserted {
            match source {
                PayloadSource::Given(payload) => {
                    seqs.push(seq.0.cast_signed());
                    kinds.push(kind_of(payload));
                    bytes.push(Blob(payload.bytes().clone()));
                }
                PayloadSource::CopyOf(original) => {
                    statements.push(stmt!(sql.copy_payload, seq.0.cast_signed(), original.0.cast_signed()));
                }
            }
        }
        if !seqs.is_empty() {
            statements.push(stmt!(sql.insert_payloads, seqs, kinds, bytes));
        }
    }

    fn write_removals<'o>(
        &'o self,
        draft: &WorkingSet<'_>,
        known: &Catalog,
        fetched: &ReadSet,
        statements: &mut Vec<StatementCall<'o>>,
        written: &mut Written,
    ) {
        let sql = &self.shared.sql;
        let (mut gone, mut queues, mut names, mut named) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut dependencies, mut dependents) = (Vec::new(), Vec::new());
        for (seq, job) in &draft.removed {
            // One that was never stored leaves nothing.
            let (Some(_), Some(before)) = (fetched.rows.get(seq), draft.before.get(seq)) else { continue };
            let number = known.queue_id(&job.queue).unwrap_or(-1);
            written.counts.add(number, before.state, before.held, -1);
            gone.push(seq.0.cast_signed());
            if let Some(external_id) = &job.external_id {
                queues.push(number);
                names.push(external_id.to_string());
                named.push(seq.0.cast_signed());
            }
            for dependency in job.dependencies.all() {
                dependencies.push(known.seal.decrypt(dependency).0.cast_signed());
                dependents.push(seq.0.cast_signed());
            }
        }
        if gone.is_empty() {
            return;
        }
        let rows = i64::try_from(gone.len()).unwrap_or(i64::MAX);
        statements.push(stmt!(sql.remove_jobs, gone, rows));
        if !named.is_empty() {
            statements.push(stmt!(sql.remove_external_ids, queues, names, named));
        }
        if !dependents.is_empty() {
            statements.push(stmt!(sql.remove_edges, dependencies, dependents));
        }
    }

    fn write_tags_and_links<'o>(
        &'o self,
        draft: &WorkingSet<'_>,
        known: &Catalog,
        statements: &mut Vec<StatementCall<'o>>,
    ) {
        let sql = &self.shared.sql;
        let (mut old, mut new) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut external: (Vec<i32>, Vec<String>, Vec<i64>) = Default::default();
        for seq in draft.changed.iter().chain(draft.removed.keys()) {
            let (after, before) = (draft.job(*seq), draft.before.get(seq).map(|before| &before.indexed));
            if after.is_some_and(|job| before.is_some_and(|before| before.are_those_of(job))) {
                continue;
            }
            let before = before.map(TermFields::words).unwrap_or_default();
            let after = after.map(|job| TermFields::of(job).words()).unwrap_or_default();
            for (from, without, (words, seqs)) in [(&before, &after, &mut old), (&after, &before, &mut new)] {
                for word in from.difference(without) {
                    words.push(word.clone());
                    seqs.push(seq.0.cast_signed());
                }
            }
        }
        for seq in draft.inserted.keys() {
            let Some(job) = draft.job(*seq) else { continue };
            if let Some(external_id) = &job.external_id {
                external.0.push(known.queue_id(&job.queue).unwrap_or(-1));
                external.1.push(external_id.to_string());
                external.2.push(seq.0.cast_signed());
            }
        }
        if !old.0.is_empty() {
            statements.push(stmt!(sql.remove_tags, old.0, old.1));
        }
        if !new.0.is_empty() {
            statements.push(stmt!(sql.insert_tags, new.0, new.1));
        }
        if !external.0.is_empty() {
            let rows = i64::try_from(external.0.len()).unwrap_or(i64::MAX);
            statements.push(stmt!(sql.insert_external_ids, external.0, external.1, external.2, rows));
        }
        if !draft.removed_edges.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) =
                draft.removed_edges.iter().map(|(from, to)| (from.0.cast_signed(), to.0.cast_signed())).unzip();
            statements.push(stmt!(sql.remove_edges, from, to));
        }
        if !draft.links.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) =
                draft.links.iter().map(|(from, to)| (from.0.cast_signed(), to.0.cast_signed())).unzip();
            statements.push(stmt!(sql.insert_edges, from, to));
        }
    }

    fn write_keys<'o>(&'o self, draft: &WorkingSet<'_>, fetched: &ReadSet, statements: &mut Vec<StatementCall<'o>>) {
        let sql = &self.shared.sql;
        let (mut new, mut changed, mut gone) = (Keys::default(), Keys::default(), Vec::new());
        for (path, entry) in &draft.keys {
            let before = fetched.keys.get(path).copied().flatten();
            match (before, entry) {
                (None, Some(entry)) => new.push(codec::key::encode(path), entry, None),
                (Some(before), Some(entry)) => changed.push(codec::key::encode(path), entry, Some(before.seq)),
                (Some(_), None) => gone.push(codec::key::encode(path)),
                (None, None) => {}
            }
        }
        let count = |keys: &Keys| i64::try_from(keys.paths.len()).unwrap_or(i64::MAX);
        if !new.paths.is_empty() {
            let rows = count(&new);
            statements.push(stmt!(sql.insert_keys, new.paths, new.seqs, new.ids, new.ats, new.purges, rows));
        }
        if !changed.paths.is_empty() {
            let (rows, Keys { paths, seqs, ids, ats, purges, was }) = (count(&changed), changed);
            statements.push(stmt!(sql.update_keys, paths, seqs, ids, ats, purges, was, rows));
        }
        if !gone.is_empty() {
            statements.push(stmt!(sql.remove_keys, gone));
        }
    }
}

#[derive(Default)]
struct Keys {
    paths: Vec<Vec<u8>>,
    seqs: Vec<i64>,
    ids: Vec<Vec<u8>>,
    ats: Vec<i64>,
    purges: Vec<Option<i64>>,
    was: Vec<i64>,
}

impl Keys {
    fn push(&mut self, path: Vec<u8>, entry: &KeyEntry, was: Option<Seq>) {
        self.paths.push(path);
        self.seqs.push(entry.seq.0.cast_signed());
        self.ids.push(entry.id.as_bytes().to_vec());
        self.ats.push(entry.at.as_millis());
        self.purges.push(entry.prune_at.map(Timestamp::as_millis));
        self.was.extend(was.map(|seq| seq.0.cast_signed()));
    }
}

/// What is known of a transaction once all is written.
#[derive(Default)]
pub(super) struct Written {
    pub counts: CountDeltas,
    pub deadline: Option<i64>,
    pub over: bool,
}

impl Written {
    fn count(&mut self, queue: i32, job: &Job, before: Option<&crate::working_set::OriginalState>) {
        if let Some(before) = before {
            self.counts.add(queue, before.state, before.held, -1);
        }
        self.counts.add(queue, job.kind(), job.state.held(), 1);
    }

    fn note(&mut self, columns: &IndexColumns) {
        let due = columns.due.map(|(at, _)| at);
        self.deadline = self.deadline.into_iter().chain(due).min();
        self.over |= columns.over;
    }
}

/// Whether the run goes on under the same lease: then a timer that comes later may stay where it is, and nothing but the record is written.
fn is_heartbeat(job: &Job, found: &JobRow, columns: &IndexColumns) -> bool {
    let running = number_of(StateKind::Running);
    let same_lease = found.state == running && columns.state == running && found.lease_version == columns.lease_version;
    let later = match (found.due, columns.due) {
        (Some(found), Some(due)) => found.0 <= due.0,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    same_lease
        && later
        && found.place.is_none()
        && columns.place.is_none()
        && job.pending_propagation == longshore_core::dependency::PendingPropagation::Nothing
}

/// Where the first of those stands that were found in a line.
pub(super) fn first_in_line(run: &Evaluation<'_>, fetched: &ReadSet, queue: &QueueName) -> Option<ReadyPosition> {
    let place = |(seq, found): (&Seq, &JobRow)| {
        let job = run.draft.job(*seq).filter(|job| job.queue == *queue)?;
        Some((i16::from(job.effective_priority().level()), found.place?))
    };
    fetched.rows.iter().filter_map(place).min()
}

/// Answers the new ones, which take their own way.
fn write_jobs<'o>(
    sorted: RowChanges,
    statements: &mut Vec<StatementCall<'o>>,
    sql: &'o Statements,
) -> (JobColumns, Written) {
    let RowChanges { inserted, updated, heartbeats: beaten, claimed: begun, ended, unarchived, written } = sorted;
    if !unarchived.is_empty() {
        let rows = i64::try_from(unarchived.len()).unwrap_or(i64::MAX);
        statements.push(stmt!(sql.unarchive, unarchived, rows));
    }
    updated.update(statements, sql);
    begun.begin_runs(statements, sql);
    ended.end_runs(statements, sql);
    beaten.heartbeat(statements, sql);
    (inserted, written)
}

/// What `submit` in SQL has to know of a queue, as JSON.
pub(crate) fn admission_json(queue: &Queue, policy: u32) -> String {
    let Queue { intake, deleting: leaving, .. } = queue;
    let option = |number: Option<u64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
    let scope = match intake.idempotency.scope {
        IdempotencyScope::Off => None,
        scope @ (IdempotencyScope::Type | IdempotencyScope::Queue | IdempotencyScope::Global) => {
            IdempotencyScope::ALL.iter().position(|one| *one == scope).and_then(|place| u64::try_from(place).ok())
        }
    };
    format!(
        "{{\"open\":{},\"policy\":{policy},\"payload_max\":{},\"external_ids\":{},\"delayed_start\":{},\"held\":{},\"scope\":{},\
         \"window\":{},\"max_queued\":{},\"lifetime\":{}}}",
        leaving.is_none(),
        intake.payload_max,
        intake.external_ids,
        intake.delayed_start,
        intake.submit == SubmitMode::Explicit,
        option(scope),
        option(intake.idempotency.window.map(|window| window.as_millis())),
        option(intake.max_queued),
        option(queue.policy.lifetime.map(|lifetime| lifetime.as_millis())),
    )
}

/// News that were begun and not finished.
fn propagation_cursor(run: &Evaluation<'_>, seq: Seq) -> Option<i64> {
    run.engine.propagation_cursor(seq).map(|told| told.0.cast_signed())
}

fn is_claim(found: &JobRow, columns: &IndexColumns) -> bool {
    found.state == number_of(StateKind::Scheduled) && columns.state == number_of(StateKind::Running)
}

fn is_finish(found: &JobRow, columns: &IndexColumns) -> bool {
    found.state == number_of(StateKind::Running) && columns.ended_at.is_some() && columns.due.is_none()
}

fn same_words(draft: &WorkingSet<'_>, job: &Job) -> bool {
    draft.before.get(&job.seq).is_some_and(|before| before.indexed.are_those_of(job))
}
