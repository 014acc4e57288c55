//! `longshore queues`

use crate::support::Server;

#[test]
fn a_queue_is_created_changed_paused_and_deleted() {
    let server = Server::in_memory();
    let queue = server.json(&["queues", "set", "reports", "--set", "lease=1m", "--set", "retry.limit=9"]);
    assert_eq!((&queue["settings"]["lease"], &queue["settings"]["retry"]["limit"]), (&"1m".into(), &9.into()));
    // Without settings the queue keeps its own; given settings replace all.
    let queue = server.json(&["queues", "set", "reports"]);
    assert_eq!(queue["settings"]["lease"], "1m");
    let queue = server.json(&["queues", "set", "reports", "--settings", r#"{"lifetime":"1d"}"#]);
    assert_eq!((&queue["settings"]["lease"], &queue["settings"]["lifetime"]), (&"30s".into(), &"24h".into()));
    let queue = server.json(&["queues", "set", "reports", "--profile", "gopherqueue"]);
    assert_eq!(queue["profile"], "gopherqueue");
    let shown = server.run(&["queues", "get", "reports"]).expect(0);
    assert!(shown.stdout.contains("retry.backoff.kind"), "{}", shown.stdout);
    assert_eq!(server.json(&["queues", "pause", "reports"])["paused"], true);
    let list = server.run(&["queues", "list"]).expect(0);
    assert!(list.stdout.contains("paused") && list.stdout.contains("default"), "{}", list.stdout);
    assert_eq!(server.json(&["queues", "resume", "reports"])["paused"], false);
    let id = server.submit(&["-q", "reports", "-t", "a"]);
    let dry = server.run(&["queues", "delete", "reports", "--dry-run"]).expect(0);
    assert!(dry.stdout.contains("1 job that has not ended") && dry.stdout.contains("--force"), "{}", dry.stdout);
    let refused = server.run(&["queues", "delete", "reports"]).expect(1);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    server.run(&["queues", "delete", "reports", "--force"]).expect(0);
    assert_eq!(server.state(&id), "cancelled");
    let gone = server.run(&["queues", "get", "reports"]).expect(1);
    assert!(gone.stderr.contains("queue_not_found") && gone.stderr.contains("queues set"), "{}", gone.stderr);
    let names = server.json(&["queues", "list"]);
    assert_eq!(names["queues"].as_array().unwrap().len(), 1);
}

#[test]
fn typos_and_locked_settings_are_refused() {
    let server = Server::in_memory();
    let typo = server.run(&["queues", "set", "a", "--set", "leese=1m"]).expect(1);
    assert!(typo.stderr.contains("did you mean \"lease\"?"), "{}", typo.stderr);
    let locked = server.run(&["queues", "set", "a", "--profile", "document", "--set", "fencing=optional"]).expect(1);
    assert!(locked.stderr.contains("validation"), "{}", locked.stderr);
    let word = server.run(&["queues", "set", "a", "--profile", "best"]).expect(2);
    assert!(word.stderr.contains("standard, gopherqueue"), "{}", word.stderr);
    let dry = server.run(&["queues", "set", "a", "--set", "lease=5s", "--dry-run"]).expect(0);
    assert_eq!(dry.json(), serde_json::json!({"settings": {"lease": "5s"}}));
    server.run(&["queues", "get", "a"]).expect(1);
}
