//! Measurements of a run, and their output.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use hdrhistogram::Histogram;
use longshore::monotonic;
use serde::Serialize;

use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

/// Measured operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    Submit,
    Claim,
    Complete,
    Get,
    List,
    /// From the request that submits a job to the response that delivers it to a worker.
    EndToEnd,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Claim => "claim",
            Self::Complete => "complete",
            Self::Get => "get",
            Self::List => "list",
            Self::EndToEnd => "end to end",
        }
    }
}

/// Measurements of one operation; latency in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    latency: Histogram<u64>,
    jobs: u64,
    errors: u64,
    /// Time of the last response.
    last: Duration,
}

/// One hour, above the timeout of any request.
const LATENCY_MAX: u64 = 3_600_000_000;

impl Timing {
    fn new() -> Option<Self> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX, 3).ok()?;
        Some(Self { latency, jobs: 0, errors: 0, last: Duration::ZERO })
    }
}

/// Measurements of one task, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Measurements {
    timings: BTreeMap<Operation, Timing>,
    pub(super) first_error: Option<String>,
}

impl Measurements {
    fn timing(&mut self, operation: Operation) -> Option<&mut Timing> {
        match self.timings.entry(operation) {
            Entry::Occupied(found) => Some(found.into_mut()),
            Entry::Vacant(entry) => Some(entry.insert(Timing::new()?)),
        }
    }

    pub(super) fn record_latency(&mut self, operation: Operation, latency: Duration, jobs: u64) {
        if let Some(timing) = self.timing(operation) {
            let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            timing.latency.saturating_record(micros.clamp(1, LATENCY_MAX));
            timing.jobs += jobs;
            timing.last = monotonic();
        }
    }

    pub(super) fn record_error(&mut self, operation: Operation, error: &str) {
        if let Some(timing) = self.timing(operation) {
            timing.errors += 1;
        }
        self.first_error.get_or_insert_with(|| format!("{}: {error}", operation.as_str()));
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (operation, theirs) in other.timings {
            if let Some(ours) = self.timing(operation) {
                // All histograms have the same bounds, so that `add` cannot fail.
                let _: Result<(), _> = ours.latency.add(&theirs.latency);
                ours.jobs += theirs.jobs;
                ours.last = ours.last.max(theirs.last);
                ours.errors += theirs.errors;
            }
        }
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct BenchResult {
    pub(super) measurements: Measurements,
    pub(super) started: Duration,
    pub(super) seconds: f64,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    /// Whether the run had workers.
    pub(super) worked: bool,
}

#[derive(Serialize)]
struct BenchJson {
    seconds: f64,
    submitted: u64,
    completed: u64,
    errors: u64,
    operations: Vec<OperationJson>,
}

#[derive(Serialize)]
struct OperationJson {
    operation: Operation,
    calls: u64,
    jobs: u64,
    errors: u64,
    jobs_per_second: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p99_9_ms: f64,
    max_ms: f64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

impl BenchResult {
    fn rows(&self) -> Vec<OperationJson> {
        let row = |(operation, timing): (&Operation, &Timing)| {
            // Submissions may end long before the last completion.
            let seconds = timing.last.saturating_sub(self.started).as_secs_f64();
            let at = |quantile: f64| float(timing.latency.value_at_quantile(quantile)) / 1_000.0;
            OperationJson {
                operation: *operation,
                calls: timing.latency.len(),
                jobs: timing.jobs,
                errors: timing.errors,
                jobs_per_second: float(timing.jobs) / seconds.max(1e-9),
                p50_ms: at(0.5),
                p90_ms: at(0.9),
                p99_ms: at(0.99),
                p99_9_ms: at(0.999),
                max_ms: float(timing.latency.max()) / 1_000.0,
            }
        };
        self.measurements.timings.iter().map(row).collect()
    }

    pub(super) fn show(&self, context: &Context) -> Result<(), CliError> {
        let rows = self.rows();
        let errors: u64 = rows.iter().map(|row| row.errors).sum();
        if context.output.json {
            let Self { seconds, submitted, completed, .. } = *self;
            context.output.json(&BenchJson { seconds, submitted, completed, errors, operations: rows })?;
        } else {
            self.draw(context, &rows)?;
        }
        if errors > 0 {
            let first = self.measurements.first_error.as_deref().unwrap_or_default();
            return Err(CliError::failed(format!("{} failed; the first: {first}", counted(errors, "request"))));
        }
        if self.worked && self.completed < self.submitted {
            let left = self.submitted - self.completed;
            return Err(CliError::failed(format!("{left} of {} jobs were not completed in time", self.submitted))
                .hint("increase the share of work in --mix, --concurrency or --drain-timeout"));
        }
        Ok(())
    }

    fn draw(&self, context: &Context, rows: &[OperationJson]) -> Result<(), CliError> {
        let mut table =
            TextTable::new(&["OPERATION", "CALLS", "JOBS", "JOBS/S", "P50", "P90", "P99", "P99.9", "MAX", "ERRORS"]);
        for row in rows {
            let time = |millis: f64| CellValue::Number(format!("{millis:.2} ms"));
            let errors = if row.errors > 0 { CellValue::Alarm(row.errors.to_string()) } else { CellValue::number(0) };
            table.row(vec![
                row.operation.as_str().into(),
                CellValue::number(row.calls),
                CellValue::number(row.jobs),
                CellValue::Number(format!("{:.0}", row.jobs_per_second)),
                time(row.p50_ms),
                time(row.p90_ms),
                time(row.p99_ms),
                time(row.p99_9_ms),
                time(row.max_ms),
                errors,
            ]);
        }
        context.output.table(&table)?;
        let Self { seconds, submitted, completed, .. } = self;
        context.output.line(&format!("{submitted} jobs submitted and {completed} completed in {seconds:.2} s"))
    }
}
