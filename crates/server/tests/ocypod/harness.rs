//! A server per test, in virtual time, and a client that sends exact bytes.

use std::fmt::Write as _;
use std::path::Path;

use longshore_core::Duration;
use longshore_server::Limits;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Setup, TestServer};

pub(crate) struct World(TestServer);

impl World {
    pub(crate) async fn new() -> Self {
        Self(Setup::memory().start().await)
    }

    pub(crate) async fn on_disk(path: &Path) -> Self {
        Self(Setup::directory(path).start().await)
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        let mut setup = Setup::memory();
        setup.limits = limits;
        Self(setup.start().await)
    }

    /// With the system clock.
    pub(crate) async fn in_real_time() -> Self {
        Self(Setup::memory().real_time().start().await)
    }

    pub(crate) async fn client(&self) -> Client {
        Client { stream: TcpStream::connect(self.0.address).await.unwrap(), unread: Vec::new() }
    }

    pub(crate) async fn advance(&self, by: Duration) {
        let body = format!(r#"{{"by":"{}ms"}}"#, by.as_millis());
        assert_eq!(self.client().await.post("/v1/clock/advance", &body).await.status, 200);
    }

    pub(crate) async fn advance_secs(&self, secs: u64) {
        self.advance(Duration::from_secs(secs)).await;
    }

    pub(crate) async fn stop(self) {
        self.0.stop().await;
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

    /// Expects this status and this JSON, byte for byte.
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

    /// Expects 204 without a body and without `Content-Length`.
    #[track_caller]
    pub(crate) fn done(&self) {
        assert_eq!((self.status, self.body.as_str()), (204, ""), "{self:?}");
        assert_eq!((self.header("content-length"), self.header("content-type")), (None, None), "{self:?}");
    }

    /// Expects an error of Ocypod itself.
    #[track_caller]
    pub(crate) fn says(&self, status: u16, text: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, text), "{self:?}");
        assert_eq!(self.header("content-type"), Some("text/html; charset=utf-8"), "{self:?}");
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
    }

    /// Expects an error of parsing or of the rules.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.body.contains(part), "{part:?} is not in {self:?}");
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"), "{self:?}");
    }

    /// Expects an error without text.
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
        let whole: Vec<u8> = head.bytes().chain(body.iter().copied()).collect();
        self.stream.write_all(&whole).await.unwrap();
        self.reply(method).await
    }

    /// Reads the next response; a response to HEAD has no body.
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

    /// Creates a new queue.
    pub(crate) async fn make(&mut self, queue: &str, settings: &str) {
        assert_eq!(self.put(&format!("/queue/{queue}"), settings).await.status, 201);
    }

    /// Submits a job. Returns its id.
    pub(crate) async fn add(&mut self, queue: &str, job: &str) -> u64 {
        let reply = self.post(&format!("/queue/{queue}/job"), job).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.body.parse().unwrap()
    }

    /// Claims the next job, which must be this one.
    pub(crate) async fn take(&mut self, queue: &str, id: u64) {
        let taken = self.get(&format!("/queue/{queue}/job")).await.json();
        assert_eq!(taken["id"], id);
    }

    /// Submits a job and claims it.
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
