//! The binary on PostgreSQL: schema, servers, and the move of a data directory.

use std::path::Path;
use std::process::{Command, Stdio};

use longshore_testkit::postgres::{new_schema, programs, shared_url};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, alone, eventually, run};

/// A URL with a new schema.
fn address() -> (String, String) {
    let (url, schema) = (shared_url(), new_schema());
    (format!("{url}?schema={schema}"), schema)
}

fn psql(text: &str) -> String {
    let mut psql = Command::new(programs().join("psql"));
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &shared_url()]).stderr(Stdio::inherit());
    run(psql, text.as_bytes()).expect(0).stdout.trim().to_owned()
}

fn claim(server: &Server, queue: &str) -> Option<Value> {
    let claimed = server.call("POST", "/v1/claims", &json!({"queues":[queue],"worker":"w"}));
    claimed["jobs"].get(0).cloned()
}

fn complete(server: &Server, job: &Value) -> Value {
    let path = format!("/v1/jobs/{}/complete", job["id"].as_str().unwrap());
    server.call("POST", &path, &json!({"lease": job["lease"]["token"]}))
}

#[test]
fn the_schema_is_migrated_listed_and_printed() {
    let (url, schema) = address();
    let missing = alone(&["--json", "migrate", "status", "--store", &url]).expect(1);
    assert!(missing.json().as_array().unwrap().iter().all(|step| step["applied"] == false), "{missing:?}");
    let missing = alone(&["migrate", "status", "--store", &url]).expect(1);
    assert!(missing.stdout.contains("0001 schema  missing"), "{missing:?}");
    assert!(missing.stderr.contains("lacks") && missing.stderr.contains("migrate up"), "{missing:?}");
    let done = alone(&["migrate", "up", "--store", &url]).expect(0);
    assert!(done.stdout.contains("0001 schema  applied"), "{done:?}");
    let again = alone(&["migrate", "up", "--store", &url]).expect(0);
    assert!(again.stdout.is_empty() && again.stderr.contains("up to date"), "{again:?}");
    let status = alone(&["--json", "migrate", "status", "--store", &url]).expect(0).json();
    assert!(status.as_array().unwrap().iter().all(|step| step["applied"] == true), "{status}");
    // The printed statements create the same schema.
    let (other_url, other) = address();
    psql(&alone(&["migrate", "sql", "--store", &other_url]).expect(0).stdout);
    let tables = |schema: &str| {
        psql(&format!(
            "SELECT string_agg(relname || ' ' || relkind::text, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
        ))
    };
    assert_eq!(tables(&schema), tables(&other));
    let again = alone(&["migrate", "up", "--store", &other_url]).expect(0);
    assert!(again.stderr.contains("up to date"), "{again:?}");
    // A newer version has migrated the schema.
    psql(&format!("INSERT INTO {other}.migrations (number, name) VALUES (99, 'later')"));
    let refused = alone(&["serve", "--listen", "127.0.0.1:0", "--store", &other_url]).expect(2);
    assert!(refused.stderr.contains("migration 99") && refused.stderr.contains("newer version"), "{refused:?}");
    alone(&["migrate", "up"]).expect(1);
    let refused = alone(&["migrate", "status", "--store", "postgres://user:secret@127.0.0.1:1/x"]).expect(2);
    assert!(!refused.stderr.contains("secret"), "{refused:?}");
}

