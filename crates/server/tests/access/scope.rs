//! What a token with some queues sees and changes.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, EventStream, Setup};
use crate::{call_as, create, first_token, text};

fn queues_of(rows: &Value) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| text(&row["queue"])).collect()
}

#[tokio::test]
async fn listings_show_only_the_queues_of_the_token() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for queue in ["mail", "secret", "mail", "reports.eu", "secret", "mail"] {
        c.submit(queue, r#"{"type":"t","tags":["x"]}"#).await;
    }
    let root = first_token(&mut c).await;
    let exact = create(&mut c, &root, "exact", &["read", "operate"], &["mail", "reports.eu"]).await;
    let prefix = create(&mut c, &root, "prefix", &["read", "operate"], &["ma*", "rep*"]).await;
    for token in [exact, prefix] {
        let jobs = call_as(&mut c, &token, "GET", "/v1/jobs", None).await.ok(200);
        assert_eq!(queues_of(&jobs["jobs"]), ["mail", "reports.eu", "mail", "mail"]);
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = call_as(&mut c, &token, "GET", &format!("/v1/jobs?limit=1{cursor}"), None).await.ok(200);
            seen.extend(queues_of(&page["jobs"]));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen, ["mail", "reports.eu", "mail", "mail"]);
        let foreign = call_as(&mut c, &token, "GET", "/v1/jobs?queue=secret", None).await.ok(200);
        assert_eq!(foreign, json!({"jobs": [], "next": null}));
        let queues = call_as(&mut c, &token, "GET", "/v1/queues", None).await.ok(200);
        let names: Vec<String> =
            queues["queues"].as_array().unwrap().iter().map(|queue| text(&queue["name"])).collect();
        assert_eq!(names, ["mail", "reports.eu"]);
        let stats = call_as(&mut c, &token, "GET", "/v1/stats", None).await.ok(200);
        assert_eq!(stats["totals"]["counts"]["scheduled"], 4, "{stats}");
        assert!(stats["queues"].get("secret").is_none(), "{stats}");
        let series = call_as(&mut c, &token, "GET", "/v1/stats?window=5m", None).await.ok(200);
        assert!(series["queues"].get("secret").is_none(), "{series}");
        let totals = series["totals"]["series"].as_array().unwrap();
        assert_eq!(totals.last().unwrap()["ready"], 4, "{series}");
        let hidden = call_as(&mut c, &token, "GET", "/v1/stats?queue=secret", None).await;
        hidden.problem(404, "queue_not_found");
        let bulk = r#"{"action":"cancel","filter":{"type":"t"},"dry_run":true}"#;
        assert_eq!(call_as(&mut c, &token, "POST", "/v1/jobs/bulk", Some(bulk)).await.ok(200)["matched"], 4);
        call_as(&mut c, &token, "GET", "/metrics", None).await.problem(403, "forbidden");
    }
    server.stop().await;
}

/// Pages and events have the schedules of the token's queues only, and no name of another one.
#[tokio::test]
async fn schedules_of_other_queues_are_not_listed_and_have_no_events() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let own = create(&mut c, &root, "own", &["read"], &["mail"]).await;
    let put = async |c: &mut Client, name: &str, queue: &str| {
        let body = json!({"every": "1m", "queue": queue, "job": {"type": "t"}}).to_string();
        call_as(c, &root, "PUT", &format!("/v1/schedules/{name}"), Some(&body)).await.ok(201);
    };
    let mut events = EventStream::open_as(server.address, "/v1/events", &own).await;
    for (name, queue) in [("a", "secret"), ("b", "mail"), ("c", "secret"), ("d", "mail"), ("e", "secret")] {
        put(&mut c, name, queue).await;
    }
    call_as(&mut c, &root, "POST", "/v1/schedules/d/pause", Some("{}")).await.ok(200);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = events.expect("schedule").await;
        seen.push(format!("{} {}", text(&event.data["name"]), text(&event.data["change"])));
    }
    assert_eq!(seen, ["b created", "d created", "d paused"]);
    let first = call_as(&mut c, &own, "GET", "/v1/schedules?limit=1", None).await.ok(200);
    assert_eq!((&first["schedules"][0]["name"], &first["next"]), (&json!("b"), &json!("b")));
    let last = call_as(&mut c, &own, "GET", "/v1/schedules?limit=1&cursor=b", None).await.ok(200);
    assert_eq!((&last["schedules"][0]["name"], &last["next"]), (&json!("d"), &json!(null)));
    server.stop().await;
}

