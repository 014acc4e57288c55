//! Workflows.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};

async fn make(c: &mut Client, body: &Value) -> Value {
    c.post("/v1/workflows", &body.to_string()).await.ok(201)
}

async fn workflow(c: &mut Client, id: &Value) -> Value {
    c.get(&format!("/v1/workflows/{}", id.as_str().unwrap())).await.ok(200)
}

/// Claims one job of the queue and completes it with its type as the result.
async fn run_one(c: &mut Client, queue: &str) -> Value {
    let claimed = c.post("/v1/claims", &json!({"queues":[queue],"worker":"w"}).to_string()).await.ok(200);
    let job = claimed["jobs"][0].clone();
    let body = json!({"lease": lease(&job).1, "result": job["type"]});
    c.post(&format!("/v1/jobs/{}/complete", job["id"].as_str().unwrap()), &body.to_string()).await.ok(200);
    job
}

fn member<'a>(workflow: &'a Value, name: &str) -> &'a Value {
    workflow["jobs"].as_array().unwrap().iter().find(|job| job["ref"] == name).unwrap()
}

/// Proves T-32.
#[tokio::test]
async fn a_graph_by_refs_runs_in_order() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let body = json!({"name":"nightly","jobs":[
        {"ref":"sum","queue":"b","type":"t.sum","after":["#load","#parse"]},
        {"ref":"load","queue":"a","type":"t.load"},
        {"ref":"parse","queue":"a","type":"t.parse","after":["#load"]},
        {"queue":"a","type":"t.note","after_any":["#load"]}]});
    let made = make(&mut c, &body).await;
    assert_eq!(made["jobs"].as_object().unwrap().keys().collect::<Vec<_>>(), ["3", "load", "parse", "sum"]);
    let shown = workflow(&mut c, &made["id"]).await;
    assert_eq!(
        (&shown["name"], &shown["state"], &shown["open"]),
        (&json!("nightly"), &json!("running"), &json!(false))
    );
    assert_eq!(
        (&shown["counts"]["pending"], &shown["counts"]["scheduled"], &shown["total"]),
        (&json!(3), &json!(1), &json!(4))
    );
    assert_eq!(member(&shown, "sum")["after"], json!([made["jobs"]["load"], made["jobs"]["parse"]]));
    assert_eq!(member(&shown, "3")["after_any"], json!([made["jobs"]["load"]]));
    let job = run_one(&mut c, "a").await;
    assert_eq!((&job["id"], &job["workflow"]), (&made["jobs"]["load"], &made["id"]));
    run_one(&mut c, "a").await;
    run_one(&mut c, "a").await;
    let sum = made["jobs"]["sum"].as_str().unwrap();
    let inputs = c.get(&format!("/v1/jobs/{sum}/inputs")).await.ok(200);
    let expected = json!([
        {"id": made["jobs"]["load"], "ref":"load", "state":"completed", "result":"t.load"},
        {"id": made["jobs"]["parse"], "ref":"parse", "state":"completed", "result":"t.parse"}]);
    assert_eq!((&inputs["inputs"], &inputs["next"]), (&expected, &Value::Null));
    let page = c.get(&format!("/v1/jobs/{sum}/inputs?limit=1")).await.ok(200);
    assert_eq!((page["inputs"].as_array().unwrap().len(), &page["next"]), (1, &json!("1")));
    let rest = c.get(&format!("/v1/jobs/{sum}/inputs?cursor=1")).await.ok(200);
    assert_eq!(rest["inputs"][0]["ref"], "parse");
    run_one(&mut c, "b").await;
    assert_eq!(workflow(&mut c, &made["id"]).await["state"], "completed");
    let id = made["id"].as_str().unwrap();
    assert_eq!(c.get(&format!("/v1/jobs/{sum}")).await.ok(200)["workflow"], id);
    assert_eq!(c.get(&format!("/v1/jobs?workflow={id}")).await.ok(200)["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(c.get(&format!("/v1/jobs?workflow={id}&queue=b")).await.ok(200)["jobs"].as_array().unwrap().len(), 1);
    server.stop().await;
}

/// Proves T-33, T-34, T-35.
#[tokio::test]
async fn chains_groups_and_chords_nest() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let job = |name: &str| json!({"ref": name, "queue": "q", "type": name});
    let made = make(&mut c, &json!({"chain":[job("a"), job("b")]})).await;
    let shown = workflow(&mut c, &made["id"]).await;
    assert_eq!(member(&shown, "b")["after"], json!([made["jobs"]["a"]]));
    let made = make(&mut c, &json!({"queue":"q","group":[{"type":"a"},{"type":"b","queue":"other"}]})).await;
    let shown = workflow(&mut c, &made["id"]).await;
    assert_eq!((&member(&shown, "0")["queue"], &member(&shown, "1")["queue"]), (&json!("q"), &json!("other")));
    assert_eq!(shown["counts"]["scheduled"], 2);
    let chord = json!({"chain":[
        job("first"),
        {"chord":{"group":[job("x"), {"chain":[job("y"), job("z")]}], "finally": job("last")}},
        {"group":[job("p"), job("q")]}]});
    let made = make(&mut c, &chord).await;
    let shown = workflow(&mut c, &made["id"]).await;
    let after = |name: &str| -> Vec<String> {
        let ids = member(&shown, name)["after"].as_array().unwrap().clone();
        let name_of =
            |id: &Value| made["jobs"].as_object().unwrap().iter().find(|(_, known)| *known == id).unwrap().0.clone();
        ids.iter().map(name_of).collect()
    };
    assert_eq!(after("x"), ["first"]);
    assert_eq!(after("y"), ["first"]);
    assert_eq!(after("z"), ["y"]);
    assert_eq!(after("last"), ["x", "z"]);
    assert_eq!((after("p"), after("q")), (vec!["last".to_owned()], vec!["last".to_owned()]));
    server.stop().await;
}

