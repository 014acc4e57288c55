//! The scenario language: short texts that read like the specification and run against any
//! [`TestTarget`].
//!
//! A scenario describes one behaviour, one statement per line; `scenarios/README.md` is the
//! reference. `preprocess` expands tables and loops into plain lines. `syntax` parses every line
//! into a typed [`Step`], so a typing error in the last line is found before the first runs.
//! `runner` runs the steps.
//!
//! One rule is checked implicitly: a refused command changes no job, queue or workflow of its
//! scenario.

mod arguments;
mod comparison;
mod matching;
mod preprocess;
mod runner;
mod steps;
mod syntax;
mod values;
mod workflows;

use crate::target::TestTarget;
use std::fmt;
use std::path::{Path, PathBuf};

pub use runner::Event;
pub use steps::{ScenarioCase, Script, Step};

/// The result of a scenario that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first comment of the file.
    pub title: String,
    /// Requirement ids of the `proves` lines.
    pub proves: Vec<String>,
    /// Conflict and trap ids of the `settles` lines.
    pub settles: Vec<String>,
    /// Paragraphs of api.md (Rulings) or of docs/rulings.md in the `ruling` lines.
    pub rulings: Vec<String>,
    /// How many cases (rows of the table, or one) and statements ran.
    pub stories: usize,
    pub statements: usize,
}

/// Why a scenario failed: an error in its text, or different behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub file: String,
    pub line: usize,
    /// The row of the table, if the file has one.
    pub row: Option<String>,
    pub statement: String,
    /// Boxed to keep the error small.
    pub problem: Box<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The text is not a scenario: an unknown word, a missing value, an unbound name.
    Language(String),
    Mismatch {
        expected: String,
        got: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        match self.problem.as_ref() {
            Problem::Language(what) => write!(f, "{what}")?,
            Problem::Mismatch { .. } => write!(f, "unexpected behaviour")?,
        }
        if let Some(row) = &self.row {
            write!(f, "\n    row:       {row}")?;
        }
        write!(f, "\n    statement: {}", self.statement)?;
        if let Problem::Mismatch { expected, got } = self.problem.as_ref() {
            write!(f, "\n    expected:  {expected}\n    got:       {got}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Parses a scenario without running it.
///
/// # Errors
/// Returns the first line that is not valid.
pub fn parse(text: &str, file_name: &str) -> Result<Script, Failure> {
    let script = syntax::read(text, file_name)?;
    if script.stories.iter().all(|story| story.steps.is_empty()) {
        // A scenario without statements would pass on every target.
        let problem = Box::new(Problem::Language("the file tells nothing: it has no statement".to_owned()));
        return Err(Failure { file: file_name.to_owned(), line: 1, row: None, statement: String::new(), problem });
    }
    Ok(script)
}

/// Runs a scenario on a fresh target.
///
/// # Errors
/// Returns the first statement that is invalid or fails.
pub fn run(text: &str, file_name: &str, subject: &mut dyn TestTarget) -> Result<Report, Failure> {
    run_traced(text, file_name, subject, &mut |_| {})
}

/// Like [`run`], and reports each statement to `sink`.
///
/// # Errors
/// As [`run`].
pub fn run_traced(
    text: &str,
    file_name: &str,
    subject: &mut dyn TestTarget,
    sink: &mut dyn FnMut(&Event<'_>),
) -> Result<Report, Failure> {
    let script = parse(text, file_name)?;
    runner::play(&script, file_name, subject, sink)
}

/// Returns the directory of the scenario files, fixed when this crate is compiled.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Returns all scenario files, sorted by name.
///
/// # Panics
/// Panics if the directory cannot be read.
#[must_use]
pub fn all_files() -> Vec<PathBuf> {
    let directory = directory();
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap_or_else(|e| panic!("{}: {e}", directory.display())).path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}
