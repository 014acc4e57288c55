//! `longshore queues pause`, `longshore queues resume`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct QueueArg {
    /// The queue's name
    name: String,
}

impl QueueArg {
    pub(super) fn pause(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let queue = context.call(async { Ok(client.pause_queue(&self.name).await?) })?;
        if context.output.json {
            return context.output.json(&queue);
        }
        context.output.line(&format!("queue \"{}\" is paused: claims get no jobs, submissions continue", self.name))
    }

    pub(super) fn resume(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let queue = context.call(async { Ok(client.resume_queue(&self.name).await?) })?;
        if context.output.json {
            return context.output.json(&queue);
        }
        context.output.line(&format!("queue \"{}\" is resumed", self.name))
    }
}
