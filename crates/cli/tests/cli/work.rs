//! `longshore work --exec`

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{Running, Server, eventually};

/// Synchronizes a program with its test: the program prints that it runs, and waits for the gate.
struct Gate {
    directory: tempfile::TempDir,
}

impl Gate {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = Command::new("mkfifo").arg(directory.path().join("gate")).status().unwrap();
        assert!(made.success());
        Self { directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes its process id, prints "started" and waits at the gate.
    fn program(&self, then: &str) -> String {
        let (pid, gate) = (self.file("pid"), self.file("gate"));
        format!("echo $$ > '{}'; echo started >&2; read line < '{}'; {then}", pid.display(), gate.display())
    }

    /// Lets one program continue.
    fn open(&self) {
        std::fs::write(self.file("gate"), "go\n").unwrap();
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.file("pid")).unwrap().trim().to_owned()
    }

    fn is_gone(&self) -> bool {
        // A zombie is gone, too.
        match std::fs::read_to_string(Path::new("/proc").join(self.pid()).join("stat")) {
            Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
            Err(_) => true,
        }
    }
}

/// Heartbeats are sent every two seconds: a busy machine has four seconds left.
const LEASE: &str = "6s";

fn worker(server: &Server, program: &str, arguments: &[&str]) -> Running {
    Running::start(server.command(&[&["work", "--exec", program], arguments].concat()))
}

#[test]
fn the_payload_is_stdin_and_the_result_is_stdout() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "double", "-p", r#"{"n": 1.50}"#]);
    let done = server.work_off("read text; echo \"{\\\"given\\\": $text}\"", &[]).expect(0);
    assert!(done.stdout.contains(&id) && done.stdout.contains("completed"), "{done:?}");
    let job = server.json(&["jobs", "get", &id]);
    assert_eq!(job["state"], "completed");
    assert_eq!(job["result"], serde_json::json!({"given": {"n": 1.5}}));
    // Output that is not JSON is ignored.
    let id = server.submit(&["-t", "talk", "-p", "null"]);
    server.work_off("echo hello world", &[]).expect(0);
    let job = server.job(&id);
    assert_eq!((&job["state"], &job["result"]), (&"completed".into(), &serde_json::Value::Null));
    // A binary payload is passed byte for byte.
    let id = server.run_with(&["submit", "-t", "b", "--binary", "--payload-file", "-"], b"a\x00b\xff").expect(0).line();
    server.work_off("od -An -tx1 | tr -d ' \\n' | sed 's/.*/\"&\"/'", &[]).expect(0);
    assert_eq!(server.job(&id)["result"], "610062ff");
    // A program need not read its payload.
    let long = format!("\"{}\"", "x".repeat(500_000));
    let id = server.run_with(&["submit", "-t", "long", "-p", "-"], long.as_bytes()).expect(0).line();
    server.work_off("exec true", &[]).expect(0);
    assert_eq!(server.state(&id), "completed");
}

/// It would complete all jobs without any work.
#[test]
fn an_empty_program_is_refused() {
    let server = Server::in_memory();
    let id = server.submit(&["-t", "double", "-p", "1"]);
    let refused = server.work_off("", &[]).expect(2);
    assert!(refused.stderr.contains("--exec <CMD>"), "{refused:?}");
    assert_eq!(server.state(&id), "scheduled");
}

