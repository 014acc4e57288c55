//! What all commands share: exit codes, hints, escaping, pipes, terminals, usage lines.

use std::process::Stdio;

use crate::support::{Server, alone, longshore, on_a_terminal, run};

/// A URL where no server listens.
fn unused_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn no_server_is_a_failure_with_a_hint() {
    let unused = unused_url();
    for command in [
        &["submit", "-t", "a"][..],
        &["jobs", "list"],
        &["jobs", "get", "x"],
        &["jobs", "wait", "x"],
        &["queues", "list"],
        &["dead-letters", "list"],
        &["work", "--exec", "true"],
        &["bench"],
        &["top", "--once"],
        &["workers", "list"],
        &["clock", "get"],
    ] {
        let done = alone(&[&["--server", &unused], command].concat()).expect(2);
        assert!(
            done.stderr.contains("cannot reach") && done.stderr.contains("longshore serve"),
            "{command:?} {done:?}"
        );
        assert_eq!(done.stdout, "");
    }
    let done = alone(&["--json", "--server", &unused, "jobs", "list"]).expect(2);
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(error["exit_code"], 2);
    assert!(error["hint"].as_str().unwrap().contains("longshore serve"));
}

#[test]
fn a_flag_overrides_the_environment() {
    let server = Server::in_memory();
    let unused = unused_url();
    let mut command = longshore();
    command.env("LONGSHORE_SERVER", &unused).args(["--server", &server.url, "queues", "list"]);
    run(command, b"").expect(0);
    let done = alone(&["--server", "127.0.0.1:7070", "queues", "list"]).expect(2);
    assert!(done.stderr.contains("http://"), "{done:?}");
    let done = alone(&["--server", "ftp://127.0.0.1", "queues", "list"]).expect(2);
    assert!(done.stderr.contains("http:// or https://"), "{done:?}");
}

#[test]
fn a_refusal_in_json_has_the_problem_of_the_api() {
    let server = Server::in_memory();
    let done = server.run(&["--json", "jobs", "get", "00000000-0000-4000-8000-000000000000"]).expect(1);
    assert_eq!(done.stdout, "");
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!((&error["exit_code"], &error["problem"]["code"]), (&1.into(), &"job_not_found".into()));
    assert_eq!(error["problem"]["status"], 404);
}

const NO_CONTROLS: [char; 0] = [];

/// Characters that a terminal would interpret.
fn controls(text: &str) -> Vec<char> {
    text.chars().filter(|c| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c)).collect()
}

#[test]
fn control_characters_of_jobs_never_reach_the_terminal() {
    let server = Server::in_memory();
    let nasty = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\n\u{7f}\u{202e}";
    let payload = serde_json::to_string(nasty).unwrap();
    let id = server.submit(&[
        "-t",
        "a",
        "-p",
        &payload,
        "--correlation-id",
        nasty,
        "--idempotency-key",
        nasty,
        "--retry-limit",
        "1",
    ]);
    let program = "printf '\\033[31mred\\233\\007' >&2; printf '\"\\\\u001b \\177 \\302\\233\"'; exit 1";
    let worked = server.work_off(program, &[]).expect(0);
    assert_eq!(controls(&worked.stdout), NO_CONTROLS, "{worked:?}");
    assert_eq!(controls(&worked.stderr), NO_CONTROLS, "{worked:?}");
    for command in [
        &["jobs", "get", &id, "--payload"][..],
        &["jobs", "list"],
        &["jobs", "attempts", &id],
        &["jobs", "why", &id],
        &["dead-letters", "list"],
        &["top", "--once"],
    ] {
        let done = server.run(command).expect(0);
        assert_eq!(controls(&done.stdout), NO_CONTROLS, "{command:?} {done:?}");
        let done = server.run(&[&["--json"], command].concat()).expect(0);
        assert_eq!(controls(&done.stdout), NO_CONTROLS, "{command:?} {done:?}");
    }
    // The characters are escaped, not dropped: the JSON has the same value.
    assert!(server.run(&["jobs", "get", &id]).expect(0).stdout.contains("\\u{1b}]0;owned"));
    assert_eq!(server.job(&id)["correlation_id"], nasty);
    // Payloads on a terminal, and refusals that repeat an argument, are escaped too.
    let shown = on_a_terminal(&server.command(&["jobs", "payload", &id]), 80).expect(0);
    assert!(!shown.stdout.contains('\u{9b}') && !shown.stdout.contains('\u{202e}'), "{shown:?}");
    let done = server.run(&["jobs", "get", nasty]).expect(1);
    assert_eq!(controls(&done.stderr), NO_CONTROLS, "{done:?}");
}

