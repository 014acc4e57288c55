//! Compares the PostgreSQL store with a hand-written SKIP LOCKED loop, on one server, in one run.
//!
//! - `longshore-bench-postgres compare URL [SECONDS [PHASES]]`: bulk submit (b), batch drain (d),
//!   drain one by one (o), single submissions by 8 and 64 clients (s), latency of one client (l)
//! - `longshore-bench-postgres backlog URL JOBS`: drain rate of the first 10,000 jobs of a backlog
//!   of 10,000 and of JOBS
//! - `longshore-bench-postgres churn URL JOBS`: claim latency on new tables and after JOBS jobs,
//!   and transaction ids per job

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobType, QueueName};
use longshore_core::settle::Outcome;
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{ClaimRequest, Settlement, Submission, SubmitRequest};
use longshore_store::{ClaimedJob, Store};
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls, Statement};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PAYLOAD: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.replace('_', "").parse::<usize>().expect("a number");
    // One thread: PostgreSQL needs the other cores. Both sides run on the same runtime.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match words.as_slice() {
            ["compare", url] => compare(url, 4, PHASES).await,
            ["compare", url, seconds] => compare(url, number(seconds), PHASES).await,
            ["compare", url, seconds, phases] => compare(url, number(seconds), phases).await,
            ["backlog", url, jobs] => backlog(url, number(jobs)).await,
            ["churn", url, jobs] => churn(url, number(jobs)).await,
            _ => {
                eprintln!(
                    "usage: longshore-bench-postgres compare URL [SECONDS [PHASES]] | backlog URL JOBS | churn URL JOBS"
                );
                std::process::exit(2);
            }
        }
    });
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn open(url: &str) -> Arc<PostgresStore> {
    open_in(url, "longshore").await
}

async fn open_in(url: &str, schema: &str) -> Arc<PostgresStore> {
    let drop = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
    connect(url).await.batch_execute(&drop).await.expect("the old schema goes");
    let mut options = PostgresOptions::new(url);
    schema.clone_into(&mut options.schema);
    let handle = tokio::runtime::Handle::current();
    Arc::new(PostgresStore::start(options, handle).await.expect("the store opens"))
}

fn queue() -> QueueName {
    QueueName::new("bench").expect("a good name")
}

/// 256 bytes of JSON.
fn body() -> String {
    let mut text = String::from("{\"kind\":\"email.send\",\"to\":\"user@example.com\",\"tries\":3,\"pad\":\"");
    while text.len() < PAYLOAD - 2 {
        text.push(char::from(b'a' + u8::try_from(text.len() % 26).expect("a letter")));
    }
    text.push_str("\"}");
    text
}

fn batch(jobs: usize) -> SubmitRequest {
    let (queue, job_type) = (queue(), JobType::new("bench").expect("a good name"));
    let payload = Bytes::from(body());
    let job =
        |_| Submission { queue: queue.clone(), job: NewJob::new(job_type.clone(), Payload::Json(payload.clone())) };
    SubmitRequest::new((0..jobs).map(job).collect())
}

fn claim(limit: usize) -> ClaimRequest {
    ClaimRequest { queues: vec![queue()], limit, types: Vec::new(), terms: ClaimOptions::default() }
}

fn done(jobs: &[ClaimedJob]) -> Vec<Settlement> {
    let complete = |job: &ClaimedJob| Settlement {
        id: job.claimed.id,
        token: Some(job.claimed.token),
        outcome: Outcome::Complete { result: None, progress: None },
    };
    jobs.iter().map(complete).collect()
}

/// The other side: a table, a claim that moves its visibility, an acknowledgement that deletes.
struct Loop {
    client: Client,
    put: Statement,
    put_many: Statement,
    take: Statement,
    delete: Statement,
}

