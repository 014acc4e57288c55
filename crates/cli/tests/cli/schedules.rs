//! `longshore schedules …` and `longshore webhooks …`.

use serde_json::{Value, json};

use crate::support::{Server, alone};

#[test]
fn cli_schedules_are_put_paused_triggered_and_deleted() {
    let server = Server::start(&["--store", "memory:", "--virtual-clock"]);
    let job = r#"{"tags":{"a":"b"},"delay":"5s","priority":"low"}"#;
    let put = ["schedules", "put", "nightly", "--every", "1h", "--queue", "q", "--type", "t", "--priority", "high"];
    let stored = server.json(&[&put[..], &["--payload", "[1]", "--job", job]].concat());
    assert_eq!((&stored["every"], &stored["queue"]), (&json!("1h"), &json!("q")));
    let expected = json!({"type": "t", "payload": [1], "priority": "high", "tags": {"a": "b"}, "delay": "5s"});
    assert_eq!(stored["job"], expected, "an option wins over --job");
    let listed = server.json(&["schedules", "list"]);
    assert_eq!((&listed["schedules"][0]["name"], &listed["next"]), (&json!("nightly"), &Value::Null));
    let paused = server.json(&["schedules", "pause", "nightly", "--note", "moving"]);
    assert_eq!((&paused["paused"], &paused["pause_note"]), (&json!(true), &json!("moving")));
    assert_eq!(server.json(&["schedules", "resume", "nightly"])["paused"], false);
    let triggered = server.json(&["schedules", "trigger", "nightly"]);
    assert_eq!(server.job(triggered["id"].as_str().unwrap())["schedule"], json!({"name": "nightly", "due_at": null}));
    server.call("POST", "/v1/clock/advance", &json!({"by": "2h"}));
    let ticks = server.json(&["schedules", "ticks", "nightly"]);
    assert_eq!((ticks["ticks"].as_array().unwrap().len(), &ticks["ticks"][0]["outcome"]), (2, &json!("fired")));
    assert!(server.run(&["schedules", "get", "nightly"]).expect(0).stdout.contains("nightly"));
    server.run(&["schedules", "delete", "nightly"]).expect(0);
    let missing = server.run(&["schedules", "get", "nightly"]).expect(1);
    assert!(missing.stderr.contains("no such schedule"), "{missing:?}");
    let invalid = server.run(&["schedules", "put", "x", "--cron", "61 * * * *", "--queue", "q", "--type", "t"]);
    assert!(invalid.code != Some(0) && invalid.stderr.contains("cron"), "{invalid:?}");
    let next = alone(&["schedules", "next", "0 3 * * *", "--timezone", "Europe/Berlin"]).expect(0);
    assert_eq!(next.stdout.lines().filter(|line| line.contains(":00:00")).count(), 10, "{next:?}");
}

#[test]
fn cli_webhooks_are_put_tested_listed_and_deleted() {
    let server = Server::start(&["--store", "memory:", "--virtual-clock"]);
    let url = "http://127.0.0.1:9/";
    let created = server.json(&["webhooks", "put", "all", url, "--event", "job.cancelled", "--queue", "q"]);
    assert!(created["secret"].as_str().unwrap().starts_with("whsec_"), "{created}");
    assert_eq!((&created["events"], &created["queues"]), (&json!(["job.cancelled"]), &json!(["q"])));
    let got = server.json(&["webhooks", "get", "all"]);
    assert_eq!((&got["url"], got.get("secret")), (&json!(url), None));
    let rotated = server.json(&["webhooks", "rotate", "all"]);
    assert!(rotated["secret"] != created["secret"] && rotated["previous_secret_until"].is_string(), "{rotated}");
    let id = server.submit(&["-q", "q", "-t", "t"]);
    server.run(&["jobs", "cancel", &id]).expect(0);
    let listed = server.json(&["webhooks", "deliveries", "all"]);
    let delivery = listed["deliveries"][0].clone();
    assert_eq!((&delivery["job"], &delivery["event"]), (&json!(id), &json!("job.cancelled")), "{listed}");
    assert_eq!(server.json(&["webhooks", "deliveries", "--job", &id])["deliveries"][0]["id"], delivery["id"]);
    let again = server.json(&["webhooks", "redeliver", delivery["id"].as_str().unwrap()]);
    assert_eq!(again["id"], delivery["id"]);
    assert_eq!(server.json(&["webhooks", "test", "all"])["event"], "webhook.test");
    assert_eq!(server.json(&["webhooks", "put", "all", url, "--disabled"])["enabled"], false);
    assert!(server.run(&["webhooks", "list"]).expect(0).stdout.contains("all"));
    server.run(&["webhooks", "delete", "all"]).expect(0);
    let missing = server.run(&["webhooks", "get", "all"]).expect(1);
    assert!(missing.stderr.contains("all"), "{missing:?}");
}
