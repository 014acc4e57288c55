//! Developer tasks of this repository, run as `cargo xtask TASK`.
//!
//! - `tidy.rs`: runs all checks on a tree and prints the findings
//! - `checks/`: one file per check
//! - `lexer.rs`: splits Rust and SQL into comments, strings, names and punctuation
//! - `tree.rs`: the files of a tree
//! - `config.rs`: the lists of `xtask/*.txt`

mod checks;
mod config;
mod lexer;
mod tidy;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy [--root DIR] [--summary] [PATH...]

Checks the rules of CONTRIBUTING.md that clippy and rustfmt cannot check.

  --root DIR  check this tree instead of the current repository
  --summary   print counts per check, per banned word and per file instead of the findings
  PATH        report only findings below these paths, relative to the root

Exit code: 0 without findings, 1 with findings, 2 if the checks could not run.";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether the tree has no findings.
fn run(mut arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    match arguments.next().as_deref() {
        Some("tidy") => {}
        Some("--help" | "-h" | "help") => {
            println!("{USAGE}");
            return Ok(true);
        }
        Some(other) => return Err(format!("unknown task {other:?}\n\n{USAGE}")),
        None => return Err(USAGE.to_owned()),
    }
    let mut root = None;
    let mut report = tidy::Report::List;
    let mut paths = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--root" => root = Some(PathBuf::from(arguments.next().ok_or("--root needs a directory")?)),
            "--summary" => report = tidy::Report::Summary,
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}\n\n{USAGE}")),
            path => paths.push(path.trim_start_matches("./").to_owned()),
        }
    }
    let root = match root {
        Some(root) => root,
        None => repository()?,
    };
    tidy::run(&root, report, &paths)
}

/// The nearest directory above the current one that has an `xtask` directory.
fn repository() -> Result<PathBuf, String> {
    let current = std::env::current_dir().map_err(|error| format!("no current directory: {error}"))?;
    let found = current.ancestors().find(|directory| directory.join("xtask/Cargo.toml").is_file());
    found.map(PathBuf::from).ok_or_else(|| "not inside the repository (use --root DIR)".to_owned())
}
