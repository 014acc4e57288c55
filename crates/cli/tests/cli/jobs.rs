//! `longshore jobs`

use crate::support::{Server, on_a_terminal_answering};

#[test]
fn lists_are_filtered_and_paged() {
    let server = Server::in_memory();
    let a = server.submit(&["-q", "one", "-t", "x", "--tag", "tenant=acme"]);
    let b = server.submit(&["-q", "one", "-t", "y"]);
    let c = server.submit(&["-q", "two", "-t", "x", "--delay", "1h", "--priority", "bulk"]);
    let ids = |arguments: &[&str]| -> Vec<String> {
        let list = server.json(&[&["jobs", "list"], arguments].concat());
        list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
    };
    let (a, b, c) = (a.as_str(), b.as_str(), c.as_str());
    assert_eq!(ids(&[]), [c, b, a]);
    assert_eq!(ids(&["--queue", "one"]), [b, a]);
    assert_eq!(ids(&["--type", "x"]), [c, a]);
    assert_eq!(ids(&["--tag", "tenant:acme"]), [a]);
    assert_eq!(ids(&["--state", "delayed"]), [c]);
    assert_eq!(ids(&["--priority", "bulk"]), [c]);
    let page = server.json(&["jobs", "list", "--limit", "2"]);
    let next = page["next"].as_str().unwrap();
    assert_eq!(ids(&["--cursor", next]), [a]);
    assert_eq!(ids(&["--all"]).len(), 3);
    server.run(&["jobs", "list", "--state", "asleep"]).expect(2);
    let table = server.run(&["jobs", "list"]).expect(0);
    assert_eq!(table.stdout.lines().count(), 4, "a header and three rows");
    assert!(table.stdout.starts_with("ID ") && table.stdout.contains("delayed"), "{}", table.stdout);
}

#[test]
fn several_pages_are_fetched() {
    let server = Server::in_memory();
    let lines = "{\"type\":\"t\"}\n".repeat(1_200);
    server.run_with(&["submit", "--ndjson", "-"], lines.as_bytes()).expect(0);
    assert_eq!(server.json(&["jobs", "list", "--all"])["jobs"].as_array().unwrap().len(), 1_200);
    let page = server.json(&["jobs", "list", "--limit", "1100"]);
    assert_eq!(page["jobs"].as_array().unwrap().len(), 1_100);
    assert!(page["next"].is_string());
}

#[test]
fn why_get_history_and_attempts_of_a_job() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "report", "-p", "{}", "--retry-limit", "1"]);
    let why = server.json(&["jobs", "why", &id]);
    assert_eq!((&why["state"], &why["runnable"]), (&"scheduled".into(), &true.into()));
    let output = server.run(&["jobs", "why", &id]).expect(0);
    assert!(output.stdout.contains("no worker"), "{}", output.stdout);
    server.work_off("echo broken >&2; exit 3", &[]).expect(0);
    let job = server.job(&id);
    assert_eq!(job["state"], "dead_letter");
    let shown = server.run(&["jobs", "get", &id]).expect(0);
    assert!(shown.stdout.contains("temporary (exit_3): broken"), "{}", shown.stdout);
    let history = server.json(&["jobs", "history", &id]);
    let states: Vec<&str> =
        history["history"].as_array().unwrap().iter().map(|transition| transition["to"].as_str().unwrap()).collect();
    assert_eq!(states, ["pending", "scheduled", "running", "dead_letter"]);
    assert_eq!(server.run(&["jobs", "history", &id]).expect(0).stdout.lines().count(), 5);
    let attempts = server.json(&["jobs", "attempts", &id]);
    assert_eq!(attempts["attempts"][0]["error"]["code"], "exit_3");
    assert!(server.run(&["jobs", "attempts", &id]).expect(0).stdout.contains("broken"));
}

