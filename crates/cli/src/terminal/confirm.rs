//! Yes-or-no questions on standard error.

use std::io::{self, BufRead, IsTerminal, Write};

use super::error::CliError;
use super::escape::escape_line;

/// Whether standard input is a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Prints the question and reads one line. Returns true for `y` and `yes`.
pub(crate) fn ask(question: &str) -> Result<bool, CliError> {
    let mut out = io::stderr().lock();
    write!(out, "{} [y/N] ", escape_line(question))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_means_yes() {
        for yes in ["y\n", "Y", " yes\r\n", "YES"] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no", "yess", "ja", "y y"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
