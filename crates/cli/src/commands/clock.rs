//! `longshore clock`

use clap::{Args, Subcommand};
use longshore_api::system::Clock;
use longshore_api::{Duration, ErrorCode};

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum ClockCommand {
    /// Print the time of the server
    Get,
    Advance(AdvanceClock),
}

/// Advance the clock of a server with --virtual-clock, and print the new time.
#[derive(Debug, Args)]
#[command(after_help = "\
When the command ends, all timers up to the new time have fired.

Examples:
  longshore serve --store memory: --virtual-clock
  longshore clock advance 1h30m")]
pub(crate) struct AdvanceClock {
    /// Duration, such as 500ms, 10m or 1d12h
    #[arg(value_name = "DURATION")]
    by: Duration,
}

impl ClockCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let clock = context.call(async {
            match &self {
                // A server in real time has no clock route; `/v1/info` has the time of any server.
                Self::Get => Ok(Clock { now: client.info().await?.now }),
                Self::Advance(AdvanceClock { by }) => client.advance(*by).await.map_err(explain),
            }
        })?;
        if context.output.json {
            return context.output.json(&clock);
        }
        context.output.line(&clock.now.to_string())
    }
}

/// Adds a hint for servers in real time, which do not have the route.
fn explain(error: longshore::Error) -> CliError {
    let real_time = error.code() == Some(ErrorCode::NotFound);
    let failure = CliError::from(error);
    if real_time { failure.hint("only a server with --virtual-clock can advance its time") } else { failure }
}
