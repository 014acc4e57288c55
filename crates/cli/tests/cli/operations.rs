//! `longshore operations`

use crate::support::Server;

#[test]
fn operations_are_started_followed_and_undone() {
    let server = Server::in_memory();
    for _ in 0..3 {
        server.submit(&["-q", "mail", "-t", "x"]);
    }
    let dry = server.run(&["operations", "start", "cancel", "-q", "mail", "--dry-run"]).expect(0);
    assert!(dry.stdout.contains("3 jobs would be treated"), "{}", dry.stdout);
    let done = server.json(&["operations", "start", "cancel", "-q", "mail", "--state", "scheduled", "--wait"]);
    assert_eq!((&done["state"], &done["changed"], &done["remaining"]), (&"done".into(), &3.into(), &0.into()));
    let id = done["id"].as_str().unwrap();
    let shown = server.run(&["operations", "get", id]).expect(0);
    assert!(shown.stdout.contains("queue=mail state=scheduled"), "{}", shown.stdout);
    let undone = server.json(&["operations", "undo", id, "--wait"]);
    assert_eq!((&undone["undo"]["state"], &undone["undo"]["undone"]), (&"done".into(), &3.into()));
    let listed = server.run(&["operations", "list"]).expect(0);
    assert_eq!(listed.stdout.lines().count(), 3, "{}", listed.stdout);
    for verb in ["stop", "continue"] {
        server.run(&["operations", verb, id]).expect(1);
    }
    let unknown = server.run(&["operations", "start", "explode", "-q", "mail"]).expect(2);
    assert!(unknown.stderr.contains("requeue, cancel, delete, run_now"), "{}", unknown.stderr);
}