#[test]
fn wait_exits_with_the_outcome() {
    let server = Server::in_memory();
    let good = server.submit(&["-t", "good"]);
    let waiting = crate::support::Running::start(server.command(&["--json", "jobs", "wait", &good]));
    server.work_off("echo '{\"n\":1}'", &[]).expect(0);
    let output: serde_json::Value = serde_json::from_str(&waiting.wait_for_stdout("completed")).unwrap();
    assert_eq!(output["result"]["n"], 1);
    assert_eq!(waiting.wait().code(), Some(0));
    let bad = server.submit(&["-t", "bad"]);
    server.work_off("exit 100", &[]).expect(0);
    let done = server.run(&["jobs", "wait", &bad]).expect(1);
    assert!(done.stderr.contains("ended as"), "{}", done.stderr);
    let late = server.submit(&["-t", "late", "--delay", "1h"]);
    let done = server.run(&["jobs", "wait", &late, "--timeout", "50ms"]).expect(2);
    assert!(done.stderr.contains("has not ended within 50ms") && done.stderr.contains("jobs why"), "{}", done.stderr);
}

#[test]
fn cancel_requeue_delete_by_id() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "a"]);
    let dry = server.run(&["jobs", "cancel", &id, "--dry-run"]).expect(0);
    assert!(dry.stdout.contains("would be cancelled"), "{}", dry.stdout);
    assert_eq!(server.state(&id), "scheduled");
    server.run(&["jobs", "delete", &id]).expect(1);
    assert_eq!(server.json(&["jobs", "cancel", &id, "--reason", "not needed"])["state"], "cancelled");
    let again = server.run(&["jobs", "cancel", &id]).expect(1);
    assert!(again.stderr.contains("illegal_transition") && again.stderr.contains("hint: "), "{}", again.stderr);
    assert_eq!(server.json(&["jobs", "requeue", &id])["state"], "scheduled");
    server.run(&["jobs", "cancel", &id]).expect(0);
    server.run(&["jobs", "delete", &id]).expect(0);
    let gone = server.run(&["jobs", "get", &id]).expect(1);
    assert!(gone.stderr.contains("job_not_found"), "{}", gone.stderr);
}

#[test]
fn a_refusal_does_not_stop_the_other_ids() {
    let server = Server::in_memory();
    let (a, b) = (server.submit(&["-t", "a"]), server.submit(&["-t", "a"]));
    server.run(&["jobs", "cancel", &a]).expect(0);
    let done = server.run(&["--json", "jobs", "cancel", &a, &b]).expect(1);
    let verdicts = done.json_lines();
    assert_eq!((&verdicts[0]["code"], &verdicts[1]["state"]), (&"illegal_transition".into(), &"cancelled".into()));
    assert!(done.stderr.contains("1 of 2"), "{}", done.stderr);
}

#[test]
fn a_requeued_clone_has_a_new_id() {
    let server = Server::in_memory();
    server.run(&["queues", "set", "gopher", "--profile", "gopherqueue"]).expect(0);
    let id = server.submit(&["-q", "gopher", "-t", "a"]);
    server.run(&["jobs", "cancel", &id]).expect(0);
    let verdict = server.json(&["jobs", "requeue", &id]);
    let clone = verdict["requeued_as"].as_str().unwrap();
    assert_ne!(clone, id);
    assert_eq!(server.state(clone), "scheduled");
}

#[test]
fn filters_change_many_jobs() {
    let server = Server::in_memory();
    let lines = "{\"type\":\"t\"}\n".repeat(1_500);
    server.run_with(&["submit", "-q", "bulk", "--ndjson", "-"], lines.as_bytes()).expect(0);
    let other = server.submit(&["-q", "other", "-t", "t"]);
    let dry = server.json(&["jobs", "cancel", "--queue", "bulk", "--dry-run"]);
    assert_eq!((&dry["matched"], &dry["changed"], &dry["more"]), (&1_000.into(), &0.into(), &true.into()));
    let limited = server.json(&["jobs", "cancel", "--queue", "bulk", "--limit", "10", "--yes"]);
    assert_eq!((&limited["changed"], &limited["more"]), (&10.into(), &true.into()));
    let rest = server.json(&["jobs", "cancel", "--queue", "bulk", "--state", "scheduled", "-y"]);
    assert_eq!((&rest["changed"], &rest["more"]), (&1_490.into(), &false.into()));
    assert_eq!(server.state(&other), "scheduled");
    let output = server.run(&["jobs", "requeue", "--queue", "bulk", "--state", "cancelled"]).expect(0);
    assert!(output.stdout.contains("1500 jobs requeued"), "{}", output.stdout);
    // Without ids and without a filter nothing is cancelled.
    for command in ["cancel", "requeue", "delete"] {
        let unselected = server.run(&["jobs", command]).expect(2);
        assert!(unselected.stderr.contains("<ID") && unselected.stderr.contains("--queue"), "{unselected:?}");
    }
    server.run(&["jobs", "cancel", &other, "--queue", "bulk"]).expect(1);
}

