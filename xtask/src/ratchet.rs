//! Findings that the tree still has and that may only become fewer.
//!
//! `xtask/ratchet.txt` records a count per file and check. A file may have as many findings of a
//! check as recorded; one more reports them all. `cargo xtask tidy --ratchet` writes lower counts.

use std::collections::BTreeMap;
use std::path::Path;

use crate::checks::Finding;
use crate::config::List;

const PATH: &str = "xtask/ratchet.txt";
const HEADER: &str = "\
# Findings left from before the house rules: path | check | count.
# Counts may only fall: `cargo xtask tidy --ratchet` lowers them, and never raises one.
";

type Counts = BTreeMap<(String, String), usize>;

/// Returns the recorded counts; none if the tree has no such file.
pub(crate) fn read(root: &Path) -> Counts {
    let list = List::read(root, PATH, "");
    let rows = list.rows().into_iter();
    rows.filter_map(|row| match row.fields.as_slice() {
        [path, check, count] => Some(((path.clone(), check.clone()), count.parse().ok()?)),
        _ => None,
    })
    .collect()
}

/// Returns the findings of files and checks that exceed their recorded count.
pub(crate) fn without_recorded(findings: Vec<Finding>, recorded: &Counts) -> Vec<Finding> {
    let present = count(&findings);
    let exceeds = |finding: &Finding| {
        let key = (finding.path.clone(), finding.check.to_owned());
        present.get(&key) > recorded.get(&key)
    };
    findings.into_iter().filter(exceeds).collect()
}

/// Writes the present counts where they are lower than the recorded ones.
///
/// Returns an error if a count would rise, because the ratchet turns in one direction only.
pub(crate) fn write(root: &Path, findings: &[Finding], recorded: &Counts) -> Result<(), String> {
    let text = lowered(findings, recorded)?;
    std::fs::write(root.join(PATH), text).map_err(|error| format!("cannot write {PATH}: {error}"))
}

fn lowered(findings: &[Finding], recorded: &Counts) -> Result<String, String> {
    let present = count(findings);
    let mut text = HEADER.to_owned();
    for ((path, check), count) in &present {
        let is_new = !recorded.is_empty() && recorded.get(&(path.clone(), check.clone())).is_none_or(|old| old < count);
        if is_new {
            return Err(format!("{path}: {count} findings of {check}, more than recorded (fix them)"));
        }
        text += &format!("{path} | {check} | {count}\n");
    }
    Ok(text)
}

fn count(findings: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings {
        *counts.entry((finding.path.clone(), finding.check.to_owned())).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(count: usize) -> Vec<Finding> {
        (0..count).map(|line| Finding::new("a.rs", line + 1, "banned-word", "gadget", String::new())).collect()
    }

    fn recorded(count: usize) -> Counts {
        Counts::from([(("a.rs".to_owned(), "banned-word".to_owned()), count)])
    }

    #[test]
    fn permits_the_recorded_count_and_not_one_more() {
        assert!(without_recorded(findings(2), &recorded(2)).is_empty());
        assert!(without_recorded(findings(1), &recorded(2)).is_empty());
        assert_eq!(without_recorded(findings(3), &recorded(2)).len(), 3);
        assert_eq!(without_recorded(findings(1), &Counts::new()).len(), 1);
    }

    #[test]
    fn counts_are_lowered_and_never_raised() {
        assert!(lowered(&findings(1), &recorded(2)).unwrap().ends_with("a.rs | banned-word | 1\n"));
        assert!(lowered(&findings(3), &recorded(2)).is_err());
        assert!(lowered(&findings(3), &Counts::new()).is_ok());
    }
}
