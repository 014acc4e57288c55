//! Reading and locking what the rules asked for.

pub(crate) mod workflows;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::dependency::PendingPropagation;
use longshore_core::id::{JobId, QueueName, Seq};
use longshore_core::state::{StateKind, TerminalState};
use longshore_core::time::Timestamp;
use longshore_engine::{KeyEntry, StateCounts};
use tokio_postgres::Row;

use super::{Transaction, numbers};
use crate::connection::{TxBoundary, get, stmt};
use crate::error::TxError;
use crate::read_set::{ListPrefix, MissingReads};
use crate::row::{JobRow, seq};

impl Transaction<'_> {
    pub(super) fn add_rows(&mut self, rows: &[Row]) -> Result<(), TxError> {
        for row in rows {
            let (seq, found) = JobRow::live(row)?;
            self.fetched.add(seq, found);
        }
        Ok(())
    }

    pub(super) async fn fetch(&mut self, wanted: MissingReads) -> Result<(), TxError> {
        let mut rows = wanted.rows;
        if wanted.numbers {
            if self.first_seq.is_some() {
                return Err(TxError::TooLarge);
            }
            let drawn = self.link.query(self.begin_statement(true)).await?;
            self.first_seq = match drawn.first() {
                Some(row) => get::<Option<i64>>(row, 2)?.map(i64::cast_unsigned),
                None => None,
            };
        }
        if !wanted.counts.is_empty() {
            self.fetch_counts(wanted.counts.into_iter().collect()).await?;
        }
        if !wanted.keys.is_empty() {
            self.fetch_keys(wanted.keys.into_iter().collect()).await?;
        }
        if !wanted.external_ids.is_empty() {
            self.fetch_external_ids(wanted.external_ids.into_iter().collect()).await?;
        }
        if !wanted.dependents.is_empty() {
            rows.extend(self.fetch_dependents(wanted.dependents).await?);
        }
        for ((queue, state), limit) in wanted.jobs_by_state {
            rows.extend(self.fetch_jobs_in_state(queue, state, limit).await?);
        }
        if !wanted.workflows.is_empty() {
            self.fetch_workflows(numbers(wanted.workflows)).await?;
        }
        if !wanted.member_names.is_empty() {
            rows.extend(self.fetch_member_names(wanted.member_names.into_iter().collect()).await?);
        }
        for (workflow, (after, limit)) in wanted.workflow_members {
            rows.extend(self.fetch_members(workflow, after, limit).await?);
        }
        if !wanted.foreign_ids.is_empty() {
            rows.extend(self.fetch_foreign_ids(wanted.foreign_ids.into_iter().collect()).await?);
        }
        rows.retain(|seq| !self.fetched.knows(*seq));
        self.fetch_rows(rows.into_iter().collect()).await
    }

    /// Live ones and archived ones. One that is brought back between the two looks is found by the third.
    async fn fetch_rows(&mut self, wanted: Vec<Seq>) -> Result<(), TxError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let all = numbers(wanted.iter().copied());
        let sql = &self.shared.sql;
        let orders =
            [stmt!(sql.lock_jobs, all.clone()), stmt!(sql.lock_archived, all.clone()), stmt!(sql.lock_jobs, all)];
        let found = self.link.pipeline(&orders, TxBoundary::Inside).await?;
        let [live, archived, again] = found.as_slice() else { return Err(TxError::TooLarge) };
        for row in archived {
            let (seq, found) = JobRow::archived(row)?;
            self.fetched.add(seq, found);
        }
        self.add_rows(live)?;
        self.add_rows(again)?;
        for seq in wanted {
            if !self.fetched.rows.contains_key(&seq) {
                self.fetched.absent.insert(seq);
            }
        }
        Ok(())
    }

    async fn fetch_keys(&mut self, paths: Vec<longshore_engine::ScopedIdempotencyKey>) -> Result<(), TxError> {
        let encoded: Vec<Vec<u8>> = paths.iter().map(codec::key::encode).collect();
        let rows = self.link.query(stmt!(self.shared.sql.keys, encoded)).await?;
        for path in paths {
            self.fetched.keys.insert(path, None);
        }
        let mut of_keys = Vec::new();
        for row in &rows {
            of_keys.push(self.take_in_key(row)?);
        }
        // The rules will want to see the jobs behind them.
        of_keys.retain(|seq| !self.fetched.knows(*seq));
        self.fetch_rows(of_keys).await
    }

    fn take_in_key(&mut self, row: &Row) -> Result<Seq, TxError> {
        let damaged = || TxError::Damaged("an idempotency key".to_owned());
        let path = codec::key::decode(&get::<Vec<u8>>(row, 0)?).map_err(|_| damaged())?;
        let id = <[u8; 16]>::try_from(get::<Vec<u8>>(row, 2)?).map_err(|_| damaged())?;
        let entry = KeyEntry {
            seq: Seq(get::<i64>(row, 1)?.cast_unsigned()),
            id: JobId::from_bytes(id),
            at: Timestamp::from_millis(get(row, 3)?),
            prune_at: get::<Option<i64>>(row, 4)?.map(Timestamp::from_millis),
        };
        self.fetched.keys.insert(path, Some(entry));
        Ok(entry.seq)
    }

    async fn fetch_external_ids(&mut self, names: Vec<(QueueName, Arc<str>)>) -> Result<(), TxError> {
        let numbered = |(queue, _): &(QueueName, Arc<str>)| self.known.queue_id(queue).unwrap_or(-1);
        let queues: Vec<i32> = names.iter().map(numbered).collect();
        let texts: Vec<String> = names.iter().map(|(_, text)| text.to_string()).collect();
        let rows = self.link.query(stmt!(self.shared.sql.external_ids, queues, texts)).await?;
        for name in names {
            self.fetched.external_ids.insert(name, None);
        }
        for row in &rows {
            let (queue, text): (i32, String) = (get(row, 0)?, get(row, 1)?);
            let queue = u32::try_from(queue).ok().and_then(|number| self.known.names.queue(number)).cloned();
            if let Some(queue) = queue {
                let seq = Seq(get::<i64>(row, 2)?.cast_unsigned());
                self.fetched.external_ids.insert((queue, Arc::from(text)), Some(seq));
            }
        }
        Ok(())
    }

    /// The dependents of all at once, locked in the order of their numbers: two ends that meet at one dependent wait for each other there, and nowhere else.
    /// Answers those who will have to be looked at besides.
    async fn fetch_dependents(&mut self, wanted: HashMap<Seq, (Seq, usize)>) -> Result<Vec<Seq>, TxError> {
        let signed = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
        let sql = &self.shared.sql;
        let order = |(of, (after, limit)): (&Seq, &(Seq, usize))| {
            stmt!(sql.dependents, signed(*of), signed(*after), i64::try_from(*limit).unwrap_or(i64::MAX))
        };
        let orders: Vec<_> = wanted.iter().map(order).collect();
        let slices = self.link.pipeline(&orders, TxBoundary::Inside).await?;
        let (mut new, mut of_returned) = (BTreeSet::new(), BTreeSet::new());
        for ((of, (after, limit)), rows) in wanted.into_iter().zip(slices) {
            let found = rows.iter().map(seq).collect::<Result<Vec<_>, _>>()?;
            let unknown = found.iter().copied().filter(|seq| !self.fetched.knows(*seq));
            if self.returns(of) {
                of_returned.extend(unknown.clone());
            }
            new.extend(unknown);
            self.fetched.dependents.insert(of, ListPrefix { truncated: found.len() >= limit, found, after });
        }
        self.fetch_rows(new.into_iter().collect()).await?;
        let mut others = Vec::new();
        for dependent in of_returned {
            let Some(found) = self.fetched.rows.get(&dependent) else { continue };
            let job = codec::job::decode(dependent, &found.record, &self.known.names)
                .map_err(|_| TxError::damaged(dependent))?;
            others.extend(job.dependencies.all().into_iter().map(|id| self.known.seal.decrypt(id)));
        }
        others.retain(|seq| i64::try_from(seq.0).is_ok());
        Ok(others)
    }

    /// A job whose dependents may come back with it: then it is asked what else they depend on. An end is told without.
    fn returns(&self, of: Seq) -> bool {
        let Some(found) = self.fetched.rows.get(&of) else { return false };
        codec::job::decode(of, &found.record, &self.known.names).is_ok_and(|job| match job.pending_propagation {
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
        let sql = &self.shared.sql;
        // Those that this transaction has ended already are still found.
        let reach = i64::try_from(limit + self.fetched.rows.len()).unwrap_or(i64::MAX);
        let number = self.known.queue_id(&queue).unwrap_or(-1);
        let order = match state {
            StateKind::Scheduled => stmt!(sql.in_line, number, reach),
            StateKind::Pending
            | StateKind::Delayed
            | StateKind::Running
            | StateKind::Retrying
            | StateKind::Completed
            | StateKind::Failed
            | StateKind::DeadLetter
            | StateKind::Cancelled => stmt!(sql.aside, number, state as i16, reach),
        };
        let rows = self.link.query(order).await?;
        let found = rows.iter().map(seq).collect::<Result<Vec<_>, _>>()?;
        let cut = i64::try_from(found.len()).unwrap_or(i64::MAX) >= reach;
        self.fetched
            .jobs_by_state
            .insert((queue, state), ListPrefix { found: found.clone(), after: Seq(0), truncated: cut });
        Ok(found.into_iter().take(limit).collect())
    }

    async fn fetch_foreign_ids(&mut self, ids: Vec<JobId>) -> Result<Vec<Seq>, TxError> {
        let bytes: Vec<Vec<u8>> = ids.iter().map(|id| id.as_bytes().to_vec()).collect();
        let rows = self.link.query(stmt!(self.shared.sql.foreign_ids, bytes)).await?;
        self.fetched.foreign_ids.extend(ids.into_iter().map(|id| (id, None)));
        let mut found = Vec::new();
        for row in &rows {
            let id = <[u8; 16]>::try_from(get::<Vec<u8>>(row, 0)?);
            let id = JobId::from_bytes(id.map_err(|_| TxError::Damaged("a foreign id".to_owned()))?);
            let seq = Seq(get::<i64>(row, 1)?.cast_unsigned());
            self.fetched.foreign_ids.insert(id, Some(seq));
            found.push(seq);
        }
        Ok(found)
    }

    /// Exact, and nobody else adds to these queues until the end of this transaction.
    async fn fetch_counts(&mut self, names: Vec<QueueName>) -> Result<(), TxError> {
        let sql = &self.shared.sql;
        let mut queues: Vec<i32> = names.iter().filter_map(|name| self.known.queue_id(name)).collect();
        queues.sort_unstable();
        let mut orders = Vec::new();
        for queue in &queues {
            let key = self.shared.lock_key.wrapping_add(1 + i64::from(*queue));
            orders.push(stmt!(sql.lock_queue, key));
        }
        orders.push(stmt!(sql.counts_of, queues));
        let rows = self.link.pipeline(&orders, TxBoundary::Inside).await?.pop().unwrap_or_default();
        let mut counts: HashMap<QueueName, (StateCounts, u64)> =
            names.into_iter().map(|name| (name, Default::default())).collect();
        for row in &rows {
            let (queue, state, jobs): (i32, i16, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            let name = u32::try_from(queue).ok().and_then(|number| self.known.names.queue(number));
            let Some((of_states, held)) = name.and_then(|name| counts.get_mut(name)) else { continue };
            let jobs = jobs.max(0).unsigned_abs();
            match usize::try_from(state).ok().and_then(|state| of_states.get_mut(state)) {
                Some(count) => *count = jobs,
                None => *held = jobs,
            }
        }
        self.fetched.counts.extend(counts);
        Ok(())
    }

    /// What may be due, and not more than the tick may touch.
    pub(super) async fn fetch_due(&mut self, budget: usize) -> Result<(), TxError> {
        let sql = &self.shared.sql;
        let (now, limit) = (self.now.as_millis(), i64::try_from(budget).unwrap_or(i64::MAX));
        let pruned = now.saturating_sub(self.shared.slack_ms());
        let orders = [stmt!(sql.due, now, limit), stmt!(sql.prunable, pruned, limit), stmt!(sql.purgeable, now, limit)];
        let found = self.link.pipeline(&orders, TxBoundary::Inside).await?;
        let [due, prunable, purgeable] = found.as_slice() else { return Err(TxError::TooLarge) };
        self.add_rows(due)?;
        for row in prunable {
            let (seq, found) = JobRow::archived(row)?;
            self.fetched.add(seq, found);
        }
        for row in purgeable {
            self.take_in_key(row)?;
        }
        Ok(())
    }
}
