//! Rate limits of tokens, the last token, and workflows without members.

use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};
use crate::{ALL, call_as, create, first_token, id_of, text};

async fn create_limited(c: &mut Client, root: &str, actions: &[&str], rate: u32, burst: u32) -> String {
    let body = json!({"name": "limited", "actions": actions, "queues": ["*"], "rate": rate, "burst": burst});
    text(&call_as(c, root, "POST", "/v1/tokens", Some(&body.to_string())).await.ok(201)["token"])
}

/// The rate of these tokens is one per second, so that a slow test never gets a unit back in time.
#[tokio::test]
async fn a_token_has_its_rate() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let token = create_limited(&mut c, &root, &["submit", "read"], 1, 50).await;
    // The first batch is larger than the burst; the next request has to wait until it is paid for.
    let jobs = vec![r#"{"type":"t"}"#; 1_000].join(",");
    call_as(&mut c, &token, "POST", "/v1/queues/q/jobs", Some(&format!("[{jobs}]"))).await.ok(201);
    let refused = call_as(&mut c, &token, "POST", "/v1/queues/q/jobs", Some(r#"{"type":"t"}"#)).await;
    let problem = refused.problem(429, "rate_limited");
    assert_eq!(problem["retry"], "safe");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((900..=951).contains(&seconds), "{seconds}");
    call_as(&mut c, &token, "GET", "/v1/jobs", None).await.problem(429, "rate_limited");
    // Others are not limited, and nothing of a refused request is stored.
    let stats = call_as(&mut c, &root, "GET", "/v1/stats", None).await.ok(200);
    assert_eq!(stats["totals"]["counts"]["scheduled"], 1_000);
    let metrics = call_as(&mut c, &root, "GET", "/metrics", None).await;
    assert!(metrics.text().contains("\nlongshore_http_requests_rate_limited_total 2\n"));
    server.stop().await;
}

#[tokio::test]
async fn work_that_is_done_can_always_be_reported() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for _ in 0..3 {
        c.submit("q", r#"{"type":"t"}"#).await;
    }
    let root = first_token(&mut c).await;
    let token = create_limited(&mut c, &root, &["work"], 1, 2).await;
    let claim = r#"{"queues":["q"],"limit":3}"#;
    let claimed = call_as(&mut c, &token, "POST", "/v1/claims", Some(claim)).await.ok(200);
    let jobs: Vec<(String, String)> = claimed["jobs"].as_array().unwrap().iter().map(lease).collect();
    loop {
        let reply = call_as(&mut c, &token, "POST", "/v1/claims", Some(claim)).await;
        if reply.status == 429 {
            reply.problem(429, "rate_limited");
            break;
        }
    }
    let body = |lease: &str| format!(r#"{{"lease":"{lease}"}}"#);
    for _ in 0..20 {
        let path = format!("/v1/jobs/{}/heartbeat", jobs[0].0);
        call_as(&mut c, &token, "POST", &path, Some(&body(&jobs[0].1))).await.ok(200);
    }
    for (verb, (id, lease)) in ["complete", "release"].iter().zip(&jobs) {
        call_as(&mut c, &token, "POST", &format!("/v1/jobs/{id}/{verb}"), Some(&body(lease))).await.ok(200);
    }
    let rest = json!({"settlements": [{"id": jobs[2].0, "lease": jobs[2].1, "outcome": "complete"}]}).to_string();
    let reply = call_as(&mut c, &token, "POST", "/v1/settlements", Some(&rest)).await;
    assert_ne!(reply.status, 429, "{}", reply.text());
    server.stop().await;
}

#[tokio::test]
async fn rates_are_checked_and_shown() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let with = |extra: Value| {
        let mut body = json!({"name": "n", "actions": ["read"], "queues": ["*"]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body.to_string()
    };
    for (extra, field) in [
        (json!({"rate": 0}), "rate"),
        (json!({"rate": 1_000_001}), "rate"),
        (json!({"rate": -1}), "rate"),
        (json!({"rate": 1.5}), "rate"),
        (json!({"rate": "5"}), "rate"),
        (json!({"burst": 5}), "burst"),
        (json!({"rate": 5, "burst": 0}), "burst"),
        (json!({"rate": 5, "burst": 1_000_001}), "burst"),
    ] {
        let problem = call_as(&mut c, &root, "POST", "/v1/tokens", Some(&with(extra.clone()))).await;
        assert_eq!(problem.problem(400, "validation")["field"], field, "{extra}");
    }
    let created = call_as(&mut c, &root, "POST", "/v1/tokens", Some(&with(json!({"rate": 7})))).await.ok(201);
    assert_eq!((&created["rate"], &created["burst"]), (&json!(7), &json!(7)));
    call_as(&mut c, &root, "POST", "/v1/tokens", Some(&with(json!({"rate": null})))).await.ok(201);
    let tokens = call_as(&mut c, &root, "GET", "/v1/tokens", None).await.ok(200);
    let mut rates: Vec<_> = tokens["tokens"].as_array().unwrap().iter().map(|token| token["rate"].as_u64()).collect();
    rates.sort_unstable();
    assert_eq!(rates, [None, None, Some(7)]);
    server.stop().await;
}

/// Finding D10: without a token the server would trust a proxy on its own machine.
#[tokio::test]
async fn the_last_token_can_be_kept() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let other = create(&mut c, &root, "other", ALL, &["*"]).await;
    let path = |token: &str, query: &str| format!("/v1/tokens/{}{query}", id_of(token));
    call_as(&mut c, &root, "DELETE", &path(&root, ""), None).await.ok(204);
    let refused = call_as(&mut c, &other, "DELETE", &path(&other, "?keep_last=true"), None).await;
    assert!(refused.problem(409, "illegal_transition")["detail"].as_str().unwrap().contains("keep_last"));
    call_as(&mut c, &other, "DELETE", &path(&other, "?keep_last=maybe"), None).await.problem(400, "validation");
    call_as(&mut c, &other, "GET", "/v1/info", None).await.ok(200);
    call_as(&mut c, &other, "DELETE", &path(&other, ""), None).await.ok(204);
    // The server answers its own machine again, but no client of a proxy there.
    c.get("/v1/info").await.ok(200);
    for header in ["X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9", "X-Real-IP: 203.0.113.9"] {
        c.send_bytes("GET", "/v1/info", &format!("{header}\r\n"), b"").await;
        c.reply().await.unwrap().problem(401, "unauthorized");
    }
    server.stop().await;
}

/// Finding D5.
#[tokio::test]
async fn a_workflow_without_members_is_visible_in_the_scope_of_its_creator() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let actions = &["submit", "read", "operate"];
    let mail = create(&mut c, &root, "mail", actions, &["mail", "mail.*"]).await;
    let part = create(&mut c, &root, "part", actions, &["mail"]).await;
    let more = create(&mut c, &root, "more", actions, &["ma*"]).await;
    let bills = create(&mut c, &root, "bills", actions, &["bills"]).await;
    let open = Some(r#"{"name":"empty","open":true}"#);
    let id = text(&call_as(&mut c, &mail, "POST", "/v1/workflows", open).await.ok(201)["id"]);
    let of_root = text(&call_as(&mut c, &root, "POST", "/v1/workflows", open).await.ok(201)["id"]);
    for (token, sees) in [(&mail, true), (&more, true), (&part, false), (&bills, false)] {
        let listed = call_as(&mut c, token, "GET", "/v1/workflows", None).await.ok(200);
        let ids: Vec<&str> =
            listed["workflows"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(ids, if sees { vec![id.as_str()] } else { vec![] });
        for hidden in [if sees { None } else { Some(&id) }, Some(&of_root)].into_iter().flatten() {
            let path = format!("/v1/workflows/{hidden}");
            call_as(&mut c, token, "GET", &path, None).await.problem(404, "workflow_not_found");
            for verb in ["close", "cancel", "retry"] {
                let path = format!("{path}/{verb}");
                call_as(&mut c, token, "POST", &path, Some("{}")).await.problem(404, "workflow_not_found");
            }
            let jobs = Some(r#"[{"type":"t","queue":"bills"}]"#);
            call_as(&mut c, token, "POST", &format!("{path}/jobs"), jobs).await.problem(404, "workflow_not_found");
        }
    }
    let path = format!("/v1/workflows/{id}");
    call_as(&mut c, &more, "GET", &path, None).await.ok(200);
    // From the first member on, the members decide.
    let jobs = Some(r#"[{"type":"t","queue":"mail"}]"#);
    call_as(&mut c, &mail, "POST", &format!("{path}/jobs"), jobs).await.ok(201);
    call_as(&mut c, &part, "GET", &path, None).await.ok(200);
    call_as(&mut c, &bills, "GET", &path, None).await.problem(404, "workflow_not_found");
    call_as(&mut c, &root, "GET", &format!("/v1/workflows/{of_root}"), None).await.ok(200);
    server.stop().await;
}
