//! `longshore events`, `jobs watch`, `queues watch`

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::support::{Server, longshore};

/// A command that follows events; killed at the end of the test.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut command = longshore();
        command.args(["--server", &server.url]).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn events_are_printed_as_lines_of_json() {
    let server = Server::in_memory();
    server.run(&["queues", "set", "mail"]).expect(0);
    let mut all = Follower::start(&server, &["--json", "events", "--queue", "mail"]);
    // The command is connected once it prints the events of a submission.
    let (sender, received) = std::sync::mpsc::channel();
    let first = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let event = all.json();
            sender.send(()).unwrap();
            event
        });
        while received.recv_timeout(std::time::Duration::from_millis(200)).is_err() {
            server.submit(&["-q", "mail", "-t", "t"]);
        }
        reader.join().unwrap()
    });
    assert_eq!((&first["event"], &first["data"]["to"]), (&"job".into(), &"pending".into()), "{first}");
    let cursor = first["id"].as_str().unwrap();
    let next = all.json();
    let mut resumed = Follower::start(&server, &["--json", "events", "--queue", "mail", "--after", cursor]);
    assert_eq!(resumed.json(), next);
    let mut plain = Follower::start(&server, &["events", "--queue", "mail", "--after", cursor, "--state", "scheduled"]);
    let line = plain.line();
    assert!(line.contains(" mail t  pending -> scheduled (submit)"), "{line}");
    server.run(&["events", "--after", "17"]).expect(1);
}

#[test]
fn a_job_is_watched_until_it_has_ended() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "t"]);
    let mut watch = Follower::start(&server, &["jobs", "watch", &id]);
    assert!(watch.line().ends_with("new -> pending (create)"));
    assert!(watch.line().ends_with("pending -> scheduled (submit)"));
    server.work_off("true", &[]).expect(0);
    assert!(watch.line().ends_with("scheduled -> running (claim)"));
    assert!(watch.line().ends_with("running -> completed (complete)"));
    assert_eq!(watch.line(), "");
    assert!(watch.child.wait().unwrap().success());
    // The history of an ended job.
    let shown = server.run(&["--json", "jobs", "watch", &id]).expect(0);
    assert_eq!(shown.json_lines().len(), 4);
    let other = server.submit(&["-t", "t"]);
    server.run(&["jobs", "cancel", &other]).expect(0);
    let failed = server.run(&["jobs", "watch", &other]).expect(1);
    assert!(failed.stderr.contains("cancelled"), "{failed:?}");
    server.run(&["jobs", "watch", "x"]).expect(1);
}

#[test]
fn a_queue_is_watched() {
    let server = Server::in_memory();
    server.run(&["queues", "set", "mail"]).expect(0);
    let mut watch = Follower::start(&server, &["queues", "watch", "mail"]);
    assert!(watch.line().starts_with("mail pending=0 scheduled=0 "));
    server.run(&["queues", "pause", "mail"]).expect(0);
    assert!(watch.line().starts_with("mail paused pending=0 scheduled=0 "));
    server.submit(&["-q", "mail", "-t", "t"]);
    assert!(watch.line().starts_with("mail paused pending=0 scheduled=1 "));
    server.run(&["queues", "watch", "none"]).expect(1);
}
