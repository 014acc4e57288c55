//! Whether a paused queue keeps jobs from a worker that runs until nothing is left.

use longshore_api::enums::State;
use longshore_client::{Client, Error, JobFilter};

use crate::terminal::error::CliError;

/// The first of these queues that is paused and has jobs in line, of these types where some are given.
pub(super) async fn paused_with_work(
    client: &Client,
    queues: &[String],
    types: &[String],
) -> Result<Option<String>, Error> {
    for name in queues {
        let queue = match client.queue(name).await {
            Ok(queue) => queue,
            // The queue does not exist, or this worker may not look at it: then only the claim can tell.
            Err(Error::Refused(problem)) if problem.status < 500 => continue,
            Err(error) => return Err(error),
        };
        let in_line = queue.counts.get(&State::Scheduled).copied().unwrap_or(0);
        if queue.paused && in_line > 0 && has_type(client, name, types).await? {
            return Ok(Some(name.clone()));
        }
    }
    Ok(None)
}

async fn has_type(client: &Client, queue: &str, types: &[String]) -> Result<bool, Error> {
    for job_type in types {
        let filter = JobFilter {
            queue: Some(queue.to_owned()),
            states: vec![State::Scheduled],
            job_type: Some(job_type.clone()),
            limit: Some(1),
            ..JobFilter::default()
        };
        if !client.jobs(&filter).await?.jobs.is_empty() {
            return Ok(true);
        }
    }
    Ok(types.is_empty())
}

pub(super) fn paused(queue: &str) -> CliError {
    CliError::refused(format!("queue \"{queue}\" is paused and holds jobs: the worker ends without them"))
        .hint(format!("`longshore queues resume {queue}` lets claims go on"))
}
