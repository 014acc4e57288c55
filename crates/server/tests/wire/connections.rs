//! Connections: limits and timeouts.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use crate::common::{Client, Setup};

/// A server with short timeouts.
fn short_timeouts() -> Setup {
    let mut setup = Setup::memory();
    setup.limits.head_timeout = Duration::from_millis(200);
    setup.limits.body_timeout = Duration::from_millis(200);
    setup.limits.write_timeout = Duration::from_millis(200);
    setup.limits.idle_timeout = Duration::from_millis(600);
    setup
}

/// Reads until the server closes the connection.
async fn closed(c: &mut Client) -> Duration {
    let started = Instant::now();
    let mut rest = Vec::new();
    drop(timeout(Duration::from_secs(20), c.stream.read_to_end(&mut rest)).await.expect("left hanging"));
    started.elapsed()
}

/// F44.
#[tokio::test]
async fn slow_clients_time_out() {
    let server = short_timeouts().start().await;
    // A partial head.
    let mut c = server.client().await;
    c.raw(b"POST /v1/claims HTTP/1.1\r\nHost: te").await;
    assert!(closed(&mut c).await >= Duration::from_millis(150));
    // No bytes at all, and no bytes after a response.
    let mut c = server.client().await;
    assert!(closed(&mut c).await >= Duration::from_millis(150));
    let mut c = server.client().await;
    c.get("/livez").await.ok(200);
    assert!(closed(&mut c).await >= Duration::from_millis(500));
    // A partial body.
    let mut c = server.client().await;
    c.raw(b"POST /v1/claims HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"queues\"").await;
    c.reply().await.unwrap().problem(400, "bad_request");
    closed(&mut c).await;
    server.stop().await;
}

/// The rest of a body has a second when the server stops.
#[tokio::test]
async fn a_stalled_body_does_not_hold_the_shutdown() {
    let mut setup = Setup::memory();
    setup.limits.drain_timeout = Duration::from_secs(3_600);
    setup.limits.body_timeout = Duration::from_secs(3_600);
    let mut server = setup.start().await;
    let mut stalled = server.client().await;
    stalled.raw(b"POST /v1/claims HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"queues\"").await;
    let mut large = server.client().await;
    large.raw(b"POST /v1/queues/q/jobs HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n[").await;
    // Both requests have begun: connections are served in the order in which they were accepted.
    for _ in 0..2 {
        server.client().await.get("/livez").await.ok(200);
    }
    server.request_stop();
    for c in [&mut stalled, &mut large] {
        let reply = timeout(Duration::from_secs(60), c.reply()).await.expect("left hanging").unwrap();
        reply.problem(503, "store_unavailable");
    }
    timeout(Duration::from_secs(60), server.stopped()).await.expect("the shutdown is held").unwrap();
}

