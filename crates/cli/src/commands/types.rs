//! `longshore types`

use clap::Args;
use longshore_api::Duration;
use longshore_api::job_type::{JobTypeDetail, JobTypeStats};
use longshore_api::system::Quantiles;

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

/// Show how long the types of jobs wait and run, and how many attempts fail
#[derive(Debug, Args)]
#[command(after_help = "\
Figures begin with the server and are kept for 24 hours. With a type: its errors, its workers and
their new versions too.

Examples:
  longshore types
  longshore types email.send --window 24h
  longshore types email.send --json | jq '.errors'")]
pub(crate) struct ShowTypes {
    /// Show this type in detail
    #[arg(value_name = "TYPE")]
    name: Option<String>,
    /// How far back the figures reach: 30s to 24h
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    window: Duration,
}

impl ShowTypes {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let Some(name) = self.name else {
            let list = context.call(async { Ok(client.job_types(self.window).await?) })?;
            return if context.output.json {
                context.output.json(&list)
            } else if list.types.is_empty() {
                context.output.info("no job of any type in this window");
                Ok(())
            } else {
                context.output.table(&table(&list.types))
            };
        };
        let detail = context.call(async { Ok(client.job_type(&name, self.window).await?) })?;
        if context.output.json {
            return context.output.json(&detail);
        }
        context.output.table(&table(std::slice::from_ref(&detail.stats)))?;
        show_detail(context, &detail)
    }
}

fn show_detail(context: &Context, detail: &JobTypeDetail) -> Result<(), CliError> {
    if !detail.errors.is_empty() {
        let mut errors = TextTable::new(&["ERROR", "JOBS", "NEWEST", "MESSAGE"]);
        for own in &detail.errors {
            let code = own.error.code.clone().unwrap_or_else(|| own.error.category.to_string());
            errors.row(vec![
                code.into(),
                own.count.to_string().into(),
                own.example.clone().into(),
                own.error.message.clone().into(),
            ]);
        }
        context.output.table(&errors)?;
    }
    for deploy in &detail.deploys {
        let text =
            format!("{}: version {} in {}, first claim by {}", deploy.at, deploy.version, deploy.queue, deploy.worker);
        context.output.info(&text);
    }
    Ok(())
}

fn table(types: &[JobTypeStats]) -> TextTable {
    let mut table = TextTable::new(&["TYPE", "QUEUES", "COMPLETED", "FAILED", "WAIT p50", "p95", "RUN p50", "p95"]);
    for own in types {
        let [wait, run] = [own.wait, own.run].map(quantiles);
        let [wait_p50, wait_p95] = wait;
        let [run_p50, run_p95] = run;
        table.row(vec![
            own.job_type.clone().into(),
            own.queues.join(",").into(),
            own.completed.to_string().into(),
            own.failed.to_string().into(),
            wait_p50.into(),
            wait_p95.into(),
            run_p50.into(),
            run_p95.into(),
        ]);
    }
    table
}

/// Formats the median and the 95 % quantile, in seconds.
fn quantiles(quantiles: Option<Quantiles>) -> [String; 2] {
    let seconds = |value: f64| format!("{value:.3}s");
    quantiles.map_or_else(Default::default, |own| [seconds(own.p50), seconds(own.p95)])
}
