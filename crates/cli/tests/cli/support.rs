//! A server, programs, terminals, and waiting for conditions.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use longshore::monotonic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Timeout of all waits, for busy machines.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// The binary, without `LONGSHORE_*` variables of the environment.
pub(crate) fn longshore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGSHORE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandResult {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Standard output as one JSON value per line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The only line of standard output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        self.stdout.trim_end().to_owned()
    }
}

pub(crate) fn run(mut command: Command, input: &[u8]) -> CommandResult {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program may exit before it has read its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    CommandResult {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `longshore` without a server.
pub(crate) fn alone(arguments: &[&str]) -> CommandResult {
    let mut command = longshore();
    command.args(arguments);
    run(command, b"")
}

/// A server that is killed at the end of the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) banner: Value,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn in_memory() -> Self {
        Self::start(&["--store", "memory:"])
    }

    pub(crate) fn on(directory: &Path) -> Self {
        Self::start(&["--data", directory.to_str().unwrap()])
    }

    /// Starts a server on an address that another one has used.
    pub(crate) fn on_address(directory: &Path, address: &str) -> Self {
        let mut command = longshore();
        command.args(["--json", "serve", "--log", "error", "--listen", address, "--data"]).arg(directory);
        Self::spawn(command)
    }

    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = longshore();
        command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "error"]).args(arguments);
        Self::spawn(command)
    }

    /// Starts a command that prints its banner as JSON.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let banner: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} {:?}", child.wait()));
        let url = banner["url"].as_str().unwrap().to_owned();
        Self { child, url, banner, _stdout: stdout }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = longshore();
        command.env("LONGSHORE_SERVER", &self.url).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandResult {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> CommandResult {
        run(self.command(arguments), input)
    }

    /// Runs a command with `--json` and returns its output.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[&["--json"], arguments].concat()).expect(0).json()
    }

    /// Submits a job and returns its id.
    #[track_caller]
    pub(crate) fn submit(&self, arguments: &[&str]) -> String {
        self.run(&[&["submit"], arguments].concat()).expect(0).line()
    }

    #[track_caller]
    pub(crate) fn job(&self, id: &str) -> Value {
        self.json(&["jobs", "get", id])
    }

    #[track_caller]
    pub(crate) fn state(&self, id: &str) -> String {
        self.job(id)["state"].as_str().unwrap().to_owned()
    }

    /// Sends an HTTP request.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-X", method, "-H", "content-type: application/json", "-d", &body.to_string()]);
        curl.arg(format!("{}{path}", self.url));
        run(curl, b"").expect(0).json()
    }

    /// Runs a program for each job until no job is ready.
    pub(crate) fn work_off(&self, program: &str, arguments: &[&str]) -> CommandResult {
        self.run(&[&["work", "--until-empty", "--exec", program], arguments].concat())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Sends SIGTERM and returns the exit status.
    pub(crate) fn stop(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

/// A running program whose output is read line by line.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    let read = move || {
        for line in BufReader::new(source).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().spawn(read).unwrap();
    receiver
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    /// A program that was started with a closed standard output.
    pub(crate) fn adopt(mut child: Child) -> Self {
        let stderr = lines(child.stderr.take().unwrap());
        Self { child, stdout: lines(std::io::empty()), stderr }
    }

    #[track_caller]
    fn until(source: &Receiver<String>, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match source.recv_timeout(TIMEOUT) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{part:?} is not in the output: {seen:?}")
                }
            }
        }
    }

    /// Returns the next line of standard error that contains `part`.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, part: &str) -> String {
        Self::until(&self.stderr, part)
    }

    #[track_caller]
    pub(crate) fn wait_for_stdout(&self, part: &str) -> String {
        Self::until(&self.stdout, part)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Polls a condition.
#[expect(clippy::disallowed_methods, reason = "a busy loop would slow down the processes under test")]
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = monotonic() + TIMEOUT;
    while !holds() {
        assert!(monotonic() < until, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a command on a terminal, by `script`.
pub(crate) fn on_a_terminal(command: &Command, columns: u16) -> CommandResult {
    on_a_terminal_typing(command, columns, b"")
}

pub(crate) fn on_a_terminal_typing(command: &Command, columns: u16, typed: &[u8]) -> CommandResult {
    run(terminal(command, columns), typed)
}

/// Types after the prompt was printed.
pub(crate) fn on_a_terminal_answering(command: &Command, columns: u16, prompt: &str, typed: &[u8]) -> CommandResult {
    let mut script = terminal(command, columns);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut source) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut piece) = (Vec::new(), [0_u8; 1024]);
    let mut answered = false;
    while let Ok(length @ 1..) = source.read(&mut piece) {
        shown.extend_from_slice(&piece[..length]);
        if !answered && String::from_utf8_lossy(&shown).contains(prompt) {
            stdin.write_all(typed).unwrap();
            answered = true;
        }
    }
    let code = child.wait().unwrap().code();
    CommandResult { code, stdout: String::from_utf8(shown).unwrap(), stderr: String::new() }
}

fn terminal(command: &Command, columns: u16) -> Command {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"));
    let words: Vec<String> = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted).collect();
    let mut script = Command::new("script");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let line = format!("stty cols {columns} rows 50; {}", words.join(" "));
    script.args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"]);
    script
}
