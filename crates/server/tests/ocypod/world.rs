//! A server of its own for each test, in virtual time, and a client that sends exactly what it is told.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::{Duration, Timestamp};
use longshore_server::{Limits, Options, Server, ServerError, StoreAbout, TimeControl};
use longshore_store::{Clock, Store, SystemClock, VirtualClock};
use longshore_store_embedded::{EmbeddedStore, Options as StoreOptions, Place, TimeKind};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// 2026-11-15T12:00:00Z
const NOON: i64 = 1_794_744_000_000;

pub(crate) struct World {
    pub(crate) address: SocketAddr,
    clock: Arc<VirtualClock>,
    store: Arc<dyn Store>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServerError>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::at(Place::Memory).await
    }

    pub(crate) async fn at(place: Place) -> Self {
        Self::with(place, Limits::default()).await
    }

    pub(crate) async fn with(place: Place, limits: Limits) -> Self {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(NOON)));
        let time = TimeControl::Virtual(Arc::clone(&clock));
        Self::start(place, limits, Arc::clone(&clock), clock, time, TimeKind::Virtual).await
    }

    /// Time passes by itself.
    pub(crate) async fn in_real_time() -> Self {
        let unused = Arc::new(VirtualClock::new(Timestamp::from_millis(NOON)));
        let system = Arc::new(SystemClock::new());
        Self::start(Place::Memory, Limits::default(), unused, system, TimeControl::Real, TimeKind::Real).await
    }

    async fn start(
        place: Place,
        limits: Limits,
        clock: Arc<VirtualClock>,
        of_store: Arc<dyn Clock>,
        time: TimeControl,
        kind: TimeKind,
    ) -> Self {
        let mut options = StoreOptions::new(place, of_store, kind);
        options.reserve_bytes = 0;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(options).unwrap());
        let about = StoreAbout { kind: "test".to_owned(), durability: "none".to_owned() };
        let mut options = Options::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Arc::clone(&store), about);
        options.time = time;
        options.limits = limits;
        let server = Server::bind(options).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(async move { drop(stopped.await) }));
        Self { address, clock, store, stop, serving }
    }

    pub(crate) async fn client(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), unread: Vec::new() }
    }

    /// Moves the clock from one deadline to the next.
    pub(crate) async fn advance(&self, by: Duration) {
        let target = self.clock.now() + by;
        loop {
            let ticked = self.store.tick(NonZeroUsize::new(1_000).unwrap()).await.unwrap();
            match ticked.next {
                Some(next) if next <= target => self.clock.advance_to(next),
                Some(_) | None => break,
            }
        }
        self.clock.advance_to(target);
    }

    pub(crate) async fn advance_secs(&self, secs: u64) {
        self.advance(Duration::from_secs(secs)).await;
    }

    /// Stops and lets the store go.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.serving.await.unwrap().unwrap();
        drop(self.store);
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Exactly this status and this JSON, byte for byte.
    #[track_caller]
    pub(crate) fn is(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, body), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// A 204: no body, and no word about its length.
    #[track_caller]
    pub(crate) fn done(&self) {
        assert_eq!((self.status, self.body.as_str()), (204, ""), "{self:?}");
        assert_eq!((self.header("content-length"), self.header("content-type")), (None, None), "{self:?}");
    }

    /// A refusal in the dialect's own prose.
    #[track_caller]
    pub(crate) fn says(&self, status: u16, text: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, text), "{self:?}");
        assert_eq!(self.header("content-type"), Some("text/html; charset=utf-8"), "{self:?}");
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
    }

    /// A refusal of what could not be read, or of what the rules forbid.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.body.contains(part), "{part:?} is not in {self:?}");
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"), "{self:?}");
    }

    /// A refusal without a word.
    #[track_caller]
    pub(crate) fn silent(&self, status: u16) {
        assert_eq!((self.status, self.body.as_str()), (status, ""), "{self:?}");
        assert_eq!((self.header("content-type"), self.header("allow")), (None, None), "{self:?}");
    }
}

impl Client {
    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.call("GET", path, None).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Reply {
        self.call("DELETE", path, None).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: &str) -> Reply {
        self.call("PUT", path, Some(body)).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.call("POST", path, Some(body)).await
    }

    pub(crate) async fn patch(&mut self, path: &str, body: &str) -> Reply {
        self.call("PATCH", path, Some(body)).await
    }

    pub(crate) async fn call(&mut self, method: &str, path: &str, body: Option<&str>) -> Reply {
        let json = [("content-type", "application/json")];
        self.send(method, path, if body.is_some() { &json } else { &[] }, body.unwrap_or_default().as_bytes()).await
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if !body.is_empty() {
            write!(head, "content-length: {}\r\n", body.len()).unwrap();
        }
        head.push_str("\r\n");
        self.stream.write_all(head.as_bytes()).await.unwrap();
        self.stream.write_all(body).await.unwrap();
        self.reply(method).await
    }

    /// The next answer; to a HEAD it has no body, whatever its length says.
    pub(crate) async fn reply(&mut self, method: &str) -> Reply {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            self.read_more().await;
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        let headers: Vec<_> = lines.map(header).collect();
        let length = headers.iter().find(|(name, _)| name == "content-length" && method != "HEAD");
        let length: usize = length.map_or(0, |(_, length)| length.parse().unwrap());
        while self.unread.len() < length {
            self.read_more().await;
        }
        let body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        Reply { status, headers, body }
    }

    async fn read_more(&mut self) {
        let mut part = [0; 16 << 10];
        let count = self.stream.read(&mut part).await.unwrap();
        assert!(count > 0, "the server closed the connection");
        self.unread.extend_from_slice(&part[..count]);
    }

    /// A queue that must be new.
    pub(crate) async fn make(&mut self, queue: &str, settings: &str) {
        assert_eq!(self.put(&format!("/queue/{queue}"), settings).await.status, 201);
    }

    /// A job; its id.
    pub(crate) async fn add(&mut self, queue: &str, job: &str) -> u64 {
        let reply = self.post(&format!("/queue/{queue}/job"), job).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.body.parse().unwrap()
    }

    /// Takes the next job, which must be this one.
    pub(crate) async fn take(&mut self, queue: &str, id: u64) {
        let taken = self.get(&format!("/queue/{queue}/job")).await.json();
        assert_eq!(taken["id"], id);
    }

    /// Adds a job and takes it at once.
    pub(crate) async fn started(&mut self, queue: &str, job: &str) -> u64 {
        let id = self.add(queue, job).await;
        self.take(queue, id).await;
        id
    }

    pub(crate) async fn set(&mut self, id: u64, status: &str) {
        self.patch(&format!("/job/{id}"), &format!(r#"{{"status":"{status}"}}"#)).await.done();
    }

    pub(crate) async fn job(&mut self, id: u64) -> Value {
        self.get(&format!("/job/{id}")).await.json()
    }

    pub(crate) async fn status(&mut self, id: u64) -> String {
        self.get(&format!("/job/{id}/status")).await.json().as_str().unwrap().to_owned()
    }
}
