//! `longshore clock`

use clap::{Args, Subcommand};
use longshore_api::system::Clock as Answer;
use longshore_api::{Duration, ErrorCode};

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum Clock {
    /// Print the server's time
    Get,
    Advance(Advance),
}

/// Advance the time of a server that runs with --virtual-clock, and print the new time.
#[derive(Debug, Args)]
#[command(after_help = "\
Everything that falls due on the way has happened when the command ends.

Examples:
  longshore serve --store memory: --virtual-clock
  longshore clock advance 1h30m")]
pub(crate) struct Advance {
    /// By how much, as 500ms, 10m or 1d12h
    #[arg(value_name = "DURATION")]
    by: Duration,
}

impl Clock {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let clock = context.call(async {
            match &self {
                // Servers in real time have no route for the clock; all of them tell their time here.
                Self::Get => Ok(Answer { now: client.info().await?.now }),
                Self::Advance(Advance { by }) => client.advance(*by).await.map_err(explain),
            }
        })?;
        if context.screen.json {
            return context.screen.json(&clock);
        }
        context.screen.line(&clock.now.to_string())
    }
}

/// A server in real time does not have this route.
fn explain(error: longshore_client::Error) -> CliError {
    let real_time = error.code() == Some(ErrorCode::NotFound);
    let failure = CliError::from(error);
    if real_time {
        failure.hint("only a server that was started with --virtual-clock can advance its time")
    } else {
        failure
    }
}
