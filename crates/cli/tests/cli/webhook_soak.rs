//! Webhooks of a server that is killed all the time, to a receiver that misbehaves.
//!
//! `WEBHOOK_KILLS` is the number of kills: 5 by default, 200 in `make soak-webhooks`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use longshore::monotonic;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, TIMEOUT};

/// A small generator: the same kills and responses in every run, as far as timing allows.
struct SharedRng(AtomicU64);

impl SharedRng {
    fn below(&self, bound: u64) -> u64 {
        let next =
            |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        let state = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).unwrap();
        (state >> 33) % bound
    }
}

/// What the receiver has accepted: job id, path and event type.
type Accepted = BTreeSet<(String, String, String)>;

struct Receiver {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// By path: the endpoint and the callbacks have different secrets.
    secrets: Mutex<BTreeMap<String, String>>,
    accepted: Mutex<Accepted>,
    /// Messages of each kind of response.
    responses: Mutex<BTreeMap<&'static str, u64>>,
    defects: Mutex<Vec<String>>,
    is_friendly: AtomicBool,
    rng: SharedRng,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            secrets: Mutex::default(),
            accepted: Mutex::default(),
            responses: Mutex::default(),
            defects: Mutex::default(),
            is_friendly: AtomicBool::new(false),
            rng: SharedRng(AtomicU64::new(7)),
        });
        let own = Arc::clone(&shared);
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                std::thread::Builder::new().spawn(move || own.answer(stream)).unwrap();
            }
        };
        std::thread::Builder::new().spawn(accept).unwrap();
        Self { url, shared }
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) {
        let Some((path, headers, body)) = read(&mut stream) else { return };
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let secret = self.secrets.lock().unwrap().get(&path).cloned().unwrap_or_default();
        let verifier = standardwebhooks::Webhook::new(&secret).unwrap();
        if let Err(error) = verifier.verify(&body, &headers) {
            self.defects.lock().unwrap().push(format!("{path}: {error}: {message}"));
        }
        let is_friendly = self.is_friendly.load(Ordering::SeqCst);
        let (kind, head) = match (is_friendly, self.rng.below(10)) {
            (true, _) | (false, 0..=3) => ("200", "200 OK"),
            (false, 4) => ("500", "500 Error"),
            (false, 5) => ("redirect", "302 Found\r\nlocation: http://127.0.0.1:1/"),
            (false, 6) => ("429", "429 Busy\r\nretry-after: 3"),
            // The endpoint would be disabled, and nothing is recorded for a disabled endpoint.
            (false, 7) if path == "/callback" => ("410", "410 Gone"),
            (false, 8) => ("closed", ""),
            (false, _) => ("hang", ""),
        };
        *self.responses.lock().unwrap().entry(kind).or_default() += 1;
        if ["200", "410"].contains(&kind) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            self.accepted.lock().unwrap().insert((text(&message["data"]["id"]), path, text(&message["type"])));
        }
        if kind == "hang" {
            // Until the server gives up, or is killed.
            drop(stream.read(&mut [0; 1]));
        } else if !head.is_empty() {
            drop(stream.write_all(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n").as_bytes()));
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<(String, HeaderMap, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        match stream.read(&mut piece) {
            Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
            Ok(_) | Err(_) => return None,
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let path = head.split(' ').nth(1)?.to_owned();
        let pair = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?))
        };
        let headers: HeaderMap = head.lines().skip(1).filter_map(pair).collect();
        let length: usize = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
        if bytes.len() >= end + 4 + length {
            return Some((path, headers, bytes[end + 4..end + 4 + length].to_vec()));
        }
    }
}

