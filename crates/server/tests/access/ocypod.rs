//! The Ocypod dialect with tokens.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::common::Setup;
use crate::{call_as, create, first_token};

#[tokio::test]
async fn ocypod_takes_bearer_and_basic() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/queue/mail", "{}").await.ok(201);
    c.put("/queue/secret", "{}").await.ok(201);
    let root = first_token(&mut c).await;
    let token = create(&mut c, &root, "t", &["submit", "work", "read"], &["mail"]).await;
    let reply = c.get("/queue").await;
    assert_eq!(reply.status, 401);
    assert!(reply.headers.iter().any(|(name, value)| name == "www-authenticate" && value == "Bearer"));
    assert_eq!(call_as(&mut c, &token, "GET", "/queue", None).await.text(), r#"["mail"]"#);
    let basic =
        |password: &str| format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("any:{password}")));
    c.send_bytes("GET", "/queue/mail/size", &basic(&token), b"").await;
    assert_eq!(c.reply().await.unwrap().text(), "0");
    c.send_bytes("GET", "/queue/mail/size", &basic("wrong"), b"").await;
    assert_eq!(c.reply().await.unwrap().status, 401);
    // Basic is for the dialect only.
    c.send_bytes("GET", "/v1/info", &basic(&token), b"").await;
    assert_eq!(c.reply().await.unwrap().status, 401);
    assert_eq!(call_as(&mut c, &token, "GET", "/queue/secret/size", None).await.status, 404);
    assert_eq!(call_as(&mut c, &token, "POST", "/queue/secret/job", Some("{}")).await.status, 404);
    let job = call_as(&mut c, &token, "POST", "/queue/mail/job", Some("{}")).await;
    assert_eq!(job.status, 201);
    assert_eq!(call_as(&mut c, &token, "PUT", "/queue/mail", Some("{}")).await.status, 403);
    assert_eq!(call_as(&mut c, &token, "GET", "/queue/mail/job", None).await.status, 200);
    let path = format!("/job/{}", job.text());
    assert_eq!(call_as(&mut c, &token, "DELETE", &path, None).await.status, 403);
    let foreign = create(&mut c, &root, "f", &["submit", "work", "read"], &["other"]).await;
    assert_eq!(call_as(&mut c, &foreign, "GET", &path, None).await.status, 404);
    assert_eq!(call_as(&mut c, &foreign, "DELETE", &path, None).await.status, 404);
    server.stop().await;
}
