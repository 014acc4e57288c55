//! Workflows: their members, their end, cancellation and retry.

use std::collections::BTreeMap;

use super::fields::is_name;
use super::job::{ModelJob, State};
use super::operate::{ILLEGAL, check_reason};
use super::rules::{Refusal, VALIDATION};
use super::submit::{MOST_IN_BATCH, SubmitContext};
use super::{ANY_TEXT, Model};
use crate::target::{Answer, Dependency, Handle, NewJob, Submitted, WorkflowSnapshot};

const MOST_TO_START: usize = 2_000;
const MOST_LINKS: usize = 100_000;
const MOST_OF_ONE: usize = 1_000;
const NO_WORKFLOW: Refusal = "workflow_not_found";

/// A member of a workflow. A clone replaces its original.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    /// The member has a generated number, or is a child: it cannot be referred to.
    unnamed: bool,
    job: Handle,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Workflow {
    open: bool,
    /// All members ever added.
    members: Vec<Member>,
    /// How many jobs were passed to the workflow, duplicates included: they use up numbers.
    given: usize,
    /// A cancellation runs until all members have ended.
    cancelling: bool,
    /// The last record of a member was deleted, and the workflow with it.
    gone: bool,
}

impl Model {
    pub(crate) fn start_workflow(&mut self, queue: &str, jobs: &[NewJob], open: bool) -> Result<Answer, Refusal> {
        check_call(queue, jobs, MOST_TO_START, open)?;
        let workflow = self.workflows.len();
        if jobs.is_empty() {
            self.workflows.push(Workflow { open, ..Workflow::default() });
            return Ok(Answer::Workflow { workflow, jobs: Vec::new() });
        }
        let members: Vec<&NewJob> = jobs.iter().collect();
        let circumstances = SubmitContext { most: MOST_TO_START, ..SubmitContext::default() };
        let mut plan = self.plan_batch(queue, members, circumstances)?;
        if plan.has_only_duplicates() {
            // The answer of an earlier call may have been lost.
            let known = plan.known();
            let of = |job: &Option<Handle>| job.and_then(|job| self.jobs[job].workflow);
            let first = known.first().and_then(of).filter(|first| !self.workflows[*first].gone).ok_or(VALIDATION)?;
            if !known.iter().all(|job| of(job) == Some(first)) {
                return Err(VALIDATION);
            }
            let known = known.into_iter().map(|job| (job, true)).collect();
            return Ok(Answer::Workflow { workflow: first, jobs: self.submitted(known) });
        }
        self.workflows.push(Workflow { open, ..Workflow::default() });
        let made = self.create_batch(&mut plan);
        self.join(workflow, &made, jobs);
        Ok(Answer::Workflow { workflow, jobs: self.submitted(made) })
    }

    pub(crate) fn grow_workflow(&mut self, workflow: Handle, queue: &str, jobs: &[NewJob]) -> Result<Answer, Refusal> {
        if !self.find_workflow(workflow)?.open {
            return Err(ILLEGAL);
        }
        check_call(queue, jobs, MOST_IN_BATCH, false)?;
        let members: Vec<&NewJob> = jobs.iter().collect();
        let circumstances = SubmitContext { workflow: Some(workflow), ..SubmitContext::default() };
        let mut plan = self.plan_batch(queue, members, circumstances)?;
        let made = self.create_batch(&mut plan);
        self.join(workflow, &made, jobs);
        Ok(Answer::Workflow { workflow, jobs: self.submitted(made) })
    }

    pub(crate) fn close_workflow(&mut self, workflow: Handle) -> Result<Answer, Refusal> {
        self.find_workflow(workflow)?;
        self.workflows[workflow].open = false;
        let answer = self.workflow_state(workflow);
        self.forget_if_over(workflow);
        Ok(answer)
    }

    pub(crate) fn cancel_workflow(
        &mut self,
        workflow: Handle,
        reason: Option<&String>,
        force: bool,
    ) -> Result<Answer, Refusal> {
        check_reason(reason)?;
        if self.state_of_workflow(self.find_workflow(workflow)?) != "running" {
            return Err(ILLEGAL);
        }
        self.workflows[workflow].open = false;
        let message = reason.cloned().unwrap_or_else(|| ANY_TEXT.to_owned());
        // All members end before propagation: the cancellation ends each of them, not another
        // member.
        for handle in self.present_members(workflow) {
            if self.jobs[handle].is_live() {
                self.cancel_or_request(handle, &message, force);
            }
        }
        self.propagate();
        self.workflows[workflow].cancelling = self.state_of_workflow(&self.workflows[workflow]) == "running";
        let answer = self.workflow_state(workflow);
        self.forget_if_over(workflow);
        Ok(answer)
    }

