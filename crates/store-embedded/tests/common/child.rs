//! The load in a process of its own: this very program again, told to run one hidden test.

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
/// Batches of each submitter, after which the load ends by itself; without it, it never does.
pub(crate) const BATCHES: &str = "LONGSHORE_LOAD_BATCHES";
/// A child that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process whose store is poisoned is gone by then (P14).
const LINGERING_MAX: Duration = Duration::from_secs(5);

/// The hidden test: does nothing unless a parent has asked for it.
pub(crate) fn main() {
    let (Ok(directory), Ok(cycle)) = (std::env::var(DIRECTORY), std::env::var(CYCLE)) else { return };
    let batches = std::env::var(BATCHES).map_or(u64::MAX, |batches| batches.parse().expect("a number"));
    workload::run(Path::new(&directory), cycle.parse().expect("a number"), batches);
}

/// Arguments and environment of the child, behind a program of your choice.
pub(crate) fn command(before: &[String], directory: &Path, cycle: u64) -> Command {
    let own = std::env::current_exe().expect("this program").to_string_lossy().into_owned();
    let mut words = before.iter().cloned().chain([own]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).env(CYCLE, cycle.to_string());
    command
}

/// Takes the load away again, for a child that does something else.
pub(crate) fn without_load(command: &mut Command) -> &mut Command {
    command.env_remove(DIRECTORY).env_remove(CYCLE)
}

/// A running load.
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

    /// Listens until `after` has passed since the first acknowledgement, then kills. What was said before is all heard.
    pub(crate) fn kill(mut self, after: Duration, ledger: &mut Ledger) {
        let mut until = None;
        loop {
            let now = monotonic();
            let patience = until.map_or(PATIENCE, |until: Duration| until.saturating_sub(now));
            match self.lines.recv_timeout(patience) {
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

    /// Hands on every line up to this one, then kills.
    pub(crate) fn kill_at(mut self, last: &str, mut hear: impl FnMut(&str)) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child goes on");
            if line == last {
                break;
            }
            hear(&line);
        }
        self.child.kill().expect("it can be killed");
        self.finish(&mut Ledger::default());
    }

    /// Hears the rest and waits for the end.
    pub(crate) fn finish(mut self, ledger: &mut Ledger) -> std::process::ExitStatus {
        let mut poisoned_at = None;
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
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

/// A line without its end was not said.
fn whole_lines(out: ChildStdout) -> impl Iterator<Item = String> {
    let mut out = BufReader::new(out);
    std::iter::from_fn(move || {
        let mut line = String::new();
        out.read_line(&mut line).ok().filter(|read| *read > 0)?;
        line.strip_suffix('\n').map(str::to_owned)
    })
}
