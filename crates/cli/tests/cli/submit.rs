//! `longshore submit`

use crate::support::Server;

#[test]
fn one_job_from_flags() {
    let server = Server::in_memory();
    let done = server.run(&[
        "submit",
        "-q",
        "mail",
        "-t",
        "email.send",
        "-p",
        r#"{"to":"ann","n":1.10}"#,
        "--priority",
        "high",
        "--tag",
        "tenant=acme",
        "--tag",
        "urgent",
        "--correlation-id",
        "c-1",
        "--idempotency-key",
        "k-1",
        "--delay",
        "1h",
        "--retry-limit",
        "7",
        "--execution-timeout",
        "10s",
        "--lease",
        "20s",
        "--lifetime",
        "2d",
        "--retention",
        r#"{"completed":"1h"}"#,
        "--max-reclaims",
        "unlimited",
        "--callback-url",
        "https://example.org/hook",
    ]);
    let id = done.expect(0).line();
    let job = server.json(&["jobs", "get", &id, "--payload"]);
    assert_eq!(job["queue"], "mail");
    assert_eq!(job["type"], "email.send");
    assert_eq!(job["state"], "delayed");
    assert_eq!(job["priority"], "high");
    assert_eq!(job["tags"], serde_json::json!({"tenant": "acme", "urgent": null}));
    assert_eq!(job["correlation_id"], "c-1");
    assert_eq!(job["idempotency_key"], "k-1");
    assert_eq!(job["callback_url"], "https://example.org/hook");
    let policy = &job["policy"];
    assert_eq!(policy["retry"]["limit"], 7);
    assert_eq!(policy["execution_timeout"], "10s");
    assert_eq!(policy["lease"], "20s");
    assert_eq!(policy["lifetime"], "2d");
    assert_eq!(policy["retention"]["completed"], "1h");
    let raw = server.run(&["jobs", "payload", &id]).expect(0);
    assert_eq!(raw.stdout, r#"{"to":"ann","n":1.10}"#, "byte for byte");
}

#[test]
fn json_output_is_the_response_of_the_api() {
    let server = Server::in_memory();
    let first = server.json(&["submit", "-t", "a", "--idempotency-key", "k"]);
    assert_eq!(first["state"], "scheduled");
    assert_eq!(first["duplicate"], false);
    assert!(first["seq"].is_u64() && first["id"].is_string());
    let again = server.json(&["submit", "-t", "a", "--idempotency-key", "k"]);
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &true.into()));
}

#[test]
fn payload_from_a_file_from_standard_input_and_binary() {
    let server = Server::in_memory();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("payload.json");
    std::fs::write(&file, "[1, 2]").unwrap();
    let id = server.submit(&["-t", "a", "--payload-file", file.to_str().unwrap()]);
    assert_eq!(server.run(&["jobs", "payload", &id]).expect(0).stdout, "[1, 2]");
    for flags in [["-p", "-"], ["--payload-file", "-"]] {
        let id = server.run_with(&[&["submit", "-t", "a"][..], &flags].concat(), b"{\"x\": 1}").expect(0).line();
        assert_eq!(server.run(&["jobs", "payload", &id]).expect(0).stdout, "{\"x\": 1}");
    }
    let id = server.run_with(&["submit", "-t", "a", "--payload-file", "-", "--binary"], b"hello\n").expect(0).line();
    assert_eq!(server.run(&["jobs", "payload", &id]).expect(0).stdout, "hello\n");
    assert_eq!(server.json(&["jobs", "payload", &id])["payload_base64"], "aGVsbG8K");
}

