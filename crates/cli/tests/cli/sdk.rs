//! The SDK's worker against the real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore::api::enums::State as JobStatus;
use longshore::api::settings::Retry;
use longshore::{
    CancelReason, Client, HandlerError, Job, JobContext, JobItem, JobListQuery, JobOutcome, JobRequest, Middleware,
    Next, State, WaitError, Worker, WorkerError, WorkflowRequest,
};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use crate::support::Server;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "double", queue = "numbers", output = i64)]
struct Double {
    n: i64,
}

async fn double(_: JobContext, job: Double) -> Result<i64, HandlerError> {
    Ok(2 * job.n)
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "wait", queue = "numbers")]
struct WaitForToken;

type Reasons = mpsc::UnboundedSender<CancelReason>;

/// Waits for its token, and sends the reason to the test.
async fn wait_for_token(context: JobContext, _: WaitForToken, reasons: State<Reasons>) -> Result<(), HandlerError> {
    let reason = context.cancelled().await;
    reasons.send(reason).unwrap();
    Err(HandlerError::temporary("stopped"))
}

fn client(server: &Server) -> Client {
    Client::new(&server.url).unwrap()
}

/// A job without a retry: none can begin while a busy machine ends the first attempt.
fn once() -> Retry {
    Retry { limit: Some(1), ..Retry::default() }
}

#[tokio::test]
async fn a_typed_job_returns_its_typed_result() {
    let server = Server::in_memory();
    let client = client(&server);
    let job = client.submit(Double { n: 21 }).key("k").tag("tenant", "acme").await.unwrap();
    let again = client.submit(Double { n: 21 }).key("k").await.unwrap();
    assert_eq!((again.id(), again.submitted().duplicate), (job.id(), true));
    let report = Worker::new(client.clone()).on(double).until_empty().run().await.unwrap();
    assert_eq!((report.completed, report.failed), (1, 0));
    assert_eq!(job.wait().await.unwrap(), 42);
    assert_eq!(client.job(job.id()).await.unwrap().tags["tenant"].as_deref(), Some("acme"));
}

#[tokio::test]
async fn many_jobs_and_workflows_are_submitted() {
    let server = Server::in_memory();
    let client = client(&server);
    let requests = (0..2_500).map(|n| JobRequest::new(&Double { n }));
    let submitted = client.submit_all(requests).await.unwrap();
    assert!(submitted.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let chord = WorkflowRequest::chord([JobRequest::new(&Double { n: 1 })], JobRequest::new(&Double { n: 2 }));
    let workflow = client.start_workflow(chord.name("two")).await.unwrap();
    let report = Worker::new(client.clone()).on(double).slots(64).prefetch(2.0).until_empty().run().await.unwrap();
    assert_eq!((report.completed, report.lost), (2_502, 0));
    assert_eq!(client.workflow(&workflow.id, None, None).await.unwrap().workflow.ended, 2);
}

/// Proves T-14.
#[tokio::test]
async fn the_context_is_cancelled_on_timeout_and_on_shutdown() {
    let server = Server::in_memory();
    let client = client(&server);
    let (sender, mut reasons) = mpsc::unbounded_channel();
    let timed = client.submit(WaitForToken).retry(once()).execution_timeout(Duration::from_millis(300)).await.unwrap();
    let worker = Worker::new(client.clone()).on(wait_for_token).state(sender).grace(Duration::from_millis(200));
    let shutdown = worker.shutdown();
    let running = tokio::spawn(worker.run());
    assert_eq!(reasons.recv().await, Some(CancelReason::Deadline));
    let drained = client.submit(WaitForToken).await.unwrap();
    while client.job(drained.id()).await.unwrap().state != JobStatus::Running {
        tokio::task::yield_now().await;
    }
    shutdown.stop();
    assert_eq!(reasons.recv().await, Some(CancelReason::Drain));
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.failed + report.lost, report.released), (1, 1));
    assert_eq!(client.job(timed.id()).await.unwrap().error.unwrap().code.as_deref(), Some("execution_timeout"));
    let job = client.job(drained.id()).await.unwrap();
    assert_eq!((job.state, job.counters.starts), (JobStatus::Scheduled, 0), "shutdown costs no attempt");
}