    pub(crate) fn retry_workflow(&mut self, workflow: Handle) -> Result<Answer, Refusal> {
        let found = self.find_workflow(workflow)?;
        if found.cancelling {
            return Err(ILLEGAL);
        }
        let again = self.to_run_again(workflow);
        if again.is_empty() {
            return Err(ILLEGAL);
        }
        let members = self.present_members(workflow);
        for handle in &again {
            self.run_again(*handle);
        }
        for handle in members {
            self.record_what_blocks(handle);
        }
        // Outside jobs that ended because of these members revive as after any requeue.
        for handle in again {
            self.revive_dependents(handle);
        }
        Ok(self.workflow_state(workflow))
    }

    /// Returns the members that run again, each after its dependencies, else in order of creation.
    fn to_run_again(&self, workflow: Handle) -> Vec<Handle> {
        let members = self.present_members(workflow);
        let bad: Vec<Handle> = members.into_iter().filter(|job| self.ended_without_success(*job)).collect();
        let mut again = bad.clone();
        // Removes members that cannot run again, and their dependents, until no more are found.
        loop {
            let kept: Vec<Handle> =
                again.iter().copied().filter(|job| self.can_run_again(&self.jobs[*job], &again)).collect();
            if kept.len() == again.len() {
                break;
            }
            again = kept;
        }
        let mut ordered = Vec::new();
        for handle in &bad {
            self.put_after_dependencies(*handle, &bad, &mut ordered);
        }
        ordered.retain(|handle| again.contains(handle));
        ordered
    }

    fn can_run_again(&self, job: &ModelJob, again: &[Handle]) -> bool {
        let gone = |dependency: Handle| self.jobs[dependency].removed;
        let ended_by_deleted_job = job.ended_by.is_some_and(gone);
        let stands_in_the_way =
            |dependency: &Handle| self.ended_without_success(*dependency) && !again.contains(dependency);
        self.queues.contains_key(&job.queue)
            && !ended_by_deleted_job
            && !self.current_clones(&job.after).iter().any(stands_in_the_way)
    }

    /// A member that stays ended has ended because of the dependency that blocks it now, which the
    /// retry does not run again. Without that it would run once the failed job was deleted.
    fn record_what_blocks(&mut self, handle: Handle) {
        let job = &self.jobs[handle];
        let Some(cause) = job.ended_by.filter(|cause| !self.jobs[*cause].removed) else { return };
        if !self.ended_without_success(handle) || !self.queues.contains_key(&job.queue) {
            return;
        }
        let failed = self.current_clones(&job.after).into_iter().filter(|job| self.ended_without_success(*job));
        let blocking = failed.min_by_key(|dependency| self.jobs[*dependency].completed_at);
        if let Some(blocking) = blocking.filter(|other| *other != cause && job.after.contains(other)) {
            self.job_mut(handle).ended_by = Some(blocking);
        }
    }

    fn put_after_dependencies(&self, handle: Handle, bad: &[Handle], ordered: &mut Vec<Handle>) {
        if ordered.contains(&handle) {
            return;
        }
        let job = &self.jobs[handle];
        for dependency in self.current_clones(&job.after).into_iter().chain(self.current_clones(&job.after_any)) {
            if bad.contains(&dependency) {
                self.put_after_dependencies(dependency, bad, ordered);
            }
        }
        ordered.push(handle);
    }

    fn run_again(&mut self, handle: Handle) {
        let job = &self.jobs[handle];
        let (after, after_any) = (self.current_clones(&job.after), self.current_clones(&job.after_any));
        if job.ended_by.is_none() && job.rules.requeue_clones {
            self.clone_behind(handle, None, after, after_any);
            return;
        }
        let job = self.job_mut(handle);
        job.after = after;
        job.after_any = after_any;
        // Dependencies that it saw end may run again, too.
        job.any_met = false;
        if job.ended_by.is_none() {
            self.return_from_end(handle, true, None);
            return;
        }
        self.revive(handle);
        let job = &self.jobs[handle];
        if !job.held && self.dependencies_hold(job) {
            self.leave_pending(handle, "dependencies");
        }
    }

