//! Creation, expiry, revocation and bad tokens.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::{Server, ServerClock, ServerError, ServerOptions, StoreInfo};
use longshore_store::SystemClock;
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use serde_json::json;
use tokio::time::Instant;

use crate::common::Setup;
use crate::{ALL, call_as, create, first_token, id_of, send_as, text};

#[tokio::test]
async fn a_token_is_shown_once_and_listed_without_its_secret() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.get("/v1/jobs").await.ok(200);
    let root = first_token(&mut c).await;
    assert!(root.starts_with("lsk_") && root.len() == 85, "{}", root.len());
    c.get("/v1/jobs").await.problem(401, "unauthorized");
    let list = call_as(&mut c, &root, "GET", "/v1/tokens", None).await;
    let secret = root.rsplit('_').next().unwrap();
    assert!(!list.text().contains(secret));
    let token = &list.ok(200)["tokens"][0];
    assert_eq!((&token["id"], &token["name"]), (&json!(id_of(&root)), &json!("root")));
    assert_eq!(token["last_used_at"], "2026-11-15T00:00:00.000Z");
    for (body, field) in [
        (json!({"name": "", "actions": ["read"], "queues": ["*"]}), "name"),
        (json!({"name": "x", "actions": [], "queues": ["*"]}), "actions"),
        (json!({"name": "x", "actions": ["fly"], "queues": ["*"]}), "actions[0]"),
        (json!({"name": "x", "actions": ["read"], "queues": []}), "queues"),
        (json!({"name": "x", "actions": ["read"], "queues": ["a", "b*c"]}), "queues[1]"),
        (
            json!({"name": "x", "actions": ["read"], "queues": ["*"], "expires_at": "2026-11-15T00:00:00Z"}),
            "expires_at",
        ),
        (json!({"name": "x", "actions": ["read"]}), "queues"),
    ] {
        let reply = call_as(&mut c, &root, "POST", "/v1/tokens", Some(&body.to_string())).await;
        assert_eq!(reply.problem(400, "validation")["field"], field, "{body}");
    }
    call_as(&mut c, &root, "DELETE", "/v1/tokens/0000000000000000", None).await.problem(404, "token_not_found");
    call_as(&mut c, &root, "DELETE", &format!("/v1/tokens/{}", id_of(&root)), None).await.ok(204);
    // Without a token in the store, the server trusts its own machine again.
    c.get("/v1/jobs").await.ok(200);
    server.stop().await;
}

/// Every token may ask what it may do, whatever its actions and queues are.
#[tokio::test]
async fn a_caller_learns_what_it_may_do() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let open = c.get("/v1/tokens/self").await.ok(200);
    assert_eq!(open, json!({"id": null, "name": null, "actions": ALL, "queues": ["*"], "expires_at": null}));
    let root = first_token(&mut c).await;
    c.get("/v1/tokens/self").await.problem(401, "unauthorized");
    let body = json!({
        "name": "ci", "actions": ["submit"], "queues": ["mail", "reports.*"], "expires_at": "2026-11-15T01:00:00.000Z",
    });
    let token = text(&call_as(&mut c, &root, "POST", "/v1/tokens", Some(&body.to_string())).await.ok(201)["token"]);
    let mut expected = body.clone();
    expected["id"] = json!(id_of(&token));
    assert_eq!(call_as(&mut c, &token, "GET", "/v1/tokens/self", None).await.ok(200), expected);
    call_as(&mut c, &root, "DELETE", "/v1/tokens/self", None).await.problem(405, "method_not_allowed");
    server.stop().await;
}

