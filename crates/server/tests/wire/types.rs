//! Figures of job types, and marks of new versions of workers.

use serde_json::{Value, json};

use super::stats::{fail_next, until};
use crate::common::client::lease;
use crate::common::{Client, Setup};

/// Claims one job as a worker with a version.
async fn claim_as(c: &mut Client, worker: &str, version: &str) -> Value {
    let body = json!({"queues": ["mail"], "worker": worker, "version": version, "types": ["email.send"]});
    let mut answer = c.post("/v1/claims", &body.to_string()).await.ok(200);
    answer["jobs"][0].take()
}

#[tokio::test]
async fn types_have_figures_errors_workers_and_new_versions() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for queue in ["mail", "mail", "mail", "bulk"] {
        c.submit(queue, r#"{"type":"email.send"}"#).await;
    }
    c.submit("mail", r#"{"type":"email.digest","delay":"1h"}"#).await;
    c.advance("10s").await;
    let (id, token) = lease(&claim_as(&mut c, "mailer-1", "2.13").await);
    c.advance("4s").await;
    c.post(&format!("/v1/jobs/{id}/complete"), &format!(r#"{{"lease":"{token}"}}"#)).await.ok(200);
    let (id, token) = lease(&claim_as(&mut c, "mailer-1", "2.14").await);
    let error = r#"{"category":"permanent","code":"smtp_421","message":"slow down"}"#;
    c.post(&format!("/v1/jobs/{id}/fail"), &format!(r#"{{"lease":"{token}","error":{error}}}"#)).await.ok(200);
    fail_next(&mut c, "bulk", "temporary").await;
    c.advance("16s").await;

    let list = until(&mut c, "/v1/types?window=15m", |list| list["types"][0]["failed"] == 2).await;
    assert_eq!((&list["window"], &list["since"]), (&json!("15m"), &json!("2026-11-15T00:00:00.000Z")));
    let send = &list["types"][0];
    assert_eq!((&send["type"], &send["queues"]), (&json!("email.send"), &json!(["bulk", "mail"])));
    assert_eq!([&send["submitted"], &send["completed"], &send["failed"]], [4, 1, 2]);
    let digest = json!({"type": "email.digest", "queues": ["mail"], "submitted": 1, "completed": 0, "failed": 0, "wait": null, "run": null});
    assert_eq!(list["types"][1], digest);

    let detail = c.get("/v1/types/email.send?window=15m").await.ok(200);
    assert_eq!((&detail["stats"], &detail["step"]), (send, &json!("30s")));
    let points = detail["series"].as_array().unwrap();
    assert_eq!((points.len(), &points[0]["submitted"], &points[0]["failed"]), (2, &json!(4), &json!(2)));
    let near = |value: &Value, exact: f64| assert!((value.as_f64().unwrap() / exact - 1.0).abs() < 0.08, "{value}");
    near(&points[0]["wait"]["p50"], 14.0);
    near(&points[0]["run"]["p99"], 4.0);
    let codes: Vec<_> =
        detail["errors"].as_array().unwrap().iter().map(|own| (&own["error"]["code"], &own["count"])).collect();
    assert_eq!(codes, [(&json!("smtp_421"), &json!(1))], "a job that is ready again has no error to show");
    assert_eq!((&detail["errors_of"], &detail["errors"][0]["example"]), (&json!(1), &json!(id)));
    let workers: Vec<_> = detail["workers"].as_array().unwrap().iter().map(|own| &own["name"]).collect();
    assert!(workers.contains(&&json!("mailer-1")), "{detail}");
    let deploy = json!({"at": "2026-11-15T00:00:14.000Z", "queue": "mail", "version": "2.14", "worker": "mailer-1"});
    assert_eq!(detail["deploys"], json!([deploy]), "the first version is no mark");
    assert_eq!(c.get("/v1/stats?window=1h").await.ok(200)["series"]["deploys"], json!([deploy]));
    assert!(c.get("/v1/stats?queue=bulk").await.ok(200)["series"].get("deploys").is_none());
    server.stop().await;
}

#[tokio::test]
async fn parameters_of_types_are_checked() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let unknown = c.get("/v1/types/never.seen").await.ok(200);
    assert_eq!(
        (&unknown["stats"]["submitted"], &unknown["workers"], &unknown["errors"]),
        (&json!(0), &json!([]), &json!([]))
    );
    assert_eq!(c.get("/v1/types").await.ok(200)["types"], json!([]));
    for (path, field) in [
        ("/v1/types?window=29s", "window"),
        ("/v1/types?window=25h", "window"),
        ("/v1/types?step=30s", "step"),
        ("/v1/types/t?window=5m&step=1s", "step"),
        ("/v1/types/t?window=1h&step=45s", "step"),
        ("/v1/types/t?queue=q", "queue"),
    ] {
        assert_eq!(c.get(path).await.problem(400, "validation")["field"], field, "{path}");
    }
    let long = "t".repeat(1_000);
    assert_eq!(c.get(&format!("/v1/types/{long}")).await.problem(400, "validation")["field"], "type");
    server.stop().await;
}
