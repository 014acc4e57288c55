//! Width of comments and length of files.

use std::collections::HashSet;

use super::Finding;
use crate::lexer::{self, Kind};
use crate::tree::SourceFile;

/// Columns of a line that is a comment.
const COMMENT_COLUMNS: usize = 100;
/// Columns of a line of code with a comment behind it: `max_width` of rustfmt.toml.
const TRAILING_COLUMNS: usize = 120;
/// Lines of a Rust file.
const FILE_LINES: usize = 600;

pub(crate) fn check_comment_width(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let tokens = match file.extension() {
            "rs" => lexer::rust(&file.text),
            "sql" => lexer::sql(&file.text),
            _ => continue,
        };
        let comments: HashSet<usize> = tokens
            .iter()
            .filter(|token| token.kind == Kind::Comment)
            .flat_map(|token| token.line..=token.line + token.text.matches('\n').count())
            .collect();
        for (line, text) in (1..).zip(file.text.lines()).filter(|(line, _)| comments.contains(line)) {
            let start = text.trim_start();
            let is_own_line = ["//", "--", "/*", "*"].iter().any(|mark| start.starts_with(mark));
            let limit = if is_own_line { COMMENT_COLUMNS } else { TRAILING_COLUMNS };
            let columns = text.chars().count();
            if columns > limit && !cannot_wrap(start) {
                let message = format!("comment of {columns} columns (wrap it at {limit})");
                findings.push(Finding::new(&file.path, line, "comment-width", "", message));
            }
        }
    }
    findings
}

/// Rows of a table and lines with a link.
fn cannot_wrap(comment: &str) -> bool {
    let text = comment.trim_start_matches(['/', '!', '-', ' ']);
    text.starts_with('|') || text.contains("https://")
}

pub(crate) fn check_file_length(files: &[SourceFile]) -> Vec<Finding> {
    let sources = files.iter().filter(|file| file.extension() == "rs");
    let lengths = sources.map(|file| (file, file.text.lines().count()));
    lengths
        .filter(|(_, lines)| *lines > FILE_LINES)
        .map(|(file, lines)| {
            let message = format!("file of {lines} lines (split it by responsibility, at most {FILE_LINES})");
            Finding::new(&file.path, FILE_LINES + 1, "file-length", "", message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn wide(path: &str, text: &str) -> Vec<usize> {
        check_comment_width(&[file(path, text)]).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_wide_comments() {
        let words = "word ".repeat(20);
        for mark in ["//", "///", "//!", "/*"] {
            assert_eq!(wide("a.rs", &format!("\n{mark} {words}.*/")), [2], "{mark}");
        }
        assert_eq!(wide("a.sql", &format!("select 1;\n-- {words}.")), [2]);
        assert_eq!(wide("a.rs", &format!("let a = 1234567890; // {words}.")), [1]);
    }

    #[test]
    fn passes_narrow_comments_and_what_cannot_wrap() {
        let words = "word ".repeat(19);
        assert_eq!(wide("a.rs", &format!("// {words}")), [0; 0]);
        assert_eq!(wide("a.rs", &format!("let a = 1; // {words}")), [0; 0]);
        assert_eq!(wide("a.rs", &format!("/// | {words}{words} |")), [0; 0]);
        assert_eq!(wide("a.rs", &format!("// see https://example.org/{}", "x".repeat(100))), [0; 0]);
        assert_eq!(wide("a.rs", &format!("let a = \"\n// {words}{words}\";")), [0; 0]);
        assert_eq!(wide("a.md", &format!("// {words}{words}")), [0; 0]);
    }

    #[test]
    fn finds_long_files() {
        assert_eq!(check_file_length(&[file("a.rs", &"x\n".repeat(601))]).len(), 1);
        assert_eq!(check_file_length(&[file("a.rs", &"x\n".repeat(600))]), []);
        assert_eq!(check_file_length(&[file("a.md", &"x\n".repeat(601))]), []);
    }
}
