//! `longshore workflows`

mod add;
mod cancel;
mod close;
mod get;
mod graph;
mod list;
mod retry;
mod submit;

use clap::Subcommand;
use longshore_api::enums::State;
use longshore_api::workflow::Workflow;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowsCommand {
    Submit(submit::SubmitWorkflow),
    List(list::ListWorkflows),
    Get(get::GetWorkflow),
    Cancel(cancel::CancelWorkflow),
    Retry(retry::RetryWorkflow),
    Add(add::AddJobs),
    Close(close::CloseWorkflow),
}

impl WorkflowsCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Submit(submit) => submit.run(context),
            Self::List(list) => list.run(context),
            Self::Get(get) => get.run(context),
            Self::Cancel(cancel) => cancel.run(context),
            Self::Retry(retry) => retry.run(context),
            Self::Add(add) => add.run(context),
            Self::Close(close) => close.run(context),
        }
    }
}

/// Prints a workflow after a change.
fn show(context: &Context, workflow: &Workflow) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(workflow);
    }
    context.output.table(&summary_table(workflow))
}

fn summary_table(workflow: &Workflow) -> TextTable {
    let mut table = TextTable::key_values();
    table.key_value("id", &workflow.id);
    table.maybe("name", workflow.name.as_ref());
    table.row(vec!["state".into(), state(workflow)]);
    if workflow.open {
        table.key_value("open", "jobs can be added until it is closed");
    }
    table.key_value("created", workflow.created_at);
    table.key_value("ended", format!("{} of {} jobs", workflow.ended, workflow.total));
    let some = |state: &State| workflow.counts.get(state).copied().filter(|count| *count > 0);
    let counts: Vec<String> = State::ALL.iter().filter_map(|state| Some(format!("{} {state}", some(state)?))).collect();
    table.key_value("jobs", if counts.is_empty() { "none".to_owned() } else { counts.join(", ") });
    table
}

/// A workflow's state in the colour of the job state of the same name.
fn state(workflow: &Workflow) -> CellValue {
    State::parse(workflow.state.as_str()).map_or_else(|| workflow.state.into(), CellValue::State)
}
