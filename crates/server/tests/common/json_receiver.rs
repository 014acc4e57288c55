//! A receiver of JSON on loopback: of webhooks, or of traces.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) struct JsonReceiver {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    bodies: mpsc::UnboundedReceiver<(String, Value)>,
}

impl JsonReceiver {
    /// Answers every request with this status.
    pub(crate) async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, bodies) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, status, sender.clone()));
            }
        });
        Self { url, bodies }
    }

    /// Returns the head and the body of the next request.
    pub(crate) async fn next(&mut self) -> (String, Value) {
        tokio::time::timeout(Duration::from_secs(20), self.bodies.recv()).await.expect("no request came").unwrap()
    }
}

async fn answer(mut stream: TcpStream, status: u16, sender: mpsc::UnboundedSender<(String, Value)>) {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(json) = serde_json::from_str(body) {
            drop(sender.send((head.to_owned(), json)));
            let response = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
            drop(stream.write_all(response.as_bytes()).await);
            return;
        }
    }
}
