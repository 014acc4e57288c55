//! What a service manager receives from `longshore serve`: READY, WATCHDOG and STOPPING.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Server, TIMEOUT, longshore};

const WATCHDOG_INTERVAL: Duration = Duration::from_millis(300);

/// The socket of a service manager.
struct Manager {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        Self { directory, socket }
    }

    fn supervise(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.directory.path().join("notify"));
        command.env("WATCHDOG_USEC", WATCHDOG_INTERVAL.as_micros().to_string());
    }

    /// Returns the next message, or `None` if none arrives within `wait`.
    fn next(&self, wait: Duration) -> Option<String> {
        let mut message = [0; 4096];
        self.socket.set_read_timeout(Some(wait)).unwrap();
        match self.socket.recv(&mut message) {
            Ok(length) => Some(String::from_utf8(message[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn wait_for(&self, line: &str) -> String {
        loop {
            let message = self.next(TIMEOUT).unwrap_or_else(|| panic!("no {line}"));
            if message.lines().any(|found| found == line) {
                return message;
            }
        }
    }
}

#[test]
fn start_liveness_and_stop_are_reported() {
    let manager = Manager::start();
    let data = tempfile::tempdir().unwrap();
    let mut command = longshore();
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "error", "--data"]).arg(data.path());
    manager.supervise(&mut command);
    let server = Server::spawn(command);
    let first = manager.next(TIMEOUT).unwrap();
    let address = server.url.strip_prefix("http://").unwrap();
    assert!(first.starts_with("READY=1\n") && first.contains(address), "{first}");
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    server.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_server_that_cannot_start_is_never_ready() {
    let manager = Manager::start();
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", "/dev/null/no", "--log", "off"]);
    manager.supervise(&mut command);
    assert_eq!(command.stderr(Stdio::null()).status().unwrap().code(), Some(2));
    assert_eq!(manager.next(Duration::from_millis(1)), None);
}

/// The watchdog of another process is not ours.
#[test]
fn a_watchdog_of_another_process_gets_no_pings() {
    let manager = Manager::start();
    let mut command = longshore();
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "error", "--store", "memory:"]);
    manager.supervise(&mut command);
    command.env("WATCHDOG_PID", "1");
    let server = Server::spawn(command);
    manager.wait_for("READY=1");
    assert_eq!(manager.next(3 * WATCHDOG_INTERVAL), None);
    assert!(server.stop().success());
}

/// A sync that never returns stops the writer. The process still answers, and must be restarted.
#[test]
fn a_writer_that_hangs_gets_no_pings() {
    let mut try_strace = Command::new("strace");
    try_strace.args(["-o", "/dev/null", "true"]);
    if !try_strace.status().is_ok_and(|status| status.success()) {
        println!("skipped: strace is missing or not permitted");
        return;
    }
    let data = tempfile::tempdir().unwrap();
    assert!(Server::on(data.path()).stop().success());
    let manager = Manager::start();
    let mut command = Command::new("strace");
    // With -D the server is our child, and strace is not: the test can kill it.
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]);
    command.args(["-e", "inject=fsync,fdatasync:delay_enter=1000000000:when=12+"]);
    command.arg(env!("CARGO_BIN_EXE_longshore"));
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "off", "--data"]).arg(data.path());
    manager.supervise(&mut command);
    let server = Server::spawn(command);
    manager.wait_for("WATCHDOG=1");
    let submit = || -> Child {
        let mut submit = server.command(&["submit", "-t", "a"]);
        submit.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // One client per ping: clients at the same time would share one sync.
    let mut clients: Vec<Child> = vec![submit()];
    while manager.next(10 * WATCHDOG_INTERVAL).is_some() {
        clients.push(submit());
        assert!(clients.len() < 200, "the writer never hung");
    }
    // The thread of the connections is not the one that hangs.
    assert!(server.call("GET", "/livez", &serde_json::Value::Null).is_object());
    // Without its tracer the writer continues, and so do the pings.
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(tracer).unwrap(), Signal::KILL).unwrap();
    manager.wait_for("WATCHDOG=1");
    for client in &mut clients {
        assert!(client.wait().unwrap().success());
    }
    assert!(server.stop().success());
}