#[test]
fn the_fields_of_the_job_are_in_the_environment() {
    let server = Server::in_memory();
    let id = server.submit(&[
        "-q",
        "facts",
        "-t",
        "t.1",
        "-p",
        "{}",
        "--priority",
        "high",
        "--tag",
        "a=b",
        "--correlation-id",
        "c 1",
    ]);
    let program = concat!(
        "printf '[\"%s\",\"%s\",\"%s\",\"%s\",\"%s\",\"%s\",\"%s\",%s]' \"$LONGSHORE_JOB_ID\" \"$LONGSHORE_JOB_QUEUE\" ",
        "\"$LONGSHORE_JOB_TYPE\" \"$LONGSHORE_JOB_ATTEMPT\" \"$LONGSHORE_JOB_PRIORITY\" \"$LONGSHORE_JOB_CORRELATION_ID\" ",
        "\"$LONGSHORE_JOB_PAYLOAD_KIND\" \"$LONGSHORE_JOB_TAGS\"; test -n \"$LONGSHORE_LEASE_TOKEN\" -a -z \"$LONGSHORE_JOB_WORKFLOW\""
    );
    let mut command = server.command(&["work", "--until-empty", "-q", "facts", "--exec", program]);
    command.env("LONGSHORE_JOB_WORKFLOW", "of an outer job");
    crate::support::run(command, b"").expect(0);
    let expected = serde_json::json!([id, "facts", "t.1", "1", "high", "c 1", "json", {"a": "b"}]);
    assert_eq!(server.job(&id)["result"], expected);
}

#[test]
fn the_exit_code_is_the_outcome() {
    let server = Server::in_memory();
    let temporary = server.submit(&["-t", "temporary"]);
    let done = server.run(&["--json", "work", "--until-empty", "--exec", "echo lost the thread >&2; exit 7"]).expect(0);
    let output = &done.json_lines()[0];
    assert_eq!(
        (&output["outcome"], &output["exit_code"], &output["state"]),
        (&"failed".into(), &7.into(), &"retrying".into())
    );
    let error = server.job(&temporary)["error"].clone();
    assert_eq!((&error["category"], &error["code"]), (&"temporary".into(), &"exit_7".into()));
    assert_eq!(error["message"], "lost the thread");
    server.run(&["jobs", "cancel", &temporary]).expect(0);
    let permanent = server.submit(&["-t", "permanent"]);
    server.work_off("exit 100", &[]).expect(0);
    let job = server.job(&permanent);
    assert_eq!((&job["error"]["category"], &job["error"]["code"]), (&"permanent".into(), &"exit_100".into()));
    assert_ne!(job["state"], "retrying");
    let chosen = server.submit(&["-t", "chosen"]);
    server.work_off("exit 65", &["--permanent-exit-code", "65"]).expect(0);
    assert_eq!(server.job(&chosen)["error"]["category"], "permanent");
    let killed = server.submit(&["-t", "killed"]);
    server.work_off("kill -KILL $$", &[]).expect(0);
    assert_eq!(server.job(&killed)["error"]["code"], "signal_9");
    server.run(&["jobs", "cancel", &killed]).expect(0);
    let missing = server.submit(&["-t", "missing"]);
    server.work_off("/does/not/exist", &[]).expect(0);
    assert_eq!(server.job(&missing)["error"]["code"], "exit_127");
}

/// The virtual clock advances by less than a lease after each heartbeat, so that the test does not
/// depend on the speed of the machine.
#[test]
fn heartbeats_keep_the_job_while_the_program_runs() {
    let server = Server::start(&["--store", "memory:", "--virtual-clock"]);
    let gate = Gate::new();
    let id = server.submit(&["-t", "slow", "--lease", LEASE]);
    let worker = worker(&server, &gate.program("echo '\"late\"'"), &["--max-jobs", "1"]);
    worker.wait_for_stderr("started");
    for _ in 0..2 {
        let before = server.job(&id)["lease"]["expires_at"].clone();
        assert!(before.is_string());
        server.call("POST", "/v1/clock/advance", &serde_json::json!({"by": "5s"}));
        eventually("a heartbeat", || server.job(&id)["lease"]["expires_at"] != before);
    }
    gate.open();
    assert_eq!(worker.wait().code(), Some(0));
    let job = server.job(&id);
    assert_eq!((&job["state"], &job["result"], &job["attempt"]), (&"completed".into(), &"late".into(), &1.into()));
    assert_eq!(job["counters"]["reclaims"], 0);
}

