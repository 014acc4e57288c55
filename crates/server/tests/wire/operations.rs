//! Durable operations, in virtual time and over restarts.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};

/// Starts an operation. Returns its id.
async fn start(c: &mut Client, body: &Value) -> String {
    let started = c.post("/v1/operations", &body.to_string()).await.ok(202);
    started["id"].as_str().unwrap().to_owned()
}

async fn operation(c: &mut Client, id: &str) -> Value {
    c.get(&format!("/v1/operations/{id}")).await.ok(200)
}

async fn command(c: &mut Client, id: &str, verb: &str, status: u16) -> Value {
    c.post(&format!("/v1/operations/{id}/{verb}"), "").await.ok(status)
}

/// Submits a job and ends it as a dead letter with this error.
async fn dead_letter(c: &mut Client, queue: &str, code: &str, message: &str) -> String {
    let id = c.submit(queue, r#"{"type":"t"}"#).await;
    fail(c, queue, code, message).await;
    assert_eq!(c.state(&id).await, "dead_letter");
    id
}

/// Claims one job and fails it for good.
async fn fail(c: &mut Client, queue: &str, code: &str, message: &str) {
    let (id, token) = lease(&c.claim(queue).await);
    let error = json!({"category": "permanent", "code": code, "message": message, "final": true});
    let body = json!({"lease": token, "error": error}).to_string();
    c.post(&format!("/v1/jobs/{id}/fail"), &body).await.ok(200);
}

async fn complete(c: &mut Client, queue: &str) {
    let (id, token) = lease(&c.claim(queue).await);
    c.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
}

/// Creates a queue whose permanent failures are dead letters, requeued in place.
async fn queue(c: &mut Client, name: &str) {
    let settings = r#"{"settings":{"retry":{"on_permanent":"dead_letter"}}}"#;
    c.put(&format!("/v1/queues/{name}"), settings).await.ok(201);
}

async fn counts(c: &mut Client, queue: &str) -> Value {
    c.get(&format!("/v1/queues/{queue}")).await.ok(200)["counts"].clone()
}

fn numbers(operation: &Value) -> [u64; 4] {
    ["matched", "changed", "refused", "remaining"].map(|name| operation[name].as_u64().unwrap())
}

#[tokio::test]
async fn an_operation_treats_what_matched_at_its_start() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for number in 0..250 {
        c.submit("q", &format!(r#"{{"type":"t","tags":{{"n":"{}"}}}}"#, number % 2)).await;
    }
    c.submit("other", r#"{"type":"t"}"#).await;
    let dry = json!({"action": "cancel", "filter": {"queue": "q", "state": "scheduled"}, "dry_run": true});
    let answer = c.post("/v1/operations", &dry.to_string()).await.ok(202);
    assert_eq!((&answer["matched"], &answer["counted"]), (&json!(250), &json!(true)));
    let counted = operation(&mut c, answer["id"].as_str().unwrap()).await;
    assert_eq!(
        (&counted["state"], &counted["dry_run"], numbers(&counted)),
        (&json!("done"), &json!(true), [250, 0, 0, 250])
    );
    // A filter without a counter is counted page by page.
    let body = json!({"action": "cancel", "filter": {"queue": "q", "tag": "n:1"}});
    let answer = c.post("/v1/operations", &body.to_string()).await.ok(202);
    assert_eq!((&answer["matched"], &answer["counted"]), (&json!(125), &json!(true)));
    let done = operation(&mut c, answer["id"].as_str().unwrap()).await;
    assert_eq!((&done["state"], numbers(&done)), (&json!("done"), [125, 125, 0, 0]));
    assert_eq!((&done["rate"], &done["canary"], &done["filter"]), (&Value::Null, &Value::Null, &body["filter"]));
    assert_eq!(counts(&mut c, "q").await["cancelled"], 125);
    assert_eq!(counts(&mut c, "other").await["scheduled"], 1);
    // Jobs that refuse the action are counted by code.
    let id = start(&mut c, &json!({"action": "delete", "filter": {"queue": "q"}})).await;
    let done = operation(&mut c, &id).await;
    assert_eq!((numbers(&done), &done["refusals"]), ([250, 125, 125, 0], &json!({"illegal_transition": 125})));
    assert_eq!(done["undo_until"], Value::Null);
    let list = c.get("/v1/operations?limit=2").await.ok(200);
    assert_eq!((list["operations"].as_array().unwrap().len(), &list["operations"][0]), (2, &done));
    let next = c.get(&format!("/v1/operations?cursor={}", list["next"].as_str().unwrap())).await.ok(200);
    assert_eq!((&next["operations"], &next["next"]), (&json!([counted]), &Value::Null));
    server.stop().await;
}

#[tokio::test]
async fn the_rate_follows_the_virtual_clock_and_later_jobs_are_left() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for _ in 0..5 {
        c.submit("q", r#"{"type":"t","delay":"1d"}"#).await;
    }
    let id =
        start(&mut c, &json!({"action": "run_now", "filter": {"queue": "q", "state": "delayed"}, "rate": 2})).await;
    let running = operation(&mut c, &id).await;
    assert_eq!((&running["state"], numbers(&running)), (&json!("running"), [5, 1, 0, 4]));
    assert_eq!(running["next_at"], "2026-11-15T00:00:00.500Z");
    c.submit("q", r#"{"type":"t","delay":"1d"}"#).await;
    c.advance("499ms").await;
    assert_eq!(numbers(&operation(&mut c, &id).await), [5, 1, 0, 4]);
    c.advance("1ms").await;
    assert_eq!(numbers(&operation(&mut c, &id).await), [5, 2, 0, 3]);
    c.advance("10s").await;
    let done = operation(&mut c, &id).await;
    assert_eq!((&done["state"], numbers(&done)), (&json!("done"), [5, 5, 0, 0]));
    assert_eq!(done["ended_at"], "2026-11-15T00:00:02.000Z", "five jobs at two per second");
    assert_eq!(
        (&counts(&mut c, "q").await["scheduled"], &counts(&mut c, "q").await["delayed"]),
        (&json!(5), &json!(1))
    );
    let first = c.get("/v1/jobs?queue=q&state=scheduled").await.ok(200)["jobs"][0]["id"].clone();
    let history = c.get(&format!("/v1/jobs/{}/history", first.as_str().unwrap())).await.ok(200);
    assert_eq!(history["history"].as_array().unwrap().last().unwrap()["cause"], "run_now");
    server.stop().await;
}

#[tokio::test]
async fn a_canary_waits_with_its_outcomes_until_it_is_continued() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    queue(&mut c, "q").await;
    for _ in 0..5 {
        dead_letter(&mut c, "q", "smtp_550", "mailbox full").await;
    }
    let body = json!({"action": "requeue", "filter": {"queue": "q", "state": "dead_letter"}, "canary": 2});
    let id = start(&mut c, &body).await;
    let running = operation(&mut c, &id).await;
    assert_eq!((&running["state"], numbers(&running)), (&json!("running"), [5, 2, 0, 3]));
    assert_eq!((&running["canary"]["size"], &running["canary"]["ended"]), (&json!(2), &json!(0)));
    assert_eq!(running["canary"]["jobs"][0]["state"], "scheduled");
    c.post(&format!("/v1/operations/{id}/continue"), "").await.problem(409, "illegal_transition");
    complete(&mut c, "q").await;
    assert_eq!(operation(&mut c, &id).await["canary"]["outcomes"]["completed"], 1);
    fail(&mut c, "q", "smtp_551", "moved").await;
    let waiting = operation(&mut c, &id).await;
    assert_eq!((&waiting["state"], numbers(&waiting)), (&json!("waiting"), [5, 2, 0, 3]));
    let outcomes = json!({"completed": 1, "failed": 0, "dead_letter": 1, "cancelled": 0, "gone": 0});
    assert_eq!((&waiting["canary"]["outcomes"], &waiting["canary"]["ended"]), (&outcomes, &json!(2)));
    let codes: Vec<&Value> =
        waiting["canary"]["jobs"].as_array().unwrap().iter().map(|job| &job["error_code"]).collect();
    assert!(codes.contains(&&json!("smtp_551")), "{waiting}");
    c.advance("1h").await;
    assert_eq!(operation(&mut c, &id).await["state"], "waiting");
    command(&mut c, &id, "continue", 200).await;
    let done = operation(&mut c, &id).await;
    assert_eq!(
        (&done["state"], numbers(&done), &done["canary"]["outcomes"]),
        (&json!("done"), [5, 5, 0, 0], &outcomes)
    );
    assert_eq!(counts(&mut c, "q").await["scheduled"], 3);
    c.post(&format!("/v1/operations/{id}/stop"), "").await.problem(409, "illegal_transition");
    server.stop().await;
}

#[tokio::test]
async fn a_stopped_operation_leaves_the_rest() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for _ in 0..4 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    let id = start(&mut c, &json!({"action": "cancel", "filter": {"queue": "q"}, "rate": 1})).await;
    c.advance("1s").await;
    let stopped = command(&mut c, &id, "stop", 200).await;
    assert_eq!((&stopped["state"], numbers(&stopped)), (&json!("stopped"), [4, 2, 0, 2]));
    assert_eq!(command(&mut c, &id, "stop", 200).await["updated_at"], stopped["updated_at"]);
    c.advance("1m").await;
    assert_eq!(counts(&mut c, "q").await["scheduled"], 2);
    c.post(&format!("/v1/operations/{id}/continue"), "").await.problem(409, "illegal_transition");
    server.stop().await;
}

#[tokio::test]
async fn undo_of_a_requeue_restores_jobs_that_have_not_run_since() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    queue(&mut c, "q").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(dead_letter(&mut c, "q", "smtp_550", "mailbox full").await);
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push(c.job(id).await);
    }
    let id = start(&mut c, &json!({"action": "requeue", "filter": {"queue": "q", "state": "dead_letter"}})).await;
    let done = operation(&mut c, &id).await;
    assert_eq!((&done["state"], &done["undo_until"]), (&json!("done"), &json!("2026-11-15T00:05:00.000Z")));
    assert_eq!(
        (&c.job(&ids[1]).await["error"], &c.job(&ids[1]).await["counters"]["starts"]),
        (&Value::Null, &json!(0))
    );
    complete(&mut c, "q").await;
    c.advance("4m59s").await;
    command(&mut c, &id, "undo", 202).await;
    let undone = operation(&mut c, &id).await;
    let expected = json!({"state": "done", "at": "2026-11-15T00:04:59.000Z", "undone": 2, "kept": 1});
    assert_eq!((&undone["undo"], &undone["undo_until"]), (&expected, &Value::Null));
    let mut restored = Vec::new();
    for (id, before) in ids.iter().zip(&before) {
        let after = c.job(id).await;
        if after["state"] == "completed" {
            continue;
        }
        for field in ["state", "error", "counters", "lease", "attempt"] {
            assert_eq!(after[field], before[field], "{field}");
        }
        restored.push(id);
    }
    assert_eq!(restored.len(), 2);
    c.post(&format!("/v1/operations/{id}/undo"), "").await.problem(409, "illegal_transition");
    // Such a job can be requeued again.
    c.post(&format!("/v1/jobs/{}/requeue", restored[0]), "").await.ok(200);
    server.stop().await;
}

