//! The OpenAPI description: its examples are valid requests.

use serde_json::Value;

use crate::common::Setup;

/// Sends the example of every request. Ids of jobs and workflows are unknown to the server, so that
/// 404 and 409 are fine; an example that the server cannot parse is 400.
#[tokio::test]
async fn examples_of_requests_are_valid() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let document: Value = c.get("/openapi.json").await.ok(200);
    let mut sent = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let example = &operation["requestBody"]["content"]["application/json"]["example"];
            // The first token would lock this test out.
            if example.is_null() || path == "/v1/tokens" {
                continue;
            }
            let path = path
                .replace("{id}", "6f1d2c3b-0000-4000-8000-000000000001")
                .replace("{queue}", "email")
                .replace("{worker}", "mailer-1")
                .replace("{name}", "nightly");
            // A claim that finds no job would wait.
            let body = example.to_string().replace("\"wait\":\"20s\"", "\"wait\":\"0s\"");
            let response = c.call(&method.to_uppercase(), &path, Some(&body)).await;
            assert!([200, 201, 202, 404, 409].contains(&response.status), "{method} {path}: {}", response.text());
            sent += 1;
        }
    }
    assert!(sent >= 20, "only {sent} examples");
    server.stop().await;
}

/// Checklist: no route answers TRACE, and every one says what it answers.
#[tokio::test]
async fn trace_is_refused_on_every_route() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let document: Value = c.get("/openapi.json").await.ok(200);
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        let refused = c.call("TRACE", &path, None).await;
        let allow = refused.header("allow").unwrap_or_default().to_owned();
        for method in item.as_object().unwrap().keys() {
            assert!(allow.split(',').any(|word| word.trim().eq_ignore_ascii_case(method)), "{path}: {allow}");
        }
        refused.problem(405, "method_not_allowed");
    }
    server.stop().await;
}
