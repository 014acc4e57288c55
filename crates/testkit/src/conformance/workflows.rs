//! Workflows: created completely or not at all, counted by member states, cancelled and retried in
//! slices.

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob};
use longshore_core::workflow::{Workflow, WorkflowState};
use longshore_engine::{AdminCommand, AdminResponse, Submission, SubmitRequest, Submitted, WorkflowTarget};
use longshore_store::{JobFilter, MemberQuery, WorkflowQuery};

use super::harness::{Batch, Harness, answered, complete, fail, keyed, queue, work, work_with};

pub(super) fn named(name: &str, after: &[&str]) -> NewJob {
    work_with(|job| {
        job.reference = Some(name.into());
        job.after = after.iter().map(|name| DependencyRef::Local((*name).into())).collect();
    })
}

pub(super) fn closed() -> WorkflowTarget {
    WorkflowTarget::New { name: None, open: false }
}

pub(super) fn open() -> WorkflowTarget {
    WorkflowTarget::New { name: Some("nightly".into()), open: true }
}

pub(super) fn retry(id: WorkflowId) -> AdminCommand {
    AdminCommand::RetryWorkflow { id }
}

pub(super) fn cancel(id: WorkflowId, force: Force) -> AdminCommand {
    AdminCommand::CancelWorkflow { id, reason: Some("enough".to_owned()), force }
}

impl Harness {
    pub(super) fn try_join(&self, name: &str, joining: WorkflowTarget, jobs: Vec<NewJob>) -> Batch {
        let batch = jobs.into_iter().map(|job| Submission { queue: queue(name), job }).collect();
        answered(self.store().submit(SubmitRequest::workflow(batch, joining)))
    }

    pub(super) fn join(&self, name: &str, joining: WorkflowTarget, jobs: Vec<NewJob>) -> (WorkflowId, Vec<Submitted>) {
        let jobs = self.try_join(name, joining, jobs).unwrap_or_else(|refused| panic!("refused: {}", refused.first));
        (jobs[0].membership.as_ref().expect("it joined").workflow, jobs)
    }

    pub(super) fn workflow(&self, id: WorkflowId) -> Workflow {
        let found = answered(self.store().workflow(id)).unwrap_or_else(|| panic!("workflow {id} is gone"));
        Workflow::clone(&found)
    }

    pub(super) fn members(&self, workflow: WorkflowId) -> Vec<std::sync::Arc<Job>> {
        let (mut members, mut after) = (Vec::new(), Seq(0));
        loop {
            let page = answered(self.store().members(MemberQuery { workflow, limit: 7, after }));
            assert!(page.jobs.len() <= 7 && page.jobs.iter().all(|job| job.seq > after));
            members.extend(page.jobs);
            match page.next {
                Some(next) => assert!(std::mem::replace(&mut after, next) < next, "the cursor stands still"),
                None => return members,
            }
        }
    }

    pub(super) fn member(&self, workflow: WorkflowId, name: &str) -> std::sync::Arc<Job> {
        let has_name = |job: &Job| job.membership.as_ref().is_some_and(|membership| &*membership.reference == name);
        self.members(workflow).into_iter().find(|job| has_name(job)).unwrap_or_else(|| panic!("no {name}"))
    }

    fn states(&self, workflow: WorkflowId) -> Vec<StateKind> {
        self.members(workflow).iter().map(|job| job.kind()).collect()
    }

