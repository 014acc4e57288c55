//! Reads workflows, their members, and their bulk operations.

use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::state::StateKind;
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction};
use longshore_engine::AdminCommand;
use tokio_postgres::Row;

use crate::connection::{get, stmt};
use crate::error::TxError;
use crate::read_set::{ListPrefix, StoredWorkflow};
use crate::request::TxRequest;
use crate::row::{JobRow, seq};
use crate::transaction::Transaction;

/// Bulk operations that a tick resumes, at most.
const OPERATIONS_MAX: i64 = 16;

/// Columns: number, revision, counts, record.
pub(crate) fn workflow_of(row: &Row) -> Result<StoredWorkflow, TxError> {
    let number = seq(row)?;
    let (revision, counts, record): (i64, Vec<i64>, Vec<u8>) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
    let decoded = codec::workflow::decode(number, &record);
    let workflow = decoded.map_err(|_| TxError::Damaged(format!("record of workflow {number}")))?;
    let mut tally = MemberCounts::default();
    for (count, stored) in tally.counts.iter_mut().zip(&counts) {
        *count = stored.max(&0).unsigned_abs();
    }
    tally.records = counts.get(StateKind::COUNT).map_or(0, |records| records.max(&0).unsigned_abs());
    Ok(StoredWorkflow { workflow: Workflow { tally, ..workflow }, revision })
}

impl Transaction<'_> {
    pub(super) async fn fetch_workflows(&mut self, numbers: Vec<i64>) -> Result<(), TxError> {
        let rows = self.connection.query(stmt!(self.node.sql.workflows, numbers.clone())).await?;
        for number in numbers {
            self.read_set.workflows.insert(Seq(number.cast_unsigned()), None);
        }
        self.add_workflows(&rows)
    }

    fn add_workflows(&mut self, rows: &[Row]) -> Result<(), TxError> {
        for row in rows {
            let stored = workflow_of(row)?;
            self.read_set.workflows.insert(stored.workflow.number, Some(stored));
        }
        Ok(())
    }

    /// Returns the members; the rules read their jobs next.
    pub(super) async fn fetch_members(&mut self, of: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, TxError> {
        let limit_sent = i64::try_from(limit).unwrap_or(i64::MAX);
        let (number, after_number) = (of.0.cast_signed(), i64::try_from(after.0).unwrap_or(i64::MAX));
        let rows =
            self.connection.query(stmt!(self.node.sql.workflow_members, number, after_number, limit_sent)).await?;
        let seqs = rows.iter().map(seq).collect::<Result<Vec<_>, _>>()?;
        self.read_set
            .workflow_members
            .insert(of, ListPrefix { truncated: seqs.len() >= limit, seqs: seqs.clone(), after });
        Ok(seqs)
    }

    pub(super) async fn fetch_member_refs(&mut self, names: Vec<(Seq, Arc<str>)>) -> Result<Vec<Seq>, TxError> {
        let workflows: Vec<i64> = names.iter().map(|(workflow, _)| workflow.0.cast_signed()).collect();
        let texts: Vec<String> = names.iter().map(|(_, name)| name.to_string()).collect();
        let rows = self.connection.query(stmt!(self.node.sql.member_refs, workflows, texts)).await?;
        self.read_set.member_refs.extend(names.into_iter().map(|name| (name, None)));
        let mut members = Vec::new();
        for row in &rows {
            let (name, member): (String, i64) = (get(row, 1)?, get(row, 2)?);
            let member = Seq(member.cast_unsigned());
            self.read_set.member_refs.insert((seq(row)?, Arc::from(name)), Some(member));
            members.push(member);
        }
        Ok(members)
    }

    /// Reads workflows with a bulk operation, for a tick. One node at a time resumes them.
    pub(in crate::transaction) async fn fetch_active_operations(&mut self, budget: usize) -> Result<(), TxError> {
        let key = self.node.lock_key - 3;
        let rows = self.connection.query(stmt!(self.node.sql.active_operations, key, OPERATIONS_MAX)).await?;
        let mut retries = false;
        for row in &rows {
            let Workflow { id, operation, .. } = workflow_of(row)?.workflow;
            retries |= operation.is_some_and(|operation| operation.action == WorkflowAction::Retry);
            self.read_set.operations.push(id);
        }
        self.add_workflows(&rows)?;
        if retries { self.fetch_pending_propagation(budget).await } else { Ok(()) }
    }

    /// A retry of a workflow revives members only after pending propagation has reached them. It is
    /// read first; what remains of it delays the retry.
    pub(in crate::transaction) async fn fetch_propagation_for(
        &mut self,
        requests: &[TxRequest],
    ) -> Result<(), TxError> {
        let retries = |request: &TxRequest| match request {
            TxRequest::Admin(command, _) => matches!(**command, AdminCommand::RetryWorkflow { .. }),
            TxRequest::Submit(..)
            | TxRequest::Claim(..)
            | TxRequest::Settle(..)
            | TxRequest::SettleAndClaim(..)
            | TxRequest::Heartbeat(..)
            | TxRequest::System(..)
            | TxRequest::Tick(..) => false,
        };
        if requests.iter().any(retries) {
            self.fetch_pending_propagation(self.node.engine.cascade_jobs_max).await
        } else {
            Ok(())
        }
    }

    /// Reads one job more than can be propagated, to see whether any remain.
    async fn fetch_pending_propagation(&mut self, jobs_max: usize) -> Result<(), TxError> {
        let limit = i64::try_from(jobs_max).unwrap_or(i64::MAX).saturating_add(1);
        let rows = self.connection.query(stmt!(self.node.sql.pending_propagation, limit)).await?;
        for row in &rows {
            let (seq, row) = JobRow::live(row)?;
            self.read_set.add(seq, row);
            self.read_set.pending_propagation.push(seq);
        }
        Ok(())
    }
}
