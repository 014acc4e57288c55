//! Jobs: submit, read, select fields, tag, delete.

use serde_json::json;

use crate::harness::World;

/// Proves O-3, O-10 to O-18, O-38, O-53.
#[tokio::test]
async fn a_job_has_17_fields_in_order() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("jq", r#"{"heartbeat_timeout":"90s","retries":2,"retry_delays":["10s","1m"]}"#).await;
    let made = c.post("/queue/jq/job", "{}").await;
    let id: u64 = made.body.parse().unwrap();
    made.is(201, &id.to_string());
    assert_eq!(made.header("location"), Some(format!("/job/{id}").as_str()));
    let expected = format!(
        r#"{{"id":{id},"queue":"jq","status":"queued","tags":null,"created_at":"2026-11-15T00:00:00.000Z","started_at":null,"ended_at":null,"last_heartbeat":null,"input":null,"output":null,"timeout":"5m","heartbeat_timeout":"1m 30s","expires_after":"5m","retries":2,"retries_attempted":0,"retry_delays":["10s","1m"],"ended":false}}"#
    );
    c.get(&format!("/job/{id}")).await.is(200, &expected);
    // Settings of a job: null means unset, and so does an empty list of delays.
    let own = r#"{"input":{},"tags":[],"timeout":"0s","heartbeat_timeout":"1m","expires_after":"1day","retries":7,"retry_delays":[],"colour":"red"}"#;
    let id = c.add("jq", own).await;
    let job = c.job(id).await;
    let shown = ["input", "tags", "timeout", "heartbeat_timeout", "expires_after", "retries", "retry_delays"];
    let expected = [json!({}), json!([]), json!("0s"), json!("1m"), json!("1day"), json!(7), json!(null)];
    assert_eq!(shown.map(|name| job[name].clone()), expected);
    let nulls = r#"{"input":null,"tags":null,"timeout":null,"heartbeat_timeout":null,"expires_after":null,"retries":null,"retry_delays":null}"#;
    let id = c.add("jq", nulls).await;
    // Later changes of the queue do not affect the job.
    c.put("/queue/jq", "{}").await.done();
    let job = c.job(id).await;
    let expected =
        [json!(null), json!(null), json!("5m"), json!("1m 30s"), json!("5m"), json!(2), json!(["10s", "1m"])];
    assert_eq!(shown.map(|name| job[name].clone()), expected);
    world.stop().await;
}