/// A dry run counts the jobs that the change would apply to, as the confirmation does.
#[test]
fn a_dry_run_counts_only_jobs_that_would_change() {
    let server = Server::in_memory();
    let ids: Vec<String> = (0..3).map(|_| server.submit(&["-q", "reports", "-t", "a"])).collect();
    server.run(&["jobs", "cancel", &ids[0]]).expect(0);
    let matched = |command: &str| server.json(&["jobs", command, "--queue", "reports", "--dry-run"])["matched"].clone();
    assert_eq!((matched("cancel"), matched("requeue"), matched("delete")), (2.into(), 1.into(), 1.into()));
    let command = server.command(&["jobs", "cancel", "--queue", "reports"]);
    let answered = on_a_terminal_answering(&command, 80, "[y/N]", b"y\n").expect(0);
    assert!(answered.stdout.contains("cancel 2 jobs? [y/N]"), "{answered:?}");
    assert!(answered.stdout.contains("2 jobs cancelled") && !answered.stdout.contains("refused"), "{answered:?}");
}

#[test]
fn held_and_delayed_jobs_become_ready() {
    let server = Server::in_memory();
    let held = server.submit(&["-t", "a", "--hold"]);
    let later = server.submit(&["-t", "a", "--delay", "1h"]);
    assert_eq!(server.state(&held), "pending");
    assert!(server.run(&["jobs", "why", &held]).expect(0).stdout.contains("held"));
    assert_eq!(server.json(&["jobs", "submit", &held])["state"], "scheduled");
    assert!(server.run(&["jobs", "why", &later]).expect(0).stdout.contains("delayed until"));
    assert_eq!(server.json(&["jobs", "run-now", &later])["state"], "scheduled");
    server.run(&["jobs", "run-now", &later]).expect(1);
}

#[test]
fn a_cancel_by_filter_asks_for_confirmation() {
    let server = Server::in_memory();
    let ids: Vec<String> = (0..3).map(|_| server.submit(&["-q", "reports", "-t", "a"])).collect();
    let unasked = server.run(&["jobs", "cancel", "--queue", "reports"]).expect(1);
    assert!(unasked.stderr.contains("not a terminal") && unasked.stderr.contains("--yes"), "{unasked:?}");
    let command = server.command(&["jobs", "cancel", "--queue", "reports"]);
    let no = on_a_terminal_answering(&command, 80, "[y/N]", b"n\n").expect(1);
    assert!(no.stdout.contains("cancel 3 jobs? [y/N]") && no.stdout.contains("nothing was cancelled"), "{no:?}");
    assert!(ids.iter().all(|id| server.state(id) == "scheduled"));
    let yes = on_a_terminal_answering(&command, 80, "[y/N]", b"y\n").expect(0);
    assert!(yes.stdout.contains("3 jobs cancelled"), "{yes:?}");
    assert!(ids.iter().all(|id| server.state(id) == "cancelled"));
    // Only ended jobs match: there is no question.
    let none = on_a_terminal_answering(&command, 80, "[y/N]", b"n\n").expect(0);
    assert!(none.stdout.contains("0 jobs cancelled") && !none.stdout.contains("[y/N]"), "{none:?}");
    server.run(&["jobs", "cancel", "--queue", "reports", "--yes"]).expect(0);
}

