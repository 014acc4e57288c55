//! `longshore health`

use clap::Args;
use longshore::Error;
use longshore_api::Duration;
use longshore_api::system::Health;
use serde::Serialize;

use crate::context::Context;
use crate::terminal::error::CliError;

/// Check whether a server is live and ready. Exit code 0: both, 1: not.
#[derive(Debug, Args)]
#[command(after_help = "\
Requests /livez and /readyz at the same time, and ends within --timeout. A server that does not
respond is not live: exit code 1, as container health checks expect.

Examples:
  longshore health
  longshore health --server http://10.0.0.5:7070 --timeout 500ms
  longshore health --json")]
pub(crate) struct CheckHealth {
    /// Longest time to wait for the responses
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    timeout: Duration,
}

#[derive(Debug, Serialize)]
struct HealthJson<'a> {
    server: &'a str,
    /// The process responds.
    live: bool,
    /// The store responds, and the server is not shutting down.
    ready: bool,
    /// Why the server is not live or not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl CheckHealth {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client_with_timeout(self.timeout.as_std())?;
        let (live, ready) = context.call(async { Ok(tokio::join!(client.livez(), client.readyz())) })?;
        let report = report(&context.server, &live, &ready);
        if context.output.json {
            context.output.json(&report)?;
        }
        let Some(detail) = &report.detail else {
            let line = format!("{} is live and ready", report.server);
            return if context.output.json { Ok(()) } else { context.output.line(&line) };
        };
        let verdict = if report.live { "is live and not ready" } else { "is not live" };
        let hint = if report.live {
            "see the server's log; a server that shuts down is not ready"
        } else {
            "start a server with `longshore serve`, or select another one with --server URL or LONGSHORE_SERVER"
        };
        Err(CliError::refused(format!("{} {verdict}: {detail}", report.server)).hint(hint))
    }
}

fn report<'a>(server: &'a str, live: &Result<Health, Error>, ready: &Result<Health, Error>) -> HealthJson<'a> {
    let detail = live.as_ref().err().or(ready.as_ref().err()).map(ToString::to_string);
    HealthJson { server, live: live.is_ok(), ready: live.is_ok() && ready.is_ok(), detail }
}
