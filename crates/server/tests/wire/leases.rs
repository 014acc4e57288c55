//! Workers: claims, settlements, heartbeats, children.

use serde_json::json;

use crate::common::Setup;
use crate::common::client::lease;

#[tokio::test]
async fn a_claim_returns_job_payload_and_lease() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let job = r#"{"type":"t","payload":{"a":1},"tags":{"k":"v"},"correlation_id":"c","idempotency_key":"i","priority":"high"}"#;
    let id = c.submit("q", job).await;
    let claim = r#"{"queues":["other","q"],"worker":"w1","limit":10,"lease":"1m","execution_timeout":"40s"}"#;
    let answer = c.post("/v1/claims", claim).await.ok(200);
    let job = &answer["jobs"][0];
    let expected = [
        ("id", json!(id)),
        ("queue", json!("q")),
        ("type", json!("t")),
        ("state", json!("running")),
        ("priority", json!("high")),
        ("attempt", json!(1)),
        ("tags", json!({"k": "v"})),
        ("correlation_id", json!("c")),
        ("idempotency_key", json!("i")),
        ("created_at", json!("2026-11-15T00:00:00.000Z")),
        ("deadline_at", json!("2026-11-15T00:00:40.000Z")),
        ("payload", json!({"a": 1})),
    ];
    for (field, value) in expected {
        assert_eq!(job[field], value, "{field}");
    }
    assert!(job["seq"].as_u64().unwrap() >= 1);
    assert_eq!(
        (&job["lease"]["version"], &job["lease"]["expires_at"]),
        (&1.into(), &"2026-11-15T00:00:40.000Z".into())
    );
    assert_eq!(job["attempt_id"].as_str().unwrap().len(), 36);
    let shown = c.job(&id).await;
    let lease = json!({
        "version": 1,
        "expires_at": "2026-11-15T00:00:40.000Z",
        "deadline_at": job["deadline_at"],
        "worker": "w1",
    });
    assert_eq!(shown["lease"], lease);
    assert!(!c.get(&format!("/v1/jobs/{id}")).await.text().contains(job["lease"]["token"].as_str().unwrap()));
    server.stop().await;
}

