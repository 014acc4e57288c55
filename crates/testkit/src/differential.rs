//! Runs the same commands on the model and on another implementation, and compares them after every
//! step.
//!
//! [`DifferentialRunner`] compares; [`commands`] and [`drafts`] generate random histories.
//! [`check`] runs one history. [`run_histories`] runs many and shrinks the first that fails.

mod compare;
mod generate;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use generate::{Draft, commands, drafts};

use crate::model::Model;
use crate::target::{Answer, Command, Handle, Millis, TestTarget};
use compare::{VIEWS, job_differences, queue_difference, view_differences, workflow_differences};

/// One step of a history.
#[expect(clippy::large_enum_variant, reason = "steps are made one at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Command(Command),
    Advance(Millis),
}

/// The views of a changed job are compared every so many steps, and all views at the end.
const VIEW_EVERY: usize = 4;

/// Drives the model and another [`TestTarget`] together.
#[derive(Debug)]
pub struct DifferentialRunner<A: TestTarget> {
    model: Model,
    subject: A,
    queues: BTreeSet<String>,
    steps: Vec<Step>,
}

impl<A: TestTarget> DifferentialRunner<A> {
    pub fn new(subject: A) -> Self {
        let queues = BTreeSet::from(["default".to_owned()]);
        DifferentialRunner { model: Model::new(), subject, queues, steps: Vec::new() }
    }

    /// Returns the steps taken so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the model, so that the next step can depend on its state.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Takes one step on both sides. `Err` describes the first difference.
    pub fn step(&mut self, step: Step) -> Result<(), String> {
        self.steps.push(step);
        let number = self.steps.len();
        self.take_step(number).map_err(|difference| self.report(number, &difference))
    }

    /// Compares all five views of every job.
    pub fn finish(&mut self) -> Result<(), String> {
        let number = self.steps.len();
        let views = (0..self.model.handles())
            .try_for_each(|job| VIEWS.into_iter().try_for_each(|view| join(&self.differences_of_view(job, view))));
        views.map_err(|difference| self.report(number, &difference))
    }

    fn take_step(&mut self, number: usize) -> Result<(), String> {
        match self.steps[number - 1].clone() {
            Step::Command(command) => {
                self.note_queues(&command);
                let expected = self.model.apply(&command);
                let got = self.subject.apply(&command);
                compare_answers(self.subject.name(), &expected, &got)?;
                self.adopt()?;
            }
            Step::Advance(by) => self.advance(by)?,
        }
        if let Some(job) = self.model.take_touched().last().filter(|_| number.is_multiple_of(VIEW_EVERY)) {
            join(&self.differences_of_view(*job, VIEWS[(number / VIEW_EVERY) % VIEWS.len()]))?;
        }
        self.compare_all()
    }

    /// Stops at every instant at which a jittered delay may be drawn, so that the model adopts it
    /// before it ends.
    fn advance(&mut self, by: Millis) -> Result<(), String> {
        let target = self.model.now() + by;
        loop {
            let now = self.model.now();
            let stop = self.model.next_jitter(target).unwrap_or(target);
            self.model.advance(stop - now);
            self.subject.advance(stop - now);
            self.adopt()?;
            if stop == target {
                break;
            }
        }
        let (expected, got) = (self.model.now(), self.subject.now());
        if expected == got { Ok(()) } else { Err(format!("now: model {expected}, {} {got}", self.subject.name())) }
    }

    /// Copies the jittered instants that the target drew into the model.
    fn adopt(&mut self) -> Result<(), String> {
        for job in self.model.awaits_adoption() {
            let Some(snapshot) = self.subject.job(job) else {
                return Err(format!("job {job}: model awaits a retry, {} has no such job", self.subject.name()));
            };
            // A delay of zero has ended already; the attempt still records it.
            let drawn = snapshot.attempts.last().and_then(|attempt| Some(attempt.ended_at? + attempt.next_delay?));
            let Some(run_at) = drawn else {
                return Err(format!("job {job}: model plans a retry, {} shows {snapshot:?}", self.subject.name()));
            };
            self.model.adopt_run_at(job, run_at)?;
        }
        Ok(())
    }

    fn note_queues(&mut self, command: &Command) {
        let named: &[String] = match command {
            Command::PutQueue { queue, .. }
            | Command::Pause { queue }
            | Command::Resume { queue }
            | Command::DeleteQueue { queue, .. }
            | Command::StartWorkflow { queue, .. }
            | Command::GrowWorkflow { queue, .. }
            | Command::Submit { queue, .. } => std::slice::from_ref(queue),
            Command::Claim { queues, .. } => queues,
            Command::SettleAndClaim { claim, .. } => return self.note_queues(claim),
            _ => return,
        };
        for queue in named {
            if !self.queues.contains(queue) {
                self.queues.insert(queue.clone());
            }
        }
    }

    fn compare_all(&mut self) -> Result<(), String> {
        for job in 0..self.model.handles() {
            self.compare_job(job)?;
        }
        let beyond = self.model.handles();
        if self.subject.job(beyond).is_some() {
            return Err(format!("{} has a job {beyond} that the model never made", self.subject.name()));
        }
        self.compare_queues()?;
        self.compare_workflows()
    }