#[test]
fn an_execution_timeout_stops_the_program() {
    let server = Server::in_memory();
    let gate = Gate::new();
    let id = server.submit(&["-t", "endless", "--execution-timeout", "300ms", "--retry-limit", "1"]);
    let worker = worker(&server, &gate.program("true"), &["--max-jobs", "1"]);
    worker.wait_for_stderr("started");
    assert_eq!(worker.wait().code(), Some(0));
    assert!(gate.is_gone());
    let job = server.job(&id);
    assert_eq!((&job["error"]["category"], &job["state"]), (&"timeout".into(), &"dead_letter".into()), "{job}");
}

#[test]
fn a_cancel_reaches_the_program() {
    let server = Server::in_memory();
    let gate = Gate::new();
    let id = server.submit(&["-t", "cancel", "--lease", LEASE]);
    let trapped = gate.file("trapped");
    let program = format!("trap 'touch {}; exit 1' TERM; {}", trapped.display(), gate.program("true"));
    let worker = worker(&server, &program, &["--max-jobs", "1"]);
    worker.wait_for_stderr("started");
    let output = server.run(&["jobs", "cancel", &id]).expect(0);
    assert!(output.stdout.contains("next heartbeat"), "{output:?}");
    worker.wait_for_stdout("cancelled");
    assert_eq!(worker.wait().code(), Some(0));
    assert!(trapped.exists(), "it could clean up");
    assert!(gate.is_gone());
    assert_eq!(server.state(&id), "cancelled");
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_the_grace_time() {
    let server = Server::in_memory();
    let gate = Gate::new();
    let id = server.submit(&["-t", "stubborn", "--lease", LEASE]);
    let program = format!("trap '' TERM; {}", gate.program("true"));
    let worker = worker(&server, &program, &["--max-jobs", "1", "--grace", "100ms"]);
    worker.wait_for_stderr("started");
    server.run(&["jobs", "cancel", &id]).expect(0);
    worker.wait_for_stdout("cancelled");
    assert!(gate.is_gone());
    assert_eq!(server.state(&id), "cancelled");
}

#[test]
fn a_lost_lease_kills_the_program() {
    let server = Server::in_memory();
    let gate = Gate::new();
    let id = server.submit(&["-t", "lost", "--lease", LEASE]);
    // SIGKILL reaches the whole process group.
    let program = format!("trap '' TERM; {}", gate.program("true"));
    let worker = worker(&server, &program, &["--max-jobs", "1"]);
    worker.wait_for_stderr("started");
    server.run(&["jobs", "cancel", &id, "--force"]).expect(0);
    worker.wait_for_stdout("lost");
    assert!(gate.is_gone());
    assert_eq!(worker.wait().code(), Some(0));
    assert_eq!(server.state(&id), "cancelled");
}

#[test]
fn an_outage_longer_than_the_lease_kills_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on(directory.path());
    let gate = Gate::new();
    let id = server.submit(&["-t", "alone", "--lease", "1s"]);
    let worker = worker(&server, &gate.program("true"), &["--max-jobs", "1"]);
    worker.wait_for_stderr("started");
    server.signal(Signal::KILL);
    worker.wait_for_stdout("lost");
    assert!(gate.is_gone(), "the lease may have expired");
    assert_eq!(worker.wait().code(), Some(0));
    drop(server);
    let server = Server::on(directory.path());
    server.work_off("true", &[]).expect(0);
    eventually("the second attempt", || {
        server.work_off("true", &[]).expect(0);
        server.state(&id) == "completed"
    });
}

#[test]
fn sigterm_drains() {
    let server = Server::in_memory();
    let gate = Gate::new();
    let id = server.submit(&["-t", "first"]);
    let worker = worker(&server, &gate.program("true"), &[]);
    worker.wait_for_stderr("started");
    worker.signal(Signal::TERM);
    worker.wait_for_stderr("draining");
    let second = server.submit(&["-t", "second"]);
    gate.open();
    assert_eq!(worker.wait().code(), Some(0));
    assert_eq!(server.state(&id), "completed");
    assert_eq!(server.state(&second), "scheduled");
}

