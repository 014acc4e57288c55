//! A batch that becomes a workflow, or joins one: who may, and what everybody is called there.

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
use super::{Submission, Submitted, WorkflowTarget};
use crate::context::{CommandContext, CommandError};
use crate::records::JobRecords;

/// What a batch belongs to.
pub(super) enum WorkflowBinding {
    Nothing,
    New {
        name: Option<Arc<str>>,
        open: bool,
    },
    /// One that takes more.
    Open(WorkflowId),
    /// The parent's, open or not: the parent itself runs in it. References stay the children's own.
    Unnamed(WorkflowId),
}

/// Memberships, or the answer if there is nothing new to join.
pub(super) type MembershipResult = Result<Memberships, Vec<Submitted>>;

pub(super) struct Memberships {
    pub(super) by_place: Vec<Option<Membership>>,
    /// Names that were given lead to their jobs, for later calls.
    pub(super) named: bool,
}

/// How many jobs one call may bring. Too many dependencies of one job are told first: that is the more telling answer.
pub(super) fn check_length(batch: &[Submission], joining: Option<&WorkflowTarget>) -> Result<(), Refusal> {
    let max = match joining {
        Some(WorkflowTarget::New { .. }) => WORKFLOW_JOBS_MAX,
        Some(WorkflowTarget::Open(_)) | None => BATCH_ITEMS_MAX,
    };
    if joining.is_some() {
        batch.iter().try_for_each(|submission| submit::check_breadth(&submission.job))?;
        let links = |submission: &Submission| submission.job.after.len() + submission.job.after_any.len();
        if batch.iter().map(links).sum::<usize>() > WORKFLOW_EDGES_MAX {
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
    pub(super) fn check_joining(
        &mut self,
        joining: &WorkflowTarget,
    ) -> Result<WorkflowBinding, CommandError<R::Error>> {
        match joining {
            WorkflowTarget::New { name, open } => {
                Workflow::check_name(name.as_deref())?;
                Ok(WorkflowBinding::New { name: name.clone(), open: *open })
            }
            WorkflowTarget::Open(id) if self.find_workflow(*id)?.open => Ok(WorkflowBinding::Open(*id)),
            WorkflowTarget::Open(_) => Err(Refusal::Illegal("the workflow is closed").into()),
        }
    }

    /// Looks up the members that newcomers refer to and that came with earlier calls, and refuses newcomers that use a name again. Whoever has it by
    /// an earlier submission of the same job may say so again: its answer was lost.
    pub(super) fn resolve_member_refs(
        &mut self,
        workflow: WorkflowId,
        batch: &[Submission],
        places: &RefIndex,
        planning: &mut BatchPlan,
    ) -> Result<(), CommandError<R::Error>> {
        for place in 0..planning.members.len() {
            self.resolve_duplicate_clone(planning, place, workflow)?;
        }
        for (name, place) in places {
            if self.records.member(workflow, name).map_err(CommandError::Broken)?.is_none() {
                continue;
            }
            let own = self.known_membership(planning, *place, workflow)?;
            if own.is_none_or(|own| own.reference != *name) {
                let refusal = Refusal::invalid("ref", format!("\"{name}\" is used already in this workflow"));
                planning.errors.push((*place, refusal));
            }
        }
        for Submission { job, .. } in batch {
            for reference in job.after.iter().chain(&job.after_any) {
                let DependencyRef::Local(name) = reference else { continue };
                if places.contains_key(name) || planning.earlier.contains_key(name) {
                    continue;
                }
                let Some(seq) = self.records.member(workflow, name).map_err(CommandError::Broken)? else { continue };
                let id: Option<JobId> = self.with_job(seq, |job| job.id)?;
                planning.earlier.extend(id.map(|id| (Arc::clone(name), id)));
            }
        }
        Ok(())
    }

    /// A place that repeats a member of this workflow means whoever stands in its place now.
    fn resolve_duplicate_clone(
        &mut self,
        planning: &mut BatchPlan,
        place: usize,
        workflow: WorkflowId,
    ) -> Result<(), CommandError<R::Error>> {
        if self.known_membership(planning, place, workflow)?.is_none() {
            return Ok(());
        }
        let Some(Some(BatchItem::Duplicate(known))) = planning.members.get_mut(place) else { return Ok(()) };
        let (id, seq) = self.resolve_clone(known.id, known.seq)?;
        if id != known.id {
            (known.id, known.seq) = (id, seq);
            known.state = self.with_job(seq, Job::kind)?;
        }
        Ok(())
    }

    /// What a place that repeats a member of this workflow is called there.
    fn known_membership(
        &mut self,
        planning: &BatchPlan,
        place: usize,
        workflow: WorkflowId,
    ) -> Result<Option<Membership>, CommandError<R::Error>> {
        let Some(Some(BatchItem::Duplicate(known))) = planning.members.get(place) else { return Ok(None) };
        let membership = self.with_job(known.seq, |job| job.membership.clone())?.flatten();
        Ok(membership.filter(|membership| membership.workflow == workflow))
    }

    /// Gives every place of a batch that passed all checks its membership.
    pub(super) fn join(
        &mut self,
        batch: &[Submission],
        joins: &WorkflowBinding,
        planning: &BatchPlan,
    ) -> Result<MembershipResult, CommandError<R::Error>> {
        let (mut workflow, named) = match joins {
            WorkflowBinding::Nothing => return Ok(Ok(Memberships { by_place: vec![None; batch.len()], named: false })),
            WorkflowBinding::New { name, open } => {
                if let Some(known) = self.all_known(batch, planning)? {
                    return Ok(Err(known));
                }
                (self.new_workflow(name.as_ref(), *open)?, true)
            }
            WorkflowBinding::Open(id) => (self.find_workflow(*id)?, true),
            WorkflowBinding::Unnamed(id) => (self.find_workflow(*id)?, false),
        };
        let mut by_place = Vec::with_capacity(batch.len());
        for place in 0..batch.len() {
            by_place.push(self.known_membership(planning, place, workflow.id)?);
        }
        let strangers = by_place.iter().filter(|known| known.is_none()).count();
        let mut names = names(batch, &by_place, workflow.members_added, named).into_iter();
        for place in by_place.iter_mut().filter(|known| known.is_none()) {
            *place = names.next().map(|reference| Membership { workflow: workflow.id, reference });
        }
        if strangers > 0 {
            workflow.members_added += strangers as u64;
            self.records.put_workflow(&workflow).map_err(CommandError::Broken)?;
        }
        Ok(Ok(Memberships { by_place, named }))
    }

    /// A workflow that was submitted before, whose jobs have keys that say so: the answer is the workflow of that time.
    fn all_known(
        &mut self,
        batch: &[Submission],
        planning: &BatchPlan,
    ) -> Result<Option<Vec<Submitted>>, CommandError<R::Error>> {
        if (0..batch.len()).any(|place| planning.new_job_at(place).is_some()) {
            return Ok(None);
        }
        let (mut known, mut workflows) = (Vec::with_capacity(batch.len()), HashSet::new());
        for member in planning.members.iter().flatten() {
            let BatchItem::Duplicate(submitted) = member else { continue };
            let membership = self.with_job(submitted.seq, |job| job.membership.clone())?.flatten();
            workflows.insert(membership.as_ref().map(|membership| membership.workflow));
            known.push(Submitted { membership, ..submitted.clone() });
        }
        if workflows.len() != 1 || workflows.contains(&None) {
            let why = "are all known by their keys already, and not as the jobs of one workflow";
            return Err(Refusal::invalid("jobs", why).into());
        }
        Ok(Some(known))
    }
}

/// What each place that is not known already is called: as it says, or by its number among all that ever joined.
fn names(batch: &[Submission], known: &[Option<Membership>], joined: u64, named: bool) -> Vec<Arc<str>> {
    let own = |submission: &Submission| submission.job.reference.clone().filter(|_| named);
    let given: HashSet<Arc<str>> = batch.iter().filter_map(own).collect();
    let name = |(number, submission): (u64, &Submission)| {
        own(submission).unwrap_or_else(|| {
            let mut name = number.to_string();
            while given.contains(name.as_str()) {
                name.push('_');
            }
            name.into()
        })
    };
    let strangers = batch.iter().zip(known).filter(|(_, known)| known.is_none()).map(|(submission, _)| submission);
    (joined..).zip(strangers).map(name).collect()
}
