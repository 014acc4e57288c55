//! `longshore submit`: one job from flags, or many from lines of JSON.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use longshore_api::enums::Priority;
use longshore_api::job::NewJob;
use longshore_api::settings::{Retention, Retry};
use longshore_api::tags::{TagMap, Tags};
use longshore_api::{Duration, Time};
use serde::de::DeserializeOwned;

use super::parse;
use crate::context::Context;
use crate::terminal::error::CliError;

mod ndjson;

/// Submit one job from flags, or many from a file with one JSON object per line.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the id of the job when it is stored.

Examples:
  longshore submit -t email.send -p '{\"to\":\"ann\"}'
  longshore submit -q reports -t report.build --payload-file order.json --delay 10m
  date | longshore submit -t log.line --payload-file - --binary
  longshore submit -q reports --ndjson jobs.ndjson
  generate | longshore submit -t email.send --ndjson -

A line for --ndjson is a job as in the API:
  {\"type\":\"email.send\",\"payload\":{\"to\":\"ann\"},\"priority\":\"high\"}
Flags are defaults for fields that a line does not have. Each batch of lines is stored as a whole
or not at all. \"#ref\" names a job of the same batch.")]
pub(crate) struct SubmitJobs {
    /// Queue of the jobs
    #[arg(short, long, default_value = "default")]
    queue: String,
    /// Type of the job, such as email.send
    #[arg(short = 't', long = "type", value_name = "TYPE", required_unless_present = "ndjson")]
    job_type: Option<String>,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    fields: JobFields,
    /// File with one JSON object per line, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "payload_file"], help_heading = "Many jobs")]
    ndjson: Option<PathBuf>,
    /// Jobs per batch
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000),
        help_heading = "Many jobs"
    )]
    batch: u64,
    /// Read and check all input, and submit nothing
    #[arg(long, help_heading = "Many jobs")]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct PayloadArgs {
    /// Payload as JSON, - for standard input
    #[arg(short, long, value_name = "JSON")]
    payload: Option<String>,
    /// File with the payload, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    payload_file: Option<PathBuf>,
    /// Submit the payload as bytes instead of JSON
    #[arg(long, conflicts_with = "ndjson")]
    binary: bool,
}

/// Fields of a job besides type and payload.
#[derive(Debug, Args)]
#[command(next_help_heading = "JobFields of the job")]
struct JobFields {
    /// critical, high, normal, low or bulk
    #[arg(long, value_parser = parse::priority)]
    priority: Option<Priority>,
    /// Run not before this time, such as 2026-11-15T18:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    run_at: Option<Time>,
    /// Run not before this delay, such as 10m or 1h30m
    #[arg(long, value_name = "DURATION")]
    delay: Option<Duration>,
    /// Key that makes a repeated submission return the first job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Id of your own, if the queue's profile allows it
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Tag: KEY or KEY=VALUE; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Id of your own that groups related jobs
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// URL that is called when the job has ended
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
    /// W3C trace context of the submitter: 00-TRACE-SPAN-FLAGS
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    /// Run only after this job has completed; may be repeated
    #[arg(long, value_name = "ID")]
    after: Vec<String>,
    /// Run after one of these jobs has ended in any state; may be repeated
    #[arg(long, value_name = "ID")]
    after_any: Vec<String>,
    /// Name of the job for "#ref" in the same batch
    #[arg(long = "ref", value_name = "NAME")]
    reference: Option<String>,
    /// Hold the job until `jobs submit`; --hold=false overrides a profile that holds
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hold: Option<bool>,
    /// Limit of retries
    #[arg(long, value_name = "N", conflicts_with = "retry")]
    retry_limit: Option<u32>,
    /// Retry settings as JSON, such as '{"limit":5,"backoff":{"base":"10s"}}'
    #[arg(long, value_name = "JSON")]
    retry: Option<String>,
    /// Longest duration of one attempt
    #[arg(long, value_name = "DURATION")]
    execution_timeout: Option<Duration>,
    /// Duration of a lease without a heartbeat
    #[arg(long, value_name = "DURATION")]
    lease: Option<Duration>,
    /// Longest time from submission to the end of the job
    #[arg(long, value_name = "DURATION")]
    lifetime: Option<Duration>,
    /// Time until an ended job is pruned, by state, such as '{"completed":"1d"}'
    #[arg(long, value_name = "JSON")]
    retention: Option<String>,
    /// Limit of expired leases: a number, or "unlimited"
    #[arg(long, value_name = "N", value_parser = max_reclaims)]
    max_reclaims: Option<Reclaims>,
}

/// Limit of reclaims; `None` is unlimited.
#[derive(Clone, Copy, Debug)]
struct Reclaims(Option<u32>);

fn max_reclaims(text: &str) -> Result<Reclaims, String> {
    match text {
        "unlimited" => Ok(Reclaims(None)),
        number => number.parse().map(|number| Reclaims(Some(number))).map_err(|_| "a number, or \"unlimited\"".into()),
    }
}

