//! `longshore jobs payload`

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;

/// Print a job's payload, byte for byte as it was handed in.
#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal, control characters in it are shown and not obeyed.")]
pub(crate) struct Payload {
    /// The job's id
    id: String,
    /// Write it to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<serde_json::value::RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Payload {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        if context.screen.json {
            let job = context.call(async { Ok(client.job_with_payload(&self.id).await?) })?;
            return context.screen.json(&Shown { payload: job.payload, payload_base64: job.payload_base64 });
        }
        let payload = context.call(async { Ok(client.payload(&self.id).await?) })?;
        if let Some(file) = &self.output {
            let written = std::fs::write(file, &payload.bytes);
            return written.map_err(|error| CliError::failed(format!("cannot write {}: {error}", file.display())));
        }
        if context.screen.terminal {
            return context.screen.line(&String::from_utf8_lossy(&payload.bytes));
        }
        context.screen.bytes(&payload.bytes)
    }
}
