//! Runs the workload under `strace`, which kills the process or fails a call at a given system
//! call.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// System calls that change, create or delete files.
pub(crate) const CALLS: [&str; 6] = ["pwrite64", "fdatasync", "fsync", "ftruncate", "openat", "unlink"];
/// SQLite uses one of the two, depending on its build.
pub(crate) const SYNC: &str = "fsync,fdatasync";
const FILES: [&str; 4] = ["longshore.db", "longshore.db-wal", "longshore.db-shm", "longshore.db-journal"];

pub(crate) fn run(words: &[&str]) -> bool {
    let (program, arguments) = words.split_first().expect("a program");
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns whether `strace` works here. Prints a line otherwise.
pub(crate) fn allowed() -> bool {
    let allowed = run(&["strace", "-f", "-o", "/dev/null", "true"]);
    if !allowed {
        println!("not played: strace is missing, or not allowed here");
    }
    allowed
}

/// One system call on one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    pub(crate) call: &'static str,
    pub(crate) file: &'static str,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.call, self.file)
    }
}

/// Command prefix that records the calls on the store's files.
pub(crate) fn watching(home: &Path, log: &Path) -> Vec<String> {
    words(home, log, &FILES)
}

/// Command prefix that injects a fault at a site, for example `signal=KILL:when=7`.
pub(crate) fn injecting(home: &Path, site: Site, what: &str) -> Vec<String> {
    injecting_into(home, &[site.file], site.call, what)
}

/// The same for several files.
pub(crate) fn injecting_into(home: &Path, files: &[&str], call: &str, what: &str) -> Vec<String> {
    let mut words = words(home, Path::new("/dev/null"), files);
    words.extend(["-e".to_owned(), format!("inject={call}:{what}")]);
    words
}

/// Without `--seccomp-bpf`, which loses injected signals.
fn words(home: &Path, log: &Path, files: &[&str]) -> Vec<String> {
    let calls = format!("trace={}", CALLS.join(","));
    let log = log.to_str().expect("a path");
    let words = ["strace", "-f", "-qq", "-y", "-o", log, "-e", &calls].map(str::to_owned);
    let paths = files.iter().map(|file| home.join(file).to_str().expect("a path").to_owned());
    words.into_iter().chain(paths.flat_map(|path| ["-P".to_owned(), path])).collect()
}

/// Counts the calls at each site by the thread that made most of them, because `strace` counts by
/// thread.
pub(crate) fn most_by_one_thread(log: &Path) -> BTreeMap<Site, u64> {
    let text = std::fs::read_to_string(log).expect("a log");
    let mut counts = BTreeMap::<(Site, &str), u64>::new();
    for (thread, site) in text.lines().filter_map(thread_and_site) {
        *counts.entry((site, thread)).or_default() += 1;
    }
    let mut most = BTreeMap::new();
    for ((site, _), count) in counts {
        let entry = most.entry(site).or_insert(0);
        *entry = count.max(*entry);
    }
    most
}

/// `1234 fsync(5</tmp/x/longshore.db-wal>) = 0`
fn thread_and_site(line: &str) -> Option<(&str, Site)> {
    let (thread, rest) = line.split_once(' ')?;
    let call = CALLS.into_iter().find(|call| rest.trim_start().starts_with(&format!("{call}(")))?;
    let names = |file: &&str| rest.contains(&format!("/{file}>")) || rest.contains(&format!("/{file}\""));
    Some((thread, Site { call, file: FILES.into_iter().find(names)? }))
}