/// A token with some queues sees what needs attention in them, and nothing of the whole server.
#[tokio::test]
async fn attention_shows_only_the_queues_of_the_token() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for queue in ["mail", "secret"] {
        c.submit(queue, r#"{"type":"t"}"#).await;
        c.post(&format!("/v1/queues/{queue}/pause"), "").await.ok(200);
    }
    c.put("/v1/queues/full", r#"{"settings":{"max_queued":1}}"#).await.ok(201);
    c.put("/v1/schedules/s", r#"{"every":"1m","queue":"full","job":{"type":"t"}}"#).await.ok(201);
    c.advance("2m").await;
    let root = first_token(&mut c).await;
    let codes = |answer: &Value| -> Vec<(String, String)> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| (text(&item["code"]), text(&item["queue"]))).collect()
    };
    let own = create(&mut c, &root, "own", &["read"], &["mail", "full"]).await;
    let seen = call_as(&mut c, &own, "GET", "/v1/attention", None).await.ok(200);
    let pair = |code: &str, queue: &str| (code.to_owned(), queue.to_owned());
    assert_eq!(codes(&seen), [pair("no_worker", "full"), pair("paused_with_work", "mail")]);
    let all = call_as(&mut c, &root, "GET", "/v1/attention", None).await.ok(200);
    assert!(codes(&all).contains(&pair("schedule_missed", "full")), "{all}");
    assert!(codes(&all).contains(&pair("paused_with_work", "secret")), "{all}");
    server.stop().await;
}