/// Two servers with a role that does not own the schema; one is killed.
#[test]
fn two_servers_share_the_jobs() {
    let (url, schema) = address();
    alone(&["migrate", "up", "--store", &url]).expect(0);
    let role = format!("r{schema}");
    psql(&format!("CREATE ROLE {role} LOGIN"));
    psql(&alone(&["migrate", "grants", &role, "--store", &url]).expect(0).stdout);
    let url = url.replace("postgres@", &format!("{role}@"));
    let (one, two) = (Server::start(&["--store", &url]), Server::start(&["--store", &url]));
    let id = one.submit(&["-t", "a", "-p", "[1, 2]"]);
    assert_eq!(two.run(&["jobs", "payload", &id]).expect(0).stdout, "[1, 2]");
    two.work_off("cat", &[]).expect(0);
    assert_eq!(one.state(&id), "completed");
    let kept = one.submit(&["-t", "b"]);
    one.signal(Signal::KILL);
    one.wait();
    two.work_off("cat", &[]).expect(0);
    assert_eq!(two.state(&kept), "completed");
    // A claim that waits at one server gets a job of the other.
    let three = Server::start(&["--store", &url]);
    let waits = std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| three.call("POST", "/v1/claims", &json!({"queues":["default"],"worker":"w","wait":"60s"})));
        let sent = two.submit(&["-t", "c"]);
        (waiting.join().unwrap(), sent)
    });
    assert_eq!(waits.0["jobs"][0]["id"], waits.1.as_str());
    // A schema in real time refuses virtual time.
    let refused = alone(&["serve", "--listen", "127.0.0.1:0", "--virtual-clock", "--store", &url]).expect(2);
    assert!(refused.stderr.contains("without --virtual-clock"), "{refused:?}");
    assert!(two.stop().success());
}

/// Virtual time is saved in the schema.
#[test]
fn virtual_time_survives_a_kill() {
    let (url, _) = address();
    let server = Server::start(&["--virtual-clock", "--store", &url]);
    let id = server.submit(&["-t", "a", "--delay", "30d"]);
    assert_eq!(server.state(&id), "delayed");
    let advanced = server.call("POST", "/v1/clock/advance", &json!({"by": "30d"}));
    let now = advanced["now"].as_str().unwrap().to_owned();
    assert_eq!(server.state(&id), "scheduled");
    server.signal(Signal::KILL);
    server.wait();
    let server = Server::start(&["--virtual-clock", "--store", &url]);
    let job = claim(&server, "default").unwrap();
    assert_eq!(job["id"], id.as_str());
    assert!(job["lease"]["expires_at"].as_str().unwrap() > now.as_str(), "{job}");
}

const WORKFLOW: &str = r#"{"name":"pair","queue":"flow","chain":[{"ref":"one","type":"t"},{"ref":"two","type":"t"}]}"#;

/// Only the doctor opens a moved directory. Other commands name the target and the marker file.
fn assert_moved(data: &Path, url: &str, schema: &str, copy: &Path) {
    let (from, mark) = (data.to_str().unwrap(), data.join("moved"));
    let (copy, other) = (copy.to_str().unwrap(), copy.with_extension("other"));
    let (elsewhere, _) = address();
    let refused: [&[&str]; 6] = [
        &["serve", "--listen", "127.0.0.1:0", "--data", from],
        &["migrate-store", "--from", from, "--to", &elsewhere],
        &["migrate-store", "--from", from, "--to", url],
        &["restore", from, other.to_str().unwrap()],
        &["restore", copy, from],
        &["backup", from],
    ];
    for command in refused {
        let refused = alone(command).expect(2);
        let output = &refused.stderr;
        assert!(output.contains("were moved to postgres://") && output.contains(schema), "{command:?}: {output}");
        assert!(command[0] == "backup" || output.contains(mark.to_str().unwrap()), "{command:?}: {output}");
    }
    assert!(!other.exists());
    let output = alone(&["--json", "doctor", from]).expect(0).json();
    assert!(output["moved_to"].as_str().unwrap().ends_with(&format!("schema={schema}")), "{output}");
}