#[test]
fn invalid_input_is_refused_and_not_sent() {
    let server = Server::in_memory();
    let done = server.run(&["submit", "-t", "a", "-p", "{to:ann}"]).expect(1);
    assert!(done.stderr.contains("not JSON") && done.stderr.contains("hint: "), "{}", done.stderr);
    let done = server.run(&["submit", "-t", "a", "--retry", r#"{"limt":1}"#]).expect(1);
    assert!(done.stderr.contains("did you mean \"limit\"?"), "{}", done.stderr);
    let done = server.run(&["submit", "-t", "a", "--payload-file", "/does/not/exist"]).expect(2);
    assert!(done.stderr.contains("/does/not/exist"), "{}", done.stderr);
    server.run(&["submit"]).expect(2);
    server.run(&["submit", "-t", "a", "--delay", "soon"]).expect(2);
    // A refusal by the server.
    let done = server.run(&["submit", "-t", "a", "-q", "no spaces"]).expect(1);
    assert!(done.stderr.contains("validation"), "{}", done.stderr);
    assert_eq!(server.json(&["jobs", "list"])["jobs"], serde_json::json!([]));
}

#[test]
fn a_dry_run_submits_nothing() {
    let server = Server::in_memory();
    let done = server.run(&["submit", "-t", "a", "-p", "1", "--dry-run"]).expect(0);
    assert_eq!(done.json(), serde_json::json!({"type": "a", "payload": 1}));
    let done =
        server.run_with(&["submit", "--ndjson", "-", "--dry-run"], b"{\"type\":\"a\"}\n{\"typ\":\"a\"}\n").expect(1);
    assert!(done.stderr.contains("line 2"), "{}", done.stderr);
    assert_eq!(server.json(&["jobs", "list"])["jobs"], serde_json::json!([]));
}

fn many(count: usize) -> String {
    (0..count).map(|n| format!("{{\"type\":\"t\",\"payload\":{n}}}\n")).collect()
}

#[test]
fn thousands_of_lines_in_batches() {
    let server = Server::in_memory();
    let done = server.run_with(&["submit", "-q", "many", "--ndjson", "-"], many(2_500).as_bytes()).expect(0);
    assert_eq!(done.stdout.lines().count(), 2_500);
    assert!(done.stderr.contains("2500 jobs submitted"), "{}", done.stderr);
    assert!(!done.stderr.contains('\r') && !done.stderr.contains('\u{1b}'), "no bar without a terminal");
    let counts = server.json(&["queues", "get", "many"]);
    assert_eq!(counts["counts"]["scheduled"], 2_500);
    // In the order of the lines.
    let last = done.stdout.lines().last().unwrap();
    assert_eq!(server.run(&["jobs", "payload", last]).expect(0).stdout, "2499");
}

#[test]
fn lines_get_defaults_from_flags() {
    let server = Server::in_memory();
    let lines = "{\"payload\":1}\n\n  \n{\"type\":\"own\",\"priority\":\"low\"}\n";
    let done = server.run_with(&["--json", "submit", "-t", "given", "--ndjson", "-", "--batch", "1"], lines.as_bytes());
    let answers = done.expect(0).json_lines();
    assert_eq!(answers.len(), 2);
    let (first, second) =
        (server.job(answers[0]["id"].as_str().unwrap()), server.job(answers[1]["id"].as_str().unwrap()));
    assert_eq!((&first["type"], &second["type"]), (&"given".into(), &"own".into()));
    assert_eq!(second["priority"], "low");
}

#[test]
fn an_invalid_line_reports_what_was_submitted() {
    let server = Server::in_memory();
    let lines = format!("{}{{\"type\":\n", many(1_500));
    let done = server.run_with(&["submit", "--ndjson", "-"], lines.as_bytes()).expect(1);
    assert!(done.stderr.contains("line 1501: not JSON"), "{}", done.stderr);
    assert!(done.stderr.contains("lines up to 1000 were submitted"), "{}", done.stderr);
    assert_eq!(server.json(&["queues", "get", "default"])["counts"]["scheduled"], 1_000);
    // A refusal by the server concerns one batch.
    let lines = format!("{}{{\"type\":\"a\",\"after\":[\"#unknown\"]}}\n", many(3));
    let done = server.run_with(&["submit", "-q", "q", "--batch", "2", "--ndjson", "-"], lines.as_bytes()).expect(1);
    assert!(done.stderr.contains("lines 3 to 4") && done.stderr.contains("dependency_unknown"), "{}", done.stderr);
    assert_eq!(server.json(&["queues", "get", "q"])["counts"]["scheduled"], 2);
}

#[test]
fn jobs_of_a_batch_can_depend_on_each_other() {
    let server = Server::in_memory();
    let lines = "{\"type\":\"a\",\"ref\":\"first\"}\n{\"type\":\"b\",\"after\":[\"#first\"]}\n";
    let done = server.run_with(&["submit", "--ndjson", "-"], lines.as_bytes()).expect(0);
    let ids: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(server.state(ids[1]), "pending");
    let why = server.run(&["jobs", "why", ids[1]]).expect(0);
    assert!(why.stdout.contains("waits for 1 other job") && why.stdout.contains(ids[0]), "{}", why.stdout);
}