/// Proves I-49.
#[tokio::test]
async fn a_worker_survives_an_outage_of_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on(directory.path());
    let address = server.url.trim_start_matches("http://").to_owned();
    let kept = client(&server).submit(Double { n: 1 }).delay(Duration::from_millis(300)).await.unwrap();
    let worker = Worker::new(client(&server)).on(double).max_jobs(2);
    let (events, mut lost) = mpsc::unbounded_channel();
    let worker = worker.observe(move |event| {
        if let longshore::WorkerEvent::ServerLost { .. } = event {
            events.send(()).unwrap();
        }
    });
    let running = tokio::spawn(worker.run());
    server.signal(Signal::KILL);
    lost.recv().await.unwrap();
    drop(server);
    let server = Server::on_address(directory.path(), &address);
    let later = client(&server).submit(Double { n: 2 }).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().completed, 2);
    assert_eq!(later.wait().await.unwrap(), 4);
    assert_eq!(client(&server).job(kept.id()).await.unwrap().state, JobStatus::Completed);
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "panic", queue = "numbers")]
struct Panic;

async fn panics(_: JobContext, _: Panic) -> Result<(), HandlerError> {
    panic!("on purpose")
}

#[tokio::test]
async fn a_panic_is_a_system_failure() {
    let server = Server::in_memory();
    let client = client(&server);
    let job = client.submit(Panic).await.unwrap();
    let report = Worker::new(client.clone()).on(panics).max_jobs(1).run().await.unwrap();
    assert_eq!((report.panicked, report.failed), (1, 1));
    let error = client.job(job.id()).await.unwrap().error.unwrap();
    assert_eq!((error.category.as_str(), error.code.as_deref()), ("system", Some("panic")));
    assert!(error.message.contains("on purpose"));
}

async fn sum(items: Vec<JobItem<Double>>, batches: State<AtomicU64>) -> Vec<Result<i64, HandlerError>> {
    batches.fetch_add(1, Ordering::Relaxed);
    items
        .into_iter()
        .map(|item| match item.payload.n {
            0 => Err(HandlerError::permanent("zero", "zero is not allowed")),
            n => Ok(n),
        })
        .collect()
}

#[tokio::test]
async fn a_batch_handler_returns_one_outcome_per_job() {
    let server = Server::in_memory();
    let client = client(&server);
    client.submit_all((0..10).map(|n| JobRequest::new(&Double { n }))).await.unwrap();
    let zero = client.submit(Double { n: 0 }).await.unwrap();
    let worker = Worker::new(client).on_batch(100, Duration::from_millis(50), sum).state(AtomicU64::new(0));
    let report = worker.until_empty().run().await.unwrap();
    assert_eq!((report.completed, report.failed), (9, 2));
    assert!(matches!(zero.wait().await, Err(WaitError::NotCompleted { .. })));
}

struct CountRuns(Arc<AtomicU64>);

impl Middleware for CountRuns {
    fn call<'a>(&'a self, context: JobContext, next: Next<'a>) -> longshore::BoxFuture<'a, JobOutcome> {
        self.0.fetch_add(1, Ordering::Relaxed);
        next.run(context)
    }
}