    pub(super) fn all_workflows(&self, state: Option<WorkflowState>) -> Vec<WorkflowId> {
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let page = answered(self.store().workflows(WorkflowQuery { state, limit: 3, before }));
            assert!(page.workflows.iter().all(|one| before.is_none_or(|before| one.number < before)));
            assert!(page.workflows.iter().all(|one| state.is_none_or(|state| one.state() == state)));
            all.extend(page.workflows.iter().map(|one| one.id));
            before = page.next;
            if before.is_none() {
                return all;
            }
        }
    }

    /// Checks that the counts of every workflow match its members.
    pub(super) fn check_workflows(&self, jobs: &[std::sync::Arc<Job>]) {
        for id in self.all_workflows(None) {
            let workflow = self.workflow(id);
            let ours = || jobs.iter().filter(|job| job.membership.as_ref().is_some_and(|ours| ours.workflow == id));
            assert_eq!(workflow.tally.records, ours().count() as u64, "records of {id}");
            for state in StateKind::ALL {
                let found = ours().filter(|job| job.kind() == *state && job.requeued_as.is_none()).count() as u64;
                let counted = workflow.tally.of(*state);
                // A deleted member counts in its last state.
                let fits = if state.terminal() { counted >= found } else { counted == found };
                assert!(fits, "{state} members of {id}: {counted} counted, {found} found");
            }
            let listed: Vec<Seq> = self.members(id).iter().map(|job| job.seq).collect();
            let mut found: Vec<Seq> = ours().filter(|job| job.requeued_as.is_none()).map(|job| job.seq).collect();
            found.sort_unstable();
            assert_eq!(listed, found, "members of {id}");
            let filter = JobFilter { workflow: Some(id), ..JobFilter::default() };
            let mut by_filter: Vec<Seq> = self.list(&filter).iter().map(|job| job.seq).collect();
            by_filter.sort_unstable();
            let mut all: Vec<Seq> = ours().map(|job| job.seq).collect();
            all.sort_unstable();
            assert_eq!(by_filter, all, "jobs of {id} by filter");
        }
    }
}

pub(super) fn chain_runs_in_order(h: &mut Harness) {
    let (id, jobs) = h.join("q", closed(), vec![named("c", &["b"]), named("b", &["a"]), named("a", &[])]);
    assert_eq!(h.workflow(id).state(), WorkflowState::Running);
    assert_eq!(h.all_workflows(Some(WorkflowState::Running)), [id]);
    for name in ["a", "b", "c"] {
        let claimed = h.claim_one("q");
        assert_eq!((claimed.id, claimed.workflow), (h.member(id, name).id, Some(id)));
        assert!(h.claim("q", 10).is_empty(), "one after the other");
        h.settle(&claimed, complete()).unwrap();
    }
    let workflow = h.workflow(id);
    assert_eq!((workflow.state(), workflow.tally.of(StateKind::Completed)), (WorkflowState::Completed, 3));
    assert_eq!(h.all_workflows(Some(WorkflowState::Completed)), [id]);
    assert!(h.all_workflows(Some(WorkflowState::Running)).is_empty());
    assert_eq!(jobs.iter().map(|job| &*job.membership.as_ref().unwrap().reference).collect::<String>(), "cba");
}

pub(super) fn invalid_workflow_stores_nothing(h: &mut Harness) {
    let chain = |links: usize| -> Vec<NewJob> {
        let link =
            |place: usize| work_with(|job| job.after.extend(place.checked_sub(1).map(DependencyRef::BatchIndex)));
        (0..links).map(link).collect()
    };
    let chord = |wide: usize| -> Vec<NewJob> {
        let last = work_with(|job| job.after = (0..wide).map(DependencyRef::BatchIndex).collect());
        std::iter::repeat_n(work(), wide).chain([last]).collect()
    };
    let unknown = vec![work(), super::harness::after(&[JobId::from_bytes([9; 16])])];
    let cases = [
        ("dependency_cycle", vec![named("a", &["b"]), named("b", &["a"])]),
        ("dependency_unknown", vec![named("a", &[]), named("b", &["c"])]),
        ("dependency_unknown", unknown),
        ("dependency_breadth", chord(1_001)),
        ("dependency_depth", chain(101)),
        ("validation", vec![named("a", &[]), named("a", &[])]),
        ("validation", Vec::new()),
        ("validation", vec![work(); 2_001]),
    ];
    for (code, jobs) in cases {
        let attempt = |h: &Harness| h.try_join("q", closed(), jobs).map_err(|refused| refused.first);
        h.refused(code, code, attempt);
        assert!(h.all_workflows(None).is_empty(), "{code}: nothing is left of it");
    }
    h.join("q", closed(), chain(100));
    h.join("q", closed(), chord(1_000));
    assert_eq!(h.all_workflows(None).len(), 2);
}

pub(super) fn wide_fan_in_runs_finalizer_once(h: &mut Harness) {
    let last = work_with(|job| {
        job.reference = Some("last".into());
        job.after = (0..1_000).map(DependencyRef::BatchIndex).collect();
    });
    let (id, _) = h.join("q", closed(), std::iter::repeat_n(work(), 1_000).chain([last]).collect());
    let group = h.claim_all("q");
    assert_eq!(group.len(), 1_000);
    let settlements = group.iter().map(|claimed| super::harness::settlement(claimed, complete())).collect();
    assert!(answered(h.store().settle(settlements)).iter().all(Result::is_ok));
    h.tick(1);
    let finalizer = h.claim_all("q");
    assert_eq!(finalizer.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [h.member(id, "last").id]);
    h.settle(&finalizer[0], complete()).unwrap();
    assert!(h.claim_all("q").is_empty());
    assert_eq!(h.workflow(id).state(), WorkflowState::Completed);
}

