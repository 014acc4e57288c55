//! Standard output: data, and nothing else. Notes for people go to standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::error::CliError;
use super::escape::{safe_json, safe_lines};
use super::table::Table;

/// Where output goes and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    /// Standard output is a terminal.
    pub(crate) terminal: bool,
    pub(crate) colour: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { json, terminal, colour: terminal && !json && !set("NO_COLOR") && !dumb }
    }

    /// One line, or several.
    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        Ok(writeln!(io::stdout().lock(), "{}", safe_lines(text))?)
    }

    /// As it is: only for bytes that somebody asked for, on their way into a file or a program.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// Spread out for people, in one line for programs.
    pub(crate) fn json<T: Serialize>(&self, value: &T) -> Result<(), CliError> {
        let text = if self.terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        let text = text.map_err(|error| CliError::failed(format!("this cannot be written as JSON: {error}")))?;
        Ok(writeln!(io::stdout().lock(), "{}", safe_json(&text))?)
    }

    /// One line, whoever reads it.
    pub(crate) fn json_line<T: Serialize>(&self, value: &T) -> Result<(), CliError> {
        Output { terminal: false, ..*self }.json(value)
    }

    pub(crate) fn table(&self, table: &Table) -> Result<(), CliError> {
        let text = table.drawn(self);
        // Cells are safe already, and styles are ours.
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }

    /// Something an operator must see while a command runs on: a line on standard error, also for programs.
    pub(crate) fn warn(&self, text: &str) {
        if !self.json {
            return self.info(text);
        }
        let line = serde_json::json!({ "warning": text }).to_string();
        drop(writeln!(io::stderr().lock(), "{}", safe_json(&line)));
    }

    /// Something a person may want to know besides; programs that asked for JSON do not.
    pub(crate) fn info(&self, text: &str) {
        if !self.json {
            // Nobody to tell is no reason to stop.
            drop(writeln!(io::stderr().lock(), "{}", safe_lines(text)));
        }
    }
}
