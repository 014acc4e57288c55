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
use crate::terminal::table::{Table, Value};

#[derive(Debug, Subcommand)]
pub(crate) enum Workflows {
    Submit(submit::Submit),
    List(list::List),
    Get(get::Get),
    Cancel(cancel::Cancel),
    Retry(retry::Retry),
    Add(add::Add),
    Close(close::Close),
}

impl Workflows {
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

/// What a command has left behind.
fn show(context: &Context, workflow: &Workflow) -> Result<(), CliError> {
    if context.screen.json {
        return context.screen.json(workflow);
    }
    context.screen.table(&facts(workflow))
}

fn facts(workflow: &Workflow) -> Table {
    let mut table = Table::key_values();
    table.key_value("id", &workflow.id);
    table.maybe("name", workflow.name.as_ref());
    table.row(vec!["state".into(), state(workflow)]);
    if workflow.open {
        table.key_value("open", "more jobs may come, until it is closed");
    }
    table.key_value("created", workflow.created_at);
    table.key_value("ended", format!("{} of {} jobs", workflow.ended, workflow.total));
    let some = |state: &State| workflow.counts.get(state).copied().filter(|count| *count > 0);
    let counts: Vec<String> = State::ALL.iter().filter_map(|state| Some(format!("{} {state}", some(state)?))).collect();
    table.key_value("jobs", if counts.is_empty() { "none".to_owned() } else { counts.join(", ") });
    table
}

/// In the colour of the job's state of the same name.
fn state(workflow: &Workflow) -> Value {
    State::parse(workflow.state.as_str()).map_or_else(|| workflow.state.into(), Value::State)
}