#[test]
fn colours_need_a_terminal_without_no_color() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "a"]);
    assert!(!server.run(&["jobs", "list"]).expect(0).stdout.contains('\u{1b}'));
    let shown = on_a_terminal(&server.command(&["jobs", "list"]), 200).expect(0);
    assert!(shown.stdout.contains("\u{1b}[1m") && shown.stdout.contains(&id), "{shown:?}");
    let mut plain = server.command(&["jobs", "list"]);
    plain.env("NO_COLOR", "1");
    let shown = on_a_terminal(&plain, 200).expect(0);
    assert!(!shown.stdout.contains('\u{1b}') && shown.stdout.contains(&id), "{shown:?}");
    // JSON on a terminal is indented.
    let shown = on_a_terminal(&server.command(&["--json", "jobs", "get", &id]), 200).expect(0);
    assert!(shown.stdout.lines().count() > 20 && !shown.stdout.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn a_bar_is_shown_on_a_terminal() {
    let server = Server::in_memory();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.ndjson");
    std::fs::write(&file, "{\"type\":\"t\"}\n".repeat(2_500)).unwrap();
    let command = server.command(&["submit", "--ndjson", file.to_str().unwrap()]);
    let shown = on_a_terminal(&command, 100).expect(0);
    assert!(shown.stdout.contains('%') && shown.stdout.contains("2500 jobs submitted"), "{shown:?}");
    assert!(shown.stdout.lines().count() < 50, "a terminal does not get the ids");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let server = Server::in_memory();
    let lines = "{\"type\":\"t\"}\n".repeat(2_000);
    server.run_with(&["submit", "--ndjson", "-"], lines.as_bytes()).expect(0);
    for command in [&["jobs", "list", "--all"][..], &["--json", "jobs", "list", "--all"], &["completions", "bash"]] {
        let mut child = server.command(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{command:?}");
        assert_eq!(done.status.code(), Some(0), "{command:?}");
    }
}

#[test]
fn every_command_has_help() {
    for command in [
        &[][..],
        &["serve"],
        &["submit"],
        &["jobs"],
        &["jobs", "list"],
        &["jobs", "get"],
        &["jobs", "why"],
        &["jobs", "cancel"],
        &["jobs", "requeue"],
        &["jobs", "wait"],
        &["jobs", "history"],
        &["jobs", "attempts"],
        &["jobs", "payload"],
        &["jobs", "delete"],
        &["jobs", "dead-letter"],
        &["jobs", "edit"],
        &["queues"],
        &["queues", "set"],
        &["queues", "pause"],
        &["dead-letters"],
        &["dead-letters", "delete"],
        &["work"],
        &["bench"],
        &["top"],
        &["workers"],
        &["workers", "list"],
        &["health"],
        &["clock"],
        &["clock", "get"],
        &["clock", "advance"],
        &["migrate"],
        &["backup"],
        &["restore"],
        &["doctor"],
        &["completions"],
    ] {
        let done = alone(&[command, &["--help"]].concat()).expect(0);
        assert!(done.stdout.contains("Usage: longshore"), "{command:?} {done:?}");
    }
    alone(&["--version"]).expect(0);
    let done = alone(&["job", "list"]).expect(2);
    assert!(done.stderr.contains("jobs"), "{done:?}");
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = alone(&["completions", shell]).expect(0);
        for word in ["dead-letters", "dead-letter", "edit", "workers", "advance", "health", "yes"] {
            assert!(done.stdout.contains(word), "{shell} {word}");
        }
    }
    alone(&["completions", "tcsh"]).expect(2);
}

#[test]
fn usage_lines_do_not_list_given_flags() {
    for command in [&["jobs", "get"][..], &["jobs", "cancel"], &["queues", "set"], &["clock", "advance"], &["submit"]] {
        for address in [None, Some("http://127.0.0.1:7070")] {
            let mut typed = longshore();
            typed.args(command).envs(address.map(|address| ("LONGSHORE_SERVER", address)));
            let done = run(typed, b"").expect(2);
            let usage = done.stderr.lines().find(|line| line.starts_with("Usage: ")).unwrap();
            assert!(usage.contains(&command.join(" ")) && !usage.contains("--server"), "{usage}");
        }
        let flags = ["--server", "http://127.0.0.1:7070", "--json"];
        for words in [[command, &flags].concat(), [&flags, command].concat()] {
            let done = alone(&words).expect(2);
            let usage = done.stderr.lines().find(|line| line.starts_with("Usage: ")).unwrap();
            assert!(usage.starts_with(&format!("Usage: longshore {}", command.join(" "))), "{usage}");
            assert!(!usage.contains("--server") && !usage.contains("--json"), "{usage}");
        }
    }
    let help = alone(&["jobs", "get", "--help"]).expect(0).stdout;
    assert!(help.contains("--server") && help.contains("LONGSHORE_SERVER") && help.contains("7070"), "{help}");
}