    fn compare_workflows(&mut self) -> Result<(), String> {
        let beyond = self.model.workflow_handles();
        for workflow in 0..=beyond {
            let (expected, got) = (self.model.workflow(workflow), self.subject.workflow(workflow));
            let differences = workflow_differences(expected.as_ref(), got.as_ref());
            if !differences.is_empty() {
                return Err(self.describe(&format!("workflow {workflow}"), &differences));
            }
        }
        Ok(())
    }

    fn compare_job(&mut self, job: Handle) -> Result<(), String> {
        let differences = match (self.model.job(job), self.subject.job(job)) {
            (Some(expected), Some(got)) => job_differences(&expected, &got),
            (None, None) => return Ok(()),
            (expected, got) => {
                let word = |known: bool| if known { "exists" } else { "gone" };
                vec![("record".to_owned(), word(expected.is_some()).to_owned(), word(got.is_some()).to_owned())]
            }
        };
        if differences.is_empty() {
            return Ok(());
        }
        let mut text = self.describe(&format!("job {job}"), &differences);
        for view in VIEWS {
            if let Err(more) = join(&self.differences_of_view(job, view)) {
                text.push('\n');
                text.push_str(&more);
            }
        }
        Err(text)
    }

    fn compare_queues(&mut self) -> Result<(), String> {
        for queue in &self.queues {
            let (expected, got) = (self.model.queue(queue), self.subject.queue(queue));
            if let Some(difference) = queue_difference(expected.as_ref(), got.as_ref()) {
                return Err(self.describe(&format!("queue {queue}"), &[difference]));
            }
        }
        Ok(())
    }

    fn differences_of_view(&mut self, job: Handle, view: &str) -> Vec<String> {
        let differences = view_differences(self.model.view(job, view), self.subject.view(job, view));
        if differences.is_empty() {
            return Vec::new();
        }
        vec![self.describe(&format!("view {view} of job {job}"), &differences)]
    }

    fn describe(&self, what: &str, differences: &[(String, String, String)]) -> String {
        let mut text = format!("{what} differs:");
        for (field, expected, got) in differences {
            text.push_str(&format!("\n  {field}: model {expected}, {} {got}", self.subject.name()));
        }
        text
    }

    fn report(&self, number: usize, difference: &str) -> String {
        let mut text = format!("after step {number}: {difference}\nsteps:");
        for (index, step) in self.steps.iter().enumerate() {
            text.push_str(&format!("\n  {}. {step:?}", index + 1));
        }
        text
    }
}

fn join(differences: &[String]) -> Result<(), String> {
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}

fn compare_answers(name: &str, expected: &Answer, got: &Answer) -> Result<(), String> {
    if expected == got { Ok(()) } else { Err(format!("answer:\n  model {expected:?}\n  {name} {got:?}")) }
}

/// Runs one history on a fresh pair. A panic of the target is a difference.
fn run<A: TestTarget>(make: &impl Fn() -> A, history: &[Draft]) -> Result<(), String> {
    let attempt = || {
        let mut pair = DifferentialRunner::new(make());
        for draft in history {
            let step = draft.step(pair.model());
            pair.step(step)?;
        }
        pair.finish()
    };
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", words.unwrap_or("no message")))
    })
}

/// Runs one history on a fresh pair.
pub fn check<A: TestTarget>(make: impl Fn() -> A, history: &[Draft]) -> Result<(), String> {
    run(&make, history)
}

/// Runs the histories of these seeds. The first that fails is shrunk before it is reported.
pub fn run_histories<A: TestTarget>(
    make: impl Fn() -> A,
    seeds: impl IntoIterator<Item = u64>,
    length: usize,
) -> Result<(), String> {
    for seed in seeds {
        let history = drafts(seed, length);
        if run(&make, &history).is_err() {
            let small = minimise(&make, history);
            let report = run(&make, &small).err().unwrap_or_else(|| "the failure is not reproducible".to_owned());
            return Err(format!("seed {seed}, {} steps after shrinking, {report}", small.len()));
        }
    }
    Ok(())
}

/// Shrinks a history that fails: removes steps, in ever smaller pieces, then simplifies single
/// choices.
fn minimise<A: TestTarget>(make: &impl Fn() -> A, mut history: Vec<Draft>) -> Vec<Draft> {
    let fails = |history: &[Draft]| run(make, history).is_err();
    let mut piece = history.len() / 2;
    while piece > 0 {
        let mut start = 0;
        while start < history.len() {
            let mut shorter = history.clone();
            shorter.drain(start..(start + piece).min(history.len()));
            if fails(&shorter) {
                history = shorter;
            } else {
                start += piece;
            }
        }
        piece /= 2;
    }
    for index in 0..history.len() {
        for pick in 0..history[index].picks().len() {
            let mut simpler = history.clone();
            if simpler[index].simplify(pick) && fails(&simpler) {
                history = simpler;
            }
        }
    }
    history
}
