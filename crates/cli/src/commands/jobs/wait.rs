//! `longshore jobs wait`

use clap::Args;
use longshore_api::Duration;
use longshore_api::enums::State;
use longshore_api::job::Job;
use longshore_client::Client;
use longshore_store::clock::monotonic;

use super::get;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Wait until a job has ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: it completed. 1: it ended otherwise. 2: it has not ended in time.")]
pub(crate) struct Wait {
    /// The job's id
    id: String,
    /// At most this long, as 30s or 10m; for ever unless given
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Duration>,
}

/// The longest that the server waits in one call.
const ONE_CALL: Duration = Duration::from_secs(30);

impl Wait {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let job = context.call(ended(&client, &self.id, self.timeout))?;
        get::show(context, &job)?;
        match job.state {
            State::Completed => Ok(()),
            State::Failed | State::DeadLetter | State::Cancelled => {
                Err(CliError::refused(format!("the job ended as {}", job.state)))
            }
            State::Pending | State::Scheduled | State::Delayed | State::Running | State::Retrying => {
                let waited = self.timeout.unwrap_or_default();
                Err(CliError::failed(format!("the job has not ended within {waited}: it is {}", job.state))
                    .hint(format!("`longshore jobs why {}` says what it waits for", self.id)))
            }
        }
    }
}

async fn ended(client: &Client, id: &str, timeout: Option<Duration>) -> Result<Job, CliError> {
    let started = monotonic();
    let left = || {
        let passed = u64::try_from(monotonic().saturating_sub(started).as_millis()).unwrap_or(u64::MAX);
        timeout.map_or(ONE_CALL, |timeout| Duration(timeout.0.saturating_sub(passed)))
    };
    loop {
        let waited = client.wait(id, left().min(ONE_CALL)).await?;
        // A server that is about to stop answers early.
        if waited.ended || left().0 == 0 {
            return Ok(waited.job);
        }
    }
}
