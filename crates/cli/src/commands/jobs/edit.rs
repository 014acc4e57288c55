//! `longshore jobs edit`

use clap::Args;
use longshore_api::admin::{Patch, PatchRetry};
use longshore_api::enums::Priority;
use longshore_api::tags::{TagMap, Tags};

use super::get;
use crate::commands::parse;
use crate::commands::submit::tags;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Change fields of a job. Fields that are not given keep their values.
#[derive(Debug, Args)]
#[command(after_help = "\
Type and priority can change until the job runs. The payload never changes.

Examples:
  longshore jobs edit 0b6f… --priority high
  longshore jobs edit 0b6f… --tag tenant=acme --tag urgent
  longshore jobs edit 0b6f… --no-callback-url")]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true).args([
    "priority", "job_type", "tags", "no_tags", "correlation_id", "no_correlation_id", "callback_url",
    "no_callback_url", "retry_limit",
])))]
pub(crate) struct EditJob {
    /// The job's id
    id: String,
    /// critical, high, normal, low or bulk
    #[arg(long, value_parser = parse::priority)]
    priority: Option<Priority>,
    /// Type of the job, such as email.send
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Tag: KEY or KEY=VALUE; may be repeated; replaces all tags of the job
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Remove all tags
    #[arg(long, conflicts_with = "tags")]
    no_tags: bool,
    /// Id of your own that groups related jobs
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Remove the correlation id
    #[arg(long, conflicts_with = "correlation_id")]
    no_correlation_id: bool,
    /// URL that is called when the job has ended
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
    /// Remove the callback URL
    #[arg(long, conflicts_with = "callback_url")]
    no_callback_url: bool,
    /// Limit of retries
    #[arg(long, value_name = "N")]
    retry_limit: Option<u32>,
}

impl EditJob {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        // `Some(None)` is null on the wire, which removes the value.
        let changed = |value: Option<String>, remove: bool| value.map(Some).or_else(|| remove.then_some(None));
        let no_tags = self.no_tags.then(|| Tags::Map(TagMap::new()));
        let patch = Patch {
            priority: self.priority,
            job_type: self.job_type,
            tags: tags(&self.tags)?.or(no_tags),
            correlation_id: changed(self.correlation_id, self.no_correlation_id),
            callback_url: changed(self.callback_url, self.no_callback_url),
            retry: self.retry_limit.map(|limit| PatchRetry { limit: Some(limit) }),
        };
        let job = context.call(async { Ok(client.patch(&self.id, &patch).await?) })?;
        get::show(context, &job)
    }
}
