//! Browsers: host names, headers of pages, no CORS.

use crate::common::Setup;
use crate::{call_as, first_token};

/// Checklist: S25, S27, S28.
#[tokio::test]
async fn pages_of_other_sites_reach_nothing() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for host in ["evil.test", "localhost.evil.test:7070"] {
        c.raw(format!("GET /v1/queues HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        c.reply().await.unwrap().problem(421, "misdirected_request");
    }
    let page = c.get("/").await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    for path in ["/v1/queues", "/v1/info", "/"] {
        c.send_bytes("GET", path, "Origin: https://evil.test\r\n", b"").await;
        let reply = c.reply().await.unwrap();
        assert!(!reply.headers.iter().any(|(name, _)| name.starts_with("access-control-")), "{path}");
    }
    c.send_bytes("OPTIONS", "/v1/queues", "Origin: https://evil.test\r\nAccess-Control-Request-Method: POST\r\n", b"")
        .await;
    assert_eq!(c.reply().await.unwrap().status, 405);
    // With a token, the host name does not matter: a page of another site does not have the token.
    let root = first_token(&mut c).await;
    let head = format!("GET /v1/queues HTTP/1.1\r\nHost: queue.example\r\nAuthorization: Bearer {root}\r\n\r\n");
    c.raw(head.as_bytes()).await;
    c.reply().await.unwrap().ok(200);
    call_as(&mut c, &root, "GET", "/v1/queues", None).await.ok(200);
    server.stop().await;
}

/// Checklist: S27. Origins are compared exactly.
#[tokio::test]
async fn pages_of_listed_origins_may_call_the_api() {
    let mut setup = Setup::memory();
    setup.cors_origins = vec!["https://jobs.example".to_owned()];
    let server = setup.start().await;
    let mut c = server.client().await;
    let ask = "Access-Control-Request-Method: PUT\r\n";
    c.send_bytes("OPTIONS", "/v1/queues/q", &format!("Origin: https://jobs.example\r\n{ask}"), b"").await;
    let answer = c.reply().await.unwrap();
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, Some("https://jobs.example")));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("PUT"));
    assert!(answer.header("access-control-allow-credentials").is_none());
    let put =
        |origin: &str| format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n");
    c.send_bytes("PUT", "/v1/queues/q", &put("https://jobs.example"), b"{}").await;
    let answer = c.reply().await.unwrap();
    assert_eq!((answer.status, answer.header("vary")), (201, Some("origin")));
    for origin in ["http://jobs.example", "https://jobs.example:8443", "https://jobs.example.evil.test", "null"] {
        c.send_bytes("PUT", "/v1/queues/q", &put(origin), b"{}").await;
        let answer = c.reply().await.unwrap();
        answer.problem(403, "forbidden");
        assert!(answer.header("access-control-allow-origin").is_none(), "{origin}");
    }
    server.stop().await;
}
