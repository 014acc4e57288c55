//! Submits jobs from lines of JSON, in batches.

use std::collections::BTreeMap;
use std::io::BufRead;

use longshore::Client;
use longshore_api::job::{NewJob, Submitted};
use serde_json::value::RawValue;

use super::InputSource;
use crate::commands::parse::{self, counted};
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// Size at which a batch is sent, below the server's limit of one request.
const BATCH_BYTES: usize = 8 << 20;
/// Limit of a line, above the largest job.
const LINE_MAX: usize = 32 << 20;

pub(super) struct NdjsonSubmit {
    pub(super) client: Client,
    pub(super) queue: String,
    /// Values of fields that a line does not have.
    pub(super) defaults: NewJob,
    pub(super) batch: usize,
    pub(super) dry_run: bool,
}

/// Jobs of the next request, and their line numbers.
#[derive(Default)]
struct LineBatch {
    jobs: Vec<NewJob>,
    bytes: usize,
    first_line: u64,
    last_line: u64,
}

#[derive(Default)]
struct SubmitTotals {
    submitted: u64,
    duplicates: u64,
    last_line: u64,
}

impl NdjsonSubmit {
    pub(super) async fn run(self, context: &Context, source: InputSource) -> Result<(), CliError> {
        let InputSource { mut reader, length } = source;
        let bar = progress::bar(length, context.output.json);
        let defaults = fields(&self.defaults)?;
        let (mut batch, mut totals) = (LineBatch::default(), SubmitTotals::default());
        let (mut line, mut number) = (Vec::new(), 0_u64);
        loop {
            line.clear();
            let read = read_line(reader.as_mut(), &mut line).map_err(|failure| totals.with_progress(failure))?;
            if read == 0 {
                break;
            }
            number += 1;
            bar.inc(read as u64);
            if line.trim_ascii().is_empty() {
                continue;
            }
            if batch.jobs.len() >= self.batch || batch.bytes + line.len() > BATCH_BYTES && !batch.jobs.is_empty() {
                self.send(context, &mut batch, &mut totals).await?;
                bar.set_message(counted(totals.submitted, "job"));
            }
            let job = job(&line, &defaults)
                .map_err(|failure| totals.with_progress(failure.context(format_args!("line {number}"))))?;
            batch.add(job, line.len(), number);
        }
        self.send(context, &mut batch, &mut totals).await?;
        bar.finish_and_clear();
        self.print_totals(context, &totals)
    }

    fn print_totals(&self, context: &Context, totals: &SubmitTotals) -> Result<(), CliError> {
        let SubmitTotals { submitted, duplicates, .. } = totals;
        let (queue, jobs) = (&self.queue, counted(*submitted, "job"));
        if self.dry_run {
            context.output.info(&format!("{jobs} can be sent to queue \"{queue}\"; nothing was submitted"));
            return Ok(());
        }
        let repeated = if *duplicates > 0 { format!(", {duplicates} of them submitted before") } else { String::new() };
        context.output.info(&format!("{jobs} submitted to queue \"{queue}\"{repeated}"));
        Ok(())
    }

    async fn send(&self, context: &Context, batch: &mut LineBatch, totals: &mut SubmitTotals) -> Result<(), CliError> {
        let LineBatch { jobs, first_line, last_line, .. } = std::mem::take(batch);
        if jobs.is_empty() {
            return Ok(());
        }
        if self.dry_run {
            totals.submitted += jobs.len() as u64;
            return Ok(());
        }
        let submitted = self.client.submit_jobs(&self.queue, &jobs).await.map_err(|error| {
            let failure = CliError::from(error).context(format_args!("lines {first_line} to {last_line}"));
            totals.with_progress(failure)
        })?;
        totals.add(&submitted.jobs, last_line);
        for job in &submitted.jobs {
            if context.output.json {
                context.output.json_line(job)?;
            } else if !context.output.terminal {
                // On a terminal only the number of jobs is printed.
                context.output.line(&job.id)?;
            }
        }
        Ok(())
    }
}

impl LineBatch {
    fn add(&mut self, job: NewJob, bytes: usize, line: u64) {
        if self.jobs.is_empty() {
            self.first_line = line;
        }
        self.last_line = line;
        self.bytes += bytes;
        self.jobs.push(job);
    }
}

