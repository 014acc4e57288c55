//! Dead letters in groups.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};

/// Submits a job that fails for good with this code and message.
async fn dead_letter(c: &mut Client, queue: &str, job_type: &str, code: &str, message: &str) -> String {
    let id = c.submit(queue, &json!({"type": job_type, "retry": {"limit": 1}}).to_string()).await;
    let (claimed, token) = lease(&c.claim(queue).await);
    assert_eq!(claimed, id);
    let error = json!({"category": "temporary", "code": code, "message": message});
    let fail = json!({"lease": token, "error": error}).to_string();
    assert_eq!(c.post(&format!("/v1/jobs/{id}/fail"), &fail).await.ok(200)["state"], "dead_letter");
    id
}

async fn groups(c: &mut Client, query: &str) -> Vec<Value> {
    let answer = c.get(&format!("/v1/dead-letters/groups{query}")).await.ok(200);
    assert_eq!(answer["approximate"], false, "{answer}");
    answer["groups"].as_array().unwrap().clone()
}

async fn counts(c: &mut Client, query: &str) -> Vec<(String, u64, u64)> {
    let row = |group: &Value| {
        let shape = group["shape"].as_str().unwrap().to_owned();
        (shape, group["count"].as_u64().unwrap(), group["last_hour"].as_u64().unwrap())
    };
    groups(c, query).await.iter().map(row).collect()
}

#[tokio::test]
async fn dead_letters_are_grouped_by_code_and_shape() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    assert!(groups(&mut c, "").await.is_empty());
    dead_letter(&mut c, "pay", "charge", "declined", "card 4242 declined: \"no funds\"").await;
    c.advance("2h").await;
    dead_letter(&mut c, "pay", "refund", "declined", "card 17 declined: \"stolen\"").await;
    let newest = dead_letter(&mut c, "shop", "charge", "declined", "card 9f2c4e01 declined: \"no funds\"").await;
    c.advance("1m").await;
    let last = dead_letter(&mut c, "shop", "charge", "declined", "card 5 declined: \"no funds\"").await;
    let found = groups(&mut c, "").await;
    assert_eq!(
        found[0],
        json!({
            "id": found[0]["id"], "code": "declined", "shape": "card ‹n› declined: ‹text›", "count": 3, "last_hour": 2,
            "first_at": "2026-11-15T00:00:00.000Z", "last_at": "2026-11-15T02:01:00.000Z",
            "types": ["charge", "refund"], "queues": ["pay", "shop"], "example": last,
        })
    );
    assert_eq!((&found[1]["shape"], &found[1]["example"]), (&"card ‹id› declined: ‹text›".into(), &json!(newest)));
    assert_eq!(found[0]["id"].as_str().unwrap().len(), 16);
    assert_eq!(counts(&mut c, "?queue=pay").await, [("card ‹n› declined: ‹text›".to_owned(), 2, 1)]);
    assert!(groups(&mut c, "?queue=nothing").await.is_empty());
    c.get("/v1/dead-letters/groups?queue=a%20b").await.problem(400, "validation");
    c.get("/v1/dead-letters/groups?limit=5").await.problem(400, "validation");
    server.stop().await;
}

#[tokio::test]
async fn groups_lose_what_an_operation_deletes() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for number in 0..3 {
        dead_letter(&mut c, "q", "t", "E", &format!("row {number} is locked")).await;
    }
    assert_eq!(counts(&mut c, "").await, [("row ‹n› is locked".to_owned(), 3, 3)]);
    let delete = r#"{"action":"delete","filter":{"queue":"q","state":"dead_letter"}}"#;
    let id = c.post("/v1/operations", delete).await.ok(202)["id"].as_str().unwrap().to_owned();
    let operation = c.get(&format!("/v1/operations/{id}")).await.ok(200);
    assert_eq!((&operation["state"], &operation["changed"]), (&"done".into(), &json!(3)));
    assert!(groups(&mut c, "").await.is_empty());
    server.stop().await;
}

/// What leaves `dead_letter` in any way leaves its group, with the response that confirms it.
#[tokio::test]
async fn groups_lose_what_is_requeued_deleted_or_pruned() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"retention":{"dead_letter":"1d"}}}"#).await.ok(201);
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(dead_letter(&mut c, "q", "t", "E", &format!("row {number} is locked")).await);
        c.advance("1h").await;
    }
    let row = |count, recent| [("row ‹n› is locked".to_owned(), count, recent)];
    assert_eq!(counts(&mut c, "").await, row(5, 0));
    c.post(&format!("/v1/jobs/{}/requeue", ids[4]), "{}").await.ok(200);
    assert_eq!(counts(&mut c, "").await, row(4, 0));
    c.delete(&format!("/v1/jobs/{}", ids[3])).await.ok(204);
    assert_eq!(counts(&mut c, "").await, row(3, 0));
    // The first job's day ends.
    c.advance("19h").await;
    assert_eq!(counts(&mut c, "").await, row(2, 0));
    let bulk = r#"{"action":"delete","filter":{"state":"dead_letter"}}"#;
    assert_eq!(c.post("/v1/jobs/bulk", bulk).await.ok(200)["changed"], 2);
    assert!(groups(&mut c, "").await.is_empty());
    // The requeued job dies again, of something else.
    let (id, token) = lease(&c.claim("q").await);
    let fail = json!({"lease": token, "error": {"category": "permanent", "message": "gone"}}).to_string();
    c.post(&format!("/v1/jobs/{id}/fail"), &fail).await.ok(200);
    c.post(&format!("/v1/jobs/{id}/requeue"), "{}").await.ok(200);
    c.post(&format!("/v1/jobs/{id}/dead-letter"), r#"{"reason":"by hand"}"#).await.ok(200);
    assert_eq!(counts(&mut c, "").await, [("by hand".to_owned(), 1, 1)]);
    server.stop().await;
}

#[tokio::test]
async fn many_dead_letters_are_counted_exactly() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let jobs: Vec<Value> = (0..1_000).map(|_| json!({"type": "t", "hold": true})).collect();
    for _ in 0..2 {
        let ids = c.post("/v1/queues/q/jobs", &json!(jobs).to_string()).await.ok(201);
        for job in ids["jobs"].as_array().unwrap().iter().take(700) {
            let path = format!("/v1/jobs/{}/dead-letter", job["id"].as_str().unwrap());
            c.post(&path, r#"{"reason":"row 7 is broken"}"#).await.ok(200);
        }
    }
    assert_eq!(counts(&mut c, "").await, [("row ‹n› is broken".to_owned(), 1_400, 1_400)]);
    server.stop().await;
}
