//! Measures a running server over real sockets.
//!
//! - `longshore-bench-http single ADDRESS TIMES`: submit, claim, complete on one connection
//! - `longshore-bench-http wake ADDRESS TIMES`: from a submission to the answer of a parked claim
//! - `longshore-bench-http load ADDRESS CONNECTIONS SECONDS`: submit, claim, complete on many
//!   connections
//! - `longshore-bench-http idle ADDRESS CLAIMS PID`: cost of parked claims to the server process
//!   PID, and the latency of one of them
//! - `longshore-bench-http events ADDRESS LISTENERS SILENT QUERY ROUNDS PID`: throughput of jobs
//!   with and without event listeners, of which some never read

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const JOB: &str =
    r#"{"type":"bench","payload":{"to":"customer@example.invalid","subject":"a payload of the usual size","n":12345}}"#;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.replace('_', "").parse::<usize>().expect("a number");
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    match words.as_slice() {
        ["single", server, times] => single(address(server), number(times)).await,
        ["wake", server, times] => wake(address(server), number(times)).await,
        ["load", server, connections, seconds] => load(address(server), number(connections), number(seconds)).await,
        ["idle", server, claims, pid] => idle(address(server), number(claims), number(pid)).await,
        ["events", server, listeners, silent, query, rounds, pid] => {
            let crowd = Crowd { listeners: number(listeners), silent: number(silent), query: (*query).to_owned() };
            events(address(server), &crowd, number(rounds), number(pid)).await;
        }
        _ => {
            eprintln!(
                "usage: longshore-bench-http single|wake ADDRESS TIMES | load ADDRESS CONNECTIONS SECONDS | idle ADDRESS CLAIMS PID | events ADDRESS LISTENERS SILENT QUERY ROUNDS PID"
            );
            std::process::exit(2);
        }
    }
}

struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    async fn connect(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).await.expect("the server is there");
        stream.set_nodelay(true).expect("a socket of ours");
        Self { stream, unread: Vec::with_capacity(4 << 10) }
    }

    async fn send(&mut self, path: &str, body: &str) {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await.expect("the server listens");
    }

    async fn answer(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.unread[..end]).expect("text").to_ascii_lowercase();
                assert!(head.starts_with("http/1.1 2"), "{head}\n{}", String::from_utf8_lossy(&self.unread[end..]));
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
                if self.unread.len() >= end + 4 + length {
                    let body = self.unread[end + 4..end + 4 + length].to_vec();
                    self.unread.drain(..end + 4 + length);
                    return String::from_utf8(body).expect("text");
                }
            }
            assert!(self.stream.read_buf(&mut self.unread).await.expect("the server answers") > 0, "closed");
        }
    }

    async fn call(&mut self, path: &str, body: &str) -> String {
        self.send(path, body).await;
        self.answer().await
    }
}

/// The first value of a field that is text.
fn field<'a>(json: &'a str, name: &str) -> &'a str {
    let start = json.find(&format!("\"{name}\":\"")).expect("the field") + name.len() + 4;
    json[start..].split('"').next().expect("its end")
}

async fn complete(client: &mut Client, claimed: &str) {
    let (id, token) = (field(claimed, "id"), field(claimed, "token"));
    client.call(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}","result":{{"ok":true}}}}"#)).await;
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
    println!("{what}: {} times, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, max {:?}", times.len(), at(1.0));
}

async fn timed(client: &mut Client, path: &str, body: &str, times: &mut Vec<Duration>) -> String {
    let started = Instant::now();
    let answer = client.call(path, body).await;
    times.push(started.elapsed());
    answer
}

