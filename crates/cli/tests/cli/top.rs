//! `longshore top`

use crate::support::{Server, on_a_terminal, on_a_terminal_typing};

#[test]
fn once_prints_a_snapshot() {
    let server = Server::in_memory();
    server.submit(&["-q", "mail", "-t", "a"]);
    server.run(&["queues", "pause", "mail"]).expect(0);
    server.work_off("true", &["--worker", "w-1"]).expect(0);
    let shown = server.run(&["top", "--once"]).expect(0);
    for part in
        ["mail", "paused", "DONE/S", "CANCELLED", "OLDEST", "per second over the last ", "w-1", "s ago", "memory"]
    {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let snapshot = server.json(&["top", "--once"]);
    assert_eq!(snapshot["stats"]["queues"]["mail"]["counts"]["scheduled"], 1);
    assert_eq!(snapshot["workers"][0]["name"], "w-1");
    assert_eq!(snapshot["info"]["store"]["kind"], "memory");
    // Without a terminal `top` prints once.
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

const LONG: &str = "reports.customers.europe-west-2.nightly-export-to-warehouse1";

/// Headers are complete, long names are shortened in the middle, wider terminals have more columns.
#[test]
fn columns_follow_the_width_of_the_terminal() {
    let server = Server::in_memory();
    server.submit(&["-q", LONG, "-t", "a"]);
    server.submit(&["-q", "mail", "-t", "a"]);
    server.run(&["queues", "pause", LONG]).expect(0);
    for (columns, shown, hidden) in [
        (80, &["SCHEDULED", "OLDEST", "RUNNING", "DEAD", "DONE/S"][..], &["CANCELLED", "PENDING"][..]),
        (100, &["SCHEDULED", "OLDEST", "RUNNING", "DEAD", "DONE/S", "FAIL/S"], &["CANCELLED", "PENDING"]),
        (140, &["SCHEDULED", "RETRYING", "SUBMIT/S", "DELAYED"], &["CANCELLED"]),
        (220, &["SCHEDULED", "CANCELLED", "COMPLETED", "CLAIM/S", LONG], &[]),
    ] {
        for (arguments, typed) in [(&["top", "--once"][..], &b""[..]), (&["top"], b"q")] {
            let mut command = server.command(arguments);
            command.env("NO_COLOR", "1");
            let text = on_a_terminal_typing(&command, columns, typed).expect(0).stdout;
            for part in ["reports.cust", "warehouse1", "paused", "mail"].iter().chain(shown) {
                assert!(text.contains(part), "{columns} {arguments:?} {part}: {text}");
            }
            for part in hidden {
                assert!(!text.contains(part), "{columns} {arguments:?} {part}: {text}");
            }
        }
        let text = on_a_terminal(&server.command(&["top", "--once"]), columns).expect(0).stdout;
        assert!(text.lines().filter(|line| line.contains("mail")).count() == 1, "no row is wrapped: {text}");
    }
}