pub(super) fn open_workflow_accepts_members_until_closed(h: &mut Harness) {
    let (id, first) = h.join("q", open(), vec![named("a", &[]), work()]);
    assert_eq!(&*first[1].membership.as_ref().unwrap().reference, "1", "by its place");
    let claimed = h.claim_all("q");
    claimed.iter().for_each(|claimed| drop(h.settle(claimed, complete())));
    assert_eq!(h.workflow(id).state(), WorkflowState::Running, "all have ended, and it is open");
    let (same, second) = h.join("q", WorkflowTarget::Open(id), vec![named("b", &["a"]), work()]);
    assert_eq!((same, &*second[1].membership.as_ref().unwrap().reference), (id, "3"));
    let again =
        |h: &Harness| h.try_join("q", WorkflowTarget::Open(id), vec![named("a", &[])]).map_err(|refused| refused.first);
    h.refused("validation", "a name that is taken", again);
    let too_many =
        |h: &Harness| h.try_join("q", WorkflowTarget::Open(id), vec![work(); 1_001]).map_err(|refused| refused.first);
    h.refused("validation", "more than a call may add", too_many);
    h.join("q", WorkflowTarget::Open(id), vec![named("c", &["b", "a"])]);
    assert_eq!(
        h.admin(AdminCommand::CloseWorkflow { id }),
        AdminResponse::Workflow { id, state: WorkflowState::Running }
    );
    let late = |h: &Harness| h.try_join("q", WorkflowTarget::Open(id), vec![work()]).map_err(|refused| refused.first);
    h.refused("illegal_transition", "it is closed", late);
    let unknown = WorkflowId::from_bytes([3; 16]);
    let nowhere =
        |h: &Harness| h.try_join("q", WorkflowTarget::Open(unknown), vec![work()]).map_err(|refused| refused.first);
    h.refused("workflow_not_found", "unknown id", nowhere);
    for _ in 0..3 {
        h.claim_all("q").iter().for_each(|claimed| drop(h.settle(claimed, complete())));
    }
    assert_eq!(h.workflow(id).state(), WorkflowState::Completed);
    assert_eq!(h.members(id).len(), 5);
    let AdminResponse::Workflow { id: empty, state } = h.admin(AdminCommand::OpenWorkflow { name: None }) else {
        panic!()
    };
    assert_eq!(state, WorkflowState::Running);
    h.admin(AdminCommand::CloseWorkflow { id: empty });
    assert_eq!(h.workflow(empty).state(), WorkflowState::Completed, "nothing was to be done");
    assert_eq!(h.all_workflows(None), [empty, id], "newest first");
}

pub(super) fn retry_revives_members_ended_by_failure(h: &mut Harness) {
    for profile in [Profile::Standard, Profile::Gopherqueue] {
        let name = profile.as_str();
        h.put_queue(name, profile);
        // The finalizer comes first, before its dependencies.
        let jobs = vec![named("last", &["a", "b"]), named("a", &[]), named("b", &["a"])];
        let (id, _) = h.join(name, closed(), jobs);
        let original = h.member(id, "a").id;
        let claimed = h.claim_one(name);
        h.settle(&claimed, fail(ReportedCategory::Permanent)).unwrap();
        h.tick_until_idle();
        assert_eq!(h.states(id), [StateKind::Failed; 3]);
        assert_eq!(h.workflow(id).state(), WorkflowState::Failed);
        assert_eq!(h.admin(retry(id)), AdminResponse::Workflow { id, state: WorkflowState::Running });
        h.tick_until_idle();
        let again = h.member(id, "a");
        let clones = profile == Profile::Gopherqueue;
        assert_eq!((again.id == original, again.requeued_from.is_some()), (!clones, clones), "{name}");
        assert_eq!(h.member(id, "last").kind(), StateKind::Pending, "revived");
        assert_eq!(h.workflow(id).tally.of(StateKind::Pending), 2);
        for part in ["a", "b", "last"] {
            let claimed = h.claim_one(name);
            assert_eq!(claimed.id, h.member(id, part).id, "{name}: {part}");
            h.settle(&claimed, complete()).unwrap();
        }
        assert_eq!(h.workflow(id).state(), WorkflowState::Completed, "{name}");
        assert_eq!(
            h.job(original).history.transitions().first().map(|step| step.to),
            Some(StateKind::Pending),
            "history is kept"
        );
        let nothing = |h: &Harness| h.try_admin(retry(id));
        h.refused("illegal_transition", "nothing has failed", nothing);
    }
    h.refused("workflow_not_found", "unknown id", |h| h.try_admin(retry(WorkflowId::from_bytes([3; 16]))));
}

