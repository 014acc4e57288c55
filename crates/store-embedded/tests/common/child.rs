//! Runs the workload in a child process: this test binary with one hidden test.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use longshore_store::clock::monotonic;

use super::ledger::Ledger;
use super::workload;

const DIRECTORY: &str = "LONGSHORE_LOAD_DIRECTORY";
const CYCLE: &str = "LONGSHORE_LOAD_CYCLE";
/// Batches per submitter before the workload ends. Without it the workload never ends.
pub(crate) const BATCHES: &str = "LONGSHORE_LOAD_BATCHES";
/// Timeout for a child without output.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for the exit of a process whose store is poisoned (P14).
const LINGERING_MAX: Duration = Duration::from_secs(5);

/// The hidden test. Does nothing without its environment variables.
pub(crate) fn main() {
    let (Ok(directory), Ok(cycle)) = (std::env::var(DIRECTORY), std::env::var(CYCLE)) else { return };
    let batches = std::env::var(BATCHES).map_or(u64::MAX, |batches| batches.parse().expect("a number"));
    workload::run(Path::new(&directory), cycle.parse().expect("a number"), batches);
}

/// Sets arguments and environment of the child on a command.
pub(crate) fn command(before: &[String], directory: &Path, cycle: u64) -> Command {
    let own = std::env::current_exe().expect("this program").to_string_lossy().into_owned();
    let mut words = before.iter().cloned().chain([own]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).env(CYCLE, cycle.to_string());
    command
}

/// Removes the workload from the environment, for a child with another purpose.
pub(crate) fn without_load(command: &mut Command) -> &mut Command {
    command.env_remove(DIRECTORY).env_remove(CYCLE)
}

/// A running workload.
pub(crate) struct Load {
    child: Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the child starts");
        let out = child.stdout.take().expect("its output");
        let (sender, lines) = channel();
        let work = move || {
            for line in whole_lines(out) {
                drop(sender.send(line));
            }
        };
        let reader = Builder::new().spawn(work).expect("a thread");
        Self { child, lines, reader: Some(reader) }
    }

    /// Reads output until `after` has passed since the first acknowledgement, then kills the child.
    /// Reads all of its output.
    pub(crate) fn kill(mut self, after: Duration, ledger: &mut Ledger) {
        let mut until = None;
        loop {
            let now = monotonic();
            let timeout = until.map_or(OUTPUT_TIMEOUT, |until: Duration| until.saturating_sub(now));
            match self.lines.recv_timeout(timeout) {
                Ok(line) => {
                    let acknowledges = ["submitted", "claimed"].iter().any(|word| line.starts_with(word));
                    until = until.or(acknowledges.then(|| now + after));
                    ledger.hear(&line);
                }
                Err(_) => break,
            }
            if until.is_some_and(|until| monotonic() >= until) {
                break;
            }
        }
        assert!(until.is_some(), "the child has never answered: {:?}", ledger.errors);
        self.child.kill().expect("it can be killed");
        self.finish(ledger);
    }

    /// Forwards every line up to this one, then kills the child.
    pub(crate) fn kill_at(mut self, last: &str, mut hear: impl FnMut(&str)) {
        loop {
            let line = self.lines.recv_timeout(OUTPUT_TIMEOUT).expect("the child goes on");
            if line == last {
                break;
            }
            hear(&line);
        }
        self.child.kill().expect("it can be killed");
        self.finish(&mut Ledger::default());
    }

    /// Reads the remaining output and waits for the exit.
    pub(crate) fn finish(mut self, ledger: &mut Ledger) -> std::process::ExitStatus {
        let mut poisoned_at = None;
        while let Ok(line) = self.lines.recv_timeout(OUTPUT_TIMEOUT) {
            ledger.hear(&line);
            if ledger.poisoned {
                poisoned_at.get_or_insert_with(monotonic);
            }
        }
        let status = self.child.wait().expect("it ends");
        let lingered = poisoned_at.map_or(Duration::ZERO, |at| monotonic().saturating_sub(at));
        assert!(lingered < LINGERING_MAX, "it has gone on for {lingered:?} with a poisoned store");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader ends");
        }
        status
    }
}

/// Drops an incomplete last line.
fn whole_lines(out: ChildStdout) -> impl Iterator<Item = String> {
    let mut out = BufReader::new(out);
    std::iter::from_fn(move || {
        let mut line = String::new();
        out.read_line(&mut line).ok().filter(|read| *read > 0)?;
        line.strip_suffix('\n').map(str::to_owned)
    })
}
