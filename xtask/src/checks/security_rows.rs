//! The checklist of docs/security.md has every item once, and the tests that it names exist. The
//! release profile checks overflows, as item S39 says.

use super::Finding;
use crate::tree::SourceFile;

const CHECK: &str = "security-rows";
const PAGE: &str = "docs/security.md";
const MANIFEST: &str = "Cargo.toml";
const ITEMS: usize = 40;
/// Begins the reason of an item without a test.
const NO_TEST: &str = "no test:";

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(page) = files.iter().find(|file| file.path == PAGE) {
        findings.extend(check_page(page, files));
    }
    if let Some(manifest) = files.iter().find(|file| file.path == MANIFEST) {
        let release = manifest.text.split("[profile.release]").nth(1).and_then(|rest| rest.split("\n[").next());
        if release.is_some_and(|profile| !profile.contains("overflow-checks = true")) {
            let message = "the release profile does not check overflows (set overflow-checks = true)";
            findings.push(Finding::new(MANIFEST, 1, CHECK, "", message.to_owned()));
        }
    }
    findings
}

fn check_page(page: &SourceFile, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rows = vec![0_usize; ITEMS];
    for (line, text) in (1..).zip(page.text.lines()) {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        let [items, _, state] = cells.as_slice() else { continue };
        let numbers: Vec<usize> = items.split(", ").filter_map(|item| item.strip_prefix('S')?.parse().ok()).collect();
        if numbers.is_empty() {
            continue;
        }
        let counted = numbers.iter().filter_map(|number| number.checked_sub(1)).collect::<Vec<_>>();
        rows.iter_mut().enumerate().filter(|(index, _)| counted.contains(index)).for_each(|(_, row)| *row += 1);
        let mut names = state.split('`').skip(1).step_by(2).filter(|name| is_file_name(name)).peekable();
        if names.peek().is_none() && !state.contains(NO_TEST) {
            let message = format!("{items} names no test (name its file, or write \"{NO_TEST}\" and why)");
            findings.push(Finding::new(PAGE, line, CHECK, items, message));
        }
        for name in names.filter(|name| !exists(name, files)) {
            let message = format!("{items} names {name}, which does not exist (correct the path)");
            findings.push(Finding::new(PAGE, line, CHECK, name, message));
        }
    }
    for (number, count) in (1..).zip(rows) {
        if count != 1 {
            let message = format!("S{number:02} has {count} rows (an item has one)");
            findings.push(Finding::new(PAGE, 1, CHECK, &format!("S{number:02}"), message));
        }
    }
    findings
}

fn is_file_name(name: &str) -> bool {
    name.contains('/') && [".rs", ".py", ".yml", ".toml", ".ts", ".mjs"].iter().any(|end| name.ends_with(end))
}

/// Whether a file has this path, or ends with it after a `/`.
fn exists(name: &str, files: &[SourceFile]) -> bool {
    files.iter().any(|file| file.path.strip_suffix(name).is_some_and(|start| start.is_empty() || start.ends_with('/')))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn page(rows: &str) -> Vec<String> {
        let rest: String = (4..=ITEMS).map(|number| format!("| S{number:02} | x | no test: y |\n")).collect();
        let files = [file(PAGE, &format!("{rows}{rest}")), file("crates/a/tests/b/c.rs", "")];
        check(&files).into_iter().map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn rows_need_a_test_that_exists_or_a_reason() {
        assert_eq!(page("| S01, S02 | x | test `b/c.rs` |\n| S03 | x | no test: z |\n"), [""; 0]);
        assert_eq!(page("| S01, S02 | x | test `b/d.rs` |\n| S03 | x | `a` |\n"), ["1:b/d.rs", "2:S03"]);
        assert_eq!(page("| S01 | x | test `b/c.rs` |\n| S02 | x | test `xb/c.rs` |\n"), ["2:xb/c.rs", "1:S03"]);
        assert_eq!(page("| S01, S02 | x | `b/c.rs` |\n| S03, S01 | x | `b/c.rs` |\n"), ["1:S01"]);
    }

    #[test]
    fn releases_check_overflows() {
        let found = |text: &str| check(&[file(MANIFEST, text)]).len();
        assert_eq!(found("[profile.release]\noverflow-checks = true\n[profile.dev]\n"), 0);
        assert_eq!(found("[profile.release]\nlto = true\n[profile.dev]\noverflow-checks = true\n"), 1);
    }
}
