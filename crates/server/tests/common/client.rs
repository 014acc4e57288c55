//! An HTTP client that sends exactly the bytes of a test.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    address: SocketAddr,
    unread: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the body of a response with this status.
    #[track_caller]
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Returns the body of an error with this code; checks the problem document.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], "about:blank");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"));
        assert!(problem["request_id"].is_string(), "{problem}");
        assert!(["never", "safe", "unknown"].contains(&problem["retry"].as_str().unwrap()), "{problem}");
        problem
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, address, unread: Vec::new() }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.call("GET", path, None).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.call("POST", path, Some(body)).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: &str) -> Reply {
        self.call("PUT", path, Some(body)).await
    }

    pub(crate) async fn patch(&mut self, path: &str, body: &str) -> Reply {
        self.call("PATCH", path, Some(body)).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Reply {
        self.call("DELETE", path, None).await
    }

    pub(crate) async fn call(&mut self, method: &str, path: &str, body: Option<&str>) -> Reply {
        let headers = if body.is_some() { "Content-Type: application/json\r\n" } else { "" };
        self.send_bytes(method, path, headers, body.unwrap_or_default().as_bytes()).await;
        let reply = if method == "HEAD" { self.head().await } else { self.reply().await };
        reply.expect("the server closed the connection")
    }

    /// Sends a request without waiting for the response.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) {
        self.send_bytes(method, path, "Content-Type: application/json\r\n", body.as_bytes()).await;
    }

    pub(crate) async fn send_bytes(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.raw(&[head.as_bytes(), body].concat()).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        // A server that has already responded may have closed the connection.
        drop(self.stream.write_all(bytes).await);
    }

    /// Returns the next response; `None` if the connection is closed.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        let mut reply = self.head().await?;
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < length {
            assert!(self.read_more().await, "the connection was closed in the middle of an answer");
        }
        reply.body = self.unread.drain(..length).collect();
        Some(reply)
    }

    /// Reads the head of a response.
    async fn head(&mut self) -> Option<Reply> {
        let head_end = loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if !self.read_more().await {
                return None;
            }
        };
        let head: Vec<u8> = self.unread.drain(..head_end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status: u16 = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers: Vec<_> = lines.map(|line| header(line).unwrap()).collect();
        Some(Reply { status, headers, body: Vec::new() })
    }

    async fn read_more(&mut self) -> bool {
        let mut part = [0; 16 << 10];
        match self.stream.read(&mut part).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&part[..count]);
                true
            }
        }
    }

    pub(crate) async fn another(&self) -> Self {
        Self::connect(self.address).await
    }

    /// Submits a job. Returns its id.
    pub(crate) async fn submit(&mut self, queue: &str, job: &str) -> String {
        let reply = self.post(&format!("/v1/queues/{queue}/jobs"), job).await;
        reply.ok(201)["id"].as_str().unwrap().to_owned()
    }

    /// Claims the next job of a queue.
    pub(crate) async fn claim(&mut self, queue: &str) -> Value {
        let reply = self.post("/v1/claims", &format!(r#"{{"queues":["{queue}"],"worker":"w1"}}"#)).await;
        let mut answer = reply.ok(200);
        let jobs = answer["jobs"].as_array_mut().unwrap();
        assert_eq!(jobs.len(), 1, "{queue} has no job");
        jobs.remove(0)
    }

    pub(crate) async fn job(&mut self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).await.ok(200)
    }

    pub(crate) async fn state(&mut self, id: &str) -> String {
        self.job(id).await["state"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn advance(&mut self, by: &str) -> Value {
        self.post("/v1/clock/advance", &format!(r#"{{"by":"{by}"}}"#)).await.ok(200)
    }
}

/// Returns id and lease token of a claimed job.
pub(crate) fn lease(job: &Value) -> (String, String) {
    (job["id"].as_str().unwrap().to_owned(), job["lease"]["token"].as_str().unwrap().to_owned())
}
