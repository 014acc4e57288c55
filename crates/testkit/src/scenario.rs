//! The scenario language: short texts that read like the specification and run against any [`Subject`].
//!
//! A scenario is one behaviour told as a story, a statement a line; `scenarios/README.md` describes every word. The way
//! from text to verdict has three steps: `words` unfolds tables and loops into plain lines, `syntax` reads each line into a
//! typed [`Step`] (so a typing error in the last line is found before the first is run), and `runner` plays the steps.
//!
//! One rule is checked without being written: a command that is refused changes no job, no queue and no workflow of its story.

mod arguments;
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

/// What a scenario that passed has to say about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first comment of the file.
    pub title: String,
    /// Requirement ids of the `proves` lines.
    pub proves: Vec<String>,
    /// Conflict and trap ids of the `settles` lines.
    pub settles: Vec<String>,
    /// Paragraphs of api.md (Rulings) or of docs/rulings.md that the `ruling` lines name.
    pub rulings: Vec<String>,
    /// How many stories (rows of the table, or one) and statements were played.
    pub stories: usize,
    pub statements: usize,
}

/// Why a scenario failed: in its text, or because the subject behaved otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub file: String,
    pub line: usize,
    /// The row of the table, where the file has one.
    pub row: Option<String>,
    pub statement: String,
    /// Boxed to keep the error small where there is none.
    pub problem: Box<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The text is no scenario: an unknown word, a missing value, a name that is bound to no job.
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
            Problem::Mismatch { .. } => write!(f, "not as told")?,
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

/// Reads a scenario without running it.
///
/// # Errors
/// The first line that is not of the language.
pub fn parse(text: &str, file_name: &str) -> Result<Script, Failure> {
    let script = syntax::read(text, file_name)?;
    if script.stories.iter().all(|story| story.steps.is_empty()) {
        // A story in which nothing happens would hold on everything.
        let problem = Box::new(Problem::Language("the file tells nothing: it has no statement".to_owned()));
        return Err(Failure { file: file_name.to_owned(), line: 1, row: None, statement: String::new(), problem });
    }
    Ok(script)
}

/// Plays a scenario on a fresh subject.
///
/// # Errors
/// The first statement that is not of the language, or that the subject does not bear out.
pub fn run(text: &str, file_name: &str, subject: &mut dyn TestTarget) -> Result<Report, Failure> {
    run_traced(text, file_name, subject, &mut |_| {})
}

/// Like [`run`], telling `sink` about each statement as it is played.
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

/// The directory of the scenario files, fixed when this crate is compiled.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// All scenario files, in the order of their names.
///
/// # Panics
/// If the directory cannot be read: then there is nothing to prove with.
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
