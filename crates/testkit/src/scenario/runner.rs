//! Runs the steps of a scenario on a target and compares the results.

use super::comparison::{Mismatch, judge, show_answer, with_reason};
use super::matching::{COLUMNS, Context, FIELDS, Got, Matcher, differences, show_job};
use super::steps::{Action, Entry, Expected, Pick, ScenarioCase, Script, Step};
use super::values::{show_duration, show_offset};
use super::workflows::show_workflow;
use super::{Failure, Problem, Report};
use crate::target::{
    Answer, Command, Dependency, Handle, JobSnapshot, Millis, NewJob, QueueSnapshot, TestTarget, WorkflowSnapshot,
};

/// A statement that ran, for a trace.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub line: usize,
    pub row: Option<&'a str>,
    /// Virtual time since the start of the scenario.
    pub at: Millis,
    pub statement: &'a str,
    /// The result as text; empty for a comment.
    pub got: &'a str,
    pub ok: bool,
}

pub(super) type Verdict = Result<String, Problem>;

pub(super) fn play(
    script: &Script,
    file: &str,
    subject: &mut dyn TestTarget,
    sink: &mut dyn FnMut(&Event<'_>),
) -> Result<Report, Failure> {
    let mut report = Report {
        title: script.title.clone(),
        proves: script.proves.clone(),
        settles: script.settles.clone(),
        rulings: script.rulings.clone(),
        ..Report::default()
    };
    for story in &script.stories {
        let (handles, workflows) = (vec![None; story.names.len()], vec![None; story.workflows.len()]);
        let mut stage = ScenarioRun { start: subject.now(), handles, workflows, story, subject };
        for step in &story.steps {
            let verdict = stage.step(step);
            let at = stage.subject.now() - stage.start;
            let got = match &verdict {
                Ok(got) => got.as_str(),
                Err(Problem::Language(problem)) => problem,
                Err(Problem::Mismatch { got, .. }) => got,
            };
            let row = story.row.as_deref();
            sink(&Event { line: step.line, row, at, statement: &step.text, got, ok: verdict.is_ok() });
            verdict.map_err(|problem| Failure {
                file: file.to_owned(),
                line: step.line,
                row: story.row.clone(),
                statement: step.text.clone(),
                problem: Box::new(problem),
            })?;
            report.statements += usize::from(!matches!(step.action, Action::Note));
        }
        report.stories += 1;
    }
    Ok(report)
}

pub(super) struct ScenarioRun<'a> {
    pub(super) subject: &'a mut dyn TestTarget,
    pub(super) story: &'a ScenarioCase,
    start: Millis,
    /// By name: the handle of the job.
    pub(super) handles: Vec<Option<Handle>>,
    pub(super) workflows: Vec<Option<Handle>>,
}

/// Everything of a scenario that a refused command must not change.
struct ScenarioSnapshot {
    jobs: Vec<(Handle, Option<JobSnapshot>)>,
    queues: Vec<(String, Option<QueueSnapshot>)>,
    /// One more than the scenario has: a refused command must not create one.
    workflows: Vec<(Handle, Option<WorkflowSnapshot>)>,
}

fn verdict(problem: Result<(), Mismatch>, got: String) -> Verdict {
    match problem {
        Ok(()) => Ok(got),
        Err((expected, got)) => Err(Problem::Mismatch { expected, got }),
    }
}

