//! Workflows of a batch: which one it creates or joins, and the references of its members.

use std::collections::HashSet;
use std::sync::Arc;

use longshore_core::id::{JobId, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::{BATCH_ITEMS_MAX, WORKFLOW_EDGES_MAX, WORKFLOW_JOBS_MAX};
use longshore_core::refusal::Refusal;
use longshore_core::submit::{self, DependencyRef, RefIndex};
use longshore_core::workflow::{Membership, Workflow};
use longshore_core::workflow_shape::too_many_edges;

use super::plan::{BatchItem, BatchPlan};
use super::request::ItemRefs;
use super::{ParsedSubmission, Submission, Submitted, WorkflowTarget};
use crate::context::{CommandContext, CommandError};
use crate::records::JobRecords;

/// The workflow of a batch.
pub(super) enum WorkflowBinding {
    Nothing,
    New {
        name: Option<Arc<str>>,
        open: bool,
    },
    /// An existing open workflow.
    Open(WorkflowId),
    /// The workflow of the parent, open or closed. References are local to the children.
    Unnamed(WorkflowId),
}

/// The memberships, or the result if all jobs of the batch exist already.
pub(super) type MembershipResult = Result<Memberships, Vec<Submitted>>;

/// The membership of each item.
pub(super) struct Memberships {
    pub(super) by_index: Vec<Option<Membership>>,
    /// Whether references are stored, so that later requests can use them.
    pub(super) named: bool,
}

/// Checks the number of jobs and dependencies of a batch.
/// The limit per job comes first: it names the item that has to change.
pub(super) fn check_length(batch: &[ParsedSubmission], target: Option<&WorkflowTarget>) -> Result<(), Refusal> {
    let max = match target {
        Some(WorkflowTarget::New { .. }) => WORKFLOW_JOBS_MAX,
        Some(WorkflowTarget::Open(_)) | None => BATCH_ITEMS_MAX,
    };
    if target.is_some() {
        let mut edges = 0;
        for ItemRefs { after, after_any, .. } in batch.iter().map(ItemRefs::of) {
            submit::check_breadth(after, after_any)?;
            edges += after.len() + after_any.len();
        }
        if edges > WORKFLOW_EDGES_MAX {
            return Err(too_many_edges().into());
        }
    }
    if (1..=max).contains(&batch.len()) {
        Ok(())
    } else {
        Err(Refusal::invalid("jobs", format!("must be 1-{max} jobs")))
    }
}

impl<R: JobRecords> CommandContext<'_, R> {
    pub(super) fn check_target(&mut self, target: &WorkflowTarget) -> Result<WorkflowBinding, CommandError<R::Error>> {
        match target {
            WorkflowTarget::New { name, open } => {
                Workflow::check_name(name.as_deref())?;
                Ok(WorkflowBinding::New { name: name.clone(), open: *open })
            }
            WorkflowTarget::Open(id) if self.find_workflow(*id)?.open => Ok(WorkflowBinding::Open(*id)),
            WorkflowTarget::Open(_) => Err(Refusal::Illegal("the workflow is closed").into()),
        }
    }

    /// Finds the members from earlier requests that items refer to. Refuses items that reuse a
    /// reference.
    ///
    /// A duplicate may repeat its own reference: the client has lost the response to an earlier
    /// request.
    pub(super) fn resolve_member_refs(
        &mut self,
        workflow: WorkflowId,
        items: &[ItemRefs<'_>],
        refs: &RefIndex,
        plan: &mut BatchPlan,
    ) -> Result<(), CommandError<R::Error>> {
        for index in 0..plan.items.len() {
            self.resolve_duplicate_clone(plan, index, workflow)?;
        }
        for (name, index) in refs {
            if self.records.member(workflow, name).map_err(CommandError::Storage)?.is_none() {
                continue;
            }
            let own = self.existing_membership(plan, *index, workflow)?;
            if own.is_none_or(|own| own.reference != *name) {
                let refusal = Refusal::invalid("ref", format!("\"{name}\" is used already in this workflow"));
                plan.errors.push((*index, refusal));
            }
        }
        for reference in items.iter().flat_map(|item| item.after.iter().chain(item.after_any)) {
            let DependencyRef::Local(name) = reference else { continue };
            if refs.contains_key(name) || plan.earlier_members.contains_key(name) {
                continue;
            }
            let Some(seq) = self.records.member(workflow, name).map_err(CommandError::Storage)? else { continue };
            let id: Option<JobId> = self.with_job(seq, |job| job.id)?;
            plan.earlier_members.extend(id.map(|id| (Arc::clone(name), id)));
        }
        Ok(())
    }

    /// Replaces a duplicate of a member by the clone as which the member was requeued.
    fn resolve_duplicate_clone(
        &mut self,
        plan: &mut BatchPlan,
        index: usize,
        workflow: WorkflowId,
    ) -> Result<(), CommandError<R::Error>> {
        if self.existing_membership(plan, index, workflow)?.is_none() {
            return Ok(());
        }
        let Some(Some(BatchItem::Duplicate(existing))) = plan.items.get_mut(index) else { return Ok(()) };
        let (id, seq) = self.resolve_clone(existing.id, existing.seq)?;
        if id != existing.id {
            (existing.id, existing.seq) = (id, seq);
            existing.state = self.with_job(seq, Job::kind)?;
        }
        Ok(())
    }

    /// Returns the membership of a duplicate whose job is a member of this workflow.
    fn existing_membership(
        &mut self,
        plan: &BatchPlan,
        index: usize,
        workflow: WorkflowId,
    ) -> Result<Option<Membership>, CommandError<R::Error>> {
        let Some(Some(BatchItem::Duplicate(existing))) = plan.items.get(index) else { return Ok(None) };
        let membership = self.with_job(existing.seq, |job| job.membership.clone())?.flatten();
        Ok(membership.filter(|membership| membership.workflow == workflow))
    }

    /// Assigns the memberships of a batch that passed all checks.
    pub(super) fn join(
        &mut self,
        batch: &[&Submission],
        binding: &WorkflowBinding,
        plan: &BatchPlan,
    ) -> Result<MembershipResult, CommandError<R::Error>> {
        let (mut workflow, named) = match binding {
            WorkflowBinding::Nothing => {
                return Ok(Ok(Memberships { by_index: vec![None; batch.len()], named: false }));
            }
            WorkflowBinding::New { name, open } => {
                if let Some(existing) = self.find_existing_workflow(batch, plan)? {
                    return Ok(Err(existing));
                }
                (self.new_workflow(name.as_ref(), *open)?, true)
            }
            WorkflowBinding::Open(id) => (self.find_workflow(*id)?, true),
            WorkflowBinding::Unnamed(id) => (self.find_workflow(*id)?, false),
        };
        let mut by_index = Vec::with_capacity(batch.len());
        for index in 0..batch.len() {
            by_index.push(self.existing_membership(plan, index, workflow.id)?);
        }
        let new_members = by_index.iter().filter(|membership| membership.is_none()).count();
        let mut names = names(batch, &by_index, workflow.members_added, named).into_iter();
        for membership in by_index.iter_mut().filter(|membership| membership.is_none()) {
            *membership = names.next().map(|reference| Membership { workflow: workflow.id, reference });
        }
        if new_members > 0 {
            workflow.members_added += new_members as u64;
            self.records.put_workflow(&workflow).map_err(CommandError::Storage)?;
        }
        Ok(Ok(Memberships { by_index, named }))
    }

    /// Returns the result of an earlier request if all items are duplicates of members of one
    /// workflow.
    fn find_existing_workflow(
        &mut self,
        batch: &[&Submission],
        plan: &BatchPlan,
    ) -> Result<Option<Vec<Submitted>>, CommandError<R::Error>> {
        if (0..batch.len()).any(|index| plan.new_job_at(index).is_some()) {
            return Ok(None);
        }
        let (mut results, mut workflows) = (Vec::with_capacity(batch.len()), HashSet::new());
        for item in plan.items.iter().flatten() {
            let BatchItem::Duplicate(submitted) = item else { continue };
            let membership = self.with_job(submitted.seq, |job| job.membership.clone())?.flatten();
            workflows.insert(membership.as_ref().map(|membership| membership.workflow));
            results.push(Submitted { membership, ..submitted.clone() });
        }
        if workflows.len() != 1 || workflows.contains(&None) {
            let reason = "are duplicates by their idempotency keys, but not the jobs of one workflow";
            return Err(Refusal::invalid("jobs", reason).into());
        }
        Ok(Some(results))
    }
}

/// Returns the references of the new members: their own, or a number that counts all members so
/// far.
fn names(batch: &[&Submission], existing: &[Option<Membership>], joined: u64, named: bool) -> Vec<Arc<str>> {
    let own = |submission: &Submission| submission.job.reference.clone().filter(|_| named);
    let used: HashSet<Arc<str>> = batch.iter().filter_map(|submission| own(submission)).collect();
    let name = |(number, submission): (u64, &Submission)| {
        own(submission).unwrap_or_else(|| {
            let mut name = number.to_string();
            while used.contains(name.as_str()) {
                name.push('_');
            }
            name.into()
        })
    };
    let is_new = |(_, membership): &(&&Submission, &Option<Membership>)| membership.is_none();
    let new_members = batch.iter().zip(existing).filter(is_new).map(|(submission, _)| *submission);
    (joined..).zip(new_members).map(name).collect()
}