    fn find_workflow(&self, workflow: Handle) -> Result<&Workflow, Refusal> {
        self.workflows.get(workflow).filter(|workflow| !workflow.gone).ok_or(NO_WORKFLOW)
    }

    /// Returns the members with records, oldest first.
    fn present_members(&self, workflow: Handle) -> Vec<Handle> {
        let mut jobs: Vec<Handle> = self.workflows[workflow].members.iter().map(|member| member.job).collect();
        jobs.retain(|job| !self.jobs[*job].removed);
        jobs.sort_unstable();
        jobs
    }

    /// Adds the jobs of a call. Duplicates keep their workflow.
    fn join(&mut self, workflow: Handle, made: &[(Option<Handle>, bool)], jobs: &[NewJob]) {
        for ((job, duplicate), new) in made.iter().zip(jobs) {
            let member_already = *duplicate && job.is_some_and(|job| self.jobs[job].workflow == Some(workflow));
            // A repetition within one call refers to a new job.
            let repeats_new_job = job.is_some_and(|job| self.is_new(job));
            if member_already && !repeats_new_job {
                continue;
            }
            let number = self.workflows[workflow].given.to_string();
            self.workflows[workflow].given += 1;
            if let (Some(job), false) = (job, duplicate) {
                let taken = jobs.iter().any(|other| other.reference.as_ref() == Some(&number));
                let name = new.reference.clone().unwrap_or(if taken { format!("{number}_") } else { number });
                let member = Member { name, unnamed: new.reference.is_none(), job: *job };
                self.workflows[workflow].members.push(member);
                self.job_mut(*job).workflow = Some(workflow);
            }
        }
    }

    /// Adds children to the workflow of their parent, open or not.
    pub(crate) fn join_parent(&mut self, parent: Handle, made: &[(Option<Handle>, bool)]) {
        let Some(workflow) = self.jobs[parent].workflow else { return };
        let unnamed = vec![NewJob::default(); made.len()];
        self.join(workflow, made, &unnamed);
    }

    pub(crate) fn take_over_place(&mut self, original: Handle, clone: Handle) {
        let Some(workflow) = self.jobs[original].workflow else { return };
        self.job_mut(clone).workflow = Some(workflow);
        for member in self.workflows[workflow].members.iter_mut().filter(|member| member.job == original) {
            member.job = clone;
        }
    }

    /// Returns the member with this name.
    pub(crate) fn member_named(&self, workflow: Option<Handle>, name: &str) -> Option<Handle> {
        let members = &self.workflows[workflow?].members;
        // A name is free once the record of its member was deleted.
        let has_it = |member: &&Member| !member.unnamed && member.name == name && !self.jobs[member.job].removed;
        members.iter().find(has_it).map(|member| member.job)
    }

    /// Whether a job is this member, or was until a clone replaced it.
    pub(crate) fn is_in_place_of(&self, job: Handle, member: Handle) -> bool {
        let mut job = job;
        while let Some(clone) = self.jobs[job].requeued_as {
            job = clone;
        }
        job == member
    }

    /// Records the end of a job.
    pub(crate) fn record_end_in_workflow(&mut self, handle: Handle) {
        if let Some(workflow) = self.jobs[handle].workflow {
            let running = self.state_of_workflow(&self.workflows[workflow]) == "running";
            self.workflows[workflow].cancelling &= running;
        }
    }

    /// Records the deletion of a job.
    pub(crate) fn record_removal_in_workflow(&mut self, handle: Handle) {
        if let Some(workflow) = self.jobs[handle].workflow {
            self.forget_if_over(workflow);
        }
    }

    fn forget_if_over(&mut self, workflow: Handle) {
        // Readable originals refer to the workflow, too.
        let present = self.jobs.iter().any(|job| !job.removed && job.workflow == Some(workflow));
        let found = &mut self.workflows[workflow];
        found.gone = !found.open && !found.members.is_empty() && !present;
    }

