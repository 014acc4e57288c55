//! Every command in the documents works.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The documented way to run the scenario player. The test runs the binary that cargo built for it:
/// `cargo run` would compile all crates again, with other features.
const SCENARIO_COMMAND: &str = "cargo run --quiet -p longshore-testkit --bin scenario --";

/// Adds the Markdown files below a directory.
fn add_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
}

/// Returns the lines of all fenced blocks marked `sh`. Blocks marked `shell` need a server and are
/// run by the tests of the command line.
fn shown_commands() -> Vec<(String, String)> {
    let root = root();
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("scenarios/README.md")];
    add_pages(&root.join("docs"), &mut files);
    let mut commands = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut fence: Option<&str> = None;
        for line in text.lines() {
            match (line.strip_prefix("```"), fence) {
                (Some(mark), None) => fence = Some(mark),
                (Some(_), Some(_)) => fence = None,
                (None, Some("sh")) if !line.trim().is_empty() => {
                    commands.push((file.display().to_string(), line.trim().to_owned()));
                }
                (None, _) => {}
            }
        }
    }
    commands
}

#[test]
fn documented_commands_work() {
    let commands = shown_commands();
    assert!(commands.len() >= 4, "only {} commands were found", commands.len());
    for (file, command) in commands {
        // Some commands only have to exist: `make test` runs this test, soak tests take hours, and
        // a server does not exit.
        let long = ["make test", "make check", "make soak", "make setup", "make audit", "make update-docs", "make run"];
        let command = if long.iter().any(|long| command.contains(long)) {
            command.replacen("make", "make -n", 1)
        } else {
            command.replace(SCENARIO_COMMAND, env!("CARGO_BIN_EXE_scenario"))
        };
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &command]).current_dir(root());
        let output = shell.output().unwrap();
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: `{command}` failed:\n{output_text}");
    }
}