/// The process was killed between the commit of the target and the marker: repeating the command
/// writes the marker.
#[test]
fn an_interrupted_move_is_finished_by_repeating_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (from, mark) = (data.to_str().unwrap(), data.join("moved"));
    let server = Server::on(&data);
    server.submit(&["-t", "a"]);
    assert!(server.stop().success());
    let (url, schema) = address();
    let url = url.replace("postgres@", "postgres:secret@");
    let first = alone(&["--json", "migrate-store", "--from", from, "--to", &url]).expect(0).json();
    let marked = std::fs::read_to_string(&mark).unwrap();
    assert!(marked.contains(&schema) && !marked.contains("secret"), "{marked}");
    std::fs::remove_file(&mark).unwrap();
    let again = alone(&["migrate-store", "--from", from, "--to", &url]).expect(0);
    assert!(again.stderr.contains("earlier run") && again.stdout.contains("1 jobs"), "{again:?}");
    std::fs::remove_file(&mark).unwrap();
    assert_eq!(alone(&["--json", "migrate-store", "--from", from, "--to", &url]).expect(0).json(), first);
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), marked);
    // Without the marker the directory is served again. Its new jobs are not in the target, so that
    // the move is refused.
    std::fs::remove_file(&mark).unwrap();
    let server = Server::on(&data);
    server.submit(&["-t", "b"]);
    assert!(server.stop().success());
    let refused = alone(&["migrate-store", "--from", from, "--to", &url]).expect(2);
    assert!(refused.stderr.contains("not empty") && refused.stderr.contains("schema=NAME"), "{refused:?}");
    assert!(!mark.exists());
}