/// A client that sends single bytes times out like one that sends none.
#[tokio::test]
async fn a_dripping_body_times_out() {
    let server = short_timeouts().start().await;
    let mut c = server.client().await;
    c.raw(b"POST /v1/claims HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
        .await;
    let started = Instant::now();
    let dripping = async {
        loop {
            c.raw(b" ").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut byte = [0; 1];
            if let Ok(Ok(_)) = timeout(Duration::from_millis(1), c.stream.read(&mut byte)).await {
                return;
            }
        }
    };
    timeout(Duration::from_secs(10), dripping).await.expect("no timeout response");
    assert!(started.elapsed() < Duration::from_secs(5));
    server.stop().await;
}

/// A waiting claim is not idle.
#[tokio::test]
async fn a_long_poll_does_not_time_out() {
    let server = short_timeouts().start().await;
    let mut c = server.client().await;
    let reply = c.post("/v1/claims", r#"{"queues":["q"],"wait":"1500ms"}"#).await.ok(200);
    assert!(reply["jobs"].as_array().unwrap().is_empty());
    c.get("/livez").await.ok(200);
    server.stop().await;
}

/// S10: the exact limits of a head.
#[tokio::test]
async fn heads_are_limited() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let path = |bytes: usize| format!("/livez?{}", "x".repeat(bytes - 7));
    c.get(&path(8 << 10)).await.problem(400, "validation");
    let response = c.get(&path((8 << 10) + 1)).await.problem(400, "bad_request");
    assert!(response["detail"].as_str().unwrap().contains("8192"));
    // The client sends two headers with every request.
    let headers = |count: usize| (0..count).map(|n| format!("X-{n}: 1\r\n")).collect::<String>();
    c.send_bytes("GET", "/livez", &headers(62), b"").await;
    c.reply().await.unwrap().ok(200);
    c.send_bytes("GET", "/livez", &headers(63), b"").await;
    c.reply().await.unwrap().problem(400, "bad_request");
    let header = |bytes: usize| format!("X-Large: {}\r\n", "x".repeat(bytes));
    c.send_bytes("GET", "/livez", &header(16_000), b"").await;
    c.reply().await.unwrap().ok(200);
    c.send_bytes("GET", "/livez", &header(16_400), b"").await;
    c.reply().await.unwrap().problem(400, "bad_request");
    let mut c = server.client().await;
    c.send_bytes("GET", "/livez", &header(1 << 20), b"").await;
    let reply = c.reply().await;
    assert!(reply.is_none_or(|reply| (400..500).contains(&reply.status)));
    server.stop().await;
}

/// Rules Sizes.
#[tokio::test]
async fn bodies_are_limited() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let spaces = |bytes: usize| format!("{}{}", " ".repeat(bytes - 16), r#"{"queues":["q"]}"#);
    c.post("/v1/claims", &spaces(32 << 20)).await.ok(200);
    c.send_bytes("POST", "/v1/claims", "Content-Type: application/json\r\nContent-Length: 33554433\r\n", b"").await;
    // Two different lengths are invalid.
    assert!(c.reply().await.is_none_or(|reply| reply.status == 400));
    let mut c = server.client().await;
    c.raw(
        b"POST /v1/claims HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 33554433\r\n\r\n",
    )
    .await;
    c.reply().await.unwrap().problem(413, "payload_too_large");
    // A chunked body is counted as it arrives.
    let mut c = server.client().await;
    c.raw(b"POST /v1/claims HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    for _ in 0..33 {
        c.raw(chunk.as_bytes()).await;
    }
    c.reply().await.unwrap().problem(413, "payload_too_large");
    let mut c = server.client().await;
    c.raw(b"POST /v1/claims HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"queues\r\n8\r\n\":[\"q\"]}\r\n0\r\n\r\n").await;
    c.reply().await.unwrap().ok(200);
    server.stop().await;
}

/// S15: requests with ambiguous length are rejected.
#[tokio::test]
async fn ambiguous_framing_is_rejected() {
    let server = short_timeouts().start().await;
    let doubtful = [
        "POST /v1/claims HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /v1/claims HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n",
        "POST /v1/claims HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
        "POST /v1/claims HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "POST /v1/claims HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n",
        "GET  /livez HTTP/1.1\r\n\r\n",
        "GET /livez HTTP/3.0\r\n\r\n",
        "GET /livez\x00 HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for request in doubtful {
        let mut c = server.client().await;
        c.raw(request.as_bytes()).await;
        let reply = timeout(Duration::from_secs(20), c.reply()).await.expect("left hanging");
        assert!(reply.as_ref().is_none_or(|reply| (400..500).contains(&reply.status)), "{request:?}: {reply:?}");
    }
    server.client().await.get("/livez").await.ok(200);
    server.stop().await;
}

#[tokio::test]
async fn connections_are_limited_and_released() {
    let mut setup = Setup::memory();
    setup.limits.connections_max = 3;
    setup.limits.connections_per_address_max = 2;
    let server = setup.start().await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    one.get("/livez").await.ok(200);
    two.get("/livez").await.ok(200);
    let mut three = server.client().await;
    three.send("GET", "/livez", "").await;
    assert!(three.reply().await.is_none(), "an address has two of them");
    drop(one);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut again = server.client().await;
        again.send("GET", "/livez", "").await;
        if again.reply().await.is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "there was never room again");
    }
    server.stop().await;
}

/// Several requests on one connection, sent before the first response.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for number in 0..20 {
        c.send("POST", &format!("/v1/queues/q{number}/jobs"), r#"{"type":"t"}"#).await;
    }
    for number in 0..20 {
        assert_eq!(c.reply().await.unwrap().ok(201)["seq"], number + 1);
    }
    server.stop().await;
}

/// A page of another site can make a browser POST without a body, which must be rejected.
#[tokio::test]
async fn cross_site_requests_only_read() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/queue/o", "{}").await;
    for (method, path, headers) in [
        ("POST", "/v1/queues/default/pause", "Origin: http://evil.example\r\n"),
        ("POST", "/v1/queues/default/pause", "Sec-Fetch-Site: cross-site\r\n"),
        ("DELETE", "/v1/queues/o", "Sec-Fetch-Site: same-site\r\n"),
        ("GET", "/queue/o/job", "Sec-Fetch-Site: cross-site\r\n"),
    ] {
        c.send_bytes(method, path, headers, b"").await;
        c.reply().await.unwrap().problem(403, "forbidden");
    }
    for headers in ["Origin: http://test\r\n", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
        c.send_bytes("POST", "/v1/queues/default/resume", headers, b"").await;
        c.reply().await.unwrap().ok(200);
    }
    c.send_bytes("GET", "/v1/queues", "Sec-Fetch-Site: cross-site\r\n", b"").await;
    c.reply().await.unwrap().ok(200);
    server.stop().await;
}

/// Many clients send the whole body before they read the response.
#[tokio::test]
async fn a_client_that_sends_the_whole_body_first_gets_the_error() {
    let server = Setup::memory().start().await;
    for (path, kind, bytes, status, code) in [
        ("/v1/queues/q/jobs", "application/json", (32 << 20) + 1, 413, "payload_too_large"),
        ("/v1/nope", "application/json", 8 << 20, 404, "not_found"),
        ("/v1/queues/q/jobs", "text/plain", 8 << 20, 415, "unsupported_media_type"),
    ] {
        let mut c = server.client().await;
        let body = vec![b'x'; bytes];
        c.send_bytes("POST", path, &format!("Content-Type: {kind}\r\n"), &body).await;
        c.reply().await.expect("an answer").problem(status, code);
    }
    server.stop().await;
}
