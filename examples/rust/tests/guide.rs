//! The code of docs/guides/rust.md: each block is in this file or in an example of the SDK, and
//! runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore::api::events::ServerEvent;
use longshore::testing::{AttemptNumber, HandlerTest, TestQueue};
use longshore::{
    CancelReason, Client, EventQuery, HandlerError, Job, JobContext, JobOutcome, JobRequest, Longshore, Priority,
    State, WaitError,
};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "email.send", queue = "mail", output = Sent)]
struct SendEmail {
    to: String,
}

#[derive(Serialize, Deserialize)]
struct Sent {
    attempt: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "report.send", queue = "mail")]
struct SendReport;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "order", output = String)]
struct Order {
    amount: u32,
}

#[derive(Debug)]
struct BadAddress(&'static str);

impl std::fmt::Display for BadAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadAddress {}

/// A mail server that fails some times.
#[derive(Default)]
struct Smtp {
    failures: AtomicU32,
    calls: AtomicU32,
}

impl Smtp {
    fn failing(failures: u32) -> Self {
        Self { failures: AtomicU32::new(failures), calls: AtomicU32::new(0) }
    }

    async fn send(&self, to: &str) -> Result<Sent, BadAddress> {
        let attempt = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let is_failing = attempt <= self.failures.load(Ordering::Relaxed);
        if is_failing || !to.contains('@') { Err(BadAddress("no such address")) } else { Ok(Sent { attempt }) }
    }
}

async fn send(context: JobContext, mail: SendEmail, smtp: State<Arc<Smtp>>) -> Result<Sent, HandlerError> {
    context.set_progress(&"rendering")?;
    tokio::select! {
        sent = smtp.send(&mail.to) => Ok(sent?),
        reason = context.cancelled() => Err(HandlerError::temporary(format!("stopped: {reason}"))),
    }
}

static CHARGES: AtomicU32 = AtomicU32::new(0);
static SHIPMENTS: AtomicU32 = AtomicU32::new(0);

async fn charge(amount: u32) -> Result<String, BadAddress> {
    CHARGES.fetch_add(1, Ordering::Relaxed);
    Ok(format!("payment of {amount}"))
}

/// Fails the first time.
async fn ship(payment: String) -> Result<String, BadAddress> {
    if SHIPMENTS.fetch_add(1, Ordering::Relaxed) == 0 {
        return Err(BadAddress("nowhere"));
    }
    Ok(format!("shipped for {payment}"))
}

async fn order(context: JobContext, order: Order) -> Result<String, HandlerError> {
    let payment: String = context.step("charge", || charge(order.amount)).await?;
    context.step("ship", || ship(payment)).await
}

#[tokio::test]
async fn a_step_succeeds_once_over_all_attempts() -> TestResult {
    let mut queue = TestQueue::new().await;
    queue.on(order);
    let job = queue.client().submit(Order { amount: 7 }).await?;
    assert_eq!(queue.drain().await.failed, 1);
    queue.advance(Duration::from_secs(3600)).await;
    assert_eq!(queue.drain().await.completed, 1);
    assert_eq!(job.wait().await?, "shipped for payment of 7");
    assert_eq!((CHARGES.load(Ordering::Relaxed), SHIPMENTS.load(Ordering::Relaxed)), (1, 2));
    Ok(())
}

/// Runs what a producer does, with a worker beside it.
async fn produce(client: Client) -> TestResult {
    let mail = SendEmail { to: "ada@example.com".into() };
    let job = client.submit(mail).key("welcome 7").delay(Duration::from_secs(300)).priority(Priority::High).await?;
    job.cancel().await?;
    let job = client.submit(SendEmail { to: "alan@example.com".into() }).tag("tenant", "acme").await?;
    let sent: Sent = job.wait().await?; // the `output` type of the job
    assert_eq!(sent.attempt, 1);
    Ok(())
}

#[test]
fn the_server_is_that_of_the_environment() -> TestResult {
    let expected = std::env::var("LONGSHORE_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7070".to_owned());
    let client = Client::from_env()?;
    assert_eq!(client.url(), expected.trim_end_matches('/'));
    Ok(())
}

#[tokio::test]
async fn a_producer_gets_typed_results() -> TestResult {
    let queue = Longshore::in_memory().await?;
    let worker = queue.worker().on(send).state(Arc::new(Smtp::default()));
    let shutdown = worker.shutdown();
    let running = tokio::spawn(worker.run());
    produce(queue.client()).await?;
    shutdown.stop();
    assert_eq!(running.await??.completed, 1);
    Ok(())
}

#[tokio::test]
async fn a_worker_has_schedules_and_classifies_errors() -> TestResult {
    let queue = Longshore::in_memory().await?;
    let bad = queue.client().submit(SendEmail { to: "nowhere".into() }).await?;
    for _ in 0..2 {
        let worker = queue.worker().until_empty();
        let report = worker
            .state(Arc::new(Smtp::default()))
            .on(send)
            .slots(64)
            .schedule("nightly", "0 3 * * *", JobRequest::new(&SendReport))
            .classify(|error| {
                error.downcast_ref::<BadAddress>().map(|bad| HandlerError::permanent("bad_address", bad.0))
            })
            .handle_signals()
            .run()
            .await?;
        assert_eq!(report.lost, 0);
    }
    let Err(WaitError::NotCompleted { error: Some(error), .. }) = bad.wait().await else { panic!("it completed") };
    assert_eq!(error.code.as_deref(), Some("bad_address"));
    let nightly = queue.client().get_schedule("nightly").await?;
    assert_eq!((nightly.cron.as_deref(), nightly.queue.as_str()), (Some("0 3 * * *"), "mail"));
    assert_eq!(nightly.created_at, nightly.updated_at, "the second start changed nothing");
    Ok(())
}

/// A queue inside the application reaches a private receiver only if its network is allowed.
#[tokio::test]
async fn webhooks_reach_allowed_networks() -> TestResult {
    let receiver = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", receiver.local_addr()?);
    let put = longshore::api::webhook::PutWebhook { url, events: None, queues: None, enabled: None };
    let allowed = Longshore::options().webhook_allow("127.0.0.0/8").in_memory().await?;
    allowed.client().put_webhook("own", &put).await?;
    allowed.client().test_webhook("own").await?;
    receiver.accept().await?;
    let other = Longshore::in_memory().await?;
    other.client().put_webhook("own", &put).await?;
    other.client().test_webhook("own").await?;
    loop {
        let deliveries = other.client().webhook_deliveries("own", 1, None).await?.deliveries;
        if let Some(attempt) = deliveries.first().and_then(|delivery| delivery.attempts.first()) {
            assert_eq!(attempt.error.as_deref(), Some("address_not_allowed"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let invalid = Longshore::options().webhook_allow("10.0.0.0/99").in_memory().await;
    assert!(matches!(invalid, Err(longshore::OpenError::Network(_))));
    Ok(())
}

#[tokio::test]
async fn a_queue_is_inside_the_application() -> TestResult {
    let directory = tempfile::tempdir()?;
    std::env::set_current_dir(directory.path())?;
    let queue = Longshore::open("queue-data").await?;
    let (client, worker) = (queue.client(), queue.worker());
    client.submit(SendEmail { to: "ada@example.com".into() }).await?;
    assert_eq!(worker.on(send).state(Arc::new(Smtp::default())).until_empty().run().await?.completed, 1);
    queue.close().await;
    Ok(())
}

#[tokio::test]
async fn tests_have_virtual_time() -> TestResult {
    let mut queue = TestQueue::new().await;
    queue.on(send).state(Arc::new(Smtp::failing(1)));
    let job = queue.client().submit(SendEmail { to: "ada@example.com".into() }).await?;
    assert_eq!(queue.drain().await.failed, 1); // runs jobs until none is ready
    queue.advance(Duration::from_secs(3600)).await; // the retry is due
    assert_eq!(queue.drain().await.completed, 1);
    assert_eq!(job.wait().await?.attempt, 2);
    queue.assert_submitted::<SendEmail>(|mail| mail.to == "ada@example.com").await;
    Ok(())
}

#[tokio::test]
async fn one_handler_runs_alone() {
    let test = HandlerTest::new().attempt(AttemptNumber::last(3)).state(Arc::new(Smtp::failing(1)));
    let run = test.run(send, SendEmail { to: "ada@example.com".into() }).await;
    assert!(matches!(run.outcome, JobOutcome::Fail(_)));
    assert_eq!(run.progress.unwrap().get(), "\"rendering\"");
    let stopped = |context: JobContext, _: SendEmail| async move {
        let steps: u32 = context.step("count", || async { Ok::<_, HandlerError>(7) }).await?;
        context.cancelled().await;
        Ok::<_, HandlerError>(steps)
    };
    let run = HandlerTest::new().cancelled(CancelReason::Drain).run(stopped, SendEmail { to: String::new() }).await;
    assert_eq!(run.checkpoint.unwrap().get(), r#"{"$steps":{"count":7}}"#);
}

async fn follow(client: Client) -> TestResult {
    let query = EventQuery { queue: Some("mail".to_owned()), ..EventQuery::default() };
    let mut events = client.events(&query).await?;
    loop {
        if let ServerEvent::Job(job) = events.next().await?.event {
            println!("{} is {}", job.id, job.to);
        }
    }
}

#[tokio::test]
async fn events_are_followed_beside_the_work() -> TestResult {
    let queue = Longshore::in_memory().await?;
    let worker = queue.worker().on(send).state(Arc::new(Smtp::default()));
    let running = tokio::spawn(worker.run());
    let result = tokio::select! {
        ended = follow(queue.client()) => panic!("the events ended: {ended:?}"),
        produced = produce(queue.client()) => produced,
    };
    running.abort();
    result
}

/// The text without white space and without the comma that the formatter puts at the end of a list.
fn normalized(text: &str) -> String {
    let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    text.replace(",}", "}").replace(",)", ")")
}

/// Blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(found)) if found == language => block = Some(String::new()),
            (Some(_), Some(_)) => blocks.extend(block.take()),
            (Some(block), None) => *block = format!("{block}{line}\n"),
            (None, _) => {}
        }
    }
    blocks
}

#[test]
fn every_block_of_the_guide_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (guide, readme) = (read("docs/guides/rust.md"), read("README.md"));
    let sources = normalized(&(read("crates/client/examples/send_email.rs") + &read("examples/rust/tests/guide.rs")));
    let found = blocks(&guide, "rust");
    assert!(found.len() >= 9, "{} blocks", found.len());
    for block in &found {
        assert!(sources.contains(&normalized(block)), "no test has this block:\n{block}");
    }
    // A transaction needs a database: crates/store-postgres/tests/submit_in_sql.rs runs it.
    assert_eq!(blocks(&guide, "rust,ignore").len(), 1);
    let minimal = &found[0];
    assert!(minimal.lines().filter(|line| !line.trim().is_empty()).count() <= 12, "{minimal}");
    assert!(blocks(&readme, "rust,ignore").contains(minimal), "the README has another worker");
}
