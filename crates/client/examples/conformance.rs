//! The conformance program of the Rust SDK. See `sdk-conformance/README.md`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program stops with a message")]

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::{CancelReason, Client, HandlerError, Job, JobContext, State, Worker, WorkerReport};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Declares payload types without fields that matter.
macro_rules! jobs {
    ($($name:ident = $job_type:literal { $($field:ident: $kind:ty),* })*) => {
        $(#[derive(Serialize, Deserialize, Job)]
        #[job(type = $job_type)]
        struct $name { $($field: $kind),* })*
    };
}

jobs! {
    Typed = "typed" { n: i64 }
    Sleep = "sleep" { seconds: f64 }
    Deaf = "deaf" { seconds: f64 }
    Block = "block" { seconds: f64 }
    Fail = "fail" { category: String, code: String, retry_after: Option<f64> }
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop")]
struct Noop(Value);

/// What the handlers count.
#[derive(Clone, Default)]
struct Counts {
    handled: Arc<Mutex<BTreeMap<String, u64>>>,
    seen: Arc<Mutex<HashSet<String>>>,
}

impl Counts {
    fn count(&self, context: &JobContext) {
        *self.handled.lock().unwrap().entry(context.job_type().to_owned()).or_default() += 1;
    }

    fn start(&self, context: &JobContext) {
        self.count(context);
        let (id, job_type, attempt) = (context.id(), context.job_type(), context.attempt());
        print_line(&json!({"event": "start", "id": id, "type": job_type, "attempt": attempt}));
    }

    /// Whether this is the first run of the job in this process.
    fn is_first(&self, context: &JobContext) -> bool {
        self.seen.lock().unwrap().insert(context.id().to_owned())
    }
}

fn print_line(line: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

async fn noop(context: JobContext, _: Noop, counts: State<Counts>) -> Result<Value, HandlerError> {
    counts.count(&context);
    Ok(json!({"ok": true}))
}

async fn typed(context: JobContext, job: Typed, counts: State<Counts>) -> Result<Value, HandlerError> {
    counts.start(&context);
    Ok(json!({"n": job.n}))
}

fn report_cancel(context: &JobContext, reason: CancelReason) -> HandlerError {
    print_line(&json!({"event": "cancelled", "id": context.id(), "reason": reason.as_str()}));
    HandlerError::temporary("stopped")
}

async fn sleep(context: JobContext, job: Sleep, counts: State<Counts>) -> Result<Value, HandlerError> {
    counts.start(&context);
    tokio::select! {
        () = tokio::time::sleep(seconds(job.seconds)) => Ok(json!({"attempt": context.attempt()})),
        reason = context.cancelled() => Err(report_cancel(&context, reason)),
    }
}

async fn deaf(context: JobContext, job: Deaf, counts: State<Counts>) -> Result<(), HandlerError> {
    counts.start(&context);
    tokio::time::sleep(seconds(job.seconds)).await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the handler blocks its thread on purpose")]
async fn block(context: JobContext, job: Block, counts: State<Counts>) -> Result<Value, HandlerError> {
    counts.start(&context);
    std::thread::sleep(seconds(job.seconds));
    Ok(json!({"attempt": context.attempt()}))
}

async fn fail(context: JobContext, job: Fail, counts: State<Counts>) -> Result<(), HandlerError> {
    counts.start(&context);
    let error = match job.category.as_str() {
        "permanent" => HandlerError::permanent(job.code, "failed on purpose"),
        _ => HandlerError::temporary("failed on purpose").with_code(job.code),
    };
    Err(match job.retry_after {
        Some(after) => error.retry_after(seconds(after)),
        None => error,
    })
}

async fn checkpoint(context: JobContext) -> Result<Value, HandlerError> {
    if let Some(from) = context.checkpoint::<Value>() {
        return Ok(json!({"from": from}));
    }
    context.save_checkpoint(&json!({"at": 5})).await?;
    print_line(&json!({"event": "checkpointed", "id": context.id()}));
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(600)) => Ok(Value::Null),
        reason = context.cancelled() => Err(report_cancel(&context, reason)),
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

// One thread: a blocked handler blocks the whole runtime.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::new(&variable("LONGSHORE_URL"))?;
    let queue = variable("CONFORMANCE_QUEUE");
    if std::env::args().nth(1).as_deref() == Some("submit") {
        let handle = client.submit(Noop(json!({"n": 1}))).queue(queue).await?;
        print_line(&json!({"event": "submitted", "id": handle.id()}));
        return Ok(());
    }
    let counts = Counts::default();
    let (for_snooze, for_release, for_checkpoint) = (counts.clone(), counts.clone(), counts.clone());
    let worker = Worker::new(client)
        .queue(queue)
        .name(variable("CONFORMANCE_WORKER"))
        .slots(variable("CONFORMANCE_SLOTS").parse()?)
        .grace(seconds(variable("CONFORMANCE_GRACE").parse()?))
        .stuck_grace(seconds(variable("CONFORMANCE_STUCK_GRACE").parse()?))
        .state(counts.clone())
        .on(noop)
        .on(typed)
        .on(sleep)
        .on(deaf)
        .on(block)
        .on(fail)
        .on_types(["snooze"], move |context: JobContext| {
            for_snooze.start(&context);
            let is_first = for_snooze.is_first(&context);
            async move {
                if is_first { Err(context.snooze(Duration::from_millis(100))) } else { Ok(attempt(&context)) }
            }
        })
        .on_types(["release"], move |context: JobContext| {
            for_release.start(&context);
            let is_first = for_release.is_first(&context);
            async move { if is_first { Err(context.release()) } else { Ok(attempt(&context)) } }
        })
        .on_types(["checkpoint"], move |context: JobContext| {
            for_checkpoint.start(&context);
            checkpoint(context)
        })
        .handle_signals();
    print_line(&json!({"event": "ready"}));
    let report = worker.run().await?;
    let handled = counts.handled.lock().unwrap().clone();
    print_line(&serde_json::to_value(ReportLine { event: "report", report, handled })?);
    Ok(())
}

/// The last line of the output.
#[derive(Serialize)]
struct ReportLine {
    event: &'static str,
    #[serde(flatten)]
    report: WorkerReport,
    handled: BTreeMap<String, u64>,
}

fn attempt(context: &JobContext) -> Value {
    json!({"attempt": context.attempt()})
}
