//! `longshore health`

use clap::Args;
use longshore_api::Duration;
use longshore_api::system::Health as Answer;
use longshore_client::Error;
use serde::Serialize;

use crate::context::Context;
use crate::terminal::error::CliError;

/// Ask a server whether it is alive and takes work. Exit code 0: both, 1: not.
#[derive(Debug, Args)]
#[command(after_help = "\
It asks /livez and /readyz at the same time, and ends within --timeout. No answer counts as not
alive, with exit code 1: that is what health checks of containers expect.

Examples:
  longshore health
  longshore health --server http://10.0.0.5:7070 --timeout 500ms
  longshore health --json")]
pub(crate) struct Health {
    /// The longest to wait for the answers
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    timeout: Duration,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    server: &'a str,
    /// The process answers.
    live: bool,
    /// Its store answers, and it is not stopping.
    ready: bool,
    /// Why it is not live, or not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Health {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client_with_timeout(self.timeout.as_std())?;
        let (live, ready) = context.call(async { Ok(tokio::join!(client.livez(), client.readyz())) })?;
        let report = report(&context.server, &live, &ready);
        if context.screen.json {
            context.screen.json(&report)?;
        }
        let Some(detail) = &report.detail else {
            let line = format!("{} is live and ready", report.server);
            return if context.screen.json { Ok(()) } else { context.screen.line(&line) };
        };
        let word = if report.live { "is live and not ready" } else { "is not live" };
        let hint = if report.live {
            "the server's log says more; a server that stops is not ready either"
        } else {
            "start a server with `longshore serve`, or name another one with --server URL or LONGSHORE_SERVER"
        };
        Err(CliError::refused(format!("{} {word}: {detail}", report.server)).hint(hint))
    }
}

fn report<'a>(server: &'a str, live: &Result<Answer, Error>, ready: &Result<Answer, Error>) -> Report<'a> {
    let detail = live.as_ref().err().or(ready.as_ref().err()).map(ToString::to_string);
    Report { server, live: live.is_ok(), ready: live.is_ok() && ready.is_ok(), detail }
}