/// Values that a worker could otherwise derive only from clocks and policies.
#[tokio::test]
async fn claims_and_heartbeats_return_time_duration_and_last_attempt() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let retry = r#""retry":{"limit":2,"backoff":{"kind":"constant","base":"1s"},"jitter":{"kind":"none"}}"#;
    let id = c.submit("q", &format!(r#"{{"type":"t","lease":"45s",{retry}}}"#)).await;
    c.advance("10s").await;
    let answer = c.post("/v1/claims", r#"{"queues":["q"]}"#).await.ok(200);
    assert_eq!(answer["now"], "2026-11-15T00:00:10.000Z");
    let job = &answer["jobs"][0];
    assert_eq!((&job["lease"]["duration"], &job["last_attempt"]), (&"45s".into(), &false.into()));
    let (_, token) = lease(job);
    let error = r#""error":{"category":"temporary"}"#;
    c.post(&format!("/v1/jobs/{id}/fail"), &format!(r#"{{"lease":"{token}",{error}}}"#)).await.ok(200);
    c.advance("1s").await;
    let answer = c.post("/v1/claims", r#"{"queues":["q"],"lease":"1m"}"#).await.ok(200);
    let job = &answer["jobs"][0];
    assert_eq!((&job["lease"]["duration"], &job["last_attempt"]), (&"1m".into(), &true.into()));
    let (_, token) = lease(job);
    c.advance("1s").await;
    let beat = c.post(&format!("/v1/jobs/{id}/heartbeat"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!((&beat["now"], &beat["last_attempt"]), (&"2026-11-15T00:00:12.000Z".into(), &true.into()));
    let beats = format!(r#"{{"heartbeats":[{{"id":"{id}","lease":"{token}"}}]}}"#);
    let answer = c.post("/v1/heartbeats", &beats).await.ok(200);
    assert_eq!(answer["now"], "2026-11-15T00:00:12.000Z");
    assert!(answer["results"][0].get("now").is_none(), "{answer}");
    c.post(&format!("/v1/jobs/{id}/fail"), &format!(r#"{{"lease":"{token}",{error}}}"#)).await.ok(200);
    assert_eq!(c.state(&id).await, "dead_letter", "it was the last");
    // A lease without expiry has no duration, and an empty response has the time too.
    c.submit("off", r#"{"type":"t","lease":"0s"}"#).await;
    assert!(c.claim("off").await["lease"].get("duration").is_none());
    let empty = c.post("/v1/claims", r#"{"queues":["q"]}"#).await.ok(200);
    assert_eq!(empty, json!({"jobs": [], "directive": "run", "now": "2026-11-15T00:00:12.000Z"}));
    server.stop().await;
}

#[tokio::test]
async fn a_completion_may_set_progress() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for _ in 0..3 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    let (first, token) = lease(&c.claim("q").await);
    let body = format!(r#"{{"lease":"{token}","progress":50}}"#);
    c.post(&format!("/v1/jobs/{first}/heartbeat"), &body).await.ok(200);
    let body = format!(r#"{{"lease":"{token}","result":"done","progress":{{"percent": 100}}}}"#);
    c.post(&format!("/v1/jobs/{first}/complete"), &body).await.ok(200);
    let job = c.job(&first).await;
    assert_eq!((&job["progress"], &job["result"]), (&json!({"percent": 100}), &json!("done")));
    // Without progress, that of the last heartbeat stays.
    let (second, token) = lease(&c.claim("q").await);
    let body = format!(r#"{{"lease":"{token}","progress":50}}"#);
    c.post(&format!("/v1/jobs/{second}/heartbeat"), &body).await.ok(200);
    c.post(&format!("/v1/jobs/{second}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    assert_eq!(c.job(&second).await["progress"], 50);
    let (third, token) = lease(&c.claim("q").await);
    let member = |outcome: &str, rest: &str| {
        format!(r#"{{"id":"{third}","lease":"{token}","outcome":"{outcome}","progress":7{rest}}}"#)
    };
    let members = [member("fail", r#","error":{"category":"temporary"}"#), member("complete", "")].join(",");
    let answer = c.post("/v1/settlements", &format!(r#"{{"settlements":[{members}]}}"#)).await.ok(200);
    assert_eq!(
        (&answer["results"][0]["field"], &answer["results"][1]["state"]),
        (&"progress".into(), &"completed".into())
    );
    assert_eq!(c.job(&third).await["progress"], 7);
    server.stop().await;
}

#[tokio::test]
async fn claims_respect_types_limit_and_queue_order() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let mut ids = Vec::new();
    for (queue, kind) in [("b", "x"), ("a", "y"), ("b", "y"), ("a", "x")] {
        ids.push(c.submit(queue, &format!(r#"{{"type":"{kind}"}}"#)).await);
    }
    let answer = c.post("/v1/claims", r#"{"queues":["b","a"],"types":["x"],"limit":1000}"#).await.ok(200);
    let got: Vec<_> = answer["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(got, [&ids[0], &ids[3]]);
    let answer = c.post("/v1/claims", r#"{"queues":["a","b"]}"#).await.ok(200);
    assert_eq!(answer["jobs"].as_array().unwrap().len(), 1, "one unless asked otherwise");
    assert_eq!(answer["jobs"][0]["id"], ids[1].as_str());
    server.stop().await;
}

/// Proves T-21.
#[tokio::test]
async fn a_stale_token_changes_nothing() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let before = c.job(&id).await;
    let wrong = [r#""lease":"nonsense","#, r#""lease":"","#, r#""lease":"00000000000000000000000000000000","#];
    for wrong in wrong {
        for (verb, rest) in [
            ("complete", r#""result":1"#),
            ("fail", r#""error":{"category":"system"}"#),
            ("snooze", r#""delay":1"#),
            ("heartbeat", r#""progress":1"#),
        ] {
            let reply = c.post(&format!("/v1/jobs/{id}/{verb}"), &format!("{{{wrong}{rest}}}")).await;
            reply.problem(409, "stale_lease");
        }
    }
    c.post(&format!("/v1/jobs/{id}/complete"), "").await.problem(400, "validation");
    c.post(&format!("/v1/jobs/{id}/release"), "{}").await.problem(400, "validation");
    assert_eq!(c.job(&id).await, before);
    c.advance("30s").await;
    let body = format!(r#"{{"lease":"{token}"}}"#);
    c.post(&format!("/v1/jobs/{id}/complete"), &body).await.problem(409, "stale_lease");
    assert_eq!(c.state(&id).await, "scheduled");
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_settlement_gets_the_same_response() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let body = format!(r#"{{"lease":"{token}","result":1}}"#);
    let first = c.post(&format!("/v1/jobs/{id}/complete"), &body).await.ok(200);
    assert_eq!(c.post(&format!("/v1/jobs/{id}/complete"), &body).await.ok(200), first);
    c.post(&format!("/v1/jobs/{id}/release"), &format!(r#"{{"lease":"{token}"}}"#)).await.problem(409, "stale_lease");
    server.stop().await;
}

/// Rules Small print.
#[tokio::test]
async fn heartbeats_store_progress_and_checkpoint_byte_for_byte() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    c.advance("10s").await;
    let body = format!(r#"{{"lease":"{token}","progress":{{"at": 1.10}},"checkpoint":[ 1 ]}}"#);
    let beat = c.post(&format!("/v1/jobs/{id}/heartbeat"), &body).await.ok(200);
    assert_eq!(
        beat,
        json!({
            "id": id,
            "state": "running",
            "expires_at": "2026-11-15T00:00:40.000Z",
            "cancel_requested": false,
            "last_attempt": false,
            "directive": "run",
            "now": "2026-11-15T00:00:10.000Z",
        })
    );
    let reply = c.get(&format!("/v1/jobs/{id}")).await;
    assert!(reply.text().contains(r#""progress":{"at": 1.10},"checkpoint":[ 1 ]"#), "{}", reply.text());
    // A retry keeps the checkpoint for the next worker, and resets progress.
    c.post(&format!("/v1/jobs/{id}/release"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let reply = c.post("/v1/claims", r#"{"queues":["q"]}"#).await;
    assert!(reply.text().contains(r#""checkpoint":[ 1 ]"#));
    let (_, token) = lease(&reply.json()["jobs"][0]);
    let large = format!(r#"{{"lease":"{token}","progress":"{}"}}"#, "x".repeat(1 << 20));
    c.post(&format!("/v1/jobs/{id}/heartbeat"), &large).await.problem(413, "payload_too_large");
    c.post(&format!("/v1/jobs/{id}/complete"), &large.replace("progress", "result"))
        .await
        .problem(413, "payload_too_large");
    server.stop().await;
}

#[tokio::test]
async fn snooze_and_release_use_no_attempt() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let snoozed =
        c.post(&format!("/v1/jobs/{id}/snooze"), &format!(r#"{{"lease":"{token}","delay":"1m"}}"#)).await.ok(200);
    assert_eq!(snoozed["state"], "delayed");
    c.advance("1m").await;
    let job = c.claim("q").await;
    assert_eq!((&job["attempt"], &job["lease"]["version"]), (&1.into(), &2.into()));
    let (_, token) = lease(&job);
    assert_eq!(
        c.post(&format!("/v1/jobs/{id}/release"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200)["state"],
        "scheduled"
    );
    assert_eq!(c.job(&id).await["counters"]["starts"], 0);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_of_settlements_has_one_verdict_each() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let mut tokens = Vec::new();
    for _ in 0..4 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    for _ in 0..4 {
        tokens.push(lease(&c.claim("q").await));
    }
    let member = |place: usize, rest: &str| {
        let (id, token): &(String, String) = &tokens[place];
        format!(r#"{{"id":"{id}","lease":"{token}",{rest}}}"#)
    };
    let members = [
        member(0, r#""outcome":"complete","result":{"x":1}"#),
        member(1, r#""outcome":"fail","error":{"category":"permanent","message":"m"}"#),
        r#"{"id":"missing","outcome":"release"}"#.to_owned(),
        member(2, r#""outcome":"snooze""#),
        member(2, r#""outcome":"snooze","delay":"5s","result":1"#),
        member(2, r#""outcome":"snooze","delay":"5s""#),
        member(3, r#""outcome":"explode""#),
        "7".to_owned(),
        member(3, r#""outcome":"release""#),
        member(3, r#""outcome":"complete""#),
    ];
    let answer = c.post("/v1/settlements", &format!(r#"{{"settlements":[{}]}}"#, members.join(","))).await.ok(200);
    let results = answer["results"].as_array().unwrap();
    let short = |result: &serde_json::Value| result["state"].as_str().or(result["code"].as_str()).unwrap().to_owned();
    let verdicts: Vec<_> = results.iter().map(short).collect();
    assert_eq!(
        verdicts,
        [
            "completed",
            "failed",
            "job_not_found",
            "validation",
            "validation",
            "delayed",
            "validation",
            "validation",
            "scheduled",
            "stale_lease",
        ]
    );
    assert_eq!(results[0], json!({"id": tokens[0].0, "state": "completed"}));
    assert_eq!((&results[2]["id"], results[7]["id"].is_null()), (&"missing".into(), true));
    assert!(results[3]["detail"].as_str().unwrap().contains("delay"));
    assert_eq!(c.post("/v1/settlements", r#"{"settlements":[]}"#).await.ok(200), json!({"results": []}));
    let many = format!(r#"{{"settlements":[{}]}}"#, vec!["{}"; 1_001].join(","));
    c.post("/v1/settlements", &many).await.problem(400, "validation");
    c.post("/v1/settlements", r#"{"settlements":{}}"#).await.problem(400, "validation");
    c.post("/v1/settlements", "").await.problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn a_batch_of_heartbeats_has_one_verdict_each() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t"}"#).await;
    let (id, token) = lease(&c.claim("q").await);
    let beats = format!(
        r#"{{"heartbeats":[{{"id":"{id}","lease":"{token}","progress":5}},{{"id":"{id}","lease":"x"}},{{"id":"{id}","leese":"x"}}]}}"#
    );
    let answer = c.post("/v1/heartbeats", &beats).await.ok(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!((&results[0]["cancel_requested"], &results[0]["id"]), (&false.into(), &json!(id)));
    assert_eq!((&results[1]["code"], &results[2]["code"]), (&"stale_lease".into(), &"validation".into()));
    assert_eq!(c.job(&id).await["progress"], 5);
    server.stop().await;
}

#[tokio::test]
async fn optional_fencing_needs_no_token() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.put("/v1/queues/q", r#"{"settings":{"fencing":"optional"}}"#).await.ok(201);
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    c.claim("q").await;
    c.post(&format!("/v1/jobs/{id}/complete"), r#"{"lease":"wrong"}"#).await.problem(409, "stale_lease");
    assert_eq!(c.post(&format!("/v1/jobs/{id}/complete"), "").await.ok(200)["state"], "completed");
    server.stop().await;
}

/// Rules Small print.
#[tokio::test]
async fn a_running_job_submits_children() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let parent = c.submit("q", r#"{"type":"parent"}"#).await;
    let (_, token) = lease(&c.claim("q").await);
    let path = format!("/v1/jobs/{parent}/children");
    let body = |rest: &str| format!(r#"{{"lease":"{token}",{rest}}}"#);
    let answer = c
        .post(&path, &body(r#""jobs":[{"type":"c"},{"type":"c","queue":"other"}],"finally":{"type":"f"}"#))
        .await
        .ok(201);
    let children = answer["jobs"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    let finally = c.job(answer["finally"].as_str().unwrap()).await;
    assert_eq!(
        (&finally["state"], &finally["waiting_on"], &finally["parent"]),
        (&"pending".into(), &2.into(), &json!(parent))
    );
    assert_eq!(c.job(children[1].as_str().unwrap()).await["queue"], "other");
    assert_eq!(c.job(children[0].as_str().unwrap()).await["queue"], "q");
    let none = c.post(&path, &body(r#""jobs":[{"type":"c"}]"#)).await.ok(201);
    assert!(none["finally"].is_null());
    let refused = c
        .post(&path, &body(r#""jobs":[{"type":"c"},{"tpe":"c"}],"finally":{"type":""}"#))
        .await
        .problem(400, "validation");
    let indices: Vec<_> =
        refused["errors"].as_array().unwrap().iter().map(|error| error["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [1, 2]);
    c.post(&path, &body(r#""jobs":[]"#)).await.problem(400, "validation");
    c.post(&path, r#"{"lease":"x","jobs":[{"tpe":"c"}]}"#).await.problem(409, "stale_lease");
    c.post(&path, r#"{"jobs":[{"type":"c"}]}"#).await.problem(400, "validation");
    c.post("/v1/jobs/missing/children", r#"{"jobs":[{"type":"c"}]}"#).await.problem(404, "job_not_found");
    c.post("/v1/queues/q/jobs", r#"{"type":"t","queue":"q"}"#).await.problem(400, "validation");
    server.stop().await;
}
