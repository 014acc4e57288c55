//! Reading workflows, their members, and what is being done to them.

use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::state::StateKind;
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction};
use longshore_engine::AdminCommand;
use tokio_postgres::Row;

use crate::connection::{get, stmt};
use crate::error::TxError;
use crate::read_set::{FoundWorkflow, ListPrefix};
use crate::row::{JobRow, seq};
use crate::transaction::Transaction;
use longshore_store::Request;

/// Workflows that a tick goes on with, at most.
const ERRANDS_MAX: i64 = 16;

/// Columns: number, revision, counts, record.
pub(crate) fn workflow_of(row: &Row) -> Result<FoundWorkflow, TxError> {
    let number = seq(row)?;
    let (revision, counts, record): (i64, Vec<i64>, Vec<u8>) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
    let decoded = codec::workflow::decode(number, &record);
    let workflow = decoded.map_err(|_| TxError::Damaged(format!("the record of workflow {number}")))?;
    let mut tally = MemberCounts::default();
    for (count, stored) in tally.counts.iter_mut().zip(&counts) {
        *count = stored.max(&0).unsigned_abs();
    }
    tally.records = counts.get(StateKind::COUNT).map_or(0, |records| records.max(&0).unsigned_abs());
    Ok(FoundWorkflow { workflow: Workflow { tally, ..workflow }, revision })
}

impl Transaction<'_> {
    pub(super) async fn fetch_workflows(&mut self, numbers: Vec<i64>) -> Result<(), TxError> {
        let rows = self.link.query(stmt!(self.shared.sql.workflows, numbers.clone())).await?;
        for number in numbers {
            self.fetched.workflows.insert(Seq(number.cast_unsigned()), None);
        }
        self.take_in_workflows(&rows)
    }

    fn take_in_workflows(&mut self, rows: &[Row]) -> Result<(), TxError> {
        for row in rows {
            let found = workflow_of(row)?;
            self.fetched.workflows.insert(found.workflow.number, Some(found));
        }
        Ok(())
    }

    /// Answers the members: the rules will want to see them.
    pub(super) async fn fetch_members(&mut self, of: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, TxError> {
        let limit_sent = i64::try_from(limit).unwrap_or(i64::MAX);
        let (number, after_number) = (of.0.cast_signed(), i64::try_from(after.0).unwrap_or(i64::MAX));
        let rows = self.link.query(stmt!(self.shared.sql.members, number, after_number, limit_sent)).await?;
        let found = rows.iter().map(seq).collect::<Result<Vec<_>, _>>()?;
        self.fetched
            .workflow_members
            .insert(of, ListPrefix { truncated: found.len() >= limit, found: found.clone(), after });
        Ok(found)
    }

    pub(super) async fn fetch_member_names(&mut self, names: Vec<(Seq, Arc<str>)>) -> Result<Vec<Seq>, TxError> {
        let workflows: Vec<i64> = names.iter().map(|(workflow, _)| workflow.0.cast_signed()).collect();
        let texts: Vec<String> = names.iter().map(|(_, name)| name.to_string()).collect();
        let rows = self.link.query(stmt!(self.shared.sql.member_names, workflows, texts)).await?;
        self.fetched.member_names.extend(names.into_iter().map(|name| (name, None)));
        let mut members = Vec::new();
        for row in &rows {
            let (name, member): (String, i64) = (get(row, 1)?, get(row, 2)?);
            let member = Seq(member.cast_unsigned());
            self.fetched.member_names.insert((seq(row)?, Arc::from(name)), Some(member));
            members.push(member);
        }
        Ok(members)
    }

    /// For a tick: workflows to whose members something is being done. One node at a time goes on with that.
    pub(in crate::transaction) async fn fetch_active_operations(&mut self, budget: usize) -> Result<(), TxError> {
        let key = self.shared.lock_key - 3;
        let rows = self.link.query(stmt!(self.shared.sql.errands, key, ERRANDS_MAX)).await?;
        let mut retries = false;
        for row in &rows {
            let found = workflow_of(row)?;
            retries |= found.workflow.operation.as_ref().is_some_and(|errand| errand.action == WorkflowAction::Retry);
            self.fetched.errands.push(found.workflow.id);
        }
        self.take_in_workflows(&rows)?;
        if retries { self.fetch_pending_propagation(budget).await } else { Ok(()) }
    }

    /// Members come back only after they have heard why they were stopped: that is told first, and what is left of it holds up the rest.
    pub(in crate::transaction) async fn fetch_news_for(&mut self, requests: &[Request]) -> Result<(), TxError> {
        let retries = |request: &Request| match request {
            Request::Admin(command, _) => matches!(**command, AdminCommand::RetryWorkflow { .. }),
            Request::Submit(..)
            | Request::Claim(..)
            | Request::Settle(..)
            | Request::Heartbeat(..)
            | Request::Tick(..) => false,
        };
        if requests.iter().any(retries) {
            self.fetch_pending_propagation(self.shared.engine.cascade_jobs_max).await
        } else {
            Ok(())
        }
    }

    /// One more than can be told.
    async fn fetch_pending_propagation(&mut self, told_max: usize) -> Result<(), TxError> {
        let limit = i64::try_from(told_max).unwrap_or(i64::MAX).saturating_add(1);
        let rows = self.link.query(stmt!(self.shared.sql.news, limit)).await?;
        for row in &rows {
            let (seq, found) = JobRow::live(row)?;
            self.fetched.add(seq, found);
            self.fetched.pending_propagation.push(seq);
        }
        Ok(())
    }
}