#[tokio::test]
async fn middleware_runs_around_handlers() {
    let server = Server::in_memory();
    let client = client(&server);
    client.submit(Double { n: 1 }).await.unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let worker = Worker::new(client).on(double).layer(CountRuns(Arc::clone(&runs)));
    worker.until_empty().run().await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_missing_state_is_an_error_before_the_first_claim() {
    let worker = Worker::connect("http://127.0.0.1:1").unwrap().on(wait_for_token);
    let error = worker.run().await.unwrap_err();
    assert!(matches!(error, WorkerError::MissingState { .. }), "{error}");
    let worker = Worker::connect("http://127.0.0.1:1").unwrap().on(double).on(double);
    assert!(matches!(worker.run().await.unwrap_err(), WorkerError::DuplicateHandler { .. }));
}

/// Keys of queues whose profile has no idempotency are left out.
#[tokio::test]
async fn a_queue_without_idempotency_accepts_submissions() {
    let server = Server::in_memory();
    server.call("PUT", "/v1/queues/numbers", &serde_json::json!({"profile": "weave"}));
    let job = client(&server).submit(Double { n: 4 }).await.unwrap();
    let report = Worker::new(client(&server)).on(double).until_empty().run().await.unwrap();
    assert_eq!(report.completed, 1);
    assert_eq!(job.wait().await.unwrap(), 8);
}

async fn begins_and_waits(
    _: JobContext,
    _: WaitForToken,
    started: State<mpsc::UnboundedSender<()>>,
) -> Result<(), HandlerError> {
    started.send(()).unwrap();
    std::future::pending().await
}

/// The jobs of a dropped run are ready again at once, not after their lease.
#[tokio::test]
async fn a_dropped_run_releases_its_jobs() {
    let server = Server::in_memory();
    let client = client(&server);
    let (sender, mut started) = mpsc::unbounded_channel::<()>();
    let job = client.submit(WaitForToken).lease(Duration::from_secs(3_600)).await.unwrap();
    let running = tokio::spawn(Worker::new(client.clone()).on(begins_and_waits).state(sender).run());
    started.recv().await.unwrap();
    running.abort();
    loop {
        let job = client.job(job.id()).await.unwrap();
        if job.state == JobStatus::Scheduled {
            assert_eq!(job.counters.starts, 0);
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn splits(context: JobContext, _: WaitForToken) -> Result<Option<String>, HandlerError> {
    context.create_children([JobRequest::new(&Double { n: 3 })], None).await?;
    Ok(context.traceparent().map(str::to_owned))
}

/// Single jobs, batches, workflows, children and schedules pass the hook of their client.
#[tokio::test]
async fn before_submit_sees_all_new_jobs() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let server = Server::in_memory();
    let tagged = |request: JobRequest| {
        let job_type = request.job_type().to_owned();
        request.tag("sent-by", job_type).traceparent(TRACE)
    };
    let client = Client::builder().before_submit(tagged).build(&server.url).unwrap();
    client.submit(Double { n: 1 }).await.unwrap();
    client.submit_all([JobRequest::new(&Double { n: 2 })]).await.unwrap();
    let pair = || JobRequest::new(&Double { n: 2 });
    client.start_workflow(WorkflowRequest::chain([pair(), pair()])).await.unwrap();
    client.start_workflow(WorkflowRequest::chord([pair()], pair())).await.unwrap();
    let parent = client.submit(WaitForToken).await.unwrap();
    let worker = Worker::new(client.clone()).on(double).on(splits).schedule("yearly", "0 0 1 1 *", pair());
    let report = worker.until_empty().run().await.unwrap();
    assert_eq!(report.completed, 8);
    client.trigger_schedule("yearly").await.unwrap();
    let jobs = client.jobs(&JobListQuery::default()).await.unwrap().jobs;
    assert_eq!(jobs.len(), 9);
    for job in jobs {
        assert_eq!(job.tags.get("sent-by"), Some(&Some(job.job_type.clone())), "{job:?}");
    }
    let result = client.job(parent.id()).await.unwrap().result.unwrap();
    assert_eq!(result.get(), format!("\"{TRACE}\""));
}

/// A TCP proxy that holds back a response with a lease.
struct LeaseGate {
    url: String,
    has_lease: Arc<Notify>,
    passes: Arc<Notify>,
}

impl LeaseGate {
    async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            has_lease: Arc::default(),
            passes: Arc::default(),
        };
        let target = server.url.trim_start_matches("http://").to_owned();
        let (has_lease, passes) = (Arc::clone(&gate.has_lease), Arc::clone(&gate.passes));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&target).await.unwrap();
                let (mut from_client, to_client) = near.into_split();
                let (from_server, mut to_server) = far.into_split();
                tokio::spawn(async move {
                    tokio::io::copy(&mut from_client, &mut to_server).await.ok();
                    to_server.shutdown().await.ok();
                });
                tokio::spawn(pass_responses(from_server, to_client, Arc::clone(&has_lease), Arc::clone(&passes)));
            }
        });
        gate
    }
}

