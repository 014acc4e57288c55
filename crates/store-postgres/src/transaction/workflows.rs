//! Writing what has changed about workflows: their records where they are as they were read, their sums by adding to whatever they are by now.

use std::collections::BTreeSet;

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::workflow::{MemberCounts, Workflow};

use super::Transaction;
use crate::connection::{StatementCall, stmt};
use crate::read_set::ReadSet;
use crate::working_set::WorkflowChanges;

/// Rows of the table of workflows, column by column.
#[derive(Default)]
struct Table {
    numbers: Vec<i64>,
    open: Vec<bool>,
    errands: Vec<bool>,
    records: Vec<Vec<u8>>,
    revisions: Vec<i64>,
}

impl Table {
    fn push(&mut self, workflow: &Workflow, revision: Option<i64>) {
        // The sums have a column of their own.
        let bare = Workflow { tally: MemberCounts::default(), ..workflow.clone() };
        self.numbers.push(workflow.number.0.cast_signed());
        self.open.push(workflow.open);
        self.errands.push(workflow.operation.is_some());
        self.records.push(codec::workflow::encode(&bare));
        self.revisions.extend(revision);
    }
}

impl Transaction<'_> {
    /// The rows of workflows are the last that a transaction locks, in order.
    pub(super) fn write_workflows<'o>(
        &'o self,
        changes: &WorkflowChanges,
        fetched: &ReadSet,
        statements: &mut Vec<StatementCall<'o>>,
    ) {
        let sql = &self.shared.sql;
        self.write_members(changes, statements);
        let (mut new, mut changed) = (Table::default(), Table::default());
        for (number, workflow) in &changes.put {
            match fetched.workflows.get(number) {
                Some(Some(found)) => changed.push(workflow, Some(found.revision)),
                Some(None) | None => new.push(workflow, None),
            }
        }
        if !new.numbers.is_empty() {
            statements.push(stmt!(sql.insert_workflows, new.numbers, new.open, new.errands, new.records));
        }
        if !changed.numbers.is_empty() {
            let rows = i64::try_from(changed.numbers.len()).unwrap_or(i64::MAX);
            let Table { numbers, open, errands, records, revisions } = changed;
            statements.push(stmt!(sql.update_workflows, numbers, open, errands, records, revisions, rows));
        }
        let tallies: Vec<_> = changes.tallies.iter().filter(|(_, change)| !change.is_nothing()).collect();
        if !tallies.is_empty() {
            let numbers: Vec<i64> = tallies.iter().map(|(number, _)| number.0.cast_signed()).collect();
            let sums: Vec<i64> =
                tallies.iter().flat_map(|(_, change)| change.counts.into_iter().chain([change.records])).collect();
            statements.push(stmt!(sql.add_tallies, numbers, sums));
        }
        // Two nodes may take the last two members at once; whoever comes second finds out here.
        let fewer = changes.tallies.iter().filter(|(_, change)| change.records < 0).map(|(number, _)| *number);
        let leaving: BTreeSet<Seq> = fewer.chain(changes.removed.iter().copied()).collect();
        if !leaving.is_empty() {
            statements.push(stmt!(sql.forget_workflows, super::numbers(leaving)));
        }
    }

    fn write_members<'o>(&'o self, changes: &WorkflowChanges, statements: &mut Vec<StatementCall<'o>>) {
        let sql = &self.shared.sql;
        if !changes.admitted.is_empty() {
            let (workflows, members): (Vec<i64>, Vec<i64>) =
                changes.admitted.iter().map(|(of, member)| (of.0.cast_signed(), member.0.cast_signed())).unzip();
            statements.push(stmt!(sql.insert_members, workflows, members));
        }
        let (mut workflows, mut names, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for (workflow, name, member) in &changes.dismissed {
            workflows.push(workflow.0.cast_signed());
            names.push(name.to_string());
            members.push(member.0.cast_signed());
        }
        if !workflows.is_empty() {
            statements.push(stmt!(sql.remove_members, workflows, names, members));
        }
        let (mut workflows, mut names, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for ((workflow, name), member) in &changes.names {
            let Some(member) = member else { continue };
            workflows.push(workflow.0.cast_signed());
            names.push(name.to_string());
            members.push(member.0.cast_signed());
        }
        if !workflows.is_empty() {
            statements.push(stmt!(sql.name_members, workflows, names, members));
        }
    }
}
