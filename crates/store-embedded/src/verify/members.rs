//! Whether workflows say of their members what those say themselves.

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_store::{StoreError, WorkflowQuery};
use rusqlite::Connection;

use super::{VerifyReport, rows};
use crate::records::workflows;

/// Members as the records have them, by the numbers of their workflows.
#[derive(Default)]
pub(super) struct Members {
    seqs: BTreeMap<Seq, BTreeSet<Seq>>,
    counts: BTreeMap<Seq, [u64; StateKind::COUNT]>,
    names: BTreeSet<(i64, String, i64)>,
}

impl Members {
    pub(super) fn expect(&mut self, workflow: Seq, job: &Job) {
        self.seqs.entry(workflow).or_default().insert(job.seq);
        let counts = self.counts.entry(workflow).or_insert([0; StateKind::COUNT]);
        if job.requeued_as.is_none()
            && let Some(count) = counts.get_mut(job.kind() as usize)
        {
            *count += 1;
        }
        let name = job.membership.as_ref().map(|membership| membership.reference.to_string());
        let (workflow, seq) = (workflow.0.cast_signed(), job.seq.0.cast_signed());
        self.names.extend(name.map(|name| (workflow, name, seq)));
    }

    pub(super) fn check(&self, connection: &Connection, diagnosis: &mut VerifyReport) -> Result<(), StoreError> {
        let problems = &mut diagnosis.problems;
        let query = WorkflowQuery { state: None, limit: usize::MAX, before: None };
        let Ok(all) = workflows::page(connection, &query) else {
            problems.push("the record of a workflow is damaged".to_owned());
            return Ok(());
        };
        let noted: BTreeMap<i64, (i64, bool)> =
            rows(connection, "SELECT number, state, errand FROM workflow", |row| {
                Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
            })?;
        for workflow in &all {
            let number = workflow.number;
            let own = (workflows::state_number(workflow.state()), workflow.operation.is_some());
            if noted.get(&number.0.cast_signed()) != Some(&own) {
                problems.push(format!("what is noted beside the record of workflow {number} is not what it says"));
            }
            let seqs = self.seqs.get(&number).map_or(0, BTreeSet::len) as u64;
            let counts = self.counts.get(&number).copied().unwrap_or_default();
            // A member that has gone is still counted as it ended.
            let fits = StateKind::ALL.iter().zip(counts).all(|(state, there)| {
                let counted = workflow.tally.of(*state);
                if state.terminal() { counted >= there } else { counted == there }
            });
            if workflow.tally.records != seqs || !fits {
                problems.push(format!("the sums of workflow {number} are not those of its members"));
            }
        }
        let known: BTreeSet<Seq> = all.iter().map(|workflow| workflow.number).collect();
        if self.seqs.keys().any(|number| !known.contains(number)) {
            problems.push("some jobs are members of a workflow that is not there".to_owned());
        }
        for (number, seqs) in &self.seqs {
            let listed = workflows::members(connection, *number, Seq(0), usize::MAX).unwrap_or_default();
            if !listed.into_iter().collect::<BTreeSet<_>>().is_superset(seqs) {
                problems.push(format!("some members of workflow {number} are not on file"));
            }
        }
        let names: BTreeSet<(i64, String, i64)> =
            rows(connection, "SELECT workflow, name, seq FROM member_name", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        if !names.is_subset(&self.names) {
            problems.push("a name on file is not that of its member".to_owned());
        }
        Ok(())
    }
}
