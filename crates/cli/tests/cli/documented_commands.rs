//! Runs the commands of README.md and docs/.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Server, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All blocks marked `shell` of one page, as one session.
fn session(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    let (mut session, mut fence) = (String::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (None, Some("shell")) => session = session + line + "\n",
            (None, _) => {}
        }
    }
    session
}

#[test]
fn documented_sessions_succeed() {
    let root = root();
    let guides = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = guides.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut sessions = 0;
    for page in pages.chain([root.join("README.md")]) {
        let session = session(&page);
        if session.is_empty() {
            continue;
        }
        let server = Server::in_memory();
        let address = server.url.trim_start_matches("http://").to_owned();
        let scratch = tempfile::tempdir().unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_longshore")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        // The pages name another directory of the program.
        let programs = programs.display().to_string();
        let session = session.replace("127.0.0.1:7070", &address);
        let script = session.replace("$PWD/target/quick", &programs).replace("$PWD/target/debug", &programs);
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &script]).current_dir(scratch.path());
        shell.env("PATH", path).env("LONGSHORE_SERVER", &server.url);
        let done = run(shell, b"");
        assert_eq!(done.code, Some(0), "{}:\n{}\n{}", page.display(), done.stdout, done.stderr);
        assert!(!done.stdout.contains("problem+json") && !done.stdout.contains("\"status\":4"), "{}", done.stdout);
        sessions += 1;
    }
    assert!(sessions > 0);
}
