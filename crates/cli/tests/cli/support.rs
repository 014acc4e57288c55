//! A server to talk to, programs to run, and waiting without sleeping.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use longshore_store::clock::monotonic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nothing here takes as long, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The binary, without the settings of whoever runs the tests.
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

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Standard output as JSON, in one line.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// One JSON value a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The only line there is.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        self.stdout.trim_end().to_owned()
    }
}

pub(crate) fn run(mut command: Command, input: &[u8]) -> Done {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program that has seen enough closes its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    Done {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `longshore` with these arguments and no server.
pub(crate) fn alone(arguments: &[&str]) -> Done {
    let mut command = longshore();
    command.args(arguments);
    run(command, b"")
}

/// A server, ended with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) announced: Value,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn in_memory() -> Self {
        Self::start(&["--store", "memory:"])
    }

    pub(crate) fn on(directory: &Path) -> Self {
        Self::start(&["--data", directory.to_str().unwrap()])
    }

    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = longshore();
        command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "error"]).args(arguments);
        Self::spawn(command)
    }

    /// A command that announces itself in JSON.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let announced: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} {:?}", child.wait()));
        let url = announced["url"].as_str().unwrap().to_owned();
        Self { child, url, announced, _stdout: stdout }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = longshore();
        command.env("LONGSHORE_SERVER", &self.url).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Done {
        run(self.command(arguments), input)
    }

    /// `--json`, done, and its one value.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[&["--json"], arguments].concat()).expect(0).json()
    }

    /// The id of a job with these flags.
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

    /// What no command of ours does, straight over HTTP.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-X", method, "-H", "content-type: application/json", "-d", &body.to_string()]);
        curl.arg(format!("{}{path}", self.url));
        run(curl, b"").expect(0).json()
    }

    /// Runs one program for each job that there is, and comes back.
    pub(crate) fn work_off(&self, program: &str, arguments: &[&str]) -> Done {
        self.run(&[&["work", "--until-empty", "--exec", program], arguments].concat())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// SIGTERM, and the exit status.
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

/// A program under way whose output is read line by line.
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

    /// One that was started already, with nobody at its standard output.
    pub(crate) fn adopt(mut child: Child) -> Self {
        let stderr = lines(child.stderr.take().unwrap());
        Self { child, stdout: lines(std::io::empty()), stderr }
    }

    #[track_caller]
    fn until(source: &Receiver<String>, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match source.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{part:?} was never said, only {seen:?}")
                }
            }
        }
    }

    /// The next line of standard error that has this in it.
    #[track_caller]
    pub(crate) fn notes(&self, part: &str) -> String {
        Self::until(&self.stderr, part)
    }

    #[track_caller]
    pub(crate) fn says(&self, part: &str) -> String {
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

/// Looks again and again: for what nobody announces.
#[expect(clippy::disallowed_methods, reason = "without a rest it would take the processor from whoever is waited for")]
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = monotonic() + PATIENCE;
    while !holds() {
        assert!(monotonic() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A terminal of its own, by `script`: what a person would see.
pub(crate) fn on_a_terminal(command: &Command, columns: u16) -> Done {
    on_a_terminal_typing(command, columns, b"")
}

pub(crate) fn on_a_terminal_typing(command: &Command, columns: u16, typed: &[u8]) -> Done {
    run(terminal(command, columns), typed)
}

/// Types only after this prompt has been shown.
pub(crate) fn on_a_terminal_answering(command: &Command, columns: u16, prompt: &str, typed: &[u8]) -> Done {
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
    Done { code, stdout: String::from_utf8(shown).unwrap(), stderr: String::new() }
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