/// Outside jobs do not run again, so members that depend on them stay ended and nothing waits
/// without end.
pub(super) fn retry_skips_members_ended_by_outside_jobs(h: &mut Harness) {
    let outside = h.submit("q", work());
    let mut a = named("a", &[]);
    a.after = vec![DependencyRef::Job(outside.id)];
    let (id, _) = h.join("q", closed(), vec![a, named("b", &["a"]), named("c", &[])]);
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.settle(&h.claim_one("q"), fail(ReportedCategory::Permanent)).unwrap();
    h.tick_until_idle();
    assert_eq!(h.states(id), [StateKind::Failed; 3]);
    h.admin(retry(id));
    h.tick_until_idle();
    assert_eq!(h.states(id), [StateKind::Failed, StateKind::Failed, StateKind::Scheduled]);
    h.settle(&h.claim_one("q"), complete()).unwrap();
    assert_eq!(h.workflow(id).state(), WorkflowState::Failed, "it ends all the same");
}

pub(super) fn cancel_workflow(h: &mut Harness) {
    let (id, _) = h.join("q", open(), vec![named("a", &[]), named("b", &["a"]), named("c", &[])]);
    let running = h.claim_one("q");
    let state = WorkflowState::Running;
    assert_eq!(
        h.admin(cancel(id, Force::ByPolicy)),
        AdminResponse::Workflow { id, state },
        "a worker is still running"
    );
    assert_eq!(h.states(id), [StateKind::Running, StateKind::Cancelled, StateKind::Cancelled]);
    assert!(!h.workflow(id).open, "nothing more may come");
    h.settle(&running, fail(ReportedCategory::Temporary)).unwrap();
    assert_eq!(h.workflow(id).state(), WorkflowState::Cancelled);
    h.refused("illegal_transition", "it has ended", |h| h.try_admin(cancel(id, Force::Now)));
    h.admin(retry(id));
    h.tick_until_idle();
    assert_eq!(h.states(id), [StateKind::Scheduled, StateKind::Pending, StateKind::Scheduled]);
    assert_eq!(h.admin(cancel(id, Force::Now)), AdminResponse::Workflow { id, state: WorkflowState::Cancelled });
}

/// More members than one command may change.
pub(super) fn cancel_and_retry_run_in_slices(h: &mut Harness) {
    let (id, _) = h.join("q", open(), vec![work(); 1_000]);
    h.join("q", WorkflowTarget::Open(id), vec![work(); 1_000]);
    h.join("q", WorkflowTarget::Open(id), vec![work(); 500]);
    h.admin(cancel(id, Force::Now));
    assert!(h.workflow(id).operation.is_some(), "there is more to do");
    h.refused("illegal_transition", "not in the middle of it", |h| h.try_admin(retry(id)));
    h.tick_until_idle();
    assert_eq!(h.workflow(id).tally.of(StateKind::Cancelled), 2_500);
    assert_eq!(h.workflow(id).state(), WorkflowState::Cancelled);
    h.admin(retry(id));
    h.tick_until_idle();
    assert_eq!(h.workflow(id).tally.of(StateKind::Scheduled), 2_500);
    assert_eq!(h.claim_all("q").len(), 2_500);
}