impl ScenarioRun<'_> {
    fn context(&mut self) -> Context<'_> {
        Context {
            start: self.start,
            now: self.subject.now(),
            names: &self.story.names,
            handles: &self.handles,
            workflows: &self.story.workflows,
            workflow_handles: &self.workflows,
        }
    }

    fn step(&mut self, step: &Step) -> Verdict {
        match &step.action {
            Action::Note => Ok(String::new()),
            Action::Do { command, binds, workflow, expected, unchanged } => {
                self.act(command, (binds, *workflow), expected, *unchanged)
            }
            Action::Member { workflow, member, name } => self.member(*workflow, member, *name),
            Action::ExpectWorkflow { workflow, fields } => self.expect_workflow(*workflow, fields),
            Action::WorkflowGone(workflow) => self.workflow_gone(*workflow),
            Action::Advance(by) => {
                self.subject.advance(*by);
                Ok(String::new())
            }
            Action::AdvanceTo(offset) => {
                let by = self.start + offset - self.subject.now();
                if by < 0 {
                    return Err(Problem::Language("that instant has passed".to_owned()));
                }
                self.subject.advance(by);
                Ok(String::new())
            }
            Action::Expect { job, fields } => {
                let snapshot = self.snapshot(*job)?;
                let context = self.context();
                let got = |(index, _): &(usize, Matcher)| FIELDS.get(*index).map(|(n, _, get)| (*n, get(&snapshot)));
                let shown: Vec<String> =
                    fields.iter().filter_map(got).map(|(name, got)| format!("{name}={}", got.show(context))).collect();
                let wrong: Vec<_> = fields
                    .iter()
                    .filter_map(|field| got(field).map(|(name, value)| (name, &field.1, value)))
                    .filter(|(_, matcher, value)| !matcher.matches(value, context))
                    .collect();
                let problem = if wrong.is_empty() {
                    Ok(())
                } else {
                    let side = |show: &dyn Fn(&(&str, &Matcher, Got)) -> String| {
                        wrong.iter().map(|w| format!("{}={}", w.0, show(w))).collect::<Vec<_>>().join(" ")
                    };
                    Err((side(&|w| w.1.show(context)), side(&|w| w.2.show(context))))
                };
                verdict(problem, shown.join(" "))
            }
            Action::Gone(job) => {
                let handle = self.handle(*job)?;
                match self.subject.job(handle) {
                    None => Ok("gone".to_owned()),
                    Some(snapshot) => Err(mismatch("gone", &format!("still there, {}", snapshot.state))),
                }
            }
            Action::Counts { queue, fields } => self.counts(queue, fields),
            Action::QueueGone(queue) => match self.subject.queue(queue) {
                None => Ok("gone".to_owned()),
                Some(_) => Err(mismatch("gone", "the queue is still there")),
            },
            Action::Attempts { job, column, pick, values } => self.attempts(*job, *column, *pick, values),
            Action::History { job, pick, values } => self.history(*job, *pick, values),
            Action::Length { job, history, length } => {
                let snapshot = self.snapshot(*job)?;
                let got = if *history { snapshot.history.len() } else { snapshot.attempts.len() };
                verdict(
                    if got == *length { Ok(()) } else { Err((length.to_string(), got.to_string())) },
                    got.to_string(),
                )
            }
            Action::View { job, view, fields } => self.view(*job, view, fields),
            Action::ViewFields { job, view, fields } => {
                let names: Vec<String> = self.read_view(*job, view)?.into_keys().collect();
                let problem = if names == *fields { Ok(()) } else { Err((fields.join(" "), names.join(" "))) };
                verdict(problem, names.join(" "))
            }
        }
    }

    fn handle(&self, name: usize) -> Result<Handle, Problem> {
        self.handles.get(name).copied().flatten().ok_or_else(|| {
            let name = self.story.names.get(name).map_or("?", String::as_str);
            Problem::Language(format!("no job is called `{name}`"))
        })
    }

    fn snapshot(&mut self, name: usize) -> Result<JobSnapshot, Problem> {
        let handle = self.handle(name)?;
        self.subject.job(handle).ok_or_else(|| mismatch("a job", "it is gone"))
    }

    fn counts(&mut self, queue: &str, fields: &[(String, String)]) -> Verdict {
        let Some(snapshot) = self.subject.queue(queue) else {
            return Err(mismatch("a queue", "there is none"));
        };
        let got = |name: &str| match name {
            "profile" => snapshot.profile.clone(),
            "paused" => snapshot.paused.to_string(),
            state => snapshot.counts.get(state).map_or_else(|| "missing".to_owned(), u64::to_string),
        };
        let wrong: Vec<_> = fields.iter().filter(|(name, value)| got(name) != *value).collect();
        let side = |value: &dyn Fn(&(String, String)) -> String| {
            wrong.iter().map(|f| format!("{}={}", f.0, value(f))).collect::<Vec<_>>().join(" ")
        };
        let problem = if wrong.is_empty() { Ok(()) } else { Err((side(&|f| f.1.clone()), side(&|f| got(&f.0)))) };
        let filled = snapshot.counts.iter().filter(|(_, count)| **count > 0);
        let shown: Vec<String> = filled.map(|(state, count)| format!("{state}={count}")).collect();
        verdict(problem, shown.join(" "))
    }

    fn attempts(&mut self, job: usize, column: usize, pick: Pick, values: &[Matcher]) -> Verdict {
        let snapshot = self.snapshot(job)?;
        let Some((_, _, get)) = COLUMNS.get(column) else { return Ok(String::new()) };
        let got: Vec<Got> = picked(&snapshot.attempts, pick).iter().map(get).collect();
        let context = self.context();
        let shown = got.iter().map(|got| got.show(context)).collect::<Vec<_>>().join(" ");
        let same = got.len() == values.len() && values.iter().zip(&got).all(|(want, got)| want.matches(got, context));
        let expected = || values.iter().map(|want| want.show(context)).collect::<Vec<_>>().join(" ");
        verdict(if same { Ok(()) } else { Err((expected(), shown.clone())) }, shown)
    }

    fn history(&mut self, job: usize, pick: Pick, values: &[Entry]) -> Verdict {
        let snapshot = self.snapshot(job)?;
        let all = &snapshot.history;
        // Entries must be contiguous. After the first one, a long history may have dropped some.
        let broken = all
            .iter()
            .zip(all.iter().skip(1))
            .enumerate()
            .find(|(index, (a, b))| (*index > 0 || all.len() < 100) && b.from.as_ref() != Some(&a.to));
        if let Some((index, (_, b))) = broken {
            return Err(mismatch("entries that link up", &format!("entry {} starts from {:?}", index + 2, b.from)));
        }
        if all.first().is_some_and(|first| first.from.is_some()) {
            return Err(mismatch("a first entry from nothing", "one that comes from a state"));
        }
        let context = self.context();
        let entries = picked(all, pick);
        let same = entries.len() == values.len()
            && values.iter().zip(entries).all(|(want, got)| {
                want.state == got.to
                    && want.cause.as_ref().is_none_or(|cause| *cause == got.cause)
                    && want.at.as_ref().is_none_or(|at| at.matches(&Got::Time(got.at), context))
            });
        let expected = || {
            let show = |want: &Entry| {
                let cause = want.cause.as_ref().map(|cause| format!(":{cause}")).unwrap_or_default();
                let at = want.at.as_ref().map(|at| format!("@{}", at.show(context))).unwrap_or_default();
                format!("{}{cause}{at}", want.state)
            };
            values.iter().map(show).collect::<Vec<_>>().join(" ")
        };
        let full: Vec<String> =
            entries.iter().map(|e| format!("{}:{}@{}", e.to, e.cause, show_offset(e.at - context.start))).collect();
        let short: Vec<&str> = entries.iter().map(|e| e.to.as_str()).collect();
        verdict(if same { Ok(()) } else { Err((expected(), full.join(" "))) }, short.join(" → "))
    }

    fn read_view(&mut self, job: usize, view: &str) -> Result<std::collections::BTreeMap<String, String>, Problem> {
        let handle = self.handle(job)?;
        self.subject.view(handle, view).ok_or_else(|| mismatch("a view", "there is none"))
    }

    fn view(&mut self, job: usize, view: &str, fields: &[(String, Matcher)]) -> Verdict {
        let view = self.read_view(job, view)?;
        let context = self.context();
        let got = |(name, matcher): &(String, Matcher)| view.get(name).map(|text| seen_in_view(text, matcher));
        let shown = |field: &(String, Matcher)| {
            let value = got(field).map_or_else(|| "(no such field)".to_owned(), |got| got.show(context));
            format!("{}={value}", field.0)
        };
        let wrong = |field: &&(String, Matcher)| !got(field).is_some_and(|got| field.1.matches(&got, context));
        let wrong: Vec<_> = fields.iter().filter(wrong).collect();
        let join = |words: Vec<String>| words.join(" ");
        let problem = if wrong.is_empty() {
            Ok(())
        } else {
            let expected = wrong.iter().map(|(name, matcher)| format!("{name}={}", matcher.show(context)));
            Err((join(expected.collect()), join(wrong.iter().map(|field| shown(field)).collect())))
        };
        verdict(problem, join(fields.iter().map(shown).collect()))
    }

    /// `binds`: the names of the jobs and of the workflow that the command creates.
    fn act(
        &mut self,
        command: &Command,
        (binds, workflow): (&[usize], Option<usize>),
        expected: &Expected,
        unchanged: bool,
    ) -> Verdict {
        let command = self.resolve(command)?;
        let still = unchanged || matches!(expected, Expected::Refused(_));
        let before = still.then(|| self.picture());
        let answer = self.subject.apply(&command);
        self.bind(&command, &answer, binds);
        if let (Some(name), Answer::Workflow { workflow, .. }) = (workflow, &answer)
            && let Some(slot) = self.workflows.get_mut(name)
        {
            *slot = Some(*workflow);
        }
        let reason = self.subject.reason();
        let context = self.context();
        let shown = with_reason(show_answer(&answer, context), reason.as_deref());
        let problem = judge(&command, &answer, expected, binds, context)
            .map_err(|(expected, got)| (expected, with_reason(got, reason.as_deref())));
        verdict(problem, shown.clone())?;
        match before.map(|before| self.changes(&before)) {
            Some(Some(changed)) => Err(mismatch("nothing changes", &changed)),
            Some(None) | None => Ok(shown),
        }
    }

    /// Binds the names of the statement to the created jobs.
    fn bind(&mut self, command: &Command, answer: &Answer, binds: &[usize]) {
        let made: Vec<Option<Handle>> = match answer {
            Answer::Submitted(jobs) | Answer::Workflow { jobs, .. } => {
                jobs.iter().map(|job| job.job.filter(|_| !job.duplicate)).collect()
            }
            Answer::FannedOut { jobs, finally } => jobs.iter().copied().map(Some).chain([*finally]).collect(),
            Answer::State { job, .. } if matches!(command, Command::Requeue { .. }) => vec![Some(*job)],
            _ => return,
        };
        for (name, handle) in binds.iter().zip(made) {
            if let (Some(slot), Some(handle)) = (self.handles.get_mut(*name), handle) {
                *slot = Some(handle);
            }
        }
    }

    fn picture(&mut self) -> ScenarioSnapshot {
        let subject = &mut *self.subject;
        let jobs = self.handles.iter().flatten().map(|handle| (*handle, subject.job(*handle))).collect();
        let queues = self.story.queues.iter().map(|queue| (queue.clone(), subject.queue(queue))).collect();
        let known = self.workflows.iter().flatten().copied();
        let next = known.clone().max().map_or(0, |last| last + 1);
        let workflows = known.chain([next]).map(|workflow| (workflow, subject.workflow(workflow))).collect();
        ScenarioSnapshot { jobs, queues, workflows }
    }

    fn changes(&mut self, before: &ScenarioSnapshot) -> Option<String> {
        for (handle, old) in &before.jobs {
            let new = self.subject.job(*handle);
            let context = self.context();
            let changed = match (old, &new) {
                (Some(old), Some(new)) => differences(old, new, context),
                (None, None) => None,
                (Some(_), None) => Some("gone".to_owned()),
                (None, Some(_)) => Some("back".to_owned()),
            };
            if let Some(changed) = changed {
                return Some(format!("{}: {changed}", show_job(*handle, context)));
            }
        }
        if let Some((queue, _)) = before.queues.iter().find(|(queue, old)| self.subject.queue(queue) != *old) {
            return Some(format!("the queue {queue} changed"));
        }
        let (workflow, _) = before.workflows.iter().find(|(one, old)| self.subject.workflow(*one) != *old)?;
        Some(format!("the workflow {} changed", show_workflow(*workflow, self.context())))
    }

    /// Replaces names and offsets of the scenario by handles and timestamps of the target.
    fn resolve(&mut self, command: &Command) -> Result<Command, Problem> {
        let mut command = command.clone();
        let start = self.start;
        let jobs = |jobs: &mut Vec<NewJob>| -> Result<(), Problem> {
            for job in jobs {
                job.run_at = job.run_at.map(|offset| start + offset);
                for dependency in job.after.iter_mut().chain(&mut job.after_any) {
                    if let Dependency::Job(name) = dependency {
                        *name = self.handle(*name)?;
                    }
                }
            }
            Ok(())
        };
        match &mut command {
            Command::PutQueue { .. }
            | Command::Pause { .. }
            | Command::Resume { .. }
            | Command::DeleteQueue { .. }
            | Command::Direct { .. }
            | Command::Claim { .. } => {}
            Command::SettleAndClaim { settle, .. } => {
                for (job, _, _) in settle {
                    *job = self.handle(*job)?;
                }
            }
            Command::Submit { jobs: list, .. } | Command::StartWorkflow { jobs: list, .. } => jobs(list)?,
            Command::GrowWorkflow { workflow, jobs: list, .. } => {
                *workflow = self.workflow_handle(*workflow)?;
                jobs(list)?;
            }
            Command::CloseWorkflow { workflow }
            | Command::CancelWorkflow { workflow, .. }
            | Command::RetryWorkflow { workflow } => *workflow = self.workflow_handle(*workflow)?,
            Command::Children { job, jobs: list, finally, .. } => {
                *job = self.handle(*job)?;
                jobs(list)?;
                if let Some(last) = finally {
                    let mut one = vec![last.clone()];
                    jobs(&mut one)?;
                    *finally = one.pop();
                }
            }
            Command::Requeue { job, run_at, .. } => {
                *job = self.handle(*job)?;
                *run_at = run_at.map(|offset| start + offset);
            }
            Command::Settle { job, .. }
            | Command::Heartbeat { job, .. }
            | Command::SubmitHeld { job }
            | Command::Cancel { job, .. }
            | Command::DeadLetter { job, .. }
            | Command::RunNow { job }
            | Command::Edit { job, .. }
            | Command::ChangeStatus { job, .. }
            | Command::Delete { job } => *job = self.handle(*job)?,
        }
        Ok(command)
    }
}

pub(super) fn mismatch(expected: &str, got: &str) -> Problem {
    Problem::Mismatch { expected: expected.to_owned(), got: got.to_owned() }
}

/// Reads a field of a view: a timestamp if one is expected, else text.
fn seen_in_view(text: &str, matcher: &Matcher) -> Got {
    match (text, matcher) {
        ("null", _) => Got::Null,
        (_, Matcher::Time(..)) => text.parse().map_or_else(|_| Got::Text(text.to_owned()), Got::Time),
        _ => Got::Text(text.to_owned()),
    }
}

fn picked<T>(list: &[T], pick: Pick) -> &[T] {
    match pick {
        Pick::All => list,
        Pick::First(count) => list.get(..count).unwrap_or(list),
        Pick::Last(count) => list.get(list.len().saturating_sub(count)..).unwrap_or(list),
    }
}

impl Event<'_> {
    /// Returns the virtual time of the event for display.
    #[must_use]
    pub fn clock(&self) -> String {
        show_duration(self.at)
    }
}