/// Figures, errors, workers and new versions of a type are those of the token's queues.
#[tokio::test]
async fn types_have_only_the_queues_of_the_token() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for queue in ["mail", "secret"] {
        let id = c.submit(queue, r#"{"type":"t"}"#).await;
        c.post(&format!("/v1/jobs/{id}/dead-letter"), r#"{"reason":"broken"}"#).await.ok(200);
        for version in ["1", "2"] {
            let claim = format!(r#"{{"queues":["{queue}"],"worker":"w-{queue}","version":"{version}"}}"#);
            c.post("/v1/claims", &claim).await.ok(200);
        }
    }
    let root = first_token(&mut c).await;
    let own = create(&mut c, &root, "own", &["read"], &["mail"]).await;
    let list = call_as(&mut c, &own, "GET", "/v1/types", None).await.ok(200);
    assert_eq!(list["types"][0]["queues"], json!(["mail"]), "{list}");
    assert_eq!(list["types"][0]["submitted"], 1);
    let detail = call_as(&mut c, &own, "GET", "/v1/types/t", None).await.ok(200);
    assert!(!detail.to_string().contains("secret"), "{detail}");
    assert_eq!((&detail["errors_of"], detail["deploys"].as_array().unwrap().len()), (&json!(1), 1), "{detail}");
    let stats = call_as(&mut c, &own, "GET", "/v1/stats?window=1h", None).await.ok(200);
    assert!(!stats.to_string().contains("secret"), "{stats}");
    let all = call_as(&mut c, &root, "GET", "/v1/types/t", None).await.ok(200);
    assert_eq!(all["stats"]["queues"], json!(["mail", "secret"]), "{all}");
    server.stop().await;
}

#[tokio::test]
async fn groups_of_dead_letters_have_only_the_queues_of_the_token() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for queue in ["mail", "secret", "reports.eu"] {
        let id = c.submit(queue, r#"{"type":"t"}"#).await;
        c.post(&format!("/v1/jobs/{id}/dead-letter"), r#"{"reason":"broken"}"#).await.ok(200);
    }
    let root = first_token(&mut c).await;
    let token = create(&mut c, &root, "reader", &["read"], &["mail", "rep*"]).await;
    let path = "/v1/dead-letters/groups";
    let own = call_as(&mut c, &token, "GET", path, None).await.ok(200);
    assert_eq!((&own["groups"][0]["count"], &own["groups"][0]["queues"]), (&2.into(), &json!(["mail", "reports.eu"])));
    let foreign = call_as(&mut c, &token, "GET", &format!("{path}?queue=secret"), None).await.ok(200);
    assert_eq!(foreign, json!({"groups": [], "approximate": false}));
    let all = call_as(&mut c, &root, "GET", path, None).await.ok(200);
    assert_eq!(all["groups"][0]["count"], 3);
    server.stop().await;
}

/// Checklist: S05: a lease token alone settles nothing.
#[tokio::test]
async fn a_foreign_lease_cannot_be_settled_renewed_or_extended() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("secret", r#"{"type":"t"}"#).await;
    let (id, held) = lease(&c.claim("secret").await);
    let own = c.submit("mail", r#"{"type":"t"}"#).await;
    let root = first_token(&mut c).await;
    let token = create(&mut c, &root, "worker", &["work", "submit", "read", "operate"], &["mail"]).await;
    let claim = format!(
        r#"{{"queues":["secret","mail"],"worker":"w","settle":[{{"id":"{id}","lease":"{held}","outcome":"complete"}}]}}"#
    );
    let answer = call_as(&mut c, &token, "POST", "/v1/claims", Some(&claim)).await.ok(200);
    assert_eq!(answer["results"][0]["code"], "job_not_found", "{answer}");
    assert_eq!(answer["jobs"][0]["id"], own, "{answer}");
    let (_, own_lease) = lease(&answer["jobs"][0]);
    let items = format!(r#"[{{"id":"{id}","lease":"{held}"}},{{"id":"{own}","lease":"{own_lease}"}}]"#);
    let beats = format!(r#"{{"heartbeats":{items}}}"#);
    let beats = call_as(&mut c, &token, "POST", "/v1/heartbeats", Some(&beats)).await.ok(200);
    assert_eq!((&beats["results"][0]["code"], &beats["results"][1]["id"]), (&json!("job_not_found"), &json!(own)));
    let complete = format!(r#"{{"lease":"{held}"}}"#);
    for verb in ["complete", "heartbeat", "release"] {
        let path = format!("/v1/jobs/{id}/{verb}");
        call_as(&mut c, &token, "POST", &path, Some(&complete)).await.problem(404, "job_not_found");
    }
    let children = format!(r#"{{"lease":"{own_lease}","jobs":[{{"type":"t","queue":"secret"}}]}}"#);
    let path = format!("/v1/jobs/{own}/children");
    call_as(&mut c, &token, "POST", &path, Some(&children)).await.problem(404, "queue_not_found");
    let after = format!(r#"{{"type":"t","after":["{id}"]}}"#);
    call_as(&mut c, &token, "POST", "/v1/queues/mail/jobs", Some(&after)).await.problem(400, "dependency_unknown");
    let workers = call_as(&mut c, &token, "GET", "/v1/workers", None).await.ok(200);
    assert_eq!(workers["workers"][0]["queues"], json!(["mail"]), "{workers}");
    assert_eq!(call_as(&mut c, &root, "GET", &format!("/v1/jobs/{id}"), None).await.ok(200)["state"], "running");
    server.stop().await;
}

/// Rules Authentication, small print.
#[tokio::test]
async fn a_workflow_with_a_foreign_member_does_not_exist() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let token = create(&mut c, &root, "t", &["submit", "read", "operate"], &["mail"]).await;
    let own = r#"{"open":true,"jobs":[{"type":"t","ref":"a","queue":"mail"}]}"#;
    let own = text(&call_as(&mut c, &token, "POST", "/v1/workflows", Some(own)).await.ok(201)["id"]);
    let mixed = r#"{"jobs":[{"type":"t","ref":"a","queue":"mail"},{"type":"t","ref":"b","queue":"secret"}]}"#;
    call_as(&mut c, &token, "POST", "/v1/workflows", Some(mixed)).await.problem(404, "queue_not_found");
    let hidden = text(&call_as(&mut c, &root, "POST", "/v1/workflows", Some(mixed)).await.ok(201)["id"]);
    for verb in ["cancel", "retry", "close"] {
        let path = format!("/v1/workflows/{hidden}/{verb}");
        call_as(&mut c, &token, "POST", &path, None).await.problem(404, "workflow_not_found");
    }
    let list = call_as(&mut c, &token, "GET", "/v1/workflows", None).await.ok(200);
    assert_eq!(list["workflows"].as_array().unwrap().len(), 1, "{list}");
    call_as(&mut c, &token, "GET", &format!("/v1/workflows/{own}"), None).await.ok(200);
    // A foreign member that joins later hides the workflow.
    let more = r#"{"jobs":[{"type":"t","ref":"z","queue":"secret"}]}"#;
    call_as(&mut c, &root, "POST", &format!("/v1/workflows/{own}/jobs"), Some(more)).await.ok(201);
    call_as(&mut c, &token, "GET", &format!("/v1/workflows/{own}"), None).await.problem(404, "workflow_not_found");
    server.stop().await;
}
