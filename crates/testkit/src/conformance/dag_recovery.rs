//! Workflows across a reopen of the store.

use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::state::StateKind;
use longshore_core::workflow::WorkflowState;
use longshore_engine::{AdminCommand, WorkflowTarget};

use super::dags::play_with_restarts;
use super::harness::{Harness, complete, fail, work};
use super::workflows::{cancel, closed, named, open};

pub(super) fn workflow_continues_after_reopen(h: &mut Harness) {
    let (id, _) = h.join("q", open(), vec![named("a", &[]), named("b", &["a"])]);
    h.reopen();
    h.settle(&h.claim_one("q"), complete()).unwrap();
    h.join("q", WorkflowTarget::Open(id), vec![named("c", &["b"]), work()]);
    let before = (h.workflow(id), h.members(id));
    h.reopen();
    assert_eq!((h.workflow(id), h.members(id)), before);
    assert_eq!(h.all_workflows(Some(WorkflowState::Running)), [id]);
    h.admin(AdminCommand::CloseWorkflow { id });
    for _ in 0..2 {
        h.claim_all("q").iter().for_each(|claimed| drop(h.settle(claimed, complete())));
        h.reopen();
    }
    assert_eq!(h.workflow(id).state(), WorkflowState::Completed);
}

pub(super) fn workflow_operation_finishes_after_reopen(h: &mut Harness) {
    let (id, _) = h.join("q", open(), vec![work(); 1_000]);
    h.join("q", WorkflowTarget::Open(id), vec![work(); 900]);
    h.admin(cancel(id, Force::Now));
    assert!(h.workflow(id).operation.is_some());
    h.reopen();
    h.tick_until_idle();
    assert_eq!(h.workflow(id).state(), WorkflowState::Cancelled);
    h.admin(AdminCommand::RetryWorkflow { id });
    h.reopen();
    h.tick_until_idle();
    assert_eq!(h.workflow(id).tally.of(StateKind::Scheduled), 1_900);
}

pub(super) fn finalizer_runs_once_across_reopen(h: &mut Harness) {
    let parts = ["a", "b", "c"];
    let jobs = parts.iter().map(|name| named(name, &[])).chain([named("last", &parts)]).collect();
    let (id, _) = h.join("q", closed(), jobs);
    h.settle(&h.claim_one("q"), complete()).unwrap();
    let second = h.claim_one("q");
    h.settle(&second, fail(ReportedCategory::Temporary)).unwrap();
    h.reopen();
    h.settle(&h.claim_one("q"), complete()).unwrap();
    h.pass(longshore_core::Duration::from_hours(1));
    h.settle(&h.claim_one("q"), complete()).unwrap();
    h.reopen();
    let last = h.claim_all("q");
    assert_eq!(last.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [h.member(id, "last").id]);
    h.settle(&last[0], complete()).unwrap();
    h.reopen();
    assert!(h.claim_all("q").is_empty());
    assert_eq!(h.workflow(id).state(), WorkflowState::Completed);
}

pub(super) fn random_dags_with_reopen(h: &mut Harness) {
    (0..6).for_each(|seed| play_with_restarts(h, seed));
}
