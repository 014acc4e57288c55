//! Traces in OpenTelemetry's protocol: OTLP over HTTP, as JSON.
//!
//! A submission is a span, and each attempt is one. The first attempt is a child of the submitting
//! span. A retry is the root of a new trace with a link, because it may run hours later.
//!
//! - [`config`]: the standard variables `OTEL_…`
//! - [`span`]: the spans of a submission and of an attempt, and their JSON
//! - [`exporter`]: the bounded queue, and the task that sends its spans
//!
//! Spans have names, ids and outcomes only: never payloads, results or error texts. Without an
//! endpoint in the variables nothing here runs, and nothing is sent.

pub(crate) mod config;
pub(crate) mod exporter;
mod span;