/// Members are pruned by their own retention. The workflow keeps its counts until the last one is
/// gone.
pub(super) fn counts_outlive_pruned_members(h: &mut Harness) {
    let retention = RetentionPatch {
        completed: Some(Duration::from_secs(100)),
        failed: Some(Duration::from_secs(10)),
        ..RetentionPatch::default()
    };
    let policy = PolicyPatch { retention, ..PolicyPatch::default() };
    h.put_queue_with("q", Profile::Standard, SettingsPatch { job: policy, ..SettingsPatch::default() });
    let (id, jobs) = h.join("q", closed(), vec![named("a", &[]), named("b", &[])]);
    let (a, b) = (h.claim_one("q"), h.claim_one("q"));
    h.settle(&a, fail(ReportedCategory::Permanent)).unwrap();
    h.settle(&b, complete()).unwrap();
    h.pass(Duration::from_secs(50));
    assert!(h.find(longshore_store::JobRef::Id(jobs[0].id)).is_none());
    let workflow = h.workflow(id);
    assert_eq!((workflow.state(), workflow.tally.records), (WorkflowState::Failed, 1));
    assert_eq!(h.members(id).len(), 1);
    h.pass(Duration::from_secs(60));
    assert!(answered(h.store().workflow(id)).is_none(), "it goes with its last member");
    assert!(h.all_workflows(None).is_empty());
}

/// A client may repeat a call after a lost response, if the jobs have keys.
pub(super) fn repeated_submission_returns_same_workflow(h: &mut Harness) {
    let (id, first) = h.join("q", closed(), vec![keyed("a"), keyed("b")]);
    let (same, second) = h.join("q", closed(), vec![keyed("a"), keyed("b")]);
    assert_eq!((id, first[0].id, first[1].id), (same, second[0].id, second[1].id));
    assert!(second.iter().all(|job| job.duplicate));
    h.submit("q", keyed("c"));
    let mixed = |h: &Harness| h.try_join("q", closed(), vec![keyed("a"), keyed("c")]).map_err(|refused| refused.first);
    h.refused("validation", "nothing is new, and they are not of one workflow", mixed);
    let (other, third) = h.join("q", closed(), vec![keyed("a"), keyed("d")]);
    assert!(other != id && third[0].duplicate && !third[1].duplicate);
    assert_eq!(h.members(other).len(), 1, "a job is a member of one workflow only");
}

pub(super) fn children_join_parent_workflow(h: &mut Harness) {
    let (id, _) = h.join("q", closed(), vec![named("a", &[])]);
    let parent = h.claim_one("q");
    let child = |name: &str| Submission { queue: queue("q"), job: named(name, &[]) };
    let request =
        SubmitRequest::children(parent.id, Some(parent.token), vec![child("a"), child("b")], Some(child("c")));
    answered(h.store().submit(request)).unwrap();
    let names: Vec<String> =
        h.members(id).iter().map(|job| job.membership.as_ref().unwrap().reference.to_string()).collect();
    assert_eq!(names, ["a", "1", "2", "3"], "their references are their own");
    h.settle(&parent, complete()).unwrap();
    assert_eq!(h.workflow(id).state(), WorkflowState::Running);
    for _ in 0..2 {
        h.claim_all("q").iter().for_each(|claimed| drop(h.settle(claimed, complete())));
    }
    assert_eq!(h.workflow(id).state(), WorkflowState::Completed);
}

/// A dependency was requeued as a clone, and the requeued dependent waits for the clone.
pub(super) fn clone_replaces_original_as_dependency(h: &mut Harness) {
    let retry = RetryPatch { limit: Some(1), ..RetryPatch::default() };
    let policy = PolicyPatch { retry, ..PolicyPatch::default() };
    h.put_queue_with("clones", Profile::Gopherqueue, SettingsPatch { job: policy, ..SettingsPatch::default() });
    h.put_queue("q", Profile::Standard);
    let original = h.submit("clones", work());
    let dependent = h.submit("q", super::harness::after(&[original.id]));
    h.settle(&h.claim_one("clones"), fail(ReportedCategory::Permanent)).unwrap();
    assert_eq!(h.state(dependent.id), StateKind::Failed);
    let requeue = super::admin::requeue;
    h.refused("illegal_transition", "its dependency has failed", |h| h.try_admin(requeue(dependent.id)));
    let AdminResponse::State { id: clone, .. } = h.admin(requeue(original.id)) else { panic!("no state") };
    assert_eq!(h.state(dependent.id), StateKind::Failed, "a clone revives no dependent");
    h.admin(requeue(dependent.id));
    assert_eq!(h.state(dependent.id), StateKind::Pending);
    assert_eq!(h.job(dependent.id).dependencies.after[0].id, clone);
    h.settle(&h.claim_one("clones"), complete()).unwrap();
    assert_eq!(h.state(dependent.id), StateKind::Scheduled);
}