impl Loop {
    async fn set_up(url: &str) {
        let text = "DROP TABLE IF EXISTS bench_q; CREATE TABLE bench_q (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
            vt timestamptz NOT NULL DEFAULT now(), tries int NOT NULL DEFAULT 0, body jsonb NOT NULL); \
            CREATE INDEX ON bench_q (vt, id);";
        connect(url).await.batch_execute(text).await.expect("the table is made");
    }

    async fn new(url: &str) -> Self {
        let client = connect(url).await;
        let put = client.prepare("INSERT INTO bench_q(body) VALUES ($1::text::jsonb) RETURNING id").await.expect("SQL");
        let put_many = client.prepare("INSERT INTO bench_q(body) SELECT x::jsonb FROM unnest($1::text[]) x").await;
        let take = client
            .prepare(
                "WITH n AS (SELECT id FROM bench_q WHERE vt <= clock_timestamp() ORDER BY vt, id LIMIT $1 FOR UPDATE SKIP LOCKED) \
                 UPDATE bench_q q SET vt = clock_timestamp() + interval '60 s', tries = tries + 1 FROM n WHERE q.id = n.id \
                 RETURNING q.id, q.body::text",
            )
            .await
            .expect("SQL");
        let delete = client.prepare("DELETE FROM bench_q WHERE id = ANY($1::bigint[])").await.expect("SQL");
        Self { client, put, put_many: put_many.expect("SQL"), take, delete }
    }
}

/// What one client does once; says how many jobs that was.
trait Work: Send + Sync + 'static {
    fn once(&self) -> impl Future<Output = usize> + Send;
}

struct PutOne(Loop, String);
impl Work for PutOne {
    async fn once(&self) -> usize {
        self.0.client.query(&self.0.put, &[&self.1]).await.expect("a job is stored");
        1
    }
}

struct PutMany(Loop, Vec<String>);
impl Work for PutMany {
    async fn once(&self) -> usize {
        self.0.client.query(&self.0.put_many, &[&self.1]).await.expect("jobs are stored");
        self.1.len()
    }
}

struct Drain(Loop, i64);
impl Work for Drain {
    async fn once(&self) -> usize {
        let rows = self.0.client.query(&self.0.take, &[&self.1]).await.expect("jobs are taken");
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if !ids.is_empty() {
            self.0.client.execute(&self.0.delete, &[&ids]).await.expect("jobs are deleted");
        }
        ids.len()
    }
}

struct Submit(Arc<PostgresStore>, usize);
impl Work for Submit {
    async fn once(&self) -> usize {
        self.0.submit(batch(self.1)).await.expect("the store answers").expect("jobs are taken in");
        self.1
    }
}

struct Finish(Arc<PostgresStore>, usize);
impl Work for Finish {
    async fn once(&self) -> usize {
        let jobs = self.0.claim(claim(self.1)).await.expect("the store answers").expect("jobs are handed out");
        if !jobs.is_empty() {
            let verdicts = self.0.settle(done(&jobs)).await.expect("the store answers");
            assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
        }
        jobs.len()
    }
}