#[test]
fn why_of_a_dead_letter_shows_the_error_and_how_to_requeue_it() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "report", "--retry-limit", "1"]);
    let dependent = server.submit(&["-t", "after", "--after", &id]);
    server.work_off("echo disk is full >&2; exit 3", &[]).expect(0);
    let output = server.run(&["jobs", "why", &id]).expect(0).stdout;
    assert!(output.contains("temporary (exit_3): disk is full"), "{output}");
    assert!(output.contains(&format!("`longshore jobs requeue {id}` runs it again")), "{output}");
    let why = server.json(&["jobs", "why", &id]);
    assert_eq!((&why["error"]["code"], &why["action"]["job"]), (&"exit_3".into(), &id.as_str().into()), "{why}");
    // A job that ended because of a dependency needs the dependency to be requeued.
    let output = server.run(&["jobs", "why", &dependent]).expect(0).stdout;
    assert!(output.contains(&format!("`longshore jobs requeue {id}` comes first")), "{output}");
    server.run(&["jobs", "requeue", &id]).expect(0);
    let output = server.run(&["jobs", "why", &id]).expect(0).stdout;
    assert!(!output.contains("requeue") && !output.contains("last error"), "{output}");
    // The clone is named.
    server.run(&["queues", "set", "gopher", "--profile", "gopherqueue"]).expect(0);
    let original = server.submit(&["-q", "gopher", "-t", "a"]);
    server.run(&["jobs", "dead-letter", &original]).expect(0);
    let clone = server.json(&["jobs", "requeue", &original])["requeued_as"].as_str().unwrap().to_owned();
    let output = server.run(&["jobs", "why", &original]).expect(0).stdout;
    assert!(output.contains(&format!("requeued as {clone}")) && !output.contains("jobs requeue"), "{output}");
}

#[test]
fn jobs_are_ended_as_dead_letters() {
    let server = Server::in_memory();
    let (a, b) = (server.submit(&["-t", "a"]), server.submit(&["-t", "b", "--delay", "1h"]));
    let output = server.run(&["jobs", "dead-letter", &a, "--reason", "bad address"]).expect(0);
    assert!(output.stdout.contains(&a) && output.stdout.contains("dead_letter"), "{output:?}");
    assert!(server.job(&a)["error"]["message"].as_str().unwrap().contains("bad address"));
    let verdicts = server.run(&["--json", "jobs", "dead-letter", &a, &b]).expect(1);
    let verdicts = verdicts.json_lines();
    assert_eq!((&verdicts[0]["code"], &verdicts[1]["state"]), (&"illegal_transition".into(), &"dead_letter".into()));
    server.run(&["jobs", "dead-letter"]).expect(2);
}

#[test]
fn fields_of_a_job_are_edited() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "a", "--tag", "old", "--correlation-id", "c", "--callback-url", "http://host/x"]);
    let edit = |flags: &[&str]| server.json(&[&["jobs", "edit", &id], flags].concat());
    let job = edit(&["--priority", "high", "--type", "b", "--retry-limit", "7"]);
    assert_eq!((&job["priority"], &job["type"]), (&"high".into(), &"b".into()));
    assert_eq!((&job["policy"]["retry"]["limit"], &job["correlation_id"]), (&7.into(), &"c".into()));
    let job = edit(&["--tag", "tenant=acme", "--tag", "urgent", "--correlation-id", "d", "--no-callback-url"]);
    assert_eq!(job["tags"], serde_json::json!({"tenant": "acme", "urgent": null}));
    assert_eq!((&job["correlation_id"], &job["callback_url"]), (&"d".into(), &serde_json::Value::Null));
    let job = edit(&["--no-tags", "--no-correlation-id", "--callback-url", "http://host/y"]);
    assert_eq!((&job["tags"], &job["correlation_id"]), (&serde_json::json!({}), &serde_json::Value::Null));
    assert_eq!((&job["callback_url"], &job["priority"]), (&"http://host/y".into(), &"high".into()));
    let shown = server.run(&["jobs", "edit", &id, "--priority", "low"]).expect(0);
    assert!(shown.stdout.contains("priority") && shown.stdout.contains("low"), "{shown:?}");
    let nothing = server.run(&["jobs", "edit", &id]).expect(2);
    assert!(nothing.stderr.contains("--priority"), "{nothing:?}");
    server.run(&["jobs", "edit", &id, "--tag", "a", "--no-tags"]).expect(2);
    server.run(&["jobs", "cancel", &id]).expect(0);
    let ended = server.run(&["jobs", "edit", &id, "--priority", "high"]).expect(1);
    assert!(ended.stderr.contains("hint: "), "{ended:?}");
}
