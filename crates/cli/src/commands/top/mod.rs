//! `longshore top`: a server, seen live.
//!
//! - `snapshot.rs`: what is asked of the server
//! - `columns.rs`: which columns fit into a width
//! - `rates.rs`: rates per second, and the window that they look back
//! - `plain.rs`: one look, as tables or JSON
//! - `live.rs`: the terminal's view, and its keys

mod columns;
mod live;
mod plain;
mod rates;
mod snapshot;

use clap::Args;
use longshore_api::Duration;

use self::snapshot::Snapshot;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Watch a server live: queues, counts, rates, workers. q ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
OLDEST is how long the first job in line has been there. Rates are jobs per second; a line above
the table names the time that they look back. A narrow terminal shows fewer columns, the most
important ones; without a terminal --once shows all.

Examples:
  longshore top
  longshore top --interval 5s
  longshore top --once
  longshore top --once --json")]
pub(crate) struct Top {
    /// Between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: Duration,
    /// One look as plain tables; also where standard output is no terminal
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        // Told before the screen is cleared: a wrong address is no view.
        let first = context.call(async { Ok(Snapshot::take(&client).await?) })?;
        if self.once || context.screen.json || !context.screen.terminal {
            return plain::show(context, &first);
        }
        live::run(context, client, first, self.interval.as_std().max(std::time::Duration::from_millis(100)))
    }
}
