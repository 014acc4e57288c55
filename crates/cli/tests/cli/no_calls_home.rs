//! The server opens no connection that was not configured, from start to stop.

use std::path::Path;
use std::process::Command;

use longshore_testkit::postgres::{new_schema, shared_url};

use crate::support::{Server, eventually};

/// Variables that make other programs connect elsewhere.
const TEMPTATIONS: [&str; 6] =
    ["http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "SENTRY_DSN"];

const CALLS: &str = "trace=connect,sendto,sendmsg,sendmmsg";

fn has_strace() -> bool {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "true"]);
    let allowed = strace.status().is_ok_and(|status| status.success());
    if !allowed {
        println!("skipped: strace is missing or not permitted");
    }
    allowed
}

/// Starts a server whose system calls of sockets are recorded.
fn start(log: &Path, store: &[&str]) -> Server {
    let mut command = Command::new("strace");
    // With -D the server is our child, and strace is not: signals reach the server.
    command.args(["-D", "-f", "-q", "-e", CALLS, "-o"]).arg(log);
    command.arg(env!("CARGO_BIN_EXE_longshore"));
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "off"]).args(store);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGSHORE_") || name == "NOTIFY_SOCKET" {
            command.env_remove(name);
        }
    }
    command.envs(TEMPTATIONS.map(|name| (name, "http://127.0.0.1:9")));
    Server::spawn(command)
}

/// Submits, fails, retries and completes jobs, reads every kind of page, and stops the server.
fn use_and_stop(server: Server, log: &Path) {
    for _ in 0..3 {
        server.submit(&["-q", "mail", "-t", "a", "--retry-limit", "1"]);
    }
    server.work_off("true", &["--queue", "mail", "--max-jobs", "2"]).expect(0);
    server.work_off("exit 1", &["--queue", "mail"]);
    for page in ["/v1/info", "/v1/stats", "/v1/workers", "/readyz"] {
        server.call("GET", page, &serde_json::Value::Null);
    }
    // The trace pads process ids.
    let process = format!("{:<5} +++ exited with 0 +++", server.id());
    assert_eq!(server.stop().code(), Some(0));
    eventually("the trace is complete", || std::fs::read_to_string(log).unwrap().contains(&process));
}

/// Lines with an address to send to or to connect to.
fn outbound(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let has_address = |line: &&str| line.contains("sa_family=") || line.contains("connect(");
    text.lines().filter(has_address).map(str::to_owned).collect()
}

/// Shows that the trace would show a connection.
#[test]
fn a_connection_is_recorded() {
    if !has_strace() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-q", "-e", CALLS, "-o"]).arg(&log);
    command.arg(env!("CARGO_BIN_EXE_longshore")).args(["health", "--server", "http://127.0.0.1:9"]);
    assert_eq!(command.stderr(std::process::Stdio::null()).status().unwrap().code(), Some(1));
    assert!(outbound(&log).iter().any(|call| call.contains("htons(9)")), "{:?}", outbound(&log));
}

#[test]
fn the_embedded_store_connects_to_nothing() {
    if !has_strace() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (log, data) = (directory.path().join("calls"), directory.path().join("data"));
    use_and_stop(start(&log, &["--data", data.to_str().unwrap()]), &log);
    assert_eq!(outbound(&log), [""; 0]);
}

#[test]
fn a_server_on_postgresql_connects_to_the_database_only() {
    if !has_strace() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("calls");
    let url = shared_url();
    let (_, rest) = url.rsplit_once(':').unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    use_and_stop(start(&log, &["--store", &format!("{url}?schema={}", new_schema())]), &log);
    let calls = outbound(&log);
    let configured = format!("sin_port=htons({port}), sin_addr=inet_addr(\"127.0.0.1\")");
    let foreign: Vec<_> = calls.iter().filter(|call| !call.contains(&configured)).collect();
    assert!(!calls.is_empty() && foreign.is_empty(), "{foreign:?}");
}
