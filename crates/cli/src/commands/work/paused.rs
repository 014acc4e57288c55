//! Finds paused queues with jobs, for `--until-empty`.

use longshore::{Client, Error, JobListQuery};
use longshore_api::enums::State;

use crate::terminal::error::CliError;

/// Returns the first paused queue with ready jobs; with `types`, only jobs of these types count.
pub(super) async fn paused_with_work(
    client: &Client,
    queues: &[String],
    types: &[String],
) -> Result<Option<String>, Error> {
    for name in queues {
        let queue = match client.queue(name).await {
            Ok(queue) => queue,
            // The queue does not exist, or the worker has no access to it.
            Err(Error::Refused(problem)) if problem.status < 500 => continue,
            Err(error) => return Err(error),
        };
        let ready = queue.counts.get(&State::Scheduled).copied().unwrap_or(0);
        if queue.paused && ready > 0 && has_ready_job(client, name, types).await? {
            return Ok(Some(name.clone()));
        }
    }
    Ok(None)
}

async fn has_ready_job(client: &Client, queue: &str, types: &[String]) -> Result<bool, Error> {
    for job_type in types {
        let filter = JobListQuery {
            queue: Some(queue.to_owned()),
            states: vec![State::Scheduled],
            job_type: Some(job_type.clone()),
            limit: Some(1),
            ..JobListQuery::default()
        };
        if !client.jobs(&filter).await?.jobs.is_empty() {
            return Ok(true);
        }
    }
    Ok(types.is_empty())
}

pub(super) fn paused_error(queue: &str) -> CliError {
    CliError::refused(format!("queue \"{queue}\" is paused and still has jobs"))
        .hint(format!("`longshore queues resume {queue}` resumes claims"))
}
