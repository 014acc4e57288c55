//! Tests of the runner and the generator: equal models agree, and faulty ones are detected.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::target::{JobSnapshot, Outcome, QueueSnapshot, Token, WorkflowSnapshot};

/// A fault of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Accepts a stale token as the current one.
    NoFencing,
    /// Ignores heartbeats.
    IgnoresHeartbeats,
    /// Postpones all deadlines to the end of an advance.
    LateTimers,
    /// Shows one failure too few.
    Miscounts,
    /// Shows a wrong word in a view.
    WrongWord,
    /// Counts one member too many in larger workflows.
    MiscountsWorkflows,
    /// Draws delays outside the window.
    WildJitter,
}

/// A model that draws its own jitter, like a real implementation, and has at most one fault.
#[derive(Debug)]
struct FaultyModel {
    model: Model,
    drawn: u64,
    fault: Fault,
}

impl FaultyModel {
    fn new(fault: Fault) -> Self {
        FaultyModel { model: Model::new(), drawn: 1, fault }
    }

    fn draw(&mut self) {
        for job in self.model.awaits_adoption() {
            let Some((first, last)) = self.model.run_at_window(job) else { continue };
            self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let width = u64::try_from(last - first).unwrap_or(0) + 1;
            let chosen = first + i64::try_from((self.drawn >> 33) % width).unwrap_or(0);
            self.model.adopt_run_at(job, chosen).expect("inside the window");
        }
    }
}

impl TestTarget for FaultyModel {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn now(&mut self) -> Millis {
        self.model.now()
    }

    fn apply(&mut self, command: &Command) -> Answer {
        let mut command = command.clone();
        if self.fault == Fault::NoFencing
            && let Command::Settle { job, token, .. } = &mut command
        {
            *token = Token::Version(self.model.lease_version(*job));
        }
        if self.fault == Fault::IgnoresHeartbeats && matches!(command, Command::Heartbeat { .. }) {
            return self.model.clone().apply(&command);
        }
        let answer = self.model.apply(&command);
        self.draw();
        answer
    }

    fn advance(&mut self, by: Millis) {
        if self.fault == Fault::LateTimers && by > 1 {
            // Postpones everything that is due on the way to the end.
            self.model.jump(by);
        } else {
            self.model.advance(by);
        }
        self.draw();
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        let mut snapshot = self.model.job(job)?;
        if self.fault == Fault::Miscounts && snapshot.state == "dead_letter" {
            snapshot.failures = snapshot.failures.saturating_sub(1);
        }
        if self.fault == Fault::WildJitter && snapshot.state == "retrying" {
            for attempt in &mut snapshot.attempts {
                attempt.next_delay = attempt.next_delay.map(|delay| delay * 3 + 1);
            }
        }
        Some(snapshot)
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        self.model.queue(queue)
    }

    fn workflow(&mut self, workflow: Handle) -> Option<WorkflowSnapshot> {
        let mut shown = self.model.workflow(workflow)?;
        if self.fault == Fault::MiscountsWorkflows {
            shown.counts.entry("failed".to_owned()).and_modify(|failed| *failed += u64::from(shown.members.len() > 3));
        }
        Some(shown)
    }

    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
        let mut fields = self.model.view(job, view)?;
        if self.fault == Fault::WrongWord {
            fields.entry("status".to_owned()).and_modify(|status| *status = status.replace("timed_out", "failed"));
        }
        Some(fields)
    }
}

#[test]
fn equal_models_agree() {
    run_histories(|| FaultyModel::new(Fault::None), 0..400, 200).unwrap_or_else(|report| panic!("{report}"));
}

#[test]
fn every_fault_is_detected() {
    let faults = [
        Fault::NoFencing,
        Fault::IgnoresHeartbeats,
        Fault::LateTimers,
        Fault::Miscounts,
        Fault::WrongWord,
        Fault::MiscountsWorkflows,
        Fault::WildJitter,
    ];
    for fault in faults {
        let report = run_histories(|| FaultyModel::new(fault), 0..60, 200).expect_err("a fault must be detected");
        let steps = report.lines().skip_while(|line| *line != "steps:").count() - 1;
        assert!(steps <= 12, "{fault:?} took {steps} steps:\n{report}");
    }
}

#[test]
fn panic_is_a_difference() {
    struct Panics;
    impl TestTarget for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }
        fn now(&mut self) -> Millis {
            0
        }
        fn apply(&mut self, _: &Command) -> Answer {
            panic!("out of order")
        }
        fn advance(&mut self, _: Millis) {}
        fn job(&mut self, _: Handle) -> Option<JobSnapshot> {
            None
        }
        fn queue(&mut self, _: &str) -> Option<QueueSnapshot> {
            None
        }
        fn workflow(&mut self, _: Handle) -> Option<WorkflowSnapshot> {
            None
        }
        fn view(&mut self, _: Handle, _: &str) -> Option<BTreeMap<String, String>> {
            None
        }
    }
    let report = check(|| Panics, &drafts(1, 20)).expect_err("it panics");
    assert!(report.contains("out of order"), "{report}");
}

/// Histories must exercise all states, causes and refusals.
#[test]
fn histories_reach_every_state_cause_and_refusal() {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut note = |what: String| *seen.entry(what).or_default() += 1;
    for seed in 0..300 {
        let mut model = Model::new();
        for draft in drafts(seed, 200) {
            match draft.step(&model) {
                Step::Advance(by) => model.advance(by),
                Step::Command(command) => match model.apply(&command) {
                    Answer::Refused { code } => note(format!("refused {code}")),
                    answer => {
                        let text = format!("{answer:?}");
                        let word: String = text.chars().take_while(char::is_ascii_alphabetic).collect();
                        note(format!("answer {word}"));
                        if let Command::Settle { outcome: Outcome::Release, .. } = command {
                            note("release".to_owned());
                        }
                    }
                },
            }
        }
        for job in 0..model.handles() {
            let Some(snapshot) = model.job(job) else {
                note("removed".to_owned());
                continue;
            };
            note(format!("state {}", snapshot.state));
            for row in snapshot.history {
                note(format!("cause {}", row.cause));
            }
            for row in snapshot.attempts {
                note(format!("outcome {}", row.outcome.unwrap_or_default()));
            }
        }
    }
    let causes = "create submit dependencies due claim complete fail timeout lease_expired snooze release run_now cancel \
                  dead_letter lifetime exhausted dependency_failed resource_exhausted queue_deleted requeue revive";
    let states = "pending scheduled delayed running completed failed retrying dead_letter cancelled";
    let refusals = "validation dependency_cycle dependency_unknown queue_not_found job_not_found stale_lease \
                    illegal_transition workflow_not_found duplicate_id payload_too_large queue_full";
    let answers = "Done Submitted Claimed State CancelRequested Extended FannedOut Workflow WorkflowState";
    let outcomes = "completed failed timed_out lease_expired snoozed released cancelled";
    let groups =
        [("cause", causes), ("state", states), ("refused", refusals), ("answer", answers), ("outcome", outcomes)];
    let missing: Vec<String> = groups
        .iter()
        .flat_map(|(group, words)| words.split_whitespace().map(move |word| format!("{group} {word}")))
        .filter(|expected| !seen.contains_key(expected))
        .collect();
    assert!(missing.is_empty(), "never seen: {missing:?}\nseen: {seen:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_models_agree_on_what_proptest_draws(history in commands(0..120)) {
        if let Err(report) = check(|| FaultyModel::new(Fault::None), &history) {
            return Err(TestCaseError::fail(report));
        }
    }
}
