//! One job: record, views, attempts, history, why, wait.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};

#[tokio::test]
async fn attempts_and_history_are_complete() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"retry":{"jitter":{"kind":"none"}}}}"#).await.ok(201);
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let failure = format!(
        r#"{{"lease":"{token}","error":{{"category":"temporary","message":"no","code":"E1","cause":"deep"}}}}"#
    );
    assert_eq!(c.post(&format!("/v1/jobs/{id}/fail"), &failure).await.ok(200), json!({"id": id, "state": "retrying"}));
    c.advance("1s").await;
    let (_, token) = lease(&c.claim("q").await);
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}","result":{{"n": 1.50}}}}"#))
        .await
        .ok(200);
    let attempts = c.get(&format!("/v1/jobs/{id}/attempts")).await.ok(200);
    let attempts = attempts["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    assert_eq!((&attempts[0]["number"], &attempts[1]["number"]), (&1.into(), &2.into()));
    assert_eq!(attempts[1]["previous_id"], attempts[0]["id"]);
    assert_eq!((&attempts[0]["outcome"], &attempts[1]["outcome"]), (&"failed".into(), &"completed".into()));
    assert_eq!((&attempts[0]["worker"], &attempts[0]["next_delay"]), (&"w1".into(), &"1s".into()));
    let error = json!({"category": "temporary", "code": "E1", "message": "no", "cause": "deep", "at": "2026-11-15T00:00:00.000Z"});
    assert_eq!(attempts[0]["error"], error);
    let history = c.get(&format!("/v1/jobs/{id}/history")).await.ok(200);
    let steps: Vec<String> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            format!(
                "{} {} {}",
                step["from"].as_str().unwrap_or("-"),
                step["to"].as_str().unwrap(),
                step["cause"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        steps,
        [
            "- pending create",
            "pending scheduled submit",
            "scheduled running claim",
            "running retrying fail",
            "retrying scheduled due",
            "scheduled running claim",
            "running completed complete",
        ]
    );
    let job = c.job(&id).await;
    assert_eq!(
        job["counters"],
        json!({"starts": 2, "failures": 1, "retries_scheduled": 1, "requeues": 1, "reclaims": 0})
    );
    assert!(c.get(&format!("/v1/jobs/{id}")).await.text().contains(r#""result":{"n": 1.50}"#));
    server.stop().await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn each_view_has_its_fields_and_states() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"external_ids":true}}"#).await.ok(201);
    let id = c.submit("q", r#"{"type":"t","payload":{"k":1},"external_id":"x","tags":["a"]}"#).await;
    let views: [(&str, &str, &str, &[&str]); 5] = [
        (
            "gopherqueue",
            "state",
            "SCHEDULED",
            &[
                "id",
                "type",
                "state",
                "priority",
                "attempt",
                "created_at",
                "updated_at",
                "scheduled_at",
                "started_at",
                "completed_at",
                "tags",
                "correlation_id",
                "callback_url",
            ],
        ),
        (
            "taskharbor",
            "state",
            "runnable",
            &[
                "id",
                "type",
                "queue",
                "state",
                "run_at",
                "attempts",
                "max_attempts",
                "timeout",
                "idempotency_key",
                "lease_expires_at",
                "last_error",
                "failed_at",
                "created_at",
            ],
        ),
        (
            "ocypod",
            "status",
            "created",
            &[
                "id",
                "queue",
                "status",
                "tags",
                "created_at",
                "started_at",
                "ended_at",
                "last_heartbeat",
                "input",
                "output",
                "timeout",
                "heartbeat_timeout",
                "expires_after",
                "retries",
                "retries_attempted",
                "retry_delays",
                "ended",
            ],
        ),
        (
            "weave",
            "state",
            "Ready",
            &[
                "id",
                "queue",
                "state",
                "retries",
                "max_retries",
                "retry_at",
                "lease_version",
                "lease_expires_at",
                "last_error",
                "created_at",
            ],
        ),
        (
            "document",
            "state",
            "QUEUED",
            &[
                "jobId",
                "state",
                "createdAt",
                "startedAt",
                "completedAt",
                "retryCount",
                "maxRetries",
                "lastError",
                "errorType",
            ],
        ),
    ];
    for (view, word, state, fields) in views {
        let shown = c.get(&format!("/v1/jobs/{id}?view={view}")).await.ok(200);
        let mut names: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = fields.to_vec();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected, "{view}");
        assert_eq!(shown[word], state, "{view}");
    }
    let ocypod = c.get(&format!("/v1/jobs/{id}?view=ocypod")).await.ok(200);
    assert_eq!(
        (&ocypod["id"], &ocypod["input"], &ocypod["output"], &ocypod["tags"]),
        (&c.job(&id).await["seq"], &json!({"k": 1}), &Value::Null, &json!(["a"]))
    );
    assert_eq!(c.get(&format!("/v1/jobs/{id}?view=weave")).await.ok(200)["id"], "x");
    for bad in [
        "view=missing",
        "view=",
        "include=everything",
        "view=weave&include=payload",
        "vew=weave",
        "include=payload&include=payload",
    ] {
        let reply = c.get(&format!("/v1/jobs/{id}?{bad}")).await;
        assert_eq!(reply.status, 400, "{bad}");
    }
    server.stop().await;
}

/// Returns why a job does not run, without the sentences. Each has one, and so has the whole.
async fn explain(c: &mut Client, id: &str) -> Value {
    let mut why = c.get(&format!("/v1/jobs/{id}/why")).await.ok(200);
    let is_sentence = |text: Option<Value>| text.is_some_and(|text| text.as_str().unwrap().ends_with('.'));
    assert!(is_sentence(why.as_object_mut().unwrap().remove("summary")), "{why}");
    for reason in why["reasons"].as_array_mut().unwrap() {
        assert!(is_sentence(reason.as_object_mut().unwrap().remove("text")), "{reason}");
    }
    why
}

#[tokio::test]
async fn why_names_each_reason() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let first = c.submit("q", r#"{"type":"t"}"#).await;
    let no_worker = explain(&mut c, &first).await;
    assert_eq!(
        (&no_worker["state"], &no_worker["runnable"], &no_worker["ahead"]),
        (&"scheduled".into(), &true.into(), &0.into())
    );
    assert_eq!(
        no_worker["reasons"],
        json!([{"code": "no_worker", "queue": "q", "last_seen_at": null, "types": ["t"]}])
    );
    let (_, token) = lease(&c.claim("q").await);
    let running = explain(&mut c, &first).await;
    assert_eq!((&running["runnable"], &running["ahead"]), (&false.into(), &Value::Null));
    assert_eq!((&running["reasons"][0]["code"], &running["reasons"][0]["worker"]), (&"running".into(), &"w1".into()));
    let second = c.submit("q", r#"{"type":"t"}"#).await;
    let third = c.submit("q", r#"{"type":"t","priority":"low"}"#).await;
    let urgent = c.submit("q", r#"{"type":"t","priority":"critical"}"#).await;
    assert_eq!(explain(&mut c, &urgent).await["reasons"], json!([]));
    assert_eq!(explain(&mut c, &second).await["ahead"], 1);
    let behind = explain(&mut c, &third).await;
    assert_eq!((&behind["ahead"], &behind["reasons"]), (&2.into(), &json!([{"code": "behind", "ahead": 2}])));
    c.post("/v1/queues/q/pause", "").await.ok(200);
    let paused = explain(&mut c, &second).await;
    assert_eq!(
        (&paused["runnable"], &paused["reasons"][0]),
        (&false.into(), &json!({"code": "queue_paused", "queue": "q"}))
    );
    let waiting =
        c.submit("q2", &format!(r#"{{"type":"t","hold":true,"after":["{second}"],"after_any":["{third}"]}}"#)).await;
    let reasons = explain(&mut c, &waiting).await["reasons"].clone();
    assert_eq!(
        reasons,
        json!([{"code": "held"}, {"code": "waiting_on", "count": 2, "after": [second], "after_any": [third]}])
    );
    let later = c.submit("q2", r#"{"type":"t","delay":"1h","lifetime":"30m"}"#).await;
    let reasons = explain(&mut c, &later).await["reasons"].clone();
    assert_eq!(reasons[0], json!({"code": "delayed_until", "at": "2026-11-15T01:00:00.000Z"}));
    assert_eq!(reasons[1], json!({"code": "lifetime", "at": "2026-11-15T00:30:00.000Z"}));
    c.post(&format!("/v1/jobs/{first}/fail"), &format!(r#"{{"lease":"{token}","error":{{"category":"temporary"}}}}"#))
        .await
        .ok(200);
    let backoff = explain(&mut c, &first).await;
    assert_eq!(
        (&backoff["reasons"][1]["code"], &backoff["reasons"][1]["failures"]),
        (&"backoff_until".into(), &1.into())
    );
    c.post(&format!("/v1/jobs/{first}/cancel"), "").await.ok(200);
    let ended = explain(&mut c, &first).await;
    assert_eq!(
        (&ended["reasons"], &ended["runnable"], &ended["state"]),
        (&json!([]), &false.into(), &"cancelled".into())
    );
    server.stop().await;
}

#[tokio::test]
async fn why_of_an_ended_job_has_the_error_and_the_requeue() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let why = |id: &str| format!("/v1/jobs/{id}/why");
    let first = c.submit("q", r#"{"type":"t","retry":{"limit":1}}"#).await;
    let after = c.submit("q", &format!(r#"{{"type":"t","after":["{first}"]}}"#)).await;
    let waiting = c.get(&why(&first)).await.ok(200);
    assert_eq!((&waiting["error"], &waiting["action"]), (&Value::Null, &Value::Null));
    let (_, token) = lease(&c.claim("q").await);
    let fail = json!({"lease": token, "error": {"category": "temporary", "code": "E7", "message": "no such address"}});
    c.post(&format!("/v1/jobs/{first}/fail"), &fail.to_string()).await.ok(200);
    let ended = c.get(&why(&first)).await.ok(200);
    assert_eq!((&ended["state"], &ended["reasons"]), (&"dead_letter".into(), &json!([])));
    assert_eq!((&ended["error"]["code"], &ended["error"]["message"]), (&"E7".into(), &"no such address".into()));
    let path = format!("/v1/jobs/{first}/requeue");
    let requeue = json!({"label": "requeue", "method": "POST", "path": path, "body": {}, "job": first});
    assert_eq!((&ended["action"], &ended["requeued_as"]), (&requeue, &Value::Null));
    // The requeue revives its dependents.
    let through = c.get(&why(&after)).await.ok(200);
    assert_eq!(
        (&through["error"]["code"], &through["action"]["job"]),
        (&"dependency_failed".into(), &first.as_str().into())
    );
    let path = through["action"]["path"].as_str().unwrap().to_owned();
    c.post(&path, &through["action"]["body"].to_string()).await.ok(200);
    for id in [&first, &after] {
        let again = c.get(&why(id)).await.ok(200);
        assert_eq!((&again["error"], &again["action"]), (&Value::Null, &Value::Null), "{again}");
    }
    // A completed job cannot be requeued.
    let (_, token) = lease(&c.claim("q").await);
    c.post(&format!("/v1/jobs/{first}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
    assert_eq!(c.get(&why(&first)).await.ok(200)["action"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn wait_returns_at_the_end_or_at_the_timeout() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let soon = c.get(&format!("/v1/jobs/{id}/wait?timeout=20ms")).await.ok(202);
    assert_eq!(soon["state"], "scheduled");
    let mut waiter = c.another().await;
    waiter.send("GET", &format!("/v1/jobs/{id}/wait?timeout=60s"), "").await;
    let (_, token) = lease(&c.claim("q").await);
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(waiter.reply().await.unwrap().ok(200)["state"], "completed");
    assert_eq!(c.get(&format!("/v1/jobs/{id}/wait")).await.ok(200)["state"], "completed");
    c.get(&format!("/v1/jobs/{id}/wait?timeout=61s")).await.problem(400, "validation");
    c.get(&format!("/v1/jobs/{id}/wait?timeout=soon")).await.problem(400, "validation");
    c.get("/v1/jobs/missing/wait").await.problem(404, "job_not_found");
    server.stop().await;
}

/// Clients in Swift and .NET write ids in upper case. Proves G-1.2.
#[tokio::test]
async fn an_id_is_read_in_any_case() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let upper = id.to_uppercase();
    assert_eq!(c.get(&format!("/v1/jobs/{upper}")).await.ok(200)["id"], id);
    let dependent = c.submit("q", &json!({"type": "t", "after": [upper, id]}).to_string()).await;
    let dependent = c.get(&format!("/v1/jobs/{dependent}")).await.ok(200);
    assert_eq!((&dependent["after"], &dependent["waiting_on"]), (&json!([id]), &json!(1)));
    let (_, token) = lease(&c.claim("q").await);
    let done = c.post(&format!("/v1/jobs/{upper}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
    assert_eq!((&done["id"], &done["state"]), (&json!(id), &json!("completed")));
    server.stop().await;
}

#[tokio::test]
async fn a_malformed_id_is_not_found() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let malformed =
        ["x", "0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10", "1", "%00", "..%2f", "0B7FBD3C-6A0E-4C1E-9D5B-2F1F0F6F7A10"];
    for id in malformed {
        for path in ["", "/payload", "/attempts", "/history", "/why", "/wait"] {
            c.get(&format!("/v1/jobs/{id}{path}")).await.problem(404, "job_not_found");
        }
        for verb in ["submit", "cancel", "requeue", "dead-letter", "run-now", "complete", "release", "heartbeat"] {
            c.post(&format!("/v1/jobs/{id}/{verb}"), "{}").await.problem(404, "job_not_found");
        }
        c.delete(&format!("/v1/jobs/{id}")).await.problem(404, "job_not_found");
        c.patch(&format!("/v1/jobs/{id}"), "{}").await.problem(404, "job_not_found");
    }
    server.stop().await;
}
