//! Many jobs from lines of JSON, in batches.

use std::collections::BTreeMap;
use std::io::BufRead;

use longshore_api::job::{NewJob, Submitted};
use longshore_client::Client;
use serde_json::value::RawValue;

use super::Source;
use crate::commands::parse::{self, counted};
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// A batch goes out when it has grown to this, well below what the server takes in one request.
const BATCH_BYTES: usize = 8 << 20;
/// A line longer than any job can be.
const LINE_MAX: usize = 32 << 20;

pub(super) struct NdjsonSubmit {
    pub(super) client: Client,
    pub(super) queue: String,
    /// For what a line leaves out.
    pub(super) defaults: NewJob,
    pub(super) batch: usize,
    pub(super) dry_run: bool,
}

/// Jobs on their way, and the lines they came from.
#[derive(Default)]
struct Batch {
    jobs: Vec<NewJob>,
    bytes: usize,
    first_line: u64,
    last_line: u64,
}

#[derive(Default)]
struct Tally {
    submitted: u64,
    duplicates: u64,
    last_line: u64,
}

impl NdjsonSubmit {
    pub(super) async fn run(self, context: &Context, source: Source) -> Result<(), CliError> {
        let Source { mut reader, length } = source;
        let bar = progress::bar(length, context.screen.json);
        let defaults = fields(&self.defaults)?;
        let (mut batch, mut tally) = (Batch::default(), Tally::default());
        let (mut line, mut number) = (Vec::new(), 0_u64);
        loop {
            line.clear();
            let read = read_line(reader.as_mut(), &mut line).map_err(|failure| tally.with_progress(failure))?;
            if read == 0 {
                break;
            }
            number += 1;
            bar.inc(read as u64);
            if line.trim_ascii().is_empty() {
                continue;
            }
            if batch.jobs.len() >= self.batch || batch.bytes + line.len() > BATCH_BYTES && !batch.jobs.is_empty() {
                self.send(context, &mut batch, &mut tally).await?;
                bar.set_message(counted(tally.submitted, "job"));
            }
            let job = job(&line, &defaults)
                .map_err(|failure| tally.with_progress(failure.context(format_args!("line {number}"))))?;
            batch.add(job, line.len(), number);
        }
        self.send(context, &mut batch, &mut tally).await?;
        bar.finish_and_clear();
        self.tell(context, &tally)
    }

    fn tell(&self, context: &Context, tally: &Tally) -> Result<(), CliError> {
        let Tally { submitted, duplicates, .. } = tally;
        let (queue, jobs) = (&self.queue, counted(*submitted, "job"));
        if self.dry_run {
            context.screen.info(&format!("{jobs} can be sent to queue \"{queue}\"; nothing was submitted"));
            return Ok(());
        }
        let repeated = if *duplicates > 0 { format!(", {duplicates} of them submitted before") } else { String::new() };
        context.screen.info(&format!("{jobs} submitted to queue \"{queue}\"{repeated}"));
        Ok(())
    }

    async fn send(&self, context: &Context, batch: &mut Batch, tally: &mut Tally) -> Result<(), CliError> {
        let Batch { jobs, first_line, last_line, .. } = std::mem::take(batch);
        if jobs.is_empty() {
            return Ok(());
        }
        if self.dry_run {
            tally.submitted += jobs.len() as u64;
            return Ok(());
        }
        let submitted = self.client.submit_batch(&self.queue, &jobs).await.map_err(|error| {
            let failure = CliError::from(error).context(format_args!("lines {first_line} to {last_line}"));
            tally.with_progress(failure)
        })?;
        tally.add(&submitted.jobs, last_line);
        for job in &submitted.jobs {
            if context.screen.json {
                context.screen.json_line(job)?;
            } else if !context.screen.terminal {
                // Thousands of ids are for programs; a person is told how many.
                context.screen.line(&job.id)?;
            }
        }
        Ok(())
    }
}

impl Batch {
    fn add(&mut self, job: NewJob, bytes: usize, line: u64) {
        if self.jobs.is_empty() {
            self.first_line = line;
        }
        self.last_line = line;
        self.bytes += bytes;
        self.jobs.push(job);
    }
}

impl Tally {
    fn add(&mut self, jobs: &[Submitted], last_line: u64) {
        self.submitted += jobs.len() as u64;
        self.duplicates += jobs.iter().filter(|job| job.duplicate).count() as u64;
        self.last_line = last_line;
    }

    /// Whoever has to go on from here must know where that is.
    fn with_progress(&self, failure: CliError) -> CliError {
        let so_far = match self.last_line {
            0 => "no line before was submitted".to_owned(),
            line => format!("lines up to {line} were submitted ({})", counted(self.submitted, "job")),
        };
        let hint = failure.hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
        failure.hint(format!("{so_far}{hint}"))
    }
}

/// A line with its end; 0 when there is none.
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

/// What a line says, and for the rest the defaults.
fn job(line: &[u8], defaults: &RawFields) -> Result<NewJob, CliError> {
    let text = std::str::from_utf8(line).map_err(|_| CliError::refused("not UTF-8"))?;
    let job = if defaults.is_empty() {
        serde_json::from_str(text)
    } else {
        serde_json::from_str::<RawFields>(text).and_then(|mut said| {
            for (name, value) in defaults {
                // Two ways to say when: a line that uses one is not given the other.
                let clash = match name.as_str() {
                    "run_at" => said.contains_key("delay"),
                    "delay" => said.contains_key("run_at"),
                    _ => false,
                };
                if !clash && !said.contains_key(name) {
                    said.insert(name.clone(), value.clone());
                }
            }
            serde_json::from_str(&serde_json::to_string(&said)?)
        })
    };
    job.map_err(|error| {
        let complaint = error.to_string();
        let complaint = complaint.rsplit_once(" at line ").map_or(complaint.as_str(), |(complaint, _)| complaint);
        let failure = CliError::refused(match error.classify() {
            serde_json::error::Category::Data => complaint.to_owned(),
            serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof
            | serde_json::error::Category::Io => format!("not JSON (column {})", error.column()),
        });
        match parse::guess(complaint) {
            Some(guess) => failure.hint(guess),
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
    fn flags_fill_in_what_a_line_leaves_out() {
        let defaults =
            NewJob { job_type: "a".to_owned(), delay: Some(longshore_api::Duration(5_000)), ..NewJob::default() };
        let plain = read(r#"{"payload":1.10}"#, &defaults).unwrap();
        assert_eq!((plain.job_type.as_str(), plain.payload.unwrap().get()), ("a", "1.10"));
        assert!(plain.delay.is_some());
        let own = read(r#"{"type":"b","run_at":"2026-11-15T18:00:00Z"}"#, &defaults).unwrap();
        assert_eq!((own.job_type.as_str(), own.delay), ("b", None));
    }

    #[test]
    fn a_wrong_line_is_refused() {
        let none = NewJob::default();
        assert_eq!(read("{", &none).unwrap_err(), "not JSON (column 1)");
        assert_eq!(read("{}", &none).unwrap_err(), "missing field `type`");
        assert!(read(r#"{"typ":"a"}"#, &none).unwrap_err().starts_with("unknown field `typ`"));
    }
}