/// Jobs of every state are moved; leases and keys stay valid, and workflows continue.
#[test]
#[expect(clippy::too_many_lines, reason = "one story: before, the move, after")]
fn a_directory_is_moved() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let from = data.to_str().unwrap();
    let server = Server::on(&data);
    let put = |body: &Value| server.call("PUT", "/v1/queues/q", body);
    put(&json!({"settings":{"lease":"10m","retry":{"limit":0}}}));
    let held = server.submit(&["-q", "q", "-t", "held", "--hold"]);
    let running = server.submit(&["-q", "q", "-t", "running", "-p", "{\"n\":  1}"]);
    let lease = claim(&server, "q").unwrap();
    assert_eq!(lease["id"], running.as_str());
    let done = server.submit(&["-q", "q", "-t", "done", "--tag", "red"]);
    let finished = claim(&server, "q").unwrap();
    assert_eq!(complete(&server, &finished)["state"], "completed");
    let failed = server.submit(&["-q", "q", "-t", "failed"]);
    let lost = claim(&server, "q").unwrap();
    let error = json!({"lease": lost["lease"]["token"], "error":{"category":"permanent","message":"no"}});
    server.call("POST", &format!("/v1/jobs/{failed}/fail"), &error);
    let cancelled = server.submit(&["-q", "q", "-t", "cancelled"]);
    server.run(&["jobs", "cancel", &cancelled]).expect(0);
    let delayed = server.submit(&["-q", "q", "-t", "delayed", "--delay", "1h"]);
    let first = server.submit(&["-q", "q", "-t", "first", "--idempotency-key", "k"]);
    let after = server.submit(&["-q", "q", "-t", "after", "--after", &first]);
    let flow = server.run_with(&["workflows", "submit", "-"], WORKFLOW.as_bytes()).expect(0).line();
    let all = [&held, &running, &done, &failed, &cancelled, &delayed, &first, &after];
    let before: Vec<Value> = all.iter().map(|id| server.job(id)).collect();
    let history = server.json(&["jobs", "history", &failed]);
    let (url, schema) = address();
    let busy = alone(&["migrate-store", "--from", from, "--to", &url]).expect(2);
    assert!(busy.stderr.contains("in use") && busy.stderr.contains("stop its server"), "{busy:?}");
    let counts = server.json(&["queues", "get", "q"])["counts"].clone();
    let schedule = json!({"cron":"0 3 1 1 *","queue":"q","job":{"type":"yearly"}});
    let schedule = server.call("PUT", "/v1/schedules/yearly", &schedule);
    let hook = server.call("PUT", "/v1/webhooks/all", &json!({"url":"http://127.0.0.1:9/"}));
    let undelivered = server.submit(&["-q", "other", "-t", "undelivered"]);
    server.run(&["jobs", "cancel", &undelivered]).expect(0);
    let deliveries = format!("/v1/jobs/{undelivered}/deliveries");
    let delivery = server.call("GET", &deliveries, &Value::Null)["deliveries"][0]["id"].clone();
    assert!(hook["secret"].is_string() && delivery.is_string(), "{hook} {delivery}");
    assert!(server.stop().success());
    let copy = directory.path().join("copy");
    alone(&["backup", from, copy.to_str().unwrap()]).expect(0);

    let moved = alone(&["--json", "migrate-store", "--from", from, "--to", &url]).expect(0).json();
    assert_eq!((&moved["jobs"], &moved["workflows"], &moved["members"]), (&11.into(), &1.into(), &2.into()), "{moved}");
    assert!(moved["system_records"].as_u64() >= Some(6), "{moved}");
    assert_eq!(moved["idempotency_keys"], 1);
    assert_moved(&data, &url, &schema, &copy);

    let server = Server::start(&["--store", &url]);
    let there: Vec<Value> = all.iter().map(|id| server.job(id)).collect();
    assert_eq!(there, before);
    assert_eq!(server.json(&["jobs", "history", &failed]), history);
    assert_eq!(server.json(&["queues", "get", "q"])["counts"], counts);
    assert_eq!(server.run(&["jobs", "payload", &running]).expect(0).stdout, "{\"n\":  1}");
    assert_eq!(server.submit(&["-q", "q", "-t", "first", "--idempotency-key", "k"]), first, "the key is still valid");
    let tagged = server.json(&["jobs", "list", "--tag", "red"]);
    assert_eq!(tagged["jobs"][0]["id"], done.as_str());
    assert_eq!(complete(&server, &lease)["state"], "completed", "the lease is still valid");
    let there = server.call("GET", "/v1/schedules/yearly", &Value::Null);
    assert_eq!((&there["cron"], &there["created_at"]), (&schedule["cron"], &schedule["created_at"]));
    let there = server.call("GET", "/v1/webhooks/all", &Value::Null);
    assert_eq!((&there["url"], &there["created_at"]), (&hook["url"], &hook["created_at"]));
    assert_eq!(server.call("GET", &deliveries, &Value::Null)["deliveries"][0]["id"], delivery);
    // A changed schedule is written by compare-and-set with a revision that was imported.
    assert_eq!(server.call("POST", "/v1/schedules/yearly/pause", &json!({}))["paused"], true);
    // The order of the queue and the dependencies are kept.
    let next = claim(&server, "q").unwrap();
    assert_eq!(next["id"], first.as_str());
    assert_eq!(complete(&server, &next)["state"], "completed");
    eventually("the dependent is ready", || server.state(&after) == "scheduled");
    for name in ["one", "two"] {
        let mut job = None;
        eventually("a member is ready", || {
            job = job.take().or_else(|| claim(&server, "flow"));
            job.is_some()
        });
        let job = job.unwrap();
        assert_eq!(job["workflow"]["ref"].as_str().or(job["ref"].as_str()).unwrap_or(name), name, "{job}");
        assert_eq!(complete(&server, &job)["state"], "completed");
    }
    assert_eq!(server.json(&["workflows", "get", &flow])["state"], "completed");
    let fresh = server.submit(&["-q", "q", "-t", "new"]);
    assert!(!all.contains(&&fresh));
    server.run(&["jobs", "delete", &done]).expect(0);
    server.run(&["jobs", "get", &done]).expect(1);
    server.run(&["jobs", "run-now", &delayed]).expect(0);
    server.work_off("cat", &["--queue", "q"]).expect(0);
    assert_eq!((server.state(&after), server.state(&delayed)), ("completed".to_owned(), "completed".to_owned()));
}
