//! Schedules, in virtual time.

use serde_json::{Value, json};

use crate::common::Setup;

const EVERY_MINUTE: &str = r#"{"cron":"* * * * *","queue":"q","job":{"type":"t","payload":{"a": 1}}}"#;

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap()
}

/// Rules Schedules, small print.
#[tokio::test]
async fn a_schedule_fires_each_tick_at_its_own_instant() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let created = c.put("/v1/schedules/s", EVERY_MINUTE).await.ok(201);
    assert_eq!(created["timezone"], "UTC");
    assert_eq!(
        (&created["misfire"], &created["overlap"], &created["jitter"]),
        (&json!("one"), &json!("allow"), &json!("0s"))
    );
    assert_eq!(created["job"], json!({"type": "t", "payload": {"a": 1}}));
    assert_eq!((list(&created, "next").len(), &created["next"][0]), (10, &json!("2026-11-15T00:01:00.000Z")));
    assert_eq!(
        (&created["last"], &created["every"], &created["pause_note"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    // An equal request changes nothing.
    assert_eq!(c.put("/v1/schedules/s", EVERY_MINUTE).await.ok(200)["updated_at"], created["updated_at"]);
    c.get("/v1/queues/q").await.problem(404, "queue_not_found");
    c.advance("3m").await;
    let jobs = c.get("/v1/jobs?queue=q").await.ok(200);
    assert_eq!(list(&jobs, "jobs").len(), 3);
    assert_eq!(jobs["jobs"][0]["schedule"], json!({"name": "s", "due_at": "2026-11-15T00:03:00.000Z"}));
    assert_eq!(jobs["jobs"][2]["created_at"], "2026-11-15T00:01:00.000Z");
    let ticks = c.get("/v1/schedules/s/ticks").await.ok(200);
    let newest = json!({"due_at": "2026-11-15T00:03:00.000Z", "fired_at": "2026-11-15T00:03:00.000Z",
        "outcome": "fired", "job": jobs["jobs"][0]["id"], "detail": null});
    assert_eq!((list(&ticks, "ticks").len(), &ticks["ticks"][0]), (3, &newest));
    assert_eq!(c.get("/v1/schedules/s").await.ok(200)["last"], newest);
    c.advance("2h").await;
    let ticks = c.get("/v1/schedules/s/ticks").await.ok(200);
    assert_eq!((list(&ticks, "ticks").len(), &ticks["ticks"][99]["due_at"]), (100, &json!("2026-11-15T00:24:00.000Z")));
    assert_eq!(c.delete("/v1/schedules/s").await.status, 204);
    c.get("/v1/schedules/s/ticks").await.problem(404, "schedule_not_found");
    c.delete("/v1/schedules/s").await.problem(404, "schedule_not_found");
    server.stop().await;
}

#[tokio::test]
async fn paused_schedules_drop_ticks_and_can_be_triggered() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/schedules/s", EVERY_MINUTE).await.ok(201);
    let paused = c.post("/v1/schedules/s/pause", r#"{"note":"moving"}"#).await.ok(200);
    assert_eq!((&paused["paused"], &paused["pause_note"]), (&json!(true), &json!("moving")));
    assert_eq!(c.put("/v1/schedules/s", EVERY_MINUTE).await.ok(200)["paused"], true);
    c.advance("5m").await;
    let submitted = c.post("/v1/schedules/s/trigger", "").await.ok(201);
    assert_eq!((&submitted["state"], &submitted["duplicate"]), (&json!("scheduled"), &json!(false)));
    let job = c.get(&format!("/v1/jobs/{}", submitted["id"].as_str().unwrap())).await.ok(200);
    assert_eq!(job["schedule"], json!({"name": "s", "due_at": null}));
    let resumed = c.post("/v1/schedules/s/resume", "").await.ok(200);
    assert_eq!((&resumed["paused"], &resumed["pause_note"]), (&json!(false), &Value::Null));
    c.post("/v1/schedules/s/resume", "").await.ok(200);
    c.advance("1m").await;
    let ticks = c.get("/v1/schedules/s/ticks").await.ok(200);
    assert_eq!((list(&ticks, "ticks").len(), &ticks["ticks"][0]["due_at"]), (1, &json!("2026-11-15T00:06:00.000Z")));
    for verb in ["pause", "resume", "trigger"] {
        c.post(&format!("/v1/schedules/none/{verb}"), "").await.problem(404, "schedule_not_found");
    }
    server.stop().await;
}

/// Rules Events.
#[tokio::test]
async fn what_changes_nothing_is_no_event() {
    let server = Setup::memory().start().await;
    let (mut c, mut events) = (server.client().await, server.events("").await);
    c.put("/v1/schedules/s", EVERY_MINUTE).await.ok(201);
    c.put("/v1/schedules/s", EVERY_MINUTE).await.ok(200);
    c.post("/v1/schedules/s/resume", "").await.ok(200);
    for _ in 0..2 {
        c.post("/v1/schedules/s/pause", "{}").await.ok(200);
    }
    for _ in 0..2 {
        c.post("/v1/schedules/s/resume", "").await.ok(200);
    }
    assert_eq!(c.delete("/v1/schedules/s").await.status, 204);
    for change in ["created", "paused", "resumed", "deleted"] {
        assert_eq!(events.expect("schedule").await.data["change"], change);
    }
    server.stop().await;
}

#[tokio::test]
async fn overlapping_and_refused_ticks_are_recorded() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let body = r#"{"every":"1m","queue":"q","job":{"type":"t"},"overlap":"skip"}"#;
    c.put("/v1/schedules/s", body).await.ok(201);
    c.advance("2m").await;
    let tick = c.get("/v1/schedules/s").await.ok(200)["last"].clone();
    assert_eq!(
        (&tick["outcome"], &tick["fired_at"], &tick["job"]),
        (&json!("skipped_overlap"), &Value::Null, &Value::Null)
    );
    c.put("/v1/queues/full", r#"{"settings":{"max_queued":1}}"#).await.ok(201);
    c.put("/v1/schedules/full", r#"{"every":"1m","queue":"full","job":{"type":"t"}}"#).await.ok(201);
    c.advance("2m").await;
    let ticks = c.get("/v1/schedules/full/ticks").await.ok(200);
    assert_eq!(ticks["ticks"][0]["outcome"], "refused");
    assert!(ticks["ticks"][0]["detail"].as_str().unwrap().starts_with("queue_full: "));
    assert_eq!(ticks["ticks"][1]["outcome"], "fired");
    server.stop().await;
}

#[tokio::test]
async fn jitter_delays_the_job_and_not_the_tick() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let body = r#"{"cron":"0 * * * *","queue":"q","job":{"type":"t"},"jitter":"10m"}"#;
    c.put("/v1/schedules/s", body).await.ok(201);
    c.advance("1h").await;
    let job = c.get("/v1/jobs?queue=q").await.ok(200)["jobs"][0].clone();
    assert_eq!((&job["state"], &job["created_at"]), (&json!("delayed"), &json!("2026-11-15T01:00:00.000Z")));
    let run_at = job["run_at"].as_str().unwrap();
    assert!(("2026-11-15T01:00:00.000Z".."2026-11-15T01:10:00.000Z").contains(&run_at), "{run_at}");
    server.stop().await;
}

#[tokio::test]
async fn invalid_schedules_name_the_field() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for (field, body) in [
        ("cron", r#"{"queue":"q","job":{"type":"t"}}"#),
        ("every", r#"{"cron":"* * * * *","every":"1m","queue":"q","job":{"type":"t"}}"#),
        ("cron", r#"{"cron":"0 0 30 2 *","queue":"q","job":{"type":"t"}}"#),
        ("cron", r#"{"cron":"@reboot","queue":"q","job":{"type":"t"}}"#),
        ("every", r#"{"every":"999ms","queue":"q","job":{"type":"t"}}"#),
        ("timezone", r#"{"every":"1m","timezone":"Mars/Olympus","queue":"q","job":{"type":"t"}}"#),
        ("queue", r#"{"every":"1m","queue":"a b","job":{"type":"t"}}"#),
        ("queue", r#"{"every":"1m","job":{"type":"t"}}"#),
        ("job", r#"{"every":"1m","queue":"q"}"#),
        ("job", r#"{"every":"1m","queue":"q","job":[]}"#),
        ("job.type", r#"{"every":"1m","queue":"q","job":{}}"#),
        ("job.type", r#"{"every":"1m","queue":"q","job":{"type":""}}"#),
        ("job.run_at", r#"{"every":"1m","queue":"q","job":{"type":"t","run_at":"2027-01-01T00:00:00Z"}}"#),
        ("job.idempotency_key", r#"{"every":"1m","queue":"q","job":{"type":"t","idempotency_key":"k"}}"#),
        ("job.after", r#"{"every":"1m","queue":"q","job":{"type":"t","after":[]}}"#),
        ("misfire", r#"{"every":"1m","queue":"q","job":{"type":"t"},"misfire":"two"}"#),
        ("paused", r#"{"every":"1m","queue":"q","job":{"type":"t"},"paused":"no"}"#),
        ("color", r#"{"every":"1m","queue":"q","job":{"type":"t"},"color":1}"#),
    ] {
        let problem = c.put("/v1/schedules/s", body).await.problem(400, "validation");
        assert_eq!(problem["field"], field, "{body}");
    }
    c.get("/v1/schedules/s").await.problem(404, "schedule_not_found");
    c.get("/v1/schedules?cursor=a%20b").await.problem(400, "validation");
    server.stop().await;
}

#[tokio::test]
async fn schedules_are_listed_by_name() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for name in ["b", "a", "c"] {
        c.put(&format!("/v1/schedules/{name}"), EVERY_MINUTE).await.ok(201);
    }
    let page = c.get("/v1/schedules?limit=2").await.ok(200);
    assert_eq!(
        (&page["schedules"][0]["name"], &page["schedules"][1]["name"], &page["next"]),
        (&json!("a"), &json!("b"), &json!("b"))
    );
    let rest = c.get("/v1/schedules?limit=2&cursor=b").await.ok(200);
    assert_eq!((list(&rest, "schedules").len(), &rest["next"]), (1, &Value::Null));
    server.stop().await;
}
