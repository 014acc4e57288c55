//! Attempts against receivers on loopback: statuses, redirects, and hostile responses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::time::Duration;

use longshore_webhooks::client::{Message, SystemDialer, WebhookClient};
use longshore_webhooks::guard::AddressGuard;
use longshore_webhooks::outcome::{AttemptResult, DeliveryFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    (listener, url)
}

async fn send(url: &str) -> AttemptResult {
    let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let client = WebhookClient::new(SystemDialer, guard).unwrap().with_timeout(Duration::from_secs(2));
    let body = "{\"a\":1}".into();
    client.send(url, &Message { id: "msg_1".into(), timestamp: 7, signature: "v1,abc".into(), body }).await
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4_096];
    while !text.ends_with('}') {
        let read = stream.read(&mut buffer).await.unwrap();
        text.push_str(std::str::from_utf8(buffer.get(..read).unwrap()).unwrap());
        if read == 0 {
            break;
        }
    }
    text
}

/// Answers one request with these bytes, and returns the request and the result of the attempt.
async fn answer(response: Vec<u8>) -> (String, AttemptResult) {
    let (listener, url) = listener().await;
    let receiver = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        // The client may close before everything is written.
        let _closed = stream.write_all(&response).await;
        request
    };
    tokio::join!(receiver, send(&url))
}

fn response(status: u16) -> AttemptResult {
    AttemptResult::Response { status, retry_after: None }
}

#[tokio::test]
async fn request_has_the_headers_of_the_specification() {
    let (request, result) = answer(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()).await;
    assert_eq!(result, response(204));
    assert!(request.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{request}");
    for header in [
        "webhook-id: msg_1",
        "webhook-timestamp: 7",
        "webhook-signature: v1,abc",
        "content-type: application/json",
        "content-length: 7",
        "connection: close",
        "user-agent: Longshore/",
        "host: 127.0.0.1:",
    ] {
        assert!(request.contains(header), "{header}: {request}");
    }
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let (target, inner) = listener().await;
        let head = format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {inner}\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(answer(head.into_bytes()).await.1, response(status));
        let connected = tokio::time::timeout(Duration::from_millis(20), target.accept()).await;
        assert!(connected.is_err(), "the redirect was followed");
    }
}

#[tokio::test]
async fn pause_of_a_busy_receiver_is_read() {
    let head = b"HTTP/1.1 429 Busy\r\nretry-after: 90\r\ncontent-length: 0\r\n\r\n".to_vec();
    let pause = Some(Duration::from_secs(90));
    assert_eq!(answer(head).await.1, AttemptResult::Response { status: 429, retry_after: pause });
}

#[tokio::test]
async fn hostile_responses_are_bounded() {
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 8 << 20]].concat();
    assert_eq!(answer(endless).await.1, response(200));
    let headers: String = (0..10_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let many = format!("HTTP/1.1 200 OK\r\n{headers}\r\n").into_bytes();
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)).into_bytes();
    for invalid in [many, long, b"SSH-2.0-x\r\n".to_vec(), Vec::new(), b"HTTP/1.1 2".to_vec()] {
        let result = answer(invalid).await.1;
        assert_eq!(result, AttemptResult::Failure(DeliveryFailure::InvalidResponse));
    }
}

#[tokio::test]
async fn silent_receivers_time_out() {
    let (listener, url) = listener().await;
    let (accepted, result) = tokio::join!(listener.accept(), send(&url));
    assert_eq!(result, AttemptResult::Failure(DeliveryFailure::Timeout));
    drop(accepted);
    drop(listener);
    assert_eq!(send(&url).await, AttemptResult::Failure(DeliveryFailure::ConnectionRefused));
}

#[tokio::test]
async fn plain_receiver_behind_https_is_a_failure_of_tls() {
    let (listener, url) = listener().await;
    let receiver = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _closed = stream.write_all(b"HTTP/1.1 400 Bad\r\n\r\n").await;
    };
    let ((), result) = tokio::join!(receiver, async { send(&url.replace("http:", "https:")).await });
    assert_eq!(result, AttemptResult::Failure(DeliveryFailure::TlsFailed));
}

/// The status has arrived in time: a slow body does not turn it into a failure.
#[tokio::test]
async fn a_success_whose_body_never_comes_is_a_success() {
    let (listener, url) = listener().await;
    let receiver = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n").await.unwrap();
        // Until the client closes.
        let _closed = stream.read(&mut [0; 1]).await;
    };
    let ((), result) = tokio::join!(receiver, send(&url));
    assert_eq!(result, response(200));
}