async fn pass_responses(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, has_lease: Arc<Notify>, passes: Arc<Notify>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if buffer[..length].windows(7).any(|bytes| bytes == b"\"token\"") {
            has_lease.notify_one();
            passes.notified().await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_dropped_run_releases_the_jobs_of_a_claim_on_its_way() {
    let server = Server::in_memory();
    let gate = LeaseGate::start(&server).await;
    let client = client(&server);
    let job = client.submit(WaitForToken).lease(Duration::from_secs(3_600)).await.unwrap();
    let running = tokio::spawn(Worker::connect(&gate.url).unwrap().on(never_ends).run());
    gate.has_lease.notified().await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(client.job(job.id()).await.unwrap().state, JobStatus::Running);
    gate.passes.notify_one();
    loop {
        let job = client.job(job.id()).await.unwrap();
        if job.state == JobStatus::Scheduled {
            assert_eq!(job.counters.starts, 0);
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn never_ends(_: JobContext, _: WaitForToken) -> Result<(), HandlerError> {
    std::future::pending().await
}

#[tokio::test]
async fn the_limit_of_stuck_handlers_ends_the_run_with_an_error() {
    let server = Server::in_memory();
    let client = client(&server);
    client.submit(WaitForToken).retry(once()).execution_timeout(Duration::from_millis(200)).await.unwrap();
    let worker = Worker::new(client).on(never_ends).stuck_grace(Duration::from_millis(50)).stuck_max(1);
    let error = worker.run().await.unwrap_err();
    let WorkerError::StuckHandlers { report } = error else { panic!("{error}") };
    assert_eq!(report.abandoned, 1);
}

async fn count_batches(items: Vec<JobItem<Double>>, batches: State<Arc<AtomicU64>>) -> Vec<Result<i64, HandlerError>> {
    batches.fetch_add(1, Ordering::Relaxed);
    items.into_iter().map(|item| Ok(item.payload.n)).collect()
}

/// The batch is full although the worker has one slot for other handlers, and one of them runs.
#[tokio::test]
async fn a_batch_handler_has_slots_of_its_own() {
    let server = Server::in_memory();
    let client = client(&server);
    client.submit_all((0..50).map(|n| JobRequest::new(&Double { n }))).await.unwrap();
    client.submit(Panic).await.unwrap();
    let batches = Arc::new(AtomicU64::new(0));
    let worker = Worker::new(client).slots(1).state(Arc::clone(&batches)).on(panics);
    let worker = worker.on_batch(50, Duration::from_secs(600), count_batches).max_jobs(51);
    let report = worker.run().await.unwrap();
    assert_eq!((report.completed, report.failed), (50, 1));
    assert_eq!(batches.load(Ordering::Relaxed), 1);
}

/// The first worker of docs/guides/rust.md, as its reader runs it.
#[tokio::test]
async fn the_worker_of_the_guide_runs() {
    let server = Server::in_memory();
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_longshore")).parent().unwrap();
    let program = programs.join("examples/send_email");
    assert!(program.exists(), "{} is missing (build it: cargo build -p longshore --examples)", program.display());
    let mut command = tokio::process::Command::new(program);
    command.env("LONGSHORE_SERVER", &server.url).env_remove("LONGSHORE_TOKEN").stdout(std::process::Stdio::piped());
    let worker = command.spawn().unwrap();
    let mail = serde_json::json!({"type": "email.send", "payload": {"to": "ada@example.com"}});
    let job = server.call("POST", "/v1/queues/mail/jobs", &mail);
    let id = job["id"].as_str().unwrap();
    let waited = client(&server).wait(id, longshore::api::Duration::from_secs(60)).await.unwrap();
    assert_eq!(waited.job.state, JobStatus::Completed);
    let pid = rustix::process::Pid::from_raw(i32::try_from(worker.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let output = worker.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let expected = "sending to ada@example.com\n\
                    1 completed, 0 failed, 0 snoozed, 0 released, 0 lost, 0 abandoned, 0 panicked\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
