//! Invalid requests are rejected and change nothing.

use longshore_server::Limits;

use crate::harness::World;

#[tokio::test]
async fn invalid_json_is_rejected() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let id = c.started("q", "{}").await;
    let calls = [
        ("PUT", "/queue/new".to_owned()),
        ("PUT", "/queue/q".to_owned()),
        ("POST", "/queue/q/job".to_owned()),
        // Invalid JSON is reported before a missing queue.
        ("POST", "/queue/none/job".to_owned()),
        ("PATCH", format!("/job/{id}")),
        ("PATCH", "/job/12345".to_owned()),
        ("PUT", format!("/job/{id}/output")),
        ("PUT", "/job/12345/output".to_owned()),
    ];
    for (method, path) in &calls {
        for body in ["", "{", "{]", "nope", "{} x", "\u{feff}{}", "{\"a\":1,}"] {
            c.call(method, path, Some(body)).await.refuses(400, "Json deserialize error: ");
        }
        c.send(method, path, &[("content-type", "application/json")], b"{\"\xff\":1}")
            .await
            .refuses(400, "Json deserialize error: ");
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application", "json", "xapplication/json"] {
            c.send(method, path, &[("content-type", kind)], b"{}").await.refuses(400, "Content type error");
        }
        c.send(method, path, &[], b"{}").await.refuses(400, "Content type error");
        c.call(method, path, None).await.refuses(400, "Content type error");
    }
    for (method, path) in &calls[..6] {
        for body in ["[]", "3", "null", "\"x\""] {
            c.call(method, path, Some(body)).await.refuses(400, "Json deserialize error: ");
        }
    }
    c.get("/queue").await.is(200, r#"["q"]"#);
    c.get("/queue/q/size").await.is(200, "0");
    // Accepted content types.
    for kind in ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.acme+json", "text/x+json;q=1"]
    {
        let reply = c.send("PUT", "/queue/q", &[("content-type", kind)], b"{}").await;
        assert_eq!(reply.status, 204, "{kind}");
    }
    world.stop().await;
}

