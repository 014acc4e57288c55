//! `longshore top`

use crate::support::{Server, on_a_terminal_typing};

#[test]
fn one_look() {
    let server = Server::in_memory();
    server.submit(&["-q", "mail", "-t", "a"]);
    server.run(&["queues", "pause", "mail"]).expect(0);
    server.work_off("true", &["--worker", "w-1"]).expect(0);
    let shown = server.run(&["top", "--once"]).expect(0);
    for part in ["mail", "paused", "COMPLETE/S", "w-1", "memory"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let told = server.json(&["top", "--once"]);
    assert_eq!(told["stats"]["queues"]["mail"]["counts"]["scheduled"], 1);
    assert_eq!(told["workers"][0]["name"], "w-1");
    assert_eq!(told["info"]["store"]["kind"], "memory");
    // Where there is no terminal, there is nothing to watch on.
    assert!(server.run(&["top"]).expect(0).stdout.contains("mail"));
}

#[test]
fn the_live_view_ends_with_q() {
    let server = Server::in_memory();
    server.submit(&["-q", "mail", "-t", "a"]);
    let command = server.command(&["top"]);
    let shown = on_a_terminal_typing(&command, 160, b"q");
    assert!(shown.expect(0).stdout.contains("mail"));
}