#[tokio::test]
async fn undo_of_a_cancel_returns_jobs_to_their_times() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let ready = c.submit("q", r#"{"type":"t"}"#).await;
    let delayed = c.submit("q", r#"{"type":"t","delay":"1h"}"#).await;
    let held = c.submit("q", r#"{"type":"t","hold":true}"#).await;
    let running = c.submit("r", r#"{"type":"t"}"#).await;
    c.claim("r").await;
    let id = start(&mut c, &json!({"action": "cancel", "filter": {"type": "t"}})).await;
    assert_eq!(numbers(&operation(&mut c, &id).await), [4, 4, 0, 0]);
    assert_eq!(
        (c.state(&delayed).await.as_str(), &c.job(&running).await["cancel_requested"]),
        ("cancelled", &json!(true))
    );
    command(&mut c, &id, "undo", 202).await;
    let undo = operation(&mut c, &id).await["undo"].clone();
    assert_eq!((&undo["state"], &undo["undone"], &undo["kept"]), (&json!("done"), &json!(2), &json!(2)));
    assert_eq!((c.state(&ready).await.as_str(), c.state(&held).await.as_str()), ("scheduled", "cancelled"));
    let job = c.job(&delayed).await;
    assert_eq!((&job["state"], &job["run_at"]), (&json!("delayed"), &json!("2026-11-15T01:00:00.000Z")));
    server.stop().await;
}

#[tokio::test]
async fn undo_is_refused_when_it_is_too_late_or_impossible() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    let id = start(&mut c, &json!({"action": "cancel", "filter": {"queue": "q"}})).await;
    c.advance("5m").await;
    assert_eq!(operation(&mut c, &id).await["undo_until"], Value::Null);
    c.post(&format!("/v1/operations/{id}/undo"), "").await.problem(409, "illegal_transition");
    let id = start(&mut c, &json!({"action": "delete", "filter": {"queue": "q"}})).await;
    assert_eq!(numbers(&operation(&mut c, &id).await), [1, 1, 0, 0]);
    c.post(&format!("/v1/operations/{id}/undo"), "").await.problem(409, "illegal_transition");
    server.stop().await;
}

/// A requeue that makes clones is taken back by cancelling the clones.
#[tokio::test]
async fn undo_of_clones_cancels_them() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/g", r#"{"profile":"gopherqueue","settings":{"retry":{"on_permanent":"dead_letter"}}}"#)
        .await
        .ok(201);
    dead_letter(&mut c, "g", "smtp_550", "mailbox full").await;
    let id = start(&mut c, &json!({"action": "requeue", "filter": {"queue": "g"}, "canary": 1})).await;
    let clone = operation(&mut c, &id).await["canary"]["jobs"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(c.state(&clone).await, "scheduled");
    // The operation is stopped first.
    assert_eq!(command(&mut c, &id, "undo", 202).await["state"], "stopped");
    assert_eq!(
        (operation(&mut c, &id).await["undo"]["undone"].clone(), c.state(&clone).await),
        (json!(1), "cancelled".to_owned())
    );
    server.stop().await;
}

#[tokio::test]
async fn a_group_of_dead_letters_is_requeued_alone() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    queue(&mut c, "q").await;
    for number in 0..3 {
        dead_letter(&mut c, "q", "smtp_550", &format!("mailbox {number} is full")).await;
    }
    let other = dead_letter(&mut c, "q", "smtp_550", "no such host").await;
    let group = longshore_core::error_shape::group_id("smtp_550", "mailbox 17 is full");
    let id = start(&mut c, &json!({"action": "requeue", "filter": {"group": group}})).await;
    let done = operation(&mut c, &id).await;
    assert_eq!((&done["state"], numbers(&done)), (&json!("done"), [3, 3, 0, 0]));
    assert_eq!(c.state(&other).await, "dead_letter");
    server.stop().await;
}

#[tokio::test]
async fn invalid_operations_name_the_field() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for (field, body) in [
        ("action", r#"{"filter":{"queue":"q"}}"#),
        ("action", r#"{"action":"explode","filter":{"queue":"q"}}"#),
        ("filter", r#"{"action":"cancel"}"#),
        ("filter", r#"{"action":"cancel","filter":{}}"#),
        ("filter", r#"{"action":"cancel","filter":[]}"#),
        ("filter.queue", r#"{"action":"cancel","filter":{"queue":"a b"}}"#),
        ("filter.state", r#"{"action":"cancel","filter":{"state":"gone"}}"#),
        ("filter.group", r#"{"action":"requeue","filter":{"group":"xyz"}}"#),
        ("filter.state", r#"{"action":"requeue","filter":{"group":"0123456789abcdef","state":"failed"}}"#),
        ("filter.color", r#"{"action":"cancel","filter":{"color":"red"}}"#),
        ("rate", r#"{"action":"cancel","filter":{"queue":"default"},"rate":0}"#),
        ("rate", r#"{"action":"cancel","filter":{"queue":"default"},"rate":10001}"#),
        ("rate", r#"{"action":"cancel","filter":{"queue":"default"},"rate":"fast"}"#),
        ("canary", r#"{"action":"cancel","filter":{"queue":"default"},"canary":101}"#),
        ("dry_run", r#"{"action":"cancel","filter":{"queue":"default"},"dry_run":1}"#),
        ("limit", r#"{"action":"cancel","filter":{"queue":"default"},"limit":1}"#),
    ] {
        let problem = c.post("/v1/operations", body).await.problem(400, "validation");
        assert_eq!(problem["field"], field, "{body}");
    }
    c.post("/v1/operations", r#"{"action":"cancel","filter":{"queue":"none"}}"#).await.problem(404, "queue_not_found");
    c.get("/v1/operations?limit=0").await.problem(400, "validation");
    c.get("/v1/operations?cursor=x").await.problem(400, "validation");
    for id in ["x", "019a9c2e-5f3b-7001-8d5b-2f1f0f6f7a10"] {
        c.get(&format!("/v1/operations/{id}")).await.problem(404, "not_found");
        for verb in ["continue", "stop", "undo"] {
            c.post(&format!("/v1/operations/{id}/{verb}"), "").await.problem(404, "not_found");
        }
    }
    assert_eq!(c.get("/v1/operations").await.ok(200), json!({"operations": [], "next": null}));
    server.stop().await;
}

/// Audit and visibility are those of the route's queue.
#[tokio::test]
async fn operations_belong_to_the_queue_of_their_filter() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("mail", r#"{"type":"t"}"#).await;
    c.submit("secret", r#"{"type":"t"}"#).await;
    let all = start(&mut c, &json!({"action": "cancel", "filter": {"type": "t"}, "dry_run": true})).await;
    let secret = start(&mut c, &json!({"action": "cancel", "filter": {"queue": "secret"}, "dry_run": true})).await;
    let admin = r#"{"name":"root","actions":["admin","operate","read"],"queues":["*"]}"#;
    let admin = c.post("/v1/tokens", admin).await.ok(201)["token"].as_str().unwrap().to_owned();
    let header = format!("Authorization: Bearer {admin}\r\nContent-Type: application/json\r\n");
    let token = br#"{"name":"ops","actions":["operate","read"],"queues":["mail"]}"#;
    c.send_bytes("POST", "/v1/tokens", &header, token).await;
    let token = c.reply().await.unwrap().ok(201)["token"].as_str().unwrap().to_owned();
    let scoped = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let mut call = async |method: &str, path: &str, body: &str| {
        c.send_bytes(method, path, &scoped, body.as_bytes()).await;
        c.reply().await.unwrap()
    };
    for id in [&all, &secret] {
        call("GET", &format!("/v1/operations/{id}"), "").await.problem(404, "not_found");
        call("POST", &format!("/v1/operations/{id}/stop"), "").await.problem(404, "not_found");
    }
    let body = r#"{"action":"cancel","filter":{"queue":"secret"}}"#;
    call("POST", "/v1/operations", body).await.problem(404, "queue_not_found");
    call("POST", "/v1/operations", r#"{"action":"cancel","filter":{"type":"t"}}"#).await.problem(403, "forbidden");
    let own = call("POST", "/v1/operations", r#"{"action":"cancel","filter":{"queue":"mail"}}"#).await.ok(202);
    let list = call("GET", "/v1/operations", "").await.ok(200);
    assert_eq!((list["operations"].as_array().unwrap().len(), &list["operations"][0]["id"]), (1, &own["id"]));
    c.send_bytes("GET", "/v1/audit", &header, b"").await;
    let audit = c.reply().await.unwrap().ok(200);
    let entry = &audit["entries"][0];
    assert_eq!((&entry["target"], &entry["outcome"]), (&json!("POST /v1/operations"), &json!("ok")));
    assert_eq!((&entry["name"], &entry["action"]), (&json!("ops"), &json!("operate")));
    server.stop().await;
}

/// A restart in the middle of an operation.
#[tokio::test]
async fn an_operation_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::directory(directory.path()).start().await;
    let mut c = server.client().await;
    queue(&mut c, "q").await;
    for _ in 0..6 {
        dead_letter(&mut c, "q", "smtp_550", "mailbox full").await;
    }
    let body = json!({"action": "requeue", "filter": {"queue": "q"}, "rate": 1, "canary": 2});
    let id = start(&mut c, &body).await;
    c.advance("1s").await;
    complete(&mut c, "q").await;
    let before = operation(&mut c, &id).await;
    assert_eq!((&before["state"], numbers(&before)), (&json!("running"), [6, 2, 0, 4]));
    server.stop().await;
    let server = Setup::directory(directory.path()).start().await;
    let mut c = server.client().await;
    assert_eq!(operation(&mut c, &id).await, before);
    complete(&mut c, "q").await;
    assert_eq!(operation(&mut c, &id).await["canary"]["outcomes"]["completed"], 2);
    command(&mut c, &id, "continue", 200).await;
    c.advance("2s").await;
    server.stop().await;
    let server = Setup::directory(directory.path()).start().await;
    let mut c = server.client().await;
    c.advance("10s").await;
    let done = operation(&mut c, &id).await;
    assert_eq!((&done["state"], numbers(&done)), (&json!("done"), [6, 6, 0, 0]));
    let counted = counts(&mut c, "q").await;
    assert_eq!((&counted["completed"], &counted["scheduled"]), (&json!(2), &json!(4)));
    // The undo survives too.
    command(&mut c, &id, "undo", 202).await;
    assert_eq!(operation(&mut c, &id).await["undo"]["undone"], 4);
    server.stop().await;
}
