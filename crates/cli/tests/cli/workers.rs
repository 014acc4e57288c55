//! `longshore workers`

use crate::support::Server;

#[test]
fn workers_are_listed_with_their_queues() {
    let server = Server::in_memory();
    let none = server.run(&["workers", "list"]).expect(0);
    assert!(none.stdout.is_empty() && none.stderr.contains("no worker"), "{none:?}");
    server.work_off("true", &["--worker", "w-1", "-q", "mail", "-q", "reports"]).expect(0);
    let shown = server.run(&["workers", "list"]).expect(0).stdout;
    assert_eq!(shown.lines().count(), 2, "{shown}");
    for part in ["WORKER", "SEEN", "w-1", "s ago", "mail, reports"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for (verb, directive, effect) in
        [("quiet", "quiet", "claims no more"), ("stop", "stop", "exits"), ("resume", "run", "claims jobs again")]
    {
        let said = server.run(&["workers", verb, "w-1"]).expect(0).stdout;
        assert!(said.contains(effect), "{said}");
        assert_eq!(server.json(&["workers", "list"])["workers"][0]["directive"], directive);
    }
    let unknown = server.run(&["workers", "quiet", "nowhere"]).expect(1);
    assert!(unknown.stderr.contains("nowhere") && unknown.stderr.contains("workers list"), "{unknown:?}");
    let list = server.json(&["workers", "list"]);
    assert_eq!((&list["workers"][0]["name"], &list["workers"][0]["queues"][1]), (&"w-1".into(), &"reports".into()));
}