impl SubmitJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let defaults = self.fields.job(self.job_type.unwrap_or_default())?;
        let client = context.client()?;
        if let Some(file) = &self.ndjson {
            let source = open(file)?;
            let batch = usize::try_from(self.batch).unwrap_or(1_000);
            let submit = ndjson::NdjsonSubmit { client, queue: self.queue, defaults, batch, dry_run: self.dry_run };
            return context.call(submit.run(context, source));
        }
        let job = self.payload.read()?.into_job(defaults);
        if self.dry_run {
            context.output.info(&format!("job for queue \"{}\"; nothing was submitted", self.queue));
            return context.output.json(&job);
        }
        let submitted = context.call(async { Ok(client.submit_job(&self.queue, &job).await?) })?;
        if context.output.json {
            return context.output.json(&submitted);
        }
        let state = submitted.state.map_or("already pruned", |state| state.as_str());
        let status = if submitted.duplicate { "was submitted before with this key" } else { "submitted" };
        context.output.info(&format!("{status}: queue \"{}\", number {}, {state}", self.queue, submitted.seq));
        context.output.line(&submitted.id)
    }
}

/// A payload as it was given.
enum PayloadInput {
    None,
    Json(Box<serde_json::value::RawValue>),
    Binary(Vec<u8>),
}

impl PayloadInput {
    fn into_job(self, defaults: NewJob) -> NewJob {
        match self {
            Self::None => defaults,
            Self::Json(payload) => NewJob { payload: Some(payload), ..defaults },
            Self::Binary(bytes) => NewJob { payload_base64: Some(STANDARD.encode(bytes)), ..defaults },
        }
    }
}

impl PayloadArgs {
    fn read(&self) -> Result<PayloadInput, CliError> {
        let bytes = match (&self.payload, &self.payload_file) {
            (Some(text), _) if text != "-" => text.clone().into_bytes(),
            (Some(_), _) => read_all(Path::new("-"))?,
            (None, Some(file)) => read_all(file)?,
            (None, None) => return Ok(PayloadInput::None),
        };
        if self.binary {
            return Ok(PayloadInput::Binary(bytes));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| CliError::refused("the payload is not UTF-8").hint("submit bytes with --binary"))?;
        parse::json(&text, "the payload").map(PayloadInput::Json)
    }
}

fn read_all(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = open(file)?.reader.read_to_end(&mut bytes);
    read.map_err(|error| CliError::failed(format!("cannot read {}: {error}", file.display())))?;
    Ok(bytes)
}

/// Reads a file of text, or standard input.
pub(crate) fn read_text(file: &Path) -> Result<String, CliError> {
    String::from_utf8(read_all(file)?).map_err(|_| CliError::refused(format!("{} is not UTF-8", file.display())))
}

/// A file, or standard input.
pub(super) struct InputSource {
    reader: Box<dyn BufRead>,
    /// Bytes of a file; `None` for a pipe.
    length: Option<u64>,
}

fn open(file: &Path) -> Result<InputSource, CliError> {
    if file == Path::new("-") {
        return Ok(InputSource { reader: Box::new(BufReader::new(std::io::stdin())), length: None });
    }
    let failed = |error: std::io::Error| CliError::failed(format!("cannot read {}: {error}", file.display()));
    let opened = std::fs::File::open(file).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(CliError::failed(format!("cannot read {}: it is a directory", file.display())));
    }
    let length = metadata.is_file().then_some(metadata.len());
    Ok(InputSource { reader: Box::new(BufReader::with_capacity(1 << 16, opened)), length })
}

impl JobFields {
    fn job(self, job_type: String) -> Result<NewJob, CliError> {
        let retry = match self.retry_limit {
            Some(limit) => Some(Retry { limit: Some(limit), ..Retry::default() }),
            None => self.retry.as_deref().map(|text| object::<Retry>(text, "--retry")).transpose()?,
        };
        let retention = self.retention.as_deref().map(|text| object::<Retention>(text, "--retention")).transpose()?;
        let non_empty = |ids: Vec<String>| (!ids.is_empty()).then_some(ids);
        Ok(NewJob {
            job_type,
            queue: None,
            payload: None,
            payload_base64: None,
            priority: self.priority,
            run_at: self.run_at,
            delay: self.delay,
            idempotency_key: self.idempotency_key,
            external_id: self.external_id,
            tags: tags(&self.tags)?,
            correlation_id: self.correlation_id,
            callback_url: self.callback_url,
            traceparent: self.traceparent,
            after: non_empty(self.after),
            after_any: non_empty(self.after_any),
            reference: self.reference,
            hold: self.hold,
            retry,
            execution_timeout: self.execution_timeout,
            lease: self.lease,
            lifetime: self.lifetime,
            retention,
            max_reclaims: self.max_reclaims.map(|Reclaims(most)| most),
        })
    }
}

fn object<T: DeserializeOwned>(text: &str, flag: &str) -> Result<T, CliError> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let failure = CliError::refused(format!("{flag}: {message}"));
        match parse::suggest(&message) {
            Some(suggestion) => failure.hint(suggestion),
            None => failure,
        }
    })
}

/// Returns a list if no tag has a value, else a map.
pub(crate) fn tags(given: &[String]) -> Result<Option<Tags>, CliError> {
    if given.is_empty() {
        return Ok(None);
    }
    if given.iter().all(|tag| !tag.contains('=')) {
        return Ok(Some(Tags::List(given.to_vec())));
    }
    let mut map = TagMap::new();
    for tag in given {
        let (key, value) = tag.split_once('=').map_or((tag.as_str(), None), |(key, value)| (key, Some(value)));
        if map.insert(key.to_owned(), value.map(str::to_owned)).is_some() {
            return Err(CliError::refused(format!("the tag \"{key}\" is given twice")));
        }
    }
    Ok(Some(Tags::Map(map)))
}
