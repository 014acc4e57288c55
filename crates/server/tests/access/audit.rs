//! The audit log.

use serde_json::{Value, json};

use crate::common::{Client, Setup};
use crate::{call_as, create, first_token, id_of, send_as};

fn rows(page: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let row = |entry: &Value| (text(&entry["name"]), text(&entry["target"]), text(&entry["outcome"]));
    page["entries"].as_array().unwrap().iter().map(row).collect()
}

/// Checklist: S37.
#[tokio::test]
async fn calls_of_operators_and_administrators_are_listed_newest_first() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/mail", "{}").await.ok(201);
    c.put("/v1/queues/secret", "{}").await.ok(201);
    let root = first_token(&mut c).await;
    let token = create(&mut c, &root, "ops", &["operate", "read", "submit"], &["mail"]).await;
    call_as(&mut c, &token, "POST", "/v1/queues/mail/pause", None).await.ok(200);
    call_as(&mut c, &token, "POST", "/v1/queues/secret/pause", None).await.problem(404, "queue_not_found");
    call_as(&mut c, &token, "DELETE", "/v1/queues/mail", None).await.problem(403, "forbidden");
    call_as(&mut c, &token, "GET", "/v1/jobs", None).await.ok(200);
    call_as(&mut c, &token, "POST", "/v1/queues/mail/jobs", Some(r#"{"type":"t"}"#)).await.ok(201);
    call_as(&mut c, &token, "GET", "/v1/audit", None).await.problem(403, "forbidden");
    let page = call_as(&mut c, &root, "GET", "/v1/audit", None).await.ok(200);
    let row = |name: &str, target: &str, outcome: &str| (name.to_owned(), target.to_owned(), outcome.to_owned());
    let listed = rows(&page);
    let mut expected = vec![
        row("-", "PUT /v1/queues/mail", "ok"),
        row("-", "PUT /v1/queues/secret", "ok"),
        row("-", "POST /v1/tokens", "ok"),
        row("root", "POST /v1/tokens", "ok"),
        row("ops", "POST /v1/queues/mail/pause", "ok"),
        row("ops", "POST /v1/queues/secret/pause", "refused"),
        row("ops", "DELETE /v1/queues/mail", "refused"),
    ];
    expected.reverse();
    assert_eq!(listed, expected);
    let pause =
        page["entries"].as_array().unwrap().iter().find(|entry| entry["target"] == "POST /v1/queues/mail/pause");
    let pause = pause.unwrap();
    assert_eq!((&pause["token"], &pause["action"]), (&json!(id_of(&token)), &json!("operate")));
    assert_eq!((&pause["address"], &pause["at"]), (&json!("127.0.0.1"), &json!("2026-11-15T00:00:00.000Z")));
    server.stop().await;
}

#[tokio::test]
async fn the_log_has_pages_and_is_kept_for_90_days() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for name in ["a", "b", "c", "d", "e"] {
        c.put(&format!("/v1/queues/{name}"), "{}").await.ok(201);
        c.advance("1s").await;
    }
    let (mut targets, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = c.get(&format!("/v1/audit?limit=3{cursor}")).await.ok(200);
        targets.extend(rows(&page).into_iter().map(|(_, target, _)| target));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    targets.retain(|target| target.starts_with("PUT"));
    assert_eq!(targets, ["e", "d", "c", "b", "a"].map(|name| format!("PUT /v1/queues/{name}")));
    c.get("/v1/audit?cursor=x").await.problem(400, "validation");
    let before = c.get("/v1/audit?before=2026-11-15T00:00:02.000Z").await.ok(200);
    let puts: Vec<_> =
        rows(&before).into_iter().map(|(_, target, _)| target).filter(|target| target.starts_with("PUT")).collect();
    assert_eq!(puts, ["PUT /v1/queues/b", "PUT /v1/queues/a"]);
    assert_eq!(c.get("/v1/audit?before=x").await.problem(400, "validation")["field"], "before");
    c.advance("91d").await;
    let page = c.get("/v1/audit").await.ok(200);
    assert_eq!(rows(&page).len(), 1, "only the advance is left: {page}");
    server.stop().await;
}

/// A token without rights cannot fill the disk: ten refused calls per minute are listed.
#[tokio::test]
async fn refused_calls_of_a_token_are_listed_ten_times_a_minute() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let reader = create(&mut c, &root, "reader", &["read"], &["*"]).await;
    let refused = async |c: &mut Client| {
        for number in 0..15 {
            call_as(c, &reader, "DELETE", &format!("/v1/queues/q{number}"), None).await.problem(403, "forbidden");
        }
        let page = call_as(c, &root, "GET", "/v1/audit?limit=1000", None).await.ok(200);
        rows(&page).iter().filter(|(name, ..)| name == "reader").count()
    };
    assert_eq!(refused(&mut c).await, 10);
    call_as(&mut c, &root, "POST", "/v1/clock/advance", Some(r#"{"by":"1m"}"#)).await.ok(200);
    assert_eq!(refused(&mut c).await, 20);
    server.stop().await;
}

/// A client that leaves before the answer does not keep its call out of the log.
#[tokio::test]
async fn a_call_is_listed_although_its_client_has_left() {
    let server = Setup::memory().real_time().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let mut paused = Vec::new();
    for number in 0.. {
        let queue = format!("q{number}");
        call_as(&mut c, &root, "PUT", &format!("/v1/queues/{queue}"), Some("{}")).await.ok(201);
        let mut leaving = server.client().await;
        send_as(&mut leaving, &root, "POST", &format!("/v1/queues/{queue}/pause"), None).await;
        drop(leaving);
        let shown = call_as(&mut c, &root, "GET", &format!("/v1/queues/{queue}"), None).await.ok(200);
        if shown["paused"] == true {
            paused.push(format!("POST /v1/queues/{queue}/pause"));
        }
        if paused.len() == 10 {
            break;
        }
    }
    // The entries follow the changes: the calls go on by themselves.
    loop {
        let page = call_as(&mut c, &root, "GET", "/v1/audit?limit=1000", None).await.ok(200);
        let listed: Vec<String> = rows(&page).into_iter().map(|(_, target, _)| target).collect();
        if paused.iter().all(|target| listed.contains(target)) {
            break;
        }
    }
    server.stop().await;
}
