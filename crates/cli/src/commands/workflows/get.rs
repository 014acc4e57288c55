//! `longshore workflows get`

use clap::Args;
use longshore_api::workflow::WorkflowWithJobs;

use super::{facts, graph};
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{Table, Value};

/// Members that one page has.
const PAGE: u64 = 1_000;

/// Show one workflow and its jobs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore workflows get 0b6f… --graph
  longshore workflows get 0b6f… --dot | dot -Tsvg > flow.svg
  longshore workflows get 0b6f… --mermaid >> README.md")]
pub(crate) struct Get {
    /// The workflow's id
    id: String,
    /// Draw who waits for whom
    #[arg(long, conflicts_with_all = ["dot", "mermaid"])]
    graph: bool,
    /// The same for Graphviz
    #[arg(long, conflicts_with = "mermaid")]
    dot: bool,
    /// The same for Mermaid
    #[arg(long)]
    mermaid: bool,
}

impl Get {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let workflow = context.call(async {
            let mut whole = client.workflow(&self.id, Some(PAGE), None).await?;
            while let Some(cursor) = whole.next.take() {
                let page = client.workflow(&self.id, Some(PAGE), Some(&cursor)).await?;
                whole.jobs.extend(page.jobs);
                whole.next = page.next;
            }
            Ok(whole)
        })?;
        if self.dot {
            return context.screen.line(&graph::dot(&workflow));
        }
        if self.mermaid {
            return context.screen.line(&graph::mermaid(&workflow));
        }
        if context.screen.json {
            return context.screen.json(&workflow);
        }
        if self.graph {
            context.screen.table(&facts(&workflow.workflow))?;
            return context.screen.table(&graph::tree(&workflow));
        }
        context.screen.table(&facts(&workflow.workflow))?;
        members(context, &workflow)
    }
}

fn members(context: &Context, workflow: &WorkflowWithJobs) -> Result<(), CliError> {
    if workflow.jobs.is_empty() {
        return Ok(());
    }
    let names = graph::names(workflow);
    let mut table = Table::new(&["REF", "ID", "QUEUE", "TYPE", "STATE", "AFTER"]);
    for job in &workflow.jobs {
        let after = job.after.iter().chain(&job.after_any).map(|id| *names.get(id.as_str()).unwrap_or(&id.as_str()));
        table.row(vec![
            job.reference.as_str().into(),
            job.id.as_str().into(),
            job.queue.as_str().into(),
            job.job_type.as_str().into(),
            Value::State(job.state),
            shortened(&after.collect::<Vec<_>>()).into(),
        ]);
    }
    context.screen.table(&table)
}

/// Some names, and how many more there are.
pub(super) fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    match names.get(..SHOWN) {
        Some(first) if names.len() > SHOWN => format!("{} and {} more", first.join(" "), names.len() - SHOWN),
        Some(_) | None => names.join(" "),
    }
}
