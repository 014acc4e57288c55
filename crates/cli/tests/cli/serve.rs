//! `longshore serve`: configuration, banner, log, shutdown, failures.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore::Client;
use longshore_api::job::NewJob;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, Server, alone, eventually, longshore, run};

#[test]
fn the_banner_has_address_store_and_durability() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap(), "--log", "error"]);
    let server = Running::start(command);
    let url = server.wait_for_stdout("listens on");
    assert!(url.contains("http://127.0.0.1:") && !url.ends_with(":0"), "{url}");
    assert!(server.wait_for_stdout("stores in").contains(data.to_str().unwrap()));
    assert!(server.wait_for_stdout("durability").contains("synced to disk"));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let server = Server::in_memory();
    assert_eq!(server.banner["store_kind"], "memory");
    assert!(server.banner["durability"].as_str().unwrap().starts_with("none"));
}

/// Starts a server with a piped standard error and returns its line about the address.
fn listening_line(flags: &[&str]) -> String {
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]).args(flags);
    let server = Running::start(command);
    let line = server.wait_for_stderr("listening");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    line
}

#[test]
fn the_log_is_json_without_a_terminal() {
    for flags in [&[][..], &["--log-format", "auto"], &["--log-format", "json"]] {
        let line: Value = serde_json::from_str(&listening_line(flags)).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"listening".into()), "{line}");
        assert!(line["address"].as_str().unwrap().starts_with("127.0.0.1:") && line["timestamp"].is_string(), "{line}");
    }
    let line = listening_line(&["--log-format", "text"]);
    assert!(line.contains("INFO") && serde_json::from_str::<Value>(&line).is_err(), "{line}");
    let refused = alone(&["serve", "--store", "memory:", "--log-format", "xml"]).expect(1);
    assert!(refused.stderr.contains("--log-format") && refused.stderr.contains("hint: "), "{refused:?}");
}

fn write(directory: &tempfile::TempDir, text: &str) -> String {
    let file = directory.path().join("longshore.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn flags_override_environment_and_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(
        &directory,
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\ndefault_profile = \"weave\"\nauto_queues = false\nlog = \"error\"\n",
    );
    let start = |environment: &[(&str, &str)], flags: &[&str]| {
        let mut command = longshore();
        command.args(["--json", "serve"]).args(flags).envs(environment.iter().copied());
        Server::spawn(command)
    };
    let server = start(&[("LONGSHORE_CONFIG", &file)], &[]);
    assert_eq!((&server.banner["default_profile"], &server.banner["auto_queues"]), (&"weave".into(), &false.into()));
    server.run(&["submit", "-q", "unknown", "-t", "a"]).expect(1);
    let server = start(&[("LONGSHORE_DEFAULT_PROFILE", "ocypod")], &["--config", &file]);
    assert_eq!(server.banner["default_profile"], "ocypod");
    let flags = ["--config", &file, "--default-profile", "taskharbor", "--no-auto-queues=false"];
    let server = start(&[("LONGSHORE_DEFAULT_PROFILE", "ocypod")], &flags);
    assert_eq!(server.banner["default_profile"], "taskharbor");
    server.submit(&["-q", "unknown", "-t", "a"]);
    assert_eq!(server.json(&["queues", "get", "unknown"])["profile"], "taskharbor");
}

#[test]
fn declared_queues_are_applied_at_every_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = write(
        &directory,
        "[queues.reports]\nprofile = \"gopherqueue\"\nsettings = { lease = \"1m\", retry = { limit = 5 } }\n[queues.mail]\n",
    );
    let flags = ["--config", &file, "--data", data.to_str().unwrap()];
    let server = Server::start(&flags);
    assert_eq!(server.banner["declared_queues"], serde_json::json!(["mail", "reports"]));
    let reports = server.json(&["queues", "get", "reports"]);
    assert_eq!((&reports["profile"], &reports["settings"]["lease"]), (&"gopherqueue".into(), &"1m".into()));
    // The file overrides later changes.
    server.run(&["queues", "set", "reports", "--set", "lease=9m"]).expect(0);
    assert!(server.stop().success());
    let server = Server::start(&flags);
    assert_eq!(server.json(&["queues", "get", "reports"])["settings"]["lease"], "1m");
}

