//! Which test proves which paragraph of the API's Rulings.
//!
//! A scenario names a paragraph in a line `ruling Leases`, a test in a doc comment `Rules Leases.`,
//! one paragraph per line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Citations, join, test_below};

/// The bold headings of api.md, section Rulings, in their order.
pub const RULINGS: [&str; 27] = [
    "What each transition does",
    "Transitions",
    "History",
    "Zero and null",
    "Final failures",
    "Cancel",
    "What is synced",
    "Leases",
    "Late and repeated answers",
    "Queues",
    "Claims",
    "Idempotency",
    "Dependencies",
    "Requeue",
    "PATCH",
    "Lists",
    "Bulk",
    "Sizes",
    "Small print",
    "document",
    "Workflows",
    "Schedules, small print",
    "Workers, small print",
    "Events, small print",
    "Webhooks, small print",
    "Authentication, small print",
    "Ocypod routes",
];

/// Other sections of api.md that a scenario may cite.
const SECTIONS: [&str; 2] = ["Jobs", "Virtual time"];

/// Proofs by heading.
pub type Proofs = BTreeMap<String, BTreeSet<String>>;

/// Returns the `## ` headings of docs/rulings.md, which may be cited too.
#[must_use]
pub fn own_headings(rulings_page: &str) -> Vec<&str> {
    rulings_page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::trim).collect()
}

/// Returns citations of unknown paragraphs.
#[must_use]
pub fn faults(proofs: &Proofs, rulings_page: &str) -> Vec<String> {
    let own = own_headings(rulings_page);
    let known = |heading: &str| RULINGS.contains(&heading) || SECTIONS.contains(&heading) || own.contains(&heading);
    let unknown = proofs.iter().filter(|(heading, _)| !known(heading));
    unknown.map(|(heading, by)| format!("there is no ruling '{heading}', cited by {}", join(by))).collect()
}

/// Returns paragraphs of the API without a proof.
#[must_use]
pub fn unproven(proofs: &Proofs) -> Vec<&'static str> {
    RULINGS.into_iter().filter(|heading| !proofs.contains_key(*heading)).collect()
}

/// Renders the paragraphs and their proofs as a section of `docs/requirements.md`.
pub(super) fn render(page: &mut String, proofs: &Proofs) {
    page.push_str("\n## Rulings of the API\n\n| paragraph | proven by |\n| --- | --- |\n");
    for heading in RULINGS {
        let standing = proofs.get(heading).map_or_else(|| "**not proven**".to_owned(), join);
        let _ = writeln!(page, "| {heading} | {standing} |");
    }
}

/// Collects the `ruling …` lines of one scenario.
pub(super) fn cite_scenario(file: &str, text: &str, citations: &mut Citations) {
    for heading in text.lines().filter_map(|line| line.trim_end().strip_prefix("ruling ")) {
        citations.add_ruling(heading.trim(), file);
    }
}

/// Collects the doc comments `Rules …` of one Rust file, each above a test.
pub(super) fn cite_rust(file: &str, module: &str, lines: &[&str], citations: &mut Citations) {
    for (at, line) in lines.iter().enumerate() {
        let Some(cited) = line.strip_prefix("///").and_then(|text| text.trim_start().strip_prefix("Rules ")) else {
            continue;
        };
        let heading = cited.split(['.', ':']).next().unwrap_or_default().trim();
        let comment = lines.iter().skip(at).take_while(|line| line.starts_with("///")).count();
        match test_below(lines, at, at + comment) {
            Ok(name) => citations.add_ruling(heading, &format!("{module}::{name}")),
            Err(why) => citations.faults.push(format!("{file}:{}: {why}", at + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{cite_rust, cite_scenario};
    use super::*;

    const OWN: &str = "# Readings\n\n## Settings\n\n## Limits of our own\n";

    fn cited(scenario: &str, rust: &str) -> Citations {
        let mut citations = Citations::default();
        cite_scenario("scenarios/story.txt", scenario, &mut citations);
        cite_rust("crates/core/src/lease.rs", rust, &mut citations);
        citations
    }

    #[test]
    fn scenarios_and_tests_cite_paragraphs() {
        let citations = cited(
            "# ruling Cancel\nruling Leases\n",
            "/// Proves T-21.\n/// Rules Zero and null.\n#[test]\nfn x() {}\n",
        );
        let headings: Vec<&str> = citations.rulings.keys().map(String::as_str).collect();
        assert_eq!(headings, ["Leases", "Zero and null"]);
        assert!(citations.rulings["Zero and null"].contains("core::lease::x"));
        assert_eq!(citations.faults, Vec::<String>::new());
        assert_eq!(faults(&citations.rulings, OWN), Vec::<String>::new());
    }

    #[test]
    fn unknown_paragraph_or_missing_test_is_reported() {
        let citations = cited("ruling Leeses\nruling Settings\n", "/// Rules Leases.\nfn helper() {}\n");
        assert_eq!(citations.faults, ["crates/core/src/lease.rs:1: `helper` is no test"]);
        assert_eq!(faults(&citations.rulings, OWN), ["there is no ruling 'Leeses', cited by `scenarios/story.txt`"]);
    }

    #[test]
    fn paragraph_without_proof_is_reported() {
        let citations = cited("ruling Leases\nruling Small print\n", "");
        let missing = unproven(&citations.rulings);
        assert!(missing.contains(&"Cancel") && !missing.contains(&"Leases") && missing.contains(&"Workflows"));
        let mut page = String::new();
        render(&mut page, &citations.rulings);
        for row in [
            "| Leases | `scenarios/story.txt` |",
            "| Cancel | **not proven** |",
            "| Bulk | **not proven** |",
            "| Small print | `scenarios/story.txt` |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
    }
}