#[tokio::test]
async fn a_token_expires_by_the_clock_of_the_store() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let body = json!({"name": "x", "actions": ["read"], "queues": ["*"], "expires_at": "2026-11-15T01:00:00Z"});
    let token = text(&call_as(&mut c, &root, "POST", "/v1/tokens", Some(&body.to_string())).await.ok(201)["token"]);
    call_as(&mut c, &token, "GET", "/v1/info", None).await.ok(200);
    call_as(&mut c, &root, "POST", "/v1/clock/advance", Some(r#"{"by":"1h"}"#)).await.ok(200);
    call_as(&mut c, &token, "GET", "/v1/info", None).await.problem(401, "unauthorized");
    server.stop().await;
}

/// Checklist: S06: the other server learns of it by polling.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_ends_long_polls_on_every_server() {
    let options = EmbeddedOptions::new(StoreLocation::Memory, Arc::new(SystemClock::new()), ClockMode::Real);
    let store = Arc::new(EmbeddedStore::open(options).unwrap());
    let one = Setup::memory().serve(store.clone(), ServerClock::Real).await;
    let mut c = one.client().await;
    let root = first_token(&mut c).await;
    let worker = create(&mut c, &root, "worker", &["work", "read", "submit"], &["mail"]).await;
    let two = Setup::memory().serve(store, ServerClock::Real).await;
    let (mut here, mut there, mut waits) = (one.client().await, two.client().await, two.client().await);
    let job = call_as(&mut c, &worker, "POST", "/v1/queues/mail/jobs", Some(r#"{"type":"t","hold":true}"#)).await;
    let wait = format!("/v1/jobs/{}/wait?timeout=50s", text(&job.ok(201)["id"]));
    let claim = r#"{"queues":["mail"],"wait":"50s"}"#;
    send_as(&mut here, &worker, "POST", "/v1/claims", Some(claim)).await;
    send_as(&mut there, &worker, "POST", "/v1/claims", Some(claim)).await;
    send_as(&mut waits, &worker, "GET", &wait, None).await;
    // The claims are parked before the token is revoked.
    let parked = Instant::now();
    loop {
        let metrics = call_as(&mut c, &root, "GET", "/metrics", None).await;
        if metrics.text().contains("longshore_waiting_claims 2") {
            break;
        }
        assert!(parked.elapsed() < Duration::from_secs(30), "the claims do not wait");
    }
    let revoked = Instant::now();
    call_as(&mut c, &root, "DELETE", &format!("/v1/tokens/{}", id_of(&worker)), None).await.ok(204);
    here.reply().await.unwrap().problem(401, "unauthorized");
    there.reply().await.unwrap().problem(401, "unauthorized");
    waits.reply().await.unwrap().problem(401, "unauthorized");
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    call_as(&mut there, &worker, "GET", "/v1/info", None).await.problem(401, "unauthorized");
    one.stop().await;
    two.stop().await;
}

/// Checklist: S07: bad tokens are slowed down and always answered with 401; a good one is not
/// affected.
#[tokio::test]
async fn many_bad_tokens_are_slowed_down_and_lock_no_one_out() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let (id, secret) = (id_of(&root), root.rsplit('_').next().unwrap());
    let other = if secret.starts_with('0') { "1" } else { "0" };
    let wrong_secret = format!("lsk_{id}_{other}{}", &secret[1..]);
    for bad in ["x", "lsk_", &wrong_secret, &format!("lsk_0000000000000000_{secret}"), &format!("{root}0")] {
        call_as(&mut c, bad, "GET", "/v1/info", None).await.problem(401, "unauthorized");
    }
    let started = Instant::now();
    for _ in 0..12 {
        call_as(&mut c, &wrong_secret, "GET", "/v1/info", None).await.problem(401, "unauthorized");
    }
    // 17 tries, 10 of them free: 50 + 100 + … + 350 ms.
    assert!(started.elapsed() >= Duration::from_millis(1_400), "{:?}", started.elapsed());
    call_as(&mut c, &root, "GET", "/v1/info", None).await.ok(200);
    server.stop().await;
}

/// Checklist: S01.
#[tokio::test]
async fn a_server_without_tokens_refuses_other_addresses() {
    let clock = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(EmbeddedOptions::new(StoreLocation::Memory, clock, ClockMode::Real)).unwrap();
    let store: Arc<dyn longshore_store::Store> = Arc::new(store);
    let options = || {
        let about = StoreInfo { kind: "test".to_owned(), durability: "none".to_owned() };
        ServerOptions::new("0.0.0.0:0".parse().unwrap(), Arc::clone(&store), about)
    };
    let refused = Server::bind(options()).await.unwrap_err();
    assert!(matches!(refused, ServerError::NoTokens { .. }), "{refused}");
    let spec = longshore_server::tokens::NewTokenSpec {
        name: "root".to_owned(),
        actions: ALL.iter().map(|word| longshore_core::access::TokenAction::parse(word).unwrap()).collect(),
        queues: vec!["*".to_owned()],
        expires_at: None,
        rate: None,
        burst: None,
    };
    longshore_server::tokens::create(&*store, spec).await.unwrap();
    Server::bind(options()).await.unwrap();
}

/// A stream that was opened while there was no token needs one as soon as there is.
#[tokio::test]
async fn the_first_token_ends_streams_without_one() {
    let server = Setup::memory().start().await;
    let mut stream = server.events("").await;
    let mut c = server.client().await;
    first_token(&mut c).await;
    while stream.next().await.is_some() {}
    server.stop().await;
}