#[test]
fn invalid_configuration_is_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        let done =
            alone(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--config", &write(&directory, text)]);
        done.expect(1).stderr
    };
    let stderr = refused("lisen = \"x\"");
    assert!(stderr.contains("unknown field `lisen`") && stderr.contains("did you mean \"listen\"?"), "{stderr}");
    let stderr = refused("[queues.a]\nsettings = { lease = \"soon\" }");
    assert!(stderr.contains("queues.a.settings.lease"), "{stderr}");
    let stderr = refused("[queues.a]\nprofile = \"document\"\nsettings = { fencing = \"optional\" }");
    assert!(stderr.contains("queues.a") && stderr.contains("fencing"), "{stderr}");
    let stderr = refused("[queues.\"no spaces\"]");
    assert!(stderr.contains("no spaces"), "{stderr}");
    assert!(refused("listen = ").contains("TOML"));
    let stderr = alone(&["serve", "--store", "postgres://user:secret@127.0.0.1:1/db"]).expect(2).stderr;
    assert!(stderr.contains("PostgreSQL") && stderr.contains("refused") && !stderr.contains("secret"), "{stderr}");
    let stderr = alone(&["serve", "--config", "/does/not/exist"]).expect(2).stderr;
    assert!(stderr.contains("/does/not/exist"), "{stderr}");
    alone(&["serve", "--data", "a", "--store", "b"]).expect(2);
    alone(&["serve", "--default-profile", "best"]).expect(1);
}

#[test]
fn a_directory_and_an_address_have_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on(directory.path());
    let stderr =
        alone(&["serve", "--listen", "127.0.0.1:0", "--data", directory.path().to_str().unwrap()]).expect(2).stderr;
    assert!(stderr.contains("in use") && stderr.contains("hint: "), "{stderr}");
    let address = server.url.strip_prefix("http://").unwrap();
    let stderr = alone(&["serve", "--store", "memory:", "--listen", address]).expect(2).stderr;
    assert!(stderr.contains(address) && stderr.contains("--listen"), "{stderr}");
}

#[test]
fn a_store_keeps_its_kind_of_time() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(&["--data", data, "--virtual-clock"]);
    assert_eq!(server.banner["virtual_clock"], true);
    assert!(server.stop().success());
    let stderr = alone(&["serve", "--listen", "127.0.0.1:0", "--data", data]).expect(2).stderr;
    assert!(stderr.contains("--virtual-clock"), "{stderr}");
}

/// Submits until the server has exited. Returns the acknowledged ids.
async fn submit_until_exit(client: Client, ended: Arc<AtomicBool>) -> Vec<String> {
    let job = NewJob { job_type: "load".to_owned(), ..NewJob::default() };
    let mut stored = Vec::new();
    while !ended.load(Ordering::SeqCst) {
        match client.submit_job("load", &job).await {
            Ok(submitted) => stored.push(submitted.id),
            Err(_) => tokio::task::yield_now().await,
        }
    }
    stored
}

#[test]
fn sigterm_under_load_drains_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on(directory.path());
    let client = Client::new(&server.url).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let tasks: Vec<_> = (0..16).map(|_| runtime.spawn(submit_until_exit(client.clone(), Arc::clone(&ended)))).collect();
    // A waiting claim must not delay the shutdown.
    let waiting = Running::start(server.command(&["work", "-q", "nothing", "--exec", "true"]));
    waiting.wait_for_stderr("claims from nothing");
    eventually("some load", || {
        let queue = server.run(&["--json", "queues", "get", "load"]);
        queue.code == Some(0) && queue.json()["counts"]["scheduled"].as_u64().unwrap() > 200
    });
    let status = server.stop();
    assert_eq!(status.code(), Some(0));
    ended.store(true, Ordering::SeqCst);
    let stored: Vec<String> = tasks.into_iter().flat_map(|task| runtime.block_on(task).unwrap()).collect();
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.wait().code(), Some(0));
    assert!(stored.len() > 200);
    let server = Server::on(directory.path());
    let client = Client::new(&server.url).unwrap();
    for id in &stored {
        runtime.block_on(client.job(id)).unwrap_or_else(|error| panic!("{id}: {error}"));
    }
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let server = Server::in_memory();
    // A request that is never complete.
    let address = server.url.strip_prefix("http://").unwrap();
    let mut half = std::net::TcpStream::connect(address).unwrap();
    let head =
        "POST /v1/queues/a/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    std::io::Write::write_all(&mut half, head.as_bytes()).unwrap();
    // The server has read it when it responds to a later request on another connection.
    server.run(&["queues", "list"]).expect(0);
    server.signal(Signal::INT);
    server.signal(Signal::TERM);
    let status = server.wait();
    assert!(matches!(status.code(), Some(0 | 2)), "{status:?}: at once, or without requests in flight");
}