#[tokio::test]
async fn values_of_the_wrong_type_are_rejected() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    c.put("/queue/q2", r#"{"timeout":"10"}"#)
        .await
        .refuses(400, "time unit needed, for example 10sec or 10ms at line 1 column 15");
    let durations = [
        "10",
        "\"\"",
        "\"0\"",
        "\"1.5s\"",
        "\"-1s\"",
        "\"1S\"",
        "\"1wk\"",
        "[]",
        "{}",
        "true",
        "\"\\u0031s\"",
        "\"36501d\"",
    ];
    for field in ["timeout", "heartbeat_timeout", "expires_after"] {
        for value in durations {
            let body = format!(r#"{{"{field}":{value}}}"#);
            c.put("/queue/q2", &body).await.refuses(400, field);
            c.post("/queue/q/job", &body).await.refuses(400, field);
        }
    }
    let mut wrong: Vec<(&str, String)> = Vec::new();
    wrong
        .extend(["1.0", "\"1\"", "-1", "[]", "18446744073709551616", "1e3"].map(|value| ("retries", value.to_owned())));
    wrong.extend(["\"1s\"", "{}", "[1]", "[null]", "[\"1\"]", "5"].map(|value| ("retry_delays", value.to_owned())));
    wrong.push(("retry_delays", format!("[{}]", vec!["\"1s\""; 101].join(","))));
    for (field, value) in &wrong {
        let body = format!(r#"{{"{field}":{value}}}"#);
        for reply in [c.put("/queue/q2", &body).await, c.post("/queue/q/job", &body).await] {
            assert_eq!(reply.status, 400, "{body}");
            assert!(reply.body.contains(field), "{reply:?}");
        }
    }
    for field in ["timeout", "heartbeat_timeout", "expires_after", "retries", "retry_delays"] {
        c.put("/queue/q2", &format!(r#"{{"{field}":null}}"#)).await.refuses(400, field);
        c.put("/queue/q2", &format!(r#"{{"{field}":1,"{field}":1}}"#)).await.refuses(400, field);
    }
    let long = "x".repeat(129);
    let many = vec!["\"t\""; 65].join(",");
    for tags in
        ["\"a\"", "{}", "[1]", "[null]", "[[]]", &format!("[\"{long}\"]"), &format!("[{many}]"), "[\"\\ud800\"]"]
    {
        let reply = c.post("/queue/q/job", &format!(r#"{{"tags":{tags}}}"#)).await;
        assert_eq!(reply.status, 400, "{tags}");
        assert!(reply.body.contains("tags"), "{reply:?}");
    }
    c.get("/queue").await.is(200, r#"["q"]"#);
    c.get("/queue/q/size").await.is(200, "0");
    let id = c.started("q", "{}").await;
    for status in ["\"bogus\"", "\"\"", "\"Failed\"", "\"FAILED\"", "1", "[]", "true", "{}"] {
        let reply = c.patch(&format!("/job/{id}"), &format!(r#"{{"status":{status}}}"#)).await;
        reply.refuses(400, "status: ");
        for word in ["queued", "running", "failed", "completed", "cancelled", "timed_out"] {
            assert!(reply.body.contains(word), "{reply:?}");
        }
    }
    assert_eq!(c.status(id).await, "running");
    world.stop().await;
}

#[tokio::test]
async fn invalid_queue_names_are_rejected() {
    let world = World::new().await;
    let mut c = world.client().await;
    let refusal = "Invalid queue name, valid characters: a-zA-Z0-9_.-";
    for name in ["a%20b", "a:b", "%C3%A4", "a%2Fb", "a+b", "a%00", "%22", "a;b", "a,b", "~", "*"] {
        c.put(&format!("/queue/{name}"), "{}").await.says(400, refusal);
        c.post(&format!("/queue/{name}/job"), "{}").await.says(400, refusal);
        c.delete(&format!("/queue/{name}")).await.says(400, refusal);
        for rest in ["", "/size", "/job_ids", "/job"] {
            c.get(&format!("/queue/{name}{rest}")).await.says(400, refusal);
        }
    }
    c.put(&format!("/queue/{}", "q".repeat(129)), "{}")
        .await
        .says(400, "Invalid queue name, it may have at most 128 characters");
    c.make(&"q".repeat(128), "{}").await;
    c.make("%71", "{}").await;
    assert_eq!(c.get("/queue/q").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn large_bodies_are_rejected() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let limit = 262_144;
    let value = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let too_large = format!("JSON payload ({} bytes) is larger than allowed (limit: {limit} bytes).", limit + 1);
    let id = c.started("q", &format!(r#"{{"input":{}}}"#, value(limit))).await;
    c.post("/queue/q/job", &format!(r#"{{"input":{}}}"#, value(limit + 1))).await.refuses(413, &too_large);
    c.put(&format!("/job/{id}/output"), &value(limit)).await.done();
    c.put(&format!("/job/{id}/output"), &value(limit + 1)).await.refuses(413, &too_large);
    c.patch(&format!("/job/{id}"), &format!(r#"{{"output":{}}}"#, value(limit + 1))).await.refuses(413, &too_large);
    c.put("/queue/q", &format!(r#"{{"x":{}}}"#, value(limit))).await.refuses(413, "is larger than allowed");
    for (method, path) in [("POST", "/queue/q/job"), ("PUT", "/queue/q"), ("PATCH", &format!("/job/{id}"))] {
        c.call(method, path, Some(&value(1 << 20))).await.refuses(413, "is larger than allowed");
    }
    c.get("/queue/q/size").await.is(200, "0");
    // A chunked body without a length.
    let chunk = value(limit + 1);
    let head = format!(
        "PUT /job/{id}/output HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let whole = format!("{head}{:x}\r\n{chunk}\r\n0\r\n\r\n", chunk.len());
    tokio::io::AsyncWriteExt::write_all(&mut c.stream, whole.as_bytes()).await.unwrap();
    c.reply("PUT").await.refuses(413, &too_large);
    // A chunked request ends its connection.
    world.client().await.get(&format!("/job/{id}/status")).await.is(200, r#""running""#);
    world.stop().await;
    // More than the body limit of the server.
    let world = World::with(Limits { body_bytes_max: 1_024, ..Limits::default() }).await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    assert_eq!(world.client().await.post("/queue/q/job", &value(1_025)).await.status, 413);
    c.get("/queue/q/size").await.is(200, "0");
    world.stop().await;
}

#[tokio::test]
async fn deep_json_is_rejected() {
    let world = World::new().await;
    let mut c = world.client().await;
    c.make("q", "{}").await;
    let nested = |levels: usize| format!(r#"{{"input":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let id = c.add("q", &nested(126)).await;
    assert!(c.get(&format!("/job/{id}?fields=input")).await.body.contains(&"[".repeat(126)));
    for levels in [127, 100_000] {
        c.post("/queue/q/job", &nested(levels)).await.refuses(400, "recursion limit exceeded");
    }
    c.get("/queue/q/size").await.is(200, "1");
    world.stop().await;
}