/// Sends a request on a connection of its own. `None` if the server was killed before it answered.
fn call(url: &str, method: &str, path: &str, body: &Value) -> Option<Value> {
    let address = url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// Submits jobs and ends each in one of three ways, until the server does not answer.
fn use_until_killed(url: &str, receiver: &Receiver, submitted: &mut Vec<String>, rng: &SharedRng) -> Option<()> {
    loop {
        let callback = format!("{}/callback", receiver.url);
        let job = json!({"type": "t", "callback_url": callback, "retry": {"limit": 1}});
        let id = call(url, "POST", "/v1/queues/q/jobs", &job)?["id"].as_str()?.to_owned();
        submitted.push(id.clone());
        if rng.below(3) == 0 {
            call(url, "POST", &format!("/v1/jobs/{id}/cancel"), &json!({}))?;
        } else {
            let claimed = call(url, "POST", "/v1/claims", &json!({"queues": ["q"], "worker": "w"}))?;
            let job = &claimed["jobs"][0];
            if let (Some(id), lease) = (job["id"].as_str(), &job["lease"]["token"]) {
                let verb = if rng.below(2) == 0 { "complete" } else { "fail" };
                let error = json!({"category": "permanent", "message": "no"});
                let body =
                    if verb == "fail" { json!({"lease": lease, "error": error}) } else { json!({"lease": lease}) };
                call(url, "POST", &format!("/v1/jobs/{id}/{verb}"), &body)?;
            }
        }
        if rng.below(4) == 0 {
            call(url, "POST", "/v1/clock/advance", &json!({"by": "2s"}))?;
        }
    }
}

fn start(data: &std::path::Path) -> Server {
    Server::start(&["--virtual-clock", "--webhook-allow", "127.0.0.0/8", "--data", data.to_str().unwrap()])
}

/// Returns what the ended jobs of the store owe. Every acknowledged job is in the store.
fn expected(url: &str, submitted: &[String]) -> Accepted {
    let (mut expected, mut ids, mut cursor) = (Accepted::new(), BTreeSet::new(), String::new());
    loop {
        let page = call(url, "GET", &format!("/v1/jobs?limit=1000&fields=id,state{cursor}"), &json!({})).unwrap();
        for job in page["jobs"].as_array().unwrap() {
            let (id, state) = (job["id"].as_str().unwrap(), job["state"].as_str().unwrap());
            ids.insert(id.to_owned());
            if ["completed", "failed", "dead_letter", "cancelled"].contains(&state) {
                for path in ["/callback", "/endpoint"] {
                    expected.insert((id.to_owned(), path.to_owned(), format!("job.{state}")));
                }
            }
        }
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(submitted.iter().filter(|id| !ids.contains(*id)).count(), 0, "acknowledged jobs are missing");
    expected
}

/// Every terminal state is delivered at least once with a valid signature, and nothing else is.
///
/// Rules Webhooks.
#[test]
#[expect(clippy::disallowed_methods, reason = "the server is killed at a random time")]
fn every_end_is_delivered_by_a_server_that_is_killed_at_random() {
    let kills: u64 = std::env::var("WEBHOOK_KILLS").map_or(5, |value| value.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let (data, receiver, rng) = (directory.path().join("data"), Receiver::start(), SharedRng(AtomicU64::new(1)));
    let server = start(&data);
    let hook = json!({"url": format!("{}/endpoint", receiver.url)});
    let secret = |value: Option<Value>| value.unwrap()["secret"].as_str().unwrap().to_owned();
    let secrets = [
        ("/endpoint", secret(call(&server.url, "PUT", "/v1/webhooks/all", &hook))),
        ("/callback", secret(call(&server.url, "POST", "/v1/webhooks/callbacks/rotate", &json!({})))),
    ];
    *receiver.shared.secrets.lock().unwrap() = secrets.map(|(path, secret)| (path.to_owned(), secret)).into();
    assert!(server.stop().success());
    let mut submitted = Vec::new();
    for _ in 0..kills {
        let server = start(&data);
        let url = server.url.clone();
        let lifetime = Duration::from_millis(rng.below(300));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(lifetime);
                server.signal(Signal::KILL);
            });
            use_until_killed(&url, &receiver, &mut submitted, &rng);
        });
        server.wait();
    }
    let during = receiver.shared.accepted.lock().unwrap().len();
    receiver.shared.is_friendly.store(true, Ordering::SeqCst);
    let server = start(&data);
    // The leases of workers that the last kill has stopped end first: no job ends later.
    call(&server.url, "POST", "/v1/clock/advance", &json!({"by": "10m"})).unwrap();
    let expected = expected(&server.url, &submitted);
    let until = monotonic() + TIMEOUT;
    let missing = || expected.difference(&receiver.shared.accepted.lock().unwrap()).cloned().collect::<Vec<_>>();
    while !missing().is_empty() {
        assert!(monotonic() < until, "{} of {} are missing: {:?}", missing().len(), expected.len(), missing().first());
        call(&server.url, "POST", "/v1/clock/advance", &json!({"by": "1h"})).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let accepted = receiver.shared.accepted.lock().unwrap();
    assert_eq!(
        accepted.difference(&expected).collect::<Vec<_>>(),
        Vec::<&(String, String, String)>::new(),
        "from nowhere"
    );
    assert_eq!(*receiver.shared.defects.lock().unwrap(), [""; 0]);
    let responses = receiver.shared.responses.lock().unwrap();
    println!(
        "{kills} kills, {} jobs, {} deliveries expected, {during} before the last start, {responses:?}",
        submitted.len(),
        expected.len()
    );
}