/// A permanent I/O error ends the process: no response may acknowledge a lost change.
#[test]
fn a_poisoned_store_ends_the_server_with_exit_code_2() {
    let mut try_strace = Command::new("strace");
    try_strace.args(["-o", "/dev/null", "true"]);
    if !try_strace.status().is_ok_and(|status| status.success()) {
        println!("skipped: strace is missing or not permitted");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // The creation of the tables must succeed.
    assert!(Server::on(directory.path()).stop().success());
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]);
    command.args(["-e", "inject=fsync,fdatasync:error=EIO:when=12+"]);
    command.arg(env!("CARGO_BIN_EXE_longshore"));
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "off", "--data"]).arg(directory.path());
    let server = Server::spawn(command);
    let mut stored = Vec::new();
    let refused = loop {
        let done = server.run(&["submit", "-t", "a"]);
        match done.code {
            Some(0) => stored.push(done.line()),
            _ => break done,
        }
        assert!(stored.len() < 1_000, "the disk never failed");
    };
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(server.wait().code(), Some(2));
    let server = Server::on(directory.path());
    for id in &stored {
        assert_eq!(server.state(id), "scheduled");
    }
}

#[test]
fn a_closed_standard_output_does_not_stop_the_server() {
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--log", "error"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let server = Running::adopt(child);
    server.signal(Signal::TERM);
    let status = server.wait();
    // A signal before the handlers are installed kills the process.
    assert!(status.code() == Some(0) || status.code().is_none(), "{status:?}");
    let done = run(longshore(), b"");
    done.expect(2);
}

/// A small file system that is unmounted at the end. `None` if mounting is not permitted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs", at.path().to_str().unwrap()]);
        (run(mount, b"").code == Some(0)).then_some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

/// Status and body of a GET request.
fn get(server: &Server, path: &str) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-w", "\n%{http_code}", &format!("{}{path}", server.url)]);
    let answer = run(curl, b"").expect(0).stdout;
    let (body, status) = answer.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn a_full_disk_is_reported_and_recovers() {
    let Some(disk) = SmallDisk::mount("80m") else {
        println!("skipped: mounting is not permitted");
        return;
    };
    let (data, log) = (disk.0.path().join("data"), tempfile::NamedTempFile::new().unwrap());
    let mut command = longshore();
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "info", "--data", data.to_str().unwrap()]);
    command.stderr(log.reopen().unwrap());
    let server = Server::spawn(command);
    let logged = |part: &str| std::fs::read_to_string(log.path()).unwrap().matches(part).count();
    assert_eq!(get(&server, "/readyz").0, "200");
    // Leaves room for the reserve of 64 MiB and for the first jobs.
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 12 << 20]).unwrap();
    let job = json!({"type": "t", "payload": "x".repeat(100_000)});
    let refused =
        (0..1_000).map(|_| server.call("POST", "/v1/queues/q/jobs", &job)).find(|answer| answer["code"] != Value::Null);
    let refused = refused.unwrap();
    assert_eq!((&refused["code"], &refused["retry"]), (&"store_unavailable".into(), &"safe".into()), "{refused}");
    let (status, problem) = get(&server, "/readyz");
    assert!(status == "503" && problem.contains("no space left on the disk"), "{status} {problem}");
    assert!(get(&server, "/metrics").1.lines().any(|line| line == "longshore_store_writable 0"));
    let info: Value = serde_json::from_str(&get(&server, "/v1/info").1).unwrap();
    assert_eq!((&info["store"]["writable"], &info["store"]["reserve_bytes"]), (&false.into(), &0.into()), "{info}");
    assert_eq!((logged("disk full"), logged("disk has space again")), (1, 0));
    // Claims continue, and free space is noticed without a submission.
    assert!(server.call("POST", "/v1/claims", &json!({"queues": ["q"], "worker": "w"}))["jobs"][0].is_object());
    std::fs::remove_file(&ballast).unwrap();
    eventually("the server is ready again", || get(&server, "/readyz").0 == "200");
    assert!(get(&server, "/metrics").1.lines().any(|line| line == "longshore_store_writable 1"));
    assert_eq!((logged("disk full"), logged("disk has space again")), (1, 1));
    assert_eq!(server.call("POST", "/v1/queues/q/jobs", &json!({"type": "t"}))["state"], "scheduled");
    assert!(server.stop().success());
}
