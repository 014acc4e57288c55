//! Files, directories, types and functions that ARCHITECTURE.md and CONTRIBUTING.md name exist.

use std::collections::HashSet;

use super::Finding;
use crate::lexer::{self, Kind};
use crate::tree::SourceFile;

const CHECK: &str = "doc-names";
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];
/// Names with one of these endings are files, also without a directory.
const FILE_ENDINGS: [&str; 9] = ["rs", "sql", "md", "txt", "toml", "json", "py", "ts", "yml"];
/// What a build writes: git ignores it.
const BUILT: [&str; 2] = ["target/", "ui/dist"];

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let names = SourceNames::collect(files);
    let mut findings = Vec::new();
    for document in files.iter().filter(|file| DOCUMENTS.contains(&file.path.as_str())) {
        let links = links(&document.text).filter(|(_, target)| !exists(files, target));
        findings.extend(links.map(|(line, target)| {
            let message = format!("link to {target}, which does not exist (name what is in the tree)");
            Finding::new(&document.path, line, CHECK, target, message)
        }));
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
        if is_path(code) {
            return (!is_pattern(code) && !exists(files, code)).then(|| format!("no file or directory {code}"));
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

/// Whether a piece of code names a file or directory of the repository. A path may lack its first
/// components, because a table or sentence names them once.
fn is_path(code: &str) -> bool {
    let is_relative = code.chars().all(|c| is_name_part(c) || "/.-".contains(c)) && !code.starts_with(['/', '.']);
    let ending = code.rsplit_once('.').map(|(_, ending)| ending);
    is_relative && (code.contains('/') || ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending)))
}

/// `VERB.rs` and `NNNN_name.sql` stand for any file.
fn is_pattern(path: &str) -> bool {
    let file_name = path.rsplit('/').next().unwrap_or(path);
    let has_ending = ["rs", "sql"].iter().any(|ending| file_name.ends_with(&format!(".{ending}")));
    BUILT.iter().any(|built| path.starts_with(built)) || has_ending && file_name.contains(char::is_uppercase)
}

fn exists(files: &[SourceFile], path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let (below, directory, inner) = (format!("/{path}"), format!("{path}/"), format!("/{path}/"));
    files.iter().any(|file| {
        let starts = file.path == path || file.path.starts_with(&directory);
        starts || file.path.ends_with(&below) || file.path.contains(&inner)
    })
}

/// Returns the targets of links into the repository with their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).flat_map(|(line, content)| {
        let targets = content.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        targets.filter(|target| !target.is_empty() && !target.contains("://")).map(move |target| (line, target))
    })
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
        assert_eq!(found("`VERB.rs` `migrations/NNNN_name.sql` `tests/*.rs` `make test` `ENOSPC` `/readyz`"), none);
        assert_eq!(found("`core/src/` `crates/a` `README.md` `target/python` `ui/dist` [map](README.md#map)"), none);
        assert_eq!(found("[web](https://example.org/a) [here](#here)"), none);
        assert_eq!(found("```text\n`gone.rs`\n```"), none);
    }

    #[test]
    fn names_that_are_gone_are_reported() {
        assert_eq!(found("\n`laim.rs` and `core/claim.rs`"), ["2:laim.rs", "2:core/claim.rs"]);
        assert_eq!(
            found("`gone/` `core/gone` `gone.md` `re/src`"),
            ["1:gone/", "1:core/gone", "1:gone.md", "1:re/src"]
        );
        assert_eq!(found("[map](docs/gone.md#map)"), ["1:docs/gone.md"]);
        assert_eq!(
            found("`Writer::claim`, `Lease::gone`, `Unknown`"),
            ["1:Writer::claim", "1:Lease::gone", "1:Unknown"]
        );
    }
}
