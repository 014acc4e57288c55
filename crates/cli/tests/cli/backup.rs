//! `longshore backup`, `restore`, `doctor`

use std::path::Path;

use crate::support::{CommandResult, Running, Server, alone};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn doctor(data: &Path) -> CommandResult {
    alone(&["--json", "doctor", text(data)])
}

#[test]
fn a_backup_of_a_running_server_can_be_restored() {
    let directory = tempfile::tempdir().unwrap();
    let (data, copy, restored) =
        (directory.path().join("data"), directory.path().join("copy"), directory.path().join("restored"));
    let server = Server::on(&data);
    let id = server.submit(&["-t", "a", "-p", "[1]"]);
    let done = alone(&["--json", "backup", text(&data), text(&copy)]).expect(0).json();
    assert_eq!(done["server_was_running"], true);
    assert!(done["bytes"].as_u64().unwrap() > 0);
    let later = server.submit(&["-t", "b"]);
    // The doctor needs a store that no process has open.
    let busy = alone(&["doctor", text(&data)]).expect(2);
    assert!(busy.stderr.contains("in use") && busy.stderr.contains("longshore backup"), "{busy:?}");
    let report = doctor(&copy).expect(0).json();
    assert_eq!((&report["ok"], &report["live_jobs"], &report["payload_bytes"]), (&true.into(), &1.into(), &3.into()));
    alone(&["restore", text(&copy), text(&restored)]).expect(0);
    let second = Server::on(&restored);
    assert_eq!(second.run(&["jobs", "payload", &id]).expect(0).stdout, "[1]");
    second.run(&["jobs", "get", &later]).expect(1);
    drop(second);
    assert!(server.stop().success());
    let done = alone(&["--json", "backup", text(&data)]).expect(0).json();
    assert_eq!(done["server_was_running"], false);
    let beside = Path::new(done["backup"].as_str().unwrap());
    assert!(beside.starts_with(directory.path()), "{beside:?}");
    assert_eq!(doctor(beside).expect(0).json()["live_jobs"], 2);
}

#[test]
fn backups_under_load_are_ok() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::on(&data);
    let load = Running::start(server.command(&["bench", "--duration", "1h", "--concurrency", "4"]));
    for number in 0..3 {
        crate::support::eventually("some load", || {
            let list = server.json(&["queues", "list"]);
            let queues = list["queues"].as_array().unwrap();
            queues.iter().any(|queue| queue["counts"]["completed"].as_u64().unwrap() > 100 * (number + 1))
        });
        let copy = directory.path().join(format!("copy-{number}"));
        alone(&["backup", text(&data), text(&copy)]).expect(0);
        assert_eq!(doctor(&copy).expect(0).json()["ok"], true);
    }
    load.signal(rustix::process::Signal::INT);
    load.wait();
}

#[test]
fn existing_stores_are_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    assert!(Server::on(&data).stop().success());
    alone(&["backup", text(&data), text(&copy)]).expect(0);
    let again = alone(&["backup", text(&data), text(&copy)]).expect(2);
    assert!(again.stderr.contains("already exists") && again.stderr.contains("hint: "), "{again:?}");
    let again = alone(&["restore", text(&copy), text(&data)]).expect(2);
    assert!(again.stderr.contains("already exists"), "{again:?}");
    let nothing = directory.path().join("nothing");
    for command in [&["backup", text(&nothing)][..], &["doctor", text(&nothing)]] {
        let done = alone(command).expect(2);
        assert!(done.stderr.contains("no store"), "{done:?}");
        assert!(!nothing.exists(), "reading creates no directory");
    }
}

#[test]
fn corruption_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::on(&data);
    server.run_with(&["submit", "--ndjson", "-"], "{\"type\":\"t\",\"payload\":\"abcdefgh\"}\n".repeat(500).as_bytes());
    assert!(server.stop().success());
    // A backup has no WAL. All copies of the bytes are changed: some pages are unused.
    let copy = directory.path().join("copy");
    alone(&["backup", text(&data), text(&copy)]).expect(0);
    let file = copy.join("longshore.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let offsets: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"abcdefgh")).collect();
    for at in offsets {
        bytes[at..at + 8].copy_from_slice(b"ABCDEFGH");
    }
    std::fs::write(&file, bytes).unwrap();
    let found = doctor(&copy).expect(1);
    assert_eq!(found.json()["ok"], false);
    assert!(found.json()["problems"][0].as_str().unwrap().contains("payload"), "{found:?}");
    let report = alone(&["doctor", text(&copy)]).expect(1);
    assert!(report.stdout.contains(": corrupt") && report.stderr.contains("restore"), "{report:?}");
}
