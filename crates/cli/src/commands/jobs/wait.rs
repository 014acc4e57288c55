//! `longshore jobs wait`

use clap::Args;
use longshore::Client;
use longshore::monotonic;
use longshore_api::Duration;
use longshore_api::enums::State;
use longshore_api::job::Job;

use super::get;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Wait until a job has ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: the job completed. 1: it ended in another state. 2: it has not ended in time.

Example:
  longshore jobs wait 0b6f… --timeout 10m")]
pub(crate) struct WaitForJob {
    /// The job's id
    id: String,
    /// Longest time to wait, such as 30s or 10m [default: no limit]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Duration>,
}

/// Time that the server waits in one request.
const WAIT_PER_REQUEST: Duration = Duration::from_secs(30);

impl WaitForJob {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let job = context.call(wait_for_end(&client, &self.id, self.timeout))?;
        get::show(context, &job)?;
        match job.state {
            State::Completed => Ok(()),
            State::Failed | State::DeadLetter | State::Cancelled => {
                Err(CliError::refused(format!("the job ended as {}", job.state)))
            }
            State::Pending | State::Scheduled | State::Delayed | State::Running | State::Retrying => {
                let timeout = self.timeout.unwrap_or_default();
                Err(CliError::failed(format!("the job has not ended within {timeout}: it is {}", job.state))
                    .hint(format!("`longshore jobs why {}` says what it waits for", self.id)))
            }
        }
    }
}

/// Returns the job when it has ended, or as it is after the timeout.
async fn wait_for_end(client: &Client, id: &str, timeout: Option<Duration>) -> Result<Job, CliError> {
    let started = monotonic();
    let left = || {
        let passed = u64::try_from(monotonic().saturating_sub(started).as_millis()).unwrap_or(u64::MAX);
        timeout.map_or(WAIT_PER_REQUEST, |timeout| Duration(timeout.0.saturating_sub(passed)))
    };
    loop {
        let waited = client.wait(id, left().min(WAIT_PER_REQUEST)).await?;
        // A server that shuts down responds early.
        if waited.ended || left().0 == 0 {
            return Ok(waited.job);
        }
    }
}