/// The position of an unknown dependency counts what the client wrote, not what the form adds.
#[tokio::test]
async fn an_unknown_dependency_is_named_where_it_was_written() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let job = |after: Value| json!({"queue": "q", "type": "t", "after": after});
    let cases = [
        (json!({"jobs": [{"ref": "a", "queue": "q", "type": "t"}, job(json!(["#a", "#b"]))]}), "jobs[1].after[1]"),
        (json!({"chain": [job(json!([])), job(json!(["#b"]))]}), "chain[1].after[0]"),
    ];
    for (body, field) in cases {
        let problem = c.post("/v1/workflows", &body.to_string()).await.problem(400, "dependency_unknown");
        assert_eq!(problem["field"], field);
    }
    let known = c.post("/v1/queues/q/jobs", r#"{"type":"t"}"#).await.ok(201)["id"].clone();
    let second = json!({"type": "t", "after": [known], "after_any": [known, "0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10"]});
    let problem = c.post("/v1/queues/q/jobs", &second.to_string()).await.problem(400, "dependency_unknown");
    assert_eq!(problem["field"], "after_any[1]");
    server.stop().await;
}

/// Proves G-6.6, G-6.7, G-6.8, G-6.9.
#[tokio::test]
async fn an_invalid_workflow_stores_nothing() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let job = |name: &str, after: Value| json!({"ref": name, "queue": "q", "type": "t", "after": after});
    let many = |number: usize| -> Vec<Value> { (0..number).map(|_| json!({"queue":"q","type":"t"})).collect() };
    let cases = [
        ("dependency_cycle", json!({"jobs":[job("a", json!(["#b"])), job("b", json!(["#a"]))]})),
        ("dependency_unknown", json!({"jobs":[job("a", json!(["#missing"]))]})),
        ("dependency_unknown", json!({"jobs":[job("a", json!(["0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10"]))]})),
        ("dependency_breadth", json!({"chord":{"group": many(1_001), "finally": {"queue":"q","type":"t"}}})),
        ("dependency_breadth", json!({"chain":[{"group": many(1_001)}, {"queue":"q","type":"t"}]})),
        ("dependency_depth", json!({"chain": many(101)})),
        ("validation", json!({"group": many(2_001)})),
        ("validation", json!({"chain":[{"group": many(400)}, {"group": many(400)}]})),
        ("validation", json!({"jobs":[job("a", json!([])), job("a", json!([]))]})),
        ("validation", json!({})),
        ("validation", json!({"jobs":[]})),
        ("validation", json!({"chain":[]})),
        ("validation", json!({"chord":{"group":[]}})),
        ("validation", json!({"chain": many(1), "group": many(1)})),
        ("validation", json!({"chain":[{"chain": many(1), "group": many(1)}]})),
        ("validation", json!({"chain":[{"chain": many(1), "type": "t"}]})),
        ("validation", json!({"jobs":[{"type":"no queue"}]})),
        ("validation", json!({"jobs":[{"queue":"q","type":"t","chain":[]}]})),
        ("validation", json!({"jobs": many(1), "nmae":"x"})),
        ("validation", json!({"jobs": many(1), "name": "x".repeat(257)})),
        ("validation", json!({"jobs": many(1), "open":"yes"})),
        ("payload_too_large", json!({"jobs":[{"queue":"q","type":"t","payload":"x".repeat(1_048_577)}]})),
    ];
    for (code, body) in &cases {
        let status = if *code == "payload_too_large" { 413 } else { 400 };
        let reply = c.post("/v1/workflows", &body.to_string()).await;
        let shown: String = body.to_string().chars().take(120).collect();
        assert_eq!((reply.status, &reply.json()["code"]), (status, &json!(code)), "{shown}");
    }
    c.post("/v1/workflows", "[]").await.problem(400, "validation");
    c.post("/v1/workflows", "").await.problem(400, "bad_request");
    assert_eq!(c.get("/v1/workflows").await.ok(200), json!({"workflows":[],"next":null}));
    assert_eq!(c.get("/v1/jobs").await.ok(200)["jobs"], json!([]));
    make(&mut c, &json!({"chain": many(100)})).await;
    make(&mut c, &json!({"chord":{"group": many(1_000), "finally": {"queue":"q","type":"t"}}})).await;
    // The error of an invalid member has its path.
    let broken = json!({"chain":[{"queue":"q","type":"t"},{"queue":"q"}]});
    let problem = c.post("/v1/workflows", &broken.to_string()).await.problem(400, "validation");
    assert_eq!(problem["errors"][0]["index"], 1);
    let unknown = "0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10";
    for path in [format!("/v1/workflows/{unknown}"), "/v1/workflows/missing".to_owned()] {
        c.get(&path).await.problem(404, "workflow_not_found");
        for verb in ["cancel", "retry", "close"] {
            c.post(&format!("{path}/{verb}"), "{}").await.problem(404, "workflow_not_found");
        }
        c.post(&format!("{path}/jobs"), r#"{"jobs":[{"queue":"q","type":"t"}]}"#)
            .await
            .problem(404, "workflow_not_found");
    }
    for query in ["?limit=0", "?limit=1001", "?state=asleep", "?cursor=x", "?colour=red"] {
        c.get(&format!("/v1/workflows{query}")).await.problem(400, "validation");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_open_workflow_accepts_jobs_until_closed() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let made = make(&mut c, &json!({"open":true,"name":"stream"})).await;
    assert_eq!(made["jobs"], json!({}));
    let id = made["id"].as_str().unwrap().to_owned();
    let first =
        c.post(&format!("/v1/workflows/{id}/jobs"), r#"{"jobs":[{"ref":"a","queue":"q","type":"t"}]}"#).await.ok(201);
    assert_eq!(first["id"], id.as_str());
    let second =
        c.post(&format!("/v1/workflows/{id}/jobs"), r##"[{"queue":"q","type":"t","after":["#a"]}]"##).await.ok(201);
    assert!(second["jobs"]["1"].is_string(), "{second}");
    c.post(
        &format!("/v1/workflows/{id}/jobs"),
        r##"{"queue":"q","chain":[{"type":"t","after":["#a"]},{"type":"t"}]}"##,
    )
    .await
    .ok(201);
    let taken = r#"{"jobs":[{"ref":"a","queue":"q","type":"t"}]}"#;
    c.post(&format!("/v1/workflows/{id}/jobs"), taken).await.problem(400, "validation");
    for _ in 0..4 {
        run_one(&mut c, "q").await;
    }
    let shown = workflow(&mut c, &made["id"]).await;
    assert_eq!((&shown["state"], &shown["ended"], &shown["total"]), (&json!("running"), &json!(4), &json!(4)));
    assert_eq!(c.post(&format!("/v1/workflows/{id}/close"), "").await.ok(200)["state"], "completed");
    c.post(&format!("/v1/workflows/{id}/close"), "{}").await.ok(200);
    c.post(&format!("/v1/workflows/{id}/jobs"), taken).await.problem(409, "illegal_transition");
    c.post(&format!("/v1/workflows/{id}/cancel"), "").await.problem(409, "illegal_transition");
    c.post(&format!("/v1/workflows/{id}/retry"), "").await.problem(409, "illegal_transition");
    server.stop().await;
}

#[tokio::test]
async fn a_workflow_is_cancelled_and_retried() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let made = make(&mut c, &json!({"queue":"q","chain":[{"type":"a"},{"type":"b"},{"type":"c"}]})).await;
    let id = made["id"].as_str().unwrap().to_owned();
    let cancelled = c.post(&format!("/v1/workflows/{id}/cancel"), r#"{"reason":"enough"}"#).await.ok(200);
    assert_eq!((&cancelled["state"], &cancelled["counts"]["cancelled"]), (&json!("cancelled"), &json!(3)));
    assert_eq!(c.post(&format!("/v1/workflows/{id}/retry"), "").await.ok(200)["state"], "running");
    let claimed = c.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.ok(200)["jobs"][0].clone();
    let path = format!("/v1/jobs/{}", claimed["id"].as_str().unwrap());
    let asked = c.post(&format!("/v1/workflows/{id}/cancel"), "{}").await.ok(202);
    assert_eq!((&asked["state"], &asked["counts"]["running"]), (&json!("running"), &json!(1)));
    let body = json!({"lease": lease(&claimed).1, "error": {"category":"permanent","message":"no"}}).to_string();
    c.post(&format!("{path}/fail"), &body).await.ok(200);
    assert_eq!(workflow(&mut c, &made["id"]).await["state"], "cancelled");
    c.post(&format!("/v1/workflows/{id}/retry"), "").await.ok(200);
    let claimed = c.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.ok(200)["jobs"][0].clone();
    let body = json!({"lease": lease(&claimed).1, "error": {"category":"permanent","message":"no"}}).to_string();
    c.post(&format!("{path}/fail"), &body).await.ok(200);
    let shown = workflow(&mut c, &made["id"]).await;
    assert_eq!((&shown["state"], &shown["counts"]["failed"]), (&json!("failed"), &json!(3)));
    c.post(&format!("/v1/workflows/{id}/retry"), "").await.ok(200);
    for _ in 0..3 {
        run_one(&mut c, "q").await;
    }
    assert_eq!(workflow(&mut c, &made["id"]).await["state"], "completed");
    let history = c.get(&format!("{path}/history")).await.ok(200);
    let causes: Vec<&str> =
        history["history"].as_array().unwrap().iter().map(|step| step["cause"].as_str().unwrap()).collect();
    assert_eq!(causes.iter().filter(|cause| **cause == "requeue").count(), 3, "history is kept: {causes:?}");
    server.stop().await;
}

#[tokio::test]
async fn workflows_and_members_are_paged() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let made =
            make(&mut c, &json!({"queue":format!("q{number}"),"group":[{"type":"t"},{"type":"t"},{"type":"t"}]})).await;
        ids.push(made["id"].clone());
    }
    for _ in 0..3 {
        run_one(&mut c, "q1").await;
    }
    let page = c.get("/v1/workflows?limit=2").await.ok(200);
    let listed: Vec<&Value> = page["workflows"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(listed, [&ids[2], &ids[1]]);
    assert!(page["workflows"][0].get("jobs").is_none());
    let rest = c.get(&format!("/v1/workflows?limit=2&cursor={}", page["next"].as_str().unwrap())).await.ok(200);
    assert_eq!((&rest["workflows"][0]["id"], &rest["next"]), (&ids[0], &Value::Null));
    let done = c.get("/v1/workflows?state=completed").await.ok(200);
    assert_eq!((done["workflows"].as_array().unwrap().len(), &done["workflows"][0]["id"]), (1, &ids[1]));
    let path = format!("/v1/workflows/{}", ids[0].as_str().unwrap());
    let first = c.get(&format!("{path}?limit=2")).await.ok(200);
    assert_eq!((first["jobs"].as_array().unwrap().len(), first["next"].is_string()), (2, true));
    let last = c.get(&format!("{path}?limit=2&cursor={}", first["next"].as_str().unwrap())).await.ok(200);
    assert_eq!((&last["jobs"][0]["ref"], &last["next"]), (&json!("2"), &Value::Null));
    let counts = c.get(&format!("{path}?limit=0")).await.ok(200);
    assert_eq!((&counts["jobs"], &counts["total"]), (&json!([]), &json!(3)));
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_workflow_submission_gets_the_same_response() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let body = json!({"queue":"q","group":[{"type":"t","idempotency_key":"a"},{"type":"t","idempotency_key":"b"}]})
        .to_string();
    let made = c.post("/v1/workflows", &body).await.ok(201);
    assert_eq!(c.post("/v1/workflows", &body).await.ok(200), made);
    assert_eq!(c.get("/v1/workflows").await.ok(200)["workflows"].as_array().unwrap().len(), 1);
    server.stop().await;
}
