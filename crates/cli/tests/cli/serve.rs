//! `longshore serve`: configuration, what it says, how it ends.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_api::job::NewJob;
use longshore_client::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, Server, alone, eventually, longshore, run};

#[test]
fn it_says_where_it_listens_what_it_stores_and_what_it_promises() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap(), "--log", "error"]);
    let server = Running::start(command);
    let url = server.says("listens on");
    assert!(url.contains("http://127.0.0.1:") && !url.ends_with(":0"), "{url}");
    assert!(server.says("stores in").contains(data.to_str().unwrap()));
    assert!(server.says("promises").contains("on disk, synced"));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let server = Server::in_memory();
    assert_eq!(server.announced["store_kind"], "memory");
    assert!(server.announced["durability"].as_str().unwrap().starts_with("none"));
}

fn write(directory: &tempfile::TempDir, text: &str) -> String {
    let file = directory.path().join("longshore.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn flags_win_over_environment_over_file() {
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
    assert_eq!(
        (&server.announced["default_profile"], &server.announced["auto_queues"]),
        (&"weave".into(), &false.into())
    );
    server.run(&["submit", "-q", "unknown", "-t", "a"]).expect(1);
    let server = start(&[("LONGSHORE_DEFAULT_PROFILE", "ocypod")], &["--config", &file]);
    assert_eq!(server.announced["default_profile"], "ocypod");
    let flags = ["--config", &file, "--default-profile", "taskharbor", "--no-auto-queues=false"];
    let server = start(&[("LONGSHORE_DEFAULT_PROFILE", "ocypod")], &flags);
    assert_eq!(server.announced["default_profile"], "taskharbor");
    server.submit(&["-q", "unknown", "-t", "a"]);
    assert_eq!(server.json(&["queues", "get", "unknown"])["profile"], "taskharbor");
}

#[test]
fn declared_queues_are_there_from_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = write(
        &directory,
        "[queues.reports]\nprofile = \"gopherqueue\"\nsettings = { lease = \"1m\", retry = { limit = 5 } }\n[queues.mail]\n",
    );
    let flags = ["--config", &file, "--data", data.to_str().unwrap()];
    let server = Server::start(&flags);
    assert_eq!(server.announced["declared_queues"], serde_json::json!(["mail", "reports"]));
    let reports = server.json(&["queues", "get", "reports"]);
    assert_eq!((&reports["profile"], &reports["settings"]["lease"]), (&"gopherqueue".into(), &"1m".into()));
    // What was changed since is put back: the file says how it is.
    server.run(&["queues", "set", "reports", "--set", "lease=9m"]).expect(0);
    assert!(server.stop().success());
    let server = Server::start(&flags);
    assert_eq!(server.json(&["queues", "get", "reports"])["settings"]["lease"], "1m");
}

#[test]
fn what_cannot_be_is_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        let done =
            alone(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--config", &write(&directory, text)]);
        done.expect(1).stderr
    };
    let told = refused("lisen = \"x\"");
    assert!(told.contains("unknown field `lisen`") && told.contains("did you mean \"listen\"?"), "{told}");
    let told = refused("[queues.a]\nsettings = { lease = \"soon\" }");
    assert!(told.contains("queues.a.settings.lease"), "{told}");
    let told = refused("[queues.a]\nprofile = \"document\"\nsettings = { fencing = \"optional\" }");
    assert!(told.contains("queues.a") && told.contains("fencing"), "{told}");
    let told = refused("[queues.\"no spaces\"]");
    assert!(told.contains("no spaces"), "{told}");
    assert!(refused("listen = ").contains("TOML"));
    let told = alone(&["serve", "--store", "postgres://user:secret@127.0.0.1:1/db"]).expect(2).stderr;
    assert!(told.contains("PostgreSQL") && told.contains("refused") && !told.contains("secret"), "{told}");
    let told = alone(&["serve", "--config", "/does/not/exist"]).expect(2).stderr;
    assert!(told.contains("/does/not/exist"), "{told}");
    alone(&["serve", "--data", "a", "--store", "b"]).expect(2);
    alone(&["serve", "--default-profile", "best"]).expect(1);
}

#[test]
fn one_server_for_a_directory_and_one_for_an_address() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on(directory.path());
    let told =
        alone(&["serve", "--listen", "127.0.0.1:0", "--data", directory.path().to_str().unwrap()]).expect(2).stderr;
    assert!(told.contains("in use") && told.contains("hint: "), "{told}");
    let address = server.url.strip_prefix("http://").unwrap();
    let told = alone(&["serve", "--store", "memory:", "--listen", address]).expect(2).stderr;
    assert!(told.contains(address) && told.contains("--listen"), "{told}");
}

#[test]
fn virtual_time_is_a_choice_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(&["--data", data, "--virtual-clock"]);
    assert_eq!(server.announced["virtual_clock"], true);
    assert!(server.stop().success());
    let told = alone(&["serve", "--listen", "127.0.0.1:0", "--data", data]).expect(2).stderr;
    assert!(told.contains("--virtual-clock"), "{told}");
}

