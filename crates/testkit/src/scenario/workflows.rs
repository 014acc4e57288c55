//! The statements about workflows.

use super::Problem;
use super::matching::Context;
use super::runner::{ScenarioRun, Verdict, mismatch};
use super::steps::{Action, Expected, Member};
use super::syntax::{Read, Reader, Statement};
use super::values::STATES;
use crate::target::{Command, Handle, NewJob, WorkflowSnapshot};

const WORKFLOW_STATES: [&str; 4] = ["running", "completed", "failed", "cancelled"];

impl Reader {
    fn workflow(&mut self, s: &mut Statement) -> Read<usize> {
        let name = s.arguments.next("workflow")?;
        Ok(self.workflow_named(&name))
    }

    fn workflow_named(&mut self, name: &str) -> usize {
        self.workflows.iter().position(|known| known == name).unwrap_or_else(|| {
            self.workflows.push(name.to_owned());
            self.workflows.len() - 1
        })
    }

    /// Parses `workflow Q W [open]` or `grow W Q`, without its jobs.
    pub(super) fn joining(&mut self, verb: &str, s: &mut Statement, binds: &mut Option<usize>) -> Read<Command> {
        if verb == "grow" {
            let workflow = self.workflow(s)?;
            let queue = s.arguments.next("queue")?;
            return Ok(Command::GrowWorkflow { workflow, queue: self.queue(&queue), jobs: Vec::new() });
        }
        let queue = s.arguments.next("queue")?;
        *binds = Some(self.workflow(s)?);
        Ok(Command::StartWorkflow { queue: self.queue(&queue), jobs: Vec::new(), open: s.arguments.flag("open") })
    }

    pub(super) fn workflow_command(&mut self, verb: &str, s: &mut Statement) -> Read<Command> {
        let workflow = self.workflow(s)?;
        Ok(match verb {
            "close" => Command::CloseWorkflow { workflow },
            "retry-workflow" => Command::RetryWorkflow { workflow },
            _ => Command::CancelWorkflow {
                workflow,
                force: s.arguments.flag("force"),
                reason: s.arguments.option("reason"),
            },
        })
    }

    /// Parses `member W a as a2`, `expect-workflow W state=running completed=1`.
    pub(super) fn workflow_check(&mut self, verb: &str, s: &mut Statement) -> Read<Action> {
        let workflow = self.workflow(s)?;
        if verb == "member" {
            let member = s.arguments.next("name of the member")?;
            if !s.arguments.flag("as") {
                return Err("say `member W a as b`".to_owned());
            }
            let name = s.arguments.next("name of the job")?;
            return Ok(Action::Member { workflow, member, name: self.name(&name) });
        }
        if s.arguments.flag("gone") {
            return Ok(Action::WorkflowGone(workflow));
        }
        let fields = s.arguments.remaining_options();
        for (name, value) in &fields {
            let fits = match name.as_str() {
                "state" => WORKFLOW_STATES.contains(&value.as_str()),
                "open" => matches!(value.as_str(), "true" | "false"),
                "members" => true,
                state => STATES.contains(&state) && value.parse::<u64>().is_ok(),
            };
            if !fits {
                return Err(format!("a workflow shows no `{name}={value}`"));
            }
        }
        if fields.is_empty() {
            return Err("nothing is expected here".to_owned());
        }
        Ok(Action::ExpectWorkflow { workflow, fields })
    }

    /// Parses a state, or `known as W`.
    pub(super) fn workflow_expected(&mut self, words: &[String], members: Vec<Member>) -> Read<Expected> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [state] if WORKFLOW_STATES.contains(state) => Ok(Expected::Workflow((*state).to_owned())),
            ["known", "as", name] => Ok(Expected::Known(self.workflow_named(name), members)),
            _ => Err(format!("`{}` is neither a state of a workflow nor an error code", words.join(" "))),
        }
    }
}

pub(super) fn with_jobs(command: Command, members: Vec<NewJob>) -> Command {
    match command {
        Command::StartWorkflow { queue, open, .. } => Command::StartWorkflow { queue, jobs: members, open },
        Command::GrowWorkflow { workflow, queue, .. } => Command::GrowWorkflow { workflow, queue, jobs: members },
        other => other,
    }
}

impl ScenarioRun<'_> {
    pub(super) fn workflow_handle(&self, name: usize) -> Result<Handle, Problem> {
        self.workflows.get(name).copied().flatten().ok_or_else(|| {
            let name = self.story.workflows.get(name).map_or("?", String::as_str);
            Problem::Language(format!("no workflow is called `{name}` yet"))
        })
    }

    fn workflow_snapshot(&mut self, name: usize) -> Result<WorkflowSnapshot, Problem> {
        let handle = self.workflow_handle(name)?;
        self.subject.workflow(handle).ok_or_else(|| mismatch("a workflow", "it is gone"))
    }

    pub(super) fn member(&mut self, workflow: usize, member: &str, name: usize) -> Verdict {
        let found = self.workflow_snapshot(workflow)?;
        let job = found.members.iter().find(|(known, _)| known == member).map(|(_, job)| *job);
        let job = job.ok_or_else(|| mismatch(&format!("a member {member}"), "there is none"))?;
        if let Some(slot) = self.handles.get_mut(name) {
            *slot = Some(job);
        }
        Ok(format!("job {job}"))
    }

    pub(super) fn expect_workflow(&mut self, workflow: usize, fields: &[(String, String)]) -> Verdict {
        let found = self.workflow_snapshot(workflow)?;
        let value = |name: &str| match name {
            "state" => found.state.clone(),
            "open" => found.open.to_string(),
            "members" => found.members.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(","),
            state => found.counts.get(state).map_or_else(|| "nothing".to_owned(), ToString::to_string),
        };
        let side = |show: &dyn Fn(&(String, String)) -> String| {
            fields.iter().map(|field| format!("{}={}", field.0, show(field))).collect::<Vec<_>>().join(" ")
        };
        let (expected, got) = (side(&|field| field.1.clone()), side(&|field| value(&field.0)));
        if expected == got { Ok(got) } else { Err(mismatch(&expected, &got)) }
    }

    pub(super) fn workflow_gone(&mut self, workflow: usize) -> Verdict {
        let handle = self.workflow_handle(workflow)?;
        match self.subject.workflow(handle) {
            None => Ok("gone".to_owned()),
            Some(found) => Err(mismatch("gone", &format!("still there, {}", found.state))),
        }
    }
}

/// Returns the name of a workflow in this scenario.
pub(super) fn show_workflow(workflow: Handle, context: Context<'_>) -> String {
    let symbol = context.workflow_handles.iter().position(|handle| *handle == Some(workflow));
    let name = symbol.and_then(|symbol| context.workflows.get(symbol)).cloned();
    name.unwrap_or_else(|| format!("(workflow {workflow})"))
}
