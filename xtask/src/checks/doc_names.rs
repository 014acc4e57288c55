//! Source files, types and functions that ARCHITECTURE.md and CONTRIBUTING.md name exist.

use std::collections::HashSet;

use super::Finding;
use crate::lexer::{self, Kind};
use crate::tree::SourceFile;

const CHECK: &str = "doc-names";
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let names = SourceNames::collect(files);
    let mut findings = Vec::new();
    for document in files.iter().filter(|file| DOCUMENTS.contains(&file.path.as_str())) {
        for (line, code) in inline_code(&document.text) {
            if let Some(fault) = names.fault(files, code) {
                let message = format!("{fault} (the document is out of date: name what is in the tree)");
                findings.push(Finding::new(&document.path, line, CHECK, code, message));
            }
        }
    }
    findings
}

/// Names in the sources of the crates.
#[derive(Default)]
struct SourceNames<'a> {
    /// Names after `struct`, `enum`, `trait` and `type`.
    types: HashSet<&'a str>,
    /// All names in Rust and SQL.
    all: HashSet<&'a str>,
}

impl<'a> SourceNames<'a> {
    fn collect(files: &'a [SourceFile]) -> Self {
        let mut names = Self::default();
        for file in files {
            match file.extension() {
                "rs" => {
                    let mut previous = "";
                    for token in lexer::rust(&file.text).iter().filter(|token| token.kind == Kind::Name) {
                        names.all.insert(token.text);
                        if ["struct", "enum", "trait", "type"].contains(&previous) {
                            names.types.insert(token.text);
                        }
                        previous = token.text;
                    }
                }
                "sql" => names.all.extend(file.text.split(|c: char| !is_name_part(c))),
                _ => {}
            }
        }
        names
    }

    /// Says what a piece of code names that does not exist.
    fn fault(&self, files: &[SourceFile], code: &str) -> Option<String> {
        if let Some(stem) = code.strip_suffix(".rs").or_else(|| code.strip_suffix(".sql")) {
            // `VERB.rs` stands for any file.
            let is_pattern = !stem.chars().all(|c| is_name_part(c) || "/-".contains(c))
                || stem.rsplit('/').next().is_some_and(|name| name.contains(char::is_uppercase));
            let exists = |file: &SourceFile| file.path == code || file.path.ends_with(&format!("/{code}"));
            return (!is_pattern && !files.iter().any(exists)).then(|| format!("no file {code}"));
        }
        let parts: Vec<&str> = code.split("::").collect();
        let is_name =
            |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(is_name_part);
        if !parts.iter().all(is_name) {
            return None;
        }
        match parts.as_slice() {
            [owner, .., member] if is_camel_case(owner) => {
                if !self.types.contains(owner) {
                    Some(format!("no type {owner}"))
                } else {
                    (!self.all.contains(member)).then(|| format!("no {member} in the sources"))
                }
            }
            [name] if is_camel_case(name) => (!self.all.contains(name)).then(|| format!("no {name} in the sources")),
            _ => None,
        }
    }
}

fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a name has upper and lower case, as types and variants have.
fn is_camel_case(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(|c: char| c.is_ascii_lowercase())
}

/// Returns the pieces between backticks with their lines, without fenced blocks.
fn inline_code(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.extend(content.split('`').skip(1).step_by(2).map(|code| (line, code)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let files = [
            file("crates/core/src/claim.rs", "pub struct Lease; enum Fate { NotApplied } fn claim() {}"),
            file("crates/a/sql/hot.sql", "SELECT fast_work()"),
            file("ARCHITECTURE.md", document),
            file("README.md", "`gone.rs`"),
        ];
        let findings = check(&files);
        findings.into_iter().map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn names_that_exist_pass() {
        let none = [""; 0];
        assert_eq!(found("`claim.rs` `core/src/claim.rs` `crates/a/sql/hot.sql` `Lease::claim` `NotApplied`"), none);
        assert_eq!(found("`VERB.rs` `migrations/NNNN_name.sql` `tests/*.rs` `make test` `ENOSPC` `a.md`"), none);
        assert_eq!(found("```text\n`gone.rs`\n```"), none);
    }

    #[test]
    fn names_that_are_gone_are_reported() {
        assert_eq!(found("\n`laim.rs` and `core/claim.rs`"), ["2:laim.rs", "2:core/claim.rs"]);
        assert_eq!(
            found("`Writer::claim`, `Lease::gone`, `Unknown`"),
            ["1:Writer::claim", "1:Lease::gone", "1:Unknown"]
        );
    }
}
