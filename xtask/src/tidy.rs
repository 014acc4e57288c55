//! Runs all checks and prints what they find.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;

use crate::checks::{Finding, banned_words, crate_order, doc_names, option_docs, security_rows, size, type_names};
use crate::config::{Config, List};
use crate::tree::{self, SourceFile};

const MARK: &str = "tidy-allow:";

/// What a run prints.
#[derive(Clone, Copy)]
pub(crate) enum Report {
    /// Every finding, one per line.
    List,
    /// Counts of the findings.
    Summary,
}

/// Prints the findings below `paths` (all if empty) and returns whether there are none.
pub(crate) fn run(root: &Path, report: Report, paths: &[String]) -> Result<bool, String> {
    let files = tree::read(root)?;
    let mut findings = find(&files, &Config::read(root));
    if !paths.is_empty() {
        findings.retain(|finding| paths.iter().any(|path| is_below(&finding.path, path)));
    }
    let text = match report {
        Report::List => list(&findings),
        Report::Summary => summarize(&findings),
    };
    // A reader that has seen enough (`| head`) closes the pipe: that is no error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    let with_findings: BTreeSet<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
    eprintln!("tidy: {} files, {} findings in {} of them", files.len(), findings.len(), with_findings.len());
    Ok(findings.is_empty())
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// All findings that no allow list and no mark on the line permits, in order of path and line.
fn find(files: &[SourceFile], config: &Config) -> Vec<Finding> {
    let mut findings = banned_words::check(files, &config.banned_words);
    findings.extend(type_names::check(files, config));
    findings.extend(size::check_comment_width(files));
    findings.extend(size::check_file_length(files));
    findings.extend(crate_order::check(files, &config.crate_order));
    findings.extend(option_docs::check(files));
    findings.extend(doc_names::check(files));
    findings.extend(security_rows::check(files));
    let mut findings = without_allowed(findings, &config.allowed, config.own);
    let by_path: HashMap<_, _> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    findings.retain(|finding| by_path.get(finding.path.as_str()).is_none_or(|file| !is_marked(file, finding.line)));
    findings.sort();
    findings
}

/// Whether the line has the mark with a reason behind it.
fn is_marked(file: &SourceFile, line: usize) -> bool {
    let reason = file.line(line).split_once(MARK).map(|(_, reason)| reason.trim().trim_end_matches("-->"));
    reason.is_some_and(|reason| reason.chars().any(char::is_alphabetic))
}

/// Drops what `allow.txt` permits; reports its entries that are malformed or match nothing.
fn without_allowed(findings: Vec<Finding>, list: &List, is_own: bool) -> Vec<Finding> {
    const CHECK: &str = "allow-list";
    let mut remaining = findings;
    let mut reported = Vec::new();
    for row in list.rows() {
        let [path, check, subject, reason] = row.fields.as_slice() else {
            let message = "malformed entry (write: path | check | subject or * | reason)".to_owned();
            reported.push(Finding::new(list.path, row.line, CHECK, "", message));
            continue;
        };
        let before = remaining.len();
        remaining.retain(|finding| {
            let same_path =
                path.strip_suffix('*').map_or(finding.path == *path, |start| finding.path.starts_with(start));
            !(same_path && finding.check == check && (subject == "*" || finding.subject == *subject))
        });
        if reason.is_empty() {
            let message = "entry without a reason (say why the rule does not fit)".to_owned();
            reported.push(Finding::new(list.path, row.line, CHECK, "", message));
        } else if is_own && remaining.len() == before {
            let message = format!("entry for {path} permits nothing (delete it)");
            reported.push(Finding::new(list.path, row.line, CHECK, "", message));
        }
    }
    remaining.extend(reported);
    remaining
}

fn list(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{}:{}: {}\n", finding.path, finding.line, finding.message)).collect()
}

fn summarize(findings: &[Finding]) -> String {
    let mut text = String::new();
    let per_check = count(findings.iter().map(|finding| finding.check.to_owned()));
    let banned = findings.iter().filter(|finding| finding.check == "banned-word");
    let per_word = count(banned.map(|finding| finding.subject.clone()));
    let shared: BTreeSet<_> = findings.iter().filter(|finding| finding.check == "type-name").collect();
    let per_type = count(shared.iter().map(|finding| finding.subject.clone()));
    for (title, counts) in [("checks", per_check), ("banned words", per_word), ("type names", per_type)] {
        text += &format!("{title}\n");
        text.extend(counts.iter().map(|(name, count)| format!("{count:7}  {name}\n")));
        text.push('\n');
    }
    text += "files\n";
    let mut per_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for finding in findings {
        per_file.entry(&finding.path).or_default().push(finding.check.to_owned());
    }
    let mut per_file: Vec<_> = per_file.into_iter().collect();
    per_file.sort_by_key(|(_, checks)| std::cmp::Reverse(checks.len()));
    for (path, checks) in per_file {
        let parts: Vec<_> =
            count(checks.iter().cloned()).iter().map(|(check, count)| format!("{check} {count}")).collect();
        text += &format!("{:7}  {path}  ({})\n", checks.len(), parts.join(", "));
    }
    text
}

/// How often each name occurs, the most frequent first.
fn count(names: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::file;

    fn config(allowed: &str) -> Config {
        Config {
            banned_words: List::of("gadget | any | say machine"),
            allowed: List::of(allowed),
            shared_names: List::of(""),
            crate_order: List::of(""),
            own: true,
        }
    }

    fn found(text: &str, allowed: &str) -> String {
        list(&find(&[file("src/a.rs", text)], &config(allowed)))
    }

    #[test]
    fn prints_place_fault_and_remedy() {
        assert_eq!(found("\n// a gadget", ""), "src/a.rs:2: banned word \"gadget\" (say machine)\n");
    }

    #[test]
    fn accepts_a_mark_with_a_reason_on_the_line() {
        assert_eq!(found("f(\"gadget\"); // tidy-allow: the wire's word", ""), "");
        assert_ne!(found("f(\"gadget\"); // tidy-allow:", ""), "");
        assert_ne!(found("// tidy-allow: the wire's word\nf(\"gadget\");", ""), "");
    }

    #[test]
    fn accepts_entries_of_the_allow_list() {
        assert_eq!(found("// gadget", "src/a.rs | banned-word | gadget | the wire's word"), "");
        assert_eq!(found("// gadget", "src/* | banned-word | * | the wire's word"), "");
        assert_ne!(found("// gadget", "src/b.rs | banned-word | gadget | the wire's word"), "");
        assert_ne!(found("// gadget", "src/a.rs | comment-width | * | the wire's word"), "");
    }

    #[test]
    fn reports_faults_of_the_allow_list() {
        assert!(found("", "src/a.rs | banned-word | gadget | reason").contains("permits nothing"));
        assert!(found("// gadget", "src/a.rs | banned-word | gadget |").contains("without a reason"));
        assert!(found("", "src/a.rs | banned-word").contains("malformed"));
    }

    #[test]
    fn summary_counts() {
        let findings = find(&[file("a.rs", "// gadget\n// gadget"), file("b.rs", "// gadget")], &config(""));
        let text = summarize(&findings);
        assert!(text.contains("      3  banned-word\n"), "{text}");
        assert!(text.contains("      2  a.rs  (banned-word 2)\n"), "{text}");
    }

    #[test]
    fn paths_are_matched_by_component() {
        assert!(is_below("crates/core/src/a.rs", "crates/core"));
        assert!(is_below("crates/core/src/a.rs", "crates/core/"));
        assert!(!is_below("crates/core-x/a.rs", "crates/core"));
    }
}
