//! Dependencies between crates go one way only, as `crate-order.txt` has it. Dependencies of tests
//! are free.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::config::List;
use crate::tree::SourceFile;

const CHECK: &str = "crate-order";
const PREFIX: &str = "longshore-";
/// The package of the SDK has no prefix.
const SDK: &str = "longshore";

pub(crate) fn check(files: &[SourceFile], list: &List) -> Vec<Finding> {
    let mut findings = Vec::new();
    let allowed = read_list(list, &mut findings);
    for file in files.iter().filter(|file| file.file_name() == "Cargo.toml") {
        let Some((line, name)) = package_name(&file.text) else { continue };
        let Some(row) = allowed.get(name) else {
            let message = format!("crate {name} is not in {} (add a row with the crates it may use)", list.path);
            findings.push(Finding::new(&file.path, line, CHECK, name, message));
            continue;
        };
        for (line, dependency) in dependencies(&file.text) {
            if !row.contains(&dependency) {
                let message = format!(
                    "crate {name} must not depend on {dependency} (move the code, or change the order in {})",
                    list.path
                );
                findings.push(Finding::new(&file.path, line, CHECK, &dependency, message));
            }
        }
    }
    findings
}

/// Reads rows `crate | crate, crate`. A crate may use only crates of earlier rows: no cycles.
fn read_list(list: &List, findings: &mut Vec<Finding>) -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed = BTreeMap::new();
    for row in list.rows() {
        let [name, uses] = row.fields.as_slice() else {
            let message = "malformed row (write: crate | crate, crate)".to_owned();
            findings.push(Finding::new(list.path, row.line, CHECK, "", message));
            continue;
        };
        let uses: BTreeSet<_> =
            uses.split(',').map(str::trim).filter(|used| !used.is_empty()).map(str::to_owned).collect();
        for used in uses.iter().filter(|used| !allowed.contains_key(*used)) {
            let message = format!("{used} is not in a row above {name} (order the rows from the lowest crate up)");
            findings.push(Finding::new(list.path, row.line, CHECK, used, message));
        }
        allowed.insert(name.clone(), uses);
    }
    allowed
}

fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Lines of a manifest with their section.
fn entries(manifest: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    (1..).zip(manifest.lines()).map(move |(line, text)| {
        let text = text.trim();
        if text.starts_with('[') {
            section = text.trim_matches(['[', ']']);
        }
        (line, section, text)
    })
}

fn package_name(manifest: &str) -> Option<(usize, &str)> {
    entries(manifest).filter(|(_, section, _)| *section == "package").find_map(|(line, _, text)| {
        let value = text.strip_prefix("name")?.trim_start().strip_prefix('=')?;
        Some((line, short(value.trim().trim_matches('"'))))
    })
}

/// The project's own crates among the dependencies that are not for tests.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, section, text) in entries(manifest) {
        let table = section.rsplit_once("dependencies").map(|(before, after)| (before, after.trim_start_matches('.')));
        let Some((before, dependency)) = table.filter(|(before, _)| !before.ends_with("dev-")) else { continue };
        if before == "workspace." {
            continue;
        }
        // `[dependencies.longshore-core]`, `longshore-core.workspace = true`,
        // `x = { package = "longshore-core" }`
        let key =
            if text.starts_with('[') { dependency } else { text.split(['.', '=', ' ']).next().unwrap_or_default() };
        let package = text.split_once("package").map_or("", |(_, value)| value.trim_matches([' ', '=', '"']));
        let package = package.split('"').next().unwrap_or_default();
        for name in [key, package] {
            let name = name.trim_matches('"');
            if let Some(name) = name.strip_prefix(PREFIX).or_else(|| (name == SDK).then_some(SDK)) {
                found.push((line, name.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const ORDER: &str = "types |\ncore | types\ntestkit | types, core\ncli | types, core\n";

    fn found(name: &str, manifest: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{name}\"\n{manifest}");
        let findings = check(&[file("crates/x/Cargo.toml", &manifest)], &List::of(ORDER));
        findings.into_iter().map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn finds_dependencies_against_the_order() {
        assert_eq!(found("longshore-types", "[dependencies]\nlongshore-core.workspace = true"), ["4:core"]);
        assert_eq!(found("longshore-types", "[dependencies]\nlongshore-core = { path = \"x\" }"), ["4:core"]);
        assert_eq!(found("longshore-types", "[build-dependencies]\na = { package = \"longshore-core\" }"), ["4:core"]);
        assert_eq!(found("longshore-types", "[target.'cfg(unix)'.dependencies.longshore-core]"), ["3:core"]);
        assert_eq!(found("longshore-cli", "[dependencies]\nlongshore-testkit.workspace = true"), ["4:testkit"]);
        assert_eq!(found("longshore-types", "[dependencies]\nlongshore.workspace = true"), ["4:longshore"]);
    }

    #[test]
    fn finds_unknown_crates() {
        assert_eq!(found("longshore-records", ""), ["2:records"]);
    }

    #[test]
    fn passes_the_order_and_dependencies_of_tests() {
        let manifest = "[dependencies]\nlongshore-types.workspace = true\nbytes = \"1\"\n\
                        [dev-dependencies]\nlongshore-testkit.workspace = true\n[lints]\nworkspace = true";
        assert_eq!(found("longshore-core", manifest), [""; 0]);
    }

    #[test]
    fn finds_rows_out_of_order() {
        let findings = check(&[], &List::of("core | types\ntypes |\nrow\n"));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 3]);
    }
}
