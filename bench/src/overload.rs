//! `overload`: the throughput of a server at its peak and at a multiple of it, what the workers see
//! meanwhile, and how soon it has recovered.
//! `slow-clients`: the latency of normal load beside slow and idle connections.
//!
//! Both need a running server on loopback without tokens, on a store of its own.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::host::{Host, Latencies};
use crate::raw_http::{RawClient, get, metric, post};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const SUBMIT: &str = "/v1/queues/overload/jobs";
/// Lanes of workers that send heartbeats all the time.
const HEARTBEATS: usize = 8;
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub struct OverloadOptions {
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1:7070")]
    server: SocketAddr,
    /// Seconds of each phase
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Jobs per submission
    #[arg(long, default_value_t = 100)]
    batch: usize,
    /// Connections of the phase that measures the peak
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Connections of the overload
    #[arg(long, default_value_t = 6_000)]
    overload_connections: usize,
    /// Offered load, as a multiple of the peak
    #[arg(long, default_value_t = 5)]
    factor: u32,
}

#[derive(Args)]
pub struct SlowClientOptions {
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1:7070")]
    server: SocketAddr,
    /// Process of the server, whose memory and descriptors are read
    #[arg(long)]
    pid: Option<u32>,
    /// Seconds of each phase
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Connections that send a byte per second
    #[arg(long, default_value_t = 1_000)]
    slow: usize,
    /// Connections that have sent one request and stay open
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Requests per second of the normal load
    #[arg(long, default_value_t = 500)]
    rate: u32,
}

pub fn run(options: &OverloadOptions) -> Result<(), String> {
    block_on(measure(options))
}

pub fn run_slow_clients(options: &SlowClientOptions) -> Result<(), String> {
    block_on(measure_slow_clients(options))
}

fn block_on(work: impl Future<Output = Outcome<()>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work).map_err(|error| error.to_string())
}

/// What the clients of a phase have seen.
#[derive(Default)]
struct Seen {
    served: u64,
    refused: u64,
    other: u64,
    served_after: Latencies,
    refused_after: Latencies,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.served += other.served;
        self.refused += other.refused;
        self.other += other.other;
        self.served_after.0.extend(other.served_after.0);
        self.refused_after.0.extend(other.refused_after.0);
    }

    fn count(&mut self, status: u16, took: Duration) {
        match status {
            200 | 201 => {
                self.served += 1;
                self.served_after.0.push(took);
            }
            429 | 503 => {
                self.refused += 1;
                self.refused_after.0.push(took);
            }
            _ => self.other += 1,
        }
    }

    fn show(&mut self, name: &str, elapsed: Duration, jobs: usize) -> f64 {
        let rate = self.served as f64 * jobs as f64 / elapsed.as_secs_f64();
        println!(
            "{name}: {rate:.0} jobs/s accepted, {} served, {} refused, {} other",
            self.served, self.refused, self.other
        );
        for (kind, latencies) in [("served", &mut self.served_after), ("refused", &mut self.refused_after)] {
            if !latencies.0.is_empty() {
                println!("  {kind}: {}", latencies.show());
            }
        }
        rate
    }
}

/// When the next request of an open load is due.
struct Arrivals {
    start: Instant,
    sent: AtomicU64,
    /// Requests per second; `None`: as soon as the one before is answered.
    rate: Option<f64>,
}

impl Arrivals {
    fn new(rate: Option<f64>) -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), sent: AtomicU64::new(0), rate })
    }

    async fn next(&self) {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        if let Some(rate) = self.rate {
            sleep_until((self.start + Duration::from_secs_f64(number as f64 / rate)).into()).await;
        }
    }
}

async fn load(
    server: SocketAddr,
    connections: usize,
    request: Arc<Vec<u8>>,
    arrivals: &Arc<Arrivals>,
    end: Instant,
) -> Outcome<Seen> {
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (request, arrivals) = (Arc::clone(&request), Arc::clone(arrivals));
        tasks.spawn(async move {
            let mut seen = Seen::default();
            let mut client = RawClient::connect(server).await?;
            while Instant::now() < end {
                arrivals.next().await;
                let started = Instant::now();
                if started >= end {
                    break;
                }
                let response = client.call(&request).await?;
                seen.count(response.status, started.elapsed());
            }
            Ok::<_, io::Error>(seen)
        });
    }
    let mut all = Seen::default();
    while let Some(seen) = tasks.join_next().await {
        all.add(seen??);
    }
    Ok(all)
}

