//! `longshore jobs payload`

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::terminal::error::CliError;

/// Print the payload of a job, byte for byte as it was submitted.
#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal, control characters are printed as escapes.

Examples:
  longshore jobs payload 0b6f…
  longshore jobs payload 0b6f… -o image.png")]
pub(crate) struct ShowPayload {
    /// The job's id
    id: String,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct PayloadJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<serde_json::value::RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl ShowPayload {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        if context.output.json {
            let job = context.call(async { Ok(client.job_with_payload(&self.id).await?) })?;
            return context.output.json(&PayloadJson { payload: job.payload, payload_base64: job.payload_base64 });
        }
        let payload = context.call(async { Ok(client.payload(&self.id).await?) })?;
        if let Some(file) = &self.output {
            let written = std::fs::write(file, &payload.bytes);
            return written.map_err(|error| CliError::failed(format!("cannot write {}: {error}", file.display())));
        }
        if context.output.terminal {
            return context.output.line(&String::from_utf8_lossy(&payload.bytes));
        }
        context.output.bytes(&payload.bytes)
    }
}
