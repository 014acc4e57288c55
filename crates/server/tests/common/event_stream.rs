//! A client of the event stream that reads bytes only when a test asks for them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for an event. No test depends on its length.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct EventStream {
    stream: TcpStream,
    pub(crate) head: String,
    /// Bytes in chunked encoding.
    encoded: Vec<u8>,
    text: String,
    is_ended: bool,
    /// Cursor of the last comment.
    pub(crate) cursor: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamEvent {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl EventStream {
    pub(crate) async fn open(address: SocketAddr, path: &str, last_event_id: Option<&str>) -> Self {
        let header = last_event_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        Self::open_with(address, path, &header).await
    }

    /// Opens a stream with a token.
    pub(crate) async fn open_as(address: SocketAddr, path: &str, token: &str) -> Self {
        Self::open_with(address, path, &format!("Authorization: Bearer {token}\r\n")).await
    }

    async fn open_with(address: SocketAddr, path: &str, header: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{header}\r\n").as_bytes()).await.unwrap();
        let (head, cursor) = (String::new(), String::new());
        let mut opened = Self { stream, head, encoded: Vec::new(), text: String::new(), is_ended: false, cursor };
        let end = loop {
            if let Some(end) = opened.encoded.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(opened.fill().await, "the connection was closed before the head");
        };
        let head: Vec<u8> = opened.encoded.drain(..end).collect();
        opened.head = String::from_utf8(head).unwrap();
        assert!(opened.head.starts_with("HTTP/1.1 200"), "{}", opened.head);
        // The first comment: the stream is open.
        while opened.cursor.is_empty() {
            assert!(opened.block().await.is_none_or(|block| block.is_none()), "an event before the first comment");
        }
        opened
    }

    async fn fill(&mut self) -> bool {
        let mut part = [0; 64 << 10];
        match self.stream.read(&mut part).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.encoded.extend_from_slice(&part[..count]);
                true
            }
        }
    }

    /// Decodes the chunks that have arrived.
    fn decode(&mut self) {
        while let Some(line) = self.encoded.windows(2).position(|window| window == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.encoded[..line]).unwrap(), 16).unwrap();
            if self.encoded.len() < line + size + 4 {
                return;
            }
            self.text.push_str(std::str::from_utf8(&self.encoded[line + 2..line + 2 + size]).unwrap());
            self.encoded.drain(..line + size + 4);
            self.is_ended |= size == 0;
        }
    }

    /// Returns the next block: an event, or `Some(None)` for a comment. `None`: the stream ended.
    async fn block(&mut self) -> Option<Option<StreamEvent>> {
        let end = loop {
            // The head may have arrived together with the first chunk.
            self.decode();
            if let Some(end) = self.text.find("\n\n") {
                break end;
            }
            if self.is_ended || !self.fill().await {
                return None;
            }
        };
        let block: String = self.text.drain(..end + 2).collect();
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        if let Some(cursor) = block.strip_prefix(": cursor ") {
            cursor.trim_end().clone_into(&mut self.cursor);
            return Some(None);
        }
        let data = serde_json::from_str(field("data").unwrap()).unwrap();
        Some(Some(StreamEvent { name: field("event").unwrap().to_owned(), id: field("id").map(str::to_owned), data }))
    }

    /// Returns the next event; `None` if the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<StreamEvent> {
        let next = async {
            loop {
                match self.block().await {
                    None => return None,
                    Some(Some(event)) => return Some(event),
                    Some(None) => {}
                }
            }
        };
        timeout(EVENT_TIMEOUT, next).await.expect("no event came")
    }

    /// Returns the next event, which has this name.
    pub(crate) async fn expect(&mut self, name: &str) -> StreamEvent {
        let event = self.next().await.expect("the stream ended");
        assert_eq!(event.name, name, "{event:?}");
        event
    }

    /// Returns the next transition of a job, as `from>to:cause`.
    pub(crate) async fn step(&mut self) -> String {
        step(&self.expect("job").await.data)
    }
}

/// Returns a transition as `from>to:cause`.
pub(crate) fn step(data: &Value) -> String {
    let text = |name: &str| data[name].as_str().unwrap_or("-").to_owned();
    format!("{}>{}:{}", text("from"), text("to"), text("cause"))
}