/// Workers that hold a job each and send heartbeats until the flag is set.
async fn hold_jobs(server: SocketAddr, stop: Arc<AtomicBool>) -> Outcome<JoinSet<io::Result<Seen>>> {
    let mut tasks = JoinSet::new();
    let mut client = RawClient::connect(server).await?;
    for _ in 0..HEARTBEATS {
        client.call(&post("/v1/queues/held/jobs", r#"{"type":"held"}"#)).await?;
        let claimed = client.call(&post("/v1/claims", r#"{"queues":["held"],"lease":"5m"}"#)).await?;
        let claimed: Value = serde_json::from_slice(&claimed.body)?;
        let job = &claimed["jobs"][0];
        let (id, lease) = (job["id"].as_str().unwrap_or_default(), job["lease"]["token"].as_str().unwrap_or_default());
        let request = post(&format!("/v1/jobs/{id}/heartbeat"), &format!(r#"{{"lease":"{lease}"}}"#));
        let (mut client, stop) = (RawClient::connect(server).await?, Arc::clone(&stop));
        tasks.spawn(async move {
            let mut seen = Seen::default();
            while !stop.load(Ordering::Relaxed) {
                sleep(HEARTBEAT_INTERVAL).await;
                let started = Instant::now();
                seen.count(client.call(&request).await?.status, started.elapsed());
            }
            Ok(seen)
        });
    }
    Ok(tasks)
}

async fn with_heartbeats<T>(server: SocketAddr, name: &str, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = hold_jobs(server, Arc::clone(&stop)).await?;
    let started = Instant::now();
    let done = work.await;
    stop.store(true, Ordering::Relaxed);
    let mut seen = Seen::default();
    while let Some(worker) = workers.join_next().await {
        seen.add(worker??);
    }
    seen.show(name, started.elapsed(), 1);
    done
}

async fn measure(options: &OverloadOptions) -> Outcome<()> {
    let OverloadOptions { server, batch, .. } = *options;
    let phase = Duration::from_secs(options.seconds);
    let job = r#"{"type":"overload","payload":{"text":"0123456789012345678901234567890123456789"}}"#;
    let body = if batch == 1 { job.to_owned() } else { format!("[{}]", vec![job; batch].join(",")) };
    let request = Arc::new(post(SUBMIT, &body));
    let host = Host::now();

    let closed = Arrivals::new(None);
    let started = Instant::now();
    let mut peak = with_heartbeats(server, "heartbeats at the peak", async {
        load(server, options.connections, Arc::clone(&request), &closed, started + phase).await
    })
    .await?;
    let peak_rate = peak.show("peak", started.elapsed(), batch);

    let offered = peak_rate / batch as f64 * f64::from(options.factor);
    let arrivals = Arrivals::new(Some(offered));
    let started = Instant::now();
    let mut overload = with_heartbeats(server, "heartbeats under overload", async {
        load(server, options.overload_connections, Arc::clone(&request), &arrivals, started + phase).await
    })
    .await?;
    let elapsed = started.elapsed();
    let sent = (overload.served + overload.refused + overload.other) as f64 / elapsed.as_secs_f64();
    let rate = overload.show("overload", elapsed, batch);
    println!("  offered {offered:.0} requests/s, sent {sent:.0}; kept {:.0} % of the peak", rate * 100.0 / peak_rate);

    // Recovered: ten submissions in a row are accepted within 50 ms. The server closes a connection
    // without a request after 10 s, so the probe connects now.
    let ended = Instant::now();
    let mut probe = RawClient::connect(server).await?;
    let mut good = 0;
    let single = post(SUBMIT, job);
    while good < 10 {
        let started = Instant::now();
        let response = probe.call(&single).await?;
        let is_good = response.status == 201 && started.elapsed() < Duration::from_millis(50);
        good = if is_good { good + 1 } else { 0 };
    }
    println!("recovered after {:.3} s", ended.elapsed().as_secs_f64());
    println!("refused in total: {}", metric(&mut probe, "longshore_http_requests_overload_refused_total").await?);
    println!("steal: {:.1} %", host.steal_percent_since());
    Ok(())
}

/// Sends a request byte by byte until the server closes the connection, then begins again.
async fn send_slowly(server: SocketAddr, number: usize, stop: Arc<AtomicBool>) {
    let head = b"POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n";
    // Every second client stalls in the body, the others in the head.
    let at_once = if number.is_multiple_of(2) { head.len() } else { 10 };
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = RawClient::connect(server).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        if client.send(&head[..at_once]).await.is_err() {
            continue;
        }
        while !stop.load(Ordering::Relaxed) && client.send(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Memory in MiB and open descriptors of a process.
fn footprint(pid: Option<u32>) -> String {
    let Some(pid) = pid else { return String::new() };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    format!(", {} MiB, {files} descriptors", kib >> 10)
}

async fn measure_slow_clients(options: &SlowClientOptions) -> Outcome<()> {
    let SlowClientOptions { server, pid, .. } = *options;
    let phase = Duration::from_secs(options.seconds);
    let request = Arc::new(post(SUBMIT, r#"{"type":"normal","payload":{"n":1}}"#));
    let host = Host::now();
    let normal = async || {
        let arrivals = Arrivals::new(Some(f64::from(options.rate)));
        load(server, 32, Arc::clone(&request), &arrivals, Instant::now() + phase).await
    };
    // The first load fills caches and pools.
    drop(normal().await?);
    println!("before{}", footprint(pid));
    let before = normal().await?.show("normal load alone", phase, 1);

    let stop = Arc::new(AtomicBool::new(false));
    let mut slow = JoinSet::new();
    for number in 0..options.slow {
        slow.spawn(send_slowly(server, number, Arc::clone(&stop)));
    }
    let mut idle = Vec::new();
    for _ in 0..options.idle {
        let mut client = RawClient::connect(server).await?;
        client.call(&get("/livez")).await?;
        idle.push(client);
    }
    let mut probe = RawClient::connect(server).await?;
    println!("open connections: {}{}", metric(&mut probe, "longshore_connections").await?, footprint(pid));
    let beside = normal().await?.show("normal load beside them", phase, 1);
    println!("  throughput {:.0} % of that alone", beside * 100.0 / before);

    stop.store(true, Ordering::Relaxed);
    drop(idle);
    while slow.join_next().await.is_some() {}
    let ended = Instant::now();
    while metric(&mut probe, "longshore_connections").await? > 1.0 && ended.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(100)).await;
    }
    let left = metric(&mut probe, "longshore_connections").await? - 1.0;
    println!("connections left {:.1} s after they ended: {left}{}", ended.elapsed().as_secs_f64(), footprint(pid));
    println!("steal: {:.1} %", host.steal_percent_since());
    if left > 0.0 { Err("connections are left".into()) } else { Ok(()) }
}
