//! Reads and locks what the rules have looked for.

pub(crate) mod workflows;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::dependency::PendingPropagation;
use longshore_core::id::{JobId, QueueName, Seq};
use longshore_core::state::{StateKind, TerminalState};
use longshore_core::time::Timestamp;
use longshore_engine::{KeyEntry, ScopedIdempotencyKey, StateCounts};
use tokio_postgres::Row;

use super::{Transaction, numbers};
use crate::connection::{TxBoundary, get, stmt};
use crate::error::TxError;
use crate::read_set::{ListPrefix, MissingReads};
use crate::row::{JobRow, payload, seq};

impl Transaction<'_> {
    pub(super) fn add_rows(&mut self, rows: &[Row]) -> Result<(), TxError> {
        for row in rows {
            let (seq, row) = JobRow::live(row)?;
            self.read_set.add(seq, row);
        }
        Ok(())
    }

    pub(super) async fn fetch(&mut self, missing: MissingReads) -> Result<(), TxError> {
        let mut rows = missing.rows;
        if missing.seqs {
            if self.first_seq.is_some() {
                return Err(TxError::TooLarge);
            }
            let rows_read = self.connection.query(self.begin_statement(true)).await?;
            self.first_seq = match rows_read.first() {
                Some(row) => get::<Option<i64>>(row, 2)?.map(i64::cast_unsigned),
                None => None,
            };
        }
        if !missing.counts.is_empty() {
            self.fetch_counts(missing.counts.into_iter().collect()).await?;
        }
        if !missing.payloads.is_empty() {
            self.fetch_payloads(missing.payloads).await?;
        }
        if !missing.keys.is_empty() {
            self.fetch_keys(missing.keys.into_iter().collect()).await?;
        }
        if !missing.external_ids.is_empty() {
            self.fetch_external_ids(missing.external_ids.into_iter().collect()).await?;
        }
        if !missing.dependents.is_empty() {
            rows.extend(self.fetch_dependents(missing.dependents).await?);
        }
        for ((queue, state), limit) in missing.jobs_by_state {
            rows.extend(self.fetch_jobs_in_state(queue, state, limit).await?);
        }
        if !missing.workflows.is_empty() {
            self.fetch_workflows(numbers(missing.workflows)).await?;
        }
        if !missing.member_refs.is_empty() {
            rows.extend(self.fetch_member_refs(missing.member_refs.into_iter().collect()).await?);
        }
        for (workflow, (after, limit)) in missing.workflow_members {
            rows.extend(self.fetch_members(workflow, after, limit).await?);
        }
        if !missing.imported_ids.is_empty() {
            rows.extend(self.fetch_imported_ids(missing.imported_ids.into_iter().collect()).await?);
        }
        rows.retain(|seq| !self.read_set.has_read(*seq));
        self.fetch_rows(rows.into_iter().collect()).await
    }

    /// Reads jobs of both tables. The third statement finds jobs that another transaction has
    /// restored from the archive between the first two.
    async fn fetch_rows(&mut self, seqs: Vec<Seq>) -> Result<(), TxError> {
        if seqs.is_empty() {
            return Ok(());
        }
        let numbers = numbers(seqs.iter().copied());
        let sql = &self.node.sql;
        let calls = [
            stmt!(sql.lock_jobs, numbers.clone()),
            stmt!(sql.lock_archived, numbers.clone()),
            stmt!(sql.lock_jobs, numbers),
        ];
        let rows = self.connection.pipeline(&calls, TxBoundary::Inside).await?;
        let [live, archived, restored] = rows.as_slice() else { return Err(TxError::TooLarge) };
        for row in archived {
            let (seq, row) = JobRow::archived(row)?;
            self.read_set.add(seq, row);
        }
        self.add_rows(live)?;
        self.add_rows(restored)?;
        for seq in seqs {
            if !self.read_set.rows.contains_key(&seq) {
                self.read_set.absent.insert(seq);
            }
        }
        Ok(())
    }

    /// Reads payloads of rows that are locked.
    async fn fetch_payloads(&mut self, mut seqs: BTreeSet<Seq>) -> Result<(), TxError> {
        let rows = self.connection.query(stmt!(self.node.sql.payloads, numbers(seqs.iter().copied()))).await?;
        for row in &rows {
            let seq = seq(row)?;
            let payload = payload(get(row, 1)?, get(row, 2)?, seq)?;
            if let Some(job) = self.read_set.rows.get_mut(&seq) {
                job.payload = Some(payload);
                seqs.remove(&seq);
            }
        }
        let damaged = |seq: Seq| Err(TxError::Damaged(format!("payload of job {seq}")));
        seqs.pop_first().map_or(Ok(()), damaged)
    }

    async fn fetch_keys(&mut self, keys: Vec<ScopedIdempotencyKey>) -> Result<(), TxError> {
        let encoded: Vec<Vec<u8>> = keys.iter().map(codec::key::encode).collect();
        let rows = self.connection.query(stmt!(self.node.sql.lock_keys, encoded)).await?;
        for key in keys {
            self.read_set.keys.insert(key, None);
        }
        let mut seqs = Vec::new();
        for row in &rows {
            seqs.push(self.add_key(row)?);
        }
        // The rules read the jobs of these keys next.
        seqs.retain(|seq| !self.read_set.has_read(*seq));
        self.fetch_rows(seqs).await
    }

    fn add_key(&mut self, row: &Row) -> Result<Seq, TxError> {
        let damaged = || TxError::Damaged("idempotency key".to_owned());
        let key = codec::key::decode(&get::<Vec<u8>>(row, 0)?).map_err(|_| damaged())?;
        let id = <[u8; 16]>::try_from(get::<Vec<u8>>(row, 2)?).map_err(|_| damaged())?;
        let entry = KeyEntry {
            seq: Seq(get::<i64>(row, 1)?.cast_unsigned()),
            id: JobId::from_bytes(id),
            at: Timestamp::from_millis(get(row, 3)?),
            prune_at: get::<Option<i64>>(row, 4)?.map(Timestamp::from_millis),
        };
        self.read_set.keys.insert(key, Some(entry));
        Ok(entry.seq)
    }

    async fn fetch_external_ids(&mut self, names: Vec<(QueueName, Arc<str>)>) -> Result<(), TxError> {
        let queue_id = |(queue, _): &(QueueName, Arc<str>)| self.catalog.queue_id(queue).unwrap_or(-1);
        let queues: Vec<i32> = names.iter().map(queue_id).collect();
        let texts: Vec<String> = names.iter().map(|(_, text)| text.to_string()).collect();
        let rows = self.connection.query(stmt!(self.node.sql.external_ids, queues, texts)).await?;
        for name in names {
            self.read_set.external_ids.insert(name, None);
        }
        for row in &rows {
            let (queue, text): (i32, String) = (get(row, 0)?, get(row, 1)?);
            let queue = u32::try_from(queue).ok().and_then(|number| self.catalog.names.queue(number)).cloned();
            if let Some(queue) = queue {
                let seq = Seq(get::<i64>(row, 2)?.cast_unsigned());
                self.read_set.external_ids.insert((queue, Arc::from(text)), Some(seq));
            }
        }
        Ok(())
    }

    /// Reads dependents of all jobs at once, and locks them in the order of their sequence
    /// numbers, so that two transactions with common dependents cannot deadlock. Returns other
    /// jobs that the rules will need.
    async fn fetch_dependents(&mut self, missing: HashMap<Seq, (Seq, usize)>) -> Result<Vec<Seq>, TxError> {
        let signed = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
        let sql = &self.node.sql;
        let statement = |(of, (after, limit)): (&Seq, &(Seq, usize))| {
            stmt!(sql.dependents, signed(*of), signed(*after), i64::try_from(*limit).unwrap_or(i64::MAX))
        };
        let calls: Vec<_> = missing.iter().map(statement).collect();
        let lists = self.connection.pipeline(&calls, TxBoundary::Inside).await?;
        let (mut unread, mut of_revived) = (BTreeSet::new(), BTreeSet::new());
        for ((of, (after, limit)), rows) in missing.into_iter().zip(lists) {
            let seqs = rows.iter().map(seq).collect::<Result<Vec<_>, _>>()?;
            let new = seqs.iter().copied().filter(|seq| !self.read_set.has_read(*seq));
            if self.may_revive_dependents(of) {
                of_revived.extend(new.clone());
            }
            unread.extend(new);
            self.read_set.dependents.insert(of, ListPrefix { truncated: seqs.len() >= limit, seqs, after });
        }
        self.fetch_rows(unread.into_iter().collect()).await?;
        let mut others = Vec::new();
        for dependent in of_revived {
            let Some(row) = self.read_set.rows.get(&dependent) else { continue };
            let job = codec::job::decode(dependent, &row.record, &self.catalog.names)
                .map_err(|_| TxError::damaged(dependent))?;
            others.extend(job.dependencies.all().into_iter().map(|id| self.catalog.id_cipher.decrypt(id)));
        }
        others.retain(|seq| i64::try_from(seq.0).is_ok());
        Ok(others)
    }

    /// Whether propagation of this job may revive dependents. The rules then need their other
    /// dependencies, too.
    fn may_revive_dependents(&self, of: Seq) -> bool {
        let Some(row) = self.read_set.rows.get(&of) else { return false };
        codec::job::decode(of, &row.record, &self.catalog.names).is_ok_and(|job| match job.pending_propagation {
            PendingPropagation::Nothing => TerminalState::of(job.kind()).is_some(),
            PendingPropagation::End => false,
            PendingPropagation::Return
            | PendingPropagation::RestartedWithWorkflow
            | PendingPropagation::RevivedThenFinished => true,
        })
    }

    async fn fetch_jobs_in_state(
        &mut self,
        queue: QueueName,
        state: StateKind,
        limit: usize,
    ) -> Result<Vec<Seq>, TxError> {
        let sql = &self.node.sql;
        // The statement also returns jobs whose state this transaction has changed.
        let limit_read = i64::try_from(limit + self.read_set.rows.len()).unwrap_or(i64::MAX);
        let queue_id = self.catalog.queue_id(&queue).unwrap_or(-1);
        let call = match state {
            StateKind::Scheduled => stmt!(sql.ready_jobs, queue_id, limit_read),
            StateKind::Pending
            | StateKind::Delayed
            | StateKind::Running
            | StateKind::Retrying
            | StateKind::Completed
            | StateKind::Failed
            | StateKind::DeadLetter
            | StateKind::Cancelled => stmt!(sql.jobs_in_state, queue_id, state as i16, limit_read),
        };
        let rows = self.connection.query(call).await?;
        let seqs = rows.iter().map(seq).collect::<Result<Vec<_>, _>>()?;
        let truncated = i64::try_from(seqs.len()).unwrap_or(i64::MAX) >= limit_read;
        self.read_set.jobs_by_state.insert((queue, state), ListPrefix { seqs: seqs.clone(), after: Seq(0), truncated });
        Ok(seqs.into_iter().take(limit).collect())
    }

    async fn fetch_imported_ids(&mut self, ids: Vec<JobId>) -> Result<Vec<Seq>, TxError> {
        let bytes: Vec<Vec<u8>> = ids.iter().map(|id| id.as_bytes().to_vec()).collect();
        let rows = self.connection.query(stmt!(self.node.sql.imported_ids, bytes)).await?;
        self.read_set.imported_ids.extend(ids.into_iter().map(|id| (id, None)));
        let mut seqs = Vec::new();
        for row in &rows {
            let id = <[u8; 16]>::try_from(get::<Vec<u8>>(row, 0)?);
            let id = JobId::from_bytes(id.map_err(|_| TxError::Damaged("imported id".to_owned()))?);
            let seq = Seq(get::<i64>(row, 1)?.cast_unsigned());
            self.read_set.imported_ids.insert(id, Some(seq));
            seqs.push(seq);
        }
        Ok(seqs)
    }

    /// Reads exact counts. The locks keep other transactions from adding jobs to these queues until
    /// this one ends.
    async fn fetch_counts(&mut self, names: Vec<QueueName>) -> Result<(), TxError> {
        let sql = &self.node.sql;
        let mut queue_ids: Vec<i32> = names.iter().filter_map(|name| self.catalog.queue_id(name)).collect();
        queue_ids.sort_unstable();
        let mut calls = Vec::new();
        for queue_id in &queue_ids {
            let key = self.node.lock_key.wrapping_add(1 + i64::from(*queue_id));
            calls.push(stmt!(sql.lock_queue, key));
        }
        calls.push(stmt!(sql.queue_counts_of, queue_ids));
        let rows = self.connection.pipeline(&calls, TxBoundary::Inside).await?.pop().unwrap_or_default();
        let mut counts: HashMap<QueueName, (StateCounts, u64)> =
            names.into_iter().map(|name| (name, Default::default())).collect();
        for row in &rows {
            let (queue, state, jobs): (i32, i16, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            let name = u32::try_from(queue).ok().and_then(|number| self.catalog.names.queue(number));
            let Some((state_counts, held)) = name.and_then(|name| counts.get_mut(name)) else { continue };
            let jobs = jobs.max(0).unsigned_abs();
            match usize::try_from(state).ok().and_then(|state| state_counts.get_mut(state)) {
                Some(count) => *count = jobs,
                None => *held = jobs,
            }
        }
        self.read_set.counts.extend(counts);
        Ok(())
    }

    /// Reads up to `budget` jobs with a due timer, jobs and keys to be pruned.
    pub(super) async fn fetch_due(&mut self, budget: usize) -> Result<(), TxError> {
        let sql = &self.node.sql;
        let (now, limit) = (self.now.as_millis(), i64::try_from(budget).unwrap_or(i64::MAX));
        let prune_before = now.saturating_sub(self.node.slack_ms());
        let calls = [
            stmt!(sql.due_jobs, now, limit),
            stmt!(sql.prunable_jobs, prune_before, limit),
            stmt!(sql.prunable_keys, now, limit),
        ];
        let rows = self.connection.pipeline(&calls, TxBoundary::Inside).await?;
        let [due, prunable_jobs, prunable_keys] = rows.as_slice() else { return Err(TxError::TooLarge) };
        self.add_rows(due)?;
        for row in prunable_jobs {
            let (seq, row) = JobRow::archived(row)?;
            self.read_set.add(seq, row);
        }
        for row in prunable_keys {
            self.add_key(row)?;
        }
        Ok(())
    }
}
