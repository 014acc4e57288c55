//! Standard output is for data only. Remarks and warnings go to standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::error::CliError;
use super::escape::{safe_json, safe_lines};
use super::table::TextTable;

/// Form of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    /// Whether standard output is a terminal.
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

    /// Prints text of one or several lines, escaped.
    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        Ok(writeln!(io::stdout().lock(), "{}", safe_lines(text))?)
    }

    /// Prints raw bytes. Only for output that goes into a file or a pipe.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// Prints JSON: indented on a terminal, else on one line.
    pub(crate) fn json<T: Serialize>(&self, value: &T) -> Result<(), CliError> {
        let text = if self.terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        let text = text.map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
        Ok(writeln!(io::stdout().lock(), "{}", safe_json(&text))?)
    }

    /// Prints JSON on one line, also on a terminal.
    pub(crate) fn json_line<T: Serialize>(&self, value: &T) -> Result<(), CliError> {
        Output { terminal: false, ..*self }.json(value)
    }

    pub(crate) fn table(&self, table: &TextTable) -> Result<(), CliError> {
        let text = table.render(self);
        // The cells are escaped. Escaping the whole text would break the colours.
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }

    /// Prints a warning to standard error; with `--json` as an object.
    pub(crate) fn warn(&self, text: &str) {
        if !self.json {
            return self.info(text);
        }
        let line = serde_json::json!({ "warning": text }).to_string();
        drop(writeln!(io::stderr().lock(), "{}", safe_json(&line)));
    }

    /// Prints a remark to standard error; nothing with `--json`.
    pub(crate) fn info(&self, text: &str) {
        if !self.json {
            // A closed standard error does not stop the command.
            drop(writeln!(io::stderr().lock(), "{}", safe_lines(text)));
        }
    }
}