    fn state_of_workflow(&self, workflow: &Workflow) -> &'static str {
        let any =
            |states: &[State]| workflow.members.iter().any(|member| states.contains(&self.jobs[member.job].state));
        let alive = workflow.members.iter().any(|member| self.jobs[member.job].is_live());
        if workflow.open || alive {
            "running"
        } else if any(&[State::Failed, State::DeadLetter]) {
            "failed"
        } else if any(&[State::Cancelled]) {
            "cancelled"
        } else {
            "completed"
        }
    }

    fn workflow_state(&self, workflow: Handle) -> Answer {
        Answer::WorkflowState { workflow, state: self.state_of_workflow(&self.workflows[workflow]).to_owned() }
    }

    pub(crate) fn workflow_snapshot(&self, workflow: Handle) -> Option<WorkflowSnapshot> {
        let found = self.find_workflow(workflow).ok()?;
        let mut counts: BTreeMap<String, u64> =
            State::ALL.into_iter().map(|state| (state.as_str().to_owned(), 0)).collect();
        for member in &found.members {
            *counts.entry(self.jobs[member.job].state.as_str().to_owned()).or_default() += 1;
        }
        let mut members: Vec<(String, Handle)> = found
            .members
            .iter()
            .filter(|member| !self.jobs[member.job].removed)
            .map(|member| (member.name.clone(), member.job))
            .collect();
        members.sort_by_key(|(_, job)| *job);
        Some(WorkflowSnapshot { state: self.state_of_workflow(found).to_owned(), open: found.open, counts, members })
    }

    pub(crate) fn submitted(&self, made: Vec<(Option<Handle>, bool)>) -> Vec<Submitted> {
        let submitted = |(job, duplicate): (Option<Handle>, bool)| Submitted {
            job,
            state: job.map(|handle| self.jobs[handle].state.as_str().to_owned()),
            duplicate,
        };
        made.into_iter().map(submitted).collect()
    }

    /// Returns how many workflows were ever created.
    pub fn workflow_handles(&self) -> usize {
        self.workflows.len()
    }

    pub(crate) fn open_workflows(&self) -> Vec<Handle> {
        (0..self.workflows.len()).filter(|one| self.workflows[*one].open && !self.workflows[*one].gone).collect()
    }

    pub(crate) fn running_workflows(&self) -> Vec<Handle> {
        let runs = |one: &Handle| {
            let workflow = &self.workflows[*one];
            !workflow.gone && self.state_of_workflow(workflow) == "running"
        };
        (0..self.workflows.len()).filter(runs).collect()
    }

    /// Returns the workflows with a member that could run again.
    pub(crate) fn retryable_workflows(&self) -> Vec<Handle> {
        let fails = |one: &Handle| !self.workflows[*one].gone && !self.to_run_again(*one).is_empty();
        (0..self.workflows.len()).filter(fails).collect()
    }

    pub(crate) fn names_in_workflow(&self, workflow: Handle) -> Vec<String> {
        let found = self.workflows.get(workflow);
        found.map(|found| found.members.iter().map(|member| member.name.clone()).collect()).unwrap_or_default()
    }
}

/// Checks a call by itself. Too many dependencies of one job are reported before too many jobs.
fn check_call(queue: &str, jobs: &[NewJob], most: usize, may_be_empty: bool) -> Result<(), Refusal> {
    if !is_name(queue) {
        return Err(VALIDATION);
    }
    if jobs.len() <= most && jobs.iter().all(|job| job.after.len() + job.after_any.len() <= MOST_OF_ONE) {
        let links: usize = jobs.iter().map(|job| job.after.len() + job.after_any.len()).sum();
        let empty = jobs.is_empty() && !may_be_empty;
        return if empty || links > MOST_LINKS { Err(VALIDATION) } else { Ok(()) };
    }
    let too_broad = |job: &NewJob| distinct(&job.after) + distinct(&job.after_any) > MOST_OF_ONE;
    if jobs.iter().any(too_broad) {
        return Err("dependency_breadth");
    }
    Err(VALIDATION)
}

/// Counts distinct names.
pub(super) fn distinct(dependencies: &[Dependency]) -> usize {
    let repeated = |index: usize| {
        dependencies[index] != Dependency::Unknown && dependencies[..index].contains(&dependencies[index])
    };
    (0..dependencies.len()).filter(|index| !repeated(*index)).count()
}
