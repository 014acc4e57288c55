//! Random workflows of any shape, with failures, cancellations, retries and reopens. Every workflow
//! ends, no job starts before its dependencies, every job ends once per run, and the counts are
//! always right.

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::history::Cause;
use longshore_core::id::{JobId, WorkflowId};
use longshore_core::job::Job;
use longshore_core::profile::Profile;
use longshore_core::rng::{Rng, SeededRng};
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob};
use longshore_core::workflow::WorkflowState;
use longshore_engine::{AdminCommand, Claimed, WorkflowTarget};

use super::harness::{Harness, complete, fail, work_with};
use super::workflows::{cancel, closed, open};

const QUEUES: [(&str, Profile); 2] = [("index", Profile::Standard), ("clones", Profile::Gopherqueue)];

struct RandomDagLoad<'a> {
    h: &'a mut Harness,
    rng: SeededRng,
    workflow: WorkflowId,
    running: Vec<Claimed>,
    restarts: bool,
    /// Jobs that have ended before.
    seen_ended: BTreeSet<JobId>,
}

impl RandomDagLoad<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let rng: &mut dyn Rng = &mut self.rng;
        usize::try_from(rng.next_u64() % bound.max(1) as u64).unwrap()
    }

    fn jobs(&self) -> BTreeMap<JobId, std::sync::Arc<Job>> {
        self.h.jobs().into_iter().map(|job| (job.id, job)).collect()
    }

    /// Checks that a job starts only after its dependencies.
    fn claim(&mut self) {
        let (name, _) = QUEUES[self.below(2)];
        let limit = 1 + self.below(12);
        let claimed = self.h.claim(name, limit);
        let jobs = self.jobs();
        for claimed in &claimed {
            let dependencies = &jobs[&claimed.id].dependencies;
            for after in &dependencies.after {
                assert_eq!(jobs[&after.id].kind(), StateKind::Completed, "{} waits for {}", claimed.id, after.id);
            }
            let any = &dependencies.after_any;
            assert!(
                any.is_empty() || any.iter().any(|id| self.seen_ended.contains(id)),
                "{} waits for any",
                claimed.id
            );
        }
        self.running.extend(claimed);
    }

    fn settle(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let index = self.below(self.running.len());
        let claimed = self.running.swap_remove(index);
        let outcome = match self.below(10) {
            0 | 1 => fail(ReportedCategory::Permanent),
            2 => fail(ReportedCategory::Temporary),
            _ => complete(),
        };
        // A forced cancel may have ended it meanwhile.
        drop(self.h.settle(&claimed, outcome));
    }

    fn disturb(&mut self) {
        let members = self.h.members(self.workflow);
        let id = self.workflow;
        let (choice, detail) = (self.below(12), self.below(5));
        match choice {
            0 => drop(self.h.try_admin(cancel(id, if detail < 2 { Force::Now } else { Force::ByPolicy }))),
            1 | 2 => drop(self.h.try_admin(AdminCommand::RetryWorkflow { id })),
            3 | 4 => {
                let job = members[self.below(members.len())].id;
                drop(self.h.try_admin(AdminCommand::Cancel { id: job, reason: None, force: Force::ByPolicy }));
            }
            5 => {
                let job = members[self.below(members.len())].id;
                drop(self.h.try_admin(super::admin::requeue(job)));
            }
            6 if self.restarts => self.h.reopen(),
            7 => self.h.pass(Duration::from_secs(40)),
            _ => drop(self.h.tick(1 + detail)),
        }
    }

    fn look(&mut self) {
        let jobs = self.jobs();
        self.seen_ended.extend(jobs.values().filter(|job| job.kind().terminal()).map(|job| job.id));
        // A job that ended and revived between two checks has the end in its history.
        let ended_once = |job: &Job| job.history.transitions().iter().any(|step| step.to.terminal());
        self.seen_ended.extend(jobs.values().filter(|job| ended_once(job)).map(|job| job.id));
        for job in jobs.values() {
            let lives = job.history.transitions().windows(2).filter(|pair| pair[0].to.terminal());
            for pair in lives {
                let back = matches!(pair[1].cause, Cause::Requeue | Cause::Revive);
                assert!(back, "{} left its end by {}", job.id, pair[1].cause);
            }
        }
        let workflow = self.h.workflow(self.workflow);
        let members = self.h.members(self.workflow);
        for state in StateKind::ALL {
            let found = members.iter().filter(|job| job.kind() == *state).count() as u64;
            assert_eq!(workflow.tally.of(*state), found, "{state} members");
        }
        let alive = members.iter().any(|job| !job.kind().terminal());
        assert_eq!(workflow.state().terminal(), !workflow.open && workflow.operation.is_none() && !alive);
    }

    /// Completes all running jobs until no work is left.
    fn drain(&mut self) {
        drop(self.h.try_admin(AdminCommand::CloseWorkflow { id: self.workflow }));
        for _ in 0..10_000 {
            self.h.tick_until_idle();
            for (name, _) in QUEUES {
                let claimed = self.h.claim_all(name);
                self.running.extend(claimed);
            }
            if self.running.is_empty() {
                if self.h.workflow(self.workflow).state() != WorkflowState::Running {
                    return;
                }
                // A job waits for a retry, or a lease has to expire.
                self.h.pass(Duration::from_secs(60));
            }
            for claimed in std::mem::take(&mut self.running) {
                drop(self.h.settle(&claimed, complete()));
            }
        }
        panic!("the workflow does not end: {:?}", self.h.workflow(self.workflow));
    }
}

