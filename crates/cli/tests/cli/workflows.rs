//! `longshore workflows`, and a chord over a kill of the server.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Server, eventually};

const CHORD: &str = r#"{"name":"thumbnails","queue":"pics","chord":{
  "group":[{"ref":"a","type":"resize","payload":1},{"ref":"b","type":"resize","payload":2},{"ref":"c","type":"resize","payload":3}],
  "finally":{"ref":"album","type":"album"}}}"#;

fn submit(server: &Server, body: &str) -> String {
    server.run_with(&["workflows", "submit", "-"], body.as_bytes()).expect(0).line()
}

fn state(server: &Server, id: &str) -> String {
    server.json(&["workflows", "get", id])["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_workflow_is_submitted_listed_drawn_and_retried() {
    let server = Server::in_memory();
    let id = submit(&server, CHORD);
    let listed = server.json(&["workflows", "list"]);
    assert_eq!((&listed["workflows"][0]["id"], &listed["workflows"][0]["total"]), (&id.as_str().into(), &4.into()));
    assert!(server.run(&["workflows", "list"]).expect(0).stdout.contains("thumbnails"));
    server.work_off("read n; test \"$n\" != 2", &["--queue", "pics"]).expect(0);
    eventually("the failing member is waiting for its retry", || {
        server.json(&["workflows", "get", &id])["counts"]["retrying"] == 1
    });
    let drawn = server.run(&["workflows", "get", &id, "--graph"]).expect(0).stdout;
    assert!(drawn.contains("✔ a") && drawn.contains("↻ b") && drawn.contains("· album"), "{drawn}");
    let table = server.run(&["workflows", "get", &id]).expect(0).stdout;
    assert!(table.contains("2 of 4 jobs") && table.contains("a b c"), "{table}");
    let dot = server.run(&["workflows", "get", &id, "--dot"]).expect(0).stdout;
    assert!(dot.starts_with("digraph") && dot.contains("j2 -> j3;"), "{dot}");
    let mermaid = server.run(&["workflows", "get", &id, "--mermaid"]).expect(0).stdout;
    assert!(mermaid.starts_with("flowchart TD") && mermaid.contains("j0 --> j3"), "{mermaid}");
    server.run(&["workflows", "cancel", &id, "--reason", "no more"]).expect(0);
    assert_eq!(state(&server, &id), "cancelled");
    assert_eq!(server.json(&["workflows", "list", "--state", "cancelled"])["workflows"].as_array().unwrap().len(), 1);
    assert!(server.json(&["workflows", "list", "--state", "failed"])["workflows"].as_array().unwrap().is_empty());
    assert_eq!(server.json(&["workflows", "retry", &id])["state"], "running");
    server.work_off("cat", &["--queue", "pics"]).expect(0);
    assert_eq!(state(&server, &id), "completed");
    server.run(&["workflows", "retry", &id]).expect(1);
    server.run(&["workflows", "cancel", &id]).expect(1);
    server.run(&["workflows", "get", "unknown"]).expect(1);
    server.run(&["workflows", "list", "--state", "asleep"]).expect(2);
    server.run_with(&["workflows", "submit", "-"], b"{").expect(1);
    server.run_with(&["workflows", "submit", "-"], br#"{"chain":[]}"#).expect(1);
}

#[test]
fn jobs_are_added_to_an_open_workflow() {
    let server = Server::in_memory();
    let id = submit(&server, r#"{"open":true,"queue":"q","jobs":[{"ref":"a","type":"t"}]}"#);
    let more = br##"{"queue":"q","jobs":[{"ref":"b","type":"t","after":["#a"]}]}"##;
    let added = server.run_with(&["workflows", "add", &id, "-"], more).expect(0);
    assert!(added.stdout.contains('b'), "{added:?}");
    server.work_off("cat", &["--queue", "q"]).expect(0);
    assert_eq!(state(&server, &id), "running");
    assert_eq!(server.json(&["workflows", "close", &id])["state"], "completed");
    server.run_with(&["workflows", "add", &id, "-"], more).expect(1);
}

fn claim(server: &Server) -> Option<Value> {
    let claimed = server.call("POST", "/v1/claims", &serde_json::json!({"queues":["pics"],"worker":"w"}));
    claimed["jobs"].get(0).cloned()
}

fn settle(server: &Server, job: &Value, verb: &str, mut body: Value) {
    body["lease"] = job["lease"]["token"].clone();
    let response = server.call("POST", &format!("/v1/jobs/{}/{verb}", job["id"].as_str().unwrap()), &body);
    assert!(response["state"].is_string(), "{response}");
}

/// One member of a chord fails twice, and the server is killed in between: the finalizer runs
/// exactly once.
///
/// Proves T-35, T-36.
#[test]
fn a_chord_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on(directory.path());
    let quick = r#"{"backoff":{"kind":"constant","base":"1ms"},"jitter":{"kind":"none"},"limit":5}"#;
    let id = submit(&server, &CHORD.replace("\"payload\":3", &format!("\"payload\":3,\"retry\":{quick}")));
    for _ in 0..2 {
        let job = claim(&server).unwrap();
        settle(&server, &job, "complete", serde_json::json!({"result": job["payload"]}));
    }
    let third = claim(&server).unwrap();
    settle(&server, &third, "fail", serde_json::json!({"error":{"category":"temporary","message":"once"}}));
    server.signal(Signal::KILL);
    server.wait();
    let server = Server::on(directory.path());
    let mut failed = 1;
    let mut ran = Vec::new();
    eventually("the workflow ends", || {
        if let Some(job) = claim(&server) {
            if job["payload"] == 3 && failed < 2 {
                failed += 1;
                settle(&server, &job, "fail", serde_json::json!({"error":{"category":"temporary","message":"twice"}}));
            } else {
                ran.push(job["type"].as_str().unwrap().to_owned());
                settle(&server, &job, "complete", serde_json::json!({"result": 0}));
            }
        }
        state(&server, &id) != "running"
    });
    assert_eq!((state(&server, &id).as_str(), ran), ("completed", vec!["resize".to_owned(), "album".to_owned()]));
    server.signal(Signal::KILL);
    server.wait();
    let server = Server::on(directory.path());
    assert!(claim(&server).is_none(), "nothing runs again");
    let jobs = server.json(&["workflows", "get", &id]);
    let album = jobs["jobs"].as_array().unwrap().iter().find(|job| job["ref"] == "album").unwrap();
    let attempts = server.json(&["jobs", "attempts", album["id"].as_str().unwrap()]);
    assert_eq!(attempts["attempts"].as_array().unwrap().len(), 1, "exactly once");
}
