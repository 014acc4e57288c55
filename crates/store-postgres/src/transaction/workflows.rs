//! Writes of workflows. A record is replaced only if its revision is the one that was read. Member
//! counts are changed by deltas.

use std::collections::BTreeSet;

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::workflow::{MemberCounts, Workflow};

use super::Transaction;
use super::write::row_count;
use crate::connection::{StatementCall, stmt};
use crate::read_set::ReadSet;
use crate::working_set::WorkflowChanges;

/// Rows of the table `workflows`, column by column.
#[derive(Default)]
struct WorkflowColumns {
    numbers: Vec<i64>,
    open: Vec<bool>,
    operation_active: Vec<bool>,
    records: Vec<Vec<u8>>,
    expected_revisions: Vec<i64>,
}

impl WorkflowColumns {
    fn push(&mut self, workflow: &Workflow, expected_revision: Option<i64>) {
        // Member counts have a column of their own.
        let stored = Workflow { tally: MemberCounts::default(), ..workflow.clone() };
        self.numbers.push(workflow.number.0.cast_signed());
        self.open.push(workflow.open);
        self.operation_active.push(workflow.operation.is_some());
        self.records.push(codec::workflow::encode(&stored));
        self.expected_revisions.extend(expected_revision);
    }
}

/// Rows of the table `workflow_member_refs`, column by column.
#[derive(Default)]
struct RefColumns {
    workflows: Vec<i64>,
    names: Vec<String>,
    members: Vec<i64>,
}

impl RefColumns {
    fn push(&mut self, workflow: Seq, name: &str, member: Seq) {
        self.workflows.push(workflow.0.cast_signed());
        self.names.push(name.to_owned());
        self.members.push(member.0.cast_signed());
    }
}

impl Transaction<'_> {
    /// Workflows are the last rows that a transaction locks, in the order of their numbers.
    pub(super) fn write_workflows<'o>(
        &'o self,
        changes: &WorkflowChanges,
        read_set: &ReadSet,
        statements: &mut Vec<StatementCall<'o>>,
    ) {
        let sql = &self.node.sql;
        self.write_members(changes, statements);
        let (mut inserted, mut updated) = (WorkflowColumns::default(), WorkflowColumns::default());
        for (number, workflow) in &changes.put {
            match read_set.workflows.get(number) {
                Some(Some(stored)) => updated.push(workflow, Some(stored.revision)),
                Some(None) | None => inserted.push(workflow, None),
            }
        }
        if !inserted.numbers.is_empty() {
            let WorkflowColumns { numbers, open, operation_active, records, .. } = inserted;
            statements.push(stmt!(sql.insert_workflows, numbers, open, operation_active, records));
        }
        if !updated.numbers.is_empty() {
            let rows = row_count(&updated.numbers);
            let WorkflowColumns { numbers, open, operation_active, records, expected_revisions } = updated;
            let call = stmt!(sql.update_workflows, numbers, open, operation_active, records, expected_revisions, rows);
            statements.push(call);
        }
        let deltas: Vec<_> = changes.count_deltas.iter().filter(|(_, delta)| !delta.is_nothing()).collect();
        if !deltas.is_empty() {
            let numbers: Vec<i64> = deltas.iter().map(|(number, _)| number.0.cast_signed()).collect();
            let counts: Vec<i64> =
                deltas.iter().flat_map(|(_, delta)| delta.counts.into_iter().chain([delta.records])).collect();
            statements.push(stmt!(sql.add_member_counts, numbers, counts));
        }
        // Two nodes may remove the last two members at the same time. The statement of the second
        // one finds the workflow empty.
        let shrunk = changes.count_deltas.iter().filter(|(_, delta)| delta.records < 0).map(|(number, _)| *number);
        let candidates: BTreeSet<Seq> = shrunk.chain(changes.removed.iter().copied()).collect();
        if !candidates.is_empty() {
            statements.push(stmt!(sql.delete_empty_workflows, super::numbers(candidates)));
        }
    }

    fn write_members<'o>(&'o self, changes: &WorkflowChanges, statements: &mut Vec<StatementCall<'o>>) {
        let sql = &self.node.sql;
        if !changes.added_members.is_empty() {
            let signed = |(workflow, member): &(Seq, Seq)| (workflow.0.cast_signed(), member.0.cast_signed());
            let (workflows, members): (Vec<i64>, Vec<i64>) = changes.added_members.iter().map(signed).unzip();
            statements.push(stmt!(sql.insert_members, workflows, members));
        }
        let mut removed = RefColumns::default();
        for (workflow, name, member) in &changes.removed_members {
            removed.push(*workflow, name, *member);
        }
        if !removed.workflows.is_empty() {
            statements.push(stmt!(sql.remove_members, removed.workflows, removed.names, removed.members));
        }
        let mut refs = RefColumns::default();
        for ((workflow, name), member) in &changes.refs {
            if let Some(member) = member {
                refs.push(*workflow, name, *member);
            }
        }
        if !refs.workflows.is_empty() {
            statements.push(stmt!(sql.set_member_refs, refs.workflows, refs.names, refs.members));
        }
    }
}