impl SubmitTotals {
    fn add(&mut self, jobs: &[Submitted], last_line: u64) {
        self.submitted += jobs.len() as u64;
        self.duplicates += jobs.iter().filter(|job| job.duplicate).count() as u64;
        self.last_line = last_line;
    }

    /// Adds to the hint where a repetition has to start.
    fn with_progress(&self, failure: CliError) -> CliError {
        let so_far = match self.last_line {
            0 => "no line was submitted".to_owned(),
            line => format!("lines up to {line} were submitted ({})", counted(self.submitted, "job")),
        };
        let hint = failure.hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
        failure.hint(format!("{so_far}{hint}"))
    }
}

/// Reads a line with its line break. Returns 0 at the end of the input.
fn read_line(reader: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<usize, CliError> {
    let mut limited = std::io::Read::take(reader, LINE_MAX as u64);
    let read = limited.read_until(b'\n', line).map_err(|error| CliError::failed(format!("cannot read: {error}")))?;
    if read == LINE_MAX {
        return Err(CliError::refused(format!("a line is longer than {LINE_MAX} bytes")));
    }
    Ok(read)
}

type RawFields = BTreeMap<String, Box<RawValue>>;

fn fields(defaults: &NewJob) -> Result<RawFields, CliError> {
    let text = serde_json::to_string(defaults);
    let mut fields = text.and_then(|text| serde_json::from_str::<RawFields>(&text));
    if let Ok(fields) = &mut fields
        && defaults.job_type.is_empty()
    {
        fields.remove("type");
    }
    fields.map_err(|error| CliError::failed(error.to_string()))
}

/// Parses a line and adds the defaults.
fn job(line: &[u8], defaults: &RawFields) -> Result<NewJob, CliError> {
    let text = std::str::from_utf8(line).map_err(|_| CliError::refused("not UTF-8"))?;
    let job = if defaults.is_empty() {
        serde_json::from_str(text)
    } else {
        serde_json::from_str::<RawFields>(text).and_then(|mut fields| {
            for (name, value) in defaults {
                // `run_at` and `delay` exclude each other.
                let conflicts = match name.as_str() {
                    "run_at" => fields.contains_key("delay"),
                    "delay" => fields.contains_key("run_at"),
                    _ => false,
                };
                if !conflicts && !fields.contains_key(name) {
                    fields.insert(name.clone(), value.clone());
                }
            }
            serde_json::from_str(&serde_json::to_string(&fields)?)
        })
    };
    job.map_err(|error| {
        let message = error.to_string();
        // The position inside the line is of no use: serde counts from the merged fields.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        let failure = CliError::refused(match error.classify() {
            serde_json::error::Category::Data => message.to_owned(),
            serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof
            | serde_json::error::Category::Io => format!("not JSON (column {})", error.column()),
        });
        match parse::suggest(message) {
            Some(suggestion) => failure.hint(suggestion),
            None => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, defaults: &NewJob) -> Result<NewJob, String> {
        job(line.as_bytes(), &fields(defaults).unwrap()).map_err(|failure| failure.message)
    }

    #[test]
    fn flags_are_defaults_of_a_line() {
        let defaults =
            NewJob { job_type: "a".to_owned(), delay: Some(longshore_api::Duration(5_000)), ..NewJob::default() };
        let plain = read(r#"{"payload":1.10}"#, &defaults).unwrap();
        assert_eq!((plain.job_type.as_str(), plain.payload.unwrap().get()), ("a", "1.10"));
        assert!(plain.delay.is_some());
        let own = read(r#"{"type":"b","run_at":"2026-11-15T18:00:00Z"}"#, &defaults).unwrap();
        assert_eq!((own.job_type.as_str(), own.delay), ("b", None));
    }

    #[test]
    fn an_invalid_line_is_refused() {
        let none = NewJob::default();
        assert_eq!(read("{", &none).unwrap_err(), "not JSON (column 1)");
        assert_eq!(read("{}", &none).unwrap_err(), "missing field `type`");
        assert!(read(r#"{"typ":"a"}"#, &none).unwrap_err().starts_with("unknown field `typ`"));
    }
}