/// Returns jobs per second of clients that send one request at a time. Ends early when a client
/// finds no job.
async fn rate<W: Work>(clients: &[Arc<W>], seconds: f64) -> f64 {
    let (stop, jobs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    let mut tasks = Vec::new();
    for client in clients {
        let (client, stop, jobs) = (Arc::clone(client), Arc::clone(&stop), Arc::clone(&jobs));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let some = client.once().await;
                jobs.fetch_add(some, Ordering::Relaxed);
                if some == 0 || began.elapsed().as_secs_f64() > seconds {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("a client ends");
    }
    jobs.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// How often each side has its turn.
const TURNS: usize = 7;

/// Both do the same by turns, so that they meet the same machine; the medians count.
async fn by_turns<T: Work, O: Work>(
    theirs: Vec<T>,
    ours: Vec<O>,
    store: &Arc<PostgresStore>,
    seconds: f64,
) -> (f64, f64) {
    let (theirs, ours): (Vec<_>, Vec<_>) =
        (theirs.into_iter().map(Arc::new).collect(), ours.into_iter().map(Arc::new).collect());
    let (mut of_theirs, mut of_ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        of_theirs.push(rate(&theirs, seconds / TURNS as f64).await);
        let ticking = tick_along(Arc::clone(store));
        of_ours.push(rate(&ours, seconds / TURNS as f64).await);
        ticking.abort();
    }
    (median(of_theirs), median(of_ours))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn line(what: &str, (theirs, ours): (f64, f64), target: f64) {
    let ratio = ours / theirs;
    let verdict = if ratio >= target { "" } else { "  MISSED" };
    println!(
        "{what:40} hand-written {theirs:9.0}/s   longshore {ours:9.0}/s   ratio {ratio:5.2} (target {target:.2}){verdict}"
    );
}

async fn loops(url: &str, number: usize) -> Vec<Loop> {
    let mut all = Vec::new();
    for _ in 0..number {
        all.push(Loop::new(url).await);
    }
    all
}

/// Phases by letter: bulk submit, batched drain, drain one by one, single submissions, latency.
const PHASES: &str = "bdosl";

/// Both sides begin every phase with empty tables and a checkpoint behind them.
async fn fresh(url: &str) -> Arc<PostgresStore> {
    Loop::set_up(url).await;
    let store = open(url).await;
    connect(url).await.batch_execute("CHECKPOINT").await.expect("a checkpoint");
    store
}

async fn compare(url: &str, seconds: usize, phases: &str) {
    let (seconds, text) = (seconds as f64, body());
    let many = || vec![text.clone(); 1_000];
    for phase in phases.chars() {
        match phase {
            'b' => {
                for clients in [1, 4] {
                    let store = fresh(url).await;
                    let theirs = loops(url, clients).await.into_iter().map(|one| PutMany(one, many())).collect();
                    let ours = (0..clients).map(|_| Submit(Arc::clone(&store), 1_000)).collect();
                    let rates = by_turns(theirs, ours, &store, seconds).await;
                    line(&format!("bulk submit, {clients} clients, 1000 a call"), rates, 0.4);
                }
            }
            'd' => drain(url, seconds, 8, 100, 0.4).await,
            'o' => {
                drain(url, seconds, 8, 1, 2.0).await;
                drain(url, seconds, 64, 1, 2.0).await;
            }
            's' => {
                for (clients, target) in [(8, 1.3), (64, 2.0)] {
                    let store = fresh(url).await;
                    let theirs = loops(url, clients).await.into_iter().map(|one| PutOne(one, text.clone())).collect();
                    let ours = (0..clients).map(|_| Submit(Arc::clone(&store), 1)).collect();
                    let rates = by_turns(theirs, ours, &store, seconds).await;
                    line(&format!("submit, {clients} clients, one a call"), rates, target);
                }
            }
            'l' => latency(url).await,
            other => panic!("no phase is called {other}"),
        }
    }
}

/// One client, one job at a time: how long each call takes.
async fn latency(url: &str) {
    let (store, text) = (fresh(url).await, body());
    let (put, take) = (PutOne(Loop::new(url).await, text), Drain(Loop::new(url).await, 1));
    let mut all: [Vec<f64>; 5] = Default::default();
    let since = |began: Instant| began.elapsed().as_secs_f64() * 1e6;
    for _ in 0..1_000 {
        let began = Instant::now();
        put.once().await;
        all[0].push(since(began));
        let began = Instant::now();
        take.once().await;
        all[1].push(since(began));
        let began = Instant::now();
        store.submit(batch(1)).await.expect("the store answers").expect("a job is taken in");
        all[2].push(since(began));
        let began = Instant::now();
        let jobs = store.claim(claim(1)).await.expect("the store answers").expect("a job is handed out");
        all[3].push(since(began));
        let began = Instant::now();
        store.settle(done(&jobs)).await.expect("the store answers");
        all[4].push(since(began));
    }
    let [put, drain, submit, claim, settle] = all.map(median);
    println!(
        "alone, p50: hand-written insert {put:.0} us, take and delete {drain:.0} us; submit {submit:.0} us, claim {claim:.0} us, settle {settle:.0} us"
    );
}

async fn drain(url: &str, seconds: f64, workers: usize, at_once: usize, target: f64) {
    let backlog: usize = if at_once > 1 { 400_000 } else { 100_000 };
    let store = fresh(url).await;
    let filler = PutMany(Loop::new(url).await, vec![body(); 1_000]);
    for _ in 0..backlog.div_ceil(1_000) {
        filler.once().await;
    }
    fill(&store, backlog).await;
    connect(url).await.batch_execute("CHECKPOINT").await.expect("a checkpoint");
    let limit = i64::try_from(at_once).expect("small");
    let theirs = loops(url, workers).await.into_iter().map(|one| Drain(one, limit)).collect();
    let ours = (0..workers).map(|_| Finish(Arc::clone(&store), at_once)).collect();
    let rates = by_turns(theirs, ours, &store, seconds).await;
    line(&format!("drain, {workers} workers, {at_once} a call"), rates, target);
}

/// What a server does beside: ticks, and with them the archive.
fn tick_along(store: Arc<PostgresStore>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let budget = std::num::NonZeroUsize::new(128).expect("not zero");
        loop {
            let ticked = store.tick(budget).await.expect("the store ticks");
            let more = ticked.next.is_some_and(|next| next <= longshore_store::StoreReader::now(&*store));
            if !more {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    })
}

async fn fill(store: &PostgresStore, jobs: usize) {
    for _ in 0..jobs.div_ceil(1_000) {
        store.submit(batch(1_000)).await.expect("the store answers").expect("jobs are taken in");
    }
}

async fn drain_some(store: &Arc<PostgresStore>, jobs: usize, limit: usize) -> f64 {
    let (began, left) = (Instant::now(), Arc::new(AtomicUsize::new(jobs)));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (work, left) = (Finish(Arc::clone(store), limit), Arc::clone(&left));
        tasks.push(tokio::spawn(async move {
            while left.load(Ordering::Relaxed) > 0 {
                let some = work.once().await;
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(some)))
                    .expect("some");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a worker ends");
    }
    jobs as f64 / began.elapsed().as_secs_f64()
}

/// The two take turns, so that both meet the same machine.
async fn backlog(url: &str, jobs: usize) {
    const ROUNDS: usize = 5;
    for limit in [1, 100] {
        let (short, long) = (open_in(url, "longshore_short").await, open(url).await);
        fill(&long, jobs + ROUNDS * 11_000).await;
        connect(url).await.batch_execute("CHECKPOINT").await.expect("a checkpoint");
        let (mut of_short, mut of_long) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            fill(&short, 11_000).await;
            of_short.push(drain_some(&short, 10_000, limit).await);
            of_long.push(drain_some(&long, 10_000, limit).await);
        }
        let [short, long] = [of_short, of_long].map(median);
        println!(
            "drained {limit} a call, median of {ROUNDS} turns: backlog of 10,000 {short:.0}/s, of {jobs} {long:.0}/s, ratio {:.2} (wanted 0.80)",
            long / short
        );
    }
}

async fn claim_latency(store: &PostgresStore, times: usize) -> (f64, f64) {
    let mut all = Vec::new();
    for _ in 0..times {
        store.submit(batch(1)).await.expect("the store answers").expect("a job is taken in");
        let began = Instant::now();
        let jobs = store.claim(claim(1)).await.expect("the store answers").expect("a job is handed out");
        all.push(began.elapsed().as_secs_f64() * 1e3);
        store.settle(done(&jobs)).await.expect("the store answers");
    }
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[all.len() * 99 / 100])
}

async fn transaction_ids(url: &str) -> i64 {
    let client = connect(url).await;
    let row = client.query_one("SELECT txid_snapshot_xmax(txid_current_snapshot())", &[]).await.expect("a number");
    row.get(0)
}

async fn churn(url: &str, jobs: usize) {
    let store = open(url).await;
    let ticking = tick_along(Arc::clone(&store));
    let fresh = claim_latency(&store, 500).await;
    let (ids, began) = (transaction_ids(url).await, Instant::now());
    let stop = Arc::new(AtomicBool::new(false));
    let (feeding, feeder) = (Arc::clone(&stop), Arc::clone(&store));
    let fed = tokio::spawn(async move {
        let mut left = jobs;
        while left > 0 && !feeding.load(Ordering::Relaxed) {
            feeder.submit(batch(100)).await.expect("the store answers").expect("jobs are taken in");
            left = left.saturating_sub(100);
        }
    });
    let rate = drain_some(&store, jobs, 20).await;
    stop.store(true, Ordering::Relaxed);
    fed.await.expect("the feeder ends");
    let ids = transaction_ids(url).await - ids;
    let old = claim_latency(&store, 500).await;
    ticking.abort();
    println!(
        "{jobs} jobs in {:.0} s, {rate:.0}/s; {:.3} transaction ids a job (wanted at most 3)",
        began.elapsed().as_secs_f64(),
        ids as f64 / jobs as f64
    );
    println!(
        "claim latency p50 {:.2} ms fresh, {:.2} ms after: ratio {:.2}; p99 {:.2} ms, {:.2} ms: ratio {:.2} (wanted at most 1.50)",
        fresh.0,
        old.0,
        old.0 / fresh.0,
        fresh.1,
        old.1,
        old.1 / fresh.1
    );
}
