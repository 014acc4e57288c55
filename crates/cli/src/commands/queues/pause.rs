//! `longshore queues pause`, `longshore queues resume`

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The queue's name
    name: String,
}

impl Name {
    pub(super) fn pause(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let queue = context.call(async { Ok(client.pause_queue(&self.name).await?) })?;
        if context.screen.json {
            return context.screen.json(&queue);
        }
        context.screen.line(&format!("queue \"{}\" is paused: claims return nothing, submissions go on", self.name))
    }

    pub(super) fn resume(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let queue = context.call(async { Ok(client.resume_queue(&self.name).await?) })?;
        if context.screen.json {
            return context.screen.json(&queue);
        }
        context.screen.line(&format!("queue \"{}\" goes on", self.name))
    }
}
