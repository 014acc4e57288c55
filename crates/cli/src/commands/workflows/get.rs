//! `longshore workflows get`

use clap::Args;
use longshore_api::workflow::WorkflowWithJobs;

use super::{graph, summary_table};
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Members per page.
const PAGE: u64 = 1_000;

/// Show one workflow and its jobs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore workflows get 0b6f… --graph
  longshore workflows get 0b6f… --dot | dot -Tsvg > flow.svg
  longshore workflows get 0b6f… --mermaid >> README.md")]
pub(crate) struct GetWorkflow {
    /// The workflow's id
    id: String,
    /// Draw the dependencies as a tree
    #[arg(long, conflicts_with_all = ["dot", "mermaid"])]
    graph: bool,
    /// Print the dependencies for Graphviz
    #[arg(long, conflicts_with = "mermaid")]
    dot: bool,
    /// Print the dependencies for Mermaid
    #[arg(long)]
    mermaid: bool,
}

impl GetWorkflow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let workflow = context.call(async {
            let mut workflow = client.workflow(&self.id, Some(PAGE), None).await?;
            while let Some(cursor) = workflow.next.take() {
                let page = client.workflow(&self.id, Some(PAGE), Some(&cursor)).await?;
                workflow.jobs.extend(page.jobs);
                workflow.next = page.next;
            }
            Ok(workflow)
        })?;
        if self.dot {
            return context.output.line(&graph::dot(&workflow));
        }
        if self.mermaid {
            return context.output.line(&graph::mermaid(&workflow));
        }
        if context.output.json {
            return context.output.json(&workflow);
        }
        if self.graph {
            context.output.table(&summary_table(&workflow.workflow))?;
            return context.output.table(&graph::tree(&workflow));
        }
        context.output.table(&summary_table(&workflow.workflow))?;
        print_members(context, &workflow)
    }
}

fn print_members(context: &Context, workflow: &WorkflowWithJobs) -> Result<(), CliError> {
    if workflow.jobs.is_empty() {
        return Ok(());
    }
    let names = graph::names(workflow);
    let mut table = TextTable::new(&["REF", "ID", "QUEUE", "TYPE", "STATE", "AFTER"]);
    for job in &workflow.jobs {
        let after = job.after.iter().chain(&job.after_any).map(|id| *names.get(id.as_str()).unwrap_or(&id.as_str()));
        table.row(vec![
            job.reference.as_str().into(),
            job.id.as_str().into(),
            job.queue.as_str().into(),
            job.job_type.as_str().into(),
            CellValue::State(job.state),
            shortened(&after.collect::<Vec<_>>()).into(),
        ]);
    }
    context.output.table(&table)
}

/// Joins the first five names and says how many more there are.
pub(super) fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    match names.get(..SHOWN) {
        Some(first) if names.len() > SHOWN => format!("{} and {} more", first.join(" "), names.len() - SHOWN),
        Some(_) | None => names.join(" "),
    }
}