/// Submits until the server is gone; whatever was answered must be there afterwards.
async fn submit_until_it_ends(client: Client, ended: Arc<AtomicBool>) -> Vec<String> {
    let job = NewJob { job_type: "load".to_owned(), ..NewJob::default() };
    let mut stored = Vec::new();
    while !ended.load(Ordering::SeqCst) {
        match client.submit("load", &job).await {
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
    let tasks: Vec<_> =
        (0..16).map(|_| runtime.spawn(submit_until_it_ends(client.clone(), Arc::clone(&ended)))).collect();
    // A claim that waits must not hold it up.
    let waiting = Running::start(server.command(&["work", "-q", "nothing", "--exec", "true"]));
    waiting.notes("serves nothing");
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
fn told_twice_it_ends_at_once() {
    let server = Server::in_memory();
    // A request that never comes to its end.
    let address = server.url.strip_prefix("http://").unwrap();
    let mut half = std::net::TcpStream::connect(address).unwrap();
    let head =
        "POST /v1/queues/a/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    std::io::Write::write_all(&mut half, head.as_bytes()).unwrap();
    // It was read when a later one on another connection is answered.
    server.run(&["queues", "list"]).expect(0);
    server.signal(Signal::INT);
    server.signal(Signal::TERM);
    let status = server.wait();
    assert!(matches!(status.code(), Some(0 | 2)), "{status:?}: at once, or it had nothing to wait for");
}

/// A store whose disk fails for good ends the process: no answer may claim what is not there.
#[test]
fn a_poisoned_store_ends_the_server_with_a_code() {
    let mut try_strace = Command::new("strace");
    try_strace.args(["-o", "/dev/null", "true"]);
    if !try_strace.status().is_ok_and(|status| status.success()) {
        println!("not played: strace is missing, or not allowed here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Making the tables has syncs of its own; those are to succeed.
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
fn nobody_has_to_read_what_it_says() {
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--log", "error"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let server = Running::adopt(child);
    server.signal(Signal::TERM);
    let status = server.wait();
    // Told before it listened for signals, the signal itself ends it.
    assert!(status.code() == Some(0) || status.code().is_none(), "{status:?}");
    let done = run(longshore(), b"");
    done.expect(2);
}

/// A small disk of its own, gone at the end. `None`: mounting is not allowed here.
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

/// The status of a GET, and what it answers.
fn get(server: &Server, path: &str) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-w", "\n%{http_code}", &format!("{}{path}", server.url)]);
    let answer = run(curl, b"").expect(0).stdout;
    let (body, status) = answer.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn a_full_disk_is_seen_from_outside() {
    let Some(disk) = SmallDisk::mount("80m") else {
        println!("not played: mounting is not allowed here");
        return;
    };
    let (data, log) = (disk.0.path().join("data"), tempfile::NamedTempFile::new().unwrap());
    let mut command = longshore();
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "info", "--data", data.to_str().unwrap()]);
    command.stderr(log.reopen().unwrap());
    let server = Server::spawn(command);
    let logged = |part: &str| std::fs::read_to_string(log.path()).unwrap().matches(part).count();
    assert_eq!(get(&server, "/readyz").0, "200");
    // As much as there is besides the reserve of 64 MiB, less what the first jobs need.
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 12 << 20]).unwrap();
    let job = json!({"type": "t", "payload": "x".repeat(100_000)});
    let refused =
        (0..1_000).map(|_| server.call("POST", "/v1/queues/q/jobs", &job)).find(|answer| answer["code"] != Value::Null);
    let refused = refused.unwrap();
    assert_eq!((&refused["code"], &refused["retry"]), (&"store_unavailable".into(), &"safe".into()), "{refused}");
    let (status, problem) = get(&server, "/readyz");
    assert!(status == "503" && problem.contains("no space is left on the disk"), "{status} {problem}");
    assert!(get(&server, "/metrics").1.lines().any(|line| line == "longshore_store_writable 0"));
    let info: Value = serde_json::from_str(&get(&server, "/v1/info").1).unwrap();
    assert_eq!((&info["store"]["writable"], &info["store"]["reserve_bytes"]), (&false.into(), &0.into()), "{info}");
    assert_eq!((logged("the disk is full"), logged("the disk has room again")), (1, 0));
    // Work that is there goes on, and room is noticed although no new work comes.
    assert!(server.call("POST", "/v1/claims", &json!({"queues": ["q"], "worker": "w"}))["jobs"][0].is_object());
    std::fs::remove_file(&ballast).unwrap();
    eventually("it is ready again", || get(&server, "/readyz").0 == "200");
    assert!(get(&server, "/metrics").1.lines().any(|line| line == "longshore_store_writable 1"));
    assert_eq!((logged("the disk is full"), logged("the disk has room again")), (1, 1));
    assert_eq!(server.call("POST", "/v1/queues/q/jobs", &json!({"type": "t"}))["state"], "scheduled");
    assert!(server.stop().success());
}
