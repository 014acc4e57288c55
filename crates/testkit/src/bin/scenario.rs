//! `scenario [--on SUBJECT] [--trace] FILES…`: runs scenario files and reports the results.

use longshore_testkit::engine_subject::EngineSubject;
use longshore_testkit::model::Model;
use longshore_testkit::scenario::{self, Event};
use longshore_testkit::target::TestTarget;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: scenario [--on model|engine|all] [--trace] [FILES…]

Plays scenario files (all of scenarios/ when none is named) and prints a line for each.
  --on SUBJECT   what to play them on (default: engine)
  --trace        show each statement, what came back, and the virtual time";

type Make = fn() -> Box<dyn TestTarget>;

/// The targets of this program (tests/scenarios.rs has its own list).
const SUBJECTS: &[(&str, Make)] =
    &[("model", || Box::new(Model::new())), ("engine", || Box::new(EngineSubject::new()))];

/// Escape codes, or none if the output is not a terminal.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
    fn good(self, text: &str) -> String {
        self.with("32", text)
    }
    fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }
    fn faint(self, text: &str) -> String {
        self.with("2", text)
    }
    fn strong(self, text: &str) -> String {
        self.with("1", text)
    }
    fn answer(self, text: &str) -> String {
        self.with("36", text)
    }
}

struct Options {
    subject: String,
    trace: bool,
    files: Vec<PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { subject: "engine".to_owned(), trace: false, files: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--trace" => options.trace = true,
            "--on" => options.subject = arguments.next().ok_or("--on needs a subject")?,
            "--help" | "-h" => return Err(String::new()),
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            file => options.files.push(PathBuf::from(file)),
        }
    }
    if options.subject != "all" && !SUBJECTS.iter().any(|(name, _)| *name == options.subject) {
        return Err(format!("there is no subject `{}`", options.subject));
    }
    if options.files.is_empty() {
        options.files = scenario::all_files();
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) if problem.is_empty() => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let paint = Paint(std::io::stdout().is_terminal());
    // A closed pipe (`| head`) is not a failure.
    match play_all(&options, paint) {
        Ok(0) | Err(_) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
    }
}

fn play_all(options: &Options, paint: Paint) -> std::io::Result<usize> {
    let mut out = std::io::stdout().lock();
    let (mut failed, mut played) = (0, 0);
    for file in &options.files {
        let name = file.file_name().map_or_else(|| file.display().to_string(), |n| n.to_string_lossy().into_owned());
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(problem) => {
                writeln!(out, "{} {}: {problem}", paint.bad("FAILED"), file.display())?;
                failed += 1;
                continue;
            }
        };
        for (subject, make) in
            SUBJECTS.iter().filter(|(known, _)| options.subject == "all" || options.subject == *known)
        {
            played += 1;
            let mut trace = Trace { on: options.trace, paint, width: width(&text), last: None, row: None };
            if options.trace {
                writeln!(out, "{}", paint.strong(&format!("── {name} on the {subject} ──")))?;
            }
            let verdict = scenario::run_traced(&text, &name, make().as_mut(), &mut |event| trace.show(event, &mut out));
            match verdict {
                Ok(report) => {
                    let name = format!("{name} on the {subject}");
                    writeln!(out, "{} {name:<58} {}", paint.good("ok    "), paint.faint(&report.title))?;
                }
                Err(failure) => {
                    failed += 1;
                    writeln!(out, "{} on the {subject}: {failure}", paint.bad("FAILED"))?;
                }
            }
            if options.trace {
                writeln!(out)?;
            }
        }
    }
    let verdict = if failed == 0 { paint.good("all passed") } else { paint.bad(&format!("{failed} FAILED")) };
    writeln!(out, "{played} played, {verdict}")?;
    Ok(failed)
}

/// Returns the statement of a line, without its expectation.
fn statement_of(line: &str) -> &str {
    line.split("->").next().unwrap_or_default().trim_end()
}

/// Returns the width of the column of statements, within bounds.
fn width(text: &str) -> usize {
    let statement = |line: &str| statement_of(line).chars().count();
    text.lines().filter(|line| !line.starts_with('#')).map(statement).max().unwrap_or(0).clamp(24, 56)
}

struct Trace {
    on: bool,
    paint: Paint,
    width: usize,
    last: Option<String>,
    row: Option<String>,
}

impl Trace {
    fn show(&mut self, event: &Event<'_>, out: &mut impl Write) {
        if !self.on {
            return;
        }
        let mut lines = String::new();
        if event.row.is_some() && event.row != self.row.as_deref() {
            let row = event.row.unwrap_or_default();
            lines.push_str(&format!("\n{}\n", self.paint.strong(&format!("         with {row}"))));
            self.row = event.row.map(str::to_owned);
            self.last = None;
        }
        if event.statement.starts_with('#') {
            let note = event.statement.trim_start_matches('#').trim();
            lines.push_str(&format!("\n         {}\n", self.paint.strong(note)));
        } else {
            let clock = event.clock();
            // The clock is shown when it has changed, so that waiting is visible.
            let shown = if self.last.as_ref() == Some(&clock) { String::new() } else { clock.clone() };
            self.last = Some(clock);
            // The result follows the first line; the jobs of a batch follow below it.
            let mut parts = event.statement.lines().map(statement_of);
            let statement = parts.next().unwrap_or_default();
            let pad = " ".repeat(self.width.saturating_sub(statement.chars().count()));
            let got = match (event.ok, event.got) {
                (_, "") => String::new(),
                (true, got) => format!("{} {}", self.paint.faint("→"), self.paint.answer(got)),
                (false, got) => format!("{} {}", self.paint.bad("✗"), self.paint.bad(got)),
            };
            lines.push_str(&format!("{} {statement}{pad} {got}\n", self.paint.faint(&format!("{shown:>8}"))));
            for member in parts {
                lines.push_str(&format!("           {}\n", member.trim_start()));
            }
        }
        // The next write of the caller reports the error.
        let _closed = out.write_all(lines.as_bytes());
    }
}