#[test]
fn a_second_signal_releases_the_jobs() {
    let server = Server::in_memory();
    let gate = Gate::new();
    let id = server.submit(&["-t", "a"]);
    let worker = worker(&server, &gate.program("true"), &[]);
    worker.wait_for_stderr("started");
    worker.signal(Signal::TERM);
    worker.wait_for_stderr("draining");
    worker.signal(Signal::INT);
    worker.wait_for_stdout("released");
    assert_eq!(worker.wait().code(), Some(0));
    assert!(gate.is_gone());
    let job = server.job(&id);
    assert_eq!((&job["state"], &job["counters"]["starts"]), (&"scheduled".into(), &0.into()));
}

#[test]
fn sigterm_ends_an_idle_worker_at_once() {
    let server = Server::in_memory();
    let worker = worker(&server, "true", &[]);
    worker.wait_for_stderr("claims from default");
    // The claim is waiting at the server.
    eventually("a waiting claim", || {
        let top = server.json(&["top", "--once"]);
        top["workers"][0]["waiting"] == 1
    });
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().code(), Some(0));
}

#[test]
fn concurrency_and_types() {
    let server = Server::in_memory();
    let directory = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..3).map(|_| server.submit(&["-t", "a"])).collect();
    let other = server.submit(&["-t", "b"]);
    let program = format!(
        "cd '{}'; mkfifo $LONGSHORE_JOB_ID; echo started >&2; read line < $LONGSHORE_JOB_ID",
        directory.path().display()
    );
    let worker = worker(&server, &program, &["--concurrency", "3", "--type", "a"]);
    // All three run at the same time.
    for _ in 0..3 {
        worker.wait_for_stderr("started");
    }
    for id in &ids {
        std::fs::write(directory.path().join(id), "go\n").unwrap();
        assert!(worker.wait_for_stdout("completed").contains(id));
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().code(), Some(0));
    assert_eq!(server.state(&other), "scheduled");
}

#[test]
fn a_closed_standard_output_does_not_stop_the_worker() {
    let server = Server::in_memory();
    let lines = "{\"type\":\"t\"}\n".repeat(20);
    server.run_with(&["submit", "--ndjson", "-"], lines.as_bytes()).expect(0);
    let mut command = server.command(&["work", "--until-empty", "--concurrency", "4", "--exec", "true"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(server.json(&["queues", "get", "default"])["counts"]["completed"], 20);
}

#[test]
fn a_refused_claim_ends_the_worker() {
    let server = Server::start(&["--store", "memory:", "--no-auto-queues"]);
    let done = server.run(&["work", "-q", "nowhere", "--exec", "true"]).expect(1);
    assert!(done.stderr.contains("queue_not_found"), "{done:?}");
}

/// A worker that leaves the jobs of a paused queue exits with code 1.
#[test]
fn a_paused_queue_with_jobs_is_not_empty() {
    let server = Server::in_memory();
    let open = server.submit(&["-q", "open", "-t", "a"]);
    let kept = server.submit(&["-q", "shut", "-t", "a"]);
    server.run(&["queues", "pause", "shut"]).expect(0);
    let done = server.work_off("true", &["-q", "shut", "-q", "open"]).expect(1);
    assert!(done.stderr.contains("queue \"shut\" is paused") && done.stderr.contains("queues resume shut"), "{done:?}");
    assert_eq!((server.state(&open).as_str(), server.state(&kept).as_str()), ("completed", "scheduled"));
    // Jobs of other types do not count.
    server.work_off("true", &["-q", "shut", "-t", "b"]).expect(0);
    server.work_off("true", &["-q", "shut", "-t", "b", "-t", "a"]).expect(1);
    server.run(&["queues", "resume", "shut"]).expect(0);
    server.work_off("true", &["-q", "shut"]).expect(0);
    // A paused queue without jobs, or a missing queue, is empty.
    server.run(&["queues", "pause", "shut"]).expect(0);
    server.work_off("true", &["-q", "shut", "-q", "nowhere"]).expect(0);
}
