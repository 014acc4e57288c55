//! `longshore workflows list`

use clap::Args;
use longshore_api::enums::WorkflowState;
use longshore_api::workflow::Workflows;

use super::state;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Most workflows that the server returns in one page.
const PAGE_MAX: u64 = 1_000;

/// List workflows, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore workflows list --state failed
  longshore workflows list --json --all | jq -r '.workflows[].id'")]
pub(crate) struct ListWorkflows {
    /// Workflows in this state: running, completed, failed or cancelled
    #[arg(short, long, value_parser = parse_state)]
    state: Option<WorkflowState>,
    /// List at most N workflows
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// List all workflows
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue an earlier list: its "next"
    #[arg(long)]
    cursor: Option<String>,
}

fn parse_state(text: &str) -> Result<WorkflowState, String> {
    let states = || WorkflowState::ALL.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ");
    WorkflowState::parse(text).ok_or_else(|| format!("expected one of {}", states()))
}

impl ListWorkflows {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let limit = if self.all { u64::MAX } else { self.limit };
        let client = context.client()?;
        let found = context.call(async {
            let (mut workflows, mut cursor) = (Vec::new(), self.cursor);
            loop {
                let left = limit.saturating_sub(workflows.len() as u64).min(PAGE_MAX);
                if left == 0 {
                    return Ok(Workflows { workflows, next: cursor });
                }
                let page = client.workflows(self.state, Some(left), cursor.as_deref()).await?;
                workflows.extend(page.workflows);
                if page.next.is_none() {
                    return Ok(Workflows { workflows, next: None });
                }
                cursor = page.next;
            }
        })?;
        show(context, &found)
    }
}

fn show(context: &Context, found: &Workflows) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(found);
    }
    if found.workflows.is_empty() {
        context.output.info("no workflows match");
        return Ok(());
    }
    let mut table = TextTable::new(&["ID", "NAME", "STATE", "ENDED", "JOBS", "CREATED"]);
    for workflow in &found.workflows {
        table.row(vec![
            workflow.id.as_str().into(),
            CellValue::maybe(workflow.name.as_ref()),
            state(workflow),
            CellValue::number(workflow.ended),
            CellValue::number(workflow.total),
            workflow.created_at.into(),
        ]);
    }
    context.output.table(&table)?;
    if let Some(next) = &found.next {
        context.output.info(&format!("more workflows match: use --cursor {next}, --limit N or --all"));
    }
    Ok(())
}
