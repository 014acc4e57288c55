//! `longshore dead-letters`

use crate::support::Server;

/// Proves T-27.
#[test]
fn dead_letters_are_listed_requeued_and_deleted() {
    let server = Server::in_memory();
    for (queue, job_type) in [("one", "x"), ("one", "y"), ("two", "x")] {
        server.submit(&["-q", queue, "-t", job_type, "--retry-limit", "1"]);
    }
    server.work_off("exit 1", &["-q", "one", "-q", "two"]).expect(0);
    assert_eq!(server.json(&["dead-letters", "list"])["jobs"].as_array().unwrap().len(), 3);
    let listed = server.run(&["dead-letters", "list", "--queue", "two"]).expect(0);
    assert!(listed.stdout.contains("exit_1") && listed.stdout.lines().count() == 2, "{}", listed.stdout);
    let groups = server.json(&["dead-letters", "groups"]);
    let counts: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|group| &group["count"]).collect();
    assert_eq!((counts, &groups["approximate"]), (vec![&3.into()], &false.into()), "{groups}");
    let table = server.run(&["dead-letters", "groups", "--queue", "one"]).expect(0).stdout;
    assert!(table.contains("MESSAGE") && table.contains("exit_1") && table.lines().count() == 2, "{table}");
    let dry = server.run(&["dead-letters", "requeue", "--all", "--dry-run"]).expect(0);
    assert!(dry.stdout.contains("3 jobs would be requeued"), "{}", dry.stdout);
    let done = server.json(&["dead-letters", "requeue", "--queue", "one", "--type", "x", "--error-code", "exit_1"]);
    assert_eq!((&done["matched"], &done["changed"]), (&1.into(), &1.into()));
    let done = server.json(&["dead-letters", "delete", "--all"]);
    assert_eq!(done["changed"], 2);
    assert_eq!(server.json(&["dead-letters", "list"])["jobs"], serde_json::json!([]));
    let unselected = server.run(&["dead-letters", "delete"]).expect(2);
    assert!(unselected.stderr.contains("--all") && unselected.stderr.contains("--queue"), "{unselected:?}");
}
