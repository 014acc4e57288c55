//! Tokens × routes × queues, against a table that shares nothing with the server's own.

use serde_json::{Value, json};

use crate::common::Setup;
use crate::{ALL, call_as, create, first_token, text};

/// What a route is about.
#[derive(Clone, Copy, PartialEq)]
enum About {
    /// `Q`, `J` or `W` in the path: a queue, or a job or workflow in it.
    Queue,
    /// A listing or batch that treats foreign queues as missing.
    Any,
    /// The whole server.
    All,
    /// `S` in the path: a schedule of a queue. A token without the action learns nothing about it.
    Schedule,
}
use About::{All, Any, Queue, Schedule};

const LEASE: &str = r#"{"lease":"0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10"}"#;

/// Method, path, one of these actions, what it is about, a valid body.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &[&str], About, &str)] = &[
    ("GET", "/v1/queues", &["read", "admin"], Any, ""),
    ("GET", "/v1/queues/Q", &["read", "admin"], Queue, ""),
    ("PUT", "/v1/queues/Q", &["admin"], Queue, "{}"),
    ("DELETE", "/v1/queues/Q", &["admin"], Queue, ""),
    ("POST", "/v1/queues/Q/pause", &["operate"], Queue, ""),
    ("POST", "/v1/queues/Q/resume", &["operate"], Queue, ""),
    ("POST", "/v1/queues/Q/jobs", &["submit"], Queue, r#"{"type":"t"}"#),
    ("POST", "/v1/queues/Q/jobs?", &["submit"], Queue, r#"{"type":"t"}"#),
    ("GET", "/v1/jobs", &["read"], Any, ""),
    ("GET", "/v1/jobs?queue=Q", &["read"], Any, ""),
    ("POST", "/v1/jobs/bulk", &["operate"], Any, r#"{"action":"cancel","filter":{"queue":"Q"},"dry_run":true}"#),
    ("GET", "/v1/jobs/J", &["read"], Queue, ""),
    ("PATCH", "/v1/jobs/J", &["operate"], Queue, r#"{"priority":"low"}"#),
    ("DELETE", "/v1/jobs/J", &["operate"], Queue, ""),
    ("GET", "/v1/jobs/J/payload", &["read"], Queue, ""),
    ("GET", "/v1/jobs/J/attempts", &["read"], Queue, ""),
    ("GET", "/v1/jobs/J/history", &["read"], Queue, ""),
    ("GET", "/v1/jobs/J/inputs", &["read"], Queue, ""),
    ("GET", "/v1/jobs/J/why", &["read"], Queue, ""),
    ("GET", "/v1/jobs/J/wait?timeout=0s", &["read"], Queue, ""),
    ("POST", "/v1/jobs/J/submit", &["submit"], Queue, ""),
    ("POST", "/v1/jobs/J/cancel", &["operate"], Queue, "{}"),
    ("POST", "/v1/jobs/J/requeue", &["operate"], Queue, "{}"),
    ("POST", "/v1/jobs/J/dead-letter", &["operate"], Queue, "{}"),
    ("POST", "/v1/jobs/J/run-now", &["operate"], Queue, ""),
    ("POST", "/v1/claims", &["work"], Any, r#"{"queues":["Q"]}"#),
    ("POST", "/v1/claims?", &["work"], Any, r#"{"queues":["Q"]}"#),
    ("POST", "/v1/jobs/J/complete", &["work"], Queue, LEASE),
    ("POST", "/v1/jobs/J/complete?", &["work"], Queue, LEASE),
    ("POST", "/v1/jobs/J/fail", &["work"], Queue, r#"{"lease":"0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10","error":{"category":"temporary","message":"x"}}"#),
    ("POST", "/v1/jobs/J/heartbeat", &["work"], Queue, LEASE),
    ("POST", "/v1/jobs/J/snooze", &["work"], Queue, r#"{"lease":"0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10","delay":"1s"}"#),
    ("POST", "/v1/jobs/J/release", &["work"], Queue, LEASE),
    ("POST", "/v1/jobs/J/children", &["work"], Queue, r#"{"lease":"0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10","jobs":[{"type":"t"}]}"#),
    ("POST", "/v1/settlements", &["work"], Any, r#"{"settlements":[]}"#),
    ("POST", "/v1/heartbeats", &["work"], Any, r#"{"heartbeats":[]}"#),
    ("POST", "/v1/workflows", &["submit"], Queue, r#"{"jobs":[{"type":"t","ref":"a","queue":"Q"}]}"#),
    ("GET", "/v1/workflows", &["read"], Any, ""),
    ("GET", "/v1/workflows/W", &["read"], Queue, ""),
    ("POST", "/v1/workflows/W/jobs", &["submit"], Queue, r#"{"jobs":[{"type":"t","queue":"Q"}]}"#),
    ("POST", "/v1/workflows/W/close", &["submit"], Queue, ""),
    ("POST", "/v1/workflows/W/cancel", &["operate"], Queue, "{}"),
    ("POST", "/v1/workflows/W/retry", &["operate"], Queue, ""),
    ("GET", "/v1/stats", &["read"], Any, ""),
    ("GET", "/v1/attention", &["read"], Any, ""),
    ("GET", "/v1/types", &["read"], Any, ""),
    ("GET", "/v1/types/t", &["read"], Any, ""),
    ("GET", "/v1/workers", &["read"], Any, ""),
    ("GET", "/v1/info", &["read"], Any, ""),
    ("GET", "/v1/operations", &["read"], Any, ""),
    ("POST", "/v1/workers/w/quiet", &["operate"], All, ""),
    ("POST", "/v1/workers/w/stop", &["operate"], All, ""),
    ("POST", "/v1/workers/w/resume", &["operate"], All, ""),
    ("GET", "/v1/tokens", &["admin"], All, ""),
    ("POST", "/v1/tokens", &["admin"], All, "{}"),
    ("GET", "/v1/tokens/self", ALL, Any, ""),
    ("GET", "/v1/dead-letters/groups", &["read"], Any, ""),
    ("GET", "/v1/dead-letters/groups?queue=Q", &["read"], Any, ""),
    ("DELETE", "/v1/tokens/x", &["admin"], All, ""),
    ("GET", "/v1/audit", &["admin"], All, ""),
    ("GET", "/v1/clock", &["read"], All, ""),
    ("POST", "/v1/clock/advance", &["admin"], All, "{}"),
    ("GET", "/metrics", &["read"], All, ""),
    ("GET", "/v1/events?after=malformed", &["read"], Any, ""),
    ("GET", "/v1/jobs/J/deliveries", &["read"], Queue, ""),
    ("POST", "/v1/deliveries/x/redeliver", &["operate"], Any, ""),
    ("GET", "/v1/schedules", &["read", "admin"], Any, ""),
    ("PUT", "/v1/schedules/S", &["admin"], Schedule, r#"{"every":"30d","queue":"Q","job":{"type":"t"}}"#),
    ("GET", "/v1/schedules/S", &["read", "admin"], Schedule, ""),
    ("DELETE", "/v1/schedules/S", &["admin"], Schedule, ""),
    ("GET", "/v1/schedules/S/ticks", &["read", "admin"], Schedule, ""),
    ("POST", "/v1/schedules/S/pause", &["operate"], Schedule, "{}"),
    ("POST", "/v1/schedules/S/resume", &["operate"], Schedule, ""),
    ("POST", "/v1/schedules/S/trigger", &["submit"], Schedule, ""),
    ("GET", "/v1/webhooks", &["read", "admin"], All, ""),
    ("PUT", "/v1/webhooks/x", &["admin"], All, "{}"),
    ("GET", "/v1/webhooks/x", &["read", "admin"], All, ""),
    ("DELETE", "/v1/webhooks/x", &["admin"], All, ""),
    ("POST", "/v1/webhooks/x/rotate", &["admin"], All, ""),
    ("POST", "/v1/webhooks/x/test", &["admin"], All, ""),
    ("GET", "/v1/webhooks/x/deliveries", &["read", "admin"], All, ""),
    ("POST", "/v1/operations", &["operate"], Any, "{}"),
    ("GET", "/v1/operations/x", &["read"], Any, ""),
    ("POST", "/v1/operations/x/continue", &["operate"], Any, ""),
    ("POST", "/v1/operations/x/stop", &["operate"], Any, ""),
    ("POST", "/v1/operations/x/undo", &["operate"], Any, ""),
];

const ACTIONS: &[&[&str]] =
    &[&["submit"], &["work"], &["read"], &["operate"], &["admin"], &["submit", "work"], &["read", "operate"], ALL];
/// Patterns, and which of the three queues they contain.
const SCOPES: &[(&[&str], [bool; 3])] = &[
    (&["mail"], [true, false, false]),
    (&["mail", "reports.*"], [true, true, false]),
    (&["rep*"], [false, true, false]),
    (&["*"], [true, true, true]),
    (&["nothing.*"], [false, false, false]),
];
const QUEUES: [&str; 3] = ["mail", "reports.eu", "secret"];

/// Fails for a route of the description that the table does not have.
fn check_coverage(document: &Value) {
    let matches = |pattern: &str, path: &str| {
        let (mut parts, mut given) = (pattern.split('/'), path.split('?').next().unwrap().split('/'));
        loop {
            match (parts.next(), given.next()) {
                (None, None) => return true,
                (Some(part), Some(given)) if part.starts_with('{') || part == given => {}
                _ => return false,
            }
        }
    };
    let mut missing = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let is_public = ["/", "/livez", "/readyz", "/openapi.json"].contains(&path.as_str());
            let has_row = TABLE.iter().any(|row| row.0 == method && matches(path, row.1));
            if !is_public && !has_row {
                missing.push(format!("{method} {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "add to TABLE: {missing:#?}");
}

/// Checklist: S01, S04: every case is answered as the table says.
#[tokio::test]
async fn every_token_on_every_route_and_queue_is_answered_by_the_table() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let (mut jobs, mut workflows) = (Vec::new(), Vec::new());
    for queue in QUEUES {
        // Held jobs: no claim changes them.
        jobs.push(c.submit(queue, r#"{"type":"t","hold":true,"payload":1}"#).await);
        let body = json!({"open": true, "jobs": [{"type": "t", "ref": "a", "queue": queue, "hold": true}]});
        let schedule = json!({"every": "30d", "queue": queue, "job": {"type": "t"}});
        c.put(&format!("/v1/schedules/s-{queue}"), &schedule.to_string()).await.ok(201);
        workflows.push(text(&c.post("/v1/workflows", &body.to_string()).await.ok(201)["id"]));
    }
    check_coverage(&c.get("/openapi.json").await.ok(200));
    let root = first_token(&mut c).await;
    let mut cases = 0;
    for actions in ACTIONS {
        for (patterns, covered) in SCOPES {
            let token = create(&mut c, &root, "t", actions, patterns).await;
            for (index, queue) in QUEUES.into_iter().enumerate() {
                for (method, path, needs, about, body) in TABLE {
                    let fill = |text: &str| {
                        text.replace('Q', queue)
                            .replace('J', &jobs[index])
                            .replace('W', &workflows[index])
                            .replace('S', &format!("s-{queue}"))
                    };
                    let has_action = needs.iter().any(|need| actions.contains(need));
                    let expected = match about {
                        Queue if !covered[index] => 404,
                        All if *patterns != ["*"] => 403,
                        Schedule if has_action && !covered[index] => 404,
                        Queue | Any | All | Schedule if has_action => 200,
                        Queue | Any | All | Schedule => 403,
                    };
                    // An allowed call reaches its handler, which refuses an unknown field: nothing
                    // changes.
                    let spoilt = (*method != "GET" && expected == 200 && *about != Any).then_some(r#"{"bogus":1}"#);
                    let (path, body) = (fill(path), fill(body));
                    let body = spoilt.or(Some(body.as_str()).filter(|body| !body.is_empty()));
                    let reply = call_as(&mut c, &token, method, &path, body).await;
                    let is_expected = match expected {
                        // The route was allowed, and what it names does not exist.
                        200 if matches!(about, Any | All) && reply.status == 404 => true,
                        200 => [200, 202, 400].contains(&reply.status),
                        status => reply.status == status,
                    };
                    let case = format!("{actions:?} {patterns:?} {method} {path}: expected {expected}");
                    assert!(is_expected, "{case}, got {} {}", reply.status, reply.text());
                    cases += 1;
                }
            }
        }
    }
    assert!(cases >= 2_000, "only {cases} cases");
    // Without a token, and with a wrong one, every route but the public ones is 401.
    for (method, path, _, _, body) in TABLE {
        let body = Some(*body).filter(|body| !body.is_empty());
        let reply = c.call(method, path, body).await;
        reply.problem(401, "unauthorized");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{method} {path}");
    }
    for path in ["/livez", "/readyz", "/openapi.json", "/"] {
        assert_eq!(c.get(path).await.status, 200, "{path}");
    }
    c.get("/v1/unknown").await.problem(401, "unauthorized");
    server.stop().await;
}