/// Makes a job that depends on some earlier jobs, and sometimes on later ones by name.
fn node(rng: &mut SeededRng, index: usize) -> NewJob {
    let rng: &mut dyn Rng = rng;
    let mut pick = |bound: usize| usize::try_from(rng.next_u64() % bound.max(1) as u64).unwrap();
    work_with(|job| {
        job.reference = Some(format!("n{index}").into());
        let mut after = Vec::new();
        let mut any = Vec::new();
        if index > 0 {
            let number = [0, 0, 1, 1, 2, 3][pick(6)];
            // Few levels, because the depth is bounded.
            after.extend((0..number).map(|_| pick(index.min(1 + index / 3))));
            if pick(8) == 0 {
                any.push(pick(index));
            }
        }
        let reference = |other: usize| DependencyRef::Local(format!("n{other}").into());
        job.after = after.into_iter().map(reference).collect();
        job.after_any = any.into_iter().map(reference).collect();
    })
}

fn play(h: &mut Harness, seed: u64, nodes: usize, restarts: bool) {
    let mut rng = SeededRng::new(seed);
    for (name, profile) in QUEUES {
        h.put_queue(name, profile);
    }
    let mut jobs: Vec<NewJob> = (0..nodes).map(|index| node(&mut rng, index)).collect();
    let name = QUEUES[usize::try_from(seed % 2).unwrap()].0;
    let grows = seed.is_multiple_of(3) && nodes > 2;
    let later = if grows { jobs.split_off(nodes / 2) } else { Vec::new() };
    // In reverse order every job depends on later items.
    jobs.reverse();
    let (workflow, _) = h.join(name, if grows { open() } else { closed() }, jobs);
    let mut load = RandomDagLoad { h, rng, workflow, running: Vec::new(), restarts, seen_ended: BTreeSet::new() };
    let mut later = Some(later).filter(|later| !later.is_empty());
    for step in 0..nodes * 3 {
        match load.below(10) {
            0..=3 => load.claim(),
            4..=7 => load.settle(),
            _ => load.disturb(),
        }
        if load.h.workflow(workflow).open
            && step > nodes
            && let Some(later) = later.take()
        {
            load.h.join(QUEUES[1 - usize::try_from(seed % 2).unwrap()].0, WorkflowTarget::Open(workflow), later);
        }
        load.look();
    }
    load.drain();
    load.look();
    assert!(load.h.workflow(workflow).state().terminal());
}

pub(super) fn random_small_dags(h: &mut Harness) {
    for seed in 0..12 {
        play(h, seed, 4 + usize::try_from(seed).unwrap(), false);
    }
}

pub(super) fn random_dag_of_200_nodes(h: &mut Harness) {
    play(h, 100, 200, false);
}

pub(super) fn play_with_restarts(h: &mut Harness, seed: u64) {
    play(h, 200 + seed, 20 + usize::try_from(seed).unwrap() * 3, true);
}
