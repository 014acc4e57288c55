//! Check of workflows against the records of their members.

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_store::{StoreError, WorkflowQuery};
use rusqlite::Connection;

use super::{VerifyReport, rows};
use crate::records::workflows;

/// Members by workflow number, derived from the records.
#[derive(Default)]
pub(super) struct Members {
    seqs: BTreeMap<Seq, BTreeSet<Seq>>,
    counts: BTreeMap<Seq, [u64; StateKind::COUNT]>,
    references: BTreeSet<(i64, String, i64)>,
}

impl Members {
    pub(super) fn add(&mut self, workflow: Seq, job: &Job) {
        self.seqs.entry(workflow).or_default().insert(job.seq);
        let counts = self.counts.entry(workflow).or_insert([0; StateKind::COUNT]);
        if job.requeued_as.is_none()
            && let Some(count) = counts.get_mut(job.kind() as usize)
        {
            *count += 1;
        }
        let reference = job.membership.as_ref().map(|membership| membership.reference.to_string());
        let (workflow, seq) = (workflow.0.cast_signed(), job.seq.0.cast_signed());
        self.references.extend(reference.map(|reference| (workflow, reference, seq)));
    }

    pub(super) fn check(&self, connection: &Connection, report: &mut VerifyReport) -> Result<(), StoreError> {
        let problems = &mut report.problems;
        let query = WorkflowQuery { state: None, limit: usize::MAX, before: None };
        let Ok(all) = workflows::page(connection, &query) else {
            problems.push("a workflow has a corrupt record".to_owned());
            return Ok(());
        };
        let columns: BTreeMap<i64, (i64, bool)> =
            rows(connection, "SELECT number, state, operation_active FROM workflow", |row| {
                Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
            })?;
        for workflow in &all {
            let number = workflow.number;
            let expected = (workflows::state_number(workflow.state()), workflow.operation.is_some());
            if columns.get(&number.0.cast_signed()) != Some(&expected) {
                problems.push(format!("workflow {number}: index columns do not match its record"));
            }
            let seqs = self.seqs.get(&number).map_or(0, BTreeSet::len) as u64;
            let counts = self.counts.get(&number).copied().unwrap_or_default();
            // A pruned member stays in the counts of its last state.
            let is_consistent = StateKind::ALL.iter().zip(counts).all(|(state, existing)| {
                let counted = workflow.tally.of(*state);
                if state.terminal() { counted >= existing } else { counted == existing }
            });
            if workflow.tally.records != seqs || !is_consistent {
                problems.push(format!("workflow {number}: counts do not match its members"));
            }
        }
        let numbers: BTreeSet<Seq> = all.iter().map(|workflow| workflow.number).collect();
        if self.seqs.keys().any(|number| !numbers.contains(number)) {
            problems.push("some jobs are members of a workflow that does not exist".to_owned());
        }
        for (number, seqs) in &self.seqs {
            let listed = workflows::members(connection, *number, Seq(0), usize::MAX).unwrap_or_default();
            if !listed.into_iter().collect::<BTreeSet<_>>().is_superset(seqs) {
                problems.push(format!("workflow {number}: table \"member\" does not cover all members"));
            }
        }
        let references: BTreeSet<(i64, String, i64)> =
            rows(connection, "SELECT workflow, name, seq FROM member_ref", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        if !references.is_subset(&self.references) {
            problems.push("table \"member_ref\": a reference does not match its member".to_owned());
        }
        Ok(())
    }
}