/// Proves O-18, O-19.
#[tokio::test]
async fn json_is_kept_byte_for_byte() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    for json in [
        r#"{"b":1,"a":{"d":1.50,"c":1e3},"b":2}"#,
        r#"{ "b" : [ 1 , 2.0 ] }"#,
        "123456789012345678901234567890",
        r#""\u00e4\/é\ud83d\ude00""#,
        "-0.0",
        "true",
        r#""""#,
    ] {
        let id = c.add("q", &format!(r#"{{"input": {json} }}"#)).await;
        c.get("/queue/q/job").await.is(200, &format!(r#"{{"id":{id},"input":{json}}}"#));
        c.get(&format!("/job/{id}?fields=input")).await.is(200, &format!(r#"{{"input":{json}}}"#));
        c.put(&format!("/job/{id}/output"), json).await.done();
        c.get(&format!("/job/{id}/output")).await.is(200, json);
        c.patch(&format!("/job/{id}"), &format!(r#"{{"status":"completed","output":{json}}}"#)).await.done();
        c.get(&format!("/job/{id}?fields=output")).await.is(200, &format!(r#"{{"output":{json}}}"#));
    }
    world.stop().await;
}

#[tokio::test]
async fn fields_can_be_selected() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.add("q", "{}").await;
    let path = format!("/job/{id}");
    c.get(&format!("{path}?fields=ended,status,id"))
        .await
        .is(200, &format!(r#"{{"ended":false,"status":"queued","id":{id}}}"#));
    c.get(&format!("{path}?fields=ended")).await.is(200, r#"{"ended":false}"#);
    c.get(&format!("{path}?x=1&fields=id%2Cid&y")).await.is(200, &format!(r#"{{"id":{id},"id":{id}}}"#));
    assert_eq!(c.get(&format!("{path}?field=id")).await.json().as_object().unwrap().len(), 17);
    for (query, unknown) in [
        ("fields=bogus", "bogus"),
        ("fields=id,Status", "Status"),
        ("fields=id,%20status", " status"),
        ("fields=id+,status", "id "),
        ("fields=", ""),
        ("fields", ""),
        ("fields=id,", ""),
    ] {
        let reply = c.get(&format!("{path}?{query}")).await;
        assert_eq!((reply.status, reply.body), (400, format!("Unrecognised field: {unknown}")), "{query}");
        assert!(!reply.headers.iter().any(|(name, _)| name == "content-type"));
    }
    c.get(&format!("{path}?fields=id&fields=id")).await.refuses(400, "duplicate field");
    // The query is parsed before the job is read.
    assert_eq!(c.get("/job/77?fields=bogus").await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn invalid_ids_are_404() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.add("q", "{}").await;
    for path in [format!("/job/{id}"), format!("/job/000{id}"), format!("/job/+{id}"), format!("/job/%2B{id}")] {
        assert_eq!(c.get(&path).await.json()["id"], id);
    }
    for bad in ["abc", "-1", "1.0", "18446744073709551616", "0x1", "%201", "1%00"] {
        for (method, rest) in
            [("GET", ""), ("GET", "/status"), ("GET", "/output"), ("PUT", "/heartbeat"), ("DELETE", "")]
        {
            c.call(method, &format!("/job/{bad}{rest}"), None).await.refuses(404, "to a u64");
        }
    }
    c.get("/job/abc").await.refuses(404, r#"can not parse "abc" to a u64"#);
    c.get("/job/0").await.says(404, "Job with ID 0 does not exist");
    c.get("/job/18446744073709551615").await.says(404, "Job with ID 18446744073709551615 does not exist");
    c.get("/job/%FF").await.refuses(404, "");
    world.stop().await;
}

/// Proves O-13, O-54, O-55, O-56.
#[tokio::test]
async fn jobs_are_found_by_tag() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    c.make("r", "{}").await;
    let first =
        c.add("q", r#"{"tags":["zz","zz","ä ö","a/b","a+b","50%","quote\"","back\\","\u0007","","key:value"]}"#).await;
    let second = c.add("r", r#"{"tags":["zz"]}"#).await;
    assert_eq!(
        c.job(first).await["tags"],
        json!(["zz", "zz", "ä ö", "a/b", "a+b", "50%", "quote\"", "back\\", "\u{7}", "", "key:value"])
    );
    c.get("/tag/zz").await.is(200, &format!("[{first},{second}]"));
    for tag in ["%C3%A4%20%C3%B6", "a%2Fb", "a+b", "a%2Bb", "50%25", "quote%22", "back%5C", "%07", "key:value"] {
        c.get(&format!("/tag/{tag}")).await.is(200, &format!("[{first}]"));
    }
    for tag in ["none", "z", "ZZ", "a%20b", "key", "value"] {
        c.get(&format!("/tag/{tag}")).await.is(200, "[]");
    }
    c.get("/tag/").await.silent(404);
    c.get("/tag/%FF").await.refuses(404, "");
    // Deleting a job or its queue removes its tags.
    c.delete(&format!("/job/{first}")).await.done();
    c.get("/tag/zz").await.is(200, &format!("[{second}]"));
    c.get("/tag/quote%22").await.is(200, "[]");
    c.delete("/queue/r").await.done();
    c.get("/tag/zz").await.is(200, "[]");
    // More jobs than one page.
    let mut ids = Vec::new();
    for _ in 0..1_200 {
        ids.push(c.add("q", r#"{"tags":["many"]}"#).await);
    }
    assert_eq!(c.get("/tag/many").await.json(), json!(ids));
    world.stop().await;
}

#[tokio::test]
async fn a_job_is_deleted_in_any_state() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", r#"{"retries":1,"retry_delays":["1h"]}"#).await;
    for status in ["running", "failed", "completed", "cancelled", "timed_out", "queued"] {
        let id = if status == "queued" { c.add("q", "{}").await } else { c.started("q", "{}").await };
        if !["queued", "running"].contains(&status) {
            c.set(id, status).await;
        }
        assert_eq!(c.status(id).await, status);
        c.delete(&format!("/job/{id}")).await.done();
        c.delete(&format!("/job/{id}")).await.silent(404);
        let gone = format!("Job with ID {id} does not exist");
        c.get(&format!("/job/{id}")).await.says(404, &gone);
        c.get(&format!("/job/{id}/status")).await.says(404, &gone);
        c.get(&format!("/job/{id}/output")).await.says(404, &gone);
        c.patch(&format!("/job/{id}"), r#"{"status":"completed"}"#).await.says(404, &gone);
    }
    c.get("/queue/q/job").await.done();
    world.stop().await;
}
