//! Reads of workflows. Member counts are stored, never counted.

use std::sync::Arc;

use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::workflow::Workflow;
use longshore_store::{MemberQuery, Page, WorkflowPage, WorkflowQuery};

use super::{EXAMINED_MAX, ReadTransaction};
use crate::connection::{get, stmt};
use crate::error::TxError;
use crate::row::seq;
use crate::transaction::fetch::workflows::workflow_of;

impl ReadTransaction<'_> {
    /// The number of a workflow, if its id can be of this store.
    pub(super) async fn number_of(&self, id: WorkflowId) -> Result<Option<i64>, TxError> {
        let own = self.catalog.id_cipher.decrypt(JobId::from_bytes(*id.as_bytes()));
        if self.catalog.has_imported_ids {
            let ids = vec![id.as_bytes().to_vec()];
            if let Some(row) = self.connection.query(stmt!(self.node.sql.imported_ids, ids)).await?.first() {
                return get(row, 1).map(Some);
            }
        }
        Ok(i64::try_from(own.0).ok())
    }

    pub(super) async fn workflow(&mut self, id: WorkflowId) -> Result<Option<Arc<Workflow>>, TxError> {
        self.begin(Vec::new()).await?;
        let Some(number) = self.number_of(id).await? else { return Ok(None) };
        let rows = self.connection.query(stmt!(self.node.sql.workflows, vec![number])).await?;
        let found = rows.first().map(workflow_of).transpose()?;
        Ok(found.map(|stored| stored.workflow).filter(|workflow| workflow.id == id).map(Arc::new))
    }

    pub(super) async fn workflows(&mut self, query: &WorkflowQuery) -> Result<WorkflowPage, TxError> {
        let sql = &self.node.sql;
        let before = query.before.map_or(i64::MAX, |before| i64::try_from(before.0).unwrap_or(i64::MAX));
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let call = match query.state {
            None => stmt!(sql.list_workflows, before, limit),
            Some(state) => stmt!(sql.list_workflows_in, before, limit, state as i16),
        };
        let rows = self.begin(vec![call]).await?.pop().unwrap_or_default();
        let found = rows.iter().map(workflow_of).collect::<Result<Vec<_>, _>>()?;
        let next = found.last().filter(|_| found.len() >= query.limit).map(|found| found.workflow.number);
        Ok(WorkflowPage { workflows: found.into_iter().map(|found| Arc::new(found.workflow)).collect(), next })
    }

    /// Members that were replaced by clones are skipped.
    pub(super) async fn members(&mut self, query: &MemberQuery) -> Result<Page, TxError> {
        let MemberQuery { workflow, limit, after } = *query;
        self.begin(Vec::new()).await?;
        let Some(number) = self.number_of(workflow).await? else { return Ok(Page { jobs: Vec::new(), next: None }) };
        let examined = EXAMINED_MAX.max(limit);
        let after = i64::try_from(after.0).unwrap_or(i64::MAX);
        let limit_read = i64::try_from(examined).unwrap_or(i64::MAX);
        let rows = self.connection.query(stmt!(self.node.sql.workflow_members, number, after, limit_read)).await?;
        let candidates = rows.iter().map(seq).collect::<Result<Vec<Seq>, _>>()?;
        let is_member = |job: &Job| {
            job.membership.as_ref().is_some_and(|membership| membership.workflow == workflow)
                && job.requeued_as.is_none()
        };
        let mut jobs = Vec::new();
        for chunk in candidates.chunks(limit.clamp(1, 1_000)) {
            let numbers: Vec<i64> = chunk.iter().map(|seq| seq.0.cast_signed()).collect();
            let rows = self.connection.query(stmt!(self.node.sql.get_jobs, numbers)).await?;
            let found = self.jobs(&rows)?;
            for seq in chunk {
                jobs.extend(found.get(seq).filter(|job| is_member(job)).cloned());
                if jobs.len() >= limit {
                    return Ok(Page { jobs, next: Some(*seq) });
                }
            }
        }
        let next = candidates.last().copied().filter(|_| candidates.len() >= examined);
        Ok(Page { jobs, next })
    }
}