async fn single(server: SocketAddr, times: usize) {
    let mut client = Client::connect(server).await;
    let (mut submits, mut claims, mut completes) = (Vec::new(), Vec::new(), Vec::new());
    let started = Instant::now();
    for _ in 0..times {
        timed(&mut client, "/v1/queues/single/jobs", JOB, &mut submits).await;
        let claimed = timed(&mut client, "/v1/claims", r#"{"queues":["single"],"worker":"bench"}"#, &mut claims).await;
        let (id, token) = (field(&claimed, "id"), field(&claimed, "token"));
        let (path, body) = (format!("/v1/jobs/{id}/complete"), format!(r#"{{"lease":"{token}"}}"#));
        timed(&mut client, &path, &body, &mut completes).await;
    }
    let per_second = times as f64 * 3.0 / started.elapsed().as_secs_f64();
    report("submit", &mut submits);
    report("claim", &mut claims);
    report("complete", &mut completes);
    println!("one connection: {per_second:.0} requests/s");
}

async fn wake(server: SocketAddr, times: usize) {
    let (mut producer, mut worker) = (Client::connect(server).await, Client::connect(server).await);
    let mut taken = Vec::new();
    for _ in 0..times {
        worker.send("/v1/claims", r#"{"queues":["wake"],"worker":"bench","wait":"60s"}"#).await;
        // Time to get there: it is the wake-up that is measured, not the arrival of the claim.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let started = Instant::now();
        producer.send("/v1/queues/wake/jobs", JOB).await;
        let claimed = worker.answer().await;
        taken.push(started.elapsed());
        producer.answer().await;
        complete(&mut worker, &claimed).await;
    }
    report("submission sent to waiting claim answered", &mut taken);
}

async fn load(server: SocketAddr, connections: usize, seconds: usize) {
    let mut taken = run_load(server, connections, seconds).await;
    let per_second = taken.len() as f64 / seconds as f64;
    report("request", &mut taken);
    println!("{connections} connections: {per_second:.0} requests/s");
}

async fn run_load(server: SocketAddr, connections: usize, seconds: usize) -> Vec<Duration> {
    let end = Instant::now() + Duration::from_secs(seconds as u64);
    let mut workers = Vec::new();
    for number in 0..connections {
        workers.push(tokio::spawn(async move {
            let mut client = Client::connect(server).await;
            let queue = format!("load{}", number % 4);
            let (jobs, claim) =
                (format!("/v1/queues/{queue}/jobs"), format!(r#"{{"queues":["{queue}"],"worker":"w{number}"}}"#));
            let mut taken = Vec::new();
            while Instant::now() < end {
                timed(&mut client, &jobs, JOB, &mut taken).await;
                let claimed = timed(&mut client, "/v1/claims", &claim, &mut taken).await;
                if claimed.contains("\"id\"") {
                    let started = Instant::now();
                    complete(&mut client, &claimed).await;
                    taken.push(started.elapsed());
                }
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.expect("no panic"));
    }
    taken
}

/// Event listeners of a round.
struct Crowd {
    listeners: usize,
    /// How many of them never read.
    silent: usize,
    /// `-`, or a query such as `queue=load0`.
    query: String,
}

/// Connections of the load, and seconds of each round.
const LOAD: (usize, usize) = (16, 8);

/// Alternates rounds without and with listeners.
async fn events(server: SocketAddr, crowd: &Crowd, rounds: usize, pid: usize) {
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    run_load(server, LOAD.0, 2).await;
    let before = resident(pid);
    for round in 0..rounds {
        let figure = run_load(server, LOAD.0, LOAD.1).await.len() as f64 / LOAD.1 as f64;
        alone.push(figure);
        let (silent, readers, bytes) = open_listeners(server, crowd).await;
        let with = run_load(server, LOAD.0, LOAD.1).await.len() as f64 / LOAD.1 as f64;
        watched.push(with);
        let memory = resident(pid);
        let read = bytes.load(Ordering::Relaxed);
        println!(
            "round {round}: {figure:.0} requests/s alone, {with:.0} with listeners, {read} bytes of events, {memory} KiB"
        );
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        drop((silent, readers));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let median = |figures: &mut Vec<f64>| {
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let ratio = median(&mut watched) / median(&mut alone);
    println!("{} listeners ({} never read): ratio {ratio:.3}; {before} KiB before", crowd.listeners, crowd.silent);
}

/// Opens listeners. Returns those that never read, the tasks of the others, and their bytes.
async fn open_listeners(
    server: SocketAddr,
    crowd: &Crowd,
) -> (Vec<TcpStream>, Vec<tokio::task::JoinHandle<()>>, Arc<AtomicUsize>) {
    let (mut silent, mut readers, bytes) = (Vec::new(), Vec::new(), Arc::new(AtomicUsize::new(0)));
    for number in 0..crowd.listeners {
        let query = crowd.query.replace('#', &(number % 4).to_string());
        let path = if query == "-" { "/v1/events".to_owned() } else { format!("/v1/events?{query}") };
        let mut stream = TcpStream::connect(server).await.expect("the server takes it");
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server listens");
        if number < crowd.silent {
            silent.push(stream);
            continue;
        }
        let bytes = Arc::clone(&bytes);
        readers.push(tokio::spawn(async move {
            let mut part = vec![0; 16 << 10];
            while let Ok(count) = stream.read(&mut part).await
                && count > 0
            {
                bytes.fetch_add(count, Ordering::Relaxed);
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    (silent, readers, bytes)
}

/// Resident memory of a process, in KiB.
fn resident(pid: usize) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has a size");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Processor time of a process, in ticks of a hundredth of a second.
fn ticks(pid: usize) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("its fields").split_whitespace().collect();
    [11, 12].iter().map(|place| fields[*place].parse::<u64>().expect("a number")).sum()
}

/// How many of the waiting claims are served in the end.
const SERVED: usize = 200;

async fn idle(server: SocketAddr, claims: usize, pid: usize) {
    let before = resident(pid);
    let mut waiting = Vec::new();
    for number in 0..claims {
        // Several addresses of ours: each has only so many ports.
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = SocketAddr::from(([127, 0, 0, 2 + u8::try_from(number / 5_000).expect("not so many")], 0));
        socket.bind(from).expect("an address of this machine");
        let stream = socket.connect(server).await.expect("the server takes it");
        let mut client = Client { stream, unread: Vec::new() };
        // The last ones wait each for a queue of their own, so that it is known who will be served.
        let queue = number.saturating_sub(claims.saturating_sub(SERVED));
        client.send("/v1/claims", &format!(r#"{{"queues":["idle-{queue}"],"worker":"w{number}","wait":"60s"}}"#)).await;
        waiting.push(client);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let with = resident(pid);
    println!(
        "{claims} waiting claims: {} KiB more, {:.1} KiB each",
        with - before,
        (with - before) as f64 / claims as f64
    );
    let used = ticks(pid);
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("processor time of the server in 5 s of waiting: {} ms", (ticks(pid) - used) * 10);
    let mut producer = Client::connect(server).await;
    let mut taken = Vec::new();
    let first = claims.saturating_sub(SERVED);
    for (queue, client) in waiting.iter_mut().skip(first).enumerate().skip(1) {
        let started = Instant::now();
        producer.send(&format!("/v1/queues/idle-{queue}/jobs"), JOB).await;
        client.answer().await;
        taken.push(started.elapsed());
        producer.answer().await;
    }
    report("submission to waiting claim among them", &mut taken);
}
